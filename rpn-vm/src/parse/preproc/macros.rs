//! Macro definitions and their replacement, as in C: parameters, `#`, `##`, `__VA_ARGS__`, rescanning.
//!
//! Replacement works on a stack of token lists. A macro whose list is on the stack is not replaced again,
//! so self-reference ends. Work, words and depth are bounded for each line, so no other input runs
//! endlessly either.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::lex::{Kind, Token, scan};
use crate::source::{Sources, Span};

/// Most tokens one line may grow to.
pub(super) const MAX_LINE_TOKENS: usize = 4096;
/// Most tokens that may be handled to make one line.
const MAX_LINE_WORK: u32 = 65_536;
/// Most tokens that may be handled in a compilation.
const MAX_WORK: u32 = 4_000_000;
/// Deepest nesting of macros within the text of macros.
const MAX_DEPTH: usize = 256;
/// Deepest nesting of macro calls within the arguments of macro calls.
const MAX_ARGUMENT_DEPTH: usize = 64;
/// Most parameters of a macro.
const MAX_PARAMETERS: usize = 127;

/// Names that are always defined.
pub(in crate::parse) const BUILT_IN: &[&str] = &["__FILE__", "__LINE__", "__COUNTER__", "__TRAPLINE__"];

/// A definition.
#[derive(Debug)]
pub(super) struct Macro {
    /// Its number in [`Sources`].
    id: u32,
    /// Location of its name.
    pub span: Span,
    /// Its parameters, if it has a parameter list.
    params: Option<Vec<String>>,
    variadic: bool,
    body: Rc<[Token]>,
}

/// Why a line cannot be replaced.
#[derive(Debug)]
pub(super) enum Stop {
    /// The arguments do not end on the line.
    Unclosed(Token),
    /// The macro call is wrong.
    Call(Span, String),
    /// The result of `##` or `#` is not one word.
    Paste(Span, String),
    /// A limit was reached.
    Limit(Span, String),
}

impl Macro {
    /// Parses the definition after `#define`. `Err`: the place and the reason of an error.
    pub fn parse(rest: &[Token], sources: &mut Sources) -> Result<(String, Self), (Span, String)> {
        let [name, after @ ..] = rest else {
            return Err((Span::default(), "`#define` needs a name and a value".to_owned()));
        };
        macro_name(name)?;
        if BUILT_IN.contains(&name.text.as_str()) {
            return Err((name.span, format!("`{}` is built in and cannot be defined", name.text)));
        }
        let (params, variadic, body) = match after {
            [open, more @ ..] if open.is('(') && !open.space => {
                let (params, variadic, body) = parameters(more, open.span)?;
                (Some(params), variadic, body)
            }
            _ => (None, false, after),
        };
        let id = sources.define(&name.text, name.span);
        let made = Self { id, span: name.span, params, variadic, body: Rc::from(body) };
        made.check_body()?;
        Ok((name.text.clone(), made))
    }

    /// `##` needs two neighbours, `#` a parameter.
    fn check_body(&self) -> Result<(), (Span, String)> {
        let pastes = |at: usize| is_paste(&self.body, at);
        if let Some(first) = self.body.first().filter(|_| pastes(0)) {
            return Err((first.span, "`##` cannot begin the text of a macro".to_owned()));
        }
        let mut at = 0;
        while let Some(token) = self.body.get(at) {
            if pastes(at) {
                if self.body.get(at + 2).is_none() {
                    return Err((token.span, "`##` cannot end the text of a macro".to_owned()));
                }
                at += 2;
                continue;
            }
            let operand = self.body.get(at + 1).and_then(|t| self.param(t));
            if token.is('#') && self.params.is_some() && operand.is_none() {
                let message = "`#` in a macro with parameters must be followed by one of them".to_owned();
                return Err((token.span, message));
            }
            at += 1;
        }
        Ok(())
    }

    /// The index of a parameter named by a token; `__VA_ARGS__` comes after the named ones.
    fn param(&self, token: &Token) -> Option<usize> {
        let params = self.params.as_ref()?;
        let name = token.ident()?;
        if name == "__VA_ARGS__" && self.variadic {
            return Some(params.len());
        }
        params.iter().position(|p| p == name)
    }

    /// Whether two definitions are the same as C sees it.
    pub fn same(&self, other: &Self) -> bool {
        let words = |m: &Self| -> Vec<(String, bool)> {
            m.body.iter().enumerate().map(|(n, t)| (t.source(), t.space && n > 0)).collect()
        };
        self.params == other.params && self.variadic == other.variadic && words(self) == words(other)
    }
}

