//! From files to a guest: image, modules, initial RAM disk, symbols, and the machine that they are loaded into.
//!
//! A [`GuestBuilder`] names the parts of a guest; [`GuestBuilder::open`] reads them. Not here: probes, and the run.

mod hardware;
mod moved;
mod parts;
mod recorded;
mod services;

pub(crate) use moved::in_still;
pub(crate) use parts::at_its_place;
pub use recorded::{Places, ReplayError};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trapline_emu::devices::virtio::DiskError;
use trapline_emu::load::linux::{CMDLINE_ON_MINIMAL, DEFAULT_CMDLINE};
use trapline_emu::load::{ElfView, Image, InitramfsError, LinuxEntry, LoadError, Width as FileWidth};
use trapline_emu::platform::{PlatformKind, VirtioBus};
use trapline_emu::symbols::{SymbolError, UserModule};
use trapline_emu::{BootFiles, BootModule, CpuModel, Machine, MachineConfig, MachineError};
use trapline_interposer::{Service, ServiceError};
use trapline_os::{Linux, OsProfile, TrapOs};
use trapline_providers::{Abi, ProbeOptions, Rules, Target, TargetProcess};
use trapline_rpn::Width;
use trapline_rpn::ppdf::VerifyingKey;

use crate::files::{FileError, read_file};
use crate::meter::Meter;
use crate::recording::Defaults;
use hardware::Hardware;

/// The word before the name of an embedded guest.
const EMBEDDED: &str = "embedded:";
/// Default size of guest memory, in bytes.
pub const DEFAULT_MEMORY: u64 = 256 << 20;

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no embedded guest of this name.
    #[error("there is no embedded guest {name:?}; there are {known}")]
    UnknownEmbedded {
        /// The name.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The image is not a kernel that can be loaded.
    #[error("cannot load {image}: {error}")]
    Image {
        /// Its name as given.
        image: String,
        /// What is wrong with it.
        error: LoadError,
    },
    /// The image is something else.
    #[error("cannot load {image}: this is {is}; {instead}")]
    NoKernel {
        /// Its name as given.
        image: String,
        /// What it is.
        is: &'static str,
        /// What to do with it.
        instead: &'static str,
    },
    /// A disk that is no raw image.
    #[error("{}: this is {is}, and --disk takes a raw image: {instead}", path.display())]
    NotRaw {
        /// The file.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What to do with it.
        instead: &'static str,
    },
    /// The image is a module of a kernel.
    #[error(
        "{0} is a kernel module; give its kernel as the image, and the module with --file /PATH/NAME.ko={0}"
    )]
    ModuleAsImage(String),
    /// A file of symbols is empty.
    #[error("{0} holds no symbols: it is empty (0 bytes)")]
    NoSymbols(String),
    /// A file of symbols is damaged.
    #[error("cannot read the symbols of {file}: {error}")]
    Symbols {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: SymbolError,
    },
    /// The initial RAM disk is cut off or damaged.
    #[error("cannot load the initial RAM disk {file}: {error}")]
    Initrd {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: InitramfsError,
    },
    /// The initial RAM disk has no content.
    #[error("the initial RAM disk {0} is empty")]
    EmptyInitrd(String),
    /// A disk image cannot be used.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: DiskError,
    },
    /// A 64-bit image on a 32-bit CPU.
    #[error("{0} is a 64-bit image, which --cpu ia32 cannot run; use --cpu x86-64")]
    NeedsLongMode(String),
    /// The minimal platform has no virtio devices.
    #[error("{0} needs --platform pc: the minimal platform has no such device")]
    NeedsPc(&'static str),
    /// The name of a file of fw_cfg is too long, or not ASCII.
    #[error("{0:?} cannot be the name of a file in fw_cfg: it must have 1 to 55 characters of ASCII")]
    FwCfgName(String),
    /// A path in the guest begins with `/`.
    #[error("{0:?} is not the path of a file in the guest, such as /bin/busybox")]
    GuestPath(String),
    /// A file that was given for the guest's is not one of its kind.
    #[error("{file} cannot be the {kind} {path}: {error}")]
    GuestFile {
        /// Its path in the guest.
        path: String,
        /// What the guest has there.
        kind: &'static str,
        /// The file.
        file: String,
        /// What is wrong with it.
        error: Box<SymbolError>,
    },
    /// The calling convention is not one of this guest's code.
    #[error(
        "the calling convention (--abi) is one of {abi}-bit code, and {image} is a {guest}-bit guest; use {}",
        conventions(*guest)
    )]
    Abi {
        /// Bits of the convention.
        abi: Width,
        /// The image.
        image: String,
        /// Bits of the guest.
        guest: Width,
    },
    /// The children of a process by number have other numbers.
    #[error("--follow-fork needs --target NAME or PATH: the children of process {0} have different numbers")]
    FollowsNumber(u32),
    /// A service that cannot be registered.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The machine cannot be built, or the parts do not fit into it.
    #[error("cannot build the machine: {0}")]
    Machine(#[from] MachineError),
}

