//! Runs sessions to their end in one go, and in two processes connected by a snapshot's file.
//!
//! A course is a guest and a list of commands with their instruction counts: probes of every kind are inserted, removed
//! and switched, and the channel is so small that it loses records.

use crate::boot::{LinuxBoot, PROMPT};
use crate::linux::{KERNELS, STRESS_LINES};
use crate::{guest, root};
use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process;
use trapline_emu::load::ElfView;
use trapline_providers::sdt::{CallSites, Domain};
use trapline_session::{
    Command, Condition, Ending, Guest, GuestBuilder, Limits, Probing, Selection, Session, SourceOptions,
    compile,
};
use trapline_trace::ChannelConfig;

/// How a run has ended, as two processes can compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub ending: String,
    /// Retired instructions.
    pub icount: u64,
    /// The digest.
    pub digest: String,
    /// Statistics, the channel's counts, and the number of records; then a hash of the records.
    pub probes: String,
    /// Programs with their probe points, and variables.
    pub programs: String,
    /// The console's text.
    pub console: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} after {} instructions, digest {}", self.ending, self.icount, self.digest)?;
        writeln!(f, "{}\n{}", self.probes, self.programs)?;
        f.write_str(&self.console)
    }
}

/// A guest that is probed.
pub struct Course {
    guest: Guest,
    /// The commands, by instruction count, ascending.
    commands: Vec<(u64, Command)>,
    end: Condition,
    /// Whether nothing of interest happens before the last instructions: the kernel boots first.
    late: bool,
}

fn program(name: &str, text: &str) -> Result<Command, Box<dyn Error>> {
    Ok(Command::insert(name, compile(name, text, &SourceOptions::default())?))
}

fn switch(name: &str, on: bool) -> Command {
    Command::Switch { points: Selection { name: Some(name.to_owned()), ..Selection::default() }, on }
}

/// Probes of an embedded guest.
fn embedded(wide: bool) -> Result<Vec<(u64, Command)>, Box<dyn Error>> {
    let word = if wide { 0x40_b000u64 } else { 0x805_3000 };
    let counted = "name = vmlinux\nmodtype = kernel\nvars = 2\ngvars = 1\noffset = do_fork\nopcode = 0x55\n\
         minor = 1\nignore = 1\nmaxhits = 3\ninc lv, 0\ninc gv, 0\npush lv, 0\nlog 1\nexit\n";
    let watched = format!(
        "name = vmlinux\nmodtype = kernel\nmajor = 4\naddress = {word:#x}:{:#x}\nwatchpoint = rw\npush 1\nlog 1\n\
         exit\naddress = 0x3f8:0x3f8\nwatchpoint = io\nmaxhits = 90\npush 2\nlog 1\nexit\n",
        word + 3
    );
    let thrower = "name = vmlinux\nmodtype = kernel\nmajor = 5\noffset = do_fork\nopcode = 0x55\npush 0x10\n\
         push mem, u8\nlog 1\nexit\n";
    let main = "pid*:appln:main:entry,pid*:appln:main:return { push pid; log 1; exit 3 }";
    Ok(vec![
        (1_000, Command::clause("fbt:::entry { push arg, 0; log 1 }")),
        (1_000, Command::clause("fbt:::return { push ret; log 1 }")),
        (1_000, program("counted", counted)?),
        (9_000, Command::clause("profile:::tick-20us,profile:::tick-33333insn { push arg, 1; log 1 }")),
        (50_000, program("watched", &watched)?),
        (120_000, Command::clause(main)),
        (200_000, program("thrower", thrower)?),
        (270_000, switch("--rpn fbt:::return", false)),
        (300_011, Command::clause("pid*:appln:forbidden:15 { logonfault = yes; exit }")),
        (700_000, switch("--rpn fbt:::return", true)),
        (900_000, Command::Remove { name: "--rpn fbt:::entry".to_owned() }),
        (1_300_000, switch("watched", false)),
        (1_500_000, switch("watched", true)),
    ])
}

