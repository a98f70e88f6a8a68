//! Statically defined probes in a running guest: macro-declared ones through their pointers, calls that a loader has
//! turned into NOPs, and is-enabled sites. The guest is compiled here, with the header that guests include.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use trapline_emu::load::ElfView;
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_emu::{
    BootState, Core, CpuMode, CpuModel, Machine, MachineConfig, Stop, Trap, TrapInterposer, Verdict, WatchHit,
};
use trapline_interposer::{InsertErrorKind, Interposer, Output, Place, ProgramId};
use trapline_providers::sdt::{CallSites, Domain, GuestScene, Letter, MacroProbe, MacroProbes, Purpose};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::{interposer, root};

const SOURCE: &str = r#"
#include <trapline/probe.h>
long __dtraceenabled_web___query(void);
void __dtrace_probe_plain__call(long, long);
__attribute__((noinline)) long work(long n, const char *s)
{
	TRAPLINE_PROBE_ns(begin, n * -2, s);
	TRAPLINE_PROBE6(l, p, n, n, s, l, six, 0x123456789abcLL + n, (void *)0x1234, 3, -4, "five", -6);
	__dtrace_probe_plain__call(n, 70);
	return n + 1;
}
void last(long n);
__asm__(".text\n.globl last\n.type last,@function\nlast: jmp __dtrace_probe_tail\n.size last, . - last");
volatile long result, answers;
char stack[4096] __attribute__((aligned(16)));
void _start(void)
{
	for (long i = 1; i <= 3; i++) {
		result += work(i, "text");
		last(i);
		answers += __dtraceenabled_web___query();
	}
	for (;;)
		__asm__ volatile("cli; hlt");
}
"#;

/// A guest with its symbols and probes.
struct Guest {
    file: Vec<u8>,
    symbols: Symbols,
    bits: u32,
}

impl Guest {
    fn compile(name: &str, bits: u32) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}{bits}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("guest.c"), SOURCE).unwrap();
        let (width, include) = (format!("-m{bits}"), root().join("guest-images/include"));
        let flags = "-O2 -mgeneral-regs-only -ffreestanding -nostdlib -static -no-pie -fno-pic -fno-stack-protector \
                     -fcf-protection=none -fno-asynchronous-unwind-tables -Wl,-q -Wl,--unresolved-symbols=ignore-all \
                     -Wl,-Ttext-segment=0x100000 -Wl,-z,noexecstack -o guest guest.c";
        let out = Command::new("gcc")
            .args([&*width, "-I", include.to_str().unwrap()])
            .args(flags.split_whitespace())
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut file = std::fs::read(folder.join("guest")).unwrap();
        for domain in [Domain::Kernel, Domain::User] {
            let sites = CallSites::read(&ElfView::parse(&file).unwrap(), domain).unwrap();
            assert_eq!(sites.refused, []);
            sites.load_into(&mut file);
        }
        let symbols = Symbols::from_elf(&file, "guest").unwrap();
        Guest { file, symbols, bits }
    }

    fn view(&self) -> ElfView<'_> {
        ElfView::parse(&self.file).unwrap()
    }

    fn probe(&self, name: &str) -> MacroProbe {
        let found = MacroProbes::read(&self.view()).unwrap();
        found.probes.into_iter().find(|probe| probe.name == name).unwrap()
    }

    /// A machine that is to run it: linear and physical addresses are the same.
    fn boot(&self) -> Machine {
        let model = if self.bits == 64 { CpuModel::X86_64 } else { CpuModel::Ia32 };
        let mut machine = Machine::new(&MachineConfig { mem_size: 4 << 20, model }).unwrap();
        let view = self.view();
        for (n, program) in view.programs().iter().enumerate().filter(|(_, p)| p.p_type == 1) {
            let mut range = view.segment_range(n, program).unwrap();
            let mut at = program.p_vaddr;
            if program.p_flags & 1 != 0 {
                // Code by whole pages of the file, as a system maps it.
                let before = at % 0x1000;
                range =
                    range.start - before as usize..range.end.next_multiple_of(0x1000).min(self.file.len());
                at -= before;
            }
            machine.write_physical(at, &self.file[range]);
        }
        for (at, entry) in [(0x8000, 0x9003), (0x9000, 0xa003), (0xa000, 0x83), (0xa008, 0x20_0083u64)] {
            machine.write_physical(at, &entry.to_le_bytes());
        }
        let mode = if self.bits == 64 { CpuMode::Long64 { cr3: 0x8000 } } else { CpuMode::Flat32 };
        // As a call leaves it.
        let sp = self.symbols.sole("stack").unwrap().addr + 4096 - u64::from(self.bits / 8);
        machine.boot(&BootState { mode, ip: view.entry(), ax: 0, bx: 0, sp, si: 0 });
        machine
    }

    fn long(&self, machine: &Machine, name: &str) -> i64 {
        let mut bytes = [0; 8];
        let n = (self.bits / 8) as usize;
        assert!(machine.core().ram().read(self.symbols.sole(name).unwrap().addr, &mut bytes[..n]));
        if n == 8 {
            i64::from_le_bytes(bytes)
        } else {
            i32::from_le_bytes(*bytes.first_chunk().unwrap()).into()
        }
    }

    fn pointer(&self, machine: &Machine, probe: &MacroProbe) -> u64 {
        let mut bytes = [0; 8];
        machine.core().ram().read(probe.pointer, &mut bytes[..(self.bits / 8) as usize]);
        u64::from_le_bytes(bytes)
    }

    fn place(&self, probe: &MacroProbe) -> Place {
        Place::Pointer { linear: probe.pointer, paddr: probe.pointer, wide: self.bits == 64 }
    }

    fn insert(
        &self,
        machine: &mut Machine,
        probes: &mut Interposer,
        place: Place,
        body: &str,
    ) -> Result<ProgramId, InsertErrorKind> {
        let text = format!("name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0x90\n{body}");
        let width = if self.bits == 64 { Width::W64 } else { Width::W32 };
        let program = parse("probe.rpn", &text).unwrap().link(width, &NoSymbols).unwrap();
        probes.insert(machine.core_mut(), "probe", program, vec![place]).map_err(|error| error.kind)
    }
}

