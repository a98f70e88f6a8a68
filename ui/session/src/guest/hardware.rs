//! The guest's hardware, as it was asked for, and the configuration of its devices.

use trapline_emu::CpuModel;
use trapline_emu::devices::fw_cfg::NAME_BYTES;
use trapline_emu::devices::virtio::{DiskError, DiskImage};
use trapline_emu::load::LinuxEntry;
use trapline_emu::platform::{PlatformConfig, PlatformKind, VirtioBus};

use super::{Content, DEFAULT_MEMORY, GuestError};
use crate::files::FileError;
use crate::kinds::Kind;
use crate::meter::Meter;
use crate::recording::Defaults;

/// The guest's hardware.
#[derive(Debug, Clone)]
pub(super) struct Hardware {
    pub memory: u64,
    pub cpu: Option<CpuModel>,
    pub platform: Option<PlatformKind>,
    pub defaults: Defaults,
    pub disk: Option<Content>,
    pub virtio_console: bool,
    pub virtio_entropy: bool,
    pub virtio_bus: VirtioBus,
    pub fw_cfg: Vec<(String, Content)>,
    pub entry: LinuxEntry,
    pub cmdline: Option<String>,
    pub append: Vec<String>,
    pub meter: Meter,
}

impl Hardware {
    /// What a guest has if nothing else is asked for.
    pub fn new() -> Self {
        Self {
            memory: DEFAULT_MEMORY,
            cpu: None,
            platform: None,
            defaults: Defaults::NOW,
            disk: None,
            virtio_console: false,
            virtio_entropy: false,
            virtio_bus: VirtioBus::default(),
            fw_cfg: Vec::new(),
            entry: LinuxEntry::default(),
            cmdline: None,
            append: Vec::new(),
            meter: Meter::default(),
        }
    }

    /// The configuration of its devices, of this kind of platform.
    pub fn devices(&self, kind: PlatformKind) -> Result<PlatformConfig, GuestError> {
        let Hardware { memory, disk, virtio_console, virtio_entropy, virtio_bus, fw_cfg, .. } = self;
        let asked = [
            (disk.is_some(), "--disk"),
            (*virtio_console, "--virtio-console"),
            (*virtio_entropy, "--virtio-rng"),
            (*virtio_bus != VirtioBus::default(), "--virtio"),
            (!fw_cfg.is_empty(), "--fw-cfg"),
        ];
        if let (PlatformKind::Minimal, Some((_, option))) = (kind, asked.iter().find(|(asked, _)| *asked)) {
            return Err(GuestError::NeedsPc(option));
        }
        if let Some(Content::File(path)) = disk
            && let Some((is, instead)) = Kind::not_raw(path)
        {
            return Err(GuestError::NotRaw { path: path.clone(), is, instead });
        }
        let disk = disk.as_ref().map(|content| match content {
            Content::File(path) => DiskImage::open(path).map_err(|error| match error {
                DiskError::Unreadable(error) => FileError::Read { path: path.clone(), error }.into(),
                error => GuestError::Disk { path: path.clone(), error },
            }),
            Content::Bytes(bytes) => disk_of(bytes, content),
            Content::Read { bytes, .. } => disk_of(bytes, content),
        });
        let mut files = Vec::new();
        for (name, content) in fw_cfg {
            if name.is_empty() || name.len() >= NAME_BYTES || !name.is_ascii() {
                return Err(GuestError::FwCfgName(name.clone()));
            }
            files.push((name.clone(), content.read()?));
        }
        Ok(PlatformConfig {
            mem_size: *memory,
            kind,
            disk: disk.transpose()?,
            console: *virtio_console,
            entropy: *virtio_entropy,
            virtio: *virtio_bus,
            files,
        })
    }
}

fn disk_of(bytes: &[u8], content: &Content) -> Result<DiskImage, GuestError> {
    DiskImage::from_bytes(bytes).map_err(|error| GuestError::Disk { path: content.name().into(), error })
}
