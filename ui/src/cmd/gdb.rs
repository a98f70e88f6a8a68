//! `trapline gdb`: a live run or a recording for gdb's `target remote`. The server is the crate `trapline-gdb`; here are its
//! options, its connections, and the commands of `monitor` that `replay --at` and scripts have too.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use trapline_d::Options;
use trapline_gdb::{Commands, Debuggee, Gone, NoProcess, Said, framed, serve};
use trapline_session::{
    Command, DEFAULT_MEMORY, GuestBuilder, HISTORY_MEM, OwnPrograms, Places, Probing, Recording, Reply,
    SourceOptions, Timeline, TravelError, io_sentence, read_program,
};
use trapline_tui::Again;

use super::same_run::SameRun;
use super::travel;
use crate::cli::GdbArgs;
use crate::failure::{Exit, Failure};
use crate::talk::Talk;
use crate::{ctrl_c, no_effect, options};

/// What errors call a line of `monitor`.
const MONITOR: &str = "monitor";
/// How often signals are checked.
const LOOK: Duration = Duration::from_millis(50);
/// How long a debugger waits for another one that is about to go.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The answer to the first packet of one that is turned away.
const BUSY: &[u8] = b"E.another debugger is connected, and one is served at a time";

/// Runs the command.
///
/// # Errors
/// Bad options and files, an address that cannot be used, or no such process.
pub fn run(args: &GdbArgs, out: &mut dyn Write, talk: &Talk) -> Result<Exit, Failure> {
    no_effect::of_gdb(args)?;
    let cancel = Arc::<AtomicBool>::default();
    if args.stdio {
        // Ctrl-C in gdb's terminal is for gdb, which ends the run by its own means.
        let _ = ctrlc::set_handler(|| {});
        let (coming, gone) = Coming::begin(&cancel);
        let mut debuggee = match debuggee(args, &cancel, talk) {
            Err(_) if gone.load(Ordering::SeqCst) => return Ok(Exit::Interrupted),
            made => made?,
        };
        serve(&mut debuggee, coming, out, &AtomicBool::new(false));
        return Ok(Exit::Ok);
    }
    let (listener, address) = listener(&args.listen)?;
    let ended = ctrl_c::listen();
    raise_with(&ended, &cancel);
    let mut debuggee = match debuggee(args, &cancel, talk) {
        Err(_) if ended.load(Ordering::SeqCst) => return Ok(Exit::Interrupted),
        made => made?,
    };
    writeln!(out, "gdb -ex 'target remote {address}'").and_then(|()| out.flush()).map_err(Failure::Output)?;
    let busy = Arc::<AtomicBool>::default();
    let came = accept(listener, &busy, *talk);
    while let Some(stream) = next(&came, &ended) {
        let gone = one(&mut debuggee, &stream, &ended);
        let _ = stream.shutdown(Shutdown::Both);
        busy.store(false, Ordering::SeqCst);
        match gone {
            Gone::Killed => return Ok(Exit::Ok),
            Gone::Ended => break,
            Gone::Detached => {
                talk.note("the debugger has detached; the run stays where it is, for the next one")
            }
            Gone::Closed => talk.note("the debugger is gone; the run stays where it is, for the next one"),
        }
    }
    Ok(Exit::Interrupted)
}

/// What comes over the standard input. It is read at once: when gdb has gone, a search for the process ends too.
struct Coming {
    parts: Receiver<Vec<u8>>,
    rest: Vec<u8>,
}

impl Coming {
    /// Begins to read; the flag tells that nothing more comes.
    fn begin(cancel: &Arc<AtomicBool>) -> (Self, Arc<AtomicBool>) {
        let (told, parts) = mpsc::channel();
        let (cancel, gone) = (Arc::clone(cancel), Arc::<AtomicBool>::default());
        let over = Arc::clone(&gone);
        thread::spawn(move || {
            let (mut bytes, mut input) = ([0; 4096], io::stdin());
            loop {
                match input.read(&mut bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        if told.send(bytes.iter().copied().take(count).collect()).is_err() {
                            return;
                        }
                    }
                }
            }
            over.store(true, Ordering::SeqCst);
            cancel.store(true, Ordering::SeqCst);
        });
        (Self { parts, rest: Vec::new() }, gone)
    }
}

impl Read for Coming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.parts.recv().unwrap_or_default();
        }
        let count = self.rest.len().min(to.len());
        to.iter_mut().zip(self.rest.drain(..count)).for_each(|(to, from)| *to = from);
        Ok(count)
    }
}

