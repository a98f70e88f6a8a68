//! The NOFAULT host: the guest as handlers see it.
//!
//! Reads walk the guest's page tables without setting an accessed bit, never touch MMIO, never change CR2. Writes
//! happen only on request of a program.

use super::asked::Asked;
use super::user_context;
use super::view::{Real, View, is_writable};
use crate::d::Runtime;
use crate::model::{Probe, Stats, Word};
use trapline_emu::{Core, Seg, UserContext};
use trapline_os::{OsProfile, Unwinder};
use trapline_rpn::{Argument, ArgumentError, CallkError, CallkStack, Context, Fault, Host, Reg};

/// The guest at one hit.
pub(crate) struct Guest<'a, V: View = Real> {
    pub core: &'a mut Core,
    pub profile: &'a Option<Box<dyn OsProfile>>,
    pub stats: &'a mut Stats,
    pub asked: &'a mut Asked,
    /// Instruction pointer that handlers see, if it is not the CPU's: that of an instruction that has retired.
    pub ip: Option<u64>,
    pub probe: &'a Probe,
    pub unwinder: &'a mut Unwinder,
    /// Whether the function has returned, by another one that it has jumped to.
    pub returned: bool,
    /// The state of the D program, if the handler is a clause of one.
    pub d: Option<&'a mut Runtime>,
    /// The number of the probe point, and the number of this run.
    pub firing: (u32, u64),
    /// What the handler sees in place of the guest.
    pub view: V,
}

/// Segment registers in the machine's order.
fn segment(reg: Reg) -> Option<Seg> {
    Some(match reg {
        Reg::Es => Seg::Es,
        Reg::Cs => Seg::Cs,
        Reg::Ss => Seg::Ss,
        Reg::Ds => Seg::Ds,
        Reg::Fs => Seg::Fs,
        Reg::Gs => Seg::Gs,
        _ => return None,
    })
}

/// A register of the processor as it is now, in full; `None` for those of the FPU and those wider than a word.
#[inline]
#[must_use]
pub fn processor_register(core: &Core, reg: Reg) -> Option<u64> {
    let env = core.env();
    if let Some(n) = reg.gpr_number() {
        return Some(env.gpr(n.into()));
    }
    if let Some(seg) = segment(reg) {
        return Some(env.seg(seg).selector.into());
    }
    Some(match reg {
        Reg::Flags => core.eflags(),
        Reg::Ip => env.eip(),
        Reg::Tr => env.tr().selector.into(),
        Reg::Ldtr => env.ldt().selector.into(),
        Reg::Cr0 => env.cr(0),
        Reg::Cr2 => env.cr(2),
        Reg::Cr3 => env.cr(3),
        Reg::Cr4 => env.cr(4),
        Reg::Dr0 => env.dr(0),
        Reg::Dr1 => env.dr(1),
        Reg::Dr2 => env.dr(2),
        Reg::Dr3 => env.dr(3),
        Reg::Dr6 => env.dr(6),
        Reg::Dr7 => env.dr(7),
        Reg::Efer => env.efer(),
        Reg::FsBase => env.seg(Seg::Fs).base,
        Reg::GsBase => env.seg(Seg::Gs).base,
        _ => return None,
    })
}

