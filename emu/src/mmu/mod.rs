//! The MMU: the guest's page tables and the architectural TLB.

mod front;
mod tlb;
mod user;
mod walk;

pub(crate) use tlb::{Tlb, TlbImage};
pub use user::{UserPages, user_pages};
pub(crate) use walk::WIDEST;
pub use walk::{Access, Paging, Translation, denied, error_code, look, walk};
