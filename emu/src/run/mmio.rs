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

use crate::cpu::fault::Fault;
use crate::cpu::flags::TF;
use crate::cpu::outcome::Done;
use crate::mmu::{Access, Translation};
use crate::ram::PAGE;
use crate::run::step::{DeviceAccess, Permit};
use crate::run::{Core, Refusal, VOID_PADDR};
use iced_x86::{Code, Instruction, OpKind};

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

    /// The instruction at EIP accesses a device in linear page `page`, and that fill was refused: executes it.
    pub(crate) fn access_device(&mut self, page: u64) {
        self.effort.note_event();
        let in_slot = self.views.active.is_some_and(|s| s.contains(self.cpu.env.eip()));
        if in_slot {
            // Its trap, or the iteration before, has counted it: the device still sees the time before it.
            self.cpu.hot.last = None;
            return self.step_device(self.cpu.hot.clock.now() - 1);
        }
        self.rewind(self.cpu.linear_ip());
        self.settle();
        let simple = self.decode_at(self.cpu.linear_ip()).filter(|_| !self.watches.any_data());
        if !simple.is_some_and(|i| self.move_device(&i, page)) {
            self.step_device(self.cpu.hot.clock.now());
        }
    }

    /// Executes a 32-bit MOV between a register, or from an immediate, and a device; false for anything else.
    fn move_device(&mut self, i: &Instruction, page: u64) -> bool {
        let (va, now) = (self.cpu.wrap_linear(self.cpu.effective_address(i)), self.cpu.hot.clock.now());
        let store = match i.code() {
            Code::Mov_r32_rm32 | Code::Mov_EAX_moffs32 => false,
            Code::Mov_rm32_r32 | Code::Mov_moffs32_EAX | Code::Mov_rm32_imm32 => true,
            _ => return false,
        };
        let user = self.cpu.env.cpl() == 3;
        let access = if store { Access::Write } else { Access::Read };
        if va & !(PAGE - 1) != page || va & (PAGE - 1) > PAGE - 4 {
            return false;
        }
        let Ok(paddr) = self.cpu.translate(va, access, user) else { return false };
        if !self.cpu.platform.has_mmio(paddr) {
            return false;
        }
        let tf = self.cpu.env.eflags_raw() & TF != 0;
        if store {
            let value = match i.op1_kind() {
                OpKind::Register => self.cpu.register(i.op1_register()) as u32,
                _ => i.immediate32(),
            };
            self.cpu.platform.mmio_write(paddr, 4, value, now);
        } else {
            let value = self.cpu.platform.mmio_read(paddr, 4, now);
            self.cpu.env.set_gpr(i.op0_register().full_register().number(), value.into());
        }
        self.cpu.update_irq();
        self.end_own(i, Ok::<Done, Fault>(Done::Next), tf);
        true
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
            Some((paddr, now)) if size <= 4 => self.cpu.platform.mmio_read(paddr, size as u8, now).into(),
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