impl<V: View> Guest<'_, V> {
    /// A number: the view's, else the guest's.
    #[inline(always)]
    pub(super) fn word(&mut self, what: Word, real: impl FnOnce(&mut Self) -> u64) -> u64 {
        if !V::ALTERS {
            return real(self);
        }
        if let Some(value) = self.view.word(what) {
            return value;
        }
        let value = real(self);
        self.view.learned(what, value);
        value
    }

    fn current(&self, reg: Reg) -> u64 {
        if reg == Reg::Ip
            && let Some(ip) = self.ip
        {
            return ip;
        }
        processor_register(self.core, reg).unwrap_or_else(|| self.floating(reg))
    }

    /// x87 and SSE registers. They belong to the user context; the FPU holds it in both modes.
    fn floating(&self, reg: Reg) -> u64 {
        let env = self.core.env();
        match reg {
            Reg::Fcw => env.fpuc().into(),
            Reg::Fsw => u64::from(env.fpus() & !0x3800) | u64::from(env.fpstt() & 7) << 11,
            Reg::Ftw => self.tag_word(),
            Reg::Fip => env.fpip(),
            Reg::Fcs => env.fpcs().into(),
            Reg::Fdp => env.fpdp(),
            Reg::Fds => env.fpds().into(),
            Reg::Mxcsr => env.mxcsr().into(),
            _ => 0,
        }
    }

    /// The x87 tag word in its 16-bit form: 0 valid, 1 zero, 2 special, 3 empty.
    fn tag_word(&self) -> u64 {
        let env = self.core.env();
        let tags = env.fptags();
        (0..8).fold(0, |word, i| {
            let r = env.fpreg(i);
            let mantissa = u64::from_le_bytes([r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]);
            let exponent = u16::from_le_bytes([r[8], r[9]]) & 0x7fff;
            let tag = match (tags[i], exponent, mantissa) {
                (1.., _, _) => 3,
                (_, 0, 0) => 1,
                (_, 0 | 0x7fff, _) => 2,
                (_, _, m) if m >> 63 == 0 => 2,
                _ => 0,
            };
            word | tag << (2 * i)
        })
    }

    /// What the CPU held when the current task last left ring 3, with what handlers have changed since.
    pub fn user_context(&self) -> Option<UserContext> {
        user_context::of_current(self.core, self.profile.as_deref())
    }

    /// Changes a register of the user context `left`. EIP and EFLAGS stay as they are.
    fn change_user_context(&mut self, mut left: UserContext, reg: Reg, value: u64) {
        match (reg.gpr_number(), segment(reg)) {
            (Some(n), _) => left.set_gpr(n.into(), value),
            (None, Some(seg)) => left.set_selector(seg, value as u16),
            (None, None) => return,
        }
        let key = user_context::key(self.core, self.profile.as_deref());
        self.core.set_user_context(key, left);
    }

    /// A register of the user context. FS and GS are the processor's own in either context ("Registers fs and gs are context
    /// independent", dprobes.lang(8)), and so are the registers of the FPU.
    fn user(&mut self, reg: Reg) -> u64 {
        let own = is_context_independent(reg) || !is_saved(reg);
        if own || self.core.env().cpl() == 3 {
            return self.current(reg);
        }
        let Some(context) = self.user_context() else {
            self.stats.no_user_context += 1;
            return 0;
        };
        if let Some(n) = reg.gpr_number() {
            return context.gpr[usize::from(n)];
        }
        if let Some(seg) = segment(reg) {
            return context.selectors[seg as usize].into();
        }
        match reg {
            Reg::Ip => context.ip,
            _ => context.flags,
        }
    }
}

/// Whether the register is the processor's own in both contexts.
fn is_context_independent(reg: Reg) -> bool {
    matches!(reg, Reg::Fs | Reg::Gs)
}

/// Whether a user context holds the register.
fn is_saved(reg: Reg) -> bool {
    reg.gpr_number().is_some() || segment(reg).is_some() || matches!(reg, Reg::Ip | Reg::Flags)
}

