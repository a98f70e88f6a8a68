//! The behaviour of probes, written from the manual: a slow model of `ignore`, `maxhits`, `remove`, `logonfault`,
//! retries and interrupted instructions. It is given what each task did, instruction by instruction, and knows nothing
//! of traps, slots or stack pointers.
//!
//! The rules (docs/records.md, docs/probe-language.md):
//! - A hit is an instruction of a task. It lasts as long as the task attempts that instruction and no other.
//! - At its first attempt the probes there take part, in order of insertion: the first `ignore` hits are passed over, all
//!   others run the handler.
//! - If the instruction faults, the records of the attempt are dropped, except those with `logonfault`. The next
//!   attempt runs the same handlers again and counts nothing. If a repeated instruction is interrupted, the rest of it
//!   runs no handlers.
//! - When the instruction has completed, the records are committed, and probes that have had `maxhits` hits or said
//!   `remove` are disabled. Until then they take part in no other hit. If the task goes elsewhere, the records are
//!   dropped, and those probes are disabled too.
//! - A disabled probe has no part in any hit. Where no enabled probe is left, hits are over and their records stay.

/// The action of a handler. Each run counts in the program's variable 0, and is given that count.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// Logs the count.
    Log,
    /// Leaves no record.
    Abort,
    /// Logs the count, and removes the probe when the count is this number.
    RemoveAt(u64),
    /// Leaves a record without data.
    Exit,
}

/// A probe point.
#[derive(Debug, Clone)]
pub struct Point {
    pub ip: u64,
    pub handler: Handler,
    pub ignore: u64,
    pub maxhits: Option<u64>,
    pub logonfault: bool,
}

/// A record, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub probe: usize,
    pub ip: u64,
    pub icount: u64,
    pub count: Option<u64>,
}

/// How an attempt of an instruction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Completed,
    /// One iteration of more.
    Partly,
    Faulted,
}

/// What happened, in order.
#[derive(Debug, Clone)]
pub enum Event {
    /// A task attempted an instruction.
    Attempt { task: usize, ip: u64, icount: u64, end: End },
    /// The kernel lets a task go on at an instruction.
    Resume { task: usize, ip: u64 },
    /// A program is inserted.
    Insert(Vec<Point>),
    /// A program is removed.
    Remove(usize),
    /// A probe point of a program is enabled or disabled.
    Switch { program: usize, point: usize, on: bool },
}

struct Probe {
    point: Point,
    program: usize,
    enabled: bool,
    seen: u64,
    runs: u64,
}

/// A hit that is not over.
struct Open {
    ip: u64,
    faulted: bool,
    /// The probes that take part, and whether they run.
    parts: Vec<(usize, Option<u64>)>,
    /// Those that are disabled when it is over.
    leaving: Vec<usize>,
    records: Vec<Record>,
    since: u64,
}

#[derive(Default)]
struct Program {
    probes: Vec<usize>,
    count: u64,
    removed: bool,
}

/// The state of all probes.
#[derive(Default)]
pub struct Model {
    probes: Vec<Probe>,
    programs: Vec<Program>,
    open: Vec<Option<Open>>,
    events: u64,
    pub records: Vec<Record>,
}

impl Model {
    pub fn new(tasks: usize) -> Self {
        Self { open: (0..tasks).map(|_| None).collect(), ..Self::default() }
    }

    /// Of each probe: whether it is enabled, handlers run, hits passed over.
    pub fn state(&self) -> Vec<(bool, u64, u64)> {
        let state = |p: &Probe| (p.enabled, p.runs, p.seen.min(p.point.ignore));
        self.probes.iter().filter(|p| !self.programs[p.program].removed).map(state).collect()
    }

