//! A million random operations, and a slow model of channels: lists of lists of records.

use std::collections::VecDeque;

use trapline_dti::{Channel, Contents};

use super::harness::Harness;

const CPUS: usize = 3;
const OPERATIONS: usize = 1_000_000;
const BATCH: usize = 2_000;

#[derive(Clone, Debug, PartialEq)]
struct Written {
    time: u64,
    data: Vec<u8>,
}

/// The ring of a CPU.
#[derive(Default)]
struct Ring {
    /// Sub-buffers that still exist, oldest first; each with its number.
    subbufs: VecDeque<(u64, Vec<Written>)>,
    /// Where the guest's reading goes on: sub-buffer and record.
    read: (u64, usize),
    too_long: u32,
}

struct Model {
    size: usize,
    n: usize,
    level: i32,
    rings: Vec<Ring>,
}

impl Model {
    fn new(size: usize, n: usize) -> Self {
        let ring = || Ring { subbufs: VecDeque::from([(0, Vec::new())]), ..Ring::default() };
        Self { size, n, level: 3, rings: (0..CPUS).map(|_| ring()).collect() }
    }

    fn enter_next(&mut self, cpu: usize) {
        let ring = &mut self.rings[cpu];
        let next = ring.subbufs.back().unwrap().0 + 1;
        ring.subbufs.push_back((next, Vec::new()));
        while ring.subbufs.len() > self.n {
            ring.subbufs.pop_front();
        }
    }

    /// Whether it is written.
    fn write(&mut self, cpu: usize, prio: i32, data: Vec<u8>, clock: &mut u64) -> bool {
        if prio < 0 || prio > self.level {
            return false;
        }
        if 10 + data.len() > self.size {
            self.rings[cpu].too_long += 1;
            return false;
        }
        let used =
            |records: &[Written]| -> usize { records.iter().map(|record| 10 + record.data.len()).sum() };
        if used(&self.rings[cpu].subbufs.back().unwrap().1) + 10 + data.len() > self.size {
            self.enter_next(cpu);
        }
        let mut time = *clock;
        *clock += 1;
        if time as u32 == 0 {
            time |= 1;
        }
        self.rings[cpu].subbufs.back_mut().unwrap().1.push(Written { time, data });
        true
    }

    fn oldest(&self, cpu: usize) -> u64 {
        let subbufs = &self.rings[cpu].subbufs;
        let filled = subbufs.iter().find(|(_, records)| !records.is_empty());
        filled.or(subbufs.back()).unwrap().0
    }

    /// The records that a read into so many bytes gives.
    fn read(&mut self, cpu: usize, mut room: usize) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let newest = self.rings[cpu].subbufs.back().unwrap().0;
            let first = newest.saturating_sub(self.n as u64 - 1);
            if self.rings[cpu].read.0 < first {
                self.rings[cpu].read = (self.oldest(cpu), 0);
            }
            let ring = &mut self.rings[cpu];
            let records =
                ring.subbufs.iter().find(|(number, _)| *number == ring.read.0).map(|(_, records)| records);
            match records.and_then(|records| records.get(ring.read.1)) {
                Some(record) if 10 + record.data.len() <= room => {
                    out.extend((record.data.len() as u16).to_le_bytes());
                    out.extend(record.time.to_le_bytes());
                    out.extend(&record.data);
                    room -= 10 + record.data.len();
                    ring.read.1 += 1;
                }
                Some(_) => return out,
                None if ring.read.0 == newest => return out,
                None => ring.read = (ring.read.0 + 1, 0),
            }
        }
    }

    fn reset(&mut self) {
        for cpu in 0..CPUS {
            self.rings[cpu].read = (self.oldest(cpu), 0);
        }
    }

    /// What the host must find.
    fn check(&self, channel: &Channel, contents: &Contents) {
        assert_eq!(channel.level(), self.level);
        assert_eq!(channel.subbufs(), (self.n as u32, self.size as u32));
        let mut expected = Vec::new();
        for (cpu, ring) in self.rings.iter().enumerate() {
            let newest = ring.subbufs.back().unwrap().0;
            let lost = ring.read.0 < newest.saturating_sub(self.n as u64 - 1);
            for (number, records) in &ring.subbufs {
                for (index, record) in records.iter().enumerate() {
                    let unread = lost || (*number, index) >= ring.read;
                    expected.push((record.time, cpu as u16, unread, record.data.clone()));
                }
            }
            let state = &contents.cpus[cpu];
            assert_eq!((state.too_long, state.nested, state.incomplete), (ring.too_long, 0, 0));
            assert_eq!((state.entered, &state.damage), (newest + 1, &None));
        }
        expected.sort_by_key(|(time, cpu, ..)| (*time, *cpu));
        let found: Vec<_> = contents
            .records()
            .map(|record| (record.time, record.cpu, record.unread, record.data.to_vec()))
            .collect();
        assert_eq!(found, expected, "{}", channel.name());
    }
}

