//! Accesses to memory-mapped devices, at the exact count of their instruction.
//!
//! The engine never keeps a TLB entry of a device's page. A fill for one is refused, and the instruction is then
//! executed alone: MOV to and from memory is executed here, as port instructions are; anything else is stepped by the
//! engine with access to that page, and its accesses are handed to the device. Either way the device sees the virtual
//! time before the instruction. The CPU's own accesses (page tables, descriptors, frames), those of a probe handler,
//! and the operands of instructions that the machine emulates do not reach devices: they read all ones, or fault in the
//! handler.
//!
//! Invariant: a read of a device changes its state by at most an error bit that a second read sets again, so that a
//! restarted instruction reads the same.

use crate::cpu::outcome::Accesses;
use crate::mmu::{Access, Translation};
use crate::ram::PAGE;
use crate::run::step::{DeviceAccess, Permit};
use crate::run::{Core, Refusal, VOID_PADDR};

impl Core {
    /// Grants a page of a device to the instruction that is being stepped; refuses it to all others.
    pub(crate) fn grant_device(&mut self, page: u64, t: &Translation, access: Access) -> Option<(u64, u32)> {
        const R: u32 = 1;
        const W: u32 = 2;
        let Some(at) = self.step.devices().and_then(|devices| devices.grant(t.paddr, page)) else {
            self.refusal = Some((Refusal::Device, page, access));
            return None;
        };
        let writable = t.writable && t.dirty;
        Some((VOID_PADDR + (1 + at) * PAGE, R | if writable { W } else { 0 }))
    }

    /// The instruction at EIP accesses a device, and that fill was refused: executes it.
    pub(crate) fn access_device(&mut self) {
        self.effort.note_event();
        let in_slot = self.views.active.is_some_and(|s| s.contains(self.cpu.env.eip()));
        if in_slot {
            // Its trap, or the iteration before, has counted it: the device still sees the time before it.
            self.cpu.hot.last = None;
            return self.step_device(self.cpu.hot.clock.now() - 1);
        }
        self.rewind(self.cpu.linear_ip());
        self.settle();
        self.note_refused();
        let executed = self.decode_at(self.cpu.linear_ip()).is_some_and(|i| self.execute_taken_over(&i));
        if !executed {
            self.step_device(self.cpu.hot.clock.now());
        }
    }

    /// Lets the engine run the instruction at EIP with access to devices, which see the time `now`.
    fn step_device(&mut self, now: u64) {
        let permit = self.permitting(Permit::Devices(DeviceAccess::new(now)), |core| core.step(1));
        if let Some(Permit::Devices(access)) = permit {
            access.linear().for_each(|page| self.cpu.engine.drop_tlb(page));
        }
        self.cpu.update_irq();
    }

    /// The physical address in a device and the time of an access at an offset from [`VOID_PADDR`].
    fn opened(&mut self, offset: u64) -> Option<(u64, u64)> {
        let index = (offset / PAGE).checked_sub(1)?;
        let (page, now) = self.step.devices()?.granted(index)?;
        Some((page | (offset & (PAGE - 1)), now))
    }

    /// A read by the engine at an offset from [`VOID_PADDR`]: all ones without a device there.
    pub(crate) fn device_page_read(&mut self, offset: u64, size: u32) -> u64 {
        let size = size.clamp(1, 8);
        let ones = u64::MAX >> (64 - 8 * size);
        match self.opened(offset) {
            Some((paddr, now)) if size <= 4 => {
                let value = self.cpu.platform.mmio_read(paddr, size as u8, now);
                self.watches.device(paddr, value, size as u8, false);
                value.into()
            }
            _ => {
                self.cpu.void_accesses += 1;
                ones
            }
        }
    }

    /// A write by the engine at an offset from [`VOID_PADDR`]: dropped without a device there.
    pub(crate) fn device_page_write(&mut self, offset: u64, size: u32, value: u64) {
        match self.opened(offset) {
            Some((paddr, now)) if (1..=4).contains(&size) => {
                self.watches.device(paddr, value as u32, size as u8, true);
                self.cpu.platform.mmio_write(paddr, size as u8, value as u32, now);
            }
            _ => self.cpu.void_accesses += 1,
        }
    }

    /// Does the devices' memory transfers that are due at `now`.
    #[cold]
    pub(crate) fn device_dma(&mut self, now: u64) {
        self.cpu.platform.dma(&mut self.cpu.ram, now);
        self.cpu.drain_touched_code();
        self.cpu.pass_output_on();
        self.stop_at_text();
    }
}