/// The calling conventions of code of this width.
const fn conventions(width: Width) -> &'static str {
    match width {
        Width::W32 => "cdecl or regparm",
        Width::W64 => "sysv",
    }
}

/// A file of the host, or its content.
///
/// ```
/// use trapline_session::Content;
/// let file = Content::from("initrd.gz");
/// let bytes = Content::from(vec![0x1f, 0x8b]);
/// assert_eq!((file.name(), bytes.name()), ("initrd.gz".to_string(), "given bytes".to_string()));
/// ```
#[derive(Debug, Clone)]
pub enum Content {
    /// The file at this path.
    File(PathBuf),
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file of this name that was read already.
    Read {
        /// Its path.
        name: String,
        /// Its content.
        bytes: Arc<[u8]>,
    },
}

impl Content {
    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bytes(_) => "given bytes".to_owned(),
            Self::Read { name, .. } => name.clone(),
        }
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>, FileError> {
        match self {
            Self::File(path) => read_file(path),
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Read { bytes, .. } => Ok(bytes.to_vec()),
        }
    }
}

impl From<&Path> for Content {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<PathBuf> for Content {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&str> for Content {
    fn from(path: &str) -> Self {
        Self::File(path.into())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Where the image comes from.
#[derive(Debug, Clone)]
enum ImageSource {
    Embedded(String),
    /// An embedded guest of another build, stored in a recording.
    Brought {
        name: String,
        image: Content,
        cmdline: String,
        modules: Vec<(String, Content)>,
    },
    Content {
        name: String,
        content: Content,
    },
}

/// The parts of a guest. Every part but the image has a default.
///
/// ```
/// use trapline_session::GuestBuilder;
///
/// let guest = GuestBuilder::embedded("x86_64").memory(32 << 20).open()?;
/// assert_eq!(guest.target().width().bits(), 64);
/// # Ok::<(), trapline_session::GuestError>(())
/// ```
#[derive(Debug, Clone)]
pub struct GuestBuilder {
    image: ImageSource,
    modules: Vec<(Content, String)>,
    initrd: Option<Content>,
    files: Vec<(String, Content)>,
    symbols: Vec<Content>,
    options: ProbeOptions,
    signed_by: Option<VerifyingKey>,
    services: Vec<Service>,
    hardware: Hardware,
}

impl GuestBuilder {
    /// A guest of an image file: a Linux bzImage or vmlinux, a Multiboot or ELF kernel, also gzipped; or of
    /// `embedded:NAME`.
    pub fn image(path: &str) -> Self {
        match path.strip_prefix(EMBEDDED) {
            Some(name) => Self::embedded(name),
            None => Self::new(ImageSource::Content { name: path.to_owned(), content: path.into() }),
        }
    }

    /// A guest of an image in memory. `name` is the kernel's name: the first word of its command line.
    pub fn image_bytes(name: &str, bytes: Vec<u8>) -> Self {
        Self::new(ImageSource::Content { name: name.to_owned(), content: bytes.into() })
    }

    /// A guest that is compiled into the library: `ia32` or `x86_64`.
    pub fn embedded(name: &str) -> Self {
        Self::new(ImageSource::Embedded(name.to_owned()))
    }

    fn new(image: ImageSource) -> Self {
        let hardware = Hardware::new();
        let options = ProbeOptions::default();
        let (modules, files, symbols) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            image,
            modules,
            initrd: None,
            files,
            symbols,
            options,
            signed_by: None,
            services: Vec::new(),
            hardware,
        }
    }

    /// Another image in place of the guest's own. All else stays: the kernel's name, and what an embedded guest has.
    #[must_use]
    pub fn other_image(mut self, image: impl Into<Content>) -> Self {
        let content = image.into();
        self.image = match self.image {
            ImageSource::Content { name, .. } => ImageSource::Content { name, content },
            ImageSource::Brought { name, cmdline, modules, .. } => {
                ImageSource::Brought { name, image: content, cmdline, modules }
            }
            ImageSource::Embedded(name) => match parts::embedded_guest(&name) {
                Ok(guest) => ImageSource::Brought {
                    name: format!("{EMBEDDED}{name}"),
                    image: content,
                    cmdline: guest.cmdline.to_owned(),
                    modules: guest
                        .modules
                        .iter()
                        .map(|(s, b)| ((*s).to_owned(), b.to_vec().into()))
                        .collect(),
                },
                // Reading it says so.
                Err(_) => ImageSource::Embedded(name),
            },
        };
        self
    }

    /// Guest memory in bytes, a multiple of 4096; 256 MiB by default.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.hardware.memory = bytes;
        self
    }

