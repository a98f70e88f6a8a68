//! Declarations: types, and variables of declared types.

use crate::ast::{
    Base, Declaration, Declarator, Derived, Expr, Inline, Parameter, Spec, Storage, Translator, TypeName,
};
use crate::check::Checker;
use crate::error::{Pos, Result};
use crate::guest::TypeTag;
use crate::library;
use crate::scope::{InlineName, Owner, TranslatorName};
use crate::types::{Kind, Member, TypeId};
use std::sync::Arc;

/// Most elements that an array may have, and most bytes of a type: its offsets must stay in 32 bits.
const LONGEST: u64 = 1 << 24;

/// A type that was derived, with the keys of an associative array.
type Derivation = (TypeId, Option<Vec<TypeId>>);

impl Checker<'_> {
    /// A declaration outside of clauses.
    pub fn declaration(&mut self, declaration: &Declaration) -> Result<()> {
        let base = self.base(&declaration.base)?;
        if declaration.declarators.is_empty() {
            let named = matches!(declaration.base.spec, Spec::Sou { .. } | Spec::Enum { .. });
            if !named || declaration.base.storage == Some(Storage::Extern) {
                return Err(declaration.pos.error("D_DECL_USELESS", "useless declaration"));
            }
        }
        for declarator in &declaration.declarators {
            self.declarator(declaration, base, declarator)?;
        }
        Ok(())
    }

    fn declarator(&mut self, whole: &Declaration, base: TypeId, declarator: &Declarator) -> Result<()> {
        let pos = declarator.pos;
        let Some(name) = &declarator.name else {
            return Err(pos.error("D_DECL_USELESS", "useless declaration"));
        };
        if let Some(Derived::Array(None)) = declarator.derived.last() {
            let sentence = format!("array declaration requires array dimension or tuple signature: {name}");
            return Err(pos.error("D_DECL_ARRNULL", sentence));
        }
        let (ty, keys) = self.derive(base, &declarator.derived, pos)?;
        let redeclared = || pos.error("D_DECL_IDRED", format!("identifier redeclared: {name}"));
        if whole.base.storage == Some(Storage::Typedef) {
            if self.types.named(name).is_some_and(|there| self.types.resolve(there) != self.types.resolve(ty))
            {
                return Err(pos.error("D_DECL_IDRED", format!("typedef redeclared: {name}")));
            }
            self.types.typedef(name, ty);
            return Ok(());
        }
        if let Kind::Function { .. } = self.types.kind(ty) {
            self.scope.functions.insert(name.clone(), Vec::new());
            return Ok(());
        }
        let owner = match whole.base.storage {
            Some(Storage::SelfVariable) => Owner::Thread,
            Some(Storage::ThisVariable) => Owner::Clause,
            Some(Storage::Extern) => return Ok(()),
            _ => Owner::Program,
        };
        self.complete(ty, name, pos)?;
        if matches!(self.types.kind(ty), Kind::Void) {
            return Err(pos.error("D_DECL_VOIDOBJ", format!("cannot have void object: {name}")));
        }
        if let Some(there) = self.scope.owned(owner).get(name) {
            let same = self.types.resolve(there.ty) == self.types.resolve(ty)
                && there.keys.is_some() == keys.is_some();
            return if same { Ok(()) } else { Err(redeclared()) };
        }
        if owner == Owner::Program && (self.scope.is_inline(name) || self.is_reserved(name)) {
            return Err(redeclared());
        }
        self.scope.declare(self.types, (owner, name), ty, keys);
        Ok(())
    }

    /// Refuses a type of which no size is known.
    fn complete(&self, ty: TypeId, name: &str, pos: Pos) -> Result<()> {
        let mut element = ty;
        while let Kind::Array { of, .. } = self.types.kind(element) {
            element = *of;
        }
        let incomplete = match self.types.kind(element) {
            Kind::Sou(_) => self.types.composite(element).is_some_and(|sou| sou.members.is_none()),
            _ => false,
        };
        if incomplete {
            let sentence = format!("incomplete struct/union/enum {}: {name}", self.types.name(element));
            return Err(pos.error("D_DECL_INCOMPLETE", sentence));
        }
        Ok(())
    }

    /// The type that stands before the declarators.
    pub fn base(&mut self, base: &Base) -> Result<TypeId> {
        match &base.spec {
            Spec::Words(words) => self.words(words, base.pos),
            Spec::Typedef(name) => {
                let own = self.types.named(name);
                let found = own.or_else(|| self.types.of_guest(TypeTag::Typedef, name));
                found.ok_or_else(|| {
                    let sentence = format!("failed to resolve type {name} : Unknown type name");
                    base.pos.error("D_UNKNOWN", sentence)
                })
            }
            Spec::Sou { union, name, members } => {
                self.sou(*union, name.as_deref(), members.as_deref(), base.pos)
            }
            Spec::Enum { name, items } => {
                let Some(items) = items else { return Ok(self.types.enumeration(name.as_deref())) };
                let ty = self.types.own_enumeration(name.as_deref());
                self.enumerators(ty, items, base.pos)?;
                Ok(ty)
            }
        }
    }

    /// `unsigned long int` and the like.
    fn words(&self, words: &[String], pos: Pos) -> Result<TypeId> {
        let count = |word: &str| words.iter().filter(|w| *w == word).count();
        let (long, short, signed, unsigned) =
            (count("long"), count("short"), count("signed"), count("unsigned"));
        let unknown = || {
            let name = words.join(" ").replace("long short", "short long");
            pos.error("D_UNKNOWN", format!("failed to resolve type {name} : Unknown type name"))
        };
        let rest: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .filter(|w| !matches!(*w, "long" | "short" | "signed" | "unsigned" | "userland"))
            .collect();
        let base = match rest.as_slice() {
            [] => "int",
            [one] => one,
            _ => return Err(pos.error("D_DECL_COMBO", "invalid type combination")),
        };
        if signed + unsigned > 1 {
            return Err(pos.error("D_DECL_COMBO", "invalid type combination"));
        }
        if long > 0 && short > 0 || long > 2 || short > 1 {
            return Err(unknown());
        }
        let sign = if unsigned > 0 { "unsigned " } else { "" };
        let name = match (base, long, short) {
            ("int", 0, 0) => format!("{sign}int"),
            ("int", 1, 0) => format!("{sign}long"),
            ("int", 2, 0) => format!("{sign}long long"),
            ("int", 0, 1) => format!("{sign}short"),
            ("char", 0, 0) if signed > 0 => "signed char".to_owned(),
            ("char", 0, 0) => format!("{sign}char"),
            ("double", 1, 0) => "long double".to_owned(),
            (other, 0, 0) if signed + unsigned == 0 => other.to_owned(),
            (other, ..) if long > 0 && !matches!(other, "char") => {
                let sentence = "invalid type declaration: long and long long may only be used with integer or \
                                floating-point type";
                return Err(pos.error("D_DECL_LONGINT", sentence));
            }
            _ => return Err(unknown()),
        };
        self.types.named(&name).ok_or_else(unknown)
    }

    fn sou(
        &mut self,
        union: bool,
        name: Option<&str>,
        members: Option<&[Declaration]>,
        pos: Pos,
    ) -> Result<TypeId> {
        let Some(members) = members else { return Ok(self.types.sou(union, name)) };
        let ty = self.types.own_sou(union, name);
        if self.types.composite(ty).is_some_and(|sou| sou.members.is_some()) {
            let sentence = format!("type redeclared: {}", self.types.name(ty));
            return Err(pos.error("D_DECL_TYPERED", sentence));
        }
        let mut layout = Layout { union, ..Layout::default() };
        for declaration in members {
            let base = self.base(&declaration.base)?;
            if declaration.declarators.is_empty() {
                self.lay_out(
                    &mut layout,
                    base,
                    &Declarator { pos: declaration.pos, ..Declarator::default() },
                )?;
            }
            for declarator in &declaration.declarators {
                self.lay_out(&mut layout, base, declarator)?;
            }
        }
        let Kind::Sou(index) = *self.types.kind(ty) else { return Ok(ty) };
        if let Some(sou) = self.types.sous.get_mut(index) {
            let align = layout.align.max(1);
            (sou.size, sou.align) = (layout.end.div_ceil(8).next_multiple_of(align), align);
            sou.members = Some(layout.members);
        }
        Ok(ty)
    }

    /// Adds a member after the others.
    fn lay_out(&mut self, layout: &mut Layout, base: TypeId, declarator: &Declarator) -> Result<()> {
        let pos = declarator.pos;
        let name = declarator.name.clone().unwrap_or_default();
        let (ty, _) = self.derive(base, &declarator.derived, pos)?;
        self.complete(ty, &name, pos)?;
        if !name.is_empty() && layout.members.iter().any(|member| member.name == name) {
            let sentence = format!("failed to define member '{name}': Duplicate member or variable name");
            return Err(pos.error("D_UNKNOWN", sentence));
        }
        let (size, align) = (self.types.size(ty), self.types.align(ty));
        if layout.end.div_ceil(8).saturating_add(size) > LONGEST {
            let sentence =
                format!("the struct or union has more than {LONGEST} bytes with its member '{name}'");
            return Err(pos.error("D_DECL_BIG", sentence));
        }
        let Some(bits) = &declarator.bits else {
            layout.add(name, ty, size, align);
            return Ok(());
        };
        let width = self.constant(bits)?;
        let Some(width) = width.filter(|width| (*width as i64) >= 0) else {
            return Err(pos.error(
                "D_DECL_BFCONST",
                "positive integral constant expression expected as bit-field size",
            ));
        };
        if width > size * 8 || !self.types.is_integer(ty) {
            let sentence = format!("bit-field too big for type: {name}");
            return Err(pos.error("D_DECL_BFSIZE", sentence));
        }
        layout.add_bits(name, ty, (size, align), width);
        Ok(())
    }

    fn enumerators(&mut self, ty: TypeId, items: &[(Pos, String, Option<Expr>)], pos: Pos) -> Result<()> {
        let Kind::Enum(index) = *self.types.kind(ty) else { return Ok(()) };
        if self.types.enums.get(index).is_some_and(|known| known.items.is_some()) {
            return Err(pos.error("D_DECL_TYPERED", format!("type redeclared: {}", self.types.name(ty))));
        }
        let (mut next, mut list) = (0i64, Vec::new());
        for (pos, name, value) in items {
            if let Some(value) = value {
                next = self.constant(value)?.ok_or_else(|| {
                    let sentence =
                        format!("enumerator '{name}' must be assigned to an integral constant expression");
                    pos.error("D_DECL_ENCONST", sentence)
                })? as i64;
            }
            // D's enumerations have the size of int.
            if i32::try_from(next).is_err() {
                let sentence = format!("enumerator '{name}' value overflows INT_MAX ({})", i32::MAX);
                return Err(pos.error("D_DECL_ENOFLOW", sentence));
            }
            if self.scope.enumerators.contains_key(name) || self.scope.globals.contains_key(name) {
                return Err(pos.error("D_DECL_IDRED", format!("identifier redeclared: {name}")));
            }
            self.scope.enumerators.insert(name.clone(), (next, ty));
            list.push((name.clone(), next));
            next = next.wrapping_add(1);
        }
        if let Some(there) = self.types.enums.get_mut(index) {
            there.items = Some(list);
        }
        Ok(())
    }

    /// The types of parameters. `void` alone means none.
    fn parameters(&mut self, parameters: &[Parameter], array: bool, pos: Pos) -> Result<Vec<TypeId>> {
        let mut list = Vec::new();
        for (n, parameter) in parameters.iter().enumerate().filter(|(_, p)| !p.variadic) {
            let base = self.base(&parameter.ty.base)?;
            let (ty, _) = self.derive(base, &parameter.ty.derived, pos)?;
            if matches!(self.types.kind(ty), Kind::Void) {
                if array {
                    let sentence = format!(
                        "array prototype may not use parameter of type void: {}, parameter #{}",
                        parameter.name.as_deref().unwrap_or("(anonymous)"),
                        n + 1
                    );
                    return Err(pos.error("D_DECL_PROTO_TYPE", sentence));
                }
                if let Some(name) = &parameter.name {
                    return Err(
                        pos.error("D_DECL_PROTO_NAME", format!("void parameter may not have a name: {name}"))
                    );
                }
                if parameters.len() > 1 {
                    return Err(pos.error("D_DECL_PROTO_VOID", "void must be sole parameter"));
                }
                return Ok(list);
            }
            list.push(ty);
        }
        Ok(list)
    }

    /// Makes a type out of a base type.
    pub fn derive(&mut self, base: TypeId, derived: &[Derived], pos: Pos) -> Result<Derivation> {
        let (mut ty, mut keys) = (base, None);
        for step in derived {
            match step {
                Derived::Pointer => ty = self.types.pointer(ty),
                Derived::Array(None) => ty = self.types.array(ty, 0),
                Derived::Array(Some(length)) => {
                    let value = self.constant(length)?;
                    let Some(length) = value.filter(|value| *value > 0 && *value < LONGEST) else {
                        let sentence = "positive integral constant expression or tuple signature expected as array \
                                        declaration subscript";
                        return Err(pos.error("D_DECL_ARRSUB", sentence));
                    };
                    if self.types.size(ty).saturating_mul(length) > LONGEST {
                        let sentence = format!("the array has more than {LONGEST} bytes");
                        return Err(pos.error("D_DECL_ARRBIG", sentence));
                    }
                    ty = self.types.array(ty, length);
                }
                Derived::Function(parameters) => {
                    let variadic = parameters.last().is_some_and(|p| p.variadic);
                    let list = self.parameters(parameters, false, pos)?;
                    ty = self.types.function(ty, list, variadic);
                }
                Derived::Keys(parameters) => keys = Some(self.parameters(parameters, true, pos)?),
            }
        }
        Ok((ty, keys))
    }

    /// A type that an expression names.
    pub fn type_name(&mut self, name: &TypeName) -> Result<TypeId> {
        let base = self.base(&name.base)?;
        Ok(self.derive(base, &name.derived, name.base.pos)?.0)
    }

    /// `inline`.
    pub fn inline(&mut self, inline: &Inline) -> Result<()> {
        let Some(name) = &inline.declarator.name else {
            return Err(inline.pos.error("D_DECL_USELESS", "useless declaration"));
        };
        let taken = self.scope.is_inline(name) || self.scope.globals.contains_key(name);
        if taken || self.is_reserved(name) {
            return Err(inline.pos.error("D_DECL_IDRED", format!("identifier redeclared: {name}")));
        }
        let made = self.inline_name(inline, false)?;
        if made.parameters.is_empty() {
            self.expand_inline(&made, Vec::new(), inline.pos)?;
        }
        self.scope.inlines.insert(name.clone(), made.into());
        Ok(())
    }

    /// The inline of a name, the program's or the library's.
    pub fn inline_of(&mut self, name: &str) -> Result<Option<Arc<InlineName>>> {
        if let Some(known) = self.scope.inlines.get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let Some(inline) = library::inline(name, &self.scope.library) else { return Ok(None) };
        let made = Arc::new(self.inline_name(inline, true)?);
        self.scope.inlines.insert(name.to_owned(), Arc::clone(&made));
        Ok(Some(made))
    }

    fn inline_name(&mut self, inline: &Inline, library: bool) -> Result<InlineName> {
        let base = self.base(&inline.base)?;
        let mut derived = inline.declarator.derived.clone();
        let mut parameters = Vec::new();
        if let Some(Derived::Keys(list)) = derived.iter().find(|d| matches!(d, Derived::Keys(_))).cloned() {
            let types = self.parameters(&list, true, inline.pos)?;
            parameters = list.iter().map(|p| p.name.clone()).zip(types).collect();
            derived.retain(|d| !matches!(d, Derived::Keys(_)));
        }
        let (ty, _) = self.derive(base, &derived, inline.pos)?;
        Ok(InlineName { ty, library, parameters, value: inline.value.clone() })
    }

    /// `translator`.
    pub fn translator(&mut self, translator: &Translator) -> Result<()> {
        let output = self.type_name(&translator.output)?;
        let input = self.type_name(&translator.input)?;
        let Some(sou) = self.types.composite(output) else {
            let sentence =
                format!("translator output type must be a struct or union: {}", self.types.name(output));
            return Err(translator.pos.error("D_XLATE_SOU", sentence));
        };
        if sou.members.is_none() {
            let sentence = format!("incomplete struct/union/enum {}", self.types.name(output));
            return Err(translator.pos.error("D_XLATE_SOU", sentence));
        }
        let resolve = (self.types.resolve(output), self.types.resolve(input));
        let same =
            |t: &TranslatorName| (self.types.resolve(t.output), self.types.resolve(t.input)) == resolve;
        if self.scope.translators.iter().any(same) {
            let sentence = format!(
                "translator from {} to {} is declared twice",
                self.types.name(input),
                self.types.name(output)
            );
            return Err(translator.pos.error("D_XLATE_REDECL", sentence));
        }
        for (pos, member, _) in &translator.members {
            if self.types.member(output, member).is_none() {
                let sentence =
                    format!("translator member {member} is not a member of {}", self.types.name(output));
                return Err(pos.error("D_XLATE_MEMB", sentence));
            }
        }
        let members =
            translator.members.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect();
        let name = translator.name.clone();
        let library = self.in_library;
        self.scope.translators.push(TranslatorName { library, output, input, name, members });
        if library {
            return Ok(());
        }
        let number = self.scope.translators.len() - 1;
        for (pos, member, _) in &translator.members {
            self.check_translator_member(number, member, *pos)?;
        }
        Ok(())
    }
}

