//! Two views of code: the patches that instruction fetches see, and the slots that displaced instructions run from.

mod patch;

pub(crate) use patch::{ActiveSlot, Views};
pub use patch::{PatchError, SLOT_BYTES, Slot};
