//! A piece of the list: consecutive hits, column by column, in 18 bytes each where they are near each other, and in 22 where they
//! are not.

use super::Hit;
use super::large::Maker;

/// Hits of a piece.
pub const PIECE: usize = 1 << 13;
/// Hits whose data have their beginning noted once.
const GROUP: usize = 64;
/// Bits that say which probes a whole piece has.
const BITS: usize = 1 << 13;
/// The lowest linear address of 48 bits, sign-extended.
const LOWEST: u64 = 0xffff_8000_0000_0000;

/// Counts hits that this thread looks at: what a step costs on any host. Tests read it.
#[cfg(test)]
pub mod looks {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub fn add(hits: usize) {
        COUNT.set(COUNT.get() + hits);
    }

    /// How many it has been so far.
    pub fn count() -> usize {
        COUNT.get()
    }
}

#[cfg(not(test))]
mod looks {
    pub const fn add(_: usize) {}
}

/// Adds a value; if there is no room, room for so many is made.
fn put<T>(values: &mut Vec<T>, value: T, step: usize) {
    if values.len() == values.capacity() {
        values.reserve_exact(step.max(1));
    }
    values.push(value);
}

/// Numbers that are near each other take 4 bytes; others 6, within 48 bits; else all take 8.
#[derive(Debug)]
struct Values {
    /// What numbers of 6 bytes are counted from.
    base: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Offsets from this number.
    Near(u64, Vec<u32>),
    /// The lower and the upper bits of offsets.
    Far(Vec<u32>, Vec<u16>),
    Whole(Vec<u64>),
}

impl Values {
    /// Numbers at this one and above.
    const fn above(base: u64, offsets: Vec<u32>) -> Self {
        Self { base, form: Form::Near(base, offsets) }
    }

    /// Linear addresses around this one.
    const fn around(middle: u64, offsets: Vec<u32>) -> Self {
        Self { base: LOWEST, form: Form::Near(middle.wrapping_sub(1 << 31), offsets) }
    }

    fn push(&mut self, value: u64, step: usize) {
        let far = value.wrapping_sub(self.base);
        match &mut self.form {
            Form::Near(base, offsets) => match u32::try_from(value.wrapping_sub(*base)) {
                Ok(offset) => return put(offsets, offset, step),
                Err(_) => self.take_more_room(),
            },
            Form::Far(low, high) => match u16::try_from(far >> 32) {
                Ok(upper) => {
                    put(low, far as u32, step);
                    return put(high, upper, step);
                }
                Err(_) => self.take_more_room(),
            },
            Form::Whole(values) => return put(values, value, step),
        }
        self.push(value, step);
    }

    /// Takes the form with more bytes.
    fn take_more_room(&mut self) {
        let room = match &self.form {
            Form::Near(_, offsets) => offsets.capacity(),
            Form::Far(low, _) => low.capacity(),
            Form::Whole(_) => return,
        };
        let values = (0..room).map_while(|n| self.get(n));
        let fits = |value: u64| value.wrapping_sub(self.base) >> 48 == 0;
        let mut form = match self.form {
            Form::Near(..) if values.clone().all(fits) => {
                Form::Far(Vec::with_capacity(room), Vec::with_capacity(room))
            }
            _ => Form::Whole(Vec::with_capacity(room)),
        };
        for value in values {
            match &mut form {
                Form::Far(low, high) => {
                    let far = value.wrapping_sub(self.base);
                    low.push(far as u32);
                    high.push((far >> 32) as u16);
                }
                Form::Whole(all) => all.push(value),
                Form::Near(..) => {}
            }
        }
        self.form = form;
    }

    fn get(&self, n: usize) -> Option<u64> {
        Some(match &self.form {
            Form::Near(base, offsets) => base.wrapping_add(u64::from(*offsets.get(n)?)),
            Form::Far(low, high) => {
                self.base.wrapping_add(u64::from(*high.get(n)?) << 32 | u64::from(*low.get(n)?))
            }
            Form::Whole(values) => *values.get(n)?,
        })
    }