const LIMIT: u64 = 1_000_000;
/// The instruction pointer.
const LOG_IP: &str = "push r, eip\nlog 1\nexit\n";

fn run(machine: &mut Machine, probes: &mut dyn TrapInterposer) {
    assert_eq!(machine.run(Some(probes), LIMIT), Stop::Halted, "{}", machine.core().dump_registers());
}

fn logged(probes: &mut Interposer) -> Vec<u64> {
    let low = |data: &[u8]| u32::from_le_bytes(*data.first_chunk().unwrap()).into();
    probes.channels().records().iter().map(|record| low(&record.data)).collect()
}

#[test]
fn a_macro_probe_runs_its_handlers_at_each_call_and_costs_nothing_when_removed() {
    for bits in [32, 64] {
        let guest = Guest::compile("macro-hits", bits);
        let probe = guest.probe("begin");
        let mut plain = guest.boot();
        run(&mut plain, &mut interposer());
        assert_eq!((guest.long(&plain, "result"), guest.long(&plain, "answers")), (9, 0));

        let (mut machine, mut probes) = (guest.boot(), interposer());
        let one = guest.insert(&mut machine, &mut probes, guest.place(&probe), LOG_IP).unwrap();
        let two = guest.insert(&mut machine, &mut probes, guest.place(&probe), LOG_IP).unwrap();
        assert_ne!(guest.pointer(&machine, &probe), 0);
        probes.remove(machine.core_mut(), one);
        assert_ne!(guest.pointer(&machine, &probe), 0, "the other is still there");
        run(&mut machine, &mut probes);
        let hits = logged(&mut probes);
        assert_eq!(hits.len(), 3, "one a call");
        for ip in hits {
            assert_eq!(
                &*guest.symbols.at(ip).unwrap().symbol.name,
                "work",
                "{ip:#x} is where the call returns to"
            );
        }
        assert_eq!(guest.long(&machine, "result"), 9);
        let more = machine.icount() - plain.icount();
        assert!((3 * 4..60).contains(&more), "arguments, call, return, jump back: {more}");
        probes.remove(machine.core_mut(), two);
        assert_eq!(guest.pointer(&machine, &probe), 0);

        let (mut machine, mut probes) = (guest.boot(), interposer());
        let id = guest.insert(&mut machine, &mut probes, guest.place(&probe), LOG_IP).unwrap();
        probes.remove(machine.core_mut(), id);
        run(&mut machine, &mut probes);
        assert_eq!((machine.digest(), machine.icount()), (plain.digest(), plain.icount()));
    }
}

