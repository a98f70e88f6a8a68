//! The server survives any bytes: random and changed packets neither end it nor the process, and it answers the packet
//! after them.
//!
//! `TRAPLINE_PACKETS=10000000` sends that many packets.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_gdb::{Debuggee, Framer, Gone, Input, NoCommands, framed, serve};
use trapline_session::{GuestBuilder, Timeline};

/// Packets, unless the variable says otherwise.
const PACKETS: u64 = 100_000;
/// Packets of one connection.
const CONNECTION: u64 = 2_000;

fn debuggee(recorded: bool) -> Debuggee {
    let session = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
    let timeline = Timeline::new(session, 64 << 20).unwrap();
    Debuggee::new(timeline, Box::new(NoCommands), None, Arc::<AtomicBool>::default(), recorded).unwrap()
}

/// The packets in the answer to these bytes, and why the server has gone.
fn answers(debuggee: &mut Debuggee, from: impl Read + Send + 'static) -> (Vec<String>, Gone) {
    let mut out = Vec::new();
    let gone = serve(debuggee, from, &mut out, &AtomicBool::new(false));
    let mut framer = Framer::default();
    let packets = out.iter().filter_map(|byte| framer.take(*byte)).filter_map(|input| match input {
        Input::Packet(body) => Some(String::from_utf8_lossy(&body).into_owned()),
        _ => None,
    });
    (packets.collect(), gone)
}

/// Bytes, after which nothing comes.
struct Silent(Cursor<Vec<u8>>);

impl Read for Silent {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(to)? {
            0 => loop {
                std::thread::park();
            },
            count => Ok(count),
        }
    }
}