    /// The CPU; by default the 64-bit one, but for embedded guests of 32 bits.
    #[must_use]
    pub fn cpu(mut self, model: CpuModel) -> Self {
        self.hardware.cpu = Some(model);
        self
    }

    /// The devices; by default those of a PC.
    #[must_use]
    pub fn platform(mut self, kind: PlatformKind) -> Self {
        self.hardware.platform = Some(kind);
        self
    }

    /// The kernel command line, in place of the guest's own.
    #[must_use]
    pub fn cmdline(mut self, line: &str) -> Self {
        self.hardware.cmdline = Some(line.to_owned());
        self
    }

    /// Appends these words to the kernel command line.
    #[must_use]
    pub fn append(mut self, words: &str) -> Self {
        self.hardware.append.push(words.to_owned());
        self
    }

    /// The initial RAM disk of a Linux kernel. Programs in it can be probed.
    #[must_use]
    pub fn initrd(mut self, initrd: impl Into<Content>) -> Self {
        self.initrd = Some(initrd.into());
        self
    }

    /// A Multiboot module. `string` is passed to the kernel: by custom its name and arguments. A program among the
    /// modules can be probed.
    #[must_use]
    pub fn module(mut self, content: impl Into<Content>, string: &str) -> Self {
        self.modules.push((content.into(), string.to_owned()));
        self
    }

    /// A raw disk image, of the PC platform. It is only read: the guest's writes stay in memory.
    #[must_use]
    pub fn disk(mut self, disk: impl Into<Content>) -> Self {
        self.hardware.disk = Some(disk.into());
        self
    }

    /// Gives the PC platform a virtio console.
    #[must_use]
    pub fn virtio_console(mut self) -> Self {
        self.hardware.virtio_console = true;
        self
    }

    /// How a bzImage is entered; by default the kernel inside, unpacked here.
    #[must_use]
    pub fn entry(mut self, entry: LinuxEntry) -> Self {
        self.hardware.entry = entry;
        self
    }

    /// Gives the PC platform a virtio source of entropy, whose bytes are the same in every run.
    #[must_use]
    pub fn virtio_entropy(mut self) -> Self {
        self.hardware.virtio_entropy = true;
        self
    }

    /// Where the virtio devices are; by default at addresses that ACPI names.
    #[must_use]
    pub fn virtio_bus(mut self, bus: VirtioBus) -> Self {
        self.hardware.virtio_bus = bus;
        self
    }

    /// A file of fw_cfg, of the PC platform; `name` is by custom `opt/..`.
    #[must_use]
    pub fn fw_cfg(mut self, name: &str, content: impl Into<Content>) -> Self {
        self.hardware.fw_cfg.push((name.to_owned(), content.into()));
        self
    }

    /// A file that the guest has at `path`, so that it can be probed.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Content>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// More kernel symbols: a System.map or an ELF file.
    #[must_use]
    pub fn symbols(mut self, path: impl Into<PathBuf>) -> Self {
        self.symbols.push(Content::File(path.into()));
        self
    }

    /// Which functions and sites fbt has.
    #[must_use]
    pub fn fbt(mut self, rules: Rules) -> Self {
        self.options.fbt = rules;
        self
    }

    /// The calling convention of the kernel's functions, instead of the derived one.
    #[must_use]
    pub fn abi(mut self, abi: Abi) -> Self {
        self.options.abi = Some(abi);
        self
    }

    /// The process that `$target` stands for in `pid$target`.
    #[must_use]
    pub fn target(mut self, process: TargetProcess) -> Self {
        self.options.target = Some(process);
        self
    }

    /// Includes the children that the process of [`GuestBuilder::target`] forks.
    #[must_use]
    pub fn follow_fork(mut self) -> Self {
        self.options.follow_fork = true;
        self
    }

    /// Has all sessions of it keep up this meter.
    #[must_use]
    pub fn metered_by(mut self, meter: &Meter) -> Self {
        self.hardware.meter = meter.clone();
        self
    }

    /// Reads all parts of the guest.
    ///
    /// # Errors
    /// A file is missing or damaged, or the parts do not fit together.
    pub fn open(&self) -> Result<Guest, GuestError> {
        if let (true, Some(TargetProcess::Pid(pid))) = (self.options.follow_fork, &self.options.target) {
            return Err(GuestError::FollowsNumber(*pid));
        }
        parts::open(self)
    }
}

/// A guest that can be booted, any number of times.
pub struct Guest {
    name: String,
    /// What is loaded. The image of the target is that of the kernel where it will run.
    image: Image,
    target: Arc<Target>,
    modules: Vec<BootModule>,
    initrd: Vec<u8>,
    /// Its own command line; for a Multiboot kernel the part after the image's name.
    cmdline: String,
    /// The reader of its tasks, if it is Linux.
    linux: Option<Linux>,
    /// The key that must have signed every program, if there is one.
    pub(crate) signed_by: Option<VerifyingKey>,
    hardware: Hardware,
    /// Whether it is an embedded guest.
    embedded: bool,
    notes: Vec<String>,
}

impl Guest {
    /// Its image as it was named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The target to probe.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// The parts of it that could not be read, and the consequences; one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> u64 {
        self.hardware.memory
    }

