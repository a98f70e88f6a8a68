//! `@name[keys] = function(value)`.

use super::Checker;
use super::call::wrong_count;
use super::callable::Callable;
use crate::ast::{Expr, ExprKind};
use crate::error::{Pos, Result};
use crate::node::{Node, NodeKind, Service};
use crate::scope::field;
use crate::types::{Kind, TypeId};
use trapline_rpn::services::d::{self, Builtin};
use trapline_trace::d::{AggKind, FixedKey, FixedKeys};

/// Aggregating functions: name, least and most arguments.
const FUNCTIONS: &[(&str, usize, usize)] = &[
    ("count", 0, 0),
    ("sum", 1, 1),
    ("avg", 1, 1),
    ("min", 1, 1),
    ("max", 1, 1),
    ("stddev", 1, 1),
    ("quantize", 1, 2),
    ("lquantize", 3, 5),
    ("llquantize", 5, 6),
];

/// Most buckets of a histogram.
const MOST_LEVELS: i64 = 65_535;

impl Checker<'_> {
    pub(super) fn is_aggregating(name: &str) -> bool {
        FUNCTIONS.iter().any(|(function, ..)| *function == name)
    }

    /// The aggregating functions, for the reference.
    pub(super) fn aggregating_listed() -> Vec<Callable> {
        FUNCTIONS.iter().map(|(name, least, most)| Callable::of_any(name, *least, *most)).collect()
    }

    /// The names of all aggregating functions.
    pub(super) fn aggregating() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().map(|(name, ..)| *name)
    }

    pub(super) fn aggregate(
        &mut self,
        name: &str,
        keys: Option<&[Expr]>,
        right: &Expr,
        pos: Pos,
    ) -> Result<Node> {
        if self.done.committed {
            return Err(pos.error("D_AGG_COMM", "aggregating actions may not follow commit( )"));
        }
        if self.done.speculated {
            return Err(pos.error("D_AGG_SPEC", "aggregating actions may not follow speculate( )"));
        }
        self.done.aggregated = true;
        let ExprKind::Call(function, arguments) = &right.kind else {
            let sentence = format!("@{name} must be assigned the result of an aggregating function");
            return Err(pos.error("D_AGG_FUNC", sentence));
        };
        let Some((_, least, most)) = FUNCTIONS.iter().find(|(known, ..)| known == function) else {
            if Self::is_function(function) || Self::is_action(function) {
                let sentence = format!("aggregating function required: {function} is not one");
                return Err(pos.error("D_AGG_FUNC", sentence));
            }
            let error = pos.error("D_FUNC_UNDEF", format!("undefined function name: {function}"));
            return Err(error.near(function, Self::aggregating()));
        };
        if !(*least..=*most).contains(&arguments.len()) {
            return Err(pos.error("D_PROTO_LEN", wrong_count(function, arguments.len(), *least, *most)));
        }
        let (kind, value, weight) = self.aggregated(function, arguments, name, pos)?;
        let mut nodes = Vec::new();
        for key in keys.unwrap_or_default() {
            nodes.push(self.key(key)?);
        }
        let signed = self.types.int(value.ty).1;
        let types: Vec<TypeId> = nodes.iter().map(|node| node.ty).collect();
        // What was computed with 64 bits is cut to the type that the key has.
        let nodes = self.checked_keys(name, nodes, pos)?.into_iter();
        let mut nodes: Vec<Node> = nodes.map(|node| self.held_key(node)).collect();
        let types = if nodes.is_empty() { Vec::new() } else { types };
        let fields = nodes.iter().map(|node| field(self.types, node.ty)).collect();
        let made = self.scope.aggregation(name, kind, (&types, fields), signed);
        self.same_function(made.number, kind, name, pos)?;
        let (service, operand) = match self.fixed(&nodes) {
            Some(keys) => {
                nodes.clear();
                self.scope.tables.fixed.push(FixedKeys { aggregation: made.number, keys });
                (d::AGGREGATE_FIXED, self.scope.tables.fixed.len() as u64 - 1)
            }
            None => (d::AGGREGATE, made.number.into()),
        };
        nodes.push(value);
        nodes.push(weight);
        let service = Service { number: service, operand: Some(operand), gives: false };
        Ok(Self::service(pos, self.types.builtin("<action>"), service, nodes))
    }

    /// The keys, if there are some and all are the same at each hit of a probe.
    fn fixed(&self, keys: &[Node]) -> Option<Vec<FixedKey>> {
        let key = |node: &Node| match &node.kind {
            NodeKind::Const(value) if self.types.is_scalar(node.ty) => Some(FixedKey::Value(*value)),
            NodeKind::Text(address) if self.types.is_string(node.ty) => Some(FixedKey::Value(*address)),
            NodeKind::Service { service, .. } if service.number == d::BUILTIN => {
                let builtin = service.operand.and_then(Builtin::from_number)?;
                builtin.names_probe().then(|| FixedKey::Probe(builtin.number()))
            }
            _ => None,
        };
        keys.iter().map(key).collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty())
    }

    fn held_key(&self, node: Node) -> Node {
        let ty = node.ty;
        if self.types.is_scalar(ty) { self.held(node, ty) } else { node }
    }

    /// Keys as the aggregation has them, if it is there already.
    fn checked_keys(&mut self, name: &str, nodes: Vec<Node>, pos: Pos) -> Result<Vec<Node>> {
        let Some(there) = self.scope.aggregations.get(name).cloned() else { return Ok(nodes) };
        if there.keys.len() != nodes.len() {
            let (given, wanted) = (nodes.len(), there.keys.len());
            let plural = if given == 1 { "" } else { "s" };
            let sentence =
                format!("@{name}[ ] prototype mismatch: {given} key{plural} passed, {wanted} expected");
            return Err(pos.error("D_PROTO_LEN", sentence));
        }
        let mut converted = Vec::new();
        for (n, (node, ty)) in nodes.into_iter().zip(there.keys).enumerate() {
            let shown = self.types.name(node.ty);
            let same_kind = matches!(self.types.kind(ty), Kind::Stack | Kind::Symbol)
                == matches!(self.types.kind(node.ty), Kind::Stack | Kind::Symbol);
            let found = self.convert_assigned(node, ty, "=", pos).ok().filter(|_| same_kind);
            converted.push(found.ok_or_else(|| {
                let sentence = format!(
                    "@{name}[ ] key #{} is incompatible with prototype:\n\tprototype: {}\n\t argument: {shown}",
                    n + 1,
                    self.types.name(ty)
                );
                pos.error("D_PROTO_ARG", sentence)
            })?);
        }
        Ok(converted)
    }

    /// Refuses another function, or other bounds, than the aggregation has.
    fn same_function(&self, number: u32, kind: AggKind, name: &str, pos: Pos) -> Result<()> {
        let Some(there) = self.scope.tables.aggregations.get(number as usize) else { return Ok(()) };
        let tag = match (there.kind, kind) {
            (one, other) if one == other => return Ok(()),
            (AggKind::Lquantize { base: b, limit: l, step: s }, AggKind::Lquantize { base, limit, step }) => {
                if b != base {
                    (
                        "D_LQUANT_MATCHBASE",
                        format!(
                            "lquantize( ) base (argument #1) doesn't match previous declaration: expected {b}, found {base}"
                        ),
                    )
                } else if l != limit {
                    (
                        "D_LQUANT_MATCHLIM",
                        format!(
                            "lquantize( ) limit (argument #2) doesn't match previous declaration: expected {l}, found {limit}"
                        ),
                    )
                } else {
                    (
                        "D_LQUANT_MATCHSTEP",
                        format!(
                            "lquantize( ) step (argument #3) doesn't match previous declaration: expected {s}, found {step}"
                        ),
                    )
                }
            }
            (
                AggKind::Llquantize { factor: f, low: l, high: h, steps: s },
                AggKind::Llquantize { factor, low, high, steps },
            ) => {
                let (tag, word, n, was, is) = if f != factor {
                    ("D_LLQUANT_MATCHFACTOR", "factor", 1, f, factor)
                } else if l != low {
                    ("D_LLQUANT_MATCHLMAG", "low magnitude", 2, l, low)
                } else if h != high {
                    ("D_LLQUANT_MATCHHMAG", "high magnitude", 3, h, high)
                } else {
                    ("D_LLQUANT_MATCHSTEPS", "steps", 4, s, steps)
                };
                (
                    tag,
                    format!(
                        "llquantize( ) {word} (argument #{n}) doesn't match previous declaration: expected {was}, found {is}"
                    ),
                )
            }
            (one, other) => (
                "D_AGG_REDEF",
                format!("aggregation redefined: @{name} is {}( ), not {}( )", one.name(), other.name()),
            ),
        };
        Err(pos.error(tag.0, tag.1))
    }

    /// What a function computes of which value, with which weight.
    fn aggregated(
        &mut self,
        function: &str,
        arguments: &[Expr],
        name: &str,
        pos: Pos,
    ) -> Result<(AggKind, Node, Node)> {
        let one = self.int(pos, 1);
        let Some((first, rest)) = arguments.split_first() else {
            return Ok((AggKind::Count, one.clone(), one));
        };
        let value = self.agg_value(function, first, 1)?;
        let (kind, weight) = match function {
            "sum" => (AggKind::Sum, None),
            "avg" => (AggKind::Avg, None),
            "min" => (AggKind::Min, None),
            "max" => (AggKind::Max, None),
            "stddev" => (AggKind::Stddev, None),
            "quantize" => (AggKind::Quantize, rest.first()),
            "lquantize" => (self.lquantize(rest, name, pos)?, rest.get(3)),
            _ => (self.llquantize(rest, pos)?, rest.get(4)),
        };
        let weight = weight.map(|weight| self.agg_weight(function, weight, rest.len() + 1)).transpose()?;
        Ok((kind, value, weight.unwrap_or(one)))
    }

    fn agg_value(&mut self, function: &str, value: &Expr, n: usize) -> Result<Node> {
        let node = self.expr(value)?;
        if self.types.is_scalar(node.ty) {
            return Ok(node);
        }
        let sentence = format!("{function}( ) argument #{n} must be of scalar type");
        Err(value.pos.error("D_AGG_SCALAR", sentence))
    }

    fn agg_weight(&mut self, function: &str, weight: &Expr, n: usize) -> Result<Node> {
        let node = self.expr(weight)?;
        match self.types.is_integer(node.ty) {
            true => Ok(node),
            false => Err(self.wrong_argument(function, n - 1, "an integer", &node, weight.pos)),
        }
    }

    /// An argument that must be an integer constant.
    fn agg_constant(&mut self, argument: &Expr, tag: &'static str, what: &str) -> Result<i64> {
        let node = self.expr(argument)?;
        match node.constant().filter(|_| self.types.is_integer(node.ty)) {
            Some(value) => Ok(value as i64),
            None => Err(argument.pos.error(tag, format!("{what} must be an integer constant"))),
        }
    }

    fn lquantize(&mut self, rest: &[Expr], name: &str, pos: Pos) -> Result<AggKind> {
        let (Some(base), Some(limit)) = (rest.first(), rest.get(1)) else { return Ok(AggKind::Count) };
        let fits = |value: i64| i32::try_from(value).ok();
        let base = self.agg_constant(base, "D_LQUANT_BASETYPE", "lquantize( ) argument #1")?;
        let limit = self.agg_constant(limit, "D_LQUANT_LIMTYPE", "lquantize( ) argument #2")?;
        let step = match rest.get(2) {
            Some(step) => self.agg_constant(step, "D_LQUANT_STEPTYPE", "lquantize( ) argument #3")?,
            None => 1,
        };
        let base = fits(base).ok_or_else(|| {
            pos.error("D_LQUANT_BASEVAL", "lquantize( ) argument #1 must be a 32-bit quantity")
        })?;
        let limit = fits(limit).ok_or_else(|| {
            pos.error("D_LQUANT_LIMVAL", "lquantize( ) argument #2 must be a 32-bit quantity")
        })?;
        if i64::from(limit) < i64::from(base) {
            let sentence = "lquantize( ) base (argument #1) must be less than limit (argument #2)";
            return Err(pos.error("D_LQUANT_MISMATCH", sentence));
        }
        let step = u16::try_from(step).map_err(|_| {
            pos.error("D_LQUANT_STEPVAL", "lquantize( ) argument #3 must be a 16-bit quantity")
        })?;
        if step == 0 {
            return Err(pos.error("D_LQUANT_STEPVAL", "lquantize( ) step (argument #3) must be positive"));
        }
        let levels = (i64::from(limit) - i64::from(base)) / i64::from(step);
        if levels == 0 {
            let sentence =
                "lquantize( ) step (argument #3) too large: must have at least one quantization level";
            return Err(pos.error("D_LQUANT_STEPLARGE", sentence));
        }
        if levels > MOST_LEVELS {
            let sentence = format!(
                "lquantize( ) step (argument #3) too small: number of quantization levels must be a 16-bit quantity, and @{name} has {levels}"
            );
            return Err(pos.error("D_LQUANT_STEPSMALL", sentence));
        }
        Ok(AggKind::Lquantize { base, limit, step })
    }

    fn llquantize(&mut self, rest: &[Expr], pos: Pos) -> Result<AggKind> {
        let [factor, low, high, steps, ..] = rest else { return Ok(AggKind::Count) };
        let what = |n: usize, word: &str| format!("llquantize( ) argument #{n} ({word})");
        let factor = self.agg_constant(factor, "D_LLQUANT_FACTORTYPE", &what(1, "factor"))?;
        let low = self.agg_constant(low, "D_LLQUANT_LMAGTYPE", &what(2, "low magnitude"))?;
        let high = self.agg_constant(high, "D_LLQUANT_HMAGTYPE", &what(3, "high magnitude"))?;
        let steps = self.agg_constant(steps, "D_LLQUANT_STEPTYPE", &what(4, "linear steps per magnitude"))?;
        let unsigned = |value: i64, tag: &'static str, n: usize, word: &str| {
            let sentence = format!("{} must be an unsigned 16-bit quantity", what(n, word));
            u16::try_from(value).map_err(|_| pos.error(tag, sentence))
        };
        let factor = unsigned(factor, "D_LLQUANT_FACTORVAL", 1, "factor")?;
        let low = unsigned(low, "D_LLQUANT_LMAGVAL", 2, "low magnitude")?;
        let high = unsigned(high, "D_LLQUANT_HMAGVAL", 3, "high magnitude")?;
        let steps = unsigned(steps, "D_LLQUANT_STEPVAL", 4, "linear steps per magnitude")?;
        let refuse = |tag, sentence: String| Err(pos.error(tag, sentence));
        if factor < 2 {
            return refuse(
                "D_LLQUANT_FACTORSMALL",
                "llquantize( ) factor (argument #1) must be two or more".to_owned(),
            );
        }
        if low > high {
            let sentence =
                "llquantize( ) high magnitude (argument #3) must be at least the low magnitude (argument #2)";
            return refuse("D_LLQUANT_HMAGVAL", sentence.to_owned());
        }
        if u64::from(factor).checked_pow(u32::from(high) + 1).is_none() {
            let sentence = format!(
                "llquantize( ) high magnitude (argument #3): {factor} to the power of {} does not fit 64 bits",
                high + 1
            );
            return refuse("D_LLQUANT_MAGTOOBIG", sentence);
        }
        if steps == 0 || steps < factor && !factor.is_multiple_of(steps) {
            let sentence = "llquantize( ) steps (argument #4) must divide the factor (argument #1)";
            return refuse("D_LLQUANT_STEPVAL", sentence.to_owned());
        }
        if steps >= factor && !steps.is_multiple_of(factor) {
            let sentence = "llquantize( ) steps (argument #4) must be a multiple of the factor (argument #1)";
            return refuse("D_LLQUANT_STEPVAL", sentence.to_owned());
        }
        let power = |n: u32| u64::from(factor).checked_pow(n);
        let divides = (1..=u32::from(high) + 1)
            .filter_map(power)
            .find(|power| *power >= u64::from(steps))
            .is_none_or(|power| power.is_multiple_of(steps.into()));
        if !divides {
            let sentence =
                "llquantize( ) steps (argument #4) must evenly divide a power of the factor (argument #1)";
            return refuse("D_LLQUANT_STEPVAL", sentence.to_owned());
        }
        Ok(AggKind::Llquantize { factor, low, high, steps })
    }
}
