//! Names for records: of addresses, and of providers' probes.

use std::sync::Arc;

use iced_x86::{Formatter, Instruction, NasmFormatter};
use trapline_emu::Core;
use trapline_interposer::{DSetup, ProbeNames, ProgramId};
use trapline_os::{CodePointer, OsProfile, Unwinder};
use trapline_providers::{OperandNames, Target};
use trapline_trace::{Kind, Layout, NamedProbe, Symbolize};

/// CR0.PE.
const PE: u64 = 1;

/// The address of an instruction, and how it is named.
#[derive(Debug, Clone, Copy)]
pub struct CodeAddress {
    /// Its linear address.
    pub linear: u64,
    /// The instruction pointer, if the kernel's code segment has a base: early code runs so where it is linked.
    linked: Option<u64>,
}

impl CodeAddress {
    /// The address of the instruction with this instruction pointer in the current code segment.
    pub fn of(core: &Core, ip: u64) -> Self {
        let env = core.env();
        let base = env.cs_base();
        let linked = (base != 0 && env.cr(0) & PE != 0 && env.cpl() == 0).then_some(ip);
        Self { linear: core.wrap_linear(base.wrapping_add(ip)), linked }
    }

    /// Its symbol: that of the linear address, else that of the address where the instruction is linked.
    pub fn symbol(self, naming: &mut Naming<'_>) -> Option<String> {
        self.name(CodePointer::At, naming)
    }

    /// The symbol of the call that returns to it.
    pub fn call_symbol(self, naming: &mut Naming<'_>) -> Option<String> {
        self.name(CodePointer::Return, naming)
    }

    fn name(self, pointer: fn(u64) -> CodePointer, naming: &mut Naming<'_>) -> Option<String> {
        let linear = naming.name(pointer(self.linear));
        linear.or_else(|| naming.name(pointer(self.linked?)))
    }
}

/// What names addresses of code as they are at one moment: those of the kernel, of the modules that it has loaded, and of
/// the files that the current process has mapped. Each view of the present state asks this.
pub struct Naming<'a> {
    /// The kernel and the files.
    pub target: &'a Target,
    /// The machine.
    pub core: &'a Core,
    /// The system, if it is known.
    pub profile: Option<&'a dyn OsProfile>,
    /// What finds modules and mappings.
    pub unwinder: &'a mut Unwinder,
}

impl Naming<'_> {
    /// The name, such as `do_fork+0x3`, `loop:loop_init` or `busybox:main+0x10`, if there is one.
    pub fn name(&mut self, pointer: CodePointer) -> Option<String> {
        if let Some(name) = self.target.kernel_symbol(pointer) {
            return Some(name);
        }
        let place = self.unwinder.place(self.core, self.profile, pointer)?;
        self.name_in(pointer, place.user, (&place.module, place.base))
    }

    /// An instruction, with names in place of the addresses in its operands.
    pub fn instruction(&mut self, instruction: &Instruction) -> String {
        let names = OperandNames::of([*instruction], |at| self.name(CodePointer::At(at)));
        let mut text = String::new();
        NasmFormatter::with_options(Some(Box::new(names)), None).format(instruction, &mut text);
        text
    }

    /// The same, in a module that is known.
    pub(super) fn name_in(
        &self,
        pointer: CodePointer,
        user: bool,
        (module, base): (&str, u64),
    ) -> Option<String> {
        let address = pointer.within().wrapping_sub(base);
        let found = match user {
            true => self.target.file_symbol(module, address),
            false => self.unwinder.module_symbol(module, address),
        };
        let (name, offset) = found?;
        let module = module.rsplit('/').next().unwrap_or(module);
        Some(match offset.wrapping_add(pointer.back()) {
            0 => format!("{module}:{name}"),
            offset => format!("{module}:{name}+{offset:#x}"),
        })
    }
}

/// Names addresses, stack frames and probes of a session.
pub struct Names<'a> {
    target: &'a Target,
    probes: Option<ProbeNames<'a>>,
}

impl<'a> Names<'a> {
    /// The program of a probe, by the number that its records carry.
    pub fn program(&self, probe: u32) -> Option<&str> {
        self.probes.as_ref()?.program(probe).map(|(program, ..)| program)
    }

    /// The D program of a probe, by the number that its records carry, and how its data are shown.
    pub fn d_setup(&self, probe: u32) -> Option<(ProgramId, &Arc<DSetup>)> {
        self.probes.as_ref()?.d_setup(probe)
    }

    pub(super) fn new(target: &'a Target, probes: Option<ProbeNames<'a>>) -> Self {
        Self { target, probes }
    }
}

impl Symbolize for Names<'_> {
    fn symbol(&self, ip: u64, probe: u32) -> Option<String> {
        let at_place = self.probes.as_ref().and_then(|probes| probes.place_symbol(probe));
        at_place.or_else(|| self.target.symbol(CodePointer::At(ip)))
    }

    fn address(&self, address: u64) -> Option<String> {
        self.target.d_symbol(address)
    }

    fn frame(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        let of_module = || match kind {
            Kind::UserStack => None,
            _ => self.probes.as_ref()?.module_symbol(module, address),
        };
        self.target.symbol_in(kind, module, address).or_else(of_module)
    }

    fn line(&self, kind: Kind, module: &str, address: u64) -> Option<String> {
        let line = match kind {
            Kind::UserStack => self.target.file_line(module, address),
            _ if module == self.target.kernel_name() => self.target.source_line(address),
            _ => None,
        };
        line.map(|line| format!("{}:{}", line.file, line.line))
    }

    fn probe(&self, number: u32) -> Option<NamedProbe<'_>> {
        let provided = self.probes.as_ref()?.get(number)?;
        Some(NamedProbe { id: provided.id, name: &provided.name })
    }

    fn layout(&self, probe: u32) -> Option<&Arc<Layout>> {
        self.probes.as_ref()?.layout(probe)
    }
}
