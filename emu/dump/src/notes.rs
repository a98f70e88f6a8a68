//! The notes of core files: `elf_prstatus`, `elf_prpsinfo`, the floating-point state as FXSAVE stores it, and the text
//! in which a Linux kernel describes itself to readers of its dump.
//!
//! Source of the layouts: Linux `include/uapi/linux/elfcore.h`, `arch/x86/include/asm/user_32.h` and `user_64.h`.

use serde::{Deserialize, Serialize};
use trapline_emu::{Core, Seg, UserContext};

/// Type of the note with a CPU's or a process's registers.
pub const NT_PRSTATUS: u32 = 1;
const NT_FPREGSET: u32 = 2;
const NT_PRPSINFO: u32 = 3;
/// The FXSAVE image in a core file of 32 bits.
const NT_PRXFPREG: u32 = 0x46e6_2b7f;
/// The signal of a process that a handler has dumped, which a debugger shows.
const SIGTRAP: u32 = 5;
/// Owner of the note in which a Linux kernel describes itself; its type is 0.
pub const VMCOREINFO: &str = "VMCOREINFO";
/// Owner of the note with the rest of a CPU's state, which qemu writes; its type is 0.
pub const QEMU: &str = "QEMU";
/// Bytes of a 64-bit `elf_prstatus`.
const WIDE_STATUS: usize = 336;
/// Bytes of a name in `elf_prpsinfo`.
const NAME: usize = 16;
/// Bytes of its arguments.
const ARGUMENTS: usize = 80;

/// General registers in encoding order.
const AX: usize = 0;
const CX: usize = 1;
const DX: usize = 2;
const BX: usize = 3;
pub(crate) const SP: usize = 4;
const BP: usize = 5;
const SI: usize = 6;
const DI: usize = 7;

/// The registers of a CPU or of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// General registers in encoding order.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub ip: u64,
    /// EFLAGS.
    pub flags: u64,
    /// ES, CS, SS, DS, FS, GS.
    pub selectors: [u64; 6],
    /// Bases of FS and GS.
    pub bases: [u64; 2],
}

impl Registers {
    /// The CPU's registers in ring 3, else those with which the current task `left` ring 3; if there are none, the CPU's.
    pub fn of_process(core: &Core, left: Option<UserContext>) -> Self {
        let env = core.env();
        if env.cpl() != 3
            && let Some(c) = left
        {
            let selectors = c.selectors.map(u64::from);
            return Registers { gpr: c.gpr, ip: c.ip, flags: c.flags, selectors, bases: c.bases };
        }
        Self::of_cpu(core)
    }

    /// The CPU's registers.
    pub fn of_cpu(core: &Core) -> Self {
        let env = core.env();
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

    fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    /// A text in a field of `size` bytes, with a NUL at its end.
    fn text(&mut self, text: &str, size: usize) -> &mut Self {
        let kept = text.len().min(size - 1);
        self.0.extend(&text.as_bytes()[..kept]);
        self.zeros(size - kept)
    }

    /// A note: its sizes, its type, the owner's name, the fields so far.
    fn note(self, kind: u32, owner: &str) -> Vec<u8> {
        let padded = |n: usize| n.next_multiple_of(4);
        let mut note = Fields::default();
        note.u32(owner.len() as u32 + 1).u32(self.0.len() as u32).u32(kind);
        note.text(owner, padded(owner.len() + 1));
        let end = padded(self.0.len()) - self.0.len();
        note.0.extend(self.0);
        note.zeros(end);
        note.0
    }
}

/// All notes of a process.
pub fn of_process(core: &Core, registers: &Registers, pid: u32, name: &str, wide: bool) -> Vec<u8> {
    let mut notes = status(registers, pid, SIGTRAP, wide).note(NT_PRSTATUS, "CORE");
    notes.extend(process(pid, name, wide).note(NT_PRPSINFO, "CORE"));
    let (kind, owner) = if wide { (NT_FPREGSET, "CORE") } else { (NT_PRXFPREG, "LINUX") };
    notes.extend(floating(core, wide).note(kind, owner));
    notes
}

/// The notes of a machine: the CPU's registers and, as the content of a note, the rest of its state; and what its kernel says of
/// itself.
pub fn of_machine(
    registers: &Registers,
    cpu: Vec<u8>,
    pid: u32,
    vmcoreinfo: Option<&[u8]>,
    wide: bool,
) -> Vec<u8> {
    let mut notes = status(registers, pid, 0, wide).note(NT_PRSTATUS, "CORE");
    notes.extend(Fields(cpu).note(0, QEMU));
    notes.extend(vmcoreinfo.map(|text| Fields(text.to_vec()).note(0, VMCOREINFO)).unwrap_or_default());
    notes
}

/// `struct elf_prstatus`. Fields that only Linux knows (pending signals, times, the parent) are 0.
fn status(registers: &Registers, pid: u32, signal: u32, wide: bool) -> Fields {
    let mut f = Fields::default();
    f.u32(signal).u32(0).u32(0).u16(signal as u16).u16(0);
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
    f.u32(1).zeros(if wide { 4 } else { 0 });
    f
}

/// `struct elf_prpsinfo`.
fn process(pid: u32, name: &str, wide: bool) -> Fields {
    let mut f = Fields::default();
    // Running: state 0, 'R', no zombie, nice 0.
    f.0.extend([0, b'R', 0, 0]);
    f.zeros(if wide { 4 } else { 0 });
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
        f.zeros(6);
    }
    for n in 0..if wide { 16 } else { 8 } {
        f.0.extend(env.xmm(n).to_le_bytes());
    }
    let end = 512 - f.0.len();
    f.zeros(end);
    f
}

