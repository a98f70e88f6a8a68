//! What can be called, as the reference lists it.

use super::callable::Callable;
use super::{Checker, action, call};
use crate::types::RETURN_ADDRESS;
use trapline_rpn::services::d::Builtin;

/// The C type of a built-in variable, as dtrace(1) names it.
pub(crate) fn builtin_type(builtin: Builtin) -> &'static str {
    match super::names::builtin_type(builtin) {
        RETURN_ADDRESS => "uintptr_t",
        name => name,
    }
}

/// The functions that have a value.
pub(crate) fn functions() -> Vec<Callable> {
    call::listed()
}

/// The actions, and what is shown by name or as a stack.
pub(crate) fn actions() -> Vec<Callable> {
    action::listed()
}

/// The aggregating functions.
pub(crate) fn aggregating() -> Vec<Callable> {
    Checker::aggregating_listed()
}
