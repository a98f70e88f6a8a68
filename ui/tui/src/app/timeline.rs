//! The timeline: which part of the run it shows, and the hits in each of its columns.

use std::collections::BTreeMap;
use std::ops::Range;

use ratatui::layout::Rect;
use trapline_session::Position;

use super::{App, Effect};
use crate::message::Move;

/// Hits of a column whose probes are counted. If it has more, so many of them, evenly chosen, stand for all.
const COUNTED: usize = 64;
/// Characters of the names and the numbers beside the chart of the pane.
const LABEL: u16 = 36;

/// The place of the chart in the pane of the timeline, whose border is not part of this.
pub fn chart(inside: Rect) -> Rect {
    let label = LABEL.min(inside.width / 2);
    Rect { x: inside.x + label, width: inside.width - label, ..inside }
}

/// The hits of a probe in the columns of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Density {
    /// The number of the probe.
    pub probe: u32,
    /// How many there are in each column.
    pub counts: Vec<usize>,
    /// Whether all were counted. Otherwise the numbers are estimates.
    pub exact: bool,
}

impl Density {
    /// All hits.
    pub fn sum(&self) -> usize {
        self.counts.iter().sum()
    }
}

impl App {
    /// The part of the run that the timeline shows.
    pub fn window(&self) -> (u64, u64) {
        let end = self.end();
        let span = (end >> self.zoom.min(63)).max(64).min(end);
        let from = self.at().saturating_sub(span / 2).min(end - span);
        (from, from + span)
    }

    /// The first instruction count of a column.
    pub fn edge(&self, column: usize, width: usize) -> u64 {
        let (from, to) = self.window();
        from + (u128::from(to - from) * column as u128 / width.max(1) as u128) as u64
    }

    /// The column of an instruction count, if it is shown.
    pub fn column_of(&self, at: u64, width: usize) -> Option<usize> {
        let (from, to) = self.window();
        let column = u128::from(at.checked_sub(from)?) * width as u128 / u128::from((to - from).max(1));
        (at <= to).then(|| (column as usize).min(width.saturating_sub(1)))
    }

    /// The numbers of the hits in each column.
    pub fn hits_in_columns(&self, width: usize) -> Vec<Range<usize>> {
        let first = |column| self.run.hits.first_from(self.edge(column, width));
        let edges: Vec<usize> = (0..=width).map(first).collect();
        edges.iter().zip(edges.iter().skip(1)).map(|(from, to)| *from..*to.max(from)).collect()
    }

    /// The hits of the probes that have most of them, so many probes.
    pub fn densities(&self, width: usize, most: usize) -> Vec<Density> {
        let columns = self.hits_in_columns(width);
        let exact = columns.iter().all(|hits| hits.len() <= COUNTED);
        let mut sums: BTreeMap<u32, usize> = BTreeMap::new();
        for hits in &columns {
            self.counted(hits, |probe, share| *sums.entry(probe).or_default() += share);
        }
        let mut probes: Vec<(u32, usize)> = sums.into_iter().collect();
        probes.sort_by_key(|(probe, sum)| (usize::MAX - sum, *probe));
        probes.truncate(most);
        let new = |(probe, _): &(u32, usize)| Density { probe: *probe, counts: vec![0; width], exact };
        let mut all: Vec<Density> = probes.iter().map(new).collect();
        let rows: BTreeMap<u32, usize> = (0..).zip(&all).map(|(row, own)| (own.probe, row)).collect();
        for (column, hits) in columns.iter().enumerate() {
            self.counted(hits, |probe, share| {
                let own = rows.get(&probe).and_then(|row| all.get_mut(*row)?.counts.get_mut(column));
                own.into_iter().for_each(|count| *count += share);
            });
        }
        all
    }

    /// Counts hits by their probes: all, or some of them that stand for as many others.
    fn counted(&self, hits: &Range<usize>, mut count: impl FnMut(u32, usize)) {
        let taken = hits.len().min(COUNTED);
        let nth = |n: usize| hits.start + hits.len() * n / taken.max(1);
        for n in 0..taken {
            if let Some(hit) = self.run.hits.get(nth(n)) {
                count(hit.probe, nth(n + 1) - nth(n));
            }
        }
    }

    /// Goes to a column of a chart.
    pub(super) fn click_time(&mut self, column: u16, chart: Rect) -> Vec<Effect> {
        let icount = self.edge(column.saturating_sub(chart.x).into(), chart.width.into());
        self.go(Move::To(Position::At { icount, ordinal: 0 }), None, format!("to {icount}"))
    }
}
