//! The instruction table of the RPN language: every mnemonic and operand form of dprobes.lang(8) 3.6.4 as data, with
//! its old and removed forms.
//!
//! It is the single source for opcode numbers, the parser, the printer, the encoder and decoder, the verifier's effect
//! classes, the lints and the documentation. `vm` implements the instructions. Invariants: opcodes are unique and
//! never reused, because PPDF files contain them; `%` in a form is its operand.
//!
//! # A new instruction
//!
//! 1. A row in the table below: opcode, name, form, operand, elements popped and pushed, effect, group, exceptions.
//! 2. An arm in the file of `vm` that implements the group; `Run::general` sends it there.
//! 3. Three cases in `tests/conformance/forms/`, and a rule in the naive interpreter, `tests/common/naive_rules.rs`.
//! 4. The minor version of PPDF, `ppdf::VERSION`.
//! 5. A line in docs/probe-language.md.
//! 6. A sentence in `meaning`.
//!
//! Tests fail while one of these is missing. An operand of a new kind also needs an arm in `parse::instr` and `print`,
//! an instruction whose counts depend on its operand one in `lint::effect`.

mod meaning;

/// The operand of an instruction: its meaning, its encoding and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandKind {
    /// Nothing.
    None,
    /// A label of the same routine; encoded as a u32 instruction index.
    Label,
    /// A procedure of the file; encoded as a u32 instruction index.
    Proc,
    /// A value of the guest's word width, or a symbol expression before linking; encoded as a u64.
    Value,
    /// A count of 0..=255, one byte.
    Count8,
    /// A count of 0..=65535, two bytes.
    Count16,
    /// An unsigned number of 32 bits.
    U32,
    /// An index of a local variable, checked against `vars =`; two bytes.
    Lv,
    /// An index of a global variable, checked against `gvars =`; two bytes.
    Gv,
    /// A signed displacement in stack elements; four bytes.
    Disp,
    /// A register that `push r` may read; one byte, its index.
    PushR,
    /// A register that `push u` may read; one byte, its index.
    PushU,
    /// A register that `pop r` may write; one byte, its index.
    PopR,
    /// A register that `pop u` may write; one byte, its index.
    PopU,
}

impl OperandKind {
    /// Bytes the operand takes in encoded form.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::None => 0,
            Self::Count8 | Self::PushR | Self::PushU | Self::PopR | Self::PopU => 1,
            Self::Count16 | Self::Lv | Self::Gv => 2,
            Self::Label | Self::Proc | Self::U32 | Self::Disp => 4,
            Self::Value => 8,
        }
    }

    /// Whether the operand names a register.
    #[must_use]
    pub const fn is_register(self) -> bool {
        matches!(self, Self::PushR | Self::PushU | Self::PopR | Self::PopU)
    }
}

/// What an instruction may change outside the interpreter (docs/probe-language.md, "Observe-only").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing of the guest.
    Pure,
    /// Guest registers.
    Registers,
    /// Guest memory.
    Memory,
    /// IO ports; a read may have an effect too.
    Ports,
    /// A host service.
    Service,
}

/// The man page's groups, for the documentation and the disassembler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// RPN Execution Group.
    Execution,
    /// Logging Group.
    Logging,
    /// Local Variable Group.
    Local,
    /// Global Variable Group.
    Global,
    /// Arithmetic and Logic Group.
    Arithmetic,
    /// Register Group.
    Register,
    /// Data Group.
    Data,
    /// System Variable Group.
    System,
    /// IO Group.
    Io,
    /// Address Verification.
    Verify,
    /// Miscellaneous.
    Misc,
    /// Exception related instructions.
    Exception,
    /// Stack tracing.
    Tracing,
    /// Instructions using interpreter internal registers.
    Internal,
}

/// Whether an instruction can raise an exception. The JMP_MAX of a jump does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throws {
    /// It never does.
    Never,
    /// It can.
    May,
    /// Only LOG_OVERFLOW, which `excpt_mask` masks by default.
    Overflow,
    /// It depends on the register: `msr` and writes of segment registers can.
    Register,
}

