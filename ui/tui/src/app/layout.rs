//! The places of the panes: three layouts, selected by the size of the terminal or by the user.

use ratatui::layout::{Constraint, Layout as Split, Rect};

/// A pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pane {
    /// The list of hits.
    Hits,
    /// Disassembly.
    Code,
    /// Registers.
    Registers,
    /// Memory.
    Memory,
    /// Frames and words of the stack.
    Stack,
    /// The probe programs' text.
    Handler,
    /// The guest's console.
    Console,
    /// Probe programs and their points.
    Probes,
    /// Variables of the programs.
    Variables,
    /// Processes and modules.
    Processes,
    /// Saved states, inputs, and hits by probe along the run.
    Timeline,
    /// Channels that drivers trace to, and their records.
    Channels,
}

/// All panes, in the order of their numbers.
pub const PANES: [Pane; 12] = [
    Pane::Hits,
    Pane::Code,
    Pane::Registers,
    Pane::Memory,
    Pane::Stack,
    Pane::Handler,
    Pane::Console,
    Pane::Probes,
    Pane::Variables,
    Pane::Processes,
    Pane::Timeline,
    Pane::Channels,
];

impl Pane {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hits => "Hits",
            Self::Code => "Code",
            Self::Registers => "Registers",
            Self::Memory => "Memory",
            Self::Stack => "Stack",
            Self::Handler => "Handler",
            Self::Console => "Console",
            Self::Probes => "Probes",
            Self::Variables => "Variables",
            Self::Processes => "Processes",
            Self::Timeline => "Timeline",
            Self::Channels => "Channels",
        }
    }

    /// The key that shows it, unless a file of keys says otherwise.
    pub const fn key(self) -> char {
        match self {
            Self::Hits => '1',
            Self::Code => '2',
            Self::Registers => '3',
            Self::Memory => '4',
            Self::Stack => '5',
            Self::Handler => '6',
            Self::Console => '7',
            Self::Probes => '8',
            Self::Variables => '9',
            Self::Processes => '0',
            Self::Timeline => '=',
            Self::Channels => 'd',
        }
    }

    /// Whether its end is what is new: it is scrolled back from there.
    pub const fn begins_at_its_end(self) -> bool {
        matches!(self, Self::Console | Self::Channels)
    }
}

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrangement {
    /// The one that fits the size.
    #[default]
    BySize,
    /// Three places: for 80x24.
    Small,
    /// Five places: for 120x40.
    Medium,
    /// All panes but one: for 200x60.
    Large,
}

impl Arrangement {
    /// All layouts.
    pub const ALL: [Self; 4] = [Self::BySize, Self::Small, Self::Medium, Self::Large];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BySize => "by-size",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }

    /// The next one.
    pub const fn next(self) -> Self {
        match self {
            Self::BySize => Self::Small,
            Self::Small => Self::Medium,
            Self::Medium => Self::Large,
            Self::Large => Self::BySize,
        }
    }

    const fn of(self, size: Rect) -> Self {
        match self {
            Self::BySize if size.width >= 180 && size.height >= 50 => Self::Large,
            Self::BySize if size.width >= 110 && size.height >= 34 => Self::Medium,
            Self::BySize => Self::Small,
            chosen => chosen,
        }
    }
}

/// Rows above the panes: title, timeline, its scale.
const HEAD: u16 = 3;
/// Rows below them: messages, keys.
const FOOT: u16 = 2;

/// The parts of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The rows above the panes.
    pub head: Rect,
    /// The visible panes, each with those that share its place.
    pub panes: Vec<(Pane, Rect)>,
    /// The rows below them.
    pub foot: Rect,
}

/// Divides the screen. `recent` has all panes, the most recently focused first; the first is the focused one.
pub fn places(size: Rect, arrangement: Arrangement, recent: &[Pane], zoomed: bool) -> Places {
    let rows = Split::vertical([Constraint::Length(HEAD), Constraint::Min(0), Constraint::Length(FOOT)]);
    let [head, middle, foot] = rows.areas(size);
    let panes = match (zoomed, recent.first()) {
        (true, Some(focused)) => vec![(*focused, middle)],
        _ => groups(middle, arrangement.of(size))
            .into_iter()
            .filter_map(|(group, rect)| Some((*recent.iter().find(|pane| group.contains(pane))?, rect)))
            .collect(),
    };
    Places { head, panes, foot }
}

fn groups(area: Rect, arrangement: Arrangement) -> Vec<(&'static [Pane], Rect)> {
    use Pane::{
        Channels, Code, Console, Handler, Hits, Memory, Probes, Processes, Registers, Stack, Timeline,
        Variables,
    };
    let percent = |parts: &[u16]| parts.iter().map(|part| Constraint::Percentage(*part)).collect::<Vec<_>>();
    let rows = |area: Rect, parts: &[u16]| Split::vertical(percent(parts)).split(area).to_vec();
    let columns = |area: Rect, parts: &[u16]| Split::horizontal(percent(parts)).split(area).to_vec();
    let (rects, groups): (Vec<Rect>, &[&[Pane]]) = match arrangement {
        Arrangement::Small | Arrangement::BySize => {
            let [top, bottom] = Split::vertical([Constraint::Percentage(45), Constraint::Min(0)]).areas(area);
            let below = columns(bottom, &[60, 40]);
            (
                [vec![top], below].concat(),
                &[
                    &[Hits, Console, Probes, Processes, Timeline, Channels],
                    &[Code, Handler, Memory],
                    &[Registers, Stack, Variables],
                ],
            )
        }
        Arrangement::Medium => {
            let parts = rows(area, &[40, 36, 24]);
            let part = |n: usize| parts.get(n).copied().unwrap_or_default();
            let middle = columns(part(1), &[60, 40]);
            let bottom = columns(part(2), &[60, 40]);
            (
                [vec![part(0)], middle, bottom].concat(),
                &[
                    &[Hits, Probes, Timeline, Channels],
                    &[Code, Handler],
                    &[Registers, Variables],
                    &[Console, Memory],
                    &[Stack, Processes],
                ],
            )
        }
        Arrangement::Large => {
            let parts = rows(area, &[36, 36, 28]);
            let part = |n: usize| parts.get(n).copied().unwrap_or_default();
            let (top, middle) = (columns(part(0), &[60, 40]), columns(part(1), &[50, 22, 28]));
            let bottom = columns(part(2), &[35, 25, 40]);
            (
                [top, middle, bottom].concat(),
                &[
                    &[Hits],
                    &[Probes, Processes, Timeline],
                    &[Code],
                    &[Registers],
                    &[Stack, Variables],
                    &[Memory],
                    &[Handler],
                    &[Console, Channels],
                ],
            )
        }
    };
    groups.iter().copied().zip(rects).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_shows_the_focused_pane_and_overlaps_nowhere() {
        for (width, height) in [(80, 24), (120, 40), (200, 60), (1, 1), (20, 6)] {
            let size = Rect::new(0, 0, width, height);
            for focused in PANES {
                let mut recent = PANES.to_vec();
                recent.retain(|pane| *pane != focused);
                recent.insert(0, focused);
                let places = places(size, Arrangement::BySize, &recent, false);
                assert!(
                    places.panes.iter().any(|(pane, _)| *pane == focused),
                    "{focused:?} at {width}x{height}"
                );
                let cells: u32 = places.panes.iter().map(|(_, rect)| rect.area()).sum();
                assert!(cells <= size.area());
            }
        }
    }
}
