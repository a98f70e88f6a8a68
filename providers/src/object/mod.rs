//! Reads object files and machine code for all providers: relocations, symbol entries, instructions.

pub mod elf;
pub mod flow;
