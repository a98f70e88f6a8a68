//! The places of the panes: three layouts, selected by the size of the terminal or by the user.

use std::collections::BTreeMap;

use ratatui::layout::{Constraint, Direction, Layout as Split, Rect};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
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
pub fn places(
    size: Rect,
    arrangement: Arrangement,
    shares: &Shares,
    recent: &[Pane],
    zoomed: bool,
) -> Places {
    let rows = Split::vertical([Constraint::Length(HEAD), Constraint::Min(0), Constraint::Length(FOOT)]);
    let [head, middle, foot] = rows.areas(size);
    let panes = match (zoomed, recent.first()) {
        (true, Some(focused)) => vec![(*focused, middle)],
        _ => groups(middle, arrangement.of(size), shares)
            .into_iter()
            .filter_map(|(group, rect)| Some((*recent.iter().find(|pane| group.contains(pane))?, rect)))
            .collect(),
    };
    Places { head, panes, foot }
}

/// A row of places: its share of the height, and its places, each with its share of the width and the panes that it may show.
type Row = (u16, &'static [(u16, &'static [Pane])]);

/// The rows of a layout.
const fn rows_of(arrangement: Arrangement) -> &'static [Row] {
    use Pane::{
        Channels, Code, Console, Handler, Hits, Memory, Probes, Processes, Registers, Stack, Timeline,
        Variables,
    };
    match arrangement {
        Arrangement::Small | Arrangement::BySize => &[
            (45, &[(100, &[Hits, Console, Probes, Processes, Timeline, Channels])]),
            (55, &[(60, &[Code, Handler, Memory]), (40, &[Registers, Stack, Variables])]),
        ],
        Arrangement::Medium => &[
            (40, &[(100, &[Hits, Probes, Timeline, Channels])]),
            (36, &[(60, &[Code, Handler]), (40, &[Registers, Variables])]),
            (24, &[(60, &[Console, Memory]), (40, &[Stack, Processes])]),
        ],
        Arrangement::Large => &[
            (36, &[(60, &[Hits]), (40, &[Probes, Processes, Timeline])]),
            (36, &[(50, &[Code]), (22, &[Registers]), (28, &[Stack, Variables])]),
            (28, &[(35, &[Memory]), (25, &[Handler]), (40, &[Console, Channels])]),
        ],
    }
}

/// The least share of a place that is shown.
const LEAST: u16 = 10;
/// By how much a key changes a share.
const STEP: u16 = 5;

/// The shares that were changed, in percent: for a layout, those of the rows, then those of the places of each row. A place with none is
/// hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares(BTreeMap<Arrangement, Vec<Vec<u16>>>);

/// How a place is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// Gives it more height, or less.
    Height(bool),
    /// Gives it more width, or less.
    Width(bool),
    /// Gives its room to the others.
    Hide,
    /// Shows it again.
    Show,
}

impl Shares {
    fn of(&self, arrangement: Arrangement) -> Vec<Vec<u16>> {
        self.0.get(&arrangement).cloned().unwrap_or_else(|| defaults(arrangement))
    }

    /// Changes the place of a pane in a layout for this size.
    ///
    /// # Errors
    /// A sentence: there is no room, or nothing beside it.
    pub fn change(&mut self, layout: Arrangement, size: Rect, pane: Pane, how: Resize) -> Result<(), String> {
        let layout = layout.of(size);
        let (mut shares, rows) = (self.of(layout), rows_of(layout));
        let place = rows.iter().enumerate().find_map(|(row, (_, places))| {
            Some((row, places.iter().position(|(_, panes)| panes.contains(&pane))?))
        });
        let Some((row, column)) = place else { return Ok(()) };
        match how {
            Resize::Height(more) => take(shares.get_mut(0), row, more)?,
            Resize::Width(more) => take(shares.get_mut(row + 1), column, more)?,
            Resize::Show if !is_hidden(&shares, row, column) => return Ok(()),
            Resize::Show => {
                let before = defaults(layout);
                give(&mut shares, &before, 0, row);
                give(&mut shares, &before, row + 1, column);
            }
            Resize::Hide => {
                let shown = shares.iter().skip(1).zip(shares.first().into_iter().flatten());
                let shown = shown
                    .flat_map(|(places, height)| places.iter().filter(move |share| **share * *height > 0));
                if shown.count() < 2 {
                    return Err("this is the only pane that is shown".to_owned());
                }
                let places = shares.get_mut(row + 1).into_iter().flatten();
                let mut others = 0;
                for (n, share) in places.enumerate() {
                    *share = if n == column { 0 } else { *share };
                    others += *share;
                }
                if others == 0 {
                    shares
                        .first_mut()
                        .and_then(|rows| rows.get_mut(row))
                        .into_iter()
                        .for_each(|share| *share = 0);
                }
            }
        }
        self.0.insert(layout, shares);
        Ok(())
    }

