//! The RPN probe-handler language of DProbes: parser, instruction table, assembler, verifier, interpreter.
