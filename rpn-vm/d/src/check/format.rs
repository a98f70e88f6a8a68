//! Formats against the arguments that they are given.

use super::Checker;
use crate::ast::{Expr, ExprKind};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind};
use crate::types::{Kind, TypeId};
use trapline_trace::d::{Conversion, Format, Size};

impl Checker<'_> {
    /// The format of `printf()` and the like, and the values that it takes.
    pub(super) fn formatted(
        &mut self,
        name: &str,
        arguments: &[Expr],
        pos: Pos,
    ) -> Result<(Format, Vec<Node>)> {
        let Some((first, rest)) = arguments.split_first() else {
            return Err(pos.error("D_PROTO_LEN", format!("{name}( ) needs a format")));
        };
        let ExprKind::Str(text) = &first.kind else {
            let node = self.expr(first)?;
            return Err(self.wrong_argument(name, 0, "string constant", &node, pos));
        };
        let format = match Format::parse(text) {
            Ok(format) => format,
            Err(error) => {
                // An error in an argument is reported first.
                for argument in rest {
                    self.expr(argument)?;
                }
                return Err(pos.error("D_SYNTAX", error.to_string()));
            }
        };
        let mut given = rest.iter();
        let mut nodes = Vec::new();
        for (n, conversion) in format.conversions().enumerate() {
            if conversion.aggregation {
                let sentence =
                    format!("%@ conversion requires an aggregation and is not for use with {name}( )");
                return Err(pos.error("D_PRINTF_AGG_CONV", sentence));
            }
            for (size, sign) in [(conversion.width, "*"), (conversion.precision, ".*")] {
                if size == Size::Argument {
                    let missing = format!(
                        "{name}( ) prototype mismatch: conversion #{} (%{}) is missing a corresponding \"{sign}\" argument",
                        n + 1,
                        conversion.name
                    );
                    let argument = given.next().ok_or_else(|| pos.error("D_PRINTF_DYN_PROTO", missing))?;
                    nodes.push(self.size_argument(name, argument, (n, nodes.len()), sign, pos)?);
                }
            }
            let Some(argument) = given.next() else {
                let sentence = format!(
                    "{name}( ) prototype mismatch: conversion #{} (%{}) is missing a corresponding value argument",
                    n + 1,
                    conversion.name
                );
                return Err(pos.error("D_PRINTF_ARG_PROTO", sentence));
            };
            nodes.push(self.value_argument(name, argument, conversion, (n, nodes.len()), pos)?);
        }
        if given.next().is_some() {
            let sentence = format!(
                "{name}( ) prototype mismatch: only {} arguments required by this format string",
                nodes.len()
            );
            return Err(pos.error("D_PRINTF_ARG_EXTRA", sentence));
        }
        Ok((format, nodes))
    }

    fn size_argument(
        &mut self,
        name: &str,
        argument: &Expr,
        (n, at): (usize, usize),
        sign: &str,
        pos: Pos,
    ) -> Result<Node> {
        let node = self.expr(argument)?;
        if self.types.is_integer(node.ty) {
            return Ok(node);
        }
        let sentence = format!(
            "{name}( ) argument #{} is incompatible with conversion #{} \"{sign}\" prototype:\n\tprototype: int",
            at + 2,
            n + 1
        );
        Err(pos.error("D_PRINTF_DYN_TYPE", sentence))
    }

    fn value_argument(
        &mut self,
        name: &str,
        argument: &Expr,
        conversion: &Conversion,
        (n, at): (usize, usize),
        pos: Pos,
    ) -> Result<Node> {
        let wrong = |shown: &str| {
            let sentence = format!(
                "{name}( ) argument #{} is incompatible with conversion #{} prototype:\n\tconversion: %{}\n\t prototype: {}\n\t  argument: {shown}",
                at + 2,
                n + 1,
                conversion.name,
                wanted(conversion)
            );
            let error = pos.error("D_PRINTF_ARG_TYPE", sentence);
            Err(match conversion.name.as_str() {
                "s" => {
                    error.help("copyinstr() reads a text of the program, and stringof() one of the kernel")
                }
                _ => error,
            })
        };
        match &argument.kind {
            ExprKind::Aggregation { .. } => return wrong("aggregation"),
            ExprKind::Call(called, arguments) if Self::is_stack(called) => {
                let node = self.stack_value(called, arguments, pos)?;
                return if self.suits_conversion(node.ty, conversion) { Ok(node) } else { wrong("stack") };
            }
            ExprKind::Call(called, _) if Self::is_action(called) => return wrong("void"),
            _ => {}
        }
        let node = self.expr(argument)?;
        let translated = matches!(node.kind, NodeKind::Translated { .. });
        if translated || !self.suits_conversion(node.ty, conversion) {
            return wrong(&self.types.name(node.ty));
        }
        // A pointer to characters is read as a string where one is printed.
        if matches!(conversion.letter(), b's' | b'S') && self.is_text(node.ty) {
            return Ok(self.as_string(node));
        }
        let array = matches!(self.types.kind(node.ty), Kind::Array { .. } | Kind::Str);
        if array && matches!(conversion.letter(), b'p' | b'a' | b'A') {
            let node = Node { ty: self.types.builtin("uintptr_t"), ..Self::decayed(node) };
            return Ok(if conversion.letter() == b'p' { node } else { self.shown_by_name(node, "_symaddr") });
        }
        if matches!(conversion.letter(), b'a' | b'A') && self.types.is_scalar(node.ty) {
            return Ok(self.shown_by_name(node, "_symaddr"));
        }
        Ok(node)
    }

    /// Whether a value of a type can be shown by a conversion.
    fn suits_conversion(&self, ty: TypeId, conversion: &Conversion) -> bool {
        let kind = self.types.kind(ty);
        match conversion.letter() {
            b's' | b'S' => self.is_text(ty) || matches!(kind, Kind::Symbol),
            b'k' => matches!(kind, Kind::Stack),
            b'a' | b'A' => self.types.is_scalar(ty) || matches!(kind, Kind::Symbol | Kind::Array { .. }),
            b'p' => self.types.is_scalar(ty) || matches!(kind, Kind::Array { .. } | Kind::Str | Kind::Symbol),
            b'e' | b'E' | b'f' | b'g' | b'G' => matches!(kind, Kind::Float { size } if *size <= 8),
            _ => self.types.is_scalar(ty),
        }
    }

    /// The conversions of `printa()`: keys in order, and values of aggregations.
    pub(super) fn check_printa(&self, format: &Format, keys: &[TypeId], pos: Pos) -> Result<()> {
        let mut next = 0;
        for (n, conversion) in format.conversions().enumerate() {
            if conversion.width == Size::Argument || conversion.precision == Size::Argument {
                let sentence = "printa( ) format may not use an argument as width or precision";
                return Err(pos.error("D_PRINTA_AGGPROTO", sentence));
            }
            if conversion.aggregation {
                continue;
            }
            let Some(key) = keys.get(next) else {
                let sentence = format!(
                    "printa( ) prototype mismatch: conversion #{} (%{}) is missing a corresponding value argument",
                    n + 1,
                    conversion.name
                );
                return Err(pos.error("D_PRINTF_ARG_PROTO", sentence));
            };
            next += 1;
            if !self.suits_conversion(*key, conversion) {
                let sentence = format!(
                    "printa( ) argument #{} is incompatible with conversion #{} prototype:\n\tconversion: %{}\n\t prototype: {}\n\t  argument: {}",
                    next + 1,
                    n + 1,
                    conversion.name,
                    wanted(conversion),
                    self.types.name(*key)
                );
                return Err(pos.error("D_PRINTF_ARG_TYPE", sentence));
            }
        }
        Ok(())
    }
}

/// What a conversion takes, in words.
fn wanted(conversion: &Conversion) -> &'static str {
    match conversion.letter() {
        b's' | b'S' => "char [] or string (or use stringof)",
        b'k' => "stack or ustack",
        b'a' | b'A' | b'p' => "pointer or integer",
        b'e' | b'E' | b'f' | b'g' | b'G' => "double",
        b'c' => "char",
        _ => "int",
    }
}
