//! The start of a run: everything that determines it, besides later input.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trapline_emu::CpuModel;
use trapline_emu::load::LinuxEntry;
use trapline_emu::platform::{PlatformKind, VirtioBus};
use trapline_providers::ProbeOptions;

use super::hash::Hash;
use crate::probing::Probing;

/// The version of [`RunConfig`] that this build writes, and the newest that it reads. A field can be added without a
/// new version if a run without it is the same as before.
const VERSION: u32 = 1;

/// A file of the guest, by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFile {
    /// Its path as it was given.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// XXH3-128 of its content.
    pub hash: Hash,
}

/// A guest that is compiled into the library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbeddedGuest {
    /// Its command line, with its kernel's name.
    pub cmdline: String,
    /// Its modules, with their strings.
    pub modules: Vec<(String, RecordedFile)>,
}

/// How what was not asked for is chosen. A recording keeps the rule under which it was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Defaults {
    /// The CPU by the width of the image's file; a PC's devices for Linux, and the minimal platform for other guests.
    /// Recordings without this field were made under this rule.
    #[default]
    ByWidth,
    /// The CPU by whether the image may need long mode; a PC's devices.
    ByNeed,
    /// The 64-bit CPU, which runs 32-bit code too, but for embedded guests by need; a PC's devices.
    Wide,
}

impl Defaults {
    /// The rule of this build.
    pub(crate) const NOW: Self = Self::Wide;
}

/// The machine, the guest and the options for records. Together with the log of inputs, it determines a run completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    version: u32,
    /// The version of Trapline that ran it.
    pub made_by: String,
    /// The image.
    pub image: RecordedFile,
    /// The other parts of the image if it is an embedded guest.
    pub embedded: Option<EmbeddedGuest>,
    /// Multiboot modules, with their strings.
    pub modules: Vec<(RecordedFile, String)>,
    /// The initial RAM disk.
    pub initrd: Option<RecordedFile>,
    /// Files that the guest has, by their paths in it.
    pub files: Vec<(String, RecordedFile)>,
    /// Files with more kernel symbols.
    pub symbols: Vec<RecordedFile>,
    /// The disk's image.
    pub disk: Option<RecordedFile>,
    /// Bytes of memory.
    pub memory: u64,
    /// The CPU, if not the image's own.
    #[serde(default)]
    pub cpu: Option<CpuModel>,
    /// How the image's own CPU and devices are chosen.
    #[serde(default)]
    pub defaults: Defaults,
    /// The devices, if not the image's own.
    pub platform: Option<PlatformKind>,
    /// Whether there is a virtio console.
    pub virtio_console: bool,
    /// Whether there is a virtio source of entropy.
    #[serde(default)]
    pub virtio_entropy: bool,
    /// Where the virtio devices are.
    #[serde(default)]
    pub virtio_bus: VirtioBus,
    /// Files of fw_cfg, by their names.
    #[serde(default)]
    pub fw_cfg: Vec<(String, RecordedFile)>,
    /// How a bzImage is entered.
    #[serde(default)]
    pub entry: LinuxEntry,
    /// The kernel command line, if not the image's own.
    pub cmdline: Option<String>,
    /// The words that are appended to it.
    pub append: Vec<String>,
    /// The options for finding probes.
    pub options: ProbeOptions,
    /// The options for records.
    pub probing: Probing,
    /// Instructions from one checkpoint to the next.
    pub checkpoint_insns: u64,
    /// The description of the run in the output of the recorder, so that a replay can print the same. Not part of the
    /// run.
    pub about: Map<String, Value>,
}

impl RunConfig {
    /// One of this build's version.
    pub(crate) fn new(image: RecordedFile, memory: u64) -> Self {
        Self {
            version: VERSION,
            made_by: env!("CARGO_PKG_VERSION").to_owned(),
            image,
            embedded: None,
            modules: Vec::new(),
            initrd: None,
            files: Vec::new(),
            symbols: Vec::new(),
            disk: None,
            memory,
            cpu: None,
            defaults: Defaults::NOW,
            platform: None,
            virtio_console: false,
            virtio_entropy: false,
            virtio_bus: VirtioBus::default(),
            fw_cfg: Vec::new(),
            entry: LinuxEntry::default(),
            cmdline: None,
            append: Vec::new(),
            options: ProbeOptions::default(),
            probing: Probing::default(),
            checkpoint_insns: super::CHECKPOINT_INSNS,
            about: Map::new(),
        }
    }

    /// Reads a configuration; the version first, because it determines the format of the rest.
    pub(super) fn from_json(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if head.version > VERSION {
            let found = head.version;
            return Err(format!(
                "has a configuration of version {found}, and this build reads versions up to {VERSION}"
            ));
        }
        let config: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        match config.checkpoint_insns {
            0 => Err("has 0 instructions from one checkpoint to the next".to_owned()),
            _ => Ok(config),
        }
    }

    /// All files of the guest, each with the word for it in messages.
    pub fn all_files(&self) -> impl Iterator<Item = (&'static str, &RecordedFile)> {
        let embedded = self.embedded.iter().flat_map(|guest| &guest.modules);
        [("image", &self.image)]
            .into_iter()
            .chain(embedded.map(|(_, file)| ("module", file)))
            .chain(self.modules.iter().map(|(file, _)| ("module", file)))
            .chain(self.initrd.iter().map(|file| ("initial RAM disk", file)))
            .chain(self.files.iter().map(|(_, file)| ("file", file)))
            .chain(self.symbols.iter().map(|file| ("symbol file", file)))
            .chain(self.disk.iter().map(|file| ("disk image", file)))
            .chain(self.fw_cfg.iter().map(|(_, file)| ("fw_cfg file", file)))
    }
}
