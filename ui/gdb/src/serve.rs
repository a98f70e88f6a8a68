//! Serves one debugger: takes its packets, answers some, and passes the others to gdbstub.
//!
//! Answered here: acknowledgements, memory (gdbstub repeats reads behind the first byte that is absent), qemu's mode for
//! physical addresses, and whatever gdbstub takes for the end of the connection, which here is an error packet.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine as Machine;
use gdbstub::stub::{DisconnectReason, GdbStub};

use crate::check::{Refused, check, hexadecimal};
use crate::condition::split;
use crate::debuggee::Debuggee;
use crate::find::{self, Found};
use crate::interrupt::Interrupt;
use crate::stops::{Resume, Stop};
use crate::threads;
use crate::wire::{Framer, Input, LONGEST, framed, hex};

/// How often the flag that ends the service is checked.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes of memory in an answer, two digits each.
const MOST_READ: usize = LONGEST / 2 - 16;
/// The answer to a packet that is wrong: EINVAL.
const WRONG: &[u8] = b"E16";
/// The answer when memory is absent: EFAULT.
const ABSENT: &[u8] = b"E0e";

/// Why a debugger has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It has detached.
    Detached,
    /// It has killed the guest.
    Killed,
    /// The connection has ended.
    Closed,
    /// The flag was raised.
    Ended,
}

/// What gdbstub writes.
#[derive(Default)]
struct Answer(Vec<u8>);

impl Connection for Answer {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

type Stub = Machine<'static, Debuggee, Answer>;

/// Takes what comes in, in a thread of its own. Ctrl-C interrupts at once, because the run does not read.
fn listen(mut from: impl Read + Send + 'static, interrupt: Interrupt, told: Sender<Input>) {
    thread::spawn(move || {
        let mut framer = Framer::default();
        let mut bytes = [0; 4096];
        loop {
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for input in bytes.iter().take(count).filter_map(|byte| framer.take(*byte)) {
                if input == Input::Interrupt {
                    interrupt.raise();
                } else if told.send(input).is_err() {
                    return;
                }
            }
        }
        interrupt.raise();
        let _ = told.send(Input::Closed);
    });
}

/// Serves the debugger at the other end of a connection until it goes, or until the flag is raised.
pub fn serve(
    debuggee: &mut Debuggee,
    from: impl Read + Send + 'static,
    to: &mut dyn Write,
    ended: &AtomicBool,
) -> Gone {
    let (told, inputs) = mpsc::channel();
    let interrupt = Interrupt::new(debuggee.cancel());
    listen(from, interrupt.clone(), told);
    debuggee.welcome();
    let (last, selected) = (Vec::new(), [None, None]);
    let mut server = Server { to, interrupt, acknowledges: true, last, stub: None, selected };
    let gone = server.run(debuggee, &inputs, ended);
    server.interrupt.end();
    gone
}

/// The service of one debugger.
struct Server<'a> {
    to: &'a mut dyn Write,
    interrupt: Interrupt,
    acknowledges: bool,
    /// The last answer, to be sent again.
    last: Vec<u8>,
    stub: Option<Stub>,
    /// The last packets that select a thread: for memory and registers, and for going on.
    selected: [Option<Vec<u8>>; 2],
}