/// The answers to packets of a debugger that stays until the end.
fn ask(debuggee: &mut Debuggee, bodies: &[&str]) -> Vec<String> {
    let bytes = bodies.iter().chain(&["k"]).flat_map(|body| framed(body.as_bytes())).collect();
    let (answers, gone) = answers(debuggee, Silent(Cursor::new(bytes)));
    assert_eq!(gone, Gone::Killed);
    answers
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// What gdb sends. Packets that let the run go on are rarer.
const SENT: [&str; 63] = [
    "qSupported:multiprocess+;swbreak+;hwbreak+;qRelocInsn+;xmlRegisters=i386",
    "vMustReplyEmpty",
    "?",
    "g",
    "p10",
    "p3f",
    "P0=00000000",
    "P8=0c001000",
    "P10=00000000000000c0ff3f",
    "P1a=ffff0000",
    "P20=00112233445566778899aabbccddeeff",
    "P28=801f0000",
    "QCatchSyscalls:1;4",
    "m100000,40",
    "mc0100000,4",
    "m0,ffffffffffffffff",
    "mfffffffffffffff0,20",
    "M9000,4:00000000",
    "X9000,0:",
    "X9000,3:ab}\x03",
    "Hg0",
    "Hg-1",
    "Hgp1.1",
    "Hc0",
    "Hc-1",
    "Hc400001",
    "T1",
    "T400001",
    "qC",
    "qfThreadInfo",
    "qsThreadInfo",
    "qThreadExtraInfo,1",
    "qAttached",
    "qAttached:1",
    "qSymbol::",
    "qTStatus",
    "qOffsets",
    "vCont?",
    "Z0,c0100f91,1",
    "Z1,c0100f91,1",
    "Z2,c0104000,4",
    "Z4,ffffffffffffffff,8",
    "Z0,c0100f91,1;X1,0",
    "Z1,c0100f91,1;X6,260000220127",
    "Z2,1000,0",
    "qSearch:memory:c0100000;1000;ab",
    "z0,c0100f91,1",
    "z2,c0104000,4",
    "qXfer:features:read:target.xml:0,1000",
    "qXfer:features:read:target.xml:ffffffffffffffff,ffffffff",
    "qXfer:exec-file:read::0,100",
    "qXfer:libraries:read::0,1000",
    "qXfer:auxv:read::0,100",
    "vFile:setfs:0",
    "vFile:open:2f766d6c696e7578,0,0",
    "vFile:open:2f766d6c696e7578,601,1ff",
    "vFile:pread:1,1000,0",
    "vFile:pread:1,ffffffff,ffffffff",
    "vFile:fstat:1",
    "vFile:close:1",
    "vFile:readlink:2f766d6c696e7578",
    "qRcmd,696e666f",
    "Qqemu.PhyMemMode:1",
];
const RUNS: [&str; 8] =
    ["s", "bs", "vCont;s:1;c", "vCont;r0,c0200000:1;c", "vCont;s:400001", "vCont;c", "bc", "vCont;c:p1.-1"];

/// A packet, possibly changed; with a right checksum, mostly.
fn packet(random: &mut Random) -> Vec<u8> {
    let runs = random.below(1_000) == 0;
    let all: &[&str] = if runs { &RUNS } else { &SENT };
    // The last ones run to the ends.
    let kinds = if runs && random.below(20) != 0 { RUNS.len() - 3 } else { all.len() };
    let mut body = all[random.below(kinds)].as_bytes().to_vec();
    if !runs && random.below(3) == 0 {
        for _ in 0..=random.below(4) {
            let at = random.below(body.len() + 1);
            match random.below(5) {
                0 if at < body.len() => body[at] = random.next() as u8,
                1 if at < body.len() => drop(body.remove(at)),
                2 => body.insert(at, b"0123456789abcdef,:;-pmZ$#}"[random.below(26)]),
                3 => body.truncate(at),
                _ => body.extend_from_slice(SENT[random.below(SENT.len())].as_bytes()),
            }
        }
    }
    // Those end the service.
    let ends = matches!(body.first(), Some(b'k' | b'D')) || body.starts_with(b"vKill");
    if ends || body.contains(&b'$') || body.contains(&b'#') {
        body.clear();
    }
    match random.below(50) {
        0 => (0..random.below(40)).map(|_| random.next() as u8).collect(),
        1 => [b"$".to_vec(), body, b"#00".to_vec()].concat(),
        2 => b"-".to_vec(),
        3 => b"\x03".to_vec(),
        _ => framed(&body),
    }
}

#[test]
fn random_packets_end_nothing() {
    let wanted = std::env::var("TRAPLINE_PACKETS").ok().and_then(|text| text.parse().ok());
    let wanted: u64 = wanted.unwrap_or(PACKETS);
    let mut random = Random(0x7261_6e64_6f6d);
    let mut debuggees = [debuggee(false), debuggee(true)];
    for connection in 0..wanted.div_ceil(CONNECTION) {
        let debuggee = &mut debuggees[(connection % 2) as usize];
        let mut bytes: Vec<u8> = (0..CONNECTION).flat_map(|_| packet(&mut random)).collect();
        // What random bytes have begun ends here.
        bytes.extend(framed(b"vMustReplyEmpty"));
        bytes.extend(framed(b"Qqemu.PhyMemMode:0"));
        bytes.extend(framed(b"qqemu.PhyMemMode"));
        let (answers, gone) = answers(debuggee, Cursor::new(bytes));
        assert_eq!(gone, Gone::Closed, "connection {connection}");
        assert_eq!(answers.last().map(String::as_str), Some("0"), "connection {connection}");
    }
}

#[test]
fn what_the_server_cannot_do_is_an_error_with_a_sentence() {
    let mut live = debuggee(false);
    assert_eq!(ask(&mut live, &["mffffffff,4"]), ["E0e"]);
    assert_eq!(ask(&mut live, &["Hg-1", "Hg77", "g"]), ["E16", "E.there is no such thread here", "E03"]);
    assert_eq!(ask(&mut live, &["M9000,2:abcd", "m9000,2"]), ["OK", "abcd"]);
    // The number of cr0 in the description of 32 bits.
    let control = ask(&mut live, &["Hg0", "P2b=00000000"]).remove(1);
    assert!(
        control.starts_with("E.register cr0 cannot be written: a bit would change the mode"),
        "{control}"
    );
    let mut recorded = debuggee(true);
    let refused = ask(&mut recorded, &["Hg0", "M9000,2:abcd", "P0=01000000"]);
    assert!(
        refused.iter().skip(1).all(|answer| answer.starts_with("E.a recording cannot be changed")),
        "{refused:?}"
    );
    assert_eq!(ask(&mut recorded, &["vFile:open:2f6574632f706173737764,0,0"]), ["F-1,02"]);
    assert_eq!(ask(&mut recorded, &["vFile:open:2f766d6c696e7578,1,0"]), ["F-1,1e"]);
}

#[test]
fn breakpoints_that_cannot_be_met_are_refused() {
    let mut debuggee = debuggee(false);
    for kind in 2..5 {
        // No byte is watched; too many are; the range ends behind the last address, of 32 bits too.
        for range in ["1000,0", "1000,100001", "ffffffffffffffff,1", "ffffffff,2", "ffffffff00001000,4"] {
            let answers = ask(&mut debuggee, &[&format!("Z{kind},{range}"), &format!("z{kind},{range}")]);
            assert_eq!(answers, ["E16", "E16"], "Z{kind},{range}");
        }
        let last = format!("{kind},ffffffff,1");
        assert_eq!(ask(&mut debuggee, &[&format!("Z{last}"), &format!("z{last}")]), ["OK", "OK"]);
    }
    assert_eq!(ask(&mut debuggee, &["Z0,100000000,1", "Z1,ffffffffc0100000,1"]), ["E16", "E16"]);
}

#[test]
fn conditions_of_breakpoints_are_evaluated_by_the_server() {
    let mut debuggee = debuggee(false);
    let at = address(&debuggee, "do_syscall");
    let supports = "qSupported:swbreak+";
    assert!(ask(&mut debuggee, &[supports])[0].contains("ConditionalBreakpoints+"));
    let condition = |set: &str| format!("Z0,{at:x},1{set}");
    let begin = "qRcmd,61742030";
    // What the function finds in ecx, which gdb would compare at each stop.
    let mut numbers = Vec::new();
    for _ in 0..20 {
        let answers = ask(&mut debuggee, &[supports, &condition(""), "c", "p1"]);
        assert!(answers[2].starts_with("T05"), "{answers:?}");
        numbers.push(answers[3].clone());
    }
    let skipped = numbers.iter().position(|number| *number != numbers[0]).unwrap();
    let last = numbers[skipped].clone();
    let value = u32::from_str_radix(&last, 16).unwrap().swap_bytes();
    // reg 1; ext 32; const32 VALUE; ext 32; equal; end.
    let code = format!("260001162024{value:08x}16201327");
    let when = condition(&format!(";X{:x},{code}", code.len() / 2));
    let met = ask(&mut debuggee, &[begin, supports, &when, "c", "p1"]);
    assert_eq!(met.last(), Some(&last), "{met:?}");
    let plain = condition("");
    let mut one_by_one = vec![begin, supports, &plain];
    one_by_one.extend(std::iter::repeat_n("c", skipped + 1));
    let place = position(&mut debuggee);
    ask(&mut debuggee, &one_by_one);
    assert_eq!(position(&mut debuggee), place);
    // const8 0 never holds; what cannot be evaluated stops, and gdb looks itself.
    let never = ask(&mut debuggee, &[begin, supports, &condition(";X3,220027"), "c"]);
    assert!(!never.last().unwrap().contains("swbreak"), "{never:?}");
    let absent = ask(&mut debuggee, &[begin, supports, &condition(";X4,22001727;X1,01"), "c"]);
    assert!(absent.last().unwrap().contains("swbreak"), "{absent:?}");
    // Set again without a condition, it has none.
    let again = ask(&mut debuggee, &[begin, supports, &condition(";X3,220027"), &condition(""), "c"]);
    assert!(again.last().unwrap().contains("swbreak"), "{again:?}");
    assert_eq!(ask(&mut debuggee, &[&condition(";X3,2200")]), ["E16"]);
}

#[test]
fn memory_is_searched_where_it_is() {
    let mut debuggee = debuggee(false);
    let image = address(&debuggee, "do_syscall");
    let ran = ask(&mut debuggee, &[&format!("Z0,{image:x},1"), "c"]);
    assert!(ran[1].starts_with("T05"), "{ran:?}");
    let read = ask(&mut debuggee, &[&format!("m{image:x},3000")]).remove(0);
    let bytes: Vec<u8> =
        (0..read.len() / 2).map(|at| u8::from_str_radix(&read[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut random = Random(0x6669_6e64);
    for _ in 0..200 {
        let length = 1 + random.below(40);
        let at = random.below(bytes.len() - length);
        let pattern = &bytes[at..at + length];
        let range = random.below(bytes.len());
        let place = bytes[..range].windows(length).position(|part| part == pattern);
        let wanted = place.map_or("0".to_owned(), |place| format!("1,{:x}", image + place as u64));
        let mut body = format!("qSearch:memory:{image:x};{range:x};").into_bytes();
        for byte in pattern {
            match byte {
                b'#' | b'$' | b'}' | b'*' => body.extend([b'}', byte ^ 0x20]),
                byte => body.push(*byte),
            }
        }
        let bytes = [framed(&body), framed(b"k")].concat();
        assert_eq!(answers(&mut debuggee, Silent(Cursor::new(bytes))).0, [wanted], "{at:x} {length}");
    }
    for (wrong, answer) in [("ffffe000;2000;abc", "E0e"), ("0;10;", "E16"), ("0;x;a", "E16"), ("0;1", "E16")]
    {
        assert_eq!(ask(&mut debuggee, &[&format!("qSearch:memory:{wrong}")]), [answer], "{wrong}");
    }
}

#[test]
fn a_debugger_that_selects_no_thread_gets_the_running_one() {
    let mut debuggee = debuggee(false);
    let answers = ask(&mut debuggee, &["g", "p8", "qSupported:swbreak+"]);
    assert!(answers[0].len() > 100 && answers[1].len() == 8, "{answers:?}");
    assert!(answers[2].contains("ReverseStep+") && !answers[2].contains("fork"), "{answers:?}");
    let refused = ask(&mut debuggee, &["M9000,2:00", "Z0,9000,1,4V=", "vCont", "sc0100b47", "vCont;s:99"]);
    assert_eq!(refused[..3], ["E16", "E16", "E16"]);
    assert!(refused[3].starts_with("E.going on") && refused[4].starts_with("E.there is no"), "{refused:?}");
}

#[test]
fn a_damaged_read_is_answered() {
    let mut debuggee = debuggee(false);
    let bodies: [&[u8]; 3] = [b"m,c0100000,8000000040\xd4\tW", b"qqemu.PhyMemMode", b"k"];
    let bytes = bodies.into_iter().flat_map(framed).collect();
    let (answers, _) = answers(&mut debuggee, Silent(Cursor::new(bytes)));
    assert_eq!(answers, ["E16", "0"]);
}

/// The position, as `monitor info` tells it first.
fn position(debuggee: &mut Debuggee) -> String {
    let lines = ask(debuggee, &["qRcmd,696e666f"]).remove(0);
    let bytes = lines.strip_prefix('O').unwrap_or(&lines).as_bytes().chunks(2);
    let text = bytes.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap());
    String::from_utf8(text.collect()).unwrap().lines().next().unwrap().to_owned()
}

#[test]
fn what_gdb_has_written_is_there_when_the_run_comes_back() {
    let mut debuggee = debuggee(false);
    let steps = ["s", "s", "M9000,2:abcd", "bs", "m9000,2", "s", "m9000,2"];
    let answers = ask(&mut debuggee, &steps);
    assert_eq!((&*answers[4], &*answers[6]), ("0000", "abcd"));
    let here = position(&mut debuggee);
    // `monitor here`: the step stays.
    let stayed = ask(&mut debuggee, &["qRcmd,68657265", "s", "m9000,2"]);
    assert_eq!(stayed.last().map(String::as_str), Some("abcd"));
    assert_eq!(position(&mut debuggee), here);
}

#[test]
fn a_debugger_that_goes_in_the_middle_leaves_the_run_to_the_next_one() {
    let mut debuggee = debuggee(false);
    let [stop, digest]: [String; 2] =
        ask(&mut debuggee, &["s", "qRcmd,646967657374"])[..2].to_vec().try_into().unwrap();
    assert!(stop.starts_with("T05thread:"), "{stop}");
    // A packet without its end.
    assert_eq!(answers(&mut debuggee, &b"$Z0,c0100f"[..]), (Vec::new(), Gone::Closed));
    assert_eq!(ask(&mut debuggee, &["qRcmd,646967657374"])[0], digest);
    let detached = [framed(b"Z0,c0100f91,1"), framed(b"D")].concat();
    assert_eq!(
        answers(&mut debuggee, Cursor::new(detached)),
        (vec!["OK".to_owned(), "OK".to_owned()], Gone::Detached)
    );
    assert_eq!(ask(&mut debuggee, &["qRcmd,646967657374"])[0], digest);
    assert_eq!(
        answers(&mut debuggee, Cursor::new(framed(b"vKill;1"))),
        (vec!["OK".to_owned()], Gone::Killed)
    );
}

/// The address of a symbol of the guest.
fn address(debuggee: &Debuggee, name: &str) -> u64 {
    debuggee.timeline().session().symbols().sole(name).unwrap().addr
}

#[test]
fn breakpoints_are_gone_with_the_debugger_that_has_set_them() {
    let mut debuggee = debuggee(false);
    let function = format!("Z0,{:x},1", address(&debuggee, "do_fork"));
    let word = format!("Z2,{:x},4", address(&debuggee, "current_task"));
    // `monitor at 0`.
    let begin = "qRcmd,61742030";
    for (set, why) in [(&function, "swbreak:"), (&word, "watch:")] {
        // It stops the run of the one who has set it.
        let own = ask(&mut debuggee, &["qSupported:swbreak+", begin, set, "c"]);
        assert!(own.last().is_some_and(|stop| stop.starts_with("T05") && stop.contains(why)), "{own:?}");
        for (leaves, gone) in [("k", Gone::Killed), ("D", Gone::Detached), ("", Gone::Closed)] {
            let mut bytes = framed(set.as_bytes());
            bytes.extend(if leaves.is_empty() { Vec::new() } else { framed(leaves.as_bytes()) });
            let (answers, went) = answers(&mut debuggee, Cursor::new(bytes));
            assert_eq!((answers[0].as_str(), went), ("OK", gone), "{set} {leaves}");
            let next = ask(&mut debuggee, &["qSupported:swbreak+", begin, "c"]);
            assert!(!next.last().unwrap().contains(why), "{set} {leaves}: {next:?}");
            let at = position(&mut debuggee);
            assert!(at.ends_with("(the end)"), "{set} {leaves}: {at}");
        }
    }
}
