//! Virtio devices (Virtual I/O Device specification 1.2): split queues, the memory-mapped
//! transport and that of PCI, a disk, a console, a source of entropy.
//!
//! The devices own no memory. They access guest memory only in [`VirtioMmio::serve`], which the machine calls at the
//! virtual time that [`VirtioMmio::next_event`] names: one chain of descriptors a call, so that each request takes time
//! in proportion to its bytes and cannot keep the host busy. A driver that breaks the rules (a chain that runs in a
//! circle, a buffer outside memory) gets DEVICE_NEEDS_RESET and nothing more.

mod block;
mod console;
mod disk;
mod entropy;
mod mmio;
mod pci;
mod queue;

pub use block::Block;
pub use console::Console;
pub use disk::{DiskError, DiskImage};
pub use entropy::Entropy;
pub use mmio::{Function, VirtioMmio, WINDOW_BYTES};
pub use queue::Memory;

/// Virtual ns from a notification, or from the end of the request before, to the first byte of a request.
pub const REQUEST_NS: u64 = 10_000;
/// Virtual ns a byte.
pub const BYTE_NS: u64 = 1;
/// Bytes that one request of a disk may carry; a longer one fails.
pub const MAX_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests;
