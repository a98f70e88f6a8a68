//! The target of snapshots' files.

use crate::{Checks, Part};
use std::cell::RefCell;
use trapline_emu::devices::virtio::DiskImage;
use trapline_emu::platform::PlatformConfig;
use trapline_emu::{Archive, BootState, CpuMode, CpuModel, Machine, MachineConfig, PAGE, Snapshot, Stop};

const RAM: u64 = 1 << 20;
const CODE: u64 = 0x1_0000;
/// `l: inc ecx; mov [ecx + 0x20000], cl; mov al, cl; out 0xe9, al; jmp l`.
const LOOP: [u8; 13] = [0x41, 0x88, 0x89, 0, 0, 2, 0, 0x88, 0xc8, 0xe6, 0xe9, 0xeb, 0xf3];
/// The parts of a file; an input begins with the number of one.
const PARTS: [&str; 4] = ["machine", "pages", "identity", "versions"];
/// Instructions that a machine runs from a restored snapshot.
const STEPS: u64 = 200;

fn machine() -> Machine {
    let config = MachineConfig { mem_size: RAM, model: CpuModel::Ia32 };
    let disk = Some(DiskImage::from_bytes(&[7; 8192]).unwrap());
    let devices = PlatformConfig { disk, console: true, ..PlatformConfig::pc(RAM) };
    let mut machine = Machine::with_platform(&config, &devices).unwrap();
    machine.write_physical(CODE, &LOOP);
    machine.boot(&BootState { mode: CpuMode::Flat32, ip: CODE, ax: 0, bx: 0, sp: 0x8000, si: 0 });
    machine.run(None, 1000);
    machine
}

thread_local! {
    /// A machine, and the file of its snapshot.
    static GUEST: RefCell<(Machine, Archive)> = RefCell::new({
        let mut machine = machine();
        let mut archive = Archive::new();
        machine.snapshot().store(&mut archive).unwrap();
        (machine, archive)
    });
}

/// Changes a part: the input replaces it or, depending on its second byte, each three bytes are an offset and a number
/// to add there.
pub fn changed(part: &[u8], input: &[u8]) -> Vec<u8> {
    let (Some(how), Some(rest)) = (input.first(), input.get(1..)) else { return Vec::new() };
    if how % 2 == 0 {
        return rest.to_vec();
    }
    let mut part = part.to_vec();
    for &[low, high, add] in rest.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([low, high])) % part.len().max(1);
        part.iter_mut().skip(at).take(1).for_each(|byte| *byte = byte.wrapping_add(add));
    }
    part
}

pub fn snapshot(bytes: &[u8], checks: Checks) {
    match Archive::from_bytes(bytes) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(archive) => assert_eq!(Archive::from_bytes(&archive.to_bytes()).as_ref(), Ok(&archive)),
    }
    // As if the checksum were right.
    let Some((number, rest)) = bytes.split_first() else { return };
    let part = PARTS[usize::from(*number) % PARTS.len()];
    GUEST.with_borrow_mut(|(machine, archive)| {
        let mut archive = archive.clone();
        let now = changed(archive.bytes(part, 2).unwrap(), rest);
        archive.put_bytes(part, 2, now);
        let snapshot = match Snapshot::load(&archive) {
            Err(error) => return assert!(!error.to_string().is_empty()),
            Ok(snapshot) => snapshot,
        };
        assert!(snapshot.bytes() <= snapshot.identity().ram.next_multiple_of(PAGE));
        let mut stored = Archive::new();
        snapshot.store(&mut stored).unwrap();
        let mut again = Archive::new();
        Snapshot::load(&stored).unwrap().store(&mut again).unwrap();
        assert_eq!(stored, again);
        if machine.restore(&snapshot).is_ok() && checks.have(Part::Run) {
            let stop = machine.run(None, machine.icount().saturating_add(STEPS));
            assert!(!matches!(stop, Stop::Panicked(_)), "{stop:?}");
        }
    });
}