    /// The lines of a session file: the layout's name and its shares.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let numbers = |list: &Vec<u16>| list.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
        self.0.iter().map(move |(layout, shares)| {
            format!("{} {}", layout.name(), shares.iter().map(numbers).collect::<Vec<_>>().join(" / "))
        })
    }

    /// Takes such a line.
    ///
    /// # Errors
    /// A sentence: it is none.
    pub fn read(&mut self, line: &str) -> Result<(), String> {
        let (name, lists) = line.split_once(' ').unwrap_or((line, ""));
        let layout = Arrangement::ALL.into_iter().find(|layout| layout.name() == name);
        let layout = layout.ok_or("there is no such layout")?;
        let list = |text: &str| {
            text.split_whitespace().map(|word| word.parse().ok().filter(|n| *n <= 100)).collect()
        };
        let shares: Option<Vec<Vec<u16>>> = lists.split('/').map(list).collect();
        let alike = |shares: &Vec<Vec<u16>>| {
            let lengths = |lists: &[Vec<u16>]| lists.iter().map(Vec::len).collect::<Vec<_>>();
            let shown =
                |lists: &[Vec<u16>]| lists.first().is_some_and(|rows| rows.iter().any(|share| *share > 0));
            lengths(shares) == lengths(&defaults(layout)) && shown(shares)
        };
        let shares =
            shares.filter(alike).ok_or("it needs a share of 0 to 100 for each row and each place of it")?;
        self.0.insert(layout, shares);
        Ok(())
    }
}

fn defaults(layout: Arrangement) -> Vec<Vec<u16>> {
    let rows = rows_of(layout);
    let heights = rows.iter().map(|(height, _)| *height).collect();
    let widths = rows.iter().map(|(_, places)| places.iter().map(|(width, _)| *width).collect());
    std::iter::once(heights).chain(widths).collect()
}

fn is_hidden(shares: &[Vec<u16>], row: usize, column: usize) -> bool {
    let share = |list: usize, n: usize| shares.get(list).and_then(|list| list.get(n)).copied().unwrap_or(0);
    share(0, row) * share(row + 1, column) == 0
}

/// Gives a hidden share its default.
fn give(shares: &mut [Vec<u16>], before: &[Vec<u16>], list: usize, n: usize) {
    let default = before.get(list).and_then(|list| list.get(n)).copied().unwrap_or(LEAST);
    let share = shares.get_mut(list).and_then(|list| list.get_mut(n));
    share.filter(|share| **share == 0).into_iter().for_each(|share| *share = default);
}

/// Gives a share more, from the next one that is shown, or the one before; or less.
fn take(list: Option<&mut Vec<u16>>, n: usize, more: bool) -> Result<(), String> {
    let list = list.ok_or("there is no such place")?;
    let shown = |at: &usize| list.get(*at).is_some_and(|share| *share > 0);
    let other = (n + 1..list.len()).find(shown).or_else(|| (0..n).rev().find(shown));
    let other = other.ok_or("nothing is beside this pane; z gives it all the room")?;
    let (to, from) = if more { (n, other) } else { (other, n) };
    let left = list.get(from).and_then(|share| share.checked_sub(STEP)).filter(|left| *left >= LEAST);
    let left = left.ok_or("there is no more room")?;
    list.get_mut(from).into_iter().for_each(|share| *share = left);
    list.get_mut(to).into_iter().for_each(|share| *share += STEP);
    Ok(())
}

