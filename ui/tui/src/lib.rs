//! The terminal user interface: stepping through the hits of a run, both ways.
//!
//! An [`Opening`] holds what is looked at: a session that runs from the beginning to the end and lists the hits (`index`), and
//! a [`Timeline`](trapline_session::Timeline) of the same run to travel in (`travel`). Both are deterministic, so a position of
//! one is that position of the other. Each has a thread of its own; the thread of the user interface never waits for them.
//!
//! The rooms, where each may use those before it: `action` (the one table of what can be done), `keys` (which key does it),
//! `hits` (the list of hits and its filter), `scene` (what is to be seen at a position, as plain values), `message` (what the
//! threads tell each other), `worker` (the two threads), `app` (the state, and how events change it), `theme`, `view` (draws the
//! state and changes nothing), `terminal` (the terminal's modes, restored whatever happens), `session` (the loop).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod action;
mod app;
mod hits;
mod keys;
mod message;
mod scene;
mod session;
mod terminal;
#[cfg(test)]
mod tests;
mod theme;
mod view;
mod worker;

pub use action::{Action, Context, Entry, TABLE};
pub use session::{FrameStats, TuiError, run};
pub use theme::{Colours, Look};
pub use worker::{Course, Opening};
