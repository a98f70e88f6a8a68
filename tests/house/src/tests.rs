//! The tests of a crate: their names, and whether each can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMethodCall, Item, Macro, Signature};

/// A `#[test]` function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its file.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Whether `#[ignore]` leaves it out.
    pub ignored: bool,
    /// Whether it asserts something, itself or through a function that it calls.
    pub asserts: bool,
}

/// A function: what it calls, and whether it asserts.
#[derive(Default)]
struct Body {
    asserts: bool,
    calls: BTreeSet<String>,
}

#[derive(Default)]
struct Functions {
    file: PathBuf,
    tests: Vec<Test>,
    /// By name. Functions of one name count as one, so a test may be taken for one that asserts, never the reverse.
    bodies: BTreeMap<String, Body>,
    open: Vec<String>,
}

/// The tests in a crate's files.
///
/// # Errors
/// A sentence, when a file cannot be read or does not parse.
pub fn tests(files: &BTreeSet<PathBuf>) -> Result<Vec<Test>, String> {
    let mut functions = Functions::default();
    for file in files {
        read(file, &mut functions).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let Functions { mut tests, bodies, .. } = functions;
    for test in &mut tests {
        test.asserts |= reaches_an_assertion(&test.name, &bodies);
    }
    Ok(tests)
}

fn read(file: &Path, functions: &mut Functions) -> Result<(), Box<dyn std::error::Error>> {
    let parsed = syn::parse_file(&std::fs::read_to_string(file)?)?;
    functions.file = file.to_path_buf();
    parsed.items.iter().for_each(|item: &Item| functions.visit_item(item));
    Ok(())
}

fn reaches_an_assertion(name: &str, bodies: &BTreeMap<String, Body>) -> bool {
    let mut seen = BTreeSet::from([name]);
    let mut open = vec![name];
    while let Some(name) = open.pop() {
        let Some(body) = bodies.get(name) else { continue };
        if body.asserts {
            return true;
        }
        open.extend(body.calls.iter().map(String::as_str).filter(|call| seen.insert(call)));
    }
    false
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

impl Functions {
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, walk: impl FnOnce(&mut Self)) {
        let name = signature.ident.to_string();
        if has(attributes, "test") {
            self.tests.push(Test {
                file: self.file.clone(),
                name: name.clone(),
                ignored: has(attributes, "ignore"),
                asserts: has(attributes, "should_panic"),
            });
        }
        self.bodies.entry(name.clone()).or_default();
        self.open.push(name);
        walk(self);
        self.open.pop();
    }

    fn body(&mut self) -> Option<&mut Body> {
        self.bodies.get_mut(self.open.last()?)
    }

    fn calls(&mut self, name: String) {
        if let Some(body) = self.body() {
            body.calls.insert(name);
        }
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.attrs, &item.sig, |own| visit::visit_block(own, &item.block));
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, |own| visit::visit_block(own, &item.block));
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        visit::visit_expr_call(self, call);
        if let Expr::Path(path) = &*call.func {
            // `shared::<Snapshot>()` asserts a bound, which the compiler checks.
            let typed = path.path.segments.last().is_some_and(|last| !last.arguments.is_none());
            if let Some(body) = self.body().filter(|_| typed && call.args.is_empty()) {
                body.asserts = true;
            }
            let name = path.path.segments.last().map(|segment| segment.ident.to_string());
            self.calls(name.unwrap_or_default());
        }
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let name = call.method.to_string();
        self.calls(name);
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        let name = called.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let asserts = name.contains("assert") || name == "panic" || name == "unreachable";
        if let Some(body) = self.body().filter(|_| asserts) {
            body.asserts = true;
        }
    }
}