    /// Whether it will have a virtio console.
    pub fn has_virtio_console(&self) -> bool {
        self.hardware.virtio_console
    }

    /// What its sessions keep up.
    pub(crate) fn meter(&self) -> &Meter {
        &self.hardware.meter
    }

    /// Its devices.
    pub fn platform(&self) -> PlatformKind {
        let linux = self.target.image().plan().linux.is_some();
        let default = match self.hardware.defaults {
            Defaults::ByWidth if !linux => PlatformKind::Minimal,
            _ => PlatformKind::Pc,
        };
        self.hardware.platform.unwrap_or(default)
    }

    /// Its CPU.
    pub fn cpu(&self) -> CpuModel {
        let plan = self.target.image().plan();
        let wide = |module: &BootModule| {
            ElfView::parse(&module.bytes).is_ok_and(|view| view.width() == FileWidth::Bits64)
        };
        let default = match self.hardware.defaults {
            Defaults::ByWidth => plan.width == FileWidth::Bits64 && !plan.is_wide_in_narrow_file(),
            Defaults::Wide if !self.embedded => true,
            Defaults::ByNeed | Defaults::Wide => {
                plan.may_enter_long_mode() || plan.linux.is_none() && self.modules.iter().any(wide)
            }
        };
        self.hardware.cpu.unwrap_or(if default { CpuModel::X86_64 } else { CpuModel::Ia32 })
    }

    /// Whether it was given an initial RAM disk.
    pub(crate) fn has_initrd(&self) -> bool {
        !self.initrd.is_empty()
    }

    /// The kernel command line that it will get.
    pub fn cmdline(&self) -> String {
        let linux = self.target.image().plan().linux.is_some();
        let default = || match (linux, self.platform()) {
            (true, PlatformKind::Pc) => DEFAULT_CMDLINE.to_owned(),
            (true, PlatformKind::Minimal) => format!("{DEFAULT_CMDLINE} {CMDLINE_ON_MINIMAL}"),
            (false, _) => self.cmdline.clone(),
        };
        let mut line = self.hardware.cmdline.clone().unwrap_or_else(default);
        for more in &self.hardware.append {
            line = format!("{line} {more}").trim().to_owned();
        }
        line
    }

    /// A machine with this guest loaded, at its entry. For uses that [`crate::Session`] does not offer.
    ///
    /// # Errors
    /// Memory is too small, a disk cannot be read, or the parts do not fit together.
    pub fn machine(&self) -> Result<Machine, GuestError> {
        let model = self.cpu();
        let plan = self.target.image().plan();
        // Code in a file of 32 bits may look first whether the CPU has long mode.
        if model == CpuModel::Ia32 && plan.width == FileWidth::Bits64 && !plan.is_wide_in_narrow_file() {
            return Err(GuestError::NeedsLongMode(self.name.clone()));
        }
        let devices = self.hardware.devices(self.platform())?;
        let config = MachineConfig { mem_size: self.hardware.memory, model };
        let mut machine = Machine::with_platform(&config, &devices)?;
        let line = self.cmdline();
        let files = BootFiles {
            cmdline: &line,
            modules: &self.modules,
            initrd: &self.initrd,
            entry: self.hardware.entry,
        };
        machine.load(&self.image, &files)?;
        Ok(machine)
    }

    /// The reader of its system's tasks, if the system is known.
    pub fn profile(&self) -> Option<Box<dyn OsProfile>> {
        profile(self.linux.as_ref(), &self.target)
    }

    /// A maker of [`Guest::profile`] that does not borrow the guest.
    pub(crate) fn profiles(&self) -> Box<dyn Fn() -> Option<Box<dyn OsProfile>> + Send> {
        let (linux, target) = (self.linux.clone(), Arc::clone(&self.target));
        Box::new(move || profile(linux.as_ref(), &target))
    }
}

fn profile(linux: Option<&Linux>, target: &Target) -> Option<Box<dyn OsProfile>> {
    if let Some(linux) = linux {
        return Some(Box::new(linux.clone()));
    }
    let found = TrapOs::find(target.image().plan(), target.symbols()).ok()?;
    Some(Box::new(found))
}

/// The image file as a program or library, if it is one instead of a kernel.
pub fn user_module(path: &str) -> Option<UserModule> {
    parts::user_module(path)
}
