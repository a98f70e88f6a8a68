//! gdbstub's view of the run: each of its traits, over a [`Debuggee`].
//!
//! What cannot be done is answered by an error packet. Nothing here ends a connection.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use gdbstub::arch::{Arch, RegId, Registers as Values};
use gdbstub::common::{Pid, Signal, Tid};
use gdbstub::stub::MultiThreadStopReason;
use gdbstub::target::ext::auxv::{Auxv, AuxvOps};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadRangeStepping, MultiThreadRangeSteppingOps, MultiThreadResume,
    MultiThreadResumeOps, MultiThreadSchedulerLocking, MultiThreadSchedulerLockingOps, MultiThreadSingleStep,
    MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::reverse_exec::{
    ReplayLogPosition, ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps,
};
use gdbstub::target::ext::base::single_register_access::{SingleRegisterAccess, SingleRegisterAccessOps};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps, SwBreakpoint,
    SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::catch_syscalls::{CatchSyscallPosition, CatchSyscallsOps};
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::libraries::{Libraries, LibrariesOps, LibrariesSvr4, LibrariesSvr4Ops};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps, outputln};
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};

use trapline_rpn::Width;
use trapline_session::{numbers, shortened};

use crate::debuggee::Debuggee;
use crate::files::{self, part};
use crate::stops::{Breakpoint, Kind, Resume, Stop};
use crate::threads;

/// EFAULT.
const FAULT: u8 = 14;
/// EINVAL.
const INVALID: u8 = 22;
/// ESRCH.
const NO_THREAD: u8 = 3;

/// x86, of 32 or 64 bits: the target description says which.
#[derive(Debug)]
pub enum X86 {}

/// The values of all registers, as the target description lays them out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image(Vec<Option<u8>>);

/// The number of a register in the target description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(usize);

impl Arch for X86 {
    type Usize = u64;
    type Registers = Image;
    type BreakpointKind = usize;
    type RegId = Number;
}

impl RegId for Number {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        Some((Self(id), None))
    }
}

impl Values for Image {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        0
    }

    fn gdb_serialize(&self, write_byte: impl FnMut(Option<u8>)) {
        self.0.iter().copied().for_each(write_byte);
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        self.0 = bytes.iter().copied().map(Some).collect();
        Ok(())
    }
}

impl Debuggee {
    /// A stop as gdbstub reports it.
    pub(crate) fn reason(&self, stop: Stop) -> MultiThreadStopReason<u64> {
        let tid = threads::running(self.session());
        match stop {
            Stop::Trap | Stop::Loaded => {
                MultiThreadStopReason::SignalWithThread { tid, signal: Signal::SIGTRAP }
            }
            Stop::Interrupted => MultiThreadStopReason::SignalWithThread { tid, signal: Signal::SIGINT },
            Stop::Breakpoint(Kind::Hardware) => MultiThreadStopReason::HwBreak(tid),
            Stop::Breakpoint(_) => MultiThreadStopReason::SwBreak(tid),
            Stop::Watchpoint(Breakpoint { kind, address, .. }) => {
                let kind = match kind {
                    Kind::Read => WatchKind::Read,
                    Kind::Access => WatchKind::ReadWrite,
                    _ => WatchKind::Write,
                };
                MultiThreadStopReason::Watch { tid, kind, addr: address }
            }
            Stop::Call { number, returns } => {
                let position =
                    if returns { CatchSyscallPosition::Return } else { CatchSyscallPosition::Entry };
                MultiThreadStopReason::CatchSyscall { tid: Some(tid), number, position }
            }
            Stop::Begin => MultiThreadStopReason::ReplayLog { tid: Some(tid), pos: ReplayLogPosition::Begin },
            Stop::End => MultiThreadStopReason::ReplayLog { tid: Some(tid), pos: ReplayLogPosition::End },
        }
    }

    /// The news of modules, as gdbstub reports it.
    pub(crate) fn library_news(&self) -> MultiThreadStopReason<u64> {
        MultiThreadStopReason::Library(threads::running(self.session()))
    }

    fn add(&mut self, breakpoint: Breakpoint) -> bool {
        let width = if self.registers.is_wide() { Width::W64 } else { Width::W32 };
        let Breakpoint { address, length, .. } = breakpoint;
        numbers::last_address(width, address, length).is_ok() && self.breakpoints.add(breakpoint)
    }

