//! The places of errors and clauses in texts that the preprocessor has made of several files.

use trapline_d::{Compiler, Model, Options, compile, file_of};

const TEXT: &str = "\
# 1 \"f.d\"
int before;
# 3 \"inc/h.h\"
BEGIN { wrong; }
# 8 \"f.d\"
BEGIN
{
\tafter = 1;
}
";

#[test]
fn an_error_has_the_line_of_its_file_and_that_of_the_text() {
    let error = compile(TEXT).unwrap_err();
    assert_eq!((error.line, error.text_line, error.column), (3, 4, 9));
    assert_eq!(file_of(TEXT.as_bytes(), error.text_line).as_deref(), Some("inc/h.h"));
    let right = TEXT.replace("wrong", "before");
    let error = compile(&right.replace("= 1", "= nosuch")).unwrap_err();
    assert_eq!((error.line, error.text_line), (10, 8));
    assert_eq!(file_of(TEXT.as_bytes(), error.text_line).as_deref(), Some("f.d"));
}

#[test]
fn a_clause_has_both_lines_too() {
    let compiled = compile(&TEXT.replace("wrong", "before")).unwrap();
    let lines: Vec<_> = compiled.clauses.iter().map(|clause| (clause.line, clause.text_line)).collect();
    assert_eq!(lines, [(3, 4), (8, 6)]);
    let after = &compiled.clauses[1];
    assert_eq!((after.lines[0], after.text_lines[0]), (10, 8));
}

#[test]
fn an_error_of_any_stage_tells_the_text() {
    let mut compiler = Compiler::new(Model::Lp64, Options::default());
    let mut add = |text: &str| compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None);
    add("long long x;").unwrap();
    add(&format!("BEGIN {{ y = {}; }}", vec!["x"; 40_000].join(" + "))).unwrap();
    assert_eq!(add("BEGIN { nosuch; }").unwrap_err().text, 2);
    // It is too long, which is found when the code is generated.
    assert_eq!(compiler.finish().unwrap_err().text, 1);
}
