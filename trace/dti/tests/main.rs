//! Channels that the guests' own code (`guest-images/include/trapline/dti.c`) has written, as this library reads them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod declared;
mod harness;
mod model;
mod records;