/// The data of a length, as the harness makes them.
fn data(len: u32, seed: u32) -> Vec<u8> {
    (0..len).map(|n| (seed + n * 7) as u8).collect()
}

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

#[test]
fn a_million_operations_do_what_the_slow_model_does() {
    // Sub-buffers of one record, of the smallest size, of a page; rings of one sub-buffer.
    let shapes = [(16, 2), (40, 1), (100, 3), (512, 8), (4096, 2), (300, 5)];
    let mut harness = Harness::start();
    let mut models: Vec<Model> = Vec::new();
    for (slot, (size, n)) in (0..).zip(shapes) {
        harness.op('r', [slot, 0, size, n]);
        models.push(Model::new(size as usize, n as usize));
    }
    assert_eq!(harness.results(shapes.len()), [0; 6]);
    let (mut numbers, mut clock, mut expected) = (Numbers(1), 1, Vec::new());
    let mut written = 0;
    for operation in 1..=OPERATIONS {
        random_operation(&mut numbers, &mut models, &mut harness, &mut clock, &mut expected);
        if operation % BATCH == 0 {
            assert_eq!(harness.results(expected.len()), expected);
            expected.clear();
            let memory = harness.memory();
            let found = memory.find();
            assert_eq!((found.channels.len(), found.damaged_count), (models.len(), 0));
            for channel in &found.channels {
                let slot: usize = channel.name().trim_start_matches("channel ").parse().unwrap();
                let contents = channel.read(&memory);
                written = written.max(contents.cpus[0].entered);
                models[slot].check(channel, &contents);
            }
        }
    }
    assert!(written > 10_000, "{written} sub-buffers");
}

/// Does an operation in the harness and in the model, and appends the result that the harness must give.
fn random_operation(
    numbers: &mut Numbers,
    models: &mut [Model],
    harness: &mut Harness,
    clock: &mut u64,
    expected: &mut Vec<u8>,
) {
    let slot = numbers.below(models.len() as u32);
    let cpu = numbers.below(CPUS as u32);
    let model = &mut models[slot as usize];
    let mut status = |done: bool| expected.push(if done { 0 } else { 0xff });
    match numbers.below(100) {
        0..70 => {
            let prio = numbers.below(10) as i32 - 1;
            let most = if numbers.below(20) == 0 { model.size as u32 + 2 } else { model.size as u32 / 3 };
            let len = numbers.below(most + 1);
            harness.op('w', [slot, cpu, prio as u32, len]);
            status(model.write(cpu as usize, prio, data(len, len), clock));
        }
        70..75 => {
            let len = numbers.below(20);
            harness.op('x', [slot, cpu, 0, len]);
            let done = model.write(cpu as usize, 0, data(len, len), clock);
            if done {
                model.enter_next(cpu as usize);
            }
            status(done);
        }
        75..77 => {
            let n = numbers.below(100_000);
            harness.op('p', [slot, cpu, 1, n]);
            status(model.write(cpu as usize, 1, format!("{n} of text\n").into_bytes(), clock));
        }
        77..85 => {
            let level = numbers.below(12) as i32 - 2;
            harness.op('l', [slot, cpu, level as u32, 0]);
            if (-1..=7).contains(&level) {
                model.level = level;
            }
        }
        85..97 => {
            let room = numbers.below(2000);
            harness.op('d', [slot, cpu, room, 0]);
            let read = model.read(cpu as usize, room as usize);
            expected.extend((read.len() as u32).to_le_bytes());
            expected.extend(read);
        }
        97..99 => {
            harness.op('c', [slot, cpu, 0, 0]);
            model.reset();
        }
        _ => {
            // The lower half of the clock passes 0.
            let high = (*clock >> 32) as u32 + 1;
            harness.op('t', [0, 0, high, 0xffff_fffe]);
            *clock = u64::from(high) << 32 | 0xffff_fffe;
        }
    }
}
