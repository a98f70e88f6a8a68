//! Stacks that go with records: the kernel's, and that of the program it runs.

use super::Interposer;
use trapline_emu::Core;
use trapline_os::Unwinder;
use trapline_trace::{GuestStack, Header, Kind};

/// How stacks are found, and which go with each record.
#[derive(Default)]
pub(crate) struct Stacks {
    pub unwinder: Unwinder,
    /// Return addresses of the kernel's; 0 for none.
    pub kernel: usize,
    /// Frames of the program's; 0 for none.
    pub user: usize,
}

impl Stacks {
    pub fn any(&self) -> bool {
        self.kernel > 0 || self.user > 0
    }
}

impl Interposer {
    /// Sets what finds stacks; at first they are found by frame pointers alone.
    pub fn unwind_with(&mut self, unwinder: Unwinder) {
        self.recorder.stacks.unwinder = unwinder;
    }

    /// Lets each record be followed by one of the kernel's stack, with so many return addresses at most.
    pub fn set_stack_depth(&mut self, depth: usize) {
        self.recorder.stacks.kernel = depth;
    }

    /// Lets each record be followed by one of the program's stack, with so many frames at most.
    pub fn set_user_stack_depth(&mut self, depth: usize) {
        self.recorder.stacks.user = depth;
    }

    /// Commits the stacks at the hit whose record is `data`. In user mode there is none of the kernel, and a kernel thread
    /// has none of a program: then there is no such record.
    #[cold]
    pub(crate) fn record_stacks(&mut self, core: &Core, data: Header, index: u32) {
        let at_call = self.inserted.probes.get(index as usize).is_some_and(|probe| probe.at_call);
        let profile = self.profile.as_deref();
        let Stacks { unwinder, kernel, user } = &mut self.recorder.stacks;
        let (mut of_kernel, mut of_user) = (GuestStack::default(), GuestStack::default());
        if *kernel > 0 {
            // The first is the probed instruction itself, which the record names.
            let found = unwinder.kernel_stack(core, profile, at_call, kernel.saturating_add(1));
            for frame in found.into_iter().skip(1) {
                let module = unwinder.kernel_module(core, profile, frame.within());
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
            self.recorder.commit_trace(&header);
        }
    }
}