/// The value of a line `NAME=VALUE` in a kernel's description of itself.
pub fn described(vmcoreinfo: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(vmcoreinfo);
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
}

/// A note of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note<'a> {
    /// Its owner.
    pub owner: &'a [u8],
    /// Its type.
    pub kind: u32,
    /// Its content.
    pub content: &'a [u8],
}

/// The notes in `bytes`, up to the first that is cut short. Sizes are rounded up to 4 bytes, as kernels do in both widths.
pub fn read(bytes: &[u8]) -> Vec<Note<'_>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let mut notes = Vec::new();
    let mut at = 0;
    let next = |at: &mut usize| -> Option<Note<'_>> {
        let (owner_size, size, kind) = (word(*at)? as usize, word(*at + 4)? as usize, word(*at + 8)?);
        let owner_at = *at + 12;
        let owner_end = owner_at.checked_add(owner_size)?;
        let content_at = owner_end.checked_next_multiple_of(4)?;
        let content_end = content_at.checked_add(size)?;
        let owner = bytes.get(owner_at..owner_end)?;
        let content = bytes.get(content_at..content_end)?;
        *at = content_end.checked_next_multiple_of(4)?;
        let owner = owner.strip_suffix(b"\0").unwrap_or(owner);
        Some(Note { owner, kind, content })
    };
    while let Some(note) = next(&mut at) {
        notes.push(note);
    }
    notes
}

impl Registers {
    /// The registers in the content of a note of type [`NT_PRSTATUS`], and the process id. Its size shows its width: qemu
    /// writes that of the CPU's mode.
    pub fn read(content: &[u8]) -> Option<(Self, u32)> {
        let wide = content.len() >= WIDE_STATUS;
        let (size, words_at, pid_at) = if wide { (8, 112, 32) } else { (4, 72, 24) };
        let word = |n: usize| {
            let mut bytes = [0; 8];
            let at = words_at + n * size;
            bytes[..size].copy_from_slice(content.get(at..at + size)?);
            Some(u64::from_le_bytes(bytes))
        };
        let mut gpr = [0; 16];
        let order: &[usize] = if wide {
            &[15, 14, 13, 12, BP, BX, 11, 10, 9, 8, AX, CX, DX, SI, DI]
        } else {
            &[BX, CX, DX, SI, DI, BP, AX]
        };
        for (n, register) in order.iter().enumerate() {
            gpr[*register] = word(n)?;
        }
        let pid = u32::from_le_bytes(content.get(pid_at..pid_at + 4)?.try_into().ok()?);
        // In the order of `Registers::words`: the instruction pointer and what follows it, then the rest.
        let ([ip, cs, flags, sp, ss], [ds, es, fs, gs], bases) = if wide {
            (
                [word(16)?, word(17)?, word(18)?, word(19)?, word(20)?],
                [word(23)?, word(24)?, word(25)?, word(26)?],
                [word(21)?, word(22)?],
            )
        } else {
            (
                [word(12)?, word(13)?, word(14)?, word(15)?, word(16)?],
                [word(7)?, word(8)?, word(9)?, word(10)?],
                [0; 2],
            )
        };
        gpr[SP] = sp;
        Some((Self { gpr, ip, flags, selectors: [es, cs, ss, ds, fs, gs], bases }, pid))
    }
}
