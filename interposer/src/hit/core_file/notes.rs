//! The notes of a core file: `elf_prstatus`, `elf_prpsinfo`, and the floating-point state as FXSAVE stores it.

use trapline_emu::{Core, Seg};

const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
/// The FXSAVE image in a core file of 32 bits.
const NT_PRXFPREG: u32 = 0x46e6_2b7f;
/// The signal that a debugger shows.
const SIGTRAP: u32 = 5;
/// Bytes of a name in `elf_prpsinfo`.
const NAME: usize = 16;
/// Bytes of its arguments.
const ARGUMENTS: usize = 80;

/// General registers in encoding order.
const AX: usize = 0;
const CX: usize = 1;
const DX: usize = 2;
const BX: usize = 3;
const SP: usize = 4;
const BP: usize = 5;
const SI: usize = 6;
const DI: usize = 7;

/// The registers of a process in ring 3.
pub(super) struct Registers {
    gpr: [u64; 16],
    pub ip: u64,
    flags: u64,
    /// ES, CS, SS, DS, FS, GS.
    selectors: [u64; 6],
    /// Bases of FS and GS.
    bases: [u64; 2],
}

impl Registers {
    /// The CPU's registers in ring 3, else those with which the current task left ring 3; if there are none, the CPU's.
    pub fn of(core: &Core) -> Self {
        let env = core.env();
        if env.cpl() != 3
            && let Some(c) = core.user_context()
        {
            let selectors = c.selectors.map(u64::from);
            return Registers { gpr: c.gpr, ip: c.ip, flags: c.flags, selectors, bases: c.bases };
        }
        let segs = [Seg::Es, Seg::Cs, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs];
        Registers {
            gpr: std::array::from_fn(|n| env.gpr(n)),
            ip: env.eip(),
            flags: core.eflags(),
            selectors: segs.map(|s| env.seg(s).selector.into()),
            bases: [env.seg(Seg::Fs).base, env.seg(Seg::Gs).base],
        }
    }

    /// The layout of `struct user_regs_struct`, one word each.
    fn words(&self, wide: bool) -> Vec<u64> {
        let g = &self.gpr;
        let [es, cs, ss, ds, fs, gs] = self.selectors;
        // orig_ax: no system call has to be restarted.
        let orig_ax = u64::MAX;
        if wide {
            let [r8, r9, r10, r11, r12, r13, r14, r15] = [8, 9, 10, 11, 12, 13, 14, 15].map(|n: usize| g[n]);
            let first =
                [r15, r14, r13, r12, g[BP], g[BX], r11, r10, r9, r8, g[AX], g[CX], g[DX], g[SI], g[DI]];
            let then =
                [orig_ax, self.ip, cs, self.flags, g[SP], ss, self.bases[0], self.bases[1], ds, es, fs, gs];
            first.into_iter().chain(then).collect()
        } else {
            let first = [g[BX], g[CX], g[DX], g[SI], g[DI], g[BP], g[AX], ds, es, fs, gs];
            let then = [orig_ax, self.ip, cs, self.flags, g[SP], ss];
            first.into_iter().chain(then).collect()
        }
    }
}

/// Little-endian fields one after the other.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A C `long`.
    fn word(&mut self, value: u64, wide: bool) -> &mut Self {
        self.0.extend(&value.to_le_bytes()[..if wide { 8 } else { 4 }]);
        self
    }

    fn zeroes(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// A text in a field of `size` bytes, with a NUL at its end.
    fn text(&mut self, text: &str, size: usize) -> &mut Self {
        let kept = text.len().min(size - 1);
        self.0.extend(&text.as_bytes()[..kept]);
        self.zeroes(size - kept)
    }

    /// A note: its sizes, its type, the owner's name, the fields so far.
    fn note(self, kind: u32, owner: &str) -> Vec<u8> {
        let padded = |n: usize| n.next_multiple_of(4);
        let mut note = Fields::default();
        note.u32(owner.len() as u32 + 1).u32(self.0.len() as u32).u32(kind);
        note.text(owner, padded(owner.len() + 1));
        let end = padded(self.0.len()) - self.0.len();
        note.0.extend(self.0);
        note.zeroes(end);
        note.0
    }
}

/// All notes of a process.
pub(super) fn all(core: &Core, registers: &Registers, pid: u32, name: &str, wide: bool) -> Vec<u8> {
    let mut notes = status(registers, pid, wide).note(NT_PRSTATUS, "CORE");
    notes.extend(process(pid, name, wide).note(NT_PRPSINFO, "CORE"));
    let (kind, owner) = if wide { (NT_FPREGSET, "CORE") } else { (NT_PRXFPREG, "LINUX") };
    notes.extend(floating(core, wide).note(kind, owner));
    notes
}

/// `struct elf_prstatus`. Fields that only Linux knows (signals, times, the parent) are 0.
fn status(registers: &Registers, pid: u32, wide: bool) -> Fields {
    let mut f = Fields::default();
    f.u32(SIGTRAP).u32(0).u32(0).u16(SIGTRAP as u16).u16(0);
    f.word(0, wide).word(0, wide);
    f.u32(pid).u32(0).u32(pid).u32(pid);
    // Four times, of two words each.
    (0..8).for_each(|_| {
        f.word(0, wide);
    });
    registers.words(wide).into_iter().for_each(|word| {
        f.word(word, wide);
    });
    // pr_fpvalid, and padding.
    f.u32(1).zeroes(if wide { 4 } else { 0 });
    f
}

/// `struct elf_prpsinfo`.
fn process(pid: u32, name: &str, wide: bool) -> Fields {
    let mut f = Fields::default();
    // Running: state 0, 'R', no zombie, nice 0.
    f.0.extend([0, b'R', 0, 0]);
    f.zeroes(if wide { 4 } else { 0 });
    f.word(0, wide);
    if wide {
        f.u32(0).u32(0);
    } else {
        f.u16(0).u16(0);
    }
    f.u32(pid).u32(0).u32(pid).u32(pid);
    f.text(name, NAME).text(name, ARGUMENTS);
    f
}

/// The 512 bytes that FXSAVE stores (SDM volume 1, table 10-2), with REX.W in 64-bit files.
fn floating(core: &Core, wide: bool) -> Fields {
    let env = core.env();
    let top = env.fpstt() as usize & 7;
    let status = env.fpus() & !0x3800 | (top as u16) << 11;
    let tags = env.fptags();
    let used = (0..8).fold(0u16, |bits, n| bits | u16::from(tags[n] == 0) << n);
    let mut f = Fields::default();
    f.u16(env.fpuc()).u16(status).u16(used).u16(0);
    if wide {
        f.word(env.fpip(), true).word(env.fpdp(), true);
    } else {
        f.u32(env.fpip() as u32).u32(env.fpcs().into()).u32(env.fpdp() as u32).u32(env.fpds().into());
    }
    f.u32(env.mxcsr()).u32(0xffff);
    for n in 0..8 {
        f.0.extend(env.fpreg((n + top) & 7));
        f.zeroes(6);
    }
    for n in 0..if wide { 16 } else { 8 } {
        f.0.extend(env.xmm(n).to_le_bytes());
    }
    let end = 512 - f.0.len();
    f.zeroes(end);
    f
}
