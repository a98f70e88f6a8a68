//! The limits of a running program.

/// The limits of a program: options of dtrace(1), in bytes unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `strsize`: the longest string.
    pub strsize: usize,
    /// `scratchsize`: what `alloca()` may give in a clause.
    pub scratchsize: usize,
    /// `dynvarsize`: associative arrays and thread-local variables.
    pub dynvarsize: usize,
    /// `aggsize`: aggregations.
    pub aggsize: usize,
    /// `specsize`: a speculation.
    pub specsize: usize,
    /// `nspec`: how many speculations there are.
    pub nspec: usize,
    /// `bufsize`: the record of a clause.
    pub bufsize: usize,
}
