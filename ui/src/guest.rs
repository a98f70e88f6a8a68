//! From the command line's files to a guest: image, modules, symbols, and the machine that holds them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trapline_emu::load::linux::{CMDLINE_ON_MINIMAL, DEFAULT_CMDLINE};
use trapline_emu::load::{ElfView, Files, Image, MAX_IMAGE, Width as FileWidth};
use trapline_emu::platform::PlatformKind;
use trapline_emu::symbols::{Btf, KallsymsError, SymbolError, Symbols, UserModule};
use trapline_emu::{BootFiles, BootModule, CpuModel, Machine, MachineConfig};
use trapline_guests::Guest as Embedded;
use trapline_os::{Linux, OsProfile, TrapOs};
use trapline_providers::{ProbeOptions, Rules, Target, TargetProcess};

use crate::cli::{CmdlineArgs, FbtRules, GuestArgs};
use crate::devices::DeviceArgs;
use crate::failure::Failure;
use crate::talk::Talk;

/// The word before the name of an embedded guest.
const EMBEDDED: &str = "embedded:";

/// A guest that can be booted.
pub struct Guest {
    /// Its image as the user named it.
    pub name: String,
    /// What there is to probe.
    pub target: Arc<Target>,
    /// What is loaded beside the kernel.
    pub modules: Vec<BootModule>,
    /// Linux's initial RAM disk; empty for none.
    pub initrd: Vec<u8>,
    /// Its own command line; of a Multiboot kernel what follows the image's name.
    pub cmdline: String,
    /// If it is Linux: what reads its tasks.
    linux: Option<Linux>,
}

/// Type of the program header that names a dynamic linker.
const PT_INTERP: u32 = 3;

/// A file's content, at most [`MAX_IMAGE`] bytes.
///
/// # Errors
/// It cannot be read or is larger.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_IMAGE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(Failure::TooLarge { path: path.to_owned(), limit: MAX_IMAGE });
    }
    Ok(bytes)
}

/// The program or library that an image is instead of a kernel: it is linked to go anywhere, or asks for a dynamic linker.
pub fn user_module(path: &str) -> Option<UserModule> {
    let bytes = read_file(Path::new(path)).ok()?;
    let view = ElfView::parse(&bytes).ok()?;
    let program = view.is_dynamic() || view.programs().iter().any(|header| header.p_type == PT_INTERP);
    if program { UserModule::parse(&bytes, file_name(path)).ok() } else { None }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// What a kernel is called on its own command line: a name that does not depend on where its file is, or whether
/// that is compressed, so that the run does not either.
fn kernel_name(path: &str) -> String {
    let name = file_name(path);
    name.strip_suffix(".gz").unwrap_or(name).to_owned()
}

impl Guest {
    /// Reads everything that `args` names.
    ///
    /// # Errors
    /// A file is missing or bad, or there is no such embedded guest.
    pub fn open(args: &GuestArgs, talk: &Talk) -> Result<Self, Failure> {
        let mut parts = match args.image.strip_prefix(EMBEDDED) {
            Some(name) => embedded(name)?,
            None => Parts {
                image: read_file(Path::new(&args.image))?,
                kernel: kernel_name(&args.image),
                ..Parts::default()
            },
        };
        for module in &args.module {
            parts.modules.push(boot_module(module)?);
        }
        if let Some(initrd) = &args.initrd {
            parts.initrd = read_file(initrd)?;
        }
        parts.files = guest_files(&parts.initrd, &args.file, talk)?;
        let fbt = match args.fbt {
            FbtRules::Full => Rules::Full,
            FbtRules::Strict => Rules::Strict,
        };
        if let (true, Some(TargetProcess::Pid(pid))) = (args.follow_fork, &args.target) {
            return Err(Failure::Usage(format!(
                "--follow-fork goes with --target NAME or PATH: children of process {pid} have other numbers"
            )));
        }
        let (target, follow_fork) = (args.target.clone(), args.follow_fork);
        let options = ProbeOptions { fbt, abi: args.abi, target, follow_fork };
        build(&args.image, parts, &args.sym, options, talk)
    }

    /// An embedded guest.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn embedded(name: &str, talk: &Talk) -> Result<Self, Failure> {
        build(&format!("{EMBEDDED}{name}"), embedded(name)?, &[], ProbeOptions::default(), talk)
    }

    /// A machine with these devices and this guest loaded.
    ///
    /// # Errors
    /// Memory is too small, or the parts do not go together.
    pub fn machine(
        &self,
        mem_size: u64,
        cmdline: &CmdlineArgs,
        devices: &DeviceArgs,
    ) -> Result<Machine, Failure> {
        let model = match self.target.image().plan().width {
            FileWidth::Bits32 => CpuModel::Ia32,
            FileWidth::Bits64 => CpuModel::X86_64,
        };
        let linux = self.target.image().plan().linux.is_some();
        let default = if linux { PlatformKind::Pc } else { PlatformKind::Minimal };
        let devices = devices.config(mem_size, default)?;
        let config = MachineConfig { mem_size, model };
        let mut machine = Machine::with_platform(&config, &devices).map_err(Failure::Machine)?;
        let mut line = cmdline.cmdline.clone().unwrap_or_else(|| self.default_cmdline(devices.kind));
        for more in &cmdline.append {
            line = format!("{line} {more}").trim().to_owned();
        }
        let files = BootFiles { cmdline: &line, modules: &self.modules, initrd: &self.initrd };
        machine.load(self.target.image(), &files).map_err(Failure::Machine)?;
        Ok(machine)
    }

    /// What the kernel is told when nothing else is given.
    fn default_cmdline(&self, platform: PlatformKind) -> String {
        match (self.target.image().plan().linux.is_some(), platform) {
            (true, PlatformKind::Pc) => DEFAULT_CMDLINE.to_owned(),
            (true, PlatformKind::Minimal) => format!("{DEFAULT_CMDLINE} {CMDLINE_ON_MINIMAL}"),
            (false, _) => self.cmdline.clone(),
        }
    }

    /// The profile of its system, if it is one that is known.
    pub fn profile(&self) -> Option<Box<dyn OsProfile>> {
        if let Some(linux) = &self.linux {
            return Some(Box::new(linux.clone()));
        }
        let found = TrapOs::find(self.target.image().plan(), self.target.symbols()).ok()?;
        Some(Box::new(found))
    }
}

