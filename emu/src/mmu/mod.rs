//! The MMU: the guest's page tables and the architectural TLB.

mod tlb;
mod walk;

pub(crate) use tlb::{Tlb, TlbImage};
pub use walk::{Access, Paging, Translation, denied, error_code, look, walk};