#[test]
fn two_runs_with_a_macro_probe_end_alike_and_a_snapshot_leads_back() {
    for bits in [32, 64] {
        let guest = Guest::compile("macro-again", bits);
        let probe = guest.probe("six");
        let once = |limit: Option<u64>| {
            let (mut machine, mut probes) = (guest.boot(), interposer());
            guest.insert(&mut machine, &mut probes, guest.place(&probe), LOG_IP).unwrap();
            if let Some(limit) = limit {
                assert_eq!(machine.run(Some(&mut probes as &mut dyn TrapInterposer), limit), Stop::Limit);
                let (saved, table) = (machine.snapshot(), probes.save(machine.core()));
                run(&mut machine, &mut probes);
                machine.restore(&saved).unwrap();
                probes.restore(machine.core_mut(), &table, Output::GoesOn);
            }
            run(&mut machine, &mut probes);
            (machine.digest(), machine.icount())
        };
        let straight = once(None);
        for limit in (1..straight.1).step_by(5) {
            assert_eq!(once(Some(limit)), straight, "{bits} stopped at {limit}");
        }
    }
}

/// Lets the interposer work, and reads the typed arguments at each stub.
struct Reader<'a> {
    inner: Interposer,
    probe: &'a MacroProbe,
    symbols: &'a Symbols,
    read: Vec<String>,
}

impl TrapInterposer for Reader<'_> {
    fn trap(&mut self, core: &mut Core, trap: &Trap) -> Verdict {
        self.inner.trap(core, trap)
    }

    fn stub(&mut self, core: &mut Core, number: u32) -> Verdict {
        let scene = GuestScene { core, symbols: self.symbols, bias: 0 };
        let mut told = Vec::new();
        for (letter, argument) in self.probe.arguments() {
            let value = argument.evaluate(&scene).unwrap();
            told.push(match letter {
                Letter::Text => {
                    let mut text = [0; 8];
                    core.peek(value.word(), &mut text).unwrap();
                    String::from_utf8_lossy(&text).split('\0').next().unwrap().to_owned()
                }
                _ => value.to_string(),
            });
        }
        self.read.push(told.join(" "));
        self.inner.stub(core, number)
    }

    fn watched(&mut self, core: &mut Core, hit: &WatchHit) {
        self.inner.watched(core, hit);
    }

    fn faulted(&mut self, core: &mut Core) {
        self.inner.faulted(core);
    }

    fn interrupted(&mut self, core: &mut Core) {
        self.inner.interrupted(core);
    }

    fn settled(&mut self, core: &mut Core) {
        self.inner.settled(core);
    }

    fn page_rewritten(&mut self, core: &mut Core, paddr: u64) {
        self.inner.page_rewritten(core, paddr);
    }

    fn code_page(&mut self, core: &mut Core, paddr: u64) {
        self.inner.code_page(core, paddr);
    }

    fn wants_code_pages(&self) -> bool {
        self.inner.wants_code_pages()
    }
}

#[test]
fn the_arguments_of_a_macro_probe_have_the_types_of_its_letters() {
    for bits in [32, 64] {
        let guest = Guest::compile("macro-arguments", bits);
        for (name, wanted) in [
            ("begin", ["-2 text", "-4 text", "-6 text"]),
            (
                "six",
                [
                    "20015998343869 4660 3 -4 five -6",
                    "20015998343870 4660 3 -4 five -6",
                    "20015998343871 4660 3 -4 five -6",
                ],
            ),
        ] {
            let probe = guest.probe(name);
            let mut machine = guest.boot();
            let mut reader =
                Reader { inner: interposer(), probe: &probe, symbols: &guest.symbols, read: Vec::new() };
            guest.insert(&mut machine, &mut reader.inner, guest.place(&probe), LOG_IP).unwrap();
            run(&mut machine, &mut reader);
            assert_eq!(reader.read, wanted, "{bits}");
        }
    }
}