/// Checks that a token can name a macro.
pub(super) fn macro_name(token: &Token) -> Result<(), (Span, String)> {
    let plain = token.ident().is_some_and(|n| n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    if !plain {
        let message =
            format!("`{}` cannot name a macro: use letters, digits and underscores", token.source());
        return Err((token.span, message));
    }
    if token.text == "defined" {
        return Err((token.span, "`defined` is an operator of `#if` and cannot name a macro".to_owned()));
    }
    Ok(())
}

/// The parameter names, whether `...` follows them, and the tokens after the list.
type Parameters<'t> = (Vec<String>, bool, &'t [Token]);

fn parameters(tokens: &[Token], open: Span) -> Result<Parameters<'_>, (Span, String)> {
    let Some(close) = tokens.iter().position(|t| t.is(')')) else {
        return Err((open, "the list of parameters is not closed".to_owned()));
    };
    let (list, body) = (&tokens[..close], tokens.get(close + 1..).unwrap_or_default());
    let mut params: Vec<String> = Vec::new();
    let mut variadic = false;
    if list.is_empty() {
        return Ok((params, false, body));
    }
    for one in list.split(|t| t.is(',')) {
        let wrong = |message: String| Err((one.first().map_or(open, |t| t.span), message));
        match one {
            _ if variadic => return wrong("`...` must be the last parameter".to_owned()),
            [dots] if dots.text == "..." => variadic = true,
            [name] if params.contains(&name.text) => {
                return wrong(format!("parameter `{}` is given twice", name.text));
            }
            [name] if name.text == "__VA_ARGS__" => {
                return wrong("`__VA_ARGS__` stands for `...` and cannot be a parameter".to_owned());
            }
            [name] => {
                macro_name(name)?;
                params.push(name.text.clone());
            }
            _ => return wrong("parameters are names with commas between them".to_owned()),
        }
    }
    if params.len() > MAX_PARAMETERS {
        return Err((open, format!("a macro has at most {MAX_PARAMETERS} parameters, not {}", params.len())));
    }
    Ok((params, variadic, body))
}

fn is_paste(body: &[Token], at: usize) -> bool {
    matches!(body.get(at..at + 2), Some([a, b]) if a.is('#') && b.is('#') && !b.space)
}

/// A token list that is being read.
struct List {
    tokens: Rc<[Token]>,
    at: usize,
    /// The macro whose text it is.
    of: Option<u32>,
    /// Whether white space precedes the token after the list, left over from empty arguments at its end.
    trail: bool,
}

/// The text of a macro with its arguments in place, and [`List::trail`].
type Text = (Vec<Token>, bool);

/// The arguments of a call, unreplaced.
#[derive(Default)]
struct Arguments {
    list: Vec<Vec<Token>>,
    /// Whether nothing was given for `...`.
    rest_omitted: bool,
}

/// State that the replacement shares between the lines of a compilation.
#[derive(Debug, Default)]
pub(super) struct Macros {
    pub defined: BTreeMap<String, Rc<Macro>>,
    work: u32,
    counter: u64,
}

impl Macros {
    /// Whether a name is a macro.
    pub fn is_defined(&self, name: &str) -> bool {
        self.defined.contains_key(name) || BUILT_IN.contains(&name)
    }

    /// Whether a line may contain macros.
    pub fn touches(&self, tokens: &[Token]) -> bool {
        tokens.iter().any(|t| t.ident().is_some_and(|name| self.is_defined(name)))
    }

    /// Whether the arguments of a call may be on the next line: this line is replaced and ends with the macro's name.
    pub fn may_be_called(&self, line: &[Token]) -> bool {
        let name = line.last().filter(|last| !last.painted).and_then(Token::ident);
        name.and_then(|name| self.defined.get(name)).is_some_and(|made| made.params.is_some())
    }

    /// The next value of `__COUNTER__`. It is put back when a line is replaced again.
    pub fn counter(&mut self) -> &mut u64 {
        &mut self.counter
    }

    /// Replaces the macros of one line.
    pub fn expand(&mut self, tokens: &[Token], sources: &mut Sources) -> Result<Vec<Token>, Stop> {
        let site = tokens.first().map(|t| t.span).unwrap_or_default();
        let mut run = Run { macros: self, sources, busy: Vec::new(), line_work: 0, depth: 0, site };
        run.list(Rc::from(tokens))
    }
}

