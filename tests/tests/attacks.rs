//! Guests that do to probed code what they can. Each must show just what it shows without probes: why it ends, its
//! count, its digest, its console; run at once or one instruction at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "attacks/alike.rs"]
mod alike;
#[path = "../../emu/tests/common/mod.rs"]
mod common;
#[path = "attacks/disarmed.rs"]
mod disarmed;
#[path = "attacks/found.rs"]
mod found;
#[path = "attacks/pages.rs"]
mod pages;
