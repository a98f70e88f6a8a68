//! Reads the files of a guest, and derives the target to probe.

use std::path::Path;
use std::sync::Arc;

use trapline_emu::BootModule;
use trapline_emu::load::{ElfView, Files, Image, InitramfsError, LoadError, Moved, unpack};
use trapline_emu::symbols::{Btf, KallsymsError, KernelModule, SymbolError, Symbols, UserModule};
use trapline_guests::Guest as Embedded;
use trapline_interposer::Services;
use trapline_os::{Linux, has_unknown_orc};
use trapline_providers::Target;

use super::moved::{self, Place};
use super::{Content, EMBEDDED, Guest, GuestBuilder, GuestError, ImageSource};
use crate::files::{file_name, read_file};
use crate::kinds::Kind;

/// The parts of a guest, as bytes.
#[derive(Default)]
struct Parts {
    image: Vec<u8>,
    /// The image's file in messages. A guest whose image was replaced has another name.
    file: String,
    /// The kernel's name, first word of its command line.
    kernel: String,
    cmdline: String,
    modules: Vec<BootModule>,
    initrd: Vec<u8>,
    files: Files,
}

/// See [`super::user_module`].
pub fn user_module(path: &str) -> Option<UserModule> {
    let bytes = read_file(Path::new(path)).ok()?;
    if UserModule::recognises(&bytes) { UserModule::parse(&bytes, file_name(path)).ok() } else { None }
}

/// The kernel's name on its own command line. It depends neither on its file's folder nor on its compression, so that
/// the run does not either.
fn kernel_name(path: &str) -> String {
    match file_name(path) {
        // Standard input has no name of its own.
        "-" => "kernel".to_owned(),
        name => name.strip_suffix(".gz").unwrap_or(name).to_owned(),
    }
}

/// See [`GuestBuilder::open`].
pub fn open(builder: &GuestBuilder) -> Result<Guest, GuestError> {
    let mut notes = Vec::new();
    let (name, mut parts) = match &builder.image {
        ImageSource::Embedded(name) => (format!("{EMBEDDED}{name}"), embedded(name)?),
        ImageSource::Brought { name, image, cmdline, modules } => {
            (name.clone(), brought(name, image, cmdline, modules)?)
        }
        ImageSource::Content { name, content } => {
            let (image, file) = (content.read()?, file_of(name, content));
            (name.clone(), Parts { image, file, kernel: kernel_name(name), ..Parts::default() })
        }
    };
    for (content, string) in &builder.modules {
        parts.modules.push(BootModule { string: string.clone(), bytes: content.read()? });
    }
    if let Some(initrd) = &builder.initrd {
        parts.initrd = initrd.read()?;
        parts.files = files_of(initrd, &parts.initrd, &mut notes)?;
    }
    for (path, content) in &builder.files {
        if !path.starts_with('/') || path.ends_with('/') {
            return Err(GuestError::GuestPath(path.clone()));
        }
        let bytes = content.read()?;
        check_named(path, &content.name(), &bytes)?;
        parts.files.insert(path, bytes);
    }
    build(builder, name, parts, notes)
}

/// The image's file in messages; bytes have the name of their guest.
fn file_of(name: &str, image: &Content) -> String {
    match image {
        Content::Bytes(_) => name.to_owned(),
        Content::File(_) | Content::Read { .. } => image.name(),
    }
}

/// Refuses a file that its user names and that cannot be probed: a damaged ELF file, and anything else where the guest has a
/// kernel module.
fn check_named(path: &str, file: &str, bytes: &[u8]) -> Result<(), GuestError> {
    let is_module = path.ends_with(".ko");
    if !is_module && !ElfView::recognises(bytes) {
        return Ok(());
    }
    let read = if is_module || KernelModule::recognises(bytes) {
        KernelModule::parse(bytes, path).map(|_| ())
    } else {
        UserModule::parse(bytes, path).map(|_| ())
    };
    let kind = if is_module { "kernel module" } else { "program" };
    read.map_err(|error| GuestError::GuestFile {
        path: path.to_owned(),
        kind,
        file: file.to_owned(),
        error: Box::new(error),
    })
}

/// The guest of this name that is compiled into the library.
pub fn embedded_guest(name: &str) -> Result<&'static Embedded, GuestError> {
    trapline_guests::find(name).ok_or_else(|| {
        let known: Vec<String> =
            trapline_guests::ALL.iter().map(|g| format!("{EMBEDDED}{}", g.name)).collect();
        GuestError::UnknownEmbedded { name: name.to_owned(), known: known.join(" and ") }
    })
}

