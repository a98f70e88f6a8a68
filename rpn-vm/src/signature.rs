//! The signature that a program was read with. It is data here: `ppdf` makes and checks it.

/// Bytes of a signature section: algorithm, key, signature.
pub(crate) const SIGNATURE_BYTES: usize = 4 + 32 + 64;

/// The signature of a file that was read, and all that is needed to write the same file again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The file's minor version, which is signed too.
    pub(crate) minor: u16,
    /// The content of its section.
    pub(crate) section: [u8; SIGNATURE_BYTES],
}
