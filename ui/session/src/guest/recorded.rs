//! From a guest to the configuration of its recording, and from a recording to its guest: the files are identified by
//! their content, wherever they are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::{Content, EMBEDDED, GuestBuilder, GuestError, Hardware, ImageSource};
use crate::files::{FileError, file_name, read_file};
use crate::recording::{Blob, EmbeddedGuest, Hash, RecordedFile, Recording, RunConfig};

/// Where the files of a recording are looked for, in this order: in the recording itself, at the path that it names, at that
/// path from the recording's folder, by their names alone in that folder, and by their names in these folders.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The folder of the recording.
    pub recording: PathBuf,
    /// Further folders.
    pub folders: Vec<PathBuf>,
    /// Whether to accept files with changed content: then the run may differ.
    pub changed: bool,
}

impl Places {
    /// The places for a recording at this path.
    pub fn of(recording: &Path) -> Self {
        Self { recording: recording.parent().map(Path::to_path_buf).unwrap_or_default(), ..Self::default() }
    }

    /// Paths at which a file may be.
    fn paths(&self, name: &str) -> Vec<PathBuf> {
        let last = file_name(name);
        let mut paths = vec![PathBuf::from(name), self.recording.join(name), self.recording.join(last)];
        paths.extend(self.folders.iter().map(|folder| folder.join(last)));
        paths.dedup();
        paths
    }
}

/// Why a recording cannot be replayed here.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file cannot be found.
    #[error(
        "cannot find {name}, the {what} of the recording ({bytes} bytes, hash {hash}); give its folder with --image-dir"
    )]
    Missing {
        /// Its role in the guest.
        what: &'static str,
        /// Its path in the recording.
        name: String,
        /// Its length.
        bytes: u64,
        /// Its hash.
        hash: Hash,
    },
    /// A file has another content.
    #[error("the {what} {} differs from the recorded one: its hash is {found}, and the recorded hash is {wanted}", path.display())]
    Changed {
        /// Its role in the guest.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Its hash.
        found: Hash,
        /// The hash that the recording has.
        wanted: Hash,
    },
    /// An embedded guest differs in this build.
    #[error(
        "{name} of this build is not that of the recording, which Trapline {made_by} made: the hash of its {what} is {found}, and that of the recording's is {wanted}"
    )]
    OtherEmbedded {
        /// The guest.
        name: String,
        /// Which part differs.
        what: &'static str,
        /// The version of Trapline that recorded.
        made_by: String,
        /// The hash in this build.
        found: Hash,
        /// The hash that the recording has.
        wanted: Hash,
    },
    /// A file that the recording brings along cannot be unpacked.
    #[error("the {what} {name} in the recording {error}")]
    Packed {
        /// Its role in the guest.
        what: &'static str,
        /// Its path in the recording.
        name: String,
        /// What is wrong.
        error: String,
    },
    /// There is no guest.
    #[error(transparent)]
    Guest(#[from] GuestError),
}

/// Reads contents once, and notes their names and hashes.
#[derive(Default)]
struct Keeper {
    embed: bool,
    blobs: Vec<Blob>,
}

impl Keeper {
    fn file(&mut self, name: &str, bytes: &[u8], always: bool) -> RecordedFile {
        let hash = Hash::of(bytes);
        if (self.embed || always) && self.blobs.iter().all(|blob| blob.hash != hash) {
            self.blobs.push(Blob { hash, bytes: bytes.to_vec() });
        }
        RecordedFile { name: name.to_owned(), bytes: bytes.len() as u64, hash }
    }

    /// The content, read; its bytes are embedded if no path names it.
    fn keep(&mut self, content: &mut Content) -> Result<RecordedFile, GuestError> {
        let (name, bytes) = (content.name(), content.read()?);
        let given = matches!(content, Content::Bytes(_)) || name == "-";
        let file = self.file(&name, &bytes, given);
        *content = Content::Read { name, bytes: bytes.into() };
        Ok(file)
    }

    /// A disk stays in its file, which may be large.
    fn disk(&mut self, content: &mut Content) -> Result<RecordedFile, GuestError> {
        match content {
            Content::File(path) if !self.embed => Ok(hashed(path)?),
            content => self.keep(content),
        }
    }
}