/// A struct or union in the making; positions are in bits.
#[derive(Default)]
struct Layout {
    union: bool,
    members: Vec<Member>,
    end: u64,
    align: u64,
}

impl Layout {
    fn start(&self) -> u64 {
        if self.union { 0 } else { self.end }
    }

    fn add(&mut self, name: String, ty: TypeId, size: u64, align: u64) {
        let offset = self.start().div_ceil(8).next_multiple_of(align.max(1));
        self.members.push(Member { name, ty, offset, bits: None });
        self.end = self.end.max((offset + size) * 8);
        self.align = self.align.max(align);
    }

    /// A bit-field lies in one unit of its type, as the System V ABI has it.
    fn add_bits(&mut self, name: String, ty: TypeId, (size, align): (u64, u64), width: u64) {
        let unit = size * 8;
        let mut at = self.start();
        if width == 0 {
            self.end = self.end.max(at.next_multiple_of(unit));
            return;
        }
        if at / unit != (at + width - 1) / unit {
            at = at.next_multiple_of(unit);
        }
        let offset = at / unit * size;
        let bits = Some(((at - offset * 8) as u8, width as u8));
        self.members.push(Member { name, ty, offset, bits });
        self.end = self.end.max(at + width);
        self.align = self.align.max(align);
    }
}
