//! Shared code of Trapline's whole-system tests.

pub mod begun;
pub mod boot;
pub mod built;
pub mod linux;
pub mod pairing;
pub mod resume;
pub mod turns;

use std::path::{Path, PathBuf};
use trapline_emu::load::Image;
use trapline_emu::symbols::Symbols;
use trapline_emu::{Machine, Stop, TrapInterposer};
use trapline_interposer::{Interposer, InterposerConfig, Place};
use trapline_session::{GuestBuilder, PlatformKind};
use trapline_trace::{ChannelConfig, HeaderItems};

/// The repository: that of the tree whose tests run, if cargo or nextest runs them, else that of the build.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// CPU seconds that this thread has used: other work on the machine does not count.
pub fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// The middle value; for an even count, the upper of the two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The file of a guest that `make guests` fetches.
///
/// # Panics
/// It is missing, or the test that asks for it has a name that does not say so.
#[allow(clippy::panic, reason = "a test fails where its guest is missing")]
pub fn guest(name: &str) -> String {
    find_guest(name).unwrap_or_else(|error| panic!("{error}")).display().to_string()
}

/// The same for each guest that a text, such as a command, names as `.guests/NAME`.
///
/// # Panics
/// One is missing, or the test that asks for it has a name that does not say so.
pub fn guests_of(text: &str) {
    for rest in text.split(".guests/").skip(1) {
        let end = rest.find(|c: char| !c.is_alphanumeric() && !"-_+./".contains(c)).unwrap_or(rest.len());
        guest(rest[..end].trim_end_matches('.'));
    }
}

/// A guest that `make guests` fetches.
///
/// # Errors
/// A sentence with the command that fetches it.
pub fn fetched(name: &str) -> Result<Vec<u8>, String> {
    let path = find_guest(name)?;
    std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
}

fn find_guest(name: &str) -> Result<PathBuf, String> {
    let path = root().join(".guests").join(name);
    path.metadata().map_err(|error| format!("{}: {error}; run `make guests` first", path.display()))?;
    match std::env::var("NEXTEST_TEST_NAME") {
        Ok(test) if !test.split("::").any(|part| part.starts_with("guest_")) => Err(format!(
            "{test} needs {name}: `make test-fast` leaves it out only if its name or that of a module begins with guest_"
        )),
        _ => Ok(path),
    }
}

/// GNU Mach, ready to run to its debugger's prompt.
pub struct Mach {
    /// The machine, loaded.
    pub machine: Machine,
    /// Its image.
    pub image: Image,
    /// Its symbols.
    pub symbols: Symbols,
}

/// An instruction limit far beyond what GNU Mach's boot takes.
pub const MACH_LIMIT: u64 = 20_000_000_000;

impl Mach {
    /// Loads GNU Mach with 256 MiB and `console=com0`, watching for the prompt.
    ///
    /// # Errors
    /// When it was not fetched or cannot be loaded.
    pub fn load() -> Result<Self, Box<dyn std::error::Error>> {
        turns::take()?;
        let guest = GuestBuilder::image_bytes("gnumach", fetched("gnumach")?);
        // The hardware of the oracles, qemu's `isapc`.
        let guest = guest.platform(PlatformKind::Minimal);
        let guest = guest.memory(256 << 20).cmdline("console=com0").open()?;
        let (image, symbols) = (guest.target().image().clone(), guest.target().symbols().clone());
        let mut machine = guest.machine()?;
        machine.watch_console(vec![b"db>".to_vec()]);
        Ok(Mach { machine, image, symbols })
    }

    /// Every function, one for each address: linear address, first byte, and place.
    pub fn functions(&self) -> Vec<(u64, u8, Place)> {
        let plan = self.image.plan();
        let mut found: Vec<(u64, u8, Place)> = Vec::new();
        for s in self.symbols.functions() {
            let again = found.last().is_some_and(|(a, ..)| *a == s.addr);
            let first = plan.bytes_at(s.addr, 1).and_then(|b| b.first().copied());
            if let (false, Some(byte), Some(paddr)) = (again, first, plan.vaddr_to_paddr(s.addr)) {
                found.push((s.addr, byte, Place::Kernel { linear: s.addr, paddr }));
            }
        }
        found
    }

    /// The functions that begin with `55 89 e5`.
    pub fn framed_functions(&self) -> Vec<(u64, u8, Place)> {
        let plan = self.image.plan();
        let framed = |at: u64| plan.bytes_at(at, 3).as_deref() == Some(&[0x55, 0x89, 0xe5]);
        self.functions().into_iter().filter(|(at, ..)| framed(*at)).collect()
    }

    /// Runs to the prompt.
    pub fn run(&mut self, interposer: Option<&mut Interposer>) -> Stop {
        self.machine.run(interposer.map(|i| i as &mut dyn TrapInterposer), MACH_LIMIT)
    }
}

/// The embedded IA32 guest, loaded.
///
/// # Errors
/// When it cannot be loaded.
pub fn embedded() -> Result<Machine, Box<dyn std::error::Error>> {
    Ok(embedded_guest(&trapline_guests::IA32)?.0)
}

/// An embedded guest, loaded, and its image.
///
/// # Errors
/// When it cannot be loaded.
pub fn embedded_guest(
    guest: &trapline_guests::Guest,
) -> Result<(Machine, Image), Box<dyn std::error::Error>> {
    let guest = GuestBuilder::embedded(guest.name).memory(64 << 20).open()?;
    Ok((guest.machine()?, guest.target().image().clone()))
}

/// An interposer with default settings and no profile.
pub fn interposer() -> Interposer {
    Interposer::new(InterposerConfig {
        header: HeaderItems::default(),
        channel: ChannelConfig::default(),
        profile: None,
        max_steps: None,
    })
}

/// Source of an observe-only program with one probe at each address and first byte: logs two registers.
pub fn observer(sites: impl Iterator<Item = (u64, u8)>) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("name = vmlinux\nmodtype = kernel\n");
    for (at, opcode) in sites {
        let _ =
            write!(text, "address = {at:#x}\nopcode = {opcode:#x}\npush r, eax\npush r, esp\nlog 2\nexit\n");
    }
    text
}

/// An interposer with an observing probe at each of these physical addresses.
///
/// # Errors
/// When one cannot be armed.
pub fn probe_everywhere(
    machine: &mut Machine,
    sites: &[u64],
    width: trapline_rpn::Width,
) -> Result<Interposer, Box<dyn std::error::Error>> {
    use std::fmt::Write as _;
    let mut text = String::from("name = vmlinux\nmodtype = kernel\nvars = 1\n");
    let mut places = Vec::new();
    for &paddr in sites {
        let mut byte = [0];
        if !machine.core().ram().read(paddr, &mut byte) {
            return Err(format!("physical address {paddr:#x} is not in memory").into());
        }
        let _ = write!(text, "address = {paddr:#x}\nopcode = {:#x}\ninc lv, 0\nabort\n", byte[0]);
        places.push(Place::Kernel { linear: paddr, paddr });
    }
    let program = trapline_rpn::parse("every.rpn", &text)?.link(width, &trapline_rpn::NoSymbols)?;
    let mut probes = interposer();
    probes.insert(machine.core_mut(), "every", program, places)?;
    Ok(probes)
}
