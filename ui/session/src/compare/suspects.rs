//! Points that may cause a temporary difference, which is gone when the states are next compared: so they are also
//! compared right after these points.
//!
//! These points are executions and accesses of bytes that differ from the start, hits of handlers that write, and
//! accesses to the serial port after different text was typed. Only the first of them are used.

use trapline_emu::{Watch, WatchKind};

use super::pair::Pair;
use super::plan::Inputs;
use super::{Both, Input};
use crate::timeline::StopPoint;

/// Most stops of the runs at such points.
const MOST: u32 = 200;
/// Most ranges that are watched. An image that was rebuilt has more.
const MOST_RANGES: usize = 8;
/// Bytes of an instruction before the one that differs.
const LONGEST: u64 = 14;
/// The ports of COM1.
const COM1: (u64, u64) = (0x3f8, 0x3ff);

/// See the module.
#[derive(Default)]
pub struct Suspects {
    points: Both<Vec<StopPoint>>,
    left: u32,
}

impl Suspects {
    /// The points for two runs that have been compared at their start.
    pub fn of(pair: &Pair, inputs: [&Inputs<'_>; 2], other: Option<&Both<Option<Input>>>) -> Self {
        let first = || other.into_iter().flat_map(|other| other.a.iter().chain(&other.b));
        let (typed, commanded) = (first().any(|input| input.typed), first().any(|input| !input.typed));
        let mut watches = Vec::new();
        let ranges = pair.known_ranges();
        for (low, high) in ranges.iter().filter(|_| ranges.len() <= MOST_RANGES) {
            let code = Watch { kind: WatchKind::Execute, low: low.saturating_sub(LONGEST), high: *high };
            watches.extend([code, Watch { kind: WatchKind::ReadWrite, low: *low, high: *high }]);
        }
        if typed {
            watches.push(Watch { kind: WatchKind::Io, low: COM1.0, high: COM1.1 });
        }
        let points = inputs.map(|inputs| {
            let hits = (commanded && !inputs.has_no_programs()).then_some(StopPoint::AnyHit);
            watches.iter().map(|watch| StopPoint::Watch(*watch)).chain(hits).collect::<Vec<_>>()
        });
        let [a, b] = points;
        Self { left: if a.is_empty() && b.is_empty() { 0 } else { MOST }, points: Both { a, b } }
    }

    /// The points to look for, if there are any left.
    pub fn points(&self) -> Option<&Both<Vec<StopPoint>>> {
        (self.left > 0).then_some(&self.points)
    }

    /// Notes that a point was met.
    pub fn met(&mut self) {
        self.left -= 1;
    }
}
