//! One site: what is armed there, how its instruction is displaced, and which probes are on it.

use super::displace::{self, Displaced};
use iced_x86::{Decoder, DecoderOptions};
use serde::{Deserialize, Serialize};
use trapline_emu::{Core, PAGE, PatchError, Watch};

/// A stub that is called through a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stub {
    pub address: u64,
    /// Whether the pointer has 8 bytes.
    pub wide: bool,
    /// Whether the pointer is a user program's: `word` writes it in each process.
    pub user: bool,
}

impl Stub {
    /// Bytes of a pointer to it.
    pub fn bytes(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The value of the pointer at a physical address.
    pub fn pointer(self, core: &Core, paddr: u64) -> u64 {
        let mut value = [0; 8];
        if let Some(bytes) = value.get_mut(..self.bytes()) {
            core.ram().read(paddr, bytes);
        }
        u64::from_le_bytes(value)
    }

    fn set(self, core: &mut Core, paddr: u64, value: u64) -> bool {
        value.to_le_bytes().get(..self.bytes()).is_some_and(|bytes| core.write_ram(paddr, bytes))
    }

    /// Writes the stub's address into the pointer.
    pub fn write(self, core: &mut Core, paddr: u64) -> Result<(), PatchError> {
        if self.set(core, paddr, self.address) { Ok(()) } else { Err(PatchError::OutsideRam(paddr)) }
    }

    /// Makes the pointer 0 again, unless the guest has written something else there; returns whether it did.
    pub fn clear(self, core: &mut Core, paddr: u64) -> bool {
        self.pointer(core, paddr) == self.address && self.set(core, paddr, 0)
    }
}

/// One patched physical address. What every hit touches is in its first cache line.
#[repr(C, align(64))]
pub(crate) struct Site {
    /// How it is displaced; found at the first hit, and again when the guest rewrites it.
    pub displaced: Option<Displaced>,
    /// `probes[0]`, or [`Site::NO_PROBE`].
    pub first: u32,
    /// Whether there are more.
    pub several: bool,
    pub armed: bool,
    /// The byte that fetches see when it is armed.
    pub patch: u8,
    /// Whether a probe here runs after the instruction, whose completion must then be known at once.
    pub runs_after: bool,
    /// Whether functions that have jumped to others are awaited here, in their caller.
    pub awaited: bool,
    /// Whether `displaced` is for 64-bit code: the same bytes may be run in another code segment.
    pub wide: bool,
    /// Physical address; for a watch of execution its lowest linear address.
    pub paddr: u64,
    /// The watch of execution, if it is one and not a patch.
    pub watch: Option<Watch>,
    /// The stub whose address is written here, if it is a pointer.
    pub stub: Option<Stub>,
    /// The probes here, in order of insertion.
    pub probes: Vec<u32>,
    /// Bytes of the displaced instruction when it was last read.
    pub original: [u8; 15],
}

/// What the guest has changed at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The probed instruction.
    Instruction,
    /// Only bytes after it: another instruction, or data.
    Following,
}

impl Site {
    /// The value of `first` without a probe.
    pub const NO_PROBE: u32 = u32::MAX;

    pub fn new(paddr: u64) -> Self {
        Site {
            displaced: None,
            first: Self::NO_PROBE,
            several: false,
            armed: false,
            patch: 0,
            runs_after: false,
            awaited: false,
            wide: false,
            paddr,
            watch: None,
            stub: None,
            probes: Vec::new(),
            original: [0; 15],
        }
    }

    /// Changes the list of probes here; returns whether none is left.
    pub fn change(&mut self, change: impl FnOnce(&mut Vec<u32>)) -> bool {
        change(&mut self.probes);
        self.first = self.probes.first().copied().unwrap_or(Self::NO_PROBE);
        self.several = self.probes.len() > 1;
        self.probes.is_empty()
    }

    /// Arms it: patches it, or has the machine watch it. Its traps carry its index.
    pub fn arm(&mut self, core: &mut Core, index: usize) -> Result<(), PatchError> {
        match (self.watch, self.stub) {
            (Some(watch), _) => core.watch(index as u32, watch),
            (None, Some(stub)) if stub.user => {}
            (None, Some(stub)) => stub.write(core, self.paddr)?,
            (None, None) => core.arm(self.paddr, &[self.patch], index as u32)?,
        }
        self.armed = true;
        Ok(())
    }

    /// Disarms it.
    pub fn disarm(&mut self, core: &mut Core, index: usize) {
        match (self.watch, self.stub) {
            (Some(watch), _) => core.unwatch(index as u32, watch.kind),
            (None, Some(stub)) => !stub.user && stub.clear(core, self.paddr),
            (None, None) => core.disarm(self.paddr),
        };
        self.armed = false;
    }

    /// Drops the displacement, which is determined anew at the next hit.
    pub fn forget_way(&mut self, core: &mut Core) {
        if let Some(Displaced::OutOfLine { slot, .. }) = self.displaced.take() {
            core.free_slot(slot);
        }
    }

    /// Whether its bytes have changed since they were last read.
    pub fn is_rewritten(&self, core: &Core) -> bool {
        bytes_at(core, self.paddr) != self.original
    }

    /// Reads its bytes again. If they have changed, its way of displacement is determined again.
    pub fn look_again(&mut self, core: &mut Core) -> Option<Change> {
        let now = bytes_at(core, self.paddr);
        if now == self.original {
            return None;
        }
        let length = self.length(core);
        let change = match self.original.get(..length) == now.get(..length) {
            true => Change::Following,
            false => Change::Instruction,
        };
        self.original = now;
        self.forget_way(core);
        Some(change)
    }

    /// Bytes of the instruction last seen here; if they are not an instruction, all bytes that were seen.
    fn length(&self, core: &Core) -> usize {
        let wide = if self.displaced.is_some() { self.wide } else { core.env().long_mode() };
        let decoded = Decoder::new(if wide { 64 } else { 32 }, &self.original, DecoderOptions::AMD).decode();
        if decoded.is_invalid() { self.original.len() } else { decoded.len() }
    }

    /// Determines how it is displaced: at its first hit, when it is reached in code of another size, and when its slot
    /// belongs to another mapping of the page or another segment base than this hit's, since a slot jumps back to one
    /// address.
    #[cold]
    pub fn displace(&mut self, core: &mut Core, linear: u64, ip: u64) {
        self.forget_way(core);
        self.wide = core.env().code64();
        let way = match self.watch {
            // Nothing was displaced: the instruction runs in place.
            Some(_) => Displaced::Stepped,
            None => displace::displace(core, linear, ip),
        };
        self.displaced = Some(match way {
            Displaced::OutOfLine { slot, .. } if self.runs_after => {
                core.free_slot(slot);
                Displaced::Stepped
            }
            way => way,
        });
    }
}

/// The bytes at a physical address, as many as its page has.
pub(crate) fn bytes_at(core: &Core, paddr: u64) -> [u8; 15] {
    let mut bytes = [0; 15];
    let n = ((PAGE - paddr % PAGE) as usize).min(15);
    core.ram().read(paddr, &mut bytes[..n]);
    bytes
}
