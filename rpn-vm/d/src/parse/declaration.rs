//! C's declarations.

use super::{DEEPEST, Parser, is_keyword};
use crate::ast::{Base, Declaration, Declarator, Derived, Parameter, Spec, Storage, TypeName};
use crate::error::Result;
use crate::lex::Token;

/// The words of C's arithmetic types, and D's own.
const TYPE_WORDS: &[&str] = &[
    "void", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "string", "_Bool",
    "userland",
];

fn storage(word: &str) -> Option<Storage> {
    Some(match word {
        "typedef" => Storage::Typedef,
        "extern" => Storage::Extern,
        "static" => Storage::Static,
        "auto" => Storage::Auto,
        "register" => Storage::Register,
        "self" => Storage::SelfVariable,
        "this" => Storage::ThisVariable,
        _ => return None,
    })
}

impl Parser<'_> {
    /// Whether a word is the name of a type, of the program or of the guest.
    pub(super) fn is_typedef(&self, word: &str) -> bool {
        self.types.contains(word) || (self.known)(word) || !is_keyword(word) && (self.of_guest)(word)
    }

    /// Whether the next token begins a type.
    pub(super) fn begins_type(&mut self) -> Result<bool> {
        let Token::Word(word) = self.peek()? else { return Ok(false) };
        let word = word.clone();
        let keyword =
            matches!(word.as_str(), "struct" | "union" | "enum" | "const" | "volatile" | "restrict");
        Ok(keyword || TYPE_WORDS.contains(&word.as_str()) || self.is_typedef(&word))
    }

    /// A declaration with its `;`.
    pub(super) fn declaration(&mut self) -> Result<Declaration> {
        let pos = self.here()?;
        let base = self.base()?;
        let mut declarators = Vec::new();
        if !self.accept(";")? {
            loop {
                let declarator = self.declarator()?;
                if base.storage == Some(Storage::Typedef)
                    && let Some(name) = &declarator.name
                {
                    self.types.insert(name.clone());
                }
                declarators.push(declarator);
                if !self.accept(",")? {
                    break;
                }
            }
            if matches!(self.peek()?, Token::End) {
                return Err(self.pos.error("D_SYNTAX", "syntax error near end-of-input"));
            }
            self.expect(";")?;
        }
        Ok(Declaration { pos, base, declarators })
    }

    /// Storage class, qualifiers and type.
    pub(super) fn base(&mut self) -> Result<Base> {
        let pos = self.here()?;
        let (mut class, mut spec, mut words) = (None, None, Vec::new());
        while let Token::Word(word) = self.peek()?.clone() {
            if let Some(storage) = storage(&word) {
                if class.is_some_and(|class| class != storage) {
                    let sentence = "only one storage class allowed in declaration";
                    return Err(self.pos.error("D_DECL_CLASS", sentence));
                }
                class = Some(storage);
                self.take()?;
            } else if matches!(word.as_str(), "const" | "volatile" | "restrict") {
                self.take()?;
            } else if TYPE_WORDS.contains(&word.as_str()) {
                self.take()?;
                words.push(word);
            } else if matches!(word.as_str(), "struct" | "union" | "enum") {
                if let Some(first) = words.first().filter(|w| *w == "long") {
                    let sentence = format!(
                        "invalid type declaration: {first} and long long may only be used with integer or \
                         floating-point type"
                    );
                    return Err(self.pos.error("D_DECL_LONGINT", sentence));
                }
                if spec.is_some() || !words.is_empty() {
                    return Err(self.pos.error("D_DECL_COMBO", "invalid type combination"));
                }
                spec = Some(if word == "enum" { self.enumeration()? } else { self.sou()? });
            } else if spec.is_none() && words.is_empty() && self.is_typedef(&word) {
                self.take()?;
                spec = Some(Spec::Typedef(word));
            } else {
                break;
            }
        }
        let spec = match spec {
            Some(_) if !words.is_empty() => {
                return Err(self.pos.error("D_DECL_COMBO", "invalid type combination"));
            }
            Some(spec) => spec,
            None if words.is_empty() && class.is_none() => return Err(self.unexpected()?),
            None => Spec::Words(words),
        };
        Ok(Base { pos, storage: class, spec })
    }

    /// `struct name { members }` and `union`.
    fn sou(&mut self) -> Result<Spec> {
        let union = self.is_word("union")?;
        self.take()?;
        let name = if self.is("{")? { None } else { Some(self.tag()?) };
        let mut members = None;
        if self.accept("{")? {
            self.deeper()?;
            let mut list = Vec::new();
            while !self.accept("}")? {
                list.push(self.member()?);
            }
            self.depth -= 1;
            members = Some(list);
        }
        Ok(Spec::Sou { union, name, members })
    }

    /// The name of a struct, union or enum, which may be that of a type too.
    fn tag(&mut self) -> Result<String> {
        self.name()
    }

    fn member(&mut self) -> Result<Declaration> {
        let pos = self.here()?;
        let base = self.base()?;
        let mut declarators = Vec::new();
        if !self.is(";")? {
            loop {
                let mut declarator = if self.is(":")? { Declarator::default() } else { self.declarator()? };
                declarator.pos = pos;
                if self.accept(":")? {
                    declarator.bits = Some(self.conditional()?);
                }
                declarators.push(declarator);
                if !self.accept(",")? {
                    break;
                }
            }
        }
        self.expect(";")?;
        Ok(Declaration { pos, base, declarators })
    }

    fn enumeration(&mut self) -> Result<Spec> {
        self.take()?;
        let name = if self.is("{")? { None } else { Some(self.tag()?) };
        let mut items = None;
        if self.accept("{")? {
            let mut list = Vec::new();
            while !self.accept("}")? {
                let pos = self.here()?;
                let name = self.name()?;
                let value = if self.accept("=")? { Some(self.conditional()?) } else { None };
                list.push((pos, name, value));
                if !self.is("}")? {
                    self.expect(",")?;
                }
            }
            items = Some(list);
        }
        Ok(Spec::Enum { name, items })
    }

    /// Pointers, a name or a declarator in parentheses, and what follows it.
    pub(super) fn declarator(&mut self) -> Result<Declarator> {
        self.deeper()?;
        let pos = self.here()?;
        let mut derived = Vec::new();
        while self.accept("*")? {
            derived.push(Derived::Pointer);
            while self.accept_word("const")?
                || self.accept_word("volatile")?
                || self.accept_word("restrict")?
            {}
        }
        let mut inner = Declarator { pos, ..Declarator::default() };
        if self.is("(")? && self.nests()? {
            self.take()?;
            inner = self.declarator()?;
            self.expect(")")?;
        } else if matches!(self.peek()?, Token::Word(word) if !is_keyword(word)) {
            // A name of a type may be declared again, which is reported later.
            let (token, _) = self.take()?;
            if let Token::Word(word) = token {
                inner.name = Some(word);
            }
        }
        let mut suffixes = Vec::new();
        loop {
            if self.accept("[")? {
                suffixes.push(self.dimension()?);
            } else if self.accept("(")? {
                suffixes.push(Derived::Function(self.parameters(")")?));
            } else {
                break;
            }
        }
        derived.extend(suffixes.into_iter().rev());
        derived.append(&mut inner.derived);
        // A type has each step that makes it inside the next one.
        if derived.len() > DEEPEST as usize {
            return Err(self.too_deep());
        }
        self.depth -= 1;
        Ok(Declarator { pos, name: inner.name, derived, bits: None })
    }

    /// Whether an open parenthesis begins a declarator, not the parameters of a function without a name: that is so before
    /// `*` and `(`, and before a name that is not a type.
    fn nests(&mut self) -> Result<bool> {
        // The lexer has read the parenthesis.
        self.lexer.skip()?;
        Ok(match self.lexer.name_ahead() {
            Some(word) => {
                !(TYPE_WORDS.contains(&word.as_str()) || self.is_typedef(&word) || is_keyword(&word))
            }
            None => self.lexer.is_next(b"*(["),
        })
    }

    /// The dimension or the keys in brackets, with the closing bracket.
    fn dimension(&mut self) -> Result<Derived> {
        if self.accept("]")? {
            return Ok(Derived::Array(None));
        }
        if self.begins_type()? || self.is_word("struct")? {
            return Ok(Derived::Keys(self.parameters("]")?));
        }
        let length = self.conditional()?;
        self.expect("]")?;
        Ok(Derived::Array(Some(length)))
    }

    /// Parameters up to `close`, which is taken.
    fn parameters(&mut self, close: &str) -> Result<Vec<Parameter>> {
        let mut list = Vec::new();
        if self.accept(close)? {
            return Ok(list);
        }
        loop {
            if self.accept("...")? {
                let base = Base { pos: self.pos, storage: None, spec: Spec::Words(vec!["void".to_owned()]) };
                list.push(Parameter {
                    ty: TypeName { base, derived: Vec::new() },
                    name: None,
                    variadic: true,
                });
            } else {
                let pos = self.here()?;
                let base = self.base()?;
                if base.storage.is_some() {
                    let sentence = "inappropriate storage class for function or associative array parameter";
                    return Err(pos.error("D_DECL_PARMCLASS", sentence));
                }
                let Declarator { name, derived, .. } = self.declarator()?;
                list.push(Parameter { ty: TypeName { base, derived }, name, variadic: false });
            }
            if self.accept(close)? {
                return Ok(list);
            }
            self.expect(",")?;
        }
    }

    /// A type without a name.
    pub(super) fn type_name(&mut self) -> Result<TypeName> {
        let base = self.base()?;
        let declarator = self.declarator()?;
        if declarator.name.is_some() {
            return Err(self.unexpected()?);
        }
        Ok(TypeName { base, derived: declarator.derived })
    }
}
