//! The text of a program.

use super::tree::{
    ARRAYS, Array, Clause, Expression, Function, Key, OWNERS, Owner, Place, Program, Statement, TEXTS, TYPES,
    Text, TextPlace, Tree,
};

/// What the clause of ERROR leaves: how many faults there were, and of the last one its kind, the number of the clause and
/// the address.
pub const FAULT: [&str; 4] = ["faults", "kind", "clause", "address"];

pub fn prefix(owner: Owner) -> &'static str {
    match owner {
        Owner::Program => "",
        Owner::Clause => "this->",
        Owner::Thread => "self->",
    }
}

/// The name of a variable by its type; of strings it is `t`.
pub fn variable(owner: Owner, ty: Option<usize>) -> String {
    let prefix = prefix(owner);
    ty.map_or_else(|| format!("{prefix}t"), |ty| format!("{prefix}v{ty}"))
}

pub fn array(array: &Array) -> String {
    format!("{}{}", if array.thread { "self->" } else { "" }, array.name)
}

fn list(expressions: &[Expression]) -> String {
    let text = |expression: &Expression| match expression {
        Expression::Int(tree) => tree.text(),
        Expression::Text(text) => text.text(),
    };
    expressions.iter().map(text).collect::<Vec<_>>().join(", ")
}

impl Place {
    fn text(&self) -> String {
        match self {
            Self::Variable(owner, ty) => variable(*owner, Some(*ty)),
            Self::Element(of, keys) => format!("{}[{}]", array(of), list(keys)),
        }
    }
}

impl TextPlace {
    fn text(&self) -> String {
        match self {
            Self::Variable(owner) => variable(*owner, None),
            Self::Element(keys) => format!("{}[{}]", array(&TEXTS), list(keys)),
        }
    }
}

impl Tree {
    pub fn text(&self) -> String {
        match self {
            Self::Constant(value) => value.to_string(),
            Self::Wild(ty, address) => format!("(*({} *){address})", TYPES[*ty].0),
            Self::Load(place) => place.text(),
            Self::Unary(op, of) => format!("({op} {})", of.text()),
            Self::Binary(op, a, b) | Self::Compare(op, a, b) | Self::Logical(op, a, b) => {
                format!("({} {op} {})", a.text(), b.text())
            }
            Self::Conditional(of) => {
                let [condition, yes, no] = &**of;
                format!("({} ? {} : {})", condition.text(), yes.text(), no.text())
            }
            Self::Cast(ty, of) => format!("(({}){})", TYPES[*ty].0, of.text()),
            Self::Assign(place, of) => format!("({} = {})", place.text(), of.text()),
            Self::Update(op, place, of) => format!("({} {op}= {})", place.text(), of.text()),
            Self::Step(op, place, true) => format!("({}{op}{op})", place.text()),
            Self::Step(op, place, false) => format!("({op}{op}{})", place.text()),
            Self::Comma(a, b) => format!("({}, {})", a.text(), b.text()),
            Self::Length(of) => format!("strlen({})", of.text()),
            Self::Find(of, wanted) => format!("index({}, {})", of.text(), wanted.text()),
            Self::Number(of) => format!("strtoll({})", of.text()),
            Self::CompareTexts(op, a, b) => format!("({} {op} {})", a.text(), b.text()),
        }
    }
}

impl Text {
    fn text(&self) -> String {
        match self {
            Self::Literal(text) => format!("\"{text}\""),
            Self::Load(place) => place.text(),
            Self::Join(a, b) => format!("strjoin({}, {})", a.text(), b.text()),
            Self::Part(of, from, None) => format!("substr({}, (int){})", of.text(), from.text()),
            Self::Part(of, from, Some(length)) => {
                format!("substr({}, (int){}, (int){})", of.text(), from.text(), length.text())
            }
            Self::Number(of) => format!("lltostr({})", of.text()),
            Self::Upper(of) => format!("toupper({})", of.text()),
            Self::Conditional(condition, yes, no) => {
                format!("({} ? {} : {})", condition.text(), yes.text(), no.text())
            }
        }
    }
}

impl Function {
    fn text(&self) -> String {
        match self {
            Self::Count => "count()".to_owned(),
            Self::Sum(of) => format!("sum({})", of.text()),
            Self::Avg(of) => format!("avg({})", of.text()),
            Self::Min(of) => format!("min({})", of.text()),
            Self::Max(of) => format!("max({})", of.text()),
            Self::Quantize(of, None) => format!("quantize({})", of.text()),
            Self::Quantize(of, Some(weight)) => format!("quantize({}, {})", of.text(), weight.text()),
        }
    }
}

impl Statement {
    fn text(&self) -> String {
        match self {
            Self::Evaluate(tree) => format!("{};\n", tree.text()),
            Self::Assign(place, text) => format!("{} = {};\n", place.text(), text.text()),
            Self::Aggregate(number, keys, function) if keys.is_empty() => {
                format!("@g{number} = {};\n", function.text())
            }
            Self::Aggregate(number, keys, function) => {
                format!("@g{number}[{}] = {};\n", list(keys), function.text())
            }
            Self::If(condition, then, otherwise) => {
                let [then, otherwise] = [then, otherwise].map(|part| block(part));
                format!("if ({}) {{\n{then}}} else {{\n{otherwise}}}\n", condition.text())
            }
        }
    }
}

fn block(statements: &[Statement]) -> String {
    let text: String = statements.iter().map(Statement::text).collect();
    if text.is_empty() { "0;\n".to_owned() } else { text }
}

fn declared(of: &Array) -> String {
    let key = |key: &Key| match key {
        Key::Int(ty) => TYPES[*ty].0,
        Key::Text => "string",
    };
    let keys: Vec<&str> = of.keys.iter().map(key).collect();
    let value = of.value.map_or("string", |ty| TYPES[ty].0);
    let thread = if of.thread { "self " } else { "" };
    format!("{thread}{value} {}[{}];\n", of.name, keys.join(", "))
}

/// What all programs begin with: their variables, and the clause of ERROR.
pub fn beginning() -> String {
    let mut text = String::new();
    for (ty, (name, ..)) in TYPES.iter().enumerate() {
        text.push_str(&format!("{name} v{ty};\n"));
    }
    for name in FAULT {
        text.push_str(&format!("unsigned long long {name};\n"));
    }
    for owner in OWNERS {
        let word = prefix(owner).trim_end_matches("->");
        if owner != Owner::Program {
            let all = TYPES.iter().enumerate();
            all.for_each(|(ty, (name, ..))| text.push_str(&format!("{word} {name} v{ty};\n")));
        }
        text.push_str(&format!("{word} string t;\n"));
    }
    ARRAYS.iter().chain([&TEXTS]).for_each(|array| text.push_str(&declared(array)));
    let [faults, kind, clause, address] = FAULT;
    text.push_str(&format!(
        "ERROR\n{{\n{faults}++;\n{kind} = arg4;\n{clause} = arg2;\n{address} = arg5;\n}}\n"
    ));
    text
}

impl Program {
    /// Its clauses of BEGIN in D.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (n, Clause { predicate, statements }) in self.clauses.iter().enumerate() {
            let shown = predicate.as_ref().map(|tree| format!("/{}/\n", tree.text()));
            text.push_str(&format!("BEGIN\n{}{{\n", shown.unwrap_or_default()));
            // Values to begin with.
            if n == 0 && predicate.is_none() {
                let first = self.first.iter().enumerate();
                first.for_each(|(ty, value)| text.push_str(&format!("v{ty} = {value};\n")));
            }
            text.push_str(&block(statements));
            text.push_str("}\n");
        }
        text
    }
}
