//! Stacks that follow records: that of the kernel, and that of the user program.

use super::Interposer;
use trapline_emu::Core;
use trapline_os::Unwinder;
use trapline_trace::{GuestStack, Header, Kind};

use crate::model::Place;

/// The unwinder, and which stacks follow each record.
#[derive(Default)]
pub(crate) struct Stacks {
    pub unwinder: Unwinder,
    /// Most return addresses of the kernel's stack; 0 for no stack.
    pub kernel: usize,
    /// Most frames of the program's stack; 0 for no stack.
    pub user: usize,
}

impl Stacks {
    pub fn any(&self) -> bool {
        self.kernel > 0 || self.user > 0
    }
}

impl Interposer {
    /// Sets the unwinder. By default, stacks are found by frame pointers only.
    pub fn unwind_with(&mut self, unwinder: Unwinder) {
        self.recorder.stacks.unwinder = unwinder;
    }

    /// Adds a record of the kernel's stack after each record, with at most `depth` return addresses.
    pub fn set_stack_depth(&mut self, depth: usize) {
        self.recorder.stacks.kernel = depth;
    }

    /// Adds a record of the program's stack after each record, with at most `depth` frames.
    pub fn set_user_stack_depth(&mut self, depth: usize) {
        self.recorder.stacks.user = depth;
    }

    /// Commits the stacks at the hit whose record is `data`. User mode has no kernel stack, and a kernel thread
    /// has no program stack: then there is no such record.
    #[cold]
    pub(crate) fn record_stacks(&mut self, core: &Core, data: Header, index: u32) {
        let probe = self.inserted.probes.get(index as usize);
        let at_call = probe.is_some_and(|probe| probe.at_call);
        // Where a tick comes, the record alone does not say which module that is.
        let known = probe.is_none_or(|probe| !matches!(probe.place, Place::Timer(_)));
        let profile = self.profile.as_deref();
        let Stacks { unwinder, kernel, user } = &mut self.recorder.stacks;
        let (mut of_kernel, mut of_user) = (GuestStack::default(), GuestStack::default());
        if *kernel > 0 {
            // The first is the probed instruction, which is in the record already.
            let skipped = usize::from(known);
            let found = unwinder.kernel_stack(core, profile, at_call, kernel.saturating_add(skipped));
            for frame in found.into_iter().skip(skipped) {
                let module = unwinder.kernel_module(core, profile, frame.pointer().within());
                of_kernel.push(frame.ip, frame.exact, module.as_ref().map(|(name, base)| (&**name, *base)));
            }
        }
        for frame in unwinder.user_stack(core, profile, at_call, *user) {
            of_user.push(frame.ip, frame.exact, frame.file.as_ref().map(|(path, base)| (&**path, *base)));
        }
        for (kind, stack) in [(Kind::KernelStack, of_kernel), (Kind::UserStack, of_user)] {
            if stack.frames.is_empty() {
                continue;
            }
            self.recorder.trace.clear();
            stack.encode(data.width, &mut self.recorder.trace);
            let header = Header { kind, exception: None, termination: 0, ..data };
            self.recorder.commit_trace(&header, None);
        }
    }
}
