//! The target of gdb's packets: a connection to the server of a recording, and then another one.

use std::cell::RefCell;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};

use crate::Checks;
use trapline_gdb::{Debuggee, Framer, Gone, Input, NoCommands, framed, serve};
use trapline_session::{Condition, GuestBuilder, Limits, Session, Timeline};

/// Where the run ends, so that to go through it takes milliseconds.
const END: u64 = 50_000;
/// Most packets of an input that let the run go on. An input with more is passed over.
const MOST_RUNS: usize = 3;

/// A recording that is debugged, and what a debugger sees of it at its beginning.
struct Served {
    debuggee: Debuggee,
    beginning: Vec<String>,
}

thread_local! {
    static SERVED: RefCell<Served> = RefCell::new({
        let start = || -> Session { GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap() };
        let mut other = start();
        other.run_until(&Condition::end(), &Limits::insns(END));
        let mut timeline = Timeline::new(start(), 64 << 20).unwrap();
        timeline.ends_at(other.moment(), None);
        let cancel = Arc::<AtomicBool>::default();
        let mut debuggee = Debuggee::new(timeline, Box::new(NoCommands), None, cancel, true).unwrap();
        let beginning = looked_at(&mut debuggee);
        Served { debuggee, beginning }
    });
}

/// Bytes, after which nothing comes until the other end has gone.
struct Connection {
    bytes: Cursor<Vec<u8>>,
    gone: Receiver<()>,
}

impl Read for Connection {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = self.bytes.read(to)?;
        if count == 0 {
            let _ = self.gone.recv();
        }
        Ok(count)
    }
}

/// The packets in the answer to these bytes, and why the server has gone.
fn answers(debuggee: &mut Debuggee, bytes: Vec<u8>) -> (Vec<String>, Gone) {
    let (end, gone) = mpsc::channel();
    let mut out = Vec::new();
    let why =
        serve(debuggee, Connection { bytes: Cursor::new(bytes), gone }, &mut out, &AtomicBool::new(false));
    drop(end);
    let mut framer = Framer::default();
    let packets = out.iter().filter_map(|byte| framer.take(*byte)).filter_map(|input| match input {
        Input::Packet(body) => Some(String::from_utf8_lossy(&body).into_owned()),
        _ => None,
    });
    (packets.collect(), why)
}

/// What a debugger that comes now is told at the beginning of the run: registers, digest, threads.
fn looked_at(debuggee: &mut Debuggee) -> Vec<String> {
    // `monitor at 0`, and `monitor digest`.
    let asks = ["qRcmd,61742030", "Hg0", "g", "qRcmd,646967657374", "qfThreadInfo", "qqemu.PhyMemMode", "k"];
    let (answers, gone) = answers(debuggee, asks.iter().flat_map(|body| framed(body.as_bytes())).collect());
    assert_eq!(gone, Gone::Killed);
    answers
}

/// The bytes of a connection: the input itself if it begins a packet, otherwise a packet for each of its lines.
fn connection(bytes: &[u8]) -> Vec<u8> {
    let mut connection = match bytes.first() {
        Some(b'$') => bytes.to_vec(),
        _ => bytes.split(|byte| *byte == b'\n').flat_map(framed).collect(),
    };
    // Ctrl-C comes at another time in each run.
    connection.iter_mut().filter(|byte| **byte == 3).for_each(|byte| *byte = 4);
    connection
}

fn runs(connection: &[u8]) -> usize {
    let mut framer = Framer::default();
    let inputs = connection.iter().filter_map(|byte| framer.take(*byte));
    let runs = |input: &Input| match input {
        Input::Packet(body) => {
            matches!(&body[..], [b's' | b'c' | b'S' | b'C', ..] | [b'b', b's' | b'c'])
                || body.starts_with(b"vCont;")
        }
        _ => false,
    };
    inputs.filter(runs).count()
}

pub fn gdb(bytes: &[u8], _: Checks) {
    let mut bytes = connection(bytes);
    if runs(&bytes) > MOST_RUNS {
        return;
    }
    // A packet that the input has begun ends in the first or the second of these.
    for body in [b"vMustReplyEmpty".as_slice(), b"vMustReplyEmpty", b"k"] {
        bytes.extend(framed(body));
    }
    SERVED.with_borrow_mut(|Served { debuggee, beginning }| {
        let (_, gone) = answers(debuggee, bytes);
        assert!(matches!(gone, Gone::Killed | Gone::Detached), "{gone:?}");
        assert_eq!(&looked_at(debuggee), beginning);
    });
}
