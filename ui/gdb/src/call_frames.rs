//! Call frame information (DWARF 5, section 6.4) that asks the server: a `.debug_frame` that covers all addresses.
//!
//! Its expressions search a table for the stack pointer of a frame and find what its caller has ([`Window`] says where).
//! So gdb shows the stack that the server's unwinder finds, whatever that goes by. What varies with the address is only
//! what gdb wants to know beforehand ([`Edge`]).
//!
//! The entries have addresses of 8 bytes in 32-bit guests too, so that their arithmetic has room. gimli writes no entry
//! longer than 4 GiB, so the bytes are put together here.

use std::ops::Range;

use trapline_os::Edge;

/// Bytes of a row of the table.
pub const ROW: u64 = 256;
/// Bytes between two of its cells.
pub const CELL: u64 = 8;
/// Most frames in the table; the first row has their number.
pub const MOST: usize = 255;

/// What the cells of a row hold. Behind them are the caller's general registers, by the machine's numbers.
pub mod cell {
    /// The stack pointer of the frame; in the first row, the number of frames.
    pub const KEY: u64 = 0;
    /// The canonical frame address.
    pub const CFA: u64 = 1;
    /// The caller's instruction pointer.
    pub const IP: u64 = 2;
    /// The first of the caller's general registers.
    pub const GPR: u64 = 3;
}

/// Where the table is. In 64-bit guests, at addresses that are not canonical, which no guest can have. A 32-bit guest can
/// have every address; there, a cell is a read of 7 bytes at an odd address of the last 64 KiB, which gdb does for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    wide: bool,
}

impl Window {
    /// That of guests of 64 or of 32 bits.
    pub fn new(wide: bool) -> Self {
        Self { wide }
    }

    /// Whether the guest has 64 bits.
    pub fn is_wide(self) -> bool {
        self.wide
    }

    /// Where the first cell is.
    pub fn base(self) -> u64 {
        if self.wide { 1 << 62 } else { 0xffff_0001 }
    }

    /// Bytes that are read of a cell.
    pub fn size(self) -> u8 {
        if self.wide { 8 } else { 7 }
    }

    /// The row and the cell that a read is of; `None` if it is one of the guest's memory.
    pub fn cell(self, address: u64, length: usize) -> Option<(usize, u64)> {
        let at = address.checked_sub(self.base())?;
        let is_cell = length == usize::from(self.size()) && at.is_multiple_of(CELL);
        let row = usize::try_from(at / ROW).ok().filter(|row| is_cell && *row <= MOST)?;
        Some((row, at % ROW / CELL))
    }
}

/// The operations that are used (DWARF 5, section 7.7.1).
mod op {
    pub const DEREF: u8 = 0x06;
    pub const CONST8U: u8 = 0x0e;
    pub const DUP: u8 = 0x12;
    pub const DROP: u8 = 0x13;
    pub const OVER: u8 = 0x14;
    pub const PICK: u8 = 0x15;
    pub const SWAP: u8 = 0x16;
    pub const ROT: u8 = 0x17;
    pub const AND: u8 = 0x1a;
    pub const MINUS: u8 = 0x1c;
    pub const MUL: u8 = 0x1e;
    pub const PLUS: u8 = 0x22;
    pub const PLUS_UCONST: u8 = 0x23;
    pub const SHL: u8 = 0x24;
    pub const SHR: u8 = 0x25;
    pub const BRA: u8 = 0x28;
    pub const EQ: u8 = 0x29;
    pub const GE: u8 = 0x2a;
    pub const LE: u8 = 0x2c;
    pub const SKIP: u8 = 0x2f;
    pub const LIT0: u8 = 0x30;
    pub const BREG0: u8 = 0x70;
    pub const DEREF_SIZE: u8 = 0x94;
}

/// The instructions that are used (DWARF 5, section 7.24).
mod instruction {
    pub const UNDEFINED: u8 = 0x07;
    pub const DEF_CFA_EXPRESSION: u8 = 0x0f;
    pub const VAL_EXPRESSION: u8 = 0x16;
}

