//! Macro-declared probes: enabled by a stub's address in the guest's own pointer, hit when the guest calls it.
//!
//! The stub is a function of one `ret`: handlers run at its entry, with the call's arguments in place and the return
//! address on top of the stack, and see as instruction pointer where the call returns to. Pointer and count of
//! instructions are the guest's to see (providers.md C); all else is as with any other probe. A stub once given stays
//! callable: the guest may have read the pointer before it was cleared.

use crate::displace::{Op, emulate};
use crate::insert::InsertErrorKind;
use crate::table::{Interposer, Site, Stub};
use trapline_emu::{Core, PatchError, Seg, Trap, Verdict};

impl Stub {
    /// Bytes of a pointer to it.
    pub fn bytes(self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn pointer(self, core: &Core, paddr: u64) -> u64 {
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

    /// Makes the pointer 0 again, unless the guest has written something else there; whether it did.
    pub fn clear(self, core: &mut Core, paddr: u64) -> bool {
        self.pointer(core, paddr) == self.address && self.set(core, paddr, 0)
    }
}

impl Interposer {
    /// Puts a probe on the pointer at a physical address.
    pub(crate) fn enable_pointer(
        &mut self,
        core: &mut Core,
        (linear, paddr, wide): (u64, u64, bool),
        probe: usize,
    ) -> Result<(), InsertErrorKind> {
        let bytes = if wide { 8 } else { 4 };
        if !paddr.is_multiple_of(bytes) {
            return Err(InsertErrorKind::PointerAlignment { linear, bytes });
        }
        if paddr.checked_add(bytes).is_none_or(|end| end > core.ram().size()) {
            return Err(PatchError::OutsideRam(paddr).into());
        }
        let index = match self.by_paddr.get(&paddr) {
            Some(&index) if self.sites[index].stub.is_none() => return Err(PatchError::Taken(paddr).into()),
            Some(&index) => index,
            None => self.add_pointer(core, paddr, wide)?,
        };
        let site = &self.sites[index];
        if let (false, Some(stub)) = (site.armed, site.stub) {
            let found = stub.pointer(core, paddr);
            if found != 0 && found != stub.address {
                return Err(InsertErrorKind::PointerTaken { linear, found });
            }
        }
        Ok(self.attach_site(core, index, probe)?)
    }

    fn add_pointer(&mut self, core: &mut Core, paddr: u64, wide: bool) -> Result<usize, InsertErrorKind> {
        let stub = self.new_stub(core, wide)?;
        let index = self.sites.len();
        self.sites.push(Site { stub: Some(stub), ..Site::new(paddr) });
        self.by_stub.push(index);
        self.by_paddr.insert(paddr, index);
        Ok(index)
    }

    /// The next stub, whose site is the caller's to add.
    pub(crate) fn new_stub(&self, core: &mut Core, wide: bool) -> Result<Stub, InsertErrorKind> {
        let number = self.by_stub.len();
        let address = u32::try_from(number).ok().and_then(|number| core.stub(number, wide));
        Ok(Stub { address: address.ok_or(InsertErrorKind::NoStub(number))?, wide, user: false })
    }

    /// The guest has arrived at stub `number`.
    pub(crate) fn stub_hit(&mut self, core: &mut Core, number: u32) -> Verdict {
        let Some(&site) = self.by_stub.get(number as usize) else { return Verdict::Declined };
        self.finish(core);
        self.stats.traps += 1;
        let env = core.env();
        let (sp, stub) = (env.gpr(4), env.eip());
        let size: u8 = if env.code64() { 8 } else { 4 };
        let top = if size == 8 { sp } else { core.wrap_linear(env.seg(Seg::Ss).base.wrapping_add(sp)) };
        let mut back = [0; 8];
        let read = back.get_mut(..usize::from(size)).is_some_and(|back| core.peek(top, back).is_ok());
        if read {
            let ip = u64::from_le_bytes(back);
            let linear = core.wrap_linear(env.cs_base().wrapping_add(ip));
            core.env().set_eip(ip);
            self.hit.begin(site, ip, sp, self.stats.traps, self.channels.begin_hit());
            let trap = Trap { vector: 3, ip, linear, patch: site as u32, in_line: false };
            self.hits_from(core, 0, &trap);
            core.env().set_eip(stub);
        }
        if let Err(fault) = emulate(core, &Op::Ret { size, drop: 0 }) {
            // The guest is told that the call itself cannot return: no retry can be known.
            self.finish(core);
            return Verdict::Raise(fault);
        }
        self.finish(core);
        Verdict::Resumed
    }
}
