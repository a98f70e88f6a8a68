//! A piece of the list: consecutive hits, column by column, in 20 bytes each where they are near each other.

use super::Hit;

/// Hits of a piece.
pub const PIECE: usize = 1 << 16;

/// Numbers that are near each other take 4 bytes; if one is farther away, all take 8.
#[derive(Debug)]
enum Values {
    /// Offsets from the first number.
    Near(u64, Vec<u32>),
    Whole(Vec<u64>),
}

impl Values {
    /// The numbers lie at this one and above.
    fn above(base: u64) -> Self {
        Self::Near(base, Vec::with_capacity(PIECE))
    }

    /// The numbers lie around this one.
    fn around(middle: u64) -> Self {
        Self::above(middle.wrapping_sub(1 << 31))
    }

    fn push(&mut self, value: u64) {
        match self {
            Self::Whole(values) => values.push(value),
            Self::Near(base, offsets) => match u32::try_from(value.wrapping_sub(*base)) {
                Ok(offset) => offsets.push(offset),
                Err(_) => {
                    let mut values = Vec::with_capacity(PIECE);
                    values.extend(offsets.iter().map(|offset| base.wrapping_add((*offset).into())));
                    values.push(value);
                    *self = Self::Whole(values);
                }
            },
        }
    }

    fn get(&self, n: usize) -> Option<u64> {
        match self {
            Self::Near(base, offsets) => offsets.get(n).map(|offset| base.wrapping_add((*offset).into())),
            Self::Whole(values) => values.get(n).copied(),
        }
    }

    /// Of ascending numbers: how many are smaller than this one.
    fn before(&self, value: u64) -> usize {
        match self {
            Self::Near(base, offsets) => {
                offsets.partition_point(|offset| base.wrapping_add((*offset).into()) < value)
            }
            Self::Whole(values) => values.partition_point(|own| *own < value),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Near(_, offsets) => offsets.capacity() * size_of::<u32>(),
            Self::Whole(values) => values.capacity() * size_of::<u64>(),
        }
    }
}

/// The hits.
#[derive(Debug)]
pub struct Piece {
    at: Values,
    ip: Values,
    probe: Vec<u32>,
    pid: Vec<u32>,
    /// A bit for each probe, up to the last that occurs.
    probes: Vec<u64>,
    /// The logged data of the first hits, one after the other.
    logged: Vec<u8>,
    /// Where the data of each of these ends.
    ends: Vec<u32>,
}

impl Piece {
    /// A piece with its first hit.
    pub fn new(hit: Hit) -> Self {
        let mut piece = Self {
            at: Values::above(hit.at),
            ip: Values::around(hit.ip),
            probe: Vec::with_capacity(PIECE),
            pid: Vec::with_capacity(PIECE),
            probes: Vec::new(),
            logged: Vec::new(),
            ends: Vec::new(),
        };
        piece.add(hit);
        piece
    }

    pub fn len(&self) -> usize {
        self.probe.len()
    }

    pub fn add(&mut self, hit: Hit) {
        let (word, bit) = (hit.probe as usize / 64, hit.probe % 64);
        if self.probes.len() <= word {
            self.probes.resize(word + 1, 0);
        }
        if let Some(word) = self.probes.get_mut(word) {
            *word |= 1 << bit;
        }
        self.at.push(hit.at);
        self.ip.push(hit.ip);
        self.probe.push(hit.probe);
        self.pid.push(hit.pid);
    }

    /// Keeps the data of the first hit that has none yet.
    pub fn keep(&mut self, data: &[u8]) {
        self.logged.extend_from_slice(data);
        self.ends.push(u32::try_from(self.logged.len()).unwrap_or(u32::MAX));
    }

    pub fn get(&self, n: usize) -> Option<Hit> {
        Some(Hit {
            at: self.at.get(n)?,
            ip: self.ip.get(n)?,
            probe: *self.probe.get(n)?,
            pid: *self.pid.get(n)?,
        })
    }

    pub fn logged(&self, n: usize) -> Option<&[u8]> {
        let end = *self.ends.get(n)? as usize;
        let start =
            n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |start| *start as usize);
        self.logged.get(start..end)
    }

    /// How many are before this instruction count.
    pub fn before(&self, at: u64) -> usize {
        self.at.before(at)
    }

    fn has(&self, probe: u32) -> bool {
        self.probes.get(probe as usize / 64).is_some_and(|word| word >> (probe % 64) & 1 != 0)
    }

    /// The first hit of a probe from this one on.
    pub fn next_of(&self, probe: u32, from: usize) -> Option<usize> {
        let rest = self.probe.get(from..).filter(|_| self.has(probe))?;
        rest.iter().position(|own| *own == probe).map(|n| from + n)
    }

    /// The last hit of a probe before this one.
    pub fn previous_of(&self, probe: u32, before: usize) -> Option<usize> {
        let first = self.probe.get(..before.min(self.len())).filter(|_| self.has(probe))?;
        first.iter().rposition(|own| *own == probe)
    }

    /// The bytes that it takes without the data, and those of the data.
    pub fn bytes(&self) -> (usize, usize) {
        let words = self.probe.capacity() + self.pid.capacity() + self.ends.capacity();
        let list = self.at.bytes() + self.ip.bytes() + words * size_of::<u32>() + self.probes.capacity() * 8;
        (list, self.logged.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_come_out_as_they_went_in_however_far_apart_they_are() {
        let addresses =
            [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040, 0xffff_ffff_8000_0000, 0x1000, u64::MAX];
        let hit = |(n, ip): (u64, u64)| Hit { at: n * n * n * 700_000_000, ip, probe: n as u32 * 40, pid: 7 };
        let hits: Vec<Hit> = (0..).zip(addresses).map(hit).collect();
        for count in 1..=hits.len() {
            let mut piece = Piece::new(hits[0]);
            hits[1..count].iter().for_each(|hit| piece.add(*hit));
            assert_eq!((0..).map_while(|n| piece.get(n)).collect::<Vec<_>>(), hits[..count]);
            for (n, hit) in hits[..count].iter().enumerate() {
                assert_eq!((piece.before(hit.at), piece.before(hit.at + 1)), (n, n + 1));
                assert_eq!(piece.next_of(hit.probe, 0), Some(n));
                assert_eq!(
                    (piece.previous_of(hit.probe, n), piece.previous_of(hit.probe, n + 1)),
                    (None, Some(n))
                );
            }
        }
    }

    #[test]
    fn hits_that_are_near_each_other_take_20_bytes() {
        let hit = |n: u64| Hit { at: n * 90, ip: 0xffff_ffff_8100_0000 + n, probe: 5, pid: 1 };
        let mut piece = Piece::new(hit(0));
        (1..PIECE as u64).for_each(|n| piece.add(hit(n)));
        (0..PIECE).for_each(|_| piece.keep(&[1, 2]));
        assert_eq!(piece.logged(PIECE - 1), Some(&[1, 2][..]));
        assert_eq!(piece.bytes().0, PIECE * 20 + 8 * piece.probes.capacity());
    }
}