/// The count of elements popped or pushed depends on the run.
pub const VARIES: u8 = 0xff;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The instruction.
    pub op: Op,
    /// Its opcode byte.
    pub code: u8,
    /// Its text: mnemonic and fixed words, with `%` for the operand.
    pub form: &'static str,
    /// What `%` stands for.
    pub operand: OperandKind,
    /// Elements popped, or [`VARIES`].
    pub pops: u8,
    /// Elements pushed, or [`VARIES`].
    pub pushes: u8,
    /// What it may change outside the interpreter.
    pub effect: Effect,
    /// The man page's group, which also tells the interpreter where it is implemented.
    pub group: Group,
    /// Whether it can raise an exception.
    pub throws: Throws,
}

macro_rules! table {
    ($($code:literal $name:ident $form:literal $operand:ident $pops:tt $pushes:tt $effect:ident $group:ident $throws:ident;)*) => {
        /// Every instruction form of the language; the discriminant is the opcode.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $form, "`")] $name = $code,)*
        }

        /// The table, in the order of the man page.
        pub const TABLE: &[Row] = &[
            $(Row {
                op: Op::$name, code: $code, form: $form, operand: OperandKind::$operand,
                pops: $pops, pushes: $pushes, effect: Effect::$effect, group: Group::$group,
                throws: Throws::$throws,
            },)*
        ];

        impl Op {
            /// The instruction of an opcode byte.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The row that describes this instruction.
            #[must_use]
            pub fn row(self) -> &'static Row {
                match self {
                    $(Self::$name => {
                        const ROW: Row = Row {
                            op: Op::$name, code: $code, form: $form, operand: OperandKind::$operand,
                            pops: $pops, pushes: $pushes, effect: Effect::$effect, group: Group::$group,
                            throws: Throws::$throws,
                        };
                        &ROW
                    })*
                }
            }
        }
    };
}

