//! What the CPU held when the current task last left ring 3, and under which key changes of it wait.

use trapline_emu::{Core, UserContext};
use trapline_os::OsProfile;

/// The user context of the current task, with what handlers have changed; `None` for a task without user mode.
pub(crate) fn of_current(core: &Core, profile: Option<&dyn OsProfile>) -> Option<UserContext> {
    let left = match profile {
        Some(profile) => profile.user_context(core),
        None => core.user_context().copied(),
    }?;
    if !core.has_changed_user_contexts() {
        return Some(left);
    }
    let changed = core.changed_user_context(key(core, profile));
    Some(changed.map_or(left, |changed| left.with_changes_of(changed)))
}

/// What tells the current task from others.
pub(crate) fn key(core: &Core, profile: Option<&dyn OsProfile>) -> u64 {
    profile.and_then(|profile| profile.user_task(core)).unwrap_or_else(|| core.entry_stack())
}
