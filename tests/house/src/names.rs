//! The names in a file's syntax: imports with their aliases, and every path that code holds.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Meta, UseTree};

/// A path, segment by segment, and its line.
pub(crate) type Named = (Vec<String>, usize);

/// The names that one module's code, without its inner modules, uses and defines.
#[derive(Default)]
pub(crate) struct Names {
    /// `use` declarations: the imported name and its path.
    pub imports: Vec<(String, Named)>,
    /// `use ..::*`.
    pub globs: Vec<Named>,
    /// Paths in code.
    pub paths: Vec<Named>,
    /// Items that the module defines.
    pub items: Vec<String>,
}

/// Reads the items of a module. The inner modules are left to the caller.
pub(crate) fn names(items: &[Item]) -> Names {
    let mut names = Names::default();
    for item in items.iter().filter(|item| !is_test(attributes(item))) {
        if let Some(name) = defined(item) {
            names.items.push(name);
        }
        if !matches!(item, Item::Mod(_)) {
            names.visit_item(item);
        }
    }
    names
}

/// Whether `#[cfg(test)]` or `#[test]` leaves the item out of the crate.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition: String = list.tokens.to_string().split_whitespace().collect();
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => return defined_by_macro(i),
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// `macro_rules! name`, or the type in `bitflags! { pub struct Name .. }` and the like.
fn defined_by_macro(item: &syn::ItemMacro) -> Option<String> {
    if let Some(name) = &item.ident {
        return Some(name.to_string());
    }
    let tokens: Vec<String> = item.mac.tokens.clone().into_iter().map(|token| token.to_string()).collect();
    let at = tokens.iter().position(|token| token == "struct" || token == "enum")?;
    tokens.get(at + 1).cloned()
}

fn flatten(tree: &UseTree, before: &[String], line: usize, names: &mut Names) {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(path.ident.to_string()), line, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, line, names)),
        UseTree::Glob(_) => names.globs.push((before.to_vec(), line)),
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last() {
                names.imports.push((last.clone(), (before.to_vec(), line)));
            }
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            names.imports.push((name.clone(), (with(name), line)));
        }
        UseTree::Rename(rename) => {
            let path = if rename.ident == "self" { before.to_vec() } else { with(rename.ident.to_string()) };
            names.imports.push((rename.rename.to_string(), (path, line)));
        }
    }
}

/// The paths in a macro's tokens: identifiers joined by `::`.
fn scan(tokens: TokenStream, paths: &mut Vec<Named>) {
    let mut open: Option<Named> = None;
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                let (name, line) = (ident.to_string(), ident.span().start().line);
                match open.as_mut().filter(|_| colons == 2) {
                    Some((path, _)) => path.push(name),
                    None => paths.extend(open.replace((vec![name], line))),
                }
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && open.is_some() => colons += 1,
            TokenTree::Group(group) => {
                paths.extend(open.take());
                colons = 0;
                scan(group.stream(), paths);
            }
            _ => {
                paths.extend(open.take());
                colons = 0;
            }
        }
    }
    paths.extend(open);
}

impl<'a> Visit<'a> for Names {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !is_test(&item.attrs) {
            flatten(&item.tree, &[], item.span().start().line, self);
        }
    }

    fn visit_item_mod(&mut self, _: &'a ItemMod) {}

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_attribute(&mut self, _: &'a Attribute) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            self.paths.push((segments, path.span().start().line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        visit::visit_macro(self, called);
        scan(called.tokens.clone(), &mut self.paths);
    }

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}
