//! gdb's backtraces are the stacks that all other views show, with the same addresses and names, wherever the run stands.

use std::fmt::Write as _;

use crate::gdb::gdb;
use trapline_session::{GuestBuilder, PlatformKind, Position, Session, StackFrame, Timeline};
use trapline_tests::guest;
use trapline_tests::linux::{Linux, QUICK};

/// Positions of the short tests and of the long ones.
const FEW: usize = 40;
const MANY: usize = 1_000;
/// Most frames of a stack.
const MOST: usize = 255;

/// What gdb does at each of the positions: it walks its frames, and counts those that `backtrace` prints; not those of inlined
/// functions, which it makes up from debugging information. It stops at the news of modules: if it goes on by itself after a jump, it
/// goes on in another thread, which does not step.
const WALK: &str = r#"
set stop-on-solib-events 1
python
for position in positions:
    monitor('at %d' % position); monitor('here')
    quiet('reverse-stepi')
    frame, found, inlined = gdb.newest_frame(), [], 0
    while frame and len(found) < 255:
        if frame.type() == gdb.INLINE_FRAME: inlined += 1
        else:
            name = '<signal' if frame.type() == gdb.SIGTRAMP_FRAME else frame.name() or ''
            found.append('%x=%s' % (frame.pc() & (1 << 64) - 1, name))
        frame = frame.older()
    shown = [line for line in quiet('backtrace').splitlines() if line.startswith('#')]
    print('stack', position, len(shown) - inlined, *found)
end
"#;

/// Positions of a run, in order.
fn random_positions(count: usize, from: u64, to: u64) -> Vec<u64> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        from + random % (to - from)
    };
    let mut positions: Vec<u64> = (0..count).map(|_| next()).collect();
    positions.sort_unstable();
    positions
}

/// Whether gdb's name of a frame is that of ours. Functions may have several names, gdb leaves out or brackets what compilers append,
/// it does not know the names of programs, and gives none to code that takes interrupts.
fn is_name(session: &Session, frame: &StackFrame, name: &str) -> bool {
    let user = session.core().env().cpl() == 3;
    let Some((own, offset)) =
        frame.symbol.as_deref().map(|symbol| symbol.split_once('+').unwrap_or((symbol, "0")))
    else {
        return name.is_empty();
    };
    let own = own.rsplit(['`', ':']).next().unwrap();
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap();
    let symbols = session.symbols();
    let is_alias = |address| symbols.all(name).any(|symbol| symbol.addr == address);
    // `f`, `f.part` or `f[cold]` of `f.part.0` and `f.cold`.
    let base = name.split('[').next().unwrap();
    let is_short = own.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    // The function that starts a module has two names.
    let is_start = own == "init_module" && name == "loop_init";
    user || is_short || is_start || name == "<signal" || frame.ip.checked_sub(offset).is_some_and(is_alias)
}

/// Compares the stacks at these positions of the guest that both describe.
fn backtraces_are_stacks(args: &str, guest: GuestBuilder, positions: &[u64]) {
    let out = gdb(args, &format!("python\npositions = {positions:?}\nend\n{WALK}"));
    let mut timeline = Timeline::new(guest.start().unwrap(), 256 << 20).unwrap();
    let (mut wrong, mut frames) = (String::new(), 0);
    let mut lines = out.lines().filter_map(|line| line.strip_prefix("stack "));
    for position in positions {
        let line = lines.next().unwrap();
        let mut words = line.split(' ');
        assert_eq!(words.next().unwrap().parse(), Ok(*position));
        let shown: usize = words.next().unwrap().parse().unwrap();
        let theirs: Vec<(u64, &str)> = words
            .map(|word| word.split_once('=').unwrap())
            .map(|(address, name)| (u64::from_str_radix(address, 16).unwrap(), name))
            .collect();
        timeline.goto(Position::At { icount: *position, ordinal: 0 }).unwrap();
        let session = timeline.session();
        let ours = session.stack(MOST);
        let equal = ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(own, (ip, name))| own.ip == *ip && is_name(session, own, name));
        frames += ours.len();
        if !equal || shown != theirs.len() {
            writeln!(wrong, "{position}: {ours:x?}\n    gdb, which shows {shown}: {theirs:x?}").unwrap();
        }
    }
    println!("{}: {} stacks, {frames} frames", args.split(' ').next().unwrap(), positions.len());
    assert!(frames > 2 * positions.len(), "{frames} frames");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn backtraces_of_gdb_are_the_stacks_of_the_embedded_guests() {
    for name in ["ia32", "x86_64"] {
        let guest = GuestBuilder::embedded(name).memory(32 << 20);
        let positions = random_positions(4 * FEW, 20_000, 2_000_000);
        backtraces_are_stacks(&format!("embedded:{name} --mem 32M"), guest, &positions);
    }
}

/// What the guest does for ever: processes, system calls, interrupts of both, and a module's device.
const BUSY: &str = "mount -t proc p /proc\nmount -t devtmpfs d /dev\ninsmod /loop.ko\nwhile true; do\n\
                    losetup /dev/loop0 /bin/busybox; dd if=/dev/loop0 of=/dev/null bs=64k; losetup -d /dev/loop0\n\
                    ls -lR /proc/self | sort | wc; for n in 1 2 3 4 5; do echo $n > /dev/null; done\ndone\n";

fn linux(flavour: &str, count: usize, to: u64) {
    let folder = tempfile::tempdir().unwrap();
    let initrd = Linux::of(flavour).unwrap().image(folder.path(), &["loop"], &[], BUSY).unwrap();
    let args = format!(".guests/linux-{flavour} --initrd {} --append '{QUICK}'", initrd.display());
    let guest = GuestBuilder::image(&guest(&format!("linux-{flavour}"))).initrd(initrd).append(QUICK);
    backtraces_are_stacks(&args, guest, &random_positions(count, 1_000_000, to));
}

fn gnumach(count: usize, to: u64) {
    let guest = GuestBuilder::image(&guest("gnumach"));
    let guest = guest.platform(PlatformKind::Minimal).memory(256 << 20).cmdline("console=com0");
    let args = ".guests/gnumach --platform minimal --mem 256M --cmdline console=com0";
    backtraces_are_stacks(args, guest, &random_positions(count, 4_000_000, to));
}

#[test]
fn guest_linux_backtraces_of_gdb_are_the_stacks() {
    linux("cloud-amd64", FEW, 700_000_000);
}

#[test]
fn guest_linux_686_backtraces_of_gdb_are_the_stacks() {
    linux("686", FEW, 700_000_000);
}

#[test]
fn guest_gnumach_backtraces_of_gdb_are_the_stacks() {
    gnumach(FEW, 20_000_000);
}

#[test]
fn guest_backtraces_of_gdb_are_the_stacks_of_three_kernels_at_length() {
    linux("cloud-amd64", MANY, 1_000_000_000);
    linux("686", MANY, 1_000_000_000);
    gnumach(MANY, 40_000_000);
}