fn groups(area: Rect, arrangement: Arrangement, shares: &Shares) -> Vec<(&'static [Pane], Rect)> {
    let shares = shares.of(arrangement);
    // Of those that are shown, in percent.
    let split = |direction: Direction, area: Rect, list: &[u16]| {
        let all = list.iter().sum::<u16>().max(1);
        let (last, before) = list.split_last().unwrap_or((&0, &[]));
        let part = |share: &u16| Constraint::Percentage(share * 100 / all);
        let end = if *last == 0 { Constraint::Length(0) } else { Constraint::Min(0) };
        Split::new(direction, before.iter().map(part).chain([end])).split(area).to_vec()
    };
    let mut list = shares.iter();
    let heights = list.next().cloned().unwrap_or_default();
    let rows = split(Direction::Vertical, area, &heights);
    let mut groups = Vec::new();
    let shown_rows = rows.into_iter().zip(heights).zip(list).zip(rows_of(arrangement));
    for (((row, height), widths), (_, places)) in shown_rows {
        let rects = split(Direction::Horizontal, row, widths);
        let shown = places.iter().zip(rects).zip(widths).filter(|(_, share)| **share > 0 && height > 0);
        groups.extend(shown.map(|(((_, panes), rect), _)| (*panes, rect)));
    }
    groups
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
                let places = places(size, Arrangement::BySize, &Shares::default(), &recent, false);
                assert!(
                    places.panes.iter().any(|(pane, _)| *pane == focused),
                    "{focused:?} at {width}x{height}"
                );
                let cells: u32 = places.panes.iter().map(|(_, rect)| rect.area()).sum();
                assert!(cells <= size.area());
            }
        }
    }

    #[test]
    fn places_are_resized_hidden_and_remembered() {
        let size = Rect::new(0, 0, 120, 40);
        let height = |shares: &Shares, pane: Pane| {
            let mut recent = PANES.to_vec();
            recent.retain(|other| *other != pane);
            recent.insert(0, pane);
            let places = places(size, Arrangement::BySize, shares, &recent, false).panes;
            places.into_iter().find(|(shown, _)| *shown == pane).map(|(_, rect)| (rect.width, rect.height))
        };
        let mut shares = Shares::default();
        let mut change = |pane, how| shares.change(Arrangement::BySize, size, pane, how);
        let before = Shares::default();
        assert_eq!(change(Pane::Memory, Resize::Height(true)), Ok(()));
        assert_eq!(change(Pane::Memory, Resize::Width(true)), Ok(()));
        assert_eq!(change(Pane::Stack, Resize::Hide), Ok(()));
        let wide = height(&shares, Pane::Memory).unwrap();
        assert!(wide.0 == 120 && wide.1 > height(&before, Pane::Memory).unwrap().1, "{wide:?}");
        assert_eq!(height(&shares, Pane::Stack), None);
        let mut read = Shares::default();
        shares.lines().for_each(|line| read.read(&line).unwrap());
        assert_eq!(read, shares);
        assert_eq!(shares.change(Arrangement::BySize, size, Pane::Stack, Resize::Show), Ok(()));
        assert!(height(&shares, Pane::Stack).is_some());
        for pane in [Pane::Hits, Pane::Code, Pane::Registers, Pane::Memory] {
            assert_eq!(shares.change(Arrangement::BySize, size, pane, Resize::Hide), Ok(()), "{pane:?}");
        }
        assert!(shares.change(Arrangement::BySize, size, Pane::Stack, Resize::Hide).is_err());
        for wrong in [
            "huge 1 2",
            "medium 40",
            "medium 40 36 24 / 100 / 60 40 / 60 400",
            "medium 0 0 0 / 100 / 60 40 / 60 40",
        ] {
            assert!(Shares::default().read(wrong).is_err(), "{wrong}");
        }
    }
}
