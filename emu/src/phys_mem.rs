//! Physical memory, wherever it is: in a running machine, in a snapshot, in a file.

/// Physical memory that can be read.
pub trait PhysMem {
    /// Copies from a physical address; false when a byte is missing, and then the content of `to` has no meaning.
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool;
}