/// A file by its hash; its content is not kept.
fn hashed(path: &Path) -> Result<RecordedFile, FileError> {
    let failed = |error| FileError::Read { path: path.to_owned(), error };
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut bytes, mut part) = (Xxh3::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut part).map_err(failed)?;
        if read == 0 {
            return Ok(RecordedFile {
                name: path.display().to_string(),
                bytes,
                hash: Hash(hash.digest128()),
            });
        }
        hash.update(part.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}

impl GuestBuilder {
    /// Reads all files of the guest, and returns a guest made from their content, the configuration that names them,
    /// and those that the recording must bring along: all of them if `embed` is true, else those that no path names.
    ///
    /// # Errors
    /// A file cannot be read, or there is no such embedded guest.
    pub fn recorded(&self, embed: bool) -> Result<(Self, RunConfig, Vec<Blob>), GuestError> {
        let mut builder = self.clone();
        let mut keeper = Keeper { embed, ..Keeper::default() };
        let (image, embedded) = keeper.image(&mut builder.image)?;
        let mut config = RunConfig::new(image, builder.hardware.memory);
        config.embedded = embedded;
        for (content, string) in &mut builder.modules {
            config.modules.push((keeper.keep(content)?, string.clone()));
        }
        config.initrd = builder.initrd.as_mut().map(|content| keeper.keep(content)).transpose()?;
        for (path, content) in &mut builder.files {
            config.files.push((path.clone(), keeper.keep(content)?));
        }
        for content in &mut builder.symbols {
            config.symbols.push(keeper.keep(content)?);
        }
        config.options = builder.options.clone();
        let hardware = &mut builder.hardware;
        for (name, content) in &mut hardware.fw_cfg {
            config.fw_cfg.push((name.clone(), keeper.keep(content)?));
        }
        (config.virtio_entropy, config.virtio_bus) = (hardware.virtio_entropy, hardware.virtio_bus);
        config.entry = hardware.entry;
        let Hardware { cpu, platform, defaults, disk, virtio_console, cmdline, append, .. } = hardware;
        config.disk = disk.as_mut().map(|content| keeper.disk(content)).transpose()?;
        (config.cpu, config.platform, config.defaults) = (*cpu, *platform, *defaults);
        config.virtio_console = *virtio_console;
        (config.cmdline, config.append) = (cmdline.clone(), append.clone());
        Ok((builder, config, keeper.blobs))
    }

    /// The guest of a recording.
    ///
    /// # Errors
    /// A file is missing or has changed.
    pub fn of_recording(recording: &Recording, places: &Places) -> Result<Self, ReplayError> {
        let config = recording.config();
        let finder = Finder { recording, places };
        let mut builder = Self::new(finder.image(config)?);
        for (file, string) in &config.modules {
            builder.modules.push((finder.find("module", file)?, string.clone()));
        }
        builder.initrd =
            config.initrd.as_ref().map(|file| finder.find("initial RAM disk", file)).transpose()?;
        for (path, file) in &config.files {
            builder.files.push((path.clone(), finder.find("file", file)?));
        }
        for file in &config.symbols {
            builder.symbols.push(finder.find("symbol file", file)?);
        }
        builder.options = config.options.clone();
        let disk = config.disk.as_ref().map(|file| finder.disk(file)).transpose()?;
        let mut fw_cfg = Vec::new();
        for (name, file) in &config.fw_cfg {
            fw_cfg.push((name.clone(), finder.find("fw_cfg file", file)?));
        }
        builder.hardware = Hardware {
            memory: config.memory,
            cpu: config.cpu,
            platform: config.platform,
            defaults: config.defaults,
            disk,
            virtio_console: config.virtio_console,
            virtio_entropy: config.virtio_entropy,
            virtio_bus: config.virtio_bus,
            fw_cfg,
            entry: config.entry,
            cmdline: config.cmdline.clone(),
            append: config.append.clone(),
            ..Hardware::new()
        };
        Ok(builder)
    }
}