table! {
    // RPN Execution Group
    0x00 Nop "nop" None 0 0 Pure Execution Never;
    0x01 Jmp "jmp %" Label 0 0 Pure Execution Never;
    0x02 Jlt "jlt %" Label 0 0 Pure Execution Never;
    0x03 Jle "jle %" Label 0 0 Pure Execution Never;
    0x04 Jgt "jgt %" Label 0 0 Pure Execution Never;
    0x05 Jge "jge %" Label 0 0 Pure Execution Never;
    0x06 Jz "jz %" Label 0 0 Pure Execution Never;
    0x07 Jnz "jnz %" Label 0 0 Pure Execution Never;
    0x08 Loop "loop %" Label 0 0 Pure Execution Never;
    0x09 Call "call %" Proc 0 0 Pure Execution May;
    0x0a Ret "ret" None 0 0 Pure Execution May;
    0x0b Callk "callk" None VARIES VARIES Service Execution May;
    0x0c Abort "abort" None 0 0 Pure Execution Never;
    0x0d Exit "exit" None 0 0 Pure Execution Never;
    0x0e ExitN "exit %" U32 0 0 Pure Execution May;
    0x0f Remove "remove" None 0 0 Pure Execution Never;
    // Logging Group
    0x10 SetMinN "setmin %" U32 0 0 Pure Logging Never;
    0x11 SetMin "setmin" None 0 0 Pure Logging Never;
    0x12 SetMajN "setmaj %" U32 0 0 Pure Logging Never;
    0x13 SetMaj "setmaj" None 0 0 Pure Logging Never;
    0x14 LogStr "log str" None 2 0 Pure Logging May;
    0x15 LogMrf "log mrf" None 2 0 Pure Logging May;
    0x16 LogN "log %" Count16 VARIES 0 Pure Logging Overflow;
    0x17 Log "log" None VARIES 0 Pure Logging Overflow;
    // Local Variable Group
    0x20 PushLvN "push lv, %" Lv 0 1 Pure Local Never;
    0x21 PushLv "push lv" None 1 1 Pure Local May;
    0x22 PopLvN "pop lv, %" Lv 1 0 Pure Local Never;
    0x23 PopLv "pop lv" None 2 0 Pure Local May;
    0x24 MoveLvN "move lv, %" Lv 0 0 Pure Local Never;
    0x25 MoveLv "move lv" None 1 0 Pure Local May;
    0x26 IncLvN "inc lv, %" Lv 0 0 Pure Local Never;
    0x27 IncLv "inc lv" None 1 0 Pure Local May;
    0x28 DecLvN "dec lv, %" Lv 0 0 Pure Local Never;
    0x29 DecLv "dec lv" None 1 0 Pure Local May;
    0x2a LogLv "log lv" None 2 0 Pure Local May;
    // Global Variable Group
    0x30 PushGvN "push gv, %" Gv 0 1 Pure Global Never;
    0x31 PushGv "push gv" None 1 1 Pure Global May;
    0x32 PopGvN "pop gv, %" Gv 1 0 Pure Global Never;
    0x33 PopGv "pop gv" None 2 0 Pure Global May;
    0x34 MoveGvN "move gv, %" Gv 0 0 Pure Global Never;
    0x35 MoveGv "move gv" None 1 0 Pure Global May;
    0x36 IncGvN "inc gv, %" Gv 0 0 Pure Global Never;
    0x37 IncGv "inc gv" None 1 0 Pure Global May;
    0x38 DecGvN "dec gv, %" Gv 0 0 Pure Global Never;
    0x39 DecGv "dec gv" None 1 0 Pure Global May;
    0x3a LogGv "log gv" None 2 0 Pure Global May;
    // Arithmetic and Logic Group
    0x40 Add "add" None 2 1 Pure Arithmetic Never;
    0x41 Sub "sub" None 2 1 Pure Arithmetic Never;
    0x42 Mul "mul" None 2 1 Pure Arithmetic Never;
    0x43 Div "div" None 2 2 Pure Arithmetic May;
    0x44 Idiv "idiv" None 2 2 Pure Arithmetic May;
    0x45 Neg "neg" None 1 1 Pure Arithmetic Never;
    0x46 And "and" None 2 1 Pure Arithmetic Never;
    0x47 Or "or" None 2 1 Pure Arithmetic Never;
    0x48 Xor "xor" None 2 1 Pure Arithmetic Never;
    0x49 RolN "rol %" Count8 1 1 Pure Arithmetic Never;
    0x4a Rol "rol" None 2 1 Pure Arithmetic Never;
    0x4b RorN "ror %" Count8 1 1 Pure Arithmetic Never;
    0x4c Ror "ror" None 2 1 Pure Arithmetic Never;
    0x4d ShlN "shl %" Count8 1 1 Pure Arithmetic Never;
    0x4e Shl "shl" None 2 1 Pure Arithmetic Never;
    0x4f ShrN "shr %" Count8 1 1 Pure Arithmetic Never;
    0x50 Shr "shr" None 2 1 Pure Arithmetic Never;
    0x51 PblN "pbl %" U32 1 1 Pure Arithmetic May;
    0x52 Pbl "pbl" None 2 1 Pure Arithmetic May;
    0x53 PbrN "pbr %" U32 1 1 Pure Arithmetic May;
    0x54 Pbr "pbr" None 2 1 Pure Arithmetic May;
    0x55 Xchg "xchg" None 2 2 Pure Arithmetic Never;
    0x56 DupN "dup %" U32 0 VARIES Pure Arithmetic Never;
    0x57 Dup "dup" None 2 VARIES Pure Arithmetic Never;
    0x58 Ros "ros %" U32 VARIES 0 Pure Arithmetic Never;
    // Register Group
    0x60 PushR "push r, %" PushR VARIES VARIES Pure Register Register;
    0x61 PushU "push u, %" PushU VARIES VARIES Pure Register Register;
    0x62 PopR "pop r, %" PopR 1 0 Registers Register Register;
    0x63 PopU "pop u, %" PopU 1 0 Registers Register Register;
    // Data Group
    0x70 PushMem8 "push mem, u8" None 1 1 Pure Data May;
    0x71 PushMem16 "push mem, u16" None 1 1 Pure Data May;
    0x72 PushMem32 "push mem, u32" None 1 1 Pure Data May;
    0x73 PushMem64 "push mem, u64" None 1 VARIES Pure Data May;
    0x74 PopMem8 "pop mem, u8" None 2 0 Memory Data May;
    0x75 PopMem16 "pop mem, u16" None 2 0 Memory Data May;
    0x76 PopMem32 "pop mem, u32" None 2 0 Memory Data May;
    0x77 PopMem64 "pop mem, u64" None VARIES 0 Memory Data May;
    // System Variable Group
    0x80 PushPid "push pid" None 0 1 Pure System Never;
    0x81 PushProcid "push procid" None 0 1 Pure System Never;
    0x82 PushTask "push task" None 0 1 Pure System Never;
    0x83 PushArg "push arg, %" Count8 0 1 Pure System May;
    0x84 PushRet "push ret" None 0 1 Pure System May;
    // IO Group
    0x88 PushIo8 "push io, u8" None 1 1 Ports Io May;
    0x89 PushIo16 "push io, u16" None 1 1 Ports Io May;
    0x8a PushIo32 "push io, u32" None 1 1 Ports Io May;
    0x8b PopIo8 "pop io, u8" None 2 0 Ports Io May;
    0x8c PopIo16 "pop io, u16" None 2 0 Ports Io May;
    0x8d PopIo32 "pop io, u32" None 2 0 Ports Io May;
    // Address Verification, Miscellaneous
    0x90 Vfyr "vfyr" None 1 1 Pure Verify Never;
    0x91 Vfyrw "vfyrw" None 1 1 Pure Verify Never;
    0x92 Seg2lin "seg2lin" None 2 1 Pure Misc May;
    // Exception related instructions
    0x98 Sx "sx %" Label 0 0 Pure Exception Never;
    0x99 Ux "ux" None 0 0 Pure Exception Never;
    0x9a PushX "push x" None 0 3 Pure Exception Never;
    0x9b Rx "rx" None 3 0 Pure Exception May;
    // Stack tracing
    0xa0 LogSt "log st" None 0 0 Pure Tracing May;
    0xa1 PurgeSt "purge st" None 0 0 Pure Tracing May;
    0xa2 TracePv "trace pv" None 2 0 Pure Tracing May;
    0xa3 TraceLv "trace lv" None 2 0 Pure Tracing May;
    0xa4 TraceGv "trace gv" None 2 0 Pure Tracing May;
    0xa5 PushStp "push stp" None 0 1 Pure Tracing May;
    0xa6 PopStp "pop stp" None 1 0 Pure Tracing May;
    // Interpreter internal registers
    0xb0 PushLp "push lp" None 0 1 Pure Internal Never;
    0xb1 PopLp "pop lp" None 1 0 Pure Internal May;
    0xb2 PushPlp "push plp" None 0 1 Pure Internal Never;
    0xb3 SaveSbp "save sbp" None 0 1 Pure Internal Never;
    0xb4 RestoreSbp "restore sbp" None 1 0 Pure Internal Never;
    0xb5 SaveTsp "save tsp" None 0 1 Pure Internal Never;
    0xb6 RestoreTsp "restore tsp" None 1 0 Pure Internal Never;
    0xb7 PushSbp "push sbp" None 1 1 Pure Internal Never;
    0xb8 PopSbp "pop sbp" None 2 0 Pure Internal Never;
    0xb9 CopySbp "copy sbp" None 1 0 Pure Internal Never;
    0xba PushSbpN "push sbp, %" Disp 0 1 Pure Internal Never;
    0xbb PopSbpN "pop sbp, %" Disp 1 0 Pure Internal Never;
    0xbc CopySbpN "copy sbp, %" Disp 0 0 Pure Internal Never;
    0xbd PushTsp "push tsp" None 1 1 Pure Internal Never;
    0xbe PopTsp "pop tsp" None 2 0 Pure Internal Never;
    0xbf CopyTsp "copy tsp" None 1 0 Pure Internal Never;
    0xc0 PushTspN "push tsp, %" Disp 0 1 Pure Internal Never;
    0xc1 PopTspN "pop tsp, %" Disp 1 0 Pure Internal Never;
    0xc2 CopyTspN "copy tsp, %" Disp 0 0 Pure Internal Never;
    // Data Group: the form that accepts any name comes last, so that keywords take precedence over symbols
    0x7f Push "push %" Value 0 1 Pure Data Never;
}

