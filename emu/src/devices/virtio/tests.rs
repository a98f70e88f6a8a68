//! The virtio devices through a driver that lives here, and through one that breaks every rule.

use super::*;

const RAM: usize = 1 << 20;
const DESCRIPTORS: u64 = 0x1000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Rings of a second queue lie this far on.
const SECOND: u64 = 0x4000;
const HEADER: u64 = 0x9000;
const STATUS: u64 = 0x9100;
const DATA: u64 = 0x1_0000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;

struct TestRam(Vec<u8>);

impl Memory for TestRam {
    fn read(&self, paddr: u64, to: &mut [u8]) -> bool {
        let from = usize::try_from(paddr).ok().and_then(|at| self.0.get(at..at.checked_add(to.len())?));
        from.map(|from| to.copy_from_slice(from)).is_some()
    }
    fn write(&mut self, paddr: u64, from: &[u8]) -> bool {
        let to = usize::try_from(paddr).ok().and_then(|at| self.0.get_mut(at..at.checked_add(from.len())?));
        to.map(|to| to.copy_from_slice(from)).is_some()
    }
}

/// A device and its driver.
struct Bench {
    device: VirtioMmio,
    ram: TestRam,
    now: u64,
    available: [u16; 2],
}

impl Bench {
    fn reset(function: Function) -> Self {
        Bench { device: VirtioMmio::new(function), ram: TestRam(vec![0; RAM]), now: 0, available: [0; 2] }
    }

    /// Up to DRIVER_OK, with queues of 8 (virtio 1.2, 3.1.1).
    fn new(function: Function) -> Self {
        let mut bench = Self::reset(function);
        bench.set_up(8);
        bench
    }

    fn disk(sectors: u32) -> Self {
        let bytes: Vec<u8> = (0..sectors * 512).map(|n| (n / 512) as u8).collect();
        Self::new(Function::Block(Block::new(DiskImage::from_bytes(&bytes).unwrap())))
    }

    fn set_up(&mut self, size: u32) {
        assert_eq!((self.read(0x00), self.read(0x04)), (0x7472_6976, 2));
        self.write(0x70, 0);
        self.write(0x70, 1);
        self.write(0x70, 3);
        for select in [0, 1] {
            self.write(0x14, select);
            let features = self.read(0x10);
            self.write(0x24, select);
            self.write(0x20, features);
        }
        self.write(0x70, 11);
        assert_eq!(self.read(0x70), 11, "features agreed");
        for queue in 0..2u32 {
            self.write(0x30, queue);
            if self.read(0x34) == 0 {
                continue;
            }
            self.write(0x38, size);
            for (register, at) in [(0x80, DESCRIPTORS), (0x90, AVAILABLE), (0xa0, USED)] {
                self.write(register, at as u32 + queue * SECOND as u32);
                self.write(register + 4, 0);
            }
            self.write(0x44, 1);
            assert_eq!(self.read(0x44), 1);
        }
        self.write(0x70, 15);
    }

    fn read(&mut self, offset: u16) -> u32 {
        self.device.read(offset, 4)
    }

    fn write(&mut self, offset: u16, value: u32) {
        self.device.write(offset, 4, value, self.now);
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) {
        assert!(self.ram.write(at, bytes));
    }

    fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        self.ram.0[at as usize..at as usize + len].to_vec()
    }

    fn descriptor(&mut self, queue: u64, n: u64, (paddr, len, flags, next): (u64, u32, u16, u16)) {
        let at = DESCRIPTORS + queue * SECOND + n * 16;
        self.poke(at, &paddr.to_le_bytes());
        self.poke(at + 8, &len.to_le_bytes());
        self.poke(at + 12, &flags.to_le_bytes());
        self.poke(at + 14, &next.to_le_bytes());
    }

    fn offer(&mut self, queue: u64, head: u16) {
        let index = &mut self.available[queue as usize];
        let slot = u64::from(*index % 8);
        *index += 1;
        let index = *index;
        self.poke(AVAILABLE + queue * SECOND + 4 + slot * 2, &head.to_le_bytes());
        self.poke(AVAILABLE + queue * SECOND + 2, &index.to_le_bytes());
        self.write(0x50, queue as u32);
    }

    /// Lets everything happen that is due.
    fn run(&mut self) {
        for _ in 0..1000 {
            let Some(due) = self.device.next_event() else { return };
            self.now = self.now.max(due);
            let now = self.now;
            self.device.serve(now, &mut self.ram);
        }
        panic!("the device never comes to rest");
    }

    /// Used index, and the last element's descriptor and length.
    fn used(&self, queue: u64) -> (u16, u32, u32) {
        let at = USED + queue * SECOND;
        let word = |at| u32::from_le_bytes(self.peek(at, 4).try_into().unwrap());
        let index = (word(at) >> 16) as u16;
        let last = at + 4 + 8 * u64::from(index.wrapping_sub(1) % 8);
        (index, word(last), word(last + 4))
    }

    /// A disk request; its status byte.
    fn request(&mut self, kind: u32, sector: u64, data: &[(u64, u32)], device_writes: bool) -> u8 {
        self.poke(HEADER, &kind.to_le_bytes());
        self.poke(HEADER + 8, &sector.to_le_bytes());
        self.poke(STATUS, &[0xee]);
        self.descriptor(0, 0, (HEADER, 16, NEXT, 1));
        let flags = NEXT | if device_writes { WRITE } else { 0 };
        for (n, (paddr, len)) in (1..).zip(data) {
            self.descriptor(0, n, (*paddr, *len, flags, n as u16 + 1));
        }
        self.descriptor(0, data.len() as u64 + 1, (STATUS, 1, WRITE, 0));
        self.offer(0, 0);
        self.run();
        self.peek(STATUS, 1)[0]
    }

    fn needs_reset(&mut self) -> bool {
        self.read(0x70) & 0x40 != 0
    }
}

#[test]
fn a_disk_is_read_in_pieces_and_interrupts_when_it_is_done() {
    let mut b = Bench::disk(64);
    assert_eq!((b.read(0x08), b.read(0x100), b.read(0x104), b.read(0x114)), (2, 64, 0, 512));
    assert_eq!(b.request(0, 3, &[(DATA, 512), (DATA + 0x5000, 1024)], true), 0);
    assert_eq!(b.peek(DATA, 512), [3; 512]);
    assert_eq!(b.peek(DATA + 0x5000, 512), [4; 512]);
    assert_eq!(b.peek(DATA + 0x5200, 512), [5; 512]);
    assert_eq!(b.used(0), (1, 0, 1537));
    assert!(b.device.irq());
    assert_eq!(b.read(0x60), 1);
    b.write(0x64, 1);
    assert!(!b.device.irq());
}

#[test]
fn a_request_takes_time_by_its_bytes() {
    let mut b = Bench::disk(64);
    b.now = 1_000;
    b.request(0, 0, &[(DATA, 4096)], true);
    let (first, after) = (1_000 + REQUEST_NS, 1_000 + 2 * REQUEST_NS + 4096 * BYTE_NS);
    assert_eq!(b.now, after, "and then it checks for further requests");
    assert!(first < after);
}

#[test]
fn a_queue_that_is_notified_before_the_driver_is_ready_is_served_when_it_is() {
    let mut b = Bench::new(Function::Entropy(Entropy::default()));
    // Ready for all but DRIVER_OK, as Linux 5.10 is when its driver asks for the first bytes.
    b.write(0x70, 11);
    b.descriptor(0, 0, (DATA, 64, WRITE, 0));
    b.offer(0, 0);
    assert_eq!(b.device.next_event(), None);
    b.run();
    assert_eq!((b.used(0).0, b.device.irq()), (0, false));
    b.now = 5_000;
    b.write(0x70, 15);
    assert_eq!(b.device.next_event(), Some(5_000 + REQUEST_NS));
    b.run();
    assert_eq!((b.used(0), b.device.irq()), ((1, 0, 64), true));
    assert_ne!(b.peek(DATA, 64), [0; 64]);
    // A reset forgets it.
    b.write(0x70, 11);
    b.offer(0, 0);
    (b.available, b.now) = ([0; 2], 1_000_000);
    b.poke(AVAILABLE, &[0; 4]);
    b.set_up(8);
    assert_eq!(b.device.next_event(), None);
}