/// What a guest is made of, as bytes.
#[derive(Default)]
struct Parts {
    image: Vec<u8>,
    /// The kernel's name, first word of its command line.
    kernel: String,
    cmdline: String,
    modules: Vec<BootModule>,
    initrd: Vec<u8>,
    files: Files,
}

fn embedded(name: &str) -> Result<Parts, Failure> {
    let guest: &Embedded = trapline_guests::find(name).ok_or_else(|| {
        let known: Vec<String> =
            trapline_guests::ALL.iter().map(|g| format!("{EMBEDDED}{}", g.name)).collect();
        Failure::Usage(format!("there is no embedded guest {name:?}; there are {}", known.join(" and ")))
    })?;
    let (kernel, cmdline) = guest.cmdline.split_once(' ').unwrap_or((guest.cmdline, ""));
    let modules = guest.modules.iter();
    Ok(Parts {
        image: guest.image.to_vec(),
        kernel: kernel.to_owned(),
        cmdline: cmdline.to_owned(),
        modules: modules.map(|(s, b)| BootModule { string: (*s).to_owned(), bytes: b.to_vec() }).collect(),
        ..Parts::default()
    })
}

/// The files that the guest is known to have: those of the initial RAM disk, then those of `--file`.
fn guest_files(initrd: &[u8], named: &[String], talk: &Talk) -> Result<Files, Failure> {
    let mut files = Files::of_initramfs(initrd).unwrap_or_else(|error| {
        talk.note(&format!("programs of the initial RAM disk are not known: {error}"));
        Files::default()
    });
    for text in named {
        let (guest, here) = text.split_once('=').filter(|(guest, here)| {
            guest.starts_with('/') && !guest.ends_with('/') && !here.is_empty()
        }).ok_or_else(|| {
            Failure::Usage(format!(
                "--file {text} names no file of the guest; /bin/busybox=FILE, a path in the guest and a file here, would be right"
            ))
        })?;
        files.insert(guest, read_file(Path::new(here))?);
    }
    Ok(files)
}