/// The replacement of one line.
struct Run<'a> {
    macros: &'a mut Macros,
    sources: &'a mut Sources,
    /// Macros whose text is being read.
    busy: Vec<u32>,
    line_work: u32,
    depth: usize,
    /// The macro name of the text that is being replaced, for limits.
    site: Span,
}

impl Run<'_> {
    fn limit<T>(&self, message: String) -> Result<T, Stop> {
        Err(Stop::Limit(self.site, message))
    }

    fn work(&mut self, tokens: usize) -> Result<(), Stop> {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX).saturating_add(1);
        self.line_work = self.line_work.saturating_add(tokens);
        self.macros.work = self.macros.work.saturating_add(tokens);
        if self.line_work > MAX_LINE_WORK {
            return self.limit(format!(
                "the macros of this line expand to more than {MAX_LINE_WORK} words in intermediate steps"
            ));
        }
        if self.macros.work > MAX_WORK {
            return self.limit(format!("the macros of this program expand to more than {MAX_WORK} words"));
        }
        Ok(())
    }

    /// Replaces all macros of a list of tokens.
    fn list(&mut self, tokens: Rc<[Token]>) -> Result<Vec<Token>, Stop> {
        if self.depth >= MAX_ARGUMENT_DEPTH {
            return self
                .limit(format!("macro calls nest deeper than {MAX_ARGUMENT_DEPTH} in their arguments"));
        }
        self.depth += 1;
        let outer = self.busy.len();
        let mut lists = vec![List { tokens, at: 0, of: None, trail: false }];
        let mut out = Vec::new();
        let result = self.lists(&mut lists, &mut out);
        self.busy.truncate(outer);
        self.depth -= 1;
        result.map(|()| out)
    }

    fn lists(&mut self, lists: &mut Vec<List>, out: &mut Vec<Token>) -> Result<(), Stop> {
        let mut after = false;
        while let Some((mut token, ended)) = self.next(lists) {
            // Where a macro's text begins or ends, words must not grow together.
            token.apart |= (after || ended) && out.last().is_some_and(|last| joins(last, &token));
            after = false;
            if self.depth == 1 && token.span.via == 0 {
                self.site = token.span;
            }
            match self.lookup(&mut token) {
                Some(made) if made.params.is_none() => {
                    let text = self.replace(&made, &token, &Arguments::default())?;
                    self.enter(lists, text, made.id)?;
                    after = true;
                }
                Some(made) if self.opens(lists) => {
                    let args = self.arguments(lists, &token, &made)?;
                    let text = self.replace(&made, &token, &args)?;
                    self.enter(lists, text, made.id)?;
                    after = true;
                }
                _ => {
                    self.built_in(&mut token);
                    if out.len() >= MAX_LINE_TOKENS {
                        return self.limit(format!(
                            "this line has more than {MAX_LINE_TOKENS} words, its macros expanded"
                        ));
                    }
                    out.push(token);
                }
            }
        }
        Ok(())
    }

    /// The next token, and whether the text of a macro ended before it.
    fn next(&mut self, lists: &mut Vec<List>) -> Option<(Token, bool)> {
        let (mut ended, mut space) = (false, false);
        loop {
            let list = lists.last_mut()?;
            if let Some(token) = list.tokens.get(list.at) {
                list.at += 1;
                return Some((Token { space: token.space || space, ..token.clone() }, ended));
            }
            if lists.len() == 1 {
                return None;
            }
            space |= lists.pop().is_some_and(|list| list.trail);
            self.busy.pop();
            ended = true;
        }
    }

    /// The macro that a token names, if it may be replaced; a token that may not is painted.
    fn lookup(&self, token: &mut Token) -> Option<Rc<Macro>> {
        let made = self.macros.defined.get(token.ident()?).filter(|_| !token.painted)?;
        if self.busy.contains(&made.id) {
            token.painted = true;
            return None;
        }
        Some(Rc::clone(made))
    }

    fn enter(&mut self, lists: &mut Vec<List>, (text, trail): Text, id: u32) -> Result<(), Stop> {
        if lists.len() >= MAX_DEPTH {
            return self.limit(format!("macros nest deeper than {MAX_DEPTH}"));
        }
        self.busy.push(id);
        lists.push(List { tokens: Rc::from(text), at: 0, of: Some(id), trail });
        Ok(())
    }

    /// Whether the next token is a `(`: only then is a macro with parameters called.
    fn opens(&self, lists: &[List]) -> bool {
        for list in lists.iter().rev() {
            if let Some(token) = list.tokens.get(list.at) {
                return token.is('(');
            }
            debug_assert!(list.of.is_some() || std::ptr::eq(list, &lists[0]));
        }
        false
    }

    /// Reads the arguments of a call.
    fn arguments(&mut self, lists: &mut Vec<List>, name: &Token, made: &Macro) -> Result<Arguments, Stop> {
        let named = made.params.as_ref().map_or(0, Vec::len);
        let mut args: Vec<Vec<Token>> = Vec::new();
        let mut current: Vec<Token> = Vec::new();
        // The opening parenthesis, which `opens` has seen.
        let _ = self.next(lists);
        let mut open = 0usize;
        loop {
            let Some((mut token, ended)) = self.next(lists) else { return Err(Stop::Unclosed(name.clone())) };
            self.work(1)?;
            token.apart |= ended && current.last().is_some_and(|last| joins(last, &token));
            // A name that was met while its macro is being replaced is never replaced again.
            let _ = self.lookup(&mut token);
            let rest = made.variadic && args.len() == named;
            match token.kind {
                Kind::Punct('(') => open += 1,
                Kind::Punct(')') if open == 0 => break,
                Kind::Punct(')') => open -= 1,
                Kind::Punct(',') if open == 0 && !rest => {
                    args.push(std::mem::take(&mut current));
                    continue;
                }
                _ => {}
            }
            current.push(token);
        }
        if named > 0 || made.variadic || !args.is_empty() || !current.is_empty() {
            args.push(current);
        }
        // `...` may be left out with its comma.
        let left_out = made.variadic && args.len() == named;
        if left_out {
            args.push(Vec::new());
        }
        let wanted = named + usize::from(made.variadic);
        if args.len() != wanted {
            let more = if made.variadic { " or more" } else { "" };
            let message = format!("macro `{}` takes {named}{more} arguments, not {}", name.text, args.len());
            return Err(Stop::Call(name.span, message));
        }
        let rest_omitted = left_out || (named == 0 && args.last().is_none_or(Vec::is_empty));
        Ok(Arguments { list: args, rest_omitted })
    }

    /// The text of a macro with its arguments in place.
    fn replace(&mut self, made: &Macro, name: &Token, args: &Arguments) -> Result<Text, Stop> {
        self.work(made.body.len())?;
        let via = self.sources.expand(made.id, name.span.via);
        let mut whole: Vec<Option<Vec<Token>>> = vec![None; args.list.len()];
        let mut out = Building::default();
        let (mut at, mut paste) = (0, false);
        while let Some(token) = made.body.get(at) {
            if is_paste(&made.body, at) {
                paste = true;
                at += 2;
                continue;
            }
            let stringified = token.is('#') && made.params.is_some();
            let operand = stringified.then(|| made.body.get(at + 1).and_then(|t| made.param(t))).flatten();
            let raw = paste || is_paste(&made.body, at + 1);
            let place = Token { span: Span { via, ..name.span }, ..token.clone() };
            let mut piece: Vec<Token> = match (made.param(token), operand) {
                (_, Some(n)) => vec![stringify(args.list.get(n).map_or(&[][..], Vec::as_slice), &place)?],
                (Some(n), _) if raw => args.list.get(n).cloned().unwrap_or_default(),
                (Some(n), _) => self.argument(n, &args.list, &mut whole)?,
                _ => vec![place],
            };
            at += if operand.is_some() { 2 } else { 1 };
            self.work(piece.len())?;
            for token in piece.iter_mut().filter(|t| t.span.via == 0) {
                token.span.via = via;
            }
            let rest = made.variadic && made.param(token) == made.params.as_ref().map(Vec::len);
            let after_comma = at.checked_sub(4).and_then(|n| made.body.get(n)).is_some_and(|t| t.is(','));
            if paste && rest && after_comma {
                out.rest(piece, args.rest_omitted);
            } else {
                let space = token.space && !out.is_first();
                out.piece(piece, space, paste, is_paste(&made.body, at))?;
            }
            paste = false;
            if out.tokens.len() > MAX_LINE_TOKENS {
                return self
                    .limit(format!("this line has more than {MAX_LINE_TOKENS} words, its macros expanded"));
            }
        }
        Ok(out.finish(name.space))
    }

    /// An argument with its own macros replaced.
    fn argument(
        &mut self,
        n: usize,
        args: &[Vec<Token>],
        whole: &mut [Option<Vec<Token>>],
    ) -> Result<Vec<Token>, Stop> {
        if let Some(Some(done)) = whole.get(n) {
            return Ok(done.clone());
        }
        let raw = args.get(n).cloned().unwrap_or_default();
        let done = self.list(Rc::from(raw))?;
        if let Some(slot) = whole.get_mut(n) {
            *slot = Some(done.clone());
        }
        Ok(done)
    }

    /// Gives a built-in name its value.
    fn built_in(&mut self, token: &mut Token) {
        let Some(name) = token.ident() else { return };
        let (file, line) = self.sources.presumed(token.span);
        let (kind, text) = match name {
            "__FILE__" => (Kind::Str, file.replace('"', "'")),
            "__LINE__" => (Kind::Num(line.into()), line.to_string()),
            "__COUNTER__" => {
                self.macros.counter += 1;
                (Kind::Num(self.macros.counter - 1), (self.macros.counter - 1).to_string())
            }
            "__TRAPLINE__" => (Kind::Num(1), "1".to_owned()),
            _ => return,
        };
        (token.kind, token.text) = (kind, text);
    }
}

