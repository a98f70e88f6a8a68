//! What is known before a run: the values of constant expressions, and the branches that constant conditions choose.

use trapline_d::{Compiler, Error, Model, Options, compile};
use trapline_rpn::Op;

/// The value that an expression folds to.
fn folded(expression: &str) -> i64 {
    let compiled = compile(&format!("BEGIN {{ x = {expression}; }}")).unwrap();
    let code = compiled.clauses[0].handler.code();
    assert_eq!((code[0].op, code[1].op), (Op::Push, Op::PopLvN), "{expression} is no constant");
    code[0].arg as i64
}

#[test]
fn what_is_compared_is_promoted_to_int() {
    for (expression, value) in [
        ("(signed char)-56 == (unsigned char)200", 0),
        ("(short)-1 == (unsigned short)65535", 0),
        ("(short)-1 != (unsigned short)65535", 1),
        ("(short)-1 < (unsigned short)65535", 1),
        ("(unsigned char)0 > (signed char)-1", 1),
        ("(unsigned char)0 - 1 < 0", 1),
        ("-(unsigned char)1 < 0", 1),
        ("~(unsigned short)0 < 0", 1),
        // int holds no unsigned int: C converts the sign away.
        ("(signed char)-1 == (unsigned int)-1", 1),
        ("(signed char)-1 < (unsigned int)1", 0),
        ("(signed char)-1 < 1LL", 1),
    ] {
        assert_eq!(folded(expression), value, "{expression}");
    }
}

#[test]
fn results_have_their_types() {
    for (expression, size) in [
        ("~(char)1", 4),
        ("-(short)1", 4),
        ("(char)1 << 1LL", 4),
        ("(char)1 == 1LL", 4),
        ("(char)1 + 1LL", 8),
        // As the published tests add: in the wider of both types.
        ("(char)1 + (unsigned char)1", 1),
        ("arg0 ? (char)1 : (short)1", 4),
        ("arg0 ? (char)1 : (char)1", 4),
        ("(char)1", 1),
        // A constant condition leaves the expression that it chooses.
        ("1 ? (char)1 : 1LL", 1),
        ("0 ? (char)1 : 1LL", 8),
    ] {
        assert_eq!(folded(&format!("sizeof ({expression})")), size, "{expression}");
    }
}

fn with_argument(program: &str, argument: &str) -> Result<usize, Error> {
    let mut compiler = Compiler::new(Model::Lp64, Options::default());
    compiler.add(program.as_bytes(), &[b"d".to_vec(), argument.into()], &|_| None)?;
    compiler.finish().map(|compiled| compiled.tables.records.len() + compiled.tables.aggregations.len())
}

#[test]
fn a_constant_condition_chooses_before_the_other_expression_is_looked_at() {
    for (condition, holds) in [
        ("WIDE", true),
        ("WIDE == 0", false),
        ("WIDE && 1", true),
        ("1 ^^ 1", false),
        ("!WIDE", false),
        ("-1", true),
        ("~0 == -1", true),
        ("sizeof (int) == 4", true),
        ("sizeof WIDE == 4", true),
        ("offsetof(struct s, b) == 4", true),
        ("(char)256", false),
        ("ONE > ZERO", true),
        ("(1 ? 0 : 1)", false),
        ("$1", true),
        ("$1 == 8", false),
    ] {
        let begin = "inline int WIDE = 1; struct s { int a; int b; }; enum e { ZERO, ONE };";
        // Actions, stacks and aggregations are statements, and what is not chosen need not be right.
        for statement in ["printf(\"x\")", "trace(5)", "stack()", "ustack()", "(@c = count())"] {
            let other = "nosuch(variable) + 1 / 0";
            let (yes, no) = if holds { (statement, other) } else { (other, statement) };
            let program = format!("{begin} BEGIN {{ {condition} ? {yes} : {no}; }} BEGIN /0/ {{ x = $1; }}");
            // The second clause has the default action.
            assert!(with_argument(&program, "7").is_ok_and(|made| made >= 1), "{program}");
        }
    }
}

#[test]
fn actions_are_refused_under_a_condition_that_is_not_constant() {
    for condition in ["x", "arg0", "WIDE + x", "x++", "(x = 1)", "strlen(\"a\")", "self->y", "this->z"] {
        let program = format!(
            "inline int WIDE = 1; int x; self int y; this int z; BEGIN {{ {condition} ? printf(\"x\") : 1; }}"
        );
        assert_eq!(compile(&program).unwrap_err().tag, "D_OP_ACT", "{program}");
    }
    assert_eq!(compile("int x; BEGIN { 1 ? nosuch : x; }").unwrap_err().tag, "D_IDENT_UNDEF");
}
