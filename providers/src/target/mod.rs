//! The files to probe: the kernel's image and symbols, and the user modules.

mod holders;
mod options;
mod sites;
mod source;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use trapline_emu::load::{ElfView, Files, Image, Width as FileWidth};
use trapline_emu::symbols::{
    DwarfTypes, KernelModule, SourceLine, SymbolAt, SymbolError, Symbols, UserModule,
};
use trapline_interposer::Services;
use trapline_os::{CodePointer, KernelImage, Unwinder};
use trapline_rpn::Width;
use trapline_trace::Kind;

pub(crate) use holders::Holders;
pub use options::{Abi, AbiError, ProbeOptions, Rules, TargetError, TargetProcess};
pub(crate) use options::{LARGEST, process_number};
pub use sites::{Code, Refusal};
use source::ProgramLines;
pub use source::SourceError;
pub(crate) use source::{KERNEL, SourceLines, SourcePlace};

/// The files that make up a guest.
#[derive(Debug, Clone)]
pub struct Target {
    image: Image,
    symbols: Symbols,
    modules: Vec<Arc<UserModule>>,
    kernel_modules: Vec<Arc<KernelModule>>,
    files: Files,
    lines: SourceLines,
    /// Those of programs, by path.
    program_lines: ProgramLines,
    /// See [`Target::with_unread`].
    unread: Vec<String>,
    options: ProbeOptions,
    /// See [`Target::with_services`].
    services: Services,
    /// See [`Target::once`].
    worked_out: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// The programs and libraries that can be probed, and the user's choices.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// In the order they were given.
    pub modules: &'a [Arc<UserModule>],
    /// The guest's files, for resolving paths.
    pub files: &'a Files,
    /// The user's choices.
    pub options: &'a ProbeOptions,
}

impl<'a> Programs<'a> {
    /// What tells the processes of probes in them.
    pub(crate) fn holders(self) -> Holders<'a> {
        Holders::new(self.modules)
    }
}

/// Why a name means no module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoModule {
    /// No module has the name.
    #[error("no such module is known")]
    Unknown,
    /// There is none at this path.
    #[error("the guest has no module at {path}; {} is at {}", basename(path), paths.join(", "))]
    Elsewhere {
        /// The path that was asked for.
        path: String,
        /// Where modules with its last component are.
        paths: Vec<String>,
    },
    /// Different files have the name.
    #[error("`{name}` is ambiguous: {}", paths.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their paths.
        paths: Vec<String>,
    },
}

impl NoModule {
    /// None is at `path`; those with its last component are at `others`.
    fn at<'a>(path: &str, others: impl Iterator<Item = &'a str>) -> Self {
        let paths: Vec<String> = others.map(str::to_owned).collect();
        if paths.is_empty() { Self::Unknown } else { Self::Elsewhere { path: path.to_owned(), paths } }
    }
}

/// The only module of those that `name` means, with their files; a file that was given twice counts once.
fn sole<'a, T>(name: &str, named: impl Iterator<Item = (&'a T, &'a UserModule)>) -> Result<&'a T, NoModule> {
    let all: Vec<_> = named.collect();
    let Some((first, file)) = all.first() else { return Err(NoModule::Unknown) };
    let is_same = |other: &UserModule| other.name() == file.name() && other.bytes() == file.bytes();
    if all.iter().all(|(_, other)| is_same(other)) {
        return Ok(first);
    }
    let paths = all.iter().map(|(_, file)| file.name().to_owned()).collect();
    Err(NoModule::Ambiguous { name: name.to_owned(), paths })
}