    pub fn happens(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Attempt { task, ip, icount, end } => self.attempt(*task, *ip, *icount, *end),
            Event::Resume { task, ip } => {
                if self.open[*task].as_ref().is_some_and(|open| open.ip != *ip) {
                    self.give_up(*task);
                }
            }
            Event::Insert(points) => {
                let program = self.programs.len();
                self.programs.push(Program::default());
                for point in points {
                    self.programs[program].probes.push(self.probes.len());
                    let point = point.clone();
                    self.probes.push(Probe { point, program, enabled: true, seen: 0, runs: 0 });
                }
            }
            Event::Remove(program) => {
                self.programs[*program].removed = true;
                for probe in self.programs[*program].probes.clone() {
                    self.disable(probe);
                }
            }
            Event::Switch { program, point, on } => {
                let Some(&probe) = self.programs[*program].probes.get(*point) else { return };
                match on {
                    _ if self.programs[*program].removed => {}
                    true => self.probes[probe].enabled = true,
                    false => self.disable(probe),
                }
            }
        }
    }

    fn attempt(&mut self, task: usize, ip: u64, icount: u64, end: End) {
        if self.open[task].as_ref().is_some_and(|open| open.ip != ip) {
            self.give_up(task);
        }
        let here: Vec<usize> = (0..self.probes.len())
            .filter(|&p| self.probes[p].enabled && self.probes[p].point.ip == ip)
            .collect();
        if here.is_empty() {
            return;
        }
        let before = self.open[task].take();
        let mut hit = match before {
            Some(open) if !open.faulted => open,
            Some(open) => {
                let old = open.parts.clone();
                self.run_handlers(
                    Open { parts: Vec::new(), leaving: Vec::new(), ..open },
                    &here,
                    &old,
                    icount,
                )
            }
            None => {
                let new = Open {
                    ip,
                    faulted: false,
                    parts: Vec::new(),
                    leaving: Vec::new(),
                    records: Vec::new(),
                    since: 0,
                };
                self.run_handlers(new, &here, &[], icount)
            }
        };
        match end {
            End::Completed => {
                self.records.append(&mut hit.records);
                hit.leaving.into_iter().for_each(|probe| self.disable(probe));
            }
            End::Partly => {
                hit.faulted = false;
                hit.since = self.events;
                self.open[task] = Some(hit);
            }
            End::Faulted => {
                let records = std::mem::take(&mut hit.records);
                let stay = records.into_iter().filter(|r| self.probes[r.probe].point.logonfault);
                self.records.extend(stay);
                hit.faulted = true;
                hit.since = self.events;
                self.open[task] = Some(hit);
            }
        }
    }

    fn run_handlers(
        &mut self,
        mut hit: Open,
        here: &[usize],
        old: &[(usize, Option<u64>)],
        icount: u64,
    ) -> Open {
        for &number in here {
            let before = old.iter().find(|(probe, _)| *probe == number);
            let spent = self.open.iter().flatten().any(|open| open.leaving.contains(&number));
            if spent {
                // It does not run, but its part in this hit was counted.
                hit.parts.extend(before);
                continue;
            }
            let probe = &mut self.probes[number];
            let run = match before {
                Some((_, run)) => *run,
                None => {
                    probe.seen += 1;
                    let runs = probe.seen > probe.point.ignore;
                    probe.runs += u64::from(runs);
                    runs.then_some(probe.runs)
                }
            };
            hit.parts.push((number, run));
            let Some(run) = run else { continue };
            let program = &mut self.programs[probe.program];
            program.count += 1;
            let (count, handler) = (program.count, probe.point.handler);
            let logged = match handler {
                Handler::Abort => None,
                Handler::Exit => Some(None),
                Handler::Log | Handler::RemoveAt(_) => Some(Some(count)),
            };
            if let Some(count) = logged {
                hit.records.push(Record { probe: number, ip: hit.ip, icount, count });
            }
            let removes = matches!(handler, Handler::RemoveAt(at) if at == count);
            if removes || probe.point.maxhits.is_some_and(|most| run >= most) {
                hit.leaving.push(number);
            }
        }
        hit
    }

    /// Ends the hit of a task that does not continue with its instruction.
    fn give_up(&mut self, task: usize) {
        if let Some(open) = self.open[task].take() {
            open.leaving.into_iter().for_each(|probe| self.disable(probe));
        }
    }

    fn disable(&mut self, probe: usize) {
        if !std::mem::replace(&mut self.probes[probe].enabled, false) {
            return;
        }
        for open in self.open.iter_mut().flatten() {
            open.parts.retain(|(part, _)| *part != probe);
            open.leaving.retain(|leaving| *leaving != probe);
        }
        let ip = self.probes[probe].point.ip;
        if self.probes.iter().any(|p| p.enabled && p.point.ip == ip) {
            return;
        }
        let mut over: Vec<Open> = Vec::new();
        for open in &mut self.open {
            over.extend(open.take_if(|open| open.ip == ip));
        }
        over.sort_by_key(|open| open.since);
        for open in over {
            self.records.extend(open.records);
        }
    }
}
