//! The instruction set: decoding, and the properties of each instruction that matter to the machine. Pure: no state, no
//! guest.

mod condition;
pub(crate) mod decode;
pub(crate) mod mended;
mod repeat;

pub use condition::condition_holds;
pub use decode::is_sensitive;
pub(crate) use repeat::Repeat;
