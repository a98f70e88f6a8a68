//! Filters hits by words of their probes' names, `pid=N` and `probe=TEXT`. A filter checks a limited number of hits at
//! a time.

use super::{Hit, Hits, Numbers};

/// Why a filter is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A process ID is not a number.
    #[error("`{0}` is not a process id; write pid=7")]
    Pid(String),
}

/// A filter, and its matches so far.
#[derive(Debug, Default)]
pub struct Filter {
    text: String,
    words: Vec<String>,
    probe: Vec<String>,
    pids: Vec<u32>,
    /// Whether each probe's name is wanted, by its number; none if it has not been met.
    probes: Vec<Option<bool>>,
    rows: Numbers,
    looked: usize,
}

impl Filter {
    /// Parses a filter; returns none for an empty text.
    ///
    /// # Errors
    /// A process ID is not a number.
    pub fn parse(text: &str) -> Result<Option<Self>, FilterError> {
        let mut filter = Self { text: text.trim().to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("pid", pid)) => {
                    filter.pids.push(pid.parse().map_err(|_| FilterError::Pid(pid.to_owned()))?);
                }
                Some(("probe", name)) => filter.probe.push(name.to_lowercase()),
                _ => filter.words.push(word.to_lowercase()),
            }
        }
        Ok(Some(filter).filter(|filter| !filter.text.is_empty()))
    }

    /// The text as it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks this many more hits; returns whether there are more.
    pub fn look(&mut self, hits: &Hits, most: usize) -> bool {
        let end = hits.len().min(self.looked + most);
        for number in self.looked..end {
            if hits.get(number).is_some_and(|hit| self.holds(hits, hit)) {
                self.rows.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
        }
        self.looked = end;
        end < hits.len()
    }

    fn holds(&mut self, hits: &Hits, hit: Hit) -> bool {
        if !self.pids.is_empty() && !self.pids.contains(&hit.pid) {
            return false;
        }
        if self.is_probe_wanted(hits, hit.probe) {
            return true;
        }
        let process = || hits.process(hit.pid).unwrap_or_default();
        self.probe.is_empty()
            && !self.words.is_empty()
            && self.words.iter().all(|word| process().contains(word.as_str()))
    }

    fn is_probe_wanted(&mut self, hits: &Hits, number: u32) -> bool {
        let index = number as usize;
        if self.probes.len() <= index {
            self.probes.resize(index + 1, None);
        }
        if let Some(Some(known)) = self.probes.get(index) {
            return *known;
        }
        let name = hits.probe(number).map(|label| format!("{} {}", label.program, label.name).to_lowercase());
        let name = name.unwrap_or_default();
        let wanted = self.probe.iter().chain(&self.words).all(|word| name.contains(word));
        if let Some(known) = self.probes.get_mut(index) {
            *known = Some(wanted);
        }
        wanted
    }

    /// The numbers of the matching hits.
    pub const fn rows(&self) -> &Numbers {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, ProbeLabel};
    use super::*;

    #[test]
    fn words_probes_and_processes_are_filtered() {
        let mut hits = Hits::default();
        let label = |number, name: &str| ProbeLabel {
            number,
            program: "p.rpn".into(),
            name: name.into(),
            prints: false,
        };
        let hit = |n: u32| Hit { at: n.into(), ip: 0, probe: n % 2, pid: n % 3 };
        hits.add(Batch {
            hits: (0..12).map(hit).collect(),
            probes: vec![label(0, "fbt::do_fork:entry"), label(1, "fbt::do_exit:entry")],
            processes: vec![(1, "init".into()), (2, "sh".into())],
            ..Batch::default()
        });
        let rows = |text: &str| {
            let mut filter = Filter::parse(text).unwrap().unwrap();
            while filter.look(&hits, 5) {}
            (0..filter.rows().len()).filter_map(|nth| filter.rows().get(nth)).collect::<Vec<u32>>()
        };
        assert_eq!(rows("fork"), [0, 2, 4, 6, 8, 10]);
        assert_eq!(rows("probe=exit pid=1"), [1, 7]);
        assert_eq!(rows("init"), [1, 4, 7, 10]);
        assert!(Filter::parse("  ").unwrap().is_none());
        assert!(Filter::parse("pid=x").is_err());
    }
}
