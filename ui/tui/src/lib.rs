//! The terminal user interface: stepping through the hits of a run, back and forth.
//!
//! An [`Opening`] holds a session that runs from the beginning to the end and lists the hits (`index`), and a
//! [`Timeline`](trapline_session::Timeline) of the same run to travel in (`travel`). Both are deterministic, so
//! positions are the same in both. Each has a thread of its own; the thread of the user interface never waits for them.
//!
//! The modules, each of which may use those before it: `action` (the single table of actions), `keys` (the keys of
//! actions), `hits` (the list of hits and its filter), `scene` (the visible state at a position, as plain values),
//! `message` (the messages between threads), `worker` (the two threads), `app` (the state, and how events change it),
//! `theme`, `view` (draws the state and changes nothing), `terminal` (the terminal's modes, which are always restored),
//! `screen` (frames on their way to the terminal), `export` (files on their way to the disk), `stats` (times), `session` (the
//! loop).
//!
//! `top` is a screen of its own, which `trapline top` shows: its state is what is counted, and it needs no timeline.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod action;
mod app;
mod export;
mod hits;
mod keys;
mod message;
#[cfg(test)]
#[path = "../../../emu/tests/common/patience.rs"]
mod patience;
mod scene;
mod screen;
mod session;
mod sgr;
mod stats;
mod terminal;
#[cfg(test)]
mod tests;
mod theme;
mod top;
mod view;
mod worker;

pub use action::{Action, Context, Entry, TABLE};
pub use app::SavedError;
pub use session::{Left, Settings, TuiError, run};
pub use stats::{FrameStats, ListStats, Times};
pub use terminal::leave;
pub use theme::{Colours, Look};
pub use top::TopScreen;
pub use view::top::TOP_KEYS;
pub use worker::{Again, Course, Opening};