    fn len(&self) -> usize {
        match &self.form {
            Form::Near(_, values) | Form::Far(values, _) => values.len(),
            Form::Whole(values) => values.len(),
        }
    }

    /// Of ascending numbers: how many are smaller than this one.
    fn before(&self, value: u64) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle) {
                Some(own) if own < value => from = middle + 1,
                _ => to = middle,
            }
        }
        from
    }

    const fn bytes(&self) -> usize {
        match &self.form {
            Form::Near(_, offsets) => offsets.capacity() * size_of::<u32>(),
            Form::Far(low, high) => low.capacity() * size_of::<u32>() + high.capacity() * size_of::<u16>(),
            Form::Whole(values) => values.capacity() * size_of::<u64>(),
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
    /// Of a whole piece: a bit for each probe that occurs. Probes whose numbers are [`BITS`] apart share one.
    probes: Vec<u64>,
    /// The data of the first hits, one after the other.
    logged: Vec<u8>,
    /// The number of bytes of each of these.
    lengths: Vec<u16>,
    /// Where the data of each [`GROUP`]th begin.
    starts: Vec<u32>,
}

impl Piece {
    /// An empty piece for hits from this one on. A maker gives it room for as many as it may have; without one, it grows.
    pub fn new(hit: Hit, maker: Option<&Maker<u32>>) -> Self {
        let part = || maker.map(Maker::part).unwrap_or_default();
        Self {
            at: Values::above(hit.at, part()),
            ip: Values::around(hit.ip, part()),
            probe: part(),
            pid: part(),
            probes: Vec::new(),
            logged: Vec::new(),
            lengths: Vec::new(),
            starts: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.probe.len()
    }

    /// Adds a hit. If there is no room, room for so many is made.
    pub fn add(&mut self, hit: Hit, step: usize) {
        let step = step.min(PIECE - self.len().min(PIECE));
        self.at.push(hit.at, step);
        self.ip.push(hit.ip, step);
        put(&mut self.probe, hit.probe, step);
        put(&mut self.pid, hit.pid, step);
        if self.len() == PIECE {
            self.probes = vec![0; BITS / 64];
            for probe in &self.probe {
                let bit = *probe as usize % BITS;
                if let Some(word) = self.probes.get_mut(bit / 64) {
                    *word |= 1 << (bit % 64);
                }
            }
        }
    }

    /// Keeps the data of the first hit that has none yet.
    pub fn keep(&mut self, data: &[u8], step: usize) {
        let data = data.get(..usize::from(u16::MAX)).unwrap_or(data);
        if self.lengths.len().is_multiple_of(GROUP) {
            let start = u32::try_from(self.logged.len()).unwrap_or(u32::MAX);
            put(&mut self.starts, start, step / GROUP);
        }
        self.logged.extend_from_slice(data);
        let step = step.min(PIECE - self.lengths.len().min(PIECE));
        put(&mut self.lengths, data.len() as u16, step);
    }

    pub fn get(&self, n: usize) -> Option<Hit> {
        looks::add(1);
        Some(Hit {
            at: self.at.get(n)?,
            ip: self.ip.get(n)?,
            probe: *self.probe.get(n)?,
            pid: *self.pid.get(n)?,
        })
    }

    pub fn logged(&self, n: usize) -> Option<&[u8]> {
        let length = usize::from(*self.lengths.get(n)?);
        let before = self.lengths.get(n / GROUP * GROUP..n)?.iter().map(|length| usize::from(*length));
        let start = *self.starts.get(n / GROUP)? as usize + before.sum::<usize>();
        self.logged.get(start..start + length)
    }

    /// How many are before this instruction count.
    pub fn before(&self, at: u64) -> usize {
        self.at.before(at)
    }

    /// Whether hits of a probe may be here.
    fn has(&self, probe: u32) -> bool {
        let bit = probe as usize % BITS;
        self.probes.get(bit / 64).is_none_or(|word| word >> (bit % 64) & 1 != 0)
    }

    /// The first hit of a probe from this one on.
    pub fn next_of(&self, probe: u32, from: usize) -> Option<usize> {
        let rest = self.probe.get(from..).filter(|_| self.has(probe))?;
        let found = rest.iter().position(|own| *own == probe);
        looks::add(found.unwrap_or(rest.len()));
        found.map(|n| from + n)
    }

    /// The last hit of a probe before this one.
    pub fn previous_of(&self, probe: u32, before: usize) -> Option<usize> {
        let first = self.probe.get(..before.min(self.len())).filter(|_| self.has(probe))?;
        let found = first.iter().rposition(|own| *own == probe);
        looks::add(found.map_or(first.len(), |n| first.len() - n));
        found
    }

    /// The bytes that it takes without the data, and those of the data.
    pub const fn bytes(&self) -> (usize, usize) {
        let words = self.probe.capacity() + self.pid.capacity() + self.starts.capacity();
        let lengths = self.lengths.capacity() * size_of::<u16>();
        let columns = self.at.bytes() + self.ip.bytes() + words * size_of::<u32>() + lengths;
        (columns + self.probes.capacity() * size_of::<u64>(), self.logged.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(hits: &[Hit]) -> Piece {
        let mut piece = Piece::new(hits[0], None);
        hits.iter().for_each(|hit| piece.add(*hit, 1));
        piece
    }

    #[test]
    fn hits_come_out_as_they_went_in_however_far_apart_they_are() {
        let addresses =
            [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040, 0xffff_ffff_8000_0000, 0x1000, 1 << 52, u64::MAX];
        let counts = [0, 1 << 20, 1 << 33, (1 << 47) + 5, 1 << 48, u64::MAX];
        let hit = |(n, (at, ip)): (u32, (u64, u64))| Hit { at, ip, probe: n * 40, pid: 7 };
        let hits: Vec<Hit> = (0..).zip(counts.into_iter().zip(addresses)).map(hit).collect();
        for count in 1..=hits.len() {
            let piece = piece(&hits[..count]);
            assert_eq!((0..).map_while(|n| piece.get(n)).collect::<Vec<_>>(), hits[..count]);
            for (n, hit) in hits[..count].iter().enumerate() {
                assert_eq!(piece.before(hit.at), n);
                assert_eq!(piece.before(hit.at.saturating_add(1)), n + usize::from(hit.at < u64::MAX));
                assert_eq!(piece.next_of(hit.probe, 0), Some(n));
                assert_eq!(
                    (piece.previous_of(hit.probe, n), piece.previous_of(hit.probe, n + 1)),
                    (None, Some(n))
                );
            }
        }
    }

    #[test]
    fn a_hit_of_a_whole_piece_takes_19_bytes_near_others_and_23_far_from_them() {
        let bytes = |apart: u64, user: u64| {
            let ip = |n: u64| if n.is_multiple_of(2) { 0xffff_ffff_8100_0000 + n } else { user + n };
            let hits: Vec<Hit> =
                (0..PIECE as u64).map(|n| Hit { at: n * apart, ip: ip(n), probe: 5, pid: 1 }).collect();
            let mut piece = piece(&hits);
            (0..PIECE).for_each(|n| piece.keep(&[1, 2, 3][..n % 4], 1));
            assert_eq!((piece.get(77), piece.logged(77)), (Some(hits[77]), Some(&[1][..])));
            assert_eq!((piece.next_of(4, 0), piece.next_of(5, 9)), (None, Some(9)));
            piece.bytes().0
        };
        assert!(bytes(90, 0xffff_ffff_8200_0000) < PIECE * 19);
        assert!(bytes(3_000_000_000, 0x7fff_1234_5678) < PIECE * 23);
    }
}
