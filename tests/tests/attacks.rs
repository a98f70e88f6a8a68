//! Guests that do to probed code what they can. Each must show just what it shows without probes: why it ends, its
//! count, its digest, its console; run at once or one instruction at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

mod alike;
mod disarmed;
mod found;
mod pages;