/// The last component of a path; modules are matched by it.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Target {
    /// The services that programs may call by name.
    #[must_use]
    pub fn with_services(self, services: Services) -> Self {
        Self { services, ..self }
    }

    /// The services that the embedding program has registered.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// A guest of the kernel `image` with `symbols` and the user modules `modules`.
    pub fn new(image: Image, symbols: Symbols, modules: Vec<Arc<UserModule>>) -> Self {
        let lines = SourceLines::new(vec![Arc::clone(&image.plan().image)]);
        let (options, worked_out) = (ProbeOptions::default(), OnceLock::new());
        let (kernel_modules, files, unread) = (Vec::new(), Files::default(), Vec::new());
        let program_lines = ProgramLines::default();
        Self {
            image,
            symbols,
            modules,
            kernel_modules,
            files,
            lines,
            program_lines,
            unread,
            options,
            services: Services::default(),
            worked_out,
        }
    }

    /// Adds the programs, libraries and kernel modules among the guest's files, under their paths. `refused`
    /// is called for each other ELF file, with the reason.
    #[must_use]
    pub fn with_files(mut self, files: Files, refused: &mut dyn FnMut(&str, &SymbolError)) -> Self {
        for (path, bytes) in files.iter().filter(|(_, bytes)| ElfView::recognises(bytes)) {
            let added = if KernelModule::recognises(bytes) {
                KernelModule::parse(bytes, path).map(|module| self.kernel_modules.push(Arc::new(module)))
            } else {
                UserModule::parse(bytes, path).map(|module| self.modules.push(Arc::new(module)))
            };
            if let Err(error) = added {
                refused(path, &error);
            }
        }
        self.files = files;
        self
    }

    /// The same target with its kernel elsewhere: `image` is that of the moved kernel, whose virtual addresses are `by` bytes
    /// higher than where it was linked.
    #[must_use]
    pub fn moved(&self, image: Image, by: u64) -> Self {
        let from = self.image.plan().upper().unwrap_or(u64::MAX);
        let (symbols, lines) = (self.symbols.moved(from, by), self.lines.moved(by));
        Self { image, symbols, lines, worked_out: OnceLock::new(), ..self.clone() }
    }

    /// Sets the files that could not be read, one sentence each. A description without matches may be about one of them.
    #[must_use]
    pub fn with_unread(self, unread: Vec<String>) -> Self {
        Self { unread, ..self }
    }

    /// See [`Target::with_unread`].
    pub(crate) fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Adds the debugging information of the ELF file `file`, if it has any; it precedes that of the image.
    #[must_use]
    pub fn with_debug_file(mut self, file: Arc<[u8]>) -> Self {
        self.lines = self.lines.and(file);
        self
    }

    /// The kernel's source line of the instruction at `address`.
    pub fn source_line(&self, address: u64) -> Option<SourceLine> {
        self.lines.line_at(address)
    }

    /// The source line of the byte at `offset` of the guest's file `path`.
    pub fn file_line(&self, path: &str, offset: u64) -> Option<SourceLine> {
        let module = self.module_at_path(path)?;
        self.program_lines.of(module).line_at(module.offset_to_vaddr(offset)?)
    }

    /// Whether the kernel or any program has source lines.
    ///
    /// # Errors
    /// The kernel's debugging information is damaged; a sentence.
    pub fn has_source_lines(&self) -> Result<bool, String> {
        let of_kernel = self.lines.are_there().map_err(str::to_owned)?;
        let of_program =
            |module: &Arc<UserModule>| self.program_lines.of(module).are_there().unwrap_or(false);
        Ok(of_kernel || self.modules.iter().any(of_program))
    }

    /// The kernel's types, by its debugging information.
    pub fn debug_types(&self) -> Option<DwarfTypes> {
        self.lines.types()
    }

    /// The kernel's source lines.
    pub(crate) fn lines(&self) -> &SourceLines {
        &self.lines
    }

    /// Sets how probes are found.
    #[must_use]
    pub fn with_options(self, options: ProbeOptions) -> Self {
        Self { options, worked_out: OnceLock::new(), ..self }
    }

    /// The user's choices of how probes are found.
    pub fn options(&self) -> &ProbeOptions {
        &self.options
    }

    /// A value that a caller derives from the target. It is stored here, so that `make` runs once. A target stores one
    /// value.
    pub(crate) fn once<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> Arc<T> {
        let kept = self.worked_out.get_or_init(|| Arc::new(make()));
        Arc::clone(kept).downcast().unwrap_or_else(|_| Arc::new(make()))
    }

    /// The kernel.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The kernel's symbols.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The user modules in the order they were given.
    pub fn modules(&self) -> &[Arc<UserModule>] {
        &self.modules
    }

    /// Its programs that can be probed.
    pub(crate) fn programs(&self) -> Programs<'_> {
        Programs { modules: &self.modules, files: &self.files, options: &self.options }
    }

    /// The guest's word.
    pub fn width(&self) -> Width {
        match self.image.plan().width {
            FileWidth::Bits32 => Width::W32,
            FileWidth::Bits64 => Width::W64,
        }
    }

    /// The user module `name`: a path in the guest that leads to it, also through symbolic links, or the last part of
    /// the module's path, if no other file has the same.
    ///
    /// # Errors
    /// See [`NoModule`].
    pub fn module(&self, name: &str) -> Result<&Arc<UserModule>, NoModule> {
        let named = || self.modules.iter().filter(|module| basename(module.name()) == basename(name));
        if name.contains('/') {
            let there = self.module_at_path(name);
            return there.ok_or_else(|| NoModule::at(name, named().map(|module| module.name())));
        }
        sole(name, named().map(|module| (module, module.as_ref())))
    }

    /// The user module that the guest has at just this path.
    fn module_at_path(&self, path: &str) -> Option<&Arc<UserModule>> {
        let found = self.files.resolve(path);
        let path = found.as_deref().unwrap_or(path);
        self.modules.iter().find(|module| module.name() == path)
    }

    /// The path of the guest's file that `path` leads to, through symbolic links; `None` if the file is not known.
    pub fn guest_path(&self, path: &str) -> Option<String> {
        self.files.resolve(path)
    }

    /// The kernel modules in the order of their paths.
    pub fn kernel_modules(&self) -> &[Arc<KernelModule>] {
        &self.kernel_modules
    }

    /// The kernel module `name`: `loop` or `loop.ko`, where `-` and `_` are the same, if no other file has the same name; or its
    /// path in the guest.
    ///
    /// # Errors
    /// See [`NoModule`].
    pub fn kernel_module_named(&self, name: &str) -> Result<&Arc<KernelModule>, NoModule> {
        let wanted = KernelModule::name_of(name);
        let named = || self.kernel_modules.iter().filter(|module| module.name() == wanted);
        if name.contains('/') {
            let found = self.files.resolve(name);
            let path = found.as_deref().unwrap_or(name);
            let there = self.kernel_modules.iter().find(|module| module.file().name() == path);
            return there.ok_or_else(|| NoModule::at(name, named().map(|module| module.file().name())));
        }
        sole(name, named().map(|module| (module, module.file())))
    }

    /// The start of the kernel's text, from which a plain number in `offset =` counts: the symbol `_text`, else the
    /// section `.text`, else the lowest executable segment.
    pub fn text_base(&self) -> Option<u64> {
        let plan = self.image.plan();
        let section = || plan.sections.iter().find(|s| s.executable && s.name == ".text").map(|s| s.vaddr);
        let executable = trapline_emu::load::Perms::EXECUTE;
        let segment = || plan.segments.iter().filter(|s| s.perms.contains(executable)).map(|s| s.vaddr).min();
        self.symbols.sole("_text").map(|symbol| symbol.addr).or_else(section).or_else(segment)
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> &str {
        basename(&self.image.plan().name)
    }

    /// The symbol that contains the byte at `offset` of the guest's file `path`, and the offset in the symbol.
    pub fn file_symbol(&self, path: &str, offset: u64) -> Option<(String, u64)> {
        let at = self.module_at_path(path)?.symbol_at_offset(offset)?;
        Some((at.symbol.name.to_string(), at.offset))
    }

    /// The symbol at an address in a module, for stacks of this kind, and the offset in it; those of loaded kernel modules
    /// are not among the files.
    pub fn symbol_in(&self, kind: Kind, module: &str, address: u64) -> Option<(String, u64)> {
        match kind {
            Kind::UserStack => self.file_symbol(module, address),
            _ if module == self.kernel_name() => {
                self.symbols.at(address).map(|at| (at.symbol.name.to_string(), at.offset))
            }
            _ => None,
        }
    }

    /// The unwinder, with the tables of the kernel and of the known files.
    pub fn unwinder(self: &Arc<Self>) -> Unwinder {
        let kernel = KernelImage::new(self.image.plan(), &self.symbols, self.kernel_name());
        let fixed = self.modules.iter().filter(|module| !module.is_dynamic()).cloned().collect();
        let target = Arc::clone(self);
        Unwinder::new(Some(kernel), Box::new(move |path| target.module_at_path(path).cloned()), fixed)
    }

    /// The name of an address of the kernel: `do_fork+0x3`.
    pub fn kernel_symbol(&self, pointer: CodePointer) -> Option<String> {
        let SymbolAt { symbol, offset } = self.symbols.at(pointer.within())?;
        Some(SymbolAt { symbol, offset: offset.wrapping_add(pointer.back()) }.to_string())
    }

    /// The name of an address by itself: `do_fork+0x3` in the kernel; `appln:main` in a user module that is linked to a
    /// fixed address, if that is the only thing that is known of processes. Under Linux only the mappings of a process say
    /// what its addresses are, so they have no name here.
    pub fn symbol(&self, pointer: CodePointer) -> Option<String> {
        if let Some(name) = self.kernel_symbol(pointer) {
            return Some(name);
        }
        let linked = self.modules.iter().filter(|module| !self.is_linux() && !module.is_dynamic());
        linked.into_iter().find_map(|module| {
            let SymbolAt { symbol, offset } = module.symbols().at(pointer.within())?;
            let at = SymbolAt { symbol, offset: offset.wrapping_add(pointer.back()) };
            Some(format!("{}:{at}", basename(module.name())))
        })
    }

    /// Whether the kernel is a Linux.
    pub fn is_linux(&self) -> bool {
        self.image.plan().linux.is_some()
    }

    /// The symbol of an address by itself as D shows it, with its module: ``vmlinux`do_exit+0x1``.
    #[must_use]
    pub fn d_symbol(&self, address: u64) -> Option<String> {
        let at = CodePointer::At(address);
        match self.kernel_symbol(at) {
            Some(name) => Some(format!("{}`{name}", self.kernel_name())),
            None => self.symbol(at).map(|name| name.replacen(':', "`", 1)),
        }
    }
}
