//! Long and deep programs: they compile, or are refused with one sentence. None of them exhausts the stack or the memory of
//! the host; the threads of these tests have 2 MiB of stack.

use trapline_d::{Compiled, Error, compile};

fn instructions(compiled: &Compiled) -> usize {
    compiled.clauses.iter().map(|clause| clause.lines.len()).sum()
}

fn refused(program: &str) -> Error {
    match compile(program) {
        Ok(_) => panic!("{}.. is not refused", program.get(..60).unwrap_or(program)),
        Err(error) => error,
    }
}

/// So many operands with an operator between them.
fn chain(operand: &str, operator: &str, count: usize) -> String {
    vec![operand; count].join(&format!(" {operator} "))
}

#[test]
fn chains_of_binary_operators_may_be_long() {
    for operator in
        ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "<", ">=", "&&", "||", "^^", ","]
    {
        let folded = compile(&format!("BEGIN {{ x = ({}); }}", chain("1", operator, 100_000)));
        assert!(folded.is_ok(), "{operator}: {:?}", folded.err());
        for operand in ["x", "(char)x", "self->y", "*(short *)x", "a[1]"] {
            let begin = "long long x; self char y; BEGIN { a[1] = 1; x = (";
            let compiled = compile(&format!("{begin}{}); }}", chain(operand, operator, 2_000)));
            assert!(compiled.is_ok(), "{operand} {operator}: {:?}", compiled.err());
        }
    }
}

#[test]
fn a_chain_that_is_longer_than_a_clause_may_be_is_refused() {
    let error = refused(&format!("long long x; BEGIN {{ y = {}; }}", chain("x", "+", 200_000)));
    assert_eq!((error.tag, error.message.contains("60000 are the most")), ("D_PROG_LARGE", true), "{error}");
}

#[test]
fn long_lists_and_many_semicolons_compile() {
    assert!(compile(&format!("{} {{ }}", chain("BEGIN", ",", 20_000))).is_ok());
    assert!(compile(&format!("{} BEGIN {{ {} }}", ";".repeat(100_000), ";".repeat(100_000))).is_ok());
    let keys = chain("1", ",", 100);
    assert!(refused(&format!("BEGIN {{ a[{keys}] = 1; }}")).message.contains("8 are the most"));
    let many = "BEGIN { x = 1; }".repeat(5_000);
    assert!(compile(&many).is_ok());
}

#[test]
fn a_chain_of_conversions_costs_what_its_operands_cost() {
    let program = format!("BEGIN {{ x = {}; }}", chain("(int)arg0 + arg1", "+", 2_000));
    assert!(instructions(&compile(&program).unwrap()) < 20_000);
}

#[test]
fn what_is_nested_deep_is_refused_with_one_sentence() {
    let deep = 5_000;
    let around =
        |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(deep), close.repeat(deep));
    let expressions = [
        around("(", "1", ")"),
        around("-", "1", ""),
        around("- ", "1", ""),
        around("!", "x", ""),
        around("~", "1", ""),
        around("*", "x", ""),
        around("& ", "x", ""),
        around("++", "x", ""),
        around("(int)", "1", ""),
        around("sizeof ", "1", ""),
        around("sizeof (", "1", ")"),
        around("stringof ", "x", ""),
        around("1 ? ", "1", " : 1"),
        around("1 ? 1 : ", "1", ""),
        around("x = ", "1", ""),
        around("x += ", "1", ""),
        around("1 + (", "1", ")"),
        around("strlen(", "\"\"", ")"),
        around("a[", "1", "]"),
        around("", "x", "[1]"),
        around("", "x", "->x"),
        around("", "x", ".x"),
        around("", "x", "++"),
        around("", "x", "--"),
        around("xlate <int> (", "1", ")"),
    ];
    for expression in &expressions {
        for program in [
            format!("BEGIN {{ x = {expression}; }}"),
            format!("BEGIN / {expression} / {{ }}"),
            format!("inline int i = {expression};"),
            format!("BEGIN {{ @[{expression}] = sum({expression}); }}"),
        ] {
            let error = refused(&program);
            let short = expression.get(..20).unwrap_or(expression);
            assert!(error.message.contains("is nested deeper than 100 levels"), "{short}: {error}");
        }
    }
    let declarations = [
        format!("int {}x;", "*".repeat(deep)),
        format!("int x{};", "[1]".repeat(deep)),
        format!("int {};", around("(", "x", ")")),
        format!("int {};", around("(*", "x", ")(int)")),
        format!("int f({});", around("int (*)(", "int", ")")),
        around("struct { ", "int x;", " } x;"),
        around("union { ", "int x;", " } x;"),
        format!("BEGIN {{ x = (int {})0; }}", "*".repeat(deep)),
        format!("enum {{ x = {} }};", around("(", "1", ")")),
        format!("BEGIN {{ {} }}", around("if (1) { ", "x = 1;", " }")),
        format!("BEGIN {{ {} }}", around("if (1) ", "x = 1;", "")),
        format!("BEGIN {{ {} x = 1; }}", "if (1) x = 1; else ".repeat(deep)),
    ];
    for program in &declarations {
        let error = refused(program);
        assert!(error.message.contains("is nested deeper than 100 levels"), "{}: {error}", &program[..20]);
    }
}