impl Server<'_> {
    fn run(&mut self, debuggee: &mut Debuggee, inputs: &Receiver<Input>, ended: &AtomicBool) -> Gone {
        loop {
            let input = match inputs.recv_timeout(LOOK) {
                Ok(input) => input,
                Err(RecvTimeoutError::Timeout) if ended.load(Ordering::SeqCst) => return Gone::Ended,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Gone::Closed,
            };
            let gone = match input {
                Input::Packet(body) => {
                    let acknowledged = if self.acknowledges { self.send(b"+") } else { Ok(()) };
                    acknowledged.and_then(|()| self.packet(debuggee, &body))
                }
                Input::Damaged if self.acknowledges => self.send(b"-").map(|()| None),
                Input::Nack => {
                    let last = std::mem::take(&mut self.last);
                    self.answer(last).map(|()| None)
                }
                Input::Closed => return Gone::Closed,
                Input::Ack | Input::Damaged | Input::Interrupt => Ok(None),
            };
            match gone {
                Ok(None) => {}
                Ok(Some(gone)) => return gone,
                Err(_) => return Gone::Closed,
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.to.flush()
    }

    /// Sends packets, and keeps them.
    fn answer(&mut self, packets: Vec<u8>) -> io::Result<()> {
        self.last = packets;
        self.to.write_all(&self.last)?;
        self.to.flush()
    }

    fn packet(&mut self, debuggee: &mut Debuggee, body: &[u8]) -> io::Result<Option<Gone>> {
        let Some((body, conditions)) = split(body) else {
            return self.answer(framed(WRONG)).map(|()| None);
        };
        debuggee.breakpoints.expect(conditions);
        if !matches!(body, [b'm', ..]) {
            debuggee.stacks.told(body);
        }
        if let Some(answer) = own(debuggee, body) {
            // gdb does not look at this answer: what it then asks is of the thread that is not there.
            if body.starts_with(b"Hg") {
                self.pass(debuggee, body);
            }
            self.answer(framed(&answer))?;
            return Ok(None);
        }
        match body {
            b"k" => return Ok(Some(Gone::Killed)),
            [b'v', b'K', b'i', b'l', b'l', ..] => {
                self.answer(framed(b"OK"))?;
                return Ok(Some(Gone::Killed));
            }
            b"QStartNoAckMode" => {
                self.answer(framed(b"OK"))?;
                self.acknowledges = false;
                return Ok(None);
            }
            // All threads are one processor, which goes back as a whole.
            b"bs" => {
                self.pass(debuggee, b"Hc0");
            }
            _ => {}
        }
        let supports = body.starts_with(b"qSupported");
        let supported = supports.then(|| without_processes(body));
        let mut answer = self.pass(debuggee, supported.as_deref().unwrap_or(body));
        if supports {
            answer = with_own(&answer);
        }
        // What has interrupted a command of `monitor` does not interrupt the next run too.
        if std::mem::take(&mut debuggee.cut_short) {
            self.interrupt.take();
        }
        if answer == framed(b"OK") {
            match body {
                [b'H', b'g', ..] => self.selected[0] = Some(body.to_vec()),
                [b'H', b'c', ..] => self.selected[1] = Some(body.to_vec()),
                _ => {}
            }
        }
        let answer = match debuggee.refusal.take() {
            Some(sentence) if answer.starts_with(b"$E") => framed(format!("E.{sentence}").as_bytes()),
            _ => answer,
        };
        self.after(debuggee, answer)
    }

    /// Sends an answer of gdbstub's, and does what it has asked for.
    fn after(&mut self, debuggee: &mut Debuggee, mut answer: Vec<u8>) -> io::Result<Option<Gone>> {
        loop {
            match self.stub.take() {
                Some(Machine::Running(stub)) => {
                    let resume = debuggee.resume.map_or(Resume::Continue, |(resume, _)| resume);
                    let stop = match self.interrupt.take() {
                        true => debuggee.interrupted_here(),
                        false => debuggee.go_on(),
                    };
                    if stop == Stop::Interrupted {
                        self.interrupt.take();
                    }
                    debuggee.told = Some(threads::running(debuggee.session()));
                    for line in std::mem::take(&mut debuggee.news) {
                        answer.extend(framed(format!("O{}", hex(format!("{line}\n").as_bytes())).as_bytes()));
                    }
                    let reason = match debuggee.has_new_modules() {
                        true => {
                            let moment = debuggee.session().moment();
                            debuggee.pending = (stop != Stop::Loaded).then_some((resume, stop, moment));
                            debuggee.library_news()
                        }
                        false => debuggee.reason(stop),
                    };
                    match stub.report_stop(debuggee, reason) {
                        Ok(stub) => self.stub = Some(stub),
                        Err(_) => answer.extend(framed(b"S05")),
                    }
                    answer.extend(self.written());
                }
                Some(Machine::Disconnected(stub)) => {
                    let reason = stub.get_reason();
                    self.answer(answer)?;
                    return Ok(Some(match reason {
                        DisconnectReason::Kill => Gone::Killed,
                        _ => Gone::Detached,
                    }));
                }
                stub => {
                    self.stub = stub;
                    self.answer(answer)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Passes a packet to gdbstub; its answer.
    fn pass(&mut self, debuggee: &mut Debuggee, body: &[u8]) -> Vec<u8> {
        let fresh = self.stub.is_none();
        let mut stub = match self.stub.take().or_else(|| fresh_stub(debuggee)) {
            Some(stub) => stub,
            None => return framed(WRONG),
        };
        if fresh {
            let [memory, going_on] = self.selected.clone();
            // A debugger that has selected no thread means any.
            let selects = [(memory, b"Hg0"), (going_on, b"Hc0")];
            let selects = selects.map(|(own, any)| own.unwrap_or_else(|| any.to_vec()));
            for select in selects.into_iter().filter(|select| select != body) {
                match fed(stub, debuggee, &select) {
                    Some(next) => stub = next,
                    None => return framed(WRONG),
                }
            }
            drain(&mut stub);
        }
        self.stub = fed(stub, debuggee, body);
        match self.stub.is_some() {
            true => self.written(),
            // gdbstub is at its end: the next packet gets a new one.
            false => framed(WRONG),
        }
    }

    /// What gdbstub has written.
    fn written(&mut self) -> Vec<u8> {
        self.stub.as_mut().map(drain).unwrap_or_default()
    }
}

fn drain(stub: &mut Stub) -> Vec<u8> {
    let answer = match stub {
        Machine::Idle(stub) => stub.borrow_conn(),
        Machine::Running(stub) => stub.borrow_conn(),
        Machine::CtrlCInterrupt(stub) => stub.borrow_conn(),
        Machine::Disconnected(stub) => stub.borrow_conn(),
    };
    std::mem::take(&mut answer.0)
}

/// A new gdbstub, which does not acknowledge.
fn fresh_stub(debuggee: &mut Debuggee) -> Option<Stub> {
    let stub = GdbStub::builder(Answer::default()).packet_buffer_size(LONGEST).build().ok()?;
    let stub = stub.run_state_machine(debuggee).ok()?;
    let mut stub = fed(stub, debuggee, b"QStartNoAckMode")?;
    drain(&mut stub);
    Some(stub)
}

/// gdbstub after a packet; `None` if it takes the packet for the end.
fn fed(stub: Stub, debuggee: &mut Debuggee, body: &[u8]) -> Option<Stub> {
    framed(body).into_iter().try_fold(stub, |stub, byte| match stub {
        Machine::Idle(stub) => stub.incoming_data(debuggee, byte).ok(),
        Machine::Running(stub) => stub.incoming_data(debuggee, byte).ok(),
        other => Some(other),
    })
}

/// What gdb supports, without several processes: their numbers would have to be known in advance.
fn without_processes(body: &[u8]) -> Vec<u8> {
    let features = body.strip_prefix(b"qSupported:").unwrap_or_default();
    let features = features
        .split(|byte| *byte == b';')
        .filter(|feature| !feature.is_empty() && *feature != b"multiprocess+");
    let kept = features.collect::<Vec<&[u8]>>().join(&b';');
    // gdbstub wants one at least.
    let kept: &[u8] = if kept.is_empty() { b"swbreak+" } else { &kept };
    [b"qSupported:".as_slice(), kept].concat()
}

/// What gdbstub supports, and what this server does beside it.
fn with_own(answer: &[u8]) -> Vec<u8> {
    let end = answer.iter().rposition(|byte| *byte == b'#').unwrap_or(answer.len());
    let supported = answer.get(1..end).unwrap_or_default();
    framed(&[supported, b";ConditionalBreakpoints+"].concat())
}

/// The answer to a packet that gdbstub does not get.
fn own(debuggee: &mut Debuggee, body: &[u8]) -> Option<Vec<u8>> {
    let checked = check(body, debuggee.registers.size(), |tid| debuggee.has_thread(tid));
    if let Err(refused) = checked {
        return Some(match refused {
            Refused::Malformed => WRONG.to_vec(),
            Refused::Because(sentence) => format!("E.{sentence}").into_bytes(),
        });
    }
    if let [b'm', range @ ..] = body {
        let range = std::str::from_utf8(range).ok();
        return Some(range.and_then(|range| memory(debuggee, range)).unwrap_or_else(|| WRONG.to_vec()));
    }
    if let Some(asked) = body.strip_prefix(b"qSearch:memory:") {
        let asked = find::parse(asked);
        let found = asked.map(|(at, length, pattern)| find::find(debuggee, at, length, &pattern));
        return Some(match found {
            None => WRONG.to_vec(),
            Some(Found::Unknown) => ABSENT.to_vec(),
            Some(Found::Nowhere) => b"0".to_vec(),
            Some(Found::At(address)) => format!("1,{address:x}").into_bytes(),
        });
    }
    let text = std::str::from_utf8(body).ok()?;
    Some(match text {
        "qqemu.Supported" => b"PhyMemMode".to_vec(),
        "qqemu.PhyMemMode" => vec![b'0' + u8::from(debuggee.physical)],
        "Qqemu.PhyMemMode:0" | "Qqemu.PhyMemMode:1" => {
            debuggee.physical = text.ends_with('1');
            b"OK".to_vec()
        }
        "qSymbol::" => b"OK".to_vec(),
        _ => return None,
    })
}

/// The answer to `m ADDRESS,LENGTH`.
fn memory(debuggee: &mut Debuggee, range: &str) -> Option<Vec<u8>> {
    let (address, length) = range.split_once(',')?;
    let (address, length) = (hexadecimal(address)?, hexadecimal(length)?);
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MOST_READ);
    if let Some(cell) = debuggee.cell(address, length) {
        return Some(cell.map_or_else(|| ABSENT.to_vec(), |bytes| hex(&bytes).into_bytes()));
    }
    let mut bytes = vec![0; length];
    let read = debuggee.read_memory(address, &mut bytes);
    if read == 0 && !bytes.is_empty() {
        return Some(ABSENT.to_vec());
    }
    bytes.truncate(read);
    Some(hex(&bytes).into_bytes())
}