/// Serves one connection.
fn one(debuggee: &mut Debuggee, stream: &TcpStream, ended: &AtomicBool) -> Gone {
    let _ = stream.set_nodelay(true);
    match stream.try_clone() {
        Ok(from) => serve(debuggee, from, &mut &*stream, ended),
        Err(_) => Gone::Closed,
    }
}

/// The port, and its address. A number alone is a port of this machine.
fn listener(text: &str) -> Result<(TcpListener, String), Failure> {
    let failed = |why: String| {
        Failure::Usage(format!("--listen {text}: {why}; give HOST:PORT, such as 127.0.0.1:1234"))
    };
    let given = if text.contains(':') { text.to_owned() } else { format!(":{text}") };
    let given = if given.starts_with(':') { format!("127.0.0.1{given}") } else { given };
    let addresses = given.to_socket_addrs().map_err(|error| failed(io_sentence(&error)))?;
    let addresses: Vec<_> = addresses.collect();
    let listener = TcpListener::bind(addresses.as_slice()).map_err(|error| failed(io_sentence(&error)))?;
    let address = listener.local_addr().map_err(|error| failed(io_sentence(&error)))?;
    Ok((listener, address.to_string()))
}

/// Lets a signal interrupt the run.
fn raise_with(ended: &Arc<AtomicBool>, cancel: &Arc<AtomicBool>) {
    let (ended, cancel) = (Arc::clone(ended), Arc::clone(cancel));
    thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            thread::sleep(LOOK);
        }
        cancel.store(true, Ordering::SeqCst);
    });
}

/// Accepts one connection at a time; others are turned away while it lasts.
fn accept(listener: TcpListener, busy: &Arc<AtomicBool>, talk: Talk) -> Receiver<TcpStream> {
    let (told, came) = mpsc::channel();
    let busy = Arc::clone(busy);
    thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            if !busy.swap(true, Ordering::SeqCst) {
                if told.send(stream).is_err() {
                    return;
                }
            } else {
                let (busy, told) = (Arc::clone(&busy), told.clone());
                thread::spawn(move || wait(&busy, &told, stream, talk));
            }
        }
    });
    came
}

/// A connection while another one is served: it waits a while, for that one may have gone already.
fn wait(busy: &AtomicBool, told: &Sender<TcpStream>, mut stream: TcpStream, talk: Talk) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if !busy.swap(true, Ordering::SeqCst) {
            let _ = told.send(stream);
            return;
        }
        thread::sleep(LOOK);
    }
    talk.note("a second debugger was turned away");
    // What it has sent is read first: otherwise the connection is reset, and the answer is lost.
    let _ = stream.set_read_timeout(Some(LOOK));
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(&[b"+", framed(BUSY).as_slice()].concat());
    let _ = stream.shutdown(Shutdown::Both);
}

/// The next connection; none if a signal has come.
fn next(came: &Receiver<TcpStream>, ended: &AtomicBool) -> Option<TcpStream> {
    loop {
        match came.recv_timeout(LOOK) {
            Ok(stream) => return Some(stream),
            Err(RecvTimeoutError::Timeout) if !ended.load(Ordering::SeqCst) => {}
            Err(_) => return None,
        }
    }
}

/// The run to debug.
fn debuggee(args: &GdbArgs, cancel: &Arc<AtomicBool>, talk: &Talk) -> Result<Debuggee, Failure> {
    let source = options::source(&args.source)?;
    let mut again = match args.is_recording() {
        true => recorded(args, &source, talk)?,
        false => live(args, &source, talk)?,
    };
    again.commands = programs(args, &again, talk)?;
    let timeline = again.timeline(&[]).map_err(Failure::Usage)?;
    let commands = Box::new(Monitor { again, source });
    Debuggee::new(timeline, commands, args.user.as_ref(), Arc::clone(cancel), args.is_recording()).map_err(
        |error| match error {
            NoProcess::Travel(TravelError::Interrupted) => Failure::Usage("interrupted".to_owned()),
            NoProcess::Travel(error) => travel::failure(error),
            error => Failure::Usage(error.to_string()),
        },
    )
}

/// The commands that insert the programs of the command line. In a recording they may only observe.
fn programs(args: &GdbArgs, again: &SameRun, talk: &Talk) -> Result<Vec<Command>, Failure> {
    let mut commands = Vec::new();
    for path in &args.probe {
        let program = read_program(path, &again.source)?;
        talk.remarks(&program.warnings);
        let command = Command::insert(&path.display().to_string(), program);
        // What does not fit the guest says why.
        let mut session = again.guest.start(again.probing.clone())?;
        session.apply(command.clone())?;
        if args.is_recording() && !session.observe_only() {
            return Err(Failure::Usage(format!(
                "{} writes to the guest, which makes another run than the recorded one",
                path.display()
            )));
        }
        commands.push(command);
    }
    Ok(commands)
}

