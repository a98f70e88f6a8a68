//! Ctrl-C is never lost, whenever it comes: while the run goes on, while it stands, and between the two. This client does what
//! gdb does for a condition that it evaluates itself and that never holds.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};

use trapline_gdb::{Debuggee, Framer, Gone, Input, NoCommands, framed, serve};
use trapline_session::{GuestBuilder, Timeline};

/// How often Ctrl-C comes.
const ROUNDS: u32 = 200;

struct From(Receiver<Vec<u8>>, Vec<u8>);

impl Read for From {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            self.1 = self.0.recv().unwrap_or_default();
        }
        let count = self.1.len().min(to.len());
        to[..count].copy_from_slice(&self.1[..count]);
        self.1.drain(..count);
        Ok(count)
    }
}

struct To(Sender<Vec<u8>>);

impl Write for To {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A debugger.
struct Client {
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    framer: Framer,
}

impl Client {
    /// The next answer that is no text for the user.
    fn answer(&mut self, seen: &mut Vec<String>) -> String {
        loop {
            if let Some(at) = seen.iter().position(|body| !body.starts_with('O') || body == "OK") {
                return seen.drain(..=at).next_back().unwrap();
            }
            for byte in self.from.recv().unwrap() {
                if let Some(Input::Packet(body)) = self.framer.take(byte) {
                    seen.push(String::from_utf8(body).unwrap());
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) {
        self.to.send(bytes.to_vec()).unwrap();
    }
}

/// Where Ctrl-C comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Comes {
    /// In front of a packet that lets the run go on.
    Before,
    /// In one piece with it.
    With,
    /// Behind it.
    After,
}

impl Comes {
    fn new(random: u64) -> Self {
        [Self::Before, Self::With, Self::After][(random % 3) as usize]
    }
}

/// Lets the run go on with a packet, and Ctrl-C come; the answer of the stop.
fn stopped(client: &mut Client, seen: &mut Vec<String>, packet: &[u8], comes: Comes) -> String {
    match comes {
        Comes::Before => {
            client.send(b"\x03");
            // What is asked here is answered, and takes nothing away.
            client.send(&framed(b"qC"));
            client.answer(seen);
            client.send(packet);
        }
        Comes::With => client.send(&[b"\x03", packet].concat()),
        Comes::After => client.send(&[packet, b"\x03"].concat()),
    }
    client.answer(seen)
}

/// Goes on until the stop that Ctrl-C makes; the number of stops before it.
fn interrupted(client: &mut Client, first: usize, comes: Comes) -> usize {
    let mut seen = Vec::new();
    for (stops, packet) in [b"c", b"s"].into_iter().cycle().enumerate() {
        let packet = framed(packet);
        let stop = if stops == first {
            stopped(client, &mut seen, &packet, comes)
        } else {
            client.send(&packet);
            client.answer(&mut seen)
        };
        if stop.starts_with("T02") {
            return stops;
        }
        assert!(stop.starts_with("T05"), "{stop}");
        assert!(stops <= first + 1, "lost: {comes:?} at stop {first}");
    }
    unreachable!()
}

#[test]
fn ctrl_c_is_never_lost() {
    let (to, from_client) = channel();
    let (to_client, from) = channel();
    let server = std::thread::spawn(move || {
        let session = GuestBuilder::embedded("ia32").memory(16 << 20).start().unwrap();
        let timeline = Timeline::new(session, 64 << 20).unwrap();
        let cancel = Arc::<AtomicBool>::default();
        let mut debuggee = Debuggee::new(timeline, Box::new(NoCommands), None, cancel, false).unwrap();
        let at = debuggee.timeline().session().symbols().sole("do_syscall").unwrap().addr;
        to_client.send(format!("{at:x}").into_bytes()).unwrap();
        let ended = AtomicBool::new(false);
        serve(&mut debuggee, From(from_client, Vec::new()), &mut To(to_client), &ended)
    });
    let at = String::from_utf8(from.recv().unwrap()).unwrap();
    let mut client = Client { to, from, framer: Framer::default() };
    let mut seen = Vec::new();
    client.send(&framed(format!("Z0,{at},1").as_bytes()));
    assert_eq!(client.answer(&mut seen), "OK");
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..ROUNDS {
        let random = next();
        let comes = Comes::new(random);
        let first = (random >> 8) as usize % 5;
        let stops = interrupted(&mut client, first, comes);
        // One that has come before the run goes on stops it before it has moved.
        assert!(comes == Comes::After || stops == first, "{comes:?} at stop {first}: stop {stops}");
    }
    // The same where the server evaluates the condition (const8 0, end), so that nothing but Ctrl-C stops the run.
    for packet in [format!("z0,{at},1"), format!("Z0,{at},1;X3,220027")] {
        client.send(&framed(packet.as_bytes()));
        assert_eq!(client.answer(&mut seen), "OK");
    }
    for round in 0..ROUNDS {
        let comes = Comes::new(next());
        let mut stop = stopped(&mut client, &mut seen, &framed(b"c"), comes);
        if comes == Comes::After && stop.ends_with("replaylog:end;") {
            // The run has come to its end before the bytes behind the packet were read. They are not lost, and it begins again.
            client.send(&framed(b"bc"));
            stop = client.answer(&mut seen);
            client.send(&framed(b"bc"));
            assert!(client.answer(&mut seen).ends_with("replaylog:begin;"), "round {round}");
        }
        assert!(stop.starts_with("T02"), "round {round}, {comes:?}: {stop}");
        // It has not only come late: the run is where it stands, and goes on.
        client.send(&framed(b"s"));
        assert!(client.answer(&mut seen).starts_with("T05"), "round {round}");
    }
    client.send(&framed(b"k"));
    assert_eq!(server.join().unwrap(), Gone::Killed);
}