/// `FILE` or `FILE ARGUMENTS`; the module's string is the file's name and the arguments.
fn boot_module(text: &str) -> Result<BootModule, Failure> {
    let (path, arguments) = if Path::new(text).exists() {
        (text, None)
    } else {
        text.split_once(' ').map_or((text, None), |(path, arguments)| (path, Some(arguments)))
    };
    let bytes = read_file(Path::new(path))?;
    let name = file_name(path);
    let string = arguments.map_or_else(|| name.to_owned(), |arguments| format!("{name} {arguments}"));
    Ok(BootModule { string, bytes })
}

fn build(
    name: &str,
    parts: Parts,
    sym: &[PathBuf],
    options: ProbeOptions,
    talk: &Talk,
) -> Result<Guest, Failure> {
    let image = Image::parse(&parts.image, &parts.kernel)
        .map_err(|error| Failure::Image { image: name.to_owned(), error })?;
    let kernel = image.plan().name.clone();
    let mut symbols = Symbols::new(&kernel);
    if image.is_elf() {
        symbols = Symbols::from_elf(image.bytes(), &kernel)
            .map_err(|error| Failure::Symbols { file: name.to_owned(), error })?;
    }
    if symbols.is_empty() && ElfView::recognises(&image.plan().image) {
        match Symbols::from_kallsyms(&image.plan().image, &kernel) {
            Ok(found) => symbols = found,
            // Another system's kernel, without symbols.
            Err(SymbolError::Kallsyms(KallsymsError::NoTokens)) if image.plan().linux.is_none() => {}
            Err(error) => talk.note(&format!("{name} has no symbols: {error}")),
        }
    }
    let mut debug = Vec::new();
    for path in sym {
        let bytes = read_file(path)?;
        symbols = symbols.merged(read_symbols(path, &bytes, &kernel)?);
        debug.push(Arc::<[u8]>::from(bytes));
    }
    let Parts { modules, initrd, cmdline, files, .. } = parts;
    let mut users = Vec::new();
    for module in &modules {
        // A module may be anything; only a program can be probed.
        if !ElfView::recognises(&module.bytes) {
            continue;
        }
        let file = module.string.split(' ').next().unwrap_or_default();
        match UserModule::parse(&module.bytes, file) {
            Ok(user) => users.push(Arc::new(user)),
            Err(error) => talk.note(&format!("the module {file} cannot be probed: {error}")),
        }
    }
    let linux = linux(&image, &symbols, talk);
    let mut refused = |path: &str, error: &SymbolError| {
        talk.note(&format!("the guest's file {path} cannot be probed: {error}"));
    };
    let asked = options.abi;
    let target = Target::new(image, symbols, users).with_options(options).with_files(files, &mut refused);
    if let Some(abi) = asked.filter(|abi| abi.width() != target.width()) {
        let (abi, right) = (abi.width(), target.width());
        return Err(Failure::Usage(format!(
            "--abi names a convention of {abi}-bit code, and {name} is a {right}-bit guest"
        )));
    }
    let target = Arc::new(debug.into_iter().rev().fold(target, Target::with_debug_file));
    Ok(Guest { name: name.to_owned(), target, modules, initrd, cmdline, linux })
}

/// What reads the tasks of a Linux kernel; why nothing does is said.
fn linux(image: &Image, symbols: &Symbols, talk: &Talk) -> Option<Linux> {
    symbols.lookup("init_task")?;
    let btf = Btf::from_vmlinux(&image.plan().image).unwrap_or_else(|error| {
        talk.note(&format!("the kernel's types cannot be read: {error}"));
        None
    });
    Linux::find(image.plan(), symbols, btf.as_ref())
        .map_err(|error| talk.note(&format!("the guest's tasks cannot be read: {error}")))
        .ok()
}

fn read_symbols(path: &Path, bytes: &[u8], kernel: &str) -> Result<Symbols, Failure> {
    let read = if ElfView::recognises(bytes) {
        Symbols::from_elf(bytes, kernel)
    } else {
        Symbols::from_system_map(bytes, kernel)
    };
    read.map_err(|error| Failure::Symbols { file: path.display().to_string(), error })
}