#[test]
fn what_is_written_is_read_back() {
    let mut b = Bench::disk(64);
    b.poke(DATA, &[0x5a; 1024]);
    assert_eq!(b.request(1, 7, &[(DATA, 1024)], false), 0);
    assert_eq!(b.used(0), (1, 0, 1));
    assert_eq!(b.request(4, 0, &[], false), 0, "flush");
    assert_eq!(b.request(0, 6, &[(DATA + 0x4000, 2048)], true), 0);
    let back = b.peek(DATA + 0x4000, 2048);
    assert_eq!((back[511], back[512], back[1535], back[1536]), (6, 0x5a, 0x5a, 9));
    assert_eq!(b.request(8, 0, &[(DATA, 20)], true), 0);
    assert_eq!(b.peek(DATA, 13), b"trapline-disk");
}

#[test]
fn requests_that_make_no_sense_fail_and_the_device_goes_on() {
    let mut b = Bench::disk(8);
    assert_eq!(b.request(0, 8, &[(DATA, 512)], true), 1, "past the end");
    assert_eq!(b.request(0, u64::MAX, &[(DATA, 512)], true), 1);
    assert_eq!(b.request(1, 7, &[(DATA, 1024)], false), 1);
    assert_eq!(b.request(0, 0, &[(DATA, 100)], true), 1, "no whole sector");
    assert_eq!(b.request(8, 0, &[(DATA, 19)], true), 1);
    assert_eq!(b.request(99, 0, &[(DATA, 512)], true), 2, "unsupported");
    assert!(!b.needs_reset());
    assert_eq!(b.request(0, 0, &[(DATA, 512)], true), 0);
}