fn embedded(name: &str) -> Result<Parts, GuestError> {
    let guest = embedded_guest(name)?;
    let (kernel, cmdline) = guest.cmdline.split_once(' ').unwrap_or((guest.cmdline, ""));
    let modules = guest.modules.iter();
    Ok(Parts {
        image: guest.image.to_vec(),
        file: format!("{EMBEDDED}{name}"),
        kernel: kernel.to_owned(),
        cmdline: cmdline.to_owned(),
        modules: modules.map(|(s, b)| BootModule { string: (*s).to_owned(), bytes: b.to_vec() }).collect(),
        ..Parts::default()
    })
}

/// As [`embedded`], of an embedded guest that comes from elsewhere.
fn brought(
    name: &str,
    image: &Content,
    cmdline: &str,
    modules: &[(String, Content)],
) -> Result<Parts, GuestError> {
    let (kernel, cmdline) = cmdline.split_once(' ').unwrap_or((cmdline, ""));
    let mut parts = Parts {
        image: image.read()?,
        file: file_of(name, image),
        kernel: kernel.to_owned(),
        cmdline: cmdline.to_owned(),
        ..Parts::default()
    };
    for (string, content) in modules {
        parts.modules.push(BootModule { string: string.clone(), bytes: content.read()? });
    }
    Ok(parts)
}

/// The files in an initial RAM disk. A damaged one is refused.
fn files_of(initrd: &Content, bytes: &[u8], notes: &mut Vec<String>) -> Result<Files, GuestError> {
    if bytes.is_empty() {
        return Err(GuestError::EmptyInitrd(initrd.name()));
    }
    match Files::of_initramfs(bytes) {
        Ok(files) => Ok(files),
        // Not damaged: the kernel may be able to unpack what is not read here.
        Err(error @ (InitramfsError::Packing { .. } | InitramfsError::TooLarge)) => {
            notes.push(format!("programs in the initial RAM disk cannot be probed: {error}"));
            Ok(Files::default())
        }
        Err(error) => Err(GuestError::Initrd { file: initrd.name(), error }),
    }
}

/// Why an image is no kernel: what it is, if that is known.
fn no_kernel(parts: &Parts, error: LoadError) -> GuestError {
    let image = parts.file.clone();
    let unknown = matches!(error, LoadError::UnknownFormat { .. });
    let kind = unknown.then(|| unpack(&parts.image).ok().and_then(|image| Kind::of_bytes(&image))).flatten();
    match kind {
        Some(Kind { is, instead }) => GuestError::NoKernel { image, is, instead },
        None => GuestError::Image { image, error },
    }
}

fn build(
    builder: &GuestBuilder,
    name: String,
    parts: Parts,
    mut notes: Vec<String>,
) -> Result<Guest, GuestError> {
    if KernelModule::recognises(&parts.image) {
        return Err(GuestError::ModuleAsImage(parts.file));
    }
    let image = Image::parse(&parts.image, &parts.kernel).map_err(|error| no_kernel(&parts, error))?;
    let (symbols, debug) = symbols(&image, &parts.file, &builder.symbols, &mut notes)?;
    let Parts { modules, initrd, cmdline, files, .. } = parts;
    let mut users = Vec::new();
    // A module may be anything; only a program can be probed.
    for module in modules.iter().filter(|module| ElfView::recognises(&module.bytes)) {
        let file = module.string.split(' ').next().unwrap_or_default();
        match UserModule::parse(&module.bytes, file) {
            Ok(user) => users.push(Arc::new(user)),
            Err(error) => notes.push(format!("the module {file} cannot be probed: {error}")),
        }
    }
    let mut refused = |path: &str, error: &SymbolError| {
        notes.push(format!("the guest's file {path} cannot be probed: {error}"));
    };
    let target = Target::new(image.clone(), symbols, users)
        .with_options(builder.options.clone())
        .with_services(Services::new(&builder.services)?)
        .with_files(files, &mut refused)
        .with_unread(notes.clone());
    let linux = linux(target.image(), target.symbols(), &mut notes);
    if target.image().plan().is_wide_in_narrow_file() {
        notes.push(format!(
            "{} is a file of 32 bits whose code enables long mode: it is taken for a 64-bit guest",
            parts.file
        ));
    }
    if let Some(abi) = builder.options.abi.filter(|abi| abi.width() != target.width()) {
        return Err(GuestError::Abi { abi: abi.width(), image: parts.file, guest: target.width() });
    }
    let target = Arc::new(debug.into_iter().rev().fold(target, Target::with_debug_file));
    let hardware = builder.hardware.clone();
    let embedded = matches!(builder.image, ImageSource::Embedded(_) | ImageSource::Brought { .. });
    let signed_by = builder.signed_by;
    let guest =
        Guest { name, image, target, modules, initrd, cmdline, linux, signed_by, hardware, embedded, notes };
    followed(guest)
}

