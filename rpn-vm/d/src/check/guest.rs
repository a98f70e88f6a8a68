//! What a program asks of the guest: symbols, and the typed arguments of probes.

use super::Checker;
use crate::error::{Error, Pos, Result};
use crate::guest::{ArgumentPlace, ArgumentType, GuestArgument, GuestArguments, TypeTag, scoped};
use crate::node::{Node, NodeKind, Place, Service};
use crate::parse::parse_type;
use crate::types::{Kind, TypeId};
use trapline_rpn::services::d::{self, Builtin};

/// The types of an argument: that of its value, and that to which it is translated.
#[derive(Clone, Copy)]
struct Typed {
    native: TypeId,
    translated: Option<TypeId>,
}

impl Checker<'_> {
    /// What Linux calls a thread.
    pub(super) fn thread_type(&mut self) -> Option<TypeId> {
        self.types.of_guest(TypeTag::Struct, "task_struct")
    }

    /// A symbol of the guest: what lies at its address. A function is its address.
    pub(super) fn symbol(&mut self, name: &str, pos: Pos) -> Result<Node> {
        let (module, symbol) = scoped(name);
        let found = self.types.imports.guest.symbol(module, symbol).map_err(|ambiguous| {
            let sentence = format!("failed to resolve {name}: {ambiguous}; use one of these addresses");
            pos.error("D_IDENT_AMBIG", sentence)
        })?;
        let Some(found) = found else {
            let shown = if symbol.is_empty() { "`" } else { name };
            return Err(pos.error("D_IDENT_UNDEF", format!("failed to resolve {shown}: Unknown symbol name")));
        };
        if self.options.flag("kdefs") && self.options.text("linkmode") == "dynamic" {
            let sentence = format!(
                "relocation remains against kernel symbol {}`{symbol} (offset {:#x})",
                module.unwrap_or("vmlinux"),
                found.address
            );
            return Err(pos.error("D_ASRELO", sentence));
        }
        let Some(ty) = found.ty else {
            let sentence = format!(
                "no symbolic type information is available for {name}: it lies at {:#x}",
                found.address
            );
            return Err(pos.error("D_SYM_NOTYPES", sentence));
        };
        let ty = self.types.import(ty);
        let pointer = self.types.pointer(ty);
        let at = |address| Node::new(pos, pointer, NodeKind::Const(address));
        if matches!(self.types.kind(ty), Kind::Function { .. }) {
            return Ok(at(found.address));
        }
        let address = match found.base {
            None => at(found.address),
            Some(base) => {
                let word = self.types.builtin("unsigned long");
                let base = NodeKind::Load(Place::Memory { address: at(base).into(), bits: None });
                let base = Node::new(pos, word, base);
                Node::new(pos, pointer, NodeKind::Binary("+", base.into(), at(found.address).into()))
            }
        };
        self.loaded(address, ty, pos)
    }

    /// `args[number]`, if the types of the probes' arguments are known.
    pub(super) fn typed_argument(&mut self, number: u64, pos: Pos) -> Result<Option<Node>> {
        let descriptions = self.descriptions.clone();
        let mut found: Option<(Typed, GuestArgument)> = None;
        for description in &descriptions {
            let different = || {
                let sentence = format!(
                    "args[ ] may not be referenced because probe description {description} matches an unstable set of probes"
                );
                pos.error("D_ARGS_MULTI", sentence)
            };
            let list = match self.types.imports.guest.arguments(description) {
                GuestArguments::Unknown if found.is_some() => return Err(different()),
                GuestArguments::Unknown => return Ok(None),
                GuestArguments::Different => return Err(different()),
                GuestArguments::Known(list) => list,
            };
            let Some(argument) = usize::try_from(number).ok().and_then(|n| list.get(n)).cloned() else {
                let sentence = format!(
                    "index {number} is out of range for {description} args[ ]: there are {}",
                    list.len()
                );
                return Err(pos.error("D_ARGS_IDX", sentence));
            };
            let ty = self.argument_type(&argument.ty, number, pos)?;
            match &found {
                Some((other, before))
                    if self.shown(*other) != self.shown(ty) || before.place != argument.place =>
                {
                    return Err(different());
                }
                _ => found = Some((ty, argument)),
            }
        }
        let Some((ty, argument)) = found else { return Ok(None) };
        let value = self.argument(ty.native, (number, &argument), pos)?;
        match ty.translated {
            Some(to) => self.translate(to, value, pos).map(Some),
            None => Ok(Some(value)),
        }
    }

    /// The names of the types of an argument.
    fn shown(&self, Typed { native, translated }: Typed) -> (String, Option<String>) {
        (self.types.name(native), translated.map(|to| self.types.name(to)))
    }

    /// The types of an argument.
    fn argument_type(&mut self, ty: &ArgumentType, number: u64, pos: Pos) -> Result<Typed> {
        match ty {
            ArgumentType::Guest(id) => Ok(Typed { native: self.types.import(*id), translated: None }),
            ArgumentType::Named { native, translated } => {
                let unknown = |why: Error| {
                    let sentence =
                        format!("failed to resolve native type for args[{number}]: {}", why.message);
                    pos.error("D_ARGS_TYPE", sentence)
                };
                let native = self.type_of_text(native).map_err(unknown)?;
                if translated.is_empty() {
                    return Ok(Typed { native, translated: None });
                }
                let what = format!("args[{number}], which is translated to {translated},");
                let to = self.type_of_text(translated).map_err(|_| Self::needs_types(&what, pos))?;
                Ok(Typed { native, translated: Some(to) })
            }
        }
    }

    /// The type that C writes so.
    fn type_of_text(&mut self, text: &str) -> Result<TypeId> {
        let guest = std::sync::Arc::clone(&self.types.imports.guest);
        let of_guest = |name: &str| guest.type_named(TypeTag::Typedef, None, name).is_some();
        let parsed = parse_type(text, &|name| self.types.is_typedef(name), &of_guest)?;
        let ty = self.type_name(&parsed)?;
        self.types.settle(ty);
        Ok(ty)
    }

    fn argument(&mut self, ty: TypeId, (number, argument): (u64, &GuestArgument), pos: Pos) -> Result<Node> {
        if let Kind::Float { .. } = self.types.kind(ty) {
            let sentence = format!(
                "failed to resolve native type for args[{number}]: D computes with no floating-point numbers; a probe without a \
                 clause shows them"
            );
            return Err(pos.error("D_ARGS_TYPE", sentence));
        }
        let words = match argument.place {
            ArgumentPlace::Words { number, pair } if self.types.is_scalar(ty) => Some((number, pair)),
            _ => None,
        };
        let Some((first, pair)) = words.filter(|(first, pair)| first + u8::from(*pair) < 10) else {
            let sentence = format!(
                "failed to resolve native type for args[{number}]: this {} is passed in parts, or behind such a one",
                self.types.name(ty)
            );
            return Err(pos.error("D_ARGS_TYPE", sentence));
        };
        let word = self.types.builtin("unsigned long long");
        let read = |number: u8| {
            let which = Builtin::Arg0.number() + u64::from(number);
            let service = Service { number: d::BUILTIN, operand: Some(which), gives: true };
            Self::service(pos, word, service, Vec::new())
        };
        let mut value = read(first);
        if pair {
            let bits = self.int(pos, 32);
            let high = read(first + 1);
            let high = Node::new(pos, word, NodeKind::Binary("<<", high.into(), bits.into()));
            value = Node::new(pos, word, NodeKind::Binary("|", value.into(), high.into()));
        }
        Ok(Node::new(pos, ty, NodeKind::Convert(value.into())))
    }
}
