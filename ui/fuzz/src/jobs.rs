//! Several processes that search together. LibAFL's LLMP carries the states that reach something from each to all others; this
//! process is its broker, which may be connected to the brokers of other machines. What the processes find, they tell on their
//! standard output, one message a line.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use libafl::events::StdLlmpEventHook;
use libafl::monitors::NopMonitor;
use libafl_bolts::llmp::{Listener, LlmpBroker};
use libafl_bolts::shmem::{ShMemProvider, StdShMem, StdShMemProvider};
use libafl_bolts::tuples::tuple_list;
use serde::{Deserialize, Serialize};
use trapline_session::io_sentence;

use crate::error::FuzzError;
use crate::finding::Finding;
use crate::report::Report;
use crate::state::State;

/// The time between two looks at what the processes send to one another.
const PAUSE: Duration = Duration::from_millis(5);

type Hook = StdLlmpEventHook<State, NopMonitor>;
type Broker = LlmpBroker<(Hook, ()), StdShMem, StdShMemProvider>;

/// What a process tells.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// How far it is.
    Progress {
        /// Trials so far.
        trials: u64,
        /// Places that it has reached.
        places: usize,
        /// States in its corpus.
        states: usize,
    },
    /// A finding, minimised.
    Found(Finding),
    /// It has ended.
    Ended(Report),
}

impl Message {
    /// Tells it on standard output.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn tell(&self) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }
}

/// What happens among the processes.
#[derive(Debug)]
pub enum Event {
    /// A process has told something.
    Told(usize, Message),
    /// A process has ended without a word.
    Lost(usize),
    /// Nothing, for a moment.
    Nothing,
}

/// Other machines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Others {
    /// The address at which others may join.
    pub broker: Option<SocketAddr>,
    /// The address of the one that is joined.
    pub join: Option<SocketAddr>,
}

impl Others {
    /// The listener of the broker. The processes here connect to it too, over the loopback interface.
    fn listener(self) -> Result<TcpListener, FuzzError> {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let at = self.broker.unwrap_or(SocketAddr::new(loopback, 0));
        if at.ip() != loopback && at.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            let port = at.port();
            return Err(FuzzError::Objective(format!(
                "--broker {at}: use 0.0.0.0:{port} for other machines, or 127.0.0.1:{port} for this one alone"
            )));
        }
        TcpListener::bind(at).map_err(|error| failed(&format!("cannot listen at {at}"), io_sentence(&error)))
    }
}

/// The processes, and the broker between them.
pub struct Jobs {
    broker: Broker,
    children: Vec<(Child, Option<ChildStdin>)>,
    messages: Receiver<(usize, Option<Message>)>,
    ended: Vec<bool>,
    running: usize,
}

fn failed(what: &str, error: impl std::fmt::Display) -> FuzzError {
    FuzzError::Search(format!("{what}: {error}"))
}

impl Jobs {
    /// Starts so many processes; the command is for the process of a number, and the port of the broker.
    ///
    /// # Errors
    /// There is no shared memory, no port, or a process cannot be started.
    pub fn start(
        many: usize,
        others: Others,
        command: impl Fn(usize, u16) -> std::io::Result<Command>,
    ) -> Result<Self, FuzzError> {
        let listener = others.listener()?;
        let port = listener.local_addr().map_err(|error| failed("no port", error))?.port();
        let memory = StdShMemProvider::new().map_err(|error| failed("no shared memory", error))?;
        let hook = Hook::new(NopMonitor::new()).map_err(|error| failed("the broker", error))?;
        let broker = Broker::new(memory, tuple_list!(hook));
        let mut broker = broker.map_err(|error| failed("the broker", error))?;
        if let Some(other) = others.join {
            // Before the listener, whose clients get the numbers after this connection's.
            let connected = broker.inner_mut().connect_b2b(other);
            connected.map_err(|error| match error {
                libafl::Error::OsError(error, ..) => {
                    failed(&format!("cannot join {other}"), io_sentence(&error))
                }
                error => failed(&format!("cannot join {other}"), error),
            })?;
        }
        let listening = broker.inner_mut().launch_listener(Listener::Tcp(listener));
        listening.map_err(|error| failed("the broker", error))?;
        let (sender, messages) = channel();
        let mut children = Vec::new();
        for job in 0..many {
            let child = command(job, port)
                .and_then(|mut command| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn());
            let mut child = child.map_err(|error| failed("a job cannot be started", error))?;
            if let Some(out) = child.stdout.take() {
                let sender = sender.clone();
                std::thread::spawn(move || read(job, BufReader::new(out), &sender));
            }
            let input = child.stdin.take();
            children.push((child, input));
        }
        Ok(Self { broker, children, messages, ended: vec![false; many], running: many })
    }

    /// The next event; `None` after all processes have ended.
    ///
    /// # Errors
    /// The broker fails.
    pub fn wait(&mut self) -> Result<Option<Event>, FuzzError> {
        if self.running == 0 {
            return Ok(None);
        }
        self.broker.broker_once().map_err(|error| failed("the broker", error))?;
        match self.messages.recv_timeout(PAUSE) {
            Ok((job, Some(message))) => {
                if let (Message::Ended(_), Some(ended)) = (&message, self.ended.get_mut(job)) {
                    *ended = true;
                }
                Ok(Some(Event::Told(job, message)))
            }
            Ok((job, None)) => {
                self.running -= 1;
                let regular = self.ended.get(job) == Some(&true);
                Ok(Some(if regular { Event::Nothing } else { Event::Lost(job) }))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Some(Event::Nothing)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Asks all processes to end.
    pub fn stop(&mut self) {
        self.children.iter_mut().for_each(|(_, input)| drop(input.take()));
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop();
        for (child, _) in &mut self.children {
            // It ends by itself when its input has ended.
            let _ = child.wait();
        }
    }
}

/// Reads what a process tells, to its end.
fn read(job: usize, out: impl BufRead, to: &Sender<(usize, Option<Message>)>) {
    for line in out.lines().map_while(Result::ok) {
        if let Ok(message) = serde_json::from_str(&line) {
            let _ = to.send((job, Some(message)));
        }
    }
    let _ = to.send((job, None));
}