    fn refuse<T>(&mut self, sentence: String) -> TargetResult<T, Self> {
        self.refusal = Some(sentence);
        Err(TargetError::Errno(INVALID))
    }
}

fn executed(kind: Kind, address: u64) -> Breakpoint {
    Breakpoint { kind, address, length: 1 }
}

fn watched(kind: WatchKind, address: u64, length: u64) -> Breakpoint {
    let kind = match kind {
        WatchKind::Write => Kind::Write,
        WatchKind::Read => Kind::Read,
        WatchKind::ReadWrite => Kind::Access,
    };
    Breakpoint { kind, address, length }
}

impl Target for Debuggee {
    type Arch = X86;
    type Error = Infallible;

    fn base_ops(&mut self) -> BaseOps<'_, X86, Infallible> {
        BaseOps::MultiThread(self)
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
    }

    fn use_rle(&self) -> bool {
        false
    }

    // Forks of the guest stop nothing.
    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        if self.user.is_some() { Some(self) } else { None }
    }

    fn support_catch_syscalls(&mut self) -> Option<CatchSyscallsOps<'_, Self>> {
        if self.knows_calls() { Some(self) } else { None }
    }

    fn support_libraries(&mut self) -> Option<LibrariesOps<'_, Self>> {
        if self.user.is_none() { Some(self) } else { None }
    }

    fn support_libraries_svr4(&mut self) -> Option<LibrariesSvr4Ops<'_, Self>> {
        if self.user.is_some() { Some(self) } else { None }
    }
}

impl MultiThreadBase for Debuggee {
    fn read_registers(&mut self, to: &mut Image, tid: Tid) -> TargetResult<(), Self> {
        to.0 = self.registers_of(tid).ok_or(TargetError::Errno(NO_THREAD))?;
        Ok(())
    }

    fn write_registers(&mut self, from: &Image, tid: Tid) -> TargetResult<(), Self> {
        match Debuggee::write_registers(self, tid, &from.0) {
            Ok(()) => Ok(()),
            Err(sentence) => self.refuse(sentence),
        }
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, address: u64, data: &mut [u8], _tid: Tid) -> TargetResult<usize, Self> {
        match self.read_memory(address, data) {
            0 if !data.is_empty() => Err(TargetError::Errno(FAULT)),
            read => Ok(read),
        }
    }

    fn write_addrs(&mut self, address: u64, data: &[u8], _tid: Tid) -> TargetResult<(), Self> {
        match self.write_memory(address, data) {
            Ok(()) => Ok(()),
            Err(sentence) => self.refuse(sentence),
        }
    }

