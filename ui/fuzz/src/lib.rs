//! Searches for states of a guest in which a probe handler, or a function of the guest, does what it must not
//! (docs/fuzzing.md).
//!
//! A recorded run is taken to its real hits ([`hits`]). From there, handlers run on trial ([`trials`]): not the guest, only the
//! handler, in the state of a real hit and what differs from it ([`state`], [`seen`]). Which handlers there are says [`units`]. What they reach and compare is watched
//! ([`code`], [`watch`]), and guides what is tried next ([`change`]). [`objectives`] says what must not happen. What falls is
//! brought near to the real hit ([`minimise`]) and becomes a recording ([`finding`]); at the end there is a [`verdict`].
//!
//! With [`after`] the guest runs on after a handler. [`calls`] runs a function of the guest in place of handlers: [`inputs`] says
//! what is changed, [`steps`] what guides the search. [`subject`] is what both have in common, and [`report`] what they show.
//! [`patience`] ends a search by time or by a signal.
//!
//! The search itself is LibAFL's (`search`), and so is what several processes share (`jobs`). It takes minutes to build, so it is built on request, with the feature `libafl`, and
//! so is the program `trapline-fuzz`, which `trapline fuzz` starts.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod after;
pub mod calls;
pub mod change;
pub mod code;
pub mod deaths;
mod error;
pub mod explain;
pub mod finding;
pub mod handlers;
pub mod hits;
pub mod inputs;
#[cfg(feature = "libafl")]
pub mod jobs;
pub mod minimise;
pub mod objectives;
pub mod patience;
pub mod report;
pub mod returns;
#[cfg(feature = "libafl")]
pub mod search;
pub mod seen;
pub mod state;
pub mod steps;
pub mod subject;
pub mod trials;
pub mod units;
pub mod verdict;
pub mod watch;

pub use error::{FuzzError, INTERRUPTED};
