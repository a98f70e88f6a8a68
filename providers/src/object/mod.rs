//! What is read of object files and machine code, whoever wants to know: relocations, symbol entries, instructions.

pub mod elf;
pub mod flow;