#[test]
fn a_driver_that_breaks_the_rules_must_reset() {
    type Breach = (&'static str, fn(&mut Bench));
    let breaches: [Breach; 9] = [
        ("a circle", |b| {
            b.descriptor(0, 0, (HEADER, 16, NEXT, 1));
            b.descriptor(0, 1, (HEADER, 16, NEXT, 0));
        }),
        ("a next descriptor that is none", |b| b.descriptor(0, 0, (HEADER, 16, NEXT, 8))),
        ("an indirect table", |b| b.descriptor(0, 0, (HEADER, 16, 4, 0))),
        ("read after write", |b| {
            b.descriptor(0, 0, (HEADER, 16, WRITE | NEXT, 1));
            b.descriptor(0, 1, (HEADER, 16, 0, 0));
        }),
        ("no status", |b| b.descriptor(0, 0, (HEADER, 16, 0, 0))),
        ("a header too short", |b| {
            b.descriptor(0, 0, (HEADER, 15, NEXT, 1));
            b.descriptor(0, 1, (STATUS, 1, WRITE, 0));
        }),
        ("a header outside memory", |b| {
            b.descriptor(0, 0, (u64::MAX - 8, 16, NEXT, 1));
            b.descriptor(0, 1, (STATUS, 1, WRITE, 0));
        }),
        ("data outside memory", |b| {
            b.descriptor(0, 0, (HEADER, 16, NEXT, 1));
            b.descriptor(0, 1, (RAM as u64 - 256, 512, NEXT | WRITE, 2));
            b.descriptor(0, 2, (STATUS, 1, WRITE, 0));
        }),
        ("more than the ring holds", |b| b.poke(AVAILABLE + 2, &9u16.to_le_bytes())),
    ];
    for (what, breach) in breaches {
        let mut b = Bench::disk(8);
        b.poke(HEADER, &[0; 16]);
        breach(&mut b);
        if what.starts_with("more") {
            b.write(0x50, 0);
        } else {
            b.offer(0, 0);
        }
        b.run();
        assert!(b.needs_reset(), "{what}");
        assert_eq!((b.read(0x60), b.used(0).0), (2, 0), "{what}");
        b.write(0x50, 0);
        assert_eq!(b.device.next_event(), None, "{what}: nothing more");
        b.available = [0; 2];
        b.poke(AVAILABLE, &[0; 4]);
        b.set_up(8);
        assert_eq!(b.request(0, 1, &[(DATA, 512)], true), 0, "{what}: then it works again");
    }
}

#[test]
fn features_that_are_not_offered_are_not_agreed() {
    let mut b = Bench::reset(Function::Console(Console::default()));
    b.write(0x24, 1);
    b.write(0x20, 0x3);
    b.write(0x70, 11);
    assert_eq!(b.read(0x70), 3);
    b.write(0x20, 0x1);
    b.write(0x70, 11);
    assert_eq!(b.read(0x70), 11);
    b.write(0x30, 2);
    assert_eq!(b.read(0x34), 0, "no third queue");
    b.write(0x30, 0);
    b.write(0x38, 3);
    b.write(0x44, 1);
    assert_eq!(b.read(0x44), 0, "no queue of three");
}

#[test]
fn a_console_speaks_and_listens() {
    let mut b = Bench::new(Function::Console(Console::default()));
    assert_eq!(b.read(0x08), 3);
    b.device.type_in(b"hello", 0);
    b.run();
    b.poke(DATA, b"guest says");
    b.descriptor(1, 0, (DATA, 5, NEXT, 1));
    b.descriptor(1, 1, (DATA + 5, 5, 0, 0));
    b.offer(1, 0);
    b.run();
    assert_eq!(b.device.take_output(), b"guest says");
    assert_eq!(b.used(1), (1, 0, 0));
    for head in 0..2 {
        b.descriptor(0, head, (DATA + 0x1000 * (head + 1), 3, WRITE, 0));
        b.offer(0, head as u16);
    }
    b.run();
    assert_eq!((b.peek(DATA + 0x1000, 3), b.peek(DATA + 0x2000, 3)), (b"hel".to_vec(), b"lo\0".to_vec()));
    assert_eq!(b.used(0), (2, 1, 2));
}

#[test]
fn no_notification_where_the_driver_wants_none() {
    let mut b = Bench::disk(8);
    b.poke(AVAILABLE, &1u16.to_le_bytes());
    b.request(0, 0, &[(DATA, 512)], true);
    assert!(!b.device.irq());
}

#[test]
fn no_driver_can_break_it() {
    let mut b = Bench::disk(8);
    let mut seed = 11u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed >> 16
    };
    let mut served = 0;
    for _ in 0..200_000 {
        let n = next();
        match n & 7 {
            0 => b.write((n >> 8) as u16 & 0x1fc, (n >> 20) as u32),
            1 => b.write(0x70, (n >> 8) as u32 & 0xf),
            2 => drop(b.device.read((n >> 8) as u16 & 0xfff, [1, 2, 4][(n >> 30) as usize % 3])),
            3 => {
                let at = DESCRIPTORS + (n >> 8) % 0x80;
                b.poke(at, &[(n >> 40) as u8 & 0x3f]);
            }
            4 => b.poke(AVAILABLE + (n >> 8) % 32, &[(n >> 40) as u8 & 15]),
            5 if n >> 8 & 0xff == 0 => {
                b.poke(AVAILABLE, &[0; 4]);
                b.device = VirtioMmio::new(b.device.function().clone());
                b.set_up(8);
            }
            _ => {
                b.write(0x50, 0);
                b.now += 100_000;
                let now = b.now;
                served += u32::from(b.device.next_event().is_some());
                b.device.serve(now, &mut b.ram);
            }
        }
    }
    assert!(served > 1000, "{served}");
}