/// The guest with the target where its own code will put the kernel.
fn followed(mut guest: Guest) -> Result<Guest, GuestError> {
    match moved::place(&guest)? {
        Place::Linked => {}
        Place::Moved(by, image) => guest = at_its_place(guest, by, *image),
        Place::Unknown(icount) => guest.notes.push(format!(
            "the place of the kernel that {} unpacks was not found in {icount} instructions: symbols and probes are at its \
             linked addresses",
            guest.name
        )),
    }
    Ok(guest)
}

/// The guest with the target where the kernel was moved to.
pub fn at_its_place(mut guest: Guest, by: Moved, image: Image) -> Guest {
    guest.target = Arc::new(guest.target.moved(image, by.vaddr));
    guest.linux = linux(guest.target.image(), guest.target.symbols(), &mut Vec::new());
    guest.notes.push(format!(
        "KASLR: the kernel is {:#x} bytes above its linked addresses, and {:#x} above its linked place in memory; symbols and \
         probes follow it",
        by.vaddr, by.paddr
    ));
    guest
}

/// A whole file, shared.
type Bytes = Arc<[u8]>;

/// The kernel's symbols: its own, then those of further files, whose bytes may hold debugging information too.
fn symbols(
    image: &Image,
    name: &str,
    more: &[Content],
    notes: &mut Vec<String>,
) -> Result<(Symbols, Vec<Bytes>), GuestError> {
    let kernel = image.plan().name.clone();
    let damaged = |file: String, error| GuestError::Symbols { file, error };
    let mut symbols = Symbols::new(&kernel);
    if image.is_elf() {
        symbols =
            Symbols::from_elf(image.bytes(), &kernel).map_err(|error| damaged(name.to_owned(), error))?;
    }
    if symbols.is_empty() && ElfView::recognises(&image.plan().image) {
        match Symbols::from_kallsyms(&image.plan().image, &kernel) {
            Ok(found) => symbols = found,
            // Another system's kernel, without symbols.
            Err(SymbolError::Kallsyms(KallsymsError::NoTokens)) if image.plan().linux.is_none() => {}
            Err(error) => notes.push(format!("{name} has no symbols: {error}")),
        }
    }
    let mut debug = Vec::new();
    for content in more {
        let bytes = content.read()?;
        let read = if ElfView::recognises(&bytes) {
            Symbols::from_elf(&bytes, &kernel)
        } else {
            Symbols::from_system_map(&bytes, &kernel)
        };
        let read = read.map_err(|error| damaged(content.name(), error))?;
        if read.is_empty() && bytes.is_empty() {
            return Err(GuestError::NoSymbols(content.name()));
        }
        symbols = symbols.merged(read);
        debug.push(Bytes::from(bytes));
    }
    Ok((symbols, debug))
}

/// The reader of a Linux kernel's tasks; if there is none, a note says why.
fn linux(image: &Image, symbols: &Symbols, notes: &mut Vec<String>) -> Option<Linux> {
    symbols.sole("init_task")?;
    let btf = Btf::from_vmlinux(&image.plan().image).unwrap_or_else(|error| {
        notes.push(format!("the kernel's types cannot be read: {error}"));
        None
    });
    if has_unknown_orc(image.plan(), btf.as_ref()) {
        let what = "the kernel's unwind tables (ORC) have a layout that is not known: its stacks end at the first frame";
        notes.push(what.to_owned());
    }
    let found = Linux::find(image.plan(), symbols, btf.as_ref())
        .map_err(|error| notes.push(format!("the guest's tasks cannot be read: {error}")))
        .ok()?;
    if let Some(error) = found.lacks() {
        notes.push(format!("what the guest's processes have mapped cannot be read: {error}"));
    }
    Some(found)
}