impl<V: View> Host for Guest<'_, V> {
    #[inline]
    fn read_reg(&mut self, context: Context, reg: Reg) -> u64 {
        self.word(Word::register(context, reg), |guest| match context {
            Context::Current => guest.current(reg),
            Context::User => guest.user(reg),
        })
    }

    fn read_wide(&mut self, _: Context, reg: Reg) -> u128 {
        let env = self.core.env();
        match reg {
            Reg::Gdtr => u128::from(env.gdt().base) | u128::from(env.gdt().limit & 0xffff) << 64,
            Reg::Idtr => u128::from(env.idt().base) | u128::from(env.idt().limit & 0xffff) << 64,
            _ => {
                if let Some(n) = reg.fpr_number() {
                    // FRn is ST(n): relative to the top of the stack.
                    let bytes = env.fpreg((usize::from(n) + env.fpstt() as usize) & 7);
                    let mut wide = [0; 16];
                    wide[..10].copy_from_slice(&bytes);
                    return u128::from_le_bytes(wide);
                }
                reg.xmm_number().map_or(0, |n| env.xmm(n.into()))
            }
        }
    }

    fn write_reg(&mut self, context: Context, reg: Reg, value: u64) -> bool {
        if segment(reg).is_some() && value > 0xffff {
            return false;
        }
        if V::ALTERS {
            // The null selectors, 0 to 3, have no descriptor and can be loaded.
            let refused = context == Context::Current
                && segment(reg).is_some()
                && value as u16 > 3
                && self.core.selector_base(value as u16).is_none();
            if !refused {
                self.view.set(Word::register(context, reg), value);
            }
            if refused || !self.view.lets_through() {
                return !refused;
            }
        }
        if context == Context::User && !is_context_independent(reg) && self.core.env().cpl() != 3 {
            match self.user_context() {
                Some(left) => self.change_user_context(left, reg, value),
                None => self.stats.no_user_context += 1,
            }
            return true;
        }
        if let Some(n) = reg.gpr_number() {
            self.core.env().set_gpr(n.into(), value);
        } else if let Some(seg) = segment(reg) {
            let selector = value as u16;
            // The null selectors, 0 to 3, have no descriptor and can be loaded.
            if selector > 3 && self.core.selector_base(selector).is_none() {
                return false;
            }
            self.core.load_selector(seg, selector);
        }
        true
    }

    fn cpuid(&mut self, leaf: u32) -> [u32; 4] {
        self.core.cpuid(leaf, 0)
    }

    fn rdmsr(&mut self, index: u32) -> Option<u64> {
        self.core.peek_msr(index)
    }

    fn read_mem(&mut self, addr: u64, buf: &mut [u8]) -> Result<(), Fault> {
        if let Some(read) = self.d.as_ref().and_then(|d| d.read(addr, buf)) {
            return read.map_err(Fault);
        }
        self.view.read(self.core, addr, buf).map_err(Fault)
    }

    fn write_mem(&mut self, addr: u64, data: &[u8]) -> Result<(), Fault> {
        if V::ALTERS {
            self.view.write(self.core, addr, data).map_err(Fault)?;
            if self.view.lets_through() {
                (self.asked.any, self.asked.wrote) = (true, true);
                // A page that the guest does not have keeps nothing.
                let _ = self.core.poke(addr, data);
            }
            return Ok(());
        }
        (self.asked.any, self.asked.wrote) = (true, true);
        self.core.poke(addr, data).map_err(Fault)
    }

    fn can_write(&mut self, addr: u64) -> bool {
        if V::ALTERS {
            return self.view.can_write(self.core, addr);
        }
        is_writable(self.core, addr)
    }

    fn pid(&mut self) -> u64 {
        self.word(Word::Thread, |guest| guest.profile.as_deref().map_or(0, |p| p.pid(guest.core).into()))
    }

    fn procid(&mut self) -> u64 {
        0
    }

    fn task(&mut self) -> u64 {
        self.word(Word::Task, |guest| guest.profile.as_deref().map_or(0, |p| p.current_task(guest.core)))
    }

    #[inline]
    fn argument(&mut self, which: Argument) -> Result<u64, ArgumentError> {
        let found = match self.probe.arguments.as_deref() {
            Some(arguments) => match V::ALTERS.then(|| self.view.word(Word::argument(which))).flatten() {
                Some(value) => Ok(value),
                None => {
                    let real = match arguments.later() {
                        Some(later) if self.returned => later.argument(self.core, which),
                        _ => arguments.argument(self.core, which),
                    };
                    if let (true, Ok(value)) = (V::ALTERS, real) {
                        self.view.learned(Word::argument(which), value);
                    }
                    real
                }
            },
            None => Err(ArgumentError::None),
        };
        match &self.d {
            None => found,
            // A clause of D sees 0 for what its probe never has. What is there but not known ends it.
            Some(d) => match found {
                Err(error) if error != ArgumentError::None && !d.has_failed() => Err(error),
                found => Ok(d.argument_or(which, found.unwrap_or(0))),
            },
        }
    }

    fn io_read(&mut self, port: u16, size: u8) -> u32 {
        if V::ALTERS {
            // Reading a device's port changes the device, so the device is left alone.
            return self
                .view
                .word(Word::Port { port, size })
                .unwrap_or(u64::from(u32::MAX >> (32 - 8 * u32::from(size.clamp(1, 4)))))
                as u32;
        }
        self.core.handler_port_read(port, size)
    }

    fn io_write(&mut self, port: u16, size: u8, value: u32) {
        if V::ALTERS && !self.view.lets_through() {
            return;
        }
        self.core.handler_port_write(port, size, value);
    }

    fn seg2lin(&mut self, selector: u16, offset: u64) -> Option<u64> {
        Some(self.core.selector_base(selector)?.wrapping_add(offset))
    }

    #[inline]
    fn read_operand(&mut self, service: u64, operand: u64) -> Option<u64> {
        self.quick_read(service, operand)
    }

    #[inline]
    fn write_operand(&mut self, _: u64, operand: u64, value: u64) -> bool {
        self.quick_write(operand, value)
    }

    fn callk(&mut self, number: u64, stack: &mut dyn CallkStack) -> Result<(), CallkError> {
        self.service(number, stack)
    }
}
