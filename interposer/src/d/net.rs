//! Network addresses as text.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Linux's numbers of the address families.
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
/// Its numbers of link types.
const ARPHRD_ETHER: u64 = 1;
const ARPHRD_INFINIBAND: u64 = 32;

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Inet,
    Inet6,
    Ether,
    Infiniband,
}

/// The family of `inet_ntop()`'s first argument.
pub(super) fn family(number: u64) -> Option<Family> {
    match number {
        AF_INET => Some(Family::Inet),
        AF_INET6 => Some(Family::Inet6),
        _ => None,
    }
}

/// The family of `link_ntop()`'s first argument.
pub(super) fn link(number: u64) -> Option<Family> {
    match number {
        ARPHRD_ETHER => Some(Family::Ether),
        ARPHRD_INFINIBAND => Some(Family::Infiniband),
        _ => None,
    }
}

impl Family {
    /// Bytes of an address.
    pub const fn size(self) -> usize {
        match self {
            Self::Inet => 4,
            Self::Inet6 => 16,
            Self::Ether => 6,
            Self::Infiniband => 20,
        }
    }

    /// An address as text.
    pub fn show(self, bytes: &[u8]) -> String {
        match (self, bytes) {
            (Self::Inet, [a, b, c, d]) => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
            (Self::Inet6, bytes) => {
                bytes.try_into().map(|b: [u8; 16]| Ipv6Addr::from(b).to_string()).unwrap_or_default()
            }
            (_, bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
        }
    }
}
