//! The formats of other tools, from records that are made here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail as the test does")]

mod damage;
mod flames;
mod made;
mod models;
mod perfetto;