fn live(args: &GdbArgs, source: &SourceOptions, talk: &Talk) -> Result<SameRun, Failure> {
    let size = args.mem.unwrap_or(DEFAULT_MEMORY);
    let builder = options::guest(&args.guest, size, &args.cmdline, &args.devices)?;
    let guest = options::open(&builder.require_signed(source.signed_by), talk)?;
    Ok(SameRun {
        guest,
        probing: Probing::default(),
        commands: Vec::new(),
        source: source.clone(),
        d_options: Options::default().settings(),
        memory: args.history_mem.unwrap_or(HISTORY_MEM),
        recorded: None,
        recording: None,
    })
}

fn recorded(args: &GdbArgs, source: &SourceOptions, talk: &Talk) -> Result<SameRun, Failure> {
    options::check_folders(&args.image_dir)?;
    let path = Path::new(&args.guest.image);
    let recording = Recording::read(path)?;
    let places = Places { folders: args.image_dir.clone(), ..Places::of(path) };
    recording.check_signed(source.signed_by)?;
    let builder = GuestBuilder::of_recording(&recording, &places)?.require_signed(source.signed_by);
    let guest = options::open(&builder, talk)?;
    let probing = recording.config().probing.clone();
    Ok(SameRun {
        guest,
        probing,
        commands: Vec::new(),
        source: source.clone(),
        d_options: Options::default().settings(),
        memory: args.history_mem.unwrap_or(HISTORY_MEM),
        recorded: Some((Arc::new(recording), OwnPrograms::Stay)),
        recording: None,
    })
}

/// The commands of `monitor`.
struct Monitor {
    again: SameRun,
    source: SourceOptions,
}

impl Commands for Monitor {
    fn carry_out(&mut self, timeline: &mut Timeline, line: &str) -> Result<Said, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(replies) = travel::travel(timeline, &words).map_err(|failure| failure.to_string())? {
            return Ok(Said { lines: replies.iter().flat_map(Reply::lines).collect() });
        }
        let first = line.split_whitespace().next().unwrap_or_default();
        if first.replace('"', "") == "insert" {
            return Err("`insert` reads a file of the server's computer, which is closed to debuggers; \
                        `monitor probe` takes a clause"
                .to_owned());
        }
        let command = Command::parse(MONITOR, 1, line, &self.source).map_err(|error| error.to_string())?;
        let Some(command) = command else { return Ok(Said::default()) };
        if command.stops() {
            return Err("`kill` or `detach` in gdb ends the session".to_owned());
        }
        if matches!(command, Command::Dump) {
            return Err("`dump` writes a file of the server's computer, which is closed to debuggers; \
                        `trapline dump` and scripts write crash dumps"
                .to_owned());
        }
        let applied = timeline.apply(command).map_err(|error| error.to_string())?;
        let mut lines = applied.reply.lines();
        lines.extend(applied.reply.note().map(str::to_owned));
        if applied.cut {
            lines.push("what came later in this run is gone: from here on it is another one".to_owned());
        }
        Ok(Said { lines })
    }

    fn with_probes(&mut self, clauses: &[String]) -> Result<(Timeline, Vec<String>), String> {
        let commands: Vec<Command> = clauses.iter().map(|text| self.probe(text)).collect::<Result<_, _>>()?;
        let mut timeline = self.again.timeline(&commands)?;
        let reply = timeline.apply(Command::Query).map_err(|error| error.to_string())?.reply;
        let Reply::Query { programs, .. } = reply else { return Ok((timeline, Vec::new())) };
        let own = programs.len().saturating_sub(commands.len());
        Ok((timeline, programs.into_iter().skip(own).map(|program| program.name).collect()))
    }

    fn probe(&mut self, clause: &str) -> Result<Command, String> {
        let command = self.again.clauses(clause)?;
        if !self.again.observes(&command) {
            // What does not fit the guest says why.
            self.again.timeline(std::slice::from_ref(&command))?;
            return Err("this probe changes the guest; a probe to stop at only observes".to_owned());
        }
        Ok(command)
    }

    fn help(&self) -> Vec<String> {
        let mut lines: Vec<String> = travel::all_forms().collect();
        lines.push("and the actions of scripts: docs/script.md".to_owned());
        lines
    }
}
