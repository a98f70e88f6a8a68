//! From the command line's files to a guest: image, modules, symbols, and the machine that holds them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trapline_emu::load::{ElfView, Image, MAX_IMAGE, Width as FileWidth};
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_emu::{BootModule, CpuModel, Machine, MachineConfig};
use trapline_guests::Guest as Embedded;
use trapline_os::{OsProfile, TrapOs};
use trapline_providers::{ProbeOptions, Rules, Target};

use crate::cli::{FbtRules, GuestArgs};
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
    /// Its own command line, behind the image's name.
    pub cmdline: String,
}

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
        let fbt = match args.fbt {
            FbtRules::Full => Rules::Full,
            FbtRules::Strict => Rules::Strict,
        };
        build(&args.image, parts, &args.sym, ProbeOptions { fbt, abi: args.abi }, talk)
    }

    /// An embedded guest.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn embedded(name: &str, talk: &Talk) -> Result<Self, Failure> {
        build(&format!("{EMBEDDED}{name}"), embedded(name)?, &[], ProbeOptions::default(), talk)
    }

    /// A machine with this guest loaded.
    ///
    /// # Errors
    /// Memory is too small, or the parts do not go together.
    pub fn machine(&self, mem_size: u64, cmdline: Option<&str>) -> Result<Machine, Failure> {
        let model = match self.target.image().plan().width {
            FileWidth::Bits32 => CpuModel::Ia32,
            FileWidth::Bits64 => CpuModel::X86_64,
        };
        let mut machine = Machine::new(&MachineConfig { mem_size, model }).map_err(Failure::Machine)?;
        let cmdline = cmdline.unwrap_or(&self.cmdline);
        machine.load(self.target.image(), cmdline, &self.modules).map_err(Failure::Machine)?;
        Ok(machine)
    }

    /// The profile of its system, if it is one that is known.
    pub fn profile(&self) -> Option<Box<dyn OsProfile>> {
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
    })
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
    let mut symbols = Symbols::new(&parts.kernel);
    if image.is_elf() {
        symbols = Symbols::from_elf(image.bytes(), &parts.kernel)
            .map_err(|error| Failure::Symbols { file: name.to_owned(), error })?;
    }
    for path in sym {
        symbols = symbols.merged(read_symbols(path, &parts.kernel)?);
    }
    let mut users = Vec::new();
    for module in &parts.modules {
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
    let target = Target::new(image, symbols, users).with_options(options);
    if let Some(abi) = options.abi.filter(|abi| abi.width() != target.width()) {
        let (abi, right) = (abi.width(), target.width());
        return Err(Failure::Usage(format!(
            "--abi names a convention of {abi}-bit code, and {name} is a {right}-bit guest"
        )));
    }
    let target = Arc::new(target);
    Ok(Guest { name: name.to_owned(), target, modules: parts.modules, cmdline: parts.cmdline })
}

fn read_symbols(path: &Path, kernel: &str) -> Result<Symbols, Failure> {
    let bytes = read_file(path)?;
    let read = if ElfView::recognises(&bytes) {
        Symbols::from_elf(&bytes, kernel)
    } else {
        Symbols::from_system_map(&bytes, kernel)
    };
    read.map_err(|error| Failure::Symbols { file: path.display().to_string(), error })
}