/// Probes of a Linux guest.
fn linux(boot: &LinuxBoot, has_tracepoints: bool) -> Result<Vec<(u64, Command)>, Box<dyn Error>> {
    let jiffies = boot.target().symbols().sole("jiffies_64").ok_or("no jiffies_64")?.addr;
    let entry =
        boot.functions().into_iter().find(|function| function.name == "do_exit").ok_or("no do_exit")?;
    let watched = format!(
        "name = vmlinux\nmodtype = kernel\nvars = 1\nmajor = 4\naddress = {jiffies:#x}:{:#x}\nwatchpoint = w\n\
         ignore = 5\nmaxhits = 200\ninc lv, 0\npush lv, 0\nlog 1\nexit\naddress = {at:#x}:{at:#x}\n\
         watchpoint = x\npush 2\nlog 1\nexit\n",
        jiffies + 3,
        at = entry.linear
    );
    let switches = if has_tracepoints {
        "tracepoint:::sched_switch,tracepoint:::sched_process_*"
    } else {
        "fbt::schedule:entry"
    };
    let calls = "fbt::vfs_*:entry,fbt::vfs_*:return,fbt::*_read:entry,fbt::kmem_cache_alloc*:entry { push pid; log 1 }";
    Ok(vec![
        (2_000_000, Command::clause(calls)),
        (30_000_000, Command::clause("profile:::tick-10ms { push arg, 0; log 1 }")),
        (100_000_000, program("watched", &watched)?),
        (150_000_000, Command::clause(switches)),
        (400_000_000, switch("--rpn profile:::tick-10ms", false)),
        (500_000_000, Command::clause("pid*:busybox:main: { push arg, 0; log 1 }")),
        (800_000_000, switch("--rpn profile:::tick-10ms", true)),
        (1_000_000_000, Command::clause("fbt::do_exit:entry { push 8; push 4; callk; log }")),
    ])
}

/// Runs a tool.
fn tool(program: &str, args: &[&str], folder: &Path) -> Result<(), Box<dyn Error>> {
    let out = process::Command::new(program).args(args).current_dir(folder).output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr)).into())
}

/// An initramfs whose guest runs a program with static probes of each kind (`tests/static/shop.c`), and loads a module,
/// twice.
fn shop() -> Result<Vec<u8>, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("trapline-shop-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let at = |path: &str| root().join(path).display().to_string();
    let (include, source) = (at("guest-images/include"), at("tests/tests/static/shop.c"));
    let flags = ["-O2", "-g0", "-Wl,-q", "-Wl,-z,lazy", "-Wl,--unresolved-symbols=ignore-all"];
    tool("gcc", &[&flags[..], &["-I", &include, "-o", "shop", &source]].concat(), &folder)?;
    let mut file = std::fs::read(folder.join("shop"))?;
    CallSites::read(&ElfView::parse(&file)?, Domain::User)?.load_into(&mut file);
    std::fs::write(folder.join("shop"), file)?;
    let script = "/bin/busybox insmod /loop.ko max_loop=1\n/shop first\n/bin/busybox rmmod loop\n\
         /bin/busybox insmod /loop.ko max_loop=1\n/shop first\n/bin/busybox rmmod loop\n";
    std::fs::write(folder.join("test.sh"), script)?;
    let module = guest("modules-cloud-amd64/loop.ko");
    let list = format!("file /test test.sh 644\nfile /shop shop 755\nfile /loop.ko {module} 644\n");
    std::fs::write(folder.join("list"), list)?;
    tool(&at("scripts/guests/newc"), &["--root", ".", "list", "added.cpio"], &folder)?;
    let mut image = std::fs::read(guest("static-amd64.cpio"))?;
    image.extend(std::fs::read(folder.join("added.cpio"))?);
    std::fs::remove_dir_all(&folder)?;
    Ok(image)
}

/// Probes of the guest of [`shop`].
fn static_probes() -> Vec<(u64, Command)> {
    vec![
        (1_000_000, Command::clause("fbt:loop:: { push pid; log 1 }")),
        (2_000_000, Command::clause("shop:::sale,shop:::order-placed { push arg, 0; log 1 }")),
        (2_000_000, Command::clause("sdt:shop::checkout { push arg, 0; log 1 }")),
        (2_000_000, Command::clause("pid*:shop:sale:return,pid*:shop:order: { push 1; log 1 }")),
    ]
}

