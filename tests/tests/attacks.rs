//! Guests that attack probed code. Each must give the same results as without probes: the reason of its end, its
//! instruction count, its digest and its console, whether it runs at once or one instruction at a time.

#![allow(clippy::unwrap_used, clippy::panic)]

mod alike;
mod disarmed;
mod found;
mod pages;