/// The general registers in DWARF's order, by the machine's numbers: the first 8, and on x86-64 8 more that are equal.
const WIDE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
const SP: usize = 4;
const BP: usize = 5;

/// The canonical frame address of a frame whose caller has this stack pointer: the same, as usual. gdb takes a frame for
/// a wrong one if its address is below that of the frame that it called, as on another stack. So where the stack pointer
/// falls further out, it is the half, made odd.
pub fn frame_address(sp: u64, falls: bool) -> u64 {
    if falls { sp >> 1 | 1 } else { sp }
}

/// Code whose first operations are of a jump over so many bytes.
fn jump(code: u8, over: usize) -> [u8; 3] {
    let [low, high] = (over as i16).to_le_bytes();
    [code, low, high]
}

fn uleb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// What writes expressions and entries for a window.
struct Writer {
    window: Window,
}

impl Writer {
    /// The number that DWARF gives a general register.
    fn number(&self, register: usize) -> usize {
        let own = WIDE.iter().position(|n| self.window.wide && *n == register);
        own.unwrap_or(register)
    }

    fn deref(&self) -> Vec<u8> {
        if self.window.wide { vec![op::DEREF] } else { vec![op::DEREF_SIZE, self.window.size()] }
    }

    fn constant(value: u64) -> Vec<u8> {
        [&[op::CONST8U][..], &value.to_le_bytes()].concat()
    }

    /// The number of a row becomes its address.
    fn row(&self) -> Vec<u8> {
        let scale = [op::LIT0 + ROW.trailing_zeros() as u8, op::SHL];
        [&scale[..], &Self::constant(self.window.base()), &[op::PLUS]].concat()
    }

    /// Finds the row of this frame's stack pointer by halving: the rows are in its order, as signed numbers. Leaves the
    /// stack pointer, the address of a row, and whether it is the right one.
    fn find(&self) -> Vec<u8> {
        let (one, base) = (op::LIT0 + 1, Self::constant(self.window.base()));
        // The middle, and whether its stack pointer is not above the one wanted.
        let middle = [op::OVER, op::OVER, op::PLUS, one, op::SHR, op::DUP];
        let not_above = [op::PICK, 4, op::LE];
        let compare = [&middle[..], &self.row(), &self.deref(), &not_above].concat();
        let (upper, lower) = ([op::SWAP, op::DROP], [op::ROT, op::SWAP, op::DROP]);
        const JUMP: usize = 3;
        let rest = compare.len() + JUMP + upper.len() + JUMP + lower.len() + JUMP;
        let mut search = vec![op::OVER, one, op::PLUS, op::OVER, op::GE];
        search.extend(jump(op::BRA, rest));
        search.extend(compare);
        search.extend(jump(op::BRA, upper.len() + JUMP));
        let again = |search: &mut Vec<u8>| {
            let back = search.len() + JUMP;
            search.extend(jump(op::SKIP, back.wrapping_neg()));
        };
        search.extend(upper);
        again(&mut search);
        search.extend(lower);
        again(&mut search);
        let start = [op::BREG0 + self.number(SP) as u8, 0, op::LIT0];
        let count = [&base[..], &self.deref(), &[op::PLUS_UCONST, 1]].concat();
        let check = [&[op::DUP][..], &self.deref(), &[op::PICK, 2, op::EQ]].concat();
        [&start[..], &count, &search, &[op::DROP], &self.row(), &check].concat()
    }

    /// A cell of this frame's row; `absent` is the code for a stack pointer that is not in the table, and finds the
    /// stack pointer and an address on its stack.
    fn look_up(&self, cell: u64, absent: &[u8]) -> Vec<u8> {
        let take = [&[op::PLUS_UCONST][..], &uleb(cell * CELL), &self.deref()].concat();
        let mut code = self.find();
        code.extend(jump(op::BRA, absent.len() + 3));
        code.extend(absent);
        code.extend(jump(op::SKIP, take.len()));
        code.extend(take);
        code
    }

