//! The instruction set: decoding, and what the machine must know of each instruction. Pure: no state, no guest.

pub(crate) mod decode;
mod repeat;

pub use decode::is_sensitive;
pub(crate) use repeat::Repeat;