#[test]
fn a_pointer_in_use_or_unmapped_or_unaligned_is_refused() {
    let guest = Guest::compile("macro-refused", 64);
    let probe = guest.probe("begin");
    let (mut machine, mut probes) = (guest.boot(), interposer());
    machine.write_physical(probe.pointer, &7u64.to_le_bytes());
    let mut refused = |paddr: u64| {
        let place = Place::Pointer { linear: paddr, paddr, wide: true };
        guest.insert(&mut machine, &mut probes, place, LOG_IP).unwrap_err().to_string()
    };
    let at = probe.pointer;
    assert_eq!(
        refused(at),
        format!("the pointer at {at:#x} is 0x7, so it is in use; the pointer of a disabled probe is 0")
    );
    assert_eq!(refused(0x1001), "the pointer at 0x1001 is not aligned to its 8 bytes");
    assert_eq!(refused(1 << 40), "physical address 0x10000000000 is not in guest memory");
}

#[test]
fn a_stub_that_was_never_issued_faults_in_the_guest() {
    for bits in [32, 64] {
        let guest = Guest::compile("macro-stray", bits);
        let probe = guest.probe("begin");
        let (mut machine, mut probes) = (guest.boot(), interposer());
        guest.insert(&mut machine, &mut probes, guest.place(&probe), LOG_IP).unwrap();
        let stray = guest.pointer(&machine, &probe) + 16;
        machine.write_physical(probe.pointer, &stray.to_le_bytes()[..(bits / 8) as usize]);
        let stop = machine.run(Some(&mut probes as &mut dyn TrapInterposer), LIMIT);
        let Stop::TripleFault(report) = stop else { panic!("{stop:?}") };
        assert_eq!(report.vectors[0], if bits == 64 { 13 } else { 14 });
        assert_eq!(report.ip, stray);
    }
}

#[test]
fn calls_that_became_nops_are_probed_by_lock_nop_also_the_tail_form() {
    for bits in [32, 64] {
        let guest = Guest::compile("sdt-calls", bits);
        let sites = CallSites::read(&guest.view(), Domain::Kernel).unwrap();
        let names: Vec<(&str, bool)> = sites.sites.iter().map(|s| (&*s.name, s.tail)).collect();
        assert_eq!(names, [("tail", true), ("plain-call", false)], "names survive the loading");
        let plain = {
            let mut machine = guest.boot();
            run(&mut machine, &mut interposer());
            (machine.digest(), machine.icount())
        };
        for site in &sites.sites {
            let (mut machine, mut probes) = (guest.boot(), interposer());
            let (linear, function) = (site.address, &site.function);
            let place = Place::LockNop { linear, paddr: linear };
            guest.insert(&mut machine, &mut probes, place, LOG_IP).unwrap();
            run(&mut machine, &mut probes);
            assert_eq!(logged(&mut probes), [linear + 1; 3], "{function}");
            assert_eq!((machine.digest(), machine.icount()), plain, "{function}");
        }
    }
}

