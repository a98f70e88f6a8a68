//! Macro-declared probes: enabled by writing a stub's address to the guest's pointer, hit when the guest calls the
//! stub.
//!
//! The stub is a function of one `ret`. Handlers run at its entry, with the call's arguments in place and the return
//! address on top of the stack; the instruction pointer that they see is the return address of the call. Pointer and
//! count of instructions are visible to the guest (docs/providers.md); everything else works as for other probes. A
//! used stub stays callable, because the guest may have read the pointer before it was cleared.

use super::Interposer;
use crate::sites::{Op, emulate};
use trapline_emu::{Core, Seg, Trap, Verdict};

impl Interposer {
    /// The guest has called stub `number`.
    pub(super) fn stub_hit(&mut self, core: &mut Core, number: u32) -> Verdict {
        let Some(site) = self.sites.at_stub(number) else { return Verdict::Declined };
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
            self.hit.site = site;
            self.recorder.channels.begin_hit();
            let trap = Trap { vector: 3, ip, linear, patch: site as u32, in_line: false };
            self.hits_from(core, 0, &trap);
            core.env().set_eip(stub);
        }
        if let Err(fault) = emulate(core, &Op::Ret { size, drop: 0 }) {
            // The guest is told that the call itself cannot return: a retry cannot be recognised.
            self.finish(core);
            return Verdict::Raise(fault);
        }
        self.finish(core);
        Verdict::Resumed
    }
}