/// An old form that is still accepted (docs/probe-language.md, "Old forms").
#[derive(Debug, Clone, Copy)]
pub struct Alias {
    /// The old text.
    pub form: &'static str,
    /// The instruction that it stands for.
    pub op: Op,
    /// A warning, if the meaning differs slightly.
    pub warning: Option<&'static str>,
    /// The warning is for numbers with more bits than this alone.
    pub bits: u32,
}

const SIZED_LOG: Option<&str> =
    Some("the old form logged elements of its own size; `log N` logs whole stack elements");

const SIZED_PUSH: Option<&str> =
    Some("the number does not fit the size in the old form; `push N` pushes all of it, as a stack element");

/// Old forms.
pub const ALIASES: &[Alias] = &[
    Alias { form: "log b, %", op: Op::LogN, warning: SIZED_LOG, bits: 0 },
    Alias { form: "log w, %", op: Op::LogN, warning: SIZED_LOG, bits: 0 },
    Alias { form: "log d, %", op: Op::LogN, warning: SIZED_LOG, bits: 0 },
    Alias { form: "push b, %", op: Op::Push, warning: SIZED_PUSH, bits: 8 },
    Alias { form: "push w, %", op: Op::Push, warning: SIZED_PUSH, bits: 16 },
    Alias { form: "push d, %", op: Op::Push, warning: SIZED_PUSH, bits: 32 },
    Alias { form: "push bif", op: Op::PushMem8, warning: None, bits: 0 },
    Alias { form: "push wif", op: Op::PushMem16, warning: None, bits: 0 },
    Alias { form: "push dif", op: Op::PushMem32, warning: None, bits: 0 },
    Alias { form: "push qif", op: Op::PushMem64, warning: None, bits: 0 },
    Alias { form: "pop bif", op: Op::PopMem8, warning: None, bits: 0 },
    Alias { form: "pop wif", op: Op::PopMem16, warning: None, bits: 0 },
    Alias { form: "pop dif", op: Op::PopMem32, warning: None, bits: 0 },
    Alias { form: "pop qif", op: Op::PopMem64, warning: None, bits: 0 },
    Alias { form: "log arf", op: Op::LogStr, warning: None, bits: 0 },
    Alias { form: "vfa", op: Op::Vfyr, warning: None, bits: 0 },
    Alias { form: "cnvrt sxf", op: Op::Seg2lin, warning: None, bits: 0 },
];

