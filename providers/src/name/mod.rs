//! Text that users write: probe descriptions, globs, and clauses with their predicates and handlers.

mod clause;
mod description;
mod glob;

pub use clause::{Clause, ClauseError};
pub use description::{Description, DescriptionError};
pub use glob::{FunctionGlob, GlobError};
