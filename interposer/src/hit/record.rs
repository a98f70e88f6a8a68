//! Records: the output of a handler in the channel.

use super::Interposer;
use super::stacks::Stacks;
use trapline_emu::{Core, Seg, Trap, WatchAccess, WatchHit};
use trapline_rpn::{Outcome, Termination};
use trapline_trace::{
    Accessed, Channels, Exception, Header, HeaderItems, Kind, RecordView, TraceHead, WatchItem,
};

/// The channels, and the configuration of records.
pub(super) struct Recorder {
    pub channels: Channels,
    /// Optional items of each record's header.
    pub items: HeaderItems,
    pub stacks: Stacks,
    /// Process name of the record being made.
    pub name: Vec<u8>,
    /// Data of the stack trace being made.
    pub trace: Vec<u8>,
}

impl Recorder {
    /// Commits the stack trace that was made; `watch` is the access that it is of.
    pub fn commit_trace(&mut self, header: &Header, watch: Option<&WatchItem>) {
        let record = RecordView { header: *header, name: &self.name, watch, data: &self.trace };
        self.channels.commit(&record);
    }
}

/// The item of a record that a watch of execution leaves.
pub(super) fn executed(trap: &Trap) -> WatchItem {
    WatchItem { access: Accessed::Execute, address: trap.linear, size: 1, ..WatchItem::default() }
}

/// The item of a record that a watch of accesses leaves.
pub(super) fn accessed(hit: &WatchHit) -> WatchItem {
    let access = match hit.access {
        WatchAccess::Read => Accessed::Read,
        WatchAccess::Write => Accessed::Write,
        WatchAccess::ReadWrite => Accessed::ReadWrite,
        WatchAccess::In => Accessed::In,
        WatchAccess::Out => Accessed::Out,
    };
    WatchItem { access, address: hit.address, size: hit.size, old: hit.old, new: hit.new, len: hit.len }
}

impl Interposer {
    /// Commits the record of a handler that has just run.
    #[inline(never)]
    pub(super) fn record(
        &mut self,
        core: &mut Core,
        index: u32,
        ip: u64,
        watch: Option<&WatchItem>,
        outcome: &Outcome,
    ) {
        if self.runner.asked.frozen_after.is_some_and(|last| self.stats.hits > last) {
            self.stats.frozen += 1;
            return;
        }
        let header = self.header(core, index, ip, outcome);
        let record = RecordView { header, name: &self.recorder.name, watch, data: self.runner.vm.log() };
        self.recorder.channels.commit(&record);
        if self.runner.vm.stack_trace().is_some() {
            self.record_trace(header, index, watch);
        }
        if self.recorder.stacks.any() {
            self.record_stacks(core, header, index);
        }
    }

    /// Commits the record of a clause of a D program; false if it does not fit the channel.
    pub(super) fn record_clause(
        &mut self,
        core: &mut Core,
        (index, ip): (u32, u64),
        data: &[u8],
        outcome: &Outcome,
    ) -> bool {
        let mut header = self.header(core, index, ip, outcome);
        // What a thread has fired belongs together, whatever `--header` says.
        if let Some(profile) = self.profile.as_deref() {
            (header.pid, header.tgid) = (profile.pid(core), Some(profile.tgid(core)));
        }
        if !self.recorder.channels.holds(self.recorder.name.len(), data.len()) {
            return false;
        }
        let record = RecordView { header, name: &self.recorder.name, watch: None, data };
        self.recorder.channels.commit(&record);
        true
    }

    /// The header common to all records of this hit.
    #[inline(always)]
    fn header(&mut self, core: &mut Core, index: u32, ip: u64, outcome: &Outcome) -> Header {
        let probe = &self.inserted.probes[index as usize];
        let env = core.env();
        let items = self.recorder.items;
        let profile = self.profile.as_deref();
        let process = if probe.filter.is_some() { self.filters.process(core, profile) } else { 0 };
        let thrown = (outcome.termination == Termination::Exception).then(|| self.runner.vm.unhandled());
        let (major, minor) = self.runner.vm.codes();
        self.recorder.name.clear();
        if items.contains(HeaderItems::NAME)
            && let Some(p) = profile
        {
            p.name_into(core, &mut self.recorder.name);
        }
        Header {
            seq: 0,
            icount: core.icount(),
            time_ns: core.virtual_ns(),
            probe: index,
            kind: Kind::Data,
            width: probe.handler.limits().width.bits(),
            termination: thrown.map_or(0, |t| t.x_field()),
            major: major.unwrap_or(probe.major),
            minor: minor.unwrap_or(probe.minor),
            cpu: 0,
            process,
            tgid: profile.filter(|_| items.contains(HeaderItems::PID)).map(|p| p.tgid(core)),
            pid: if items.contains(HeaderItems::PID) { profile.map_or(0, |p| p.pid(core)) } else { 0 },
            uid: if items.contains(HeaderItems::UID) { profile.map_or(0, |p| p.uid(core)) } else { 0 },
            cs: env.seg(Seg::Cs).selector,
            ss: env.seg(Seg::Ss).selector,
            ip,
            sp: env.gpr(4),
            tsc: core.tsc(),
            exception: thrown.map(|t| Exception {
                code: t.code,
                parm1: t.parm1,
                parm2: t.parm2,
                line: probe.rest.lines.line(t.at),
            }),
        }
    }

    /// Commits the stack trace of the handler whose record is `data`, with codes (0,0) as DProbes did.
    #[cold]
    fn record_trace(&mut self, data: Header, index: u32, watch: Option<&WatchItem>) {
        let Some(trace) = self.runner.vm.stack_trace() else { return };
        self.stats.traces_dropped += u64::from(trace.dropped);
        if trace.count == 0 {
            return;
        }
        let probe = &self.inserted.probes[index as usize];
        let program = &self.inserted.programs[probe.program as usize];
        let head = TraceHead {
            module: program.definition.module.as_bytes(),
            offset: probe.rest.offset,
            id: program.definition.id,
            major: probe.major,
            minor: probe.minor,
        };
        self.recorder.trace.clear();
        head.encode(data.width, trace.count, &mut self.recorder.trace);
        self.recorder.trace.extend_from_slice(trace.records);
        let header = Header { kind: Kind::StackTrace, major: 0, minor: 0, ..data };
        self.recorder.commit_trace(&header, watch);
    }
}
