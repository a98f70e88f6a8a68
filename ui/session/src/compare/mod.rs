//! Compares two runs: finds the first instruction after which they differ, and the differences.
//!
//! Both runs advance side by side, and their states are compared in stages, by digests of registers, devices and the
//! pages that were written. The stage that differs is divided until one instruction is left. If two runs begin alike,
//! only one of them runs up to the first input that differs. Differences at the start, such as bytes of a patched
//! image, count only if they cause another difference.
//!
//! `plan` compares two recordings without running them, `pair` holds the two runs and compares their states, `narrow`
//! is the search, `suspects` the points that it checks closely, `hits` counts hits of functions, `differences`
//! describes differences in detail, `linear` finds where a physical address is mapped. Not here: text for people.

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
    /// The inputs.
    pub recording: &'a Recording,
    /// Whether the guest is not that of the recording. Then this is a different run with the same inputs.
    pub changed: bool,
}

/// A value for each of two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Both<T> {
    /// Of the first run.
    pub a: T,
    /// Of the second one.
    pub b: T,
}

impl<T> Both<T> {
    /// Applies a function to both.
    pub fn each<'a, U>(&'a self, mut make: impl FnMut(&'a T) -> U) -> Both<U> {
        Both { a: make(&self.a), b: make(&self.b) }
    }
}

/// The result of comparing two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The number of instructions after which the runs are still the same; if nothing differs, all that were compared.
    pub same: u64,
    /// The checkpoints that both recordings have.
    pub checkpoints: Checkpoints,
    /// The differences at the start.
    pub start: Option<Start>,
    /// The first input that differs.
    pub inputs: Option<Both<Option<Input>>>,
    /// Where devices differ, if registers and memory do not differ there yet.
    pub devices: Option<Point>,
    /// Where registers or memory differ.
    pub point: Option<Point>,
    /// The ends of the runs, if one of them continues after the end of the other.
    pub ends: Option<Both<End>>,
    /// Why no instruction can be named although a checkpoint differs.
    pub unexplained: Option<String>,
    /// Whether the guest was run; otherwise the content of the recordings was sufficient.
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
    /// The number of checkpoints that were compared; 0 if a guest is changed.
    pub compared: usize,
    /// The first one that differs.
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

/// The differences between two runs at the start.
#[derive(Debug, Clone, Serialize)]
pub struct Start {
    /// The number of bytes of memory.
    pub bytes: u64,
    /// The first of them.
    pub memory: Vec<Bytes>,
}

/// An input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The instruction count.
    pub icount: u64,
    /// The input, in the notation of scripts.
    pub what: String,
    /// Whether it was typed at a console.
    #[serde(skip)]
    pub(crate) typed: bool,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// The instruction count.
    pub icount: u64,
    /// The reason, if it is known.
    pub ending: Option<Ending>,
}

/// The cause of the difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The runs differ from the start.
    Start,
    /// An input.
    Input,
    /// An interrupt or exception is delivered, or the guest waits in HLT.
    Delivery,
    /// An instruction.
    Instruction,
}

/// The point at which two runs begin to differ.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Number of instructions that have retired before, in both runs.
    pub icount: u64,
    /// The cause of the difference.
    pub cause: Cause,
    /// The instruction, or the position of the guest if the cause is something else.
    pub at: Both<Spot>,
    /// Registers that differ afterwards.
    pub registers: Vec<Register>,
    /// Number of bytes of memory that differ afterwards, without those that differ from the start.
    pub bytes: u64,
    /// The first of them.
    pub memory: Vec<Bytes>,
    /// Number of fields of devices that differ afterwards.
    pub fields: u64,
    /// The first of them.
    pub devices: Vec<Field>,
    /// The last input.
    pub inputs: Both<Option<Input>>,
    /// The stacks afterwards, innermost first.
    pub stacks: Both<Vec<StackFrame>>,
}

/// The position of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Linear address of the next instruction.
    pub ip: u64,
    /// Its symbol.
    pub symbol: Option<String>,
    /// The disassembled instruction.
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
    /// Its path: the device, then the fields that lead to it.
    pub name: String,
    /// Its values; null if it does not exist.
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
