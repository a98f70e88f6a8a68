//! The whole-system tests in one binary: a module a subject. A new file needs its `mod` line here.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod attacks;
mod bad_input;
mod bad_probes;
mod cli;
#[path = "../../emu/tests/common/mod.rs"]
mod common;
mod defects;
mod demo;
mod dis;
mod displacement;
mod docs;
mod embedding;
mod every_instruction;
mod exits;
mod fbt;
mod fbt_functions;
#[path = "displacement/forms.rs"]
mod forms;
mod guest_embedded;
mod guest_gnumach;
mod guest_gnumach_stacks;
mod guest_linux_bad_input;
mod guest_linux_boot;
mod guest_linux_fbt;
mod guest_linux_listing;
mod guest_linux_modules;
mod guest_linux_pid;
mod guest_linux_probes;
mod guest_linux_stacks;
mod guest_linux_static;
mod guest_linux_stress;
mod guest_linux_strict;
mod guest_linux_symbols;
mod guest_linux_transparency;
mod guest_memtest86;
mod guest_recordings;
mod guest_source_lines;
mod handler_errors;
mod handling;
mod harness;
mod hit_life;
mod hit_programs;
mod host_cpu;
mod hostile;
mod interposition;
mod language;
mod linux_images;
mod listing;
mod lock_nop;
mod other_hosts;
mod ppdf;
mod recordings;
mod records;
mod script;
mod site_bytes;
mod snapshot_files;
mod stacks;
mod static_catalog;
mod static_probes;
mod trace_file;
mod tracing;
mod user_context;
mod verify;
mod watch;
