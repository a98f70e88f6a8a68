//! The interposer sees the guest's own exceptions before the guest's IDT, and may handle or decline each.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use trapline_emu::{Core, Machine, Stop, Trap, TrapInterposer, Verdict};
use trapline_tests::embedded;

/// Counts exceptions by vector, and handles those of one vector by letting the guest go on.
#[derive(Default)]
struct Counting {
    seen: BTreeMap<u8, u32>,
    handles: Option<u8>,
}

impl TrapInterposer for Counting {
    fn trap(&mut self, _: &mut Core, _: &Trap) -> Verdict {
        panic!("nothing is patched");
    }
    fn exception(&mut self, _: &mut Core, vector: u8, _: u64) -> bool {
        *self.seen.entry(vector).or_default() += 1;
        self.handles == Some(vector)
    }
}

fn console(m: &Machine) -> String {
    String::from_utf8_lossy(m.console()).into_owned()
}

#[test]
fn every_exception_is_seen_once_and_declining_them_changes_nothing() {
    let mut plain = embedded().unwrap();
    assert_eq!(plain.run(None, u64::MAX), Stop::Halted);
    let mut watched = embedded().unwrap();
    let mut counting = Counting::default();
    assert_eq!(watched.run(Some(&mut counting), u64::MAX), Stop::Halted);
    assert_eq!(watched.digest(), plain.digest());
    assert_eq!(console(&watched), console(&plain));
    // The guest's own counts.
    let summary = "47 page faults, 12 general protections, 1 int3, 1 invalid opcodes";
    assert!(console(&plain).contains(summary), "{}", console(&plain));
    assert_eq!(
        (counting.seen[&14], counting.seen[&13], counting.seen[&3], counting.seen[&6]),
        (47, 12, 1, 1)
    );
    assert!(counting.seen[&0x80] > 50, "{:?}", counting.seen);
}

#[test]
fn an_exception_that_is_handled_does_not_reach_the_guest() {
    let mut m = embedded().unwrap();
    let mut counting = Counting { handles: Some(3), ..Counting::default() };
    assert_eq!(m.run(Some(&mut counting), u64::MAX), Stop::Halted);
    assert_eq!(counting.seen[&3], 1);
    assert!(console(&m).contains("12 general protections, 0 int3"), "{}", console(&m));
}