#[test]
fn an_is_enabled_site_answers_1_while_its_probe_is_enabled() {
    for bits in [32, 64] {
        let guest = Guest::compile("is-enabled", bits);
        let sites = CallSites::read(&guest.view(), Domain::User).unwrap();
        let [site] = sites.sites.as_slice() else { panic!("{sites:?}") };
        assert_eq!((site.purpose, &*site.provider, &*site.name), (Purpose::IsEnabled, "web", "query"));
        let (mut machine, mut probes) = (guest.boot(), interposer());
        let module = Arc::new(UserModule::parse(&guest.file, "guest").unwrap());
        let place = Place::IsEnabled { module, offset: site.offset + u64::from(site.patch().0) };
        let id = guest.insert(&mut machine, &mut probes, place.clone(), LOG_IP).unwrap();
        assert!(!probes.observe_only());
        run(&mut machine, &mut probes);
        assert_eq!(guest.long(&machine, "answers"), 3);
        assert!(logged(&mut probes).is_empty(), "it fires nothing");
        assert_eq!((probes.stats().traps, probes.stats().hits), (3, 0));

        let (mut machine, mut plain) = (guest.boot(), guest.boot());
        let mut probes = interposer();
        let again = guest.insert(&mut machine, &mut probes, place, LOG_IP).unwrap();
        assert_eq!(id, again);
        probes.remove(machine.core_mut(), again);
        run(&mut machine, &mut probes);
        run(&mut plain, &mut interposer());
        assert_eq!(guest.long(&machine, "answers"), 0, "only while it is enabled");
        assert_eq!((machine.digest(), machine.icount()), (plain.digest(), plain.icount()));
    }
}

#[test]
fn words_of_a_program_are_raised_in_a_guest_without_known_mappings() {
    for guest in trapline_guests::ALL {
        let (name, bytes) = guest.modules[0];
        let module = Arc::new(UserModule::parse(bytes, name).unwrap());
        // Unused bytes after the variables, on their last page.
        let data = module.segments().last().unwrap();
        let end = (data.vaddr + data.mem_size).next_multiple_of(0x1000);
        assert!(end - (data.vaddr + data.mem_size) > 16);
        let wide = module.width() == trapline_emu::load::Width::Bits64;
        let semaphore = Place::Semaphore { module: Arc::clone(&module), address: end - 2 };
        let pointer = Place::UserPointer { module, address: end - 16, wide };
        let width = if wide { Width::W64 } else { Width::W32 };
        let text = "name = vmlinux\nmodtype = kernel\naddress = 0\nopcode = 0\nexit\naddress = 1\nopcode = 0\nexit\n";
        let program = || parse("words", text).unwrap().link(width, &NoSymbols).unwrap();
        let run = |places: Vec<Place>, remove: bool, back: Option<u64>| {
            let (mut machine, _) = trapline_tests::embedded_guest(guest).unwrap();
            let mut probes = interposer();
            if !places.is_empty() {
                let id = probes.insert(machine.core_mut(), "words", program(), places).unwrap();
                if remove {
                    probes.remove(machine.core_mut(), id);
                }
            }
            if let Some(limit) = back {
                machine.run(Some(&mut probes as &mut dyn TrapInterposer), limit);
                let (saved, table) = (machine.snapshot(), probes.save(machine.core()));
                machine.run(Some(&mut probes as &mut dyn TrapInterposer), limit + limit / 2);
                machine.restore(&saved).unwrap();
                probes.restore(machine.core_mut(), &table, Output::GoesOn);
            }
            machine.run(Some(&mut probes as &mut dyn TrapInterposer), 100_000_000);
            let console = String::from_utf8_lossy(machine.console()).into_owned();
            (console, machine.icount(), machine.digest(), probes.stats())
        };
        let plain = run(Vec::new(), false, None);
        let raised = run(vec![semaphore.clone(), pointer.clone()], false, None);
        assert_eq!(
            (&raised.0, raised.1),
            (&plain.0, plain.1),
            "{}: no fault, nothing but the words",
            guest.name
        );
        assert!(raised.3.words_raised >= 2, "{}: {:?}", guest.name, raised.3);
        assert_eq!(raised.3.hits, 0);
        for limit in [plain.1 / 7, plain.1 / 3, plain.1 / 2] {
            let again = run(vec![semaphore.clone(), pointer.clone()], false, Some(limit));
            assert_eq!((again.1, again.2), (raised.1, raised.2), "{} back to {limit}", guest.name);
        }
        let removed = run(vec![semaphore, pointer], true, None);
        assert_eq!((removed.1, removed.2), (plain.1, plain.2), "{}", guest.name);
        assert_eq!(removed.3.words_raised, 0);
    }
}