#[test]
fn types_that_are_made_of_each_other_over_many_declarations_have_sizes_and_members() {
    let mut arrays = "typedef int t0;".to_owned();
    let mut members = "union s0 { int found; };".to_owned();
    for n in 1..5_000 {
        arrays += &format!("typedef t{} t{n}[1];", n - 1);
        // Each union has the one before it twice, without a name.
        members += &format!("union s{n} {{ union s{0}; struct {{ union s{0}; }}; }};", n - 1);
    }
    arrays += "BEGIN { trace(sizeof (t4999)); }";
    assert!(compile(&arrays).is_ok(), "{:?}", compile(&arrays).err());
    let found = compile(&format!("{members} BEGIN {{ x = ((union s4999 *)0)->found; }}"));
    assert!(found.is_ok(), "{:?}", found.err());
    let error = refused(&format!("{members} BEGIN {{ x = ((union s4999 *)0)->absent; }}"));
    assert_eq!(error.tag, "D_TYPE_MEMBER");
}

#[test]
fn a_struct_that_doubles_has_a_largest_size() {
    let mut text = "struct s0 { int x; };".to_owned();
    (1..80).for_each(|n| text += &format!("struct s{n} {{ struct s{0} a; struct s{0} b; }};", n - 1));
    let error = refused(&text);
    assert!(error.message.contains("more than 16777216 bytes with its member"), "{error}");
}

#[test]
fn what_inlines_and_translators_expand_to_has_a_budget() {
    let doubled = |first: &str| {
        let mut text = format!("inline int X0 = {first};");
        (1..40).for_each(|n| text += &format!("inline int X{n} = X{0} + X{0};", n - 1));
        text + "BEGIN { x = X39; }"
    };
    // The second one folds to a constant, the third one is hidden in an operand that is not evaluated.
    for first in ["arg0", "1", "sizeof (int)"] {
        let error = refused(&doubled(first));
        assert!(error.message.contains("more than 500000 operations"), "{first}: {error}");
    }
    let nested = format!("{}arg0{}", "f[".repeat(30), "]".repeat(30));
    let error = refused(&format!("inline int f[int x] = x + x; BEGIN {{ x = {nested}; }}"));
    assert!(error.message.contains("more than 500000 operations"), "{error}");
    let translated = "struct o { int a; }; translator struct o < int i > { a = i + i; };".to_owned();
    let around = (0..40).fold("arg0".to_owned(), |inner, _| format!("xlate <struct o> ((int)({inner})).a"));
    let error = refused(&format!("{translated} BEGIN {{ x = {around}; }}"));
    assert!(error.message.contains("nested deeper") || error.message.contains("operations"), "{error}");
}

#[test]
fn inlines_add_to_the_depth_of_what_uses_them() {
    let inner = |base: &str| format!("{}{base}{}", "(1 + ".repeat(40), ")".repeat(40));
    let mut text = format!("inline long long X0 = {};", inner("arg0"));
    (1..30).for_each(|n| text += &format!("inline long long X{n} = {};", inner(&format!("X{}", n - 1))));
    let error = refused(&(text + "BEGIN { x = X29; }"));
    assert!(error.message.contains("nested deeper than 300 levels"), "{error}");
    // The arguments are deep, not the text.
    let program = format!(
        "inline long long f[long long x] = {}; BEGIN {{ y = {}arg0{}; }}",
        inner("x"),
        "f[".repeat(30),
        "]".repeat(30)
    );
    let error = refused(&program);
    assert!(error.message.contains("nested deeper than 300 levels"), "{error}");
}
