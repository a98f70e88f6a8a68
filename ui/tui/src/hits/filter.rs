//! Filters hits by words in their probes' names, processes and records, and by `pid=N`, `probe=TEXT` and `text=TEXT`. A filter
//! checks a limited number of hits at a time.

use super::{Hit, Hits, Numbers};

/// Most words.
const MOST_WORDS: usize = 64;
/// Bytes of records that are looked through between two events.
const LOOKED_THROUGH: usize = 256 << 10;

/// Why a filter is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A process ID is not a number.
    #[error("`{0}` is not a process id; write pid=7")]
    Pid(String),
    /// There are too many words.
    #[error("a filter has at most {MOST_WORDS} words; this one has {0}")]
    Words(usize),
}

/// A filter, and its matches so far.
#[derive(Debug, Default)]
pub struct Filter {
    text: String,
    words: Vec<String>,
    probe: Vec<String>,
    record: Vec<String>,
    pids: Vec<u32>,
    /// What each probe's name matches, by the number of the probe; none if it has not been met.
    probes: Vec<Option<Known>>,
    rows: Numbers,
    looked: usize,
}

/// What a probe's name matches.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Whether it has all that is wanted of a probe.
    wanted: bool,
    /// A bit for each word that it has.
    words: u64,
}

/// Whether a text has a word, in upper or lower case.
fn has(text: &[u8], word: &str) -> bool {
    word.is_empty() || text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

impl Filter {
    /// Parses a filter; returns none for an empty text.
    ///
    /// # Errors
    /// A process ID is not a number, or there are too many words.
    pub fn parse(text: &str) -> Result<Option<Self>, FilterError> {
        let mut filter = Self { text: text.trim().to_owned(), ..Self::default() };
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or_default();
            match (key.to_ascii_lowercase().as_str(), value) {
                ("pid", pid) => {
                    filter.pids.push(pid.parse().map_err(|_| FilterError::Pid(pid.to_owned()))?);
                }
                ("probe", name) => filter.probe.push(name.to_owned()),
                ("text", text) => filter.record.push(text.to_owned()),
                _ => filter.words.push(word.to_owned()),
            }
        }
        if filter.words.len() > MOST_WORDS {
            return Err(FilterError::Words(filter.words.len()));
        }
        Ok(Some(filter).filter(|filter| !filter.text.is_empty()))
    }

    /// The text as it was typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks this many more hits, or fewer if their records are long; returns whether there are more.
    pub fn look(&mut self, hits: &Hits, most: usize) -> bool {
        let end = hits.len().min(self.looked + most);
        let mut left = LOOKED_THROUGH;
        while self.looked < end && left > 0 {
            let number = self.looked;
            if hits.get(number).is_some_and(|hit| self.holds(hits, number, hit, &mut left)) {
                self.rows.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
            self.looked += 1;
        }
        self.looked < hits.len()
    }

    fn holds(&mut self, hits: &Hits, number: usize, hit: Hit, left: &mut usize) -> bool {
        if !self.pids.is_empty() && !self.pids.contains(&hit.pid) {
            return false;
        }
        let known = self.known(hits, hit.probe);
        let of_name = |nth: usize| known.words >> nth & 1 != 0;
        let is_sure = self.record.is_empty() && (0..self.words.len()).all(of_name);
        if !known.wanted || is_sure {
            return known.wanted;
        }
        let record = hits.logged(number).unwrap_or_default();
        *left = left.saturating_sub(record.len());
        let process = hits.process(hit).unwrap_or_default().as_bytes();
        let mut words = self.words.iter().enumerate();
        words.all(|(nth, word)| of_name(nth) || has(process, word) || has(record, word))
            && self.record.iter().all(|word| has(record, word))
    }

    fn known(&mut self, hits: &Hits, number: u32) -> Known {
        let index = number as usize;
        if self.probes.len() <= index {
            self.probes.resize(index + 1, None);
        }
        if let Some(Some(known)) = self.probes.get(index) {
            return *known;
        }
        let name = hits.probe(number).map(|label| format!("{} {}", label.program, label.name));
        let name = name.unwrap_or_default().into_bytes();
        let bits = self.words.iter().enumerate().map(|(nth, word)| u64::from(has(&name, word)) << nth);
        let words = bits.sum();
        let known = Known { wanted: self.probe.iter().all(|word| has(&name, word)), words };
        if let Some(own) = self.probes.get_mut(index) {
            *own = Some(known);
        }
        known
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
        let label = |number, name: &str| ProbeLabel { number, program: "p.rpn".into(), name: name.into() };
        let hit = |n: u32| Hit { at: n.into(), ip: 0, probe: n % 2, pid: n % 3 };
        hits.add(Batch {
            hits: (0..12).map(hit).collect(),
            probes: vec![label(0, "fbt::do_fork:entry"), label(1, "fbt::do_exit:entry")],
            logged: (0..12).map(|n| format!("open(\"/etc/{n}\")").into_bytes()).collect(),
            processes: vec![(1, 0, "Init".into()), (2, 0, "sh".into())],
        });
        let rows = |text: &str| {
            let mut filter = Filter::parse(text).unwrap().unwrap();
            while filter.look(&hits, 5) {}
            (0..filter.rows().len()).filter_map(|nth| filter.rows().get(nth)).collect::<Vec<u32>>()
        };
        assert_eq!(rows("fork"), [0, 2, 4, 6, 8, 10]);
        assert_eq!(rows("probe=exit pid=1"), [1, 7]);
        assert_eq!(rows("init"), [1, 4, 7, 10]);
        assert_eq!(rows("init fork /ETC/"), [4, 10]);
        assert_eq!(
            (rows("etc/1"), rows("text=etc/1 fork"), rows("text=fork")),
            (vec![1, 10, 11], vec![10], vec![])
        );
        assert!(Filter::parse("  ").unwrap().is_none());
        assert!(Filter::parse("pid=x").is_err());
        assert_eq!(Filter::parse(&"a ".repeat(65)).unwrap_err(), FilterError::Words(65));
    }
}
