//! Two views of code: the patches that instruction fetches see, and the slots that displaced instructions run from.

pub(crate) mod patch;

pub use patch::{PatchError, SLOT_BYTES, Slot};
