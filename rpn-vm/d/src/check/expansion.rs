//! Limits of what a text expands to: inlines and translators that use each other can grow beyond any memory.

use super::Checker;
use crate::error::{Error, Pos, Result};
use crate::node::Node;

/// How deep expressions may be, through the inlines and translators that they use: each level takes the host's stack.
const DEEPEST: u32 = 300;
/// Operations that all uses of inlines and translators in a program may have together.
const MOST: u64 = 500_000;

impl Checker<'_> {
    /// One level deeper, at an expression.
    pub(super) fn enter(&mut self, pos: Pos) -> Result<()> {
        if self.depth >= DEEPEST {
            return Err(Self::too_deep(pos));
        }
        if !self.scope.bound.is_empty() {
            self.spend(1, pos)?;
        }
        self.depth += 1;
        Ok(())
    }

    fn too_deep(pos: Pos) -> Error {
        let sentence = format!(
            "this expression, with the inlines that it uses, is nested deeper than {DEEPEST} levels; put a part of it into a variable"
        );
        pos.error("D_SYNTAX", sentence)
    }

    /// Counts operations that an inline or a translator has added to the program.
    pub(super) fn spend(&mut self, count: u64, pos: Pos) -> Result<()> {
        self.scope.expanded = self.scope.expanded.saturating_add(count);
        if self.scope.expanded <= MOST {
            return Ok(());
        }
        let sentence = format!(
            "the inlines and translators of this program expand to more than {MOST} operations; put what is used more than once into a variable"
        );
        // What is used is too large, not where it ends to be so.
        let pos = self.used_at.unwrap_or(pos);
        Err(pos.error("D_PROG_LARGE", sentence))
    }

    /// Checks what an inline or a translator has been expanded to.
    pub(super) fn expanded(&self, value: &Node, pos: Pos) -> Result<()> {
        let (_, depth) = value.measure();
        if depth > DEEPEST { Err(Self::too_deep(pos)) } else { Ok(()) }
    }
}
