//! How a Linux kernel reports a crash: its panics and oopses, read from the console.
//!
//! Text on the console may also come from a program, so the kernel's own variables are checked if its symbols give
//! them: `panic_cpu`, which is -1 until `panic` runs (kernel/panic.c), and the bit TAINT_DIE of `tainted_mask`, set by
//! each oops (Documentation/admin-guide/tainted-kernels.rst). The kernel is given time to complete its report: a run
//! ends at the end of the report, or, with `panic=` on the command line, when the machine is reset.

use trapline_emu::Machine;
use trapline_providers::Target;

/// How a report ends: `---[ end Kernel panic - not syncing: .. ]---`, `---[ end trace .. ]---`.
const REPORT_END: &[u8] = b" ]---";
const PANIC: &str = "Kernel panic - not syncing: ";
/// In the panic of a kernel that has nothing to start programs from.
const NO_ROOT: &str = "Unable to mount root fs";
/// Bit of `tainted_mask`: the kernel has died before.
const TAINT_DIE: u32 = 1 << 7;
/// Lines of the console that are shown of a crash.
const TAIL: usize = 25;

/// The conditions of a crash. The default detects nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct CrashWatch {
    is_linux: bool,
    /// Physical address of `panic_cpu`.
    panic_cpu: Option<u64>,
    /// Physical address of `tainted_mask`.
    tainted: Option<u64>,
    /// Whether it was given an initial RAM disk.
    has_initrd: bool,
}

impl CrashWatch {
    /// The conditions for this guest.
    pub fn new(target: &Target, has_initrd: bool) -> Self {
        let plan = target.image().plan();
        let physical = |name: &str| plan.vaddr_to_paddr(target.symbols().sole(name)?.addr);
        Self {
            is_linux: plan.linux.is_some(),
            panic_cpu: physical("panic_cpu"),
            tainted: physical("tainted_mask"),
            has_initrd,
        }
    }

    /// What was not given to a guest that crashed in this way, in a sentence.
    pub fn lacks(&self, how: &str) -> Option<&'static str> {
        (!self.has_initrd && how.contains(NO_ROOT)).then_some(
            "the guest was given no initial RAM disk (--initrd), and found no root file system on a disk (--disk, and root= in \
             --append)",
        )
    }

    /// The text at which to check.
    pub fn text(&self) -> Option<&'static [u8]> {
        self.is_linux.then_some(REPORT_END)
    }

    /// Whether the console's last line ends the report of a crash.
    pub fn ended(&self, machine: &Machine) -> bool {
        let console = machine.console();
        let line = console.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let ends = line.contains("---[ end Kernel panic") || line.contains("---[ end trace");
        self.is_linux && console.ends_with(REPORT_END) && ends && self.found(machine).is_some()
    }

    /// How the kernel crashed, if it did.
    pub fn found(&self, machine: &Machine) -> Option<String> {
        if !self.is_linux {
            return None;
        }
        let word = |paddr: Option<u64>| {
            let mut bytes = [0; 4];
            machine.core().ram().read(paddr?, &mut bytes).then(|| u32::from_le_bytes(bytes))
        };
        let panicked = word(self.panic_cpu).is_none_or(|cpu| cpu != u32::MAX);
        let died = word(self.tainted).is_none_or(|mask| mask & TAINT_DIE != 0);
        let console = String::from_utf8_lossy(machine.console());
        let mut lines = console.lines();
        let panic = || lines.clone().find_map(|line| line.split_once(PANIC));
        if let Some((_, why)) = panic().filter(|_| panicked) {
            return Some(format!("kernel panic: {}", why.trim_end()));
        }
        let oops = lines.find_map(oops).filter(|_| died)?;
        Some(format!("kernel oops: {oops}"))
    }
}

/// The message of a line that begins an oops: `<what>: <error code> [#<number>] ..` (arch/x86/kernel/dumpstack.c),
/// without its time.
fn oops(line: &str) -> Option<&str> {
    let (before, after) = line.split_once(" [#")?;
    let (number, _) = after.split_once(']')?;
    let (_, code) = before.rsplit_once(": ")?;
    let hex = code.len() == 4 && code.bytes().all(|byte| byte.is_ascii_hexdigit());
    let timed = before.strip_prefix('[').and_then(|text| text.split_once("] "));
    let what = timed.map_or(before, |(_, text)| text);
    (hex && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(what)
}

/// The last lines of a console, printable.
pub fn tail(console: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(console);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(TAIL)..).unwrap_or_default();
    last.iter().map(|line| line.chars().filter(|c| !c.is_control() || *c == '\t').collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oops_is_recognised_by_its_first_line() {
        let line = "[    1.234567] BUG: kernel NULL pointer dereference, address: 0000000000000000";
        assert_eq!(oops(line), None);
        assert_eq!(oops("[    1.2] Oops: 0002 [#1] PREEMPT SMP NOPTI"), Some("Oops: 0002"));
        assert_eq!(
            oops("general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP"),
            Some("general protection fault, probably for non-canonical address 0xdead: 0000")
        );
        for other in ["see [#1]", "item: 12 [#1]", "item: 0000 [#x]", "item: 0000 [#1"] {
            assert_eq!(oops(other), None, "{other}");
        }
    }

    #[test]
    fn the_tail_is_the_last_lines_without_what_moves_a_cursor() {
        let console: String = (0..40).map(|n| format!("line {n}\r\n")).collect();
        let shown = tail(format!("{console}\x1b[6nend").as_bytes());
        assert_eq!((shown.len(), shown[0].as_str(), shown[24].as_str()), (25, "line 16", "[6nend"));
        assert!(tail(b"").is_empty());
    }
}