/// The text of a macro while its pieces are put together.
#[derive(Default)]
struct Building {
    tokens: Vec<Token>,
    /// Whether there was a piece.
    begun: bool,
    /// Whether the first token follows a piece without tokens, so that the white space before it counts.
    first_follows: bool,
    /// White space of pieces without tokens, for the next token.
    space: bool,
    /// The left side of `##` has no tokens; the white space before it.
    placemarker: Option<bool>,
}

impl Building {
    fn is_first(&self) -> bool {
        !self.begun
    }

    /// Adds a piece with white space before it or without; `paste` says whether `##` precedes it, `pastes` whether `##`
    /// follows it.
    fn piece(&mut self, mut piece: Vec<Token>, space: bool, paste: bool, pastes: bool) -> Result<(), Stop> {
        let empty_before = self.begun && self.tokens.is_empty();
        self.begun = true;
        let placemarker = self.placemarker.take();
        if paste && placemarker.is_none() && !piece.is_empty() {
            let right = piece.remove(0);
            if let Some(left) = self.tokens.pop() {
                self.tokens.push(glue(&left, &right)?);
            }
        } else if !paste || placemarker.is_some() {
            let space = placemarker.unwrap_or(space);
            match piece.first_mut() {
                Some(first) => first.space = space || std::mem::take(&mut self.space),
                None if pastes => self.placemarker = Some(space),
                None => self.space |= space,
            }
        }
        if self.tokens.is_empty() && !piece.is_empty() {
            self.first_follows = empty_before;
        }
        self.tokens.append(&mut piece);
        Ok(())
    }

