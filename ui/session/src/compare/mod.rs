//! Compares two runs: the first instruction after which they differ, and what differs then.
//!
//! Both runs go side by side, and their states are compared in stages, with digests of registers, devices and the pages that
//! were written. The stage that differs is divided, until one instruction is left. Where two runs begin alike, only one of
//! them is run, to the first thing that comes in differently. What the runs do not begin alike with, such as bytes of a
//! patched image, counts only where it makes another difference.
//!
//! `plan` is what two recordings say without being run, `pair` the two runs and the comparison of their states, `narrow` the
//! search, `suspects` what it looks at closely, `hits` counts of functions, `differences` what differs in detail, `linear` where a physical address is mapped. Not here: text for people.

mod differences;
mod hits;
mod linear;
mod narrow;
mod pair;
mod plan;
mod suspects;

use serde::Serialize;
use serde_json::Value;

use crate::commands::CommandError;
use crate::ending::Ending;
use crate::guest::{Guest, GuestError};
use crate::recording::Recording;
use crate::session::StackFrame;
use crate::timeline::TravelError;

pub use hits::{FunctionHits, hits_by_function};
pub use narrow::compare;

/// A run to be compared.
#[derive(Clone, Copy)]
pub struct ComparedRun<'a> {
    /// Its guest.
    pub guest: &'a Guest,
    /// What came in.
    pub recording: &'a Recording,
    /// Whether the guest is not that of the recording: then this is another run, into which the same comes in.
    pub changed: bool,
}

/// Something of each of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Both<T> {
    /// Of the first run.
    pub a: T,
    /// Of the second one.
    pub b: T,
}

impl<T> Both<T> {
    /// Each of the two, made into something else.
    pub fn each<'a, U>(&'a self, mut make: impl FnMut(&'a T) -> U) -> Both<U> {
        Both { a: make(&self.a), b: make(&self.b) }
    }
}

/// How two runs compare.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Instructions after which the runs are still the same: all that were compared if nothing differs.
    pub same: u64,
    /// The checkpoints that both recordings have.
    pub checkpoints: Checkpoints,
    /// What the runs do not begin alike with.
    pub start: Option<Start>,
    /// The first thing that comes in differently.
    pub inputs: Option<Both<Option<Input>>>,
    /// Where devices differ, if registers and memory do not differ there yet.
    pub devices: Option<Point>,
    /// Where registers or memory differ.
    pub point: Option<Point>,
    /// How the runs end, if one goes on where the other ends.
    pub ends: Option<Both<End>>,
    /// Why there is no instruction to be named although a checkpoint differs.
    pub unexplained: Option<String>,
    /// Whether the guest was run for it; else what the recordings hold was enough.
    pub ran: bool,
}

impl Comparison {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        let found = self.devices.is_some() || self.point.is_some() || self.ends.is_some();
        !found && self.unexplained.is_none()
    }
}

/// The checkpoints that both recordings have at the same moments.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Checkpoints {
    /// How many were compared; 0 where a guest is a changed one.
    pub compared: usize,
    /// The first that differs.
    pub different: Option<DifferentCheckpoint>,
}

/// A checkpoint that differs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DifferentCheckpoint {
    /// Its number in the first recording, from 1.
    pub number: usize,
    /// Its instruction count.
    pub icount: u64,
    /// The first stage that differs: registers, devices, memory.
    pub stage: &'static str,
}

/// What two runs do not begin alike with.
#[derive(Debug, Clone, Serialize)]
pub struct Start {
    /// How many bytes of memory.
    pub bytes: u64,
    /// The first of them.
    pub memory: Vec<Bytes>,
}

/// Something that came in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The instruction count.
    pub icount: u64,
    /// What came in, as a script has it.
    pub what: String,
    /// Whether it was typed at a console.
    #[serde(skip)]
    pub(crate) typed: bool,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// The instruction count.
    pub icount: u64,
    /// Why, if that is known.
    pub ending: Option<Ending>,
}

/// What makes the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The runs do not begin alike.
    Start,
    /// Something comes in.
    Input,
    /// An interrupt or exception is delivered, or the guest waits in HLT.
    Delivery,
    /// An instruction.
    Instruction,
}

/// Where two runs begin to differ.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Instructions that have retired before, in both runs.
    pub icount: u64,
    /// What makes the difference.
    pub cause: Cause,
    /// The instruction, or where the guest is when something else makes it.
    pub at: Both<Spot>,
    /// Registers that differ afterwards.
    pub registers: Vec<Register>,
    /// How many bytes of memory differ afterwards, without those that differ from the start.
    pub bytes: u64,
    /// The first of them.
    pub memory: Vec<Bytes>,
    /// How many fields of devices differ afterwards.
    pub fields: u64,
    /// The first of them.
    pub devices: Vec<Field>,
    /// What came in last.
    pub inputs: Both<Option<Input>>,
    /// The stacks afterwards, innermost first.
    pub stacks: Both<Vec<StackFrame>>,
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Linear address of the instruction that comes.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// It, disassembled.
    pub instruction: Option<String>,
    /// The process id of the task.
    pub pid: Option<u32>,
    /// Its name.
    pub task: Option<String>,
}

/// A register that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Register {
    /// Its name.
    pub name: String,
    /// Its values, in hexadecimal.
    #[serde(flatten)]
    pub values: Both<String>,
}

/// Bytes that differ, adjacent in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Physical address of the first.
    pub physical: u64,
    /// Its linear address, if one is known.
    pub linear: Option<u64>,
    /// The symbol there.
    pub symbol: Option<String>,
    /// The bytes, in hexadecimal.
    #[serde(flatten)]
    pub values: Both<String>,
}

/// A field of a device that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Field {
    /// Its place: the device, then the fields that lead to it.
    pub name: String,
    /// Its values; null where it is not there.
    #[serde(flatten)]
    pub values: Both<Value>,
}

/// Runs cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A guest cannot be loaded.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A run is not the one that was recorded.
    #[error(transparent)]
    Travel(#[from] TravelError),
    /// There are no such probes.
    #[error(transparent)]
    Probes(#[from] CommandError),
}