impl Course {
    /// A course by its guest's name: `embedded:NAME`, `linux:FLAVOUR` to the shell's prompt, `stress:FLAVOUR` through the
    /// stress script, `shop:cloud-amd64` through a program with static probes and the coming and going of a module.
    ///
    /// # Errors
    /// When there is no guest of that name, or it cannot be loaded.
    pub fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let (kind, which) = name.split_once(':').ok_or_else(|| format!("{name}: KIND:NAME names a guest"))?;
        if kind == "embedded" {
            let guest = GuestBuilder::embedded(which).memory(64 << 20).open()?;
            return Ok(Self {
                guest,
                commands: embedded(which == "x86_64")?,
                end: Condition::end(),
                late: false,
            });
        }
        let kernel = KERNELS.iter().find(|linux| linux.flavour == which);
        let kernel = kernel.ok_or_else(|| format!("no kernel {which}"))?;
        let (boot, end) = match kind {
            "linux" => (LinuxBoot::quick(kernel)?, PROMPT),
            "stress" => (LinuxBoot::stress(kernel)?, STRESS_LINES.1),
            "shop" => (LinuxBoot::with(kernel, shop()?)?, "static: end"),
            _ => return Err(format!("{name}: embedded, linux, stress and shop are the kinds").into()),
        };
        crate::turns::take()?;
        let commands = if kind == "shop" { static_probes() } else { linux(&boot, kernel.arch == "amd64")? };
        Ok(Self { guest: boot.into_guest(), commands, end: Condition::console(end), late: kind == "shop" })
    }

    /// The instruction count from which on snapshots are useful, given the count at the end.
    pub fn from(&self, end: u64) -> u64 {
        if self.late { end / 1000 * 988 } else { 0 }
    }

    /// The guest, about to run.
    ///
    /// # Errors
    /// When the machine cannot be built.
    pub fn start(&self) -> Result<Session, Box<dyn Error>> {
        // So small that records are lost within a slice.
        let channel = ChannelConfig { most_sub_buffers: 3, ..ChannelConfig::fixed(4_000, 2) };
        let probing = Probing {
            channel,
            stack: 2,
            user_stack: 2,
            max_cores: 1,
            watch_unlimited: true,
            ..Probing::default()
        };
        Ok(self.guest.start(probing)?)
    }

    /// Runs to an instruction count, with the commands on the way; returns why it ended.
    ///
    /// # Errors
    /// When a command is refused.
    pub fn go(&self, session: &mut Session, to: u64) -> Result<Ending, Box<dyn Error>> {
        let from = session.icount();
        for (at, command) in &self.commands {
            if !(from + 1..=to).contains(at) {
                continue;
            }
            match session.run_until(&self.end, &Limits::insns(*at).in_passing()) {
                Ending::Limit => session.apply(command.clone())?,
                ending => return Ok(ending),
            };
        }
        Ok(session.run_until(&self.end, &Limits::insns(to).in_passing()))
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// When a command is refused.
    pub fn finish(&self, session: &mut Session) -> Result<Outcome, Box<dyn Error>> {
        let ending = self.go(session, u64::MAX)?.to_string();
        let (stats, counts) = (session.stats(), session.counts());
        let programs =
            [Command::Query, Command::GetVars { name: None }].map(|command| session.apply(command));
        let programs: Vec<String> = programs
            .into_iter()
            .map(|reply| Ok(serde_json::to_string(&reply?)?))
            .collect::<Result<_, Box<dyn Error>>>()?;
        let cores: Vec<usize> = session.take_cores().iter().map(|core| core.bytes.len()).collect();
        let (mut hash, mut records) = (DefaultHasher::new(), 0);
        for record in session.records() {
            serde_json::to_string(&record)?.hash(&mut hash);
            records += 1;
        }
        let hash = hash.finish();
        Ok(Outcome {
            ending,
            icount: session.icount(),
            digest: session.digest().to_string(),
            probes: format!("{stats:?}, {counts:?}, cores {cores:?}, {records} records, hash {hash:016x}"),
            programs: programs.concat(),
            console: String::from_utf8_lossy(session.console()).into_owned(),
        })
    }

    /// Runs a session to an instruction count, and writes its snapshot to a file. The session's state is not affected.
    ///
    /// # Errors
    /// When it ends before, or the file cannot be written.
    pub fn save(&self, session: &mut Session, icount: u64, file: &Path) -> Result<(), Box<dyn Error>> {
        match self.go(session, icount)? {
            Ending::Limit if session.icount() == icount => {}
            other => return Err(format!("{other} after {} instructions", session.icount()).into()),
        }
        Ok(std::fs::write(file, session.snapshot().to_bytes()?)?)
    }

    /// Runs from a snapshot's file to the guest's end.
    ///
    /// # Errors
    /// When the file cannot be read, or belongs to another guest.
    pub fn resume(&self, file: &Path) -> Result<Outcome, Box<dyn Error>> {
        let mut session = self.start()?;
        let saved = session.read_snapshot(&std::fs::read(file)?)?;
        session.restore(&saved)?;
        self.finish(&mut session)
    }
}