    /// `, ## __VA_ARGS__` as in GNU C: without an argument the comma is removed, otherwise nothing is pasted.
    fn rest(&mut self, mut piece: Vec<Token>, omitted: bool) {
        if omitted {
            self.tokens.pop();
        }
        self.tokens.append(&mut piece);
    }

    /// Appends the text of a name, with or without white space before it.
    fn finish(mut self, space: bool) -> Text {
        match self.tokens.first_mut() {
            Some(first) => first.space = space || (self.first_follows && first.space),
            None => self.space |= space,
        }
        (self.tokens, self.space)
    }
}

/// Whether two tokens side by side could be read as one.
fn joins(left: &Token, right: &Token) -> bool {
    let sign = |t: &Token| matches!(t.kind, Kind::Punct(_));
    sign(left) == sign(right)
}

/// `#parameter`: the argument as a string.
fn stringify(arg: &[Token], at: &Token) -> Result<Token, Stop> {
    let mut text = String::new();
    for (n, token) in arg.iter().enumerate() {
        if matches!(token.kind, Kind::Str | Kind::OpenStr) {
            let message = "`#` cannot be applied to a string, because quoted text cannot contain a quote";
            return Err(Stop::Paste(token.span, message.to_owned()));
        }
        if token.space && n > 0 {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    Ok(Token { kind: Kind::Str, text, ..at.clone() })
}

/// `a ## b`: two tokens as one.
fn glue(left: &Token, right: &Token) -> Result<Token, Stop> {
    let text = left.source() + &right.source();
    let mut made = scan(&text);
    match (made.pop(), made.is_empty()) {
        (Some(one), true) if one.source() == text => {
            Ok(Token { kind: one.kind, text: one.text, painted: false, ..left.clone() })
        }
        _ => {
            let message = format!(
                "`##` makes `{text}` of `{}` and `{}`, which is not one word",
                left.source(),
                right.source()
            );
            Err(Stop::Paste(left.span, message))
        }
    }
}