impl Keeper {
    fn image(
        &mut self,
        image: &mut ImageSource,
    ) -> Result<(RecordedFile, Option<EmbeddedGuest>), GuestError> {
        match image {
            ImageSource::Content { content, name } => {
                let given = matches!(content, Content::Bytes(_));
                let file = self.keep(content)?;
                if let (true, Content::Read { name: file, .. }) = (given, content) {
                    file.clone_from(name);
                }
                Ok((RecordedFile { name: name.clone(), ..file }, None))
            }
            ImageSource::Embedded(name) => {
                let guest = super::parts::embedded_guest(name)?;
                let file = self.file(&format!("{EMBEDDED}{name}"), guest.image, false);
                let modules = guest.modules.iter();
                let modules =
                    modules.map(|(s, bytes)| ((*s).to_owned(), self.file(s, bytes, false))).collect();
                Ok((file, Some(EmbeddedGuest { cmdline: guest.cmdline.to_owned(), modules })))
            }
            ImageSource::Brought { name, image, cmdline, modules } => {
                let file = RecordedFile { name: name.clone(), ..self.keep(image)? };
                let mut kept = Vec::new();
                for (string, content) in modules {
                    kept.push((string.clone(), self.keep(content)?));
                }
                Ok((file, Some(EmbeddedGuest { cmdline: cmdline.clone(), modules: kept })))
            }
        }
    }
}

/// Finds the files of a recording.
struct Finder<'a> {
    recording: &'a Recording,
    places: &'a Places,
}

impl Finder<'_> {
    fn brought(&self, what: &'static str, file: &RecordedFile) -> Result<Option<Content>, ReplayError> {
        let name = &file.name;
        match self.recording.brings(file.hash) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(Content::Read { name: name.clone(), bytes: bytes.into() })),
            Some(Err(error)) => Err(ReplayError::Packed { what, name: name.clone(), error }),
        }
    }

    /// The first file with the recording's content, as read by `look`; else the error.
    fn first<T>(
        &self,
        what: &'static str,
        file: &RecordedFile,
        look: impl Fn(&Path) -> Option<(Hash, T)>,
    ) -> Result<T, ReplayError> {
        let mut other = None;
        for path in self.places.paths(&file.name) {
            match look(&path) {
                Some((found, content)) if found == file.hash || self.places.changed => return Ok(content),
                Some((found, _)) => other = other.or(Some((path, found))),
                None => {}
            }
        }
        let wanted = file.hash;
        Err(match other {
            Some((path, found)) => ReplayError::Changed { what, path, found, wanted },
            None => ReplayError::Missing { what, name: file.name.clone(), bytes: file.bytes, hash: wanted },
        })
    }

    fn find(&self, what: &'static str, file: &RecordedFile) -> Result<Content, ReplayError> {
        if let Some(content) = self.brought(what, file)? {
            return Ok(content);
        }
        self.first(what, file, |path| {
            let bytes: Arc<[u8]> = read_file(path).ok()?.into();
            Some((Hash::of(&bytes), Content::Read { name: file.name.clone(), bytes }))
        })
    }

    fn disk(&self, file: &RecordedFile) -> Result<Content, ReplayError> {
        if let Some(content) = self.brought("disk image", file)? {
            return Ok(content);
        }
        self.first("disk image", file, |path| Some((hashed(path).ok()?.hash, Content::File(path.to_owned()))))
    }

    fn image(&self, config: &RunConfig) -> Result<ImageSource, ReplayError> {
        let name = config.image.name.clone();
        let Some(embedded) = &config.embedded else {
            return Ok(ImageSource::Content { name, content: self.find("image", &config.image)? });
        };
        if let Some(image) = self.brought("image", &config.image)? {
            let mut modules = Vec::new();
            for (string, file) in &embedded.modules {
                modules.push((string.clone(), self.find("module", file)?));
            }
            return Ok(ImageSource::Brought { name, image, cmdline: embedded.cmdline.clone(), modules });
        }
        let short = name.strip_prefix(EMBEDDED).unwrap_or(&name);
        let here = super::parts::embedded_guest(short)?;
        let of = |file: &RecordedFile| file.hash;
        let mut parts = vec![("image", Hash::of(here.image), of(&config.image))];
        parts.push((
            "command line",
            Hash::of(here.cmdline.as_bytes()),
            Hash::of(embedded.cmdline.as_bytes()),
        ));
        let count = |modules: usize| Hash::of(&(modules as u64).to_le_bytes());
        parts.push(("number of modules", count(here.modules.len()), count(embedded.modules.len())));
        let modules = here.modules.iter().zip(&embedded.modules);
        parts.extend(modules.map(|((_, bytes), (_, file))| ("module", Hash::of(bytes), file.hash)));
        match parts.into_iter().find(|(_, found, wanted)| found != wanted && !self.places.changed) {
            None => Ok(ImageSource::Embedded(short.to_owned())),
            Some((what, found, wanted)) => {
                let made_by = config.made_by.clone();
                Err(ReplayError::OtherEmbedded { name, what, made_by, found, wanted })
            }
        }
    }
}