    fn list_active_threads(&mut self, tell: &mut dyn FnMut(Tid)) -> Result<(), Infallible> {
        self.threads().into_iter().for_each(|thread| tell(thread.tid));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl SingleRegisterAccess<Tid> for Debuggee {
    fn read_register(
        &mut self,
        tid: Tid,
        Number(number): Number,
        to: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let all = self.registers_of(tid).ok_or(TargetError::Errno(NO_THREAD))?;
        let place = self.registers.place(number).ok_or(TargetError::Errno(INVALID))?;
        let bytes = all.get(place).unwrap_or_default();
        let to = to.get_mut(..bytes.len()).ok_or(TargetError::Errno(INVALID))?;
        for (to, from) in to.iter_mut().zip(bytes) {
            *to = from.ok_or(TargetError::Errno(INVALID))?;
        }
        Ok(bytes.len())
    }

    fn write_register(&mut self, tid: Tid, Number(number): Number, value: &[u8]) -> TargetResult<(), Self> {
        let mut all = self.registers_of(tid).ok_or(TargetError::Errno(NO_THREAD))?;
        let place = self.registers.place(number).filter(|place| place.len() == value.len());
        let place = place.ok_or(TargetError::Errno(INVALID))?;
        let bytes = all.get_mut(place).ok_or(TargetError::Errno(INVALID))?;
        bytes.iter_mut().zip(value).for_each(|(to, from)| *to = Some(*from));
        match Debuggee::write_registers(self, tid, &all) {
            Ok(()) => Ok(()),
            Err(sentence) => self.refuse(sentence),
        }
    }
}

impl ThreadExtraInfo for Debuggee {
    fn thread_extra_info(&self, tid: Tid, to: &mut [u8]) -> Result<usize, Infallible> {
        let label = self.threads().into_iter().find(|thread| thread.tid == tid).map(|thread| thread.label);
        let length = to.len();
        Ok(part(label.unwrap_or_default().as_bytes(), 0, length, to))
    }
}

impl MultiThreadResume for Debuggee {
    fn resume(&mut self) -> Result<(), Infallible> {
        self.resume.get_or_insert((Resume::Continue, None));
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Infallible> {
        self.resume = None;
        Ok(())
    }

    fn set_resume_action_continue(&mut self, _tid: Tid, _signal: Option<Signal>) -> Result<(), Infallible> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_range_step(&mut self) -> Option<MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Debuggee {
    fn set_resume_action_step(&mut self, tid: Tid, _signal: Option<Signal>) -> Result<(), Infallible> {
        self.resume = Some((Resume::Step, Some(tid)));
        Ok(())
    }
}

impl MultiThreadRangeStepping for Debuggee {
    fn set_resume_action_range_step(&mut self, tid: Tid, start: u64, end: u64) -> Result<(), Infallible> {
        self.resume = Some((Resume::Range(start, end), Some(tid)));
        Ok(())
    }
}

/// There is one processor: while a task is stepped, it is the one that runs.
impl MultiThreadSchedulerLocking for Debuggee {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl ReverseStep<Tid> for Debuggee {
    fn reverse_step(&mut self, tid: Tid) -> Result<(), Infallible> {
        self.resume = Some((Resume::ReverseStep, Some(tid)));
        Ok(())
    }
}

impl ReverseCont<Tid> for Debuggee {
    fn reverse_cont(&mut self) -> Result<(), Infallible> {
        self.resume = Some((Resume::ReverseContinue, None));
        Ok(())
    }
}

impl Breakpoints for Debuggee {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Debuggee {
    fn add_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.add(executed(Kind::Software, address)))
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.breakpoints.remove(executed(Kind::Software, address)))
    }
}

impl HwBreakpoint for Debuggee {
    fn add_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.add(executed(Kind::Hardware, address)))
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.breakpoints.remove(executed(Kind::Hardware, address)))
    }
}

impl HwWatchpoint for Debuggee {
    fn add_hw_watchpoint(&mut self, address: u64, length: u64, kind: WatchKind) -> TargetResult<bool, Self> {
        Ok(self.add(watched(kind, address, length)))
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        length: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        Ok(self.breakpoints.remove(watched(kind, address, length)))
    }
}

impl MonitorCmd for Debuggee {
    fn handle_monitor_cmd(&mut self, line: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), Infallible> {
        match self.monitor(&String::from_utf8_lossy(line)) {
            Ok(said) => said.lines.iter().for_each(|line| outputln!(out, "{line}")),
            Err(sentence) => outputln!(out, "error: {}", shortened(&sentence)),
        }
        Ok(())
    }
}

impl TargetDescriptionXmlOverride for Debuggee {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        to: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            return Err(TargetError::Errno(INVALID));
        }
        Ok(part(self.registers.description().as_bytes(), offset, length, to))
    }
}

impl ExecFile for Debuggee {
    fn get_exec_file(
        &self,
        _pid: Option<Pid>,
        offset: u64,
        length: usize,
        to: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let path = files::executable(self.session(), self.user.as_ref()).unwrap_or_default();
        Ok(part(path.as_bytes(), offset, length, to))
    }
}

impl Auxv for Debuggee {
    fn get_auxv(&self, offset: u64, length: usize, to: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(part(&files::auxv(self.session(), self.user.as_ref()), offset, length, to))
    }
}

impl Libraries for Debuggee {
    fn get_libraries(&self, offset: u64, length: usize, to: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(part(files::libraries(self.session()).as_bytes(), offset, length, to))
    }
}

impl LibrariesSvr4 for Debuggee {
    fn get_libraries_svr4(&self, offset: u64, length: usize, to: &mut [u8]) -> TargetResult<usize, Self> {
        let text = files::libraries_svr4(self.session(), self.user.as_ref());
        Ok(part(text.as_bytes(), offset, length, to))
    }
}
