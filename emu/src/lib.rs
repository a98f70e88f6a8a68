//! The machine: IA32 and x86-64 systems on the Unicorn engine, deterministic to the instruction.