    /// The same; a stack pointer that is not in the table is an error.
    fn known(&self, cell: u64) -> Vec<u8> {
        let refused = Self::constant(self.window.base() + CELL);
        self.look_up(cell, &[&refused[..], &self.deref()].concat())
    }

    /// The rules of all registers. Those that a function may keep for its caller without our knowledge are not known.
    fn rules(&self, edge: Option<Edge>) -> Vec<u8> {
        let expression = |code: Vec<u8>| [uleb(code.len() as u64), code].concat();
        let value = |number: usize, code: Vec<u8>| {
            [vec![instruction::VAL_EXPRESSION, number as u8], expression(code)].concat()
        };
        // gdb asks for it even where it has moved the run and still has the registers of before.
        let mut rules = vec![instruction::DEF_CFA_EXPRESSION];
        rules.extend(expression(self.look_up(cell::CFA, &[op::DROP])));
        let count = if self.window.wide { 16 } else { 8 };
        for register in 0..count {
            let number = self.number(register);
            if register == SP {
                // See `frame_address`: an odd one is twice the next lower number; else this adds 0.
                let (lit1, lit2) = (op::LIT0 + 1, op::LIT0 + 2);
                let code = [op::DUP, lit1, op::AND, op::OVER, lit2, op::MINUS, op::MUL, op::PLUS];
                rules.extend(value(number, code.to_vec()));
            } else if register == BP || edge == Some(Edge::Interrupts) {
                rules.extend(value(number, self.known(cell::GPR + register as u64)));
            } else {
                rules.extend([instruction::UNDEFINED, number as u8]);
            }
        }
        // The instruction pointer has the number after the general registers, and the flags follow elsewhere.
        let (ip, flags) = (count as u8, if self.window.wide { 49 } else { 9 });
        rules.extend([instruction::UNDEFINED, flags]);
        match edge {
            Some(Edge::Ends) => rules.extend([instruction::UNDEFINED, ip]),
            _ => rules.extend(value(ip.into(), self.known(cell::IP))),
        }
        rules
    }

    /// A common information entry.
    fn common(&self, edge: Option<Edge>) -> Vec<u8> {
        let augmentation: &[u8] = if edge == Some(Edge::Interrupts) { b"S\0" } else { b"\0" };
        let ip = if self.window.wide { 16 } else { 8 };
        // Version, augmentation, sizes of addresses and segments, alignments of code (1) and data (-8), return address.
        let head = [&[0xff, 0xff, 0xff, 0xff, 4][..], augmentation, &[8, 0, 1, 0x78, ip]].concat();
        entry([head, self.rules(edge)].concat())
    }
}

/// An entry with its length, filled up with DW_CFA_nop.
fn entry(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
    [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
}

/// The section. `edges` are in the order of their addresses.
pub fn debug_frame(window: Window, edges: &[(Range<u64>, Edge)]) -> Vec<u8> {
    let writer = Writer { window };
    let mut out = Vec::new();
    let kinds = [None, Some(Edge::Interrupts), Some(Edge::Ends)];
    let commons = kinds.map(|edge| {
        let at = out.len() as u32;
        out.extend(writer.common(edge));
        (edge, at)
    });
    let mut describe = |range: Range<u64>, edge: Option<Edge>| {
        let at = commons.iter().find(|(own, _)| *own == edge).map_or(0, |(_, at)| *at);
        if range.start < range.end {
            let [from, length] = [range.start, range.end - range.start].map(u64::to_le_bytes);
            out.extend(entry([&at.to_le_bytes()[..], &from, &length].concat()));
        }
    };
    let mut done = 0;
    for (range, edge) in edges {
        describe(done..range.start, None);
        describe(range.start.max(done)..range.end, Some(*edge));
        done = done.max(range.end);
    }
    describe(done..if window.wide { u64::MAX } else { 1 << 32 }, None);
    out
}