/// A form that dprobes 3.4.0 removed.
#[derive(Debug, Clone, Copy)]
pub struct Removed {
    /// The old text.
    pub form: &'static str,
    /// What to write instead.
    pub instead: &'static str,
}

/// Forms removed from the language.
pub const REMOVED: &[Removed] = &[
    Removed { form: "log ars", instead: "use `seg2lin` and then `log str`" },
    Removed { form: "log mrs", instead: "use `seg2lin` and then `log mrf`" },
    Removed { form: "push bis", instead: "use `seg2lin` and then `push mem, u8`" },
    Removed { form: "push wis", instead: "use `seg2lin` and then `push mem, u16`" },
    Removed { form: "push dis", instead: "use `seg2lin` and then `push mem, u32`" },
    Removed { form: "push qis", instead: "use `seg2lin` and then `push mem, u64`" },
    Removed { form: "pop bis", instead: "use `seg2lin` and then `pop mem, u8`" },
    Removed { form: "pop wis", instead: "use `seg2lin` and then `pop mem, u16`" },
    Removed { form: "pop dis", instead: "use `seg2lin` and then `pop mem, u32`" },
    Removed { form: "pop qis", instead: "use `seg2lin` and then `pop mem, u64`" },
    Removed { form: "vsa", instead: "use `seg2lin` and then `vfyr`" },
    Removed { form: "cnvrt sxd", instead: "use `seg2lin`" },
];

impl Row {
    /// The mnemonic, the first word of the form.
    #[must_use]
    pub fn mnemonic(&self) -> &'static str {
        mnemonic_of(self.form)
    }
}

/// The first word of a form.
pub(crate) fn mnemonic_of(form: &'static str) -> &'static str {
    form.split(' ').next().unwrap_or(form)
}

/// The comma-separated groups that follow a form's mnemonic.
pub(crate) fn groups_of(form: &'static str) -> impl Iterator<Item = &'static str> {
    let rest = form.split_once(' ').map_or("", |(_, rest)| rest);
    rest.split(',').map(str::trim).filter(|g| !g.is_empty())
}

/// The group of each opcode, so that the interpreter finds it by one load.
const GROUPS: [Group; 256] = {
    let mut groups = [Group::Execution; 256];
    let mut at = 0;
    while at < TABLE.len() {
        groups[TABLE[at].code as usize] = TABLE[at].group;
        at += 1;
    }
    groups
};

impl Op {
    /// The group of the instruction.
    #[must_use]
    pub const fn group(self) -> Group {
        GROUPS[self as usize]
    }

    /// The opcode byte.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}
