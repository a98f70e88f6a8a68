//! State that probe handlers read from the machine besides memory: selectors, CPUID, MSRs, ports.

use super::Cpu;
use super::descriptor::Descriptor;
use crate::engine::{Model, Seg, Segment, hflags};

impl Cpu {
    /// CPUID of the guest's model: `[eax, ebx, ecx, edx]`.
    pub fn cpuid(&self, leaf: u32, _subleaf: u32) -> [u32; 4] {
        crate::cpu::cpuid::cpuid(self.model, self.platform.apic_base(), leaf)
    }

    /// A model-specific register, without side effects; `None` when the model has no such register.
    pub fn peek_msr(&self, index: u32) -> Option<u64> {
        let e = *self.env;
        Some(match index {
            0x10 => self.tsc(),
            0x1b => self.platform.apic_base()?,
            0x174 => e.sysenter_cs().into(),
            0x175 => e.sysenter_esp(),
            0x176 => e.sysenter_eip(),
            0x277 => e.pat(),
            _ if self.model == Model::Ia32 => return None,
            0xc000_0080 => e.efer(),
            0xc000_0081 => e.star(),
            0xc000_0082 => e.lstar(),
            0xc000_0083 => e.cstar(),
            0xc000_0084 => e.fmask(),
            0xc000_0100 => e.seg(Seg::Fs).base,
            0xc000_0101 => e.seg(Seg::Gs).base,
            0xc000_0102 => e.kernel_gs_base(),
            0xc000_0103 => e.tsc_aux(),
            _ => return None,
        })
    }

    /// Reads a descriptor without side effects; `None` where there is none.
    pub(super) fn peek_descriptor(&self, selector: u16) -> Option<Descriptor> {
        let address = self.descriptor_address(selector)?;
        let mut bytes = [0u8; 8];
        self.peek(address, &mut bytes).ok()?;
        let raw = u64::from_le_bytes(bytes);
        Some(Descriptor::new(raw as u32, (raw >> 32) as u32, address))
    }

    /// As [`Cpu::peek_descriptor`], of a segment; `None` for a null, absent or foreign selector.
    fn peek_segment(&self, selector: u16) -> Option<Descriptor> {
        let found = self.peek_descriptor(selector).filter(|_| selector & !3 != 0);
        found.filter(|descriptor| !descriptor.is_system() && descriptor.present())
    }

    /// Linear base of the segment that a selector names (`seg2lin`): its descriptor's, also in 64-bit code, whose tasks
    /// may be 32-bit programs. A segment of 64-bit code begins at 0, whatever its descriptor says.
    pub fn selector_base(&self, selector: u16) -> Option<u64> {
        let descriptor = self.peek_segment(selector)?;
        let flat = self.env.hflags() & hflags::LMA != 0 && descriptor.is_code() && descriptor.long();
        Some(if flat { 0 } else { descriptor.segment(selector).base })
    }

    /// Loads DS, ES, FS or GS for a handler; a selector that the CPU would refuse changes nothing.
    pub fn load_selector(&mut self, seg: Seg, selector: u16) {
        if selector & !3 == 0 {
            self.env.load_seg(seg, Segment::new(selector, 0, 0, 0));
        } else if let Some(descriptor) = self.peek_segment(selector) {
            self.env.load_seg(seg, descriptor.segment(selector));
        }
    }
}
