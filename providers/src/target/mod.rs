//! What there is to probe: the kernel's image and symbols, and the user modules.

mod options;
mod sites;
mod source;

use std::any::Any;
use std::sync::{Arc, OnceLock};

use trapline_emu::load::{ElfView, Files, Image, Width as FileWidth};
use trapline_emu::symbols::{KernelModule, SourceLine, SymbolError, Symbols, UserModule};
use trapline_os::{KernelImage, Unwinder};
use trapline_rpn::Width;

pub use options::{Abi, AbiError, ProbeOptions, Rules, TargetError, TargetProcess};
pub(crate) use options::{LARGEST, process_number};
pub use sites::{Code, Refusal};
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
    options: ProbeOptions,
    /// See [`Target::once`].
    worked_out: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// The programs and libraries that can be probed, and what the user has chosen.
#[derive(Debug, Clone, Copy)]
pub struct Programs<'a> {
    /// In the order they were given.
    pub modules: &'a [Arc<UserModule>],
    /// The guest's files, through which paths lead.
    pub files: &'a Files,
    /// What the user has chosen.
    pub options: &'a ProbeOptions,
}

/// The last component of a path; modules are matched by it.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Target {
    /// A guest of the kernel `image` with `symbols` and the user modules `modules`.
    pub fn new(image: Image, symbols: Symbols, modules: Vec<Arc<UserModule>>) -> Self {
        let lines = SourceLines::new(vec![Arc::clone(&image.plan().image)]);
        let (options, worked_out) = (ProbeOptions::default(), OnceLock::new());
        let (kernel_modules, files) = (Vec::new(), Files::default());
        Self { image, symbols, modules, kernel_modules, files, lines, options, worked_out }
    }

    /// With the programs, libraries and kernel modules among the files that the guest has, under their paths. `refused`
    /// is told of each ELF file that is none of them, and why.
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

    /// With the debugging information of the ELF file `file`, if it has any, before the image's own.
    #[must_use]
    pub fn with_debug_file(mut self, file: Arc<[u8]>) -> Self {
        self.lines = self.lines.and(file);
        self
    }

    /// The kernel's source line of the instruction at `address`.
    pub fn source_line(&self, address: u64) -> Option<SourceLine> {
        self.lines.line_at(address)
    }

    /// The kernel's source lines.
    pub(crate) fn lines(&self) -> &SourceLines {
        &self.lines
    }

    /// The same with probes found as the user has chosen.
    #[must_use]
    pub fn with_options(self, options: ProbeOptions) -> Self {
        Self { options, worked_out: OnceLock::new(), ..self }
    }

    /// What the user has chosen of how probes are found.
    pub fn options(&self) -> &ProbeOptions {
        &self.options
    }

    /// What a caller works out of the target, kept with it so that `make` runs once. A target keeps one value.
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

    /// What can be probed of its programs.
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

    /// The user module called `name`: a path in the guest that leads to it, through symbolic links, or one whose last
    /// part is the module's.
    pub fn module(&self, name: &str) -> Option<&Arc<UserModule>> {
        let path = self.files.resolve(name);
        let by_path = path.and_then(|path| self.modules.iter().find(|module| module.name() == path));
        by_path.or_else(|| self.modules.iter().find(|module| basename(module.name()) == basename(name)))
    }

    /// The user module that the guest has at just this path.
    fn module_at_path(&self, path: &str) -> Option<&Arc<UserModule>> {
        let found = self.files.resolve(path);
        let path = found.as_deref().unwrap_or(path);
        self.modules.iter().find(|module| module.name() == path)
    }

    /// The path of the guest's file that `path` leads to, through symbolic links; `None` when it leads to no known one.
    pub fn guest_path(&self, path: &str) -> Option<String> {
        self.files.resolve(path)
    }

    /// The kernel modules in the order of their paths.
    pub fn kernel_modules(&self) -> &[Arc<KernelModule>] {
        &self.kernel_modules
    }

    /// The kernel module called `name`: `loop`, `loop.ko`, or a path whose last part is one of them. `-` and `_` are
    /// the same.
    pub fn kernel_module_named(&self, name: &str) -> Option<&Arc<KernelModule>> {
        let wanted = KernelModule::name_of(name);
        self.kernel_modules.iter().find(|module| module.name() == wanted)
    }

    /// Where the kernel's text begins, from which a plain number in `offset =` counts: the symbol `_text`, else the
    /// section `.text`, else the lowest executable segment.
    pub fn text_base(&self) -> Option<u64> {
        let plan = self.image.plan();
        let section = || plan.sections.iter().find(|s| s.executable && s.name == ".text").map(|s| s.vaddr);
        let executable = trapline_emu::load::Perms::EXECUTE;
        let segment = || plan.segments.iter().filter(|s| s.perms.contains(executable)).map(|s| s.vaddr).min();
        self.symbols.lookup("_text").map(|symbol| symbol.addr).or_else(section).or_else(segment)
    }

    /// The symbol that holds an address, and the offset in it; of a user module only when it is linked to a fixed address.
    pub fn symbol_at(&self, address: u64) -> Option<(String, u64)> {
        let fixed = self.modules.iter().filter(|module| !module.is_dynamic()).map(|module| module.symbols());
        let at = std::iter::once(&self.symbols).chain(fixed).find_map(|symbols| symbols.at(address))?;
        Some((at.symbol.name.to_string(), at.offset))
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> &str {
        basename(&self.image.plan().name)
    }

    /// The symbol that holds the byte at `offset` of the file that the guest has at `path`, and how far into it.
    pub fn file_symbol(&self, path: &str, offset: u64) -> Option<(String, u64)> {
        let at = self.module_at_path(path)?.symbol_at_offset(offset)?;
        Some((at.symbol.name.to_string(), at.offset))
    }

    /// What finds stacks by the tables of the kernel and of the files that are known.
    pub fn unwinder(self: &Arc<Self>) -> Unwinder {
        let kernel = KernelImage::new(self.image.plan(), &self.symbols, self.kernel_name());
        let fixed = self.modules.iter().filter(|module| !module.is_dynamic()).cloned().collect();
        let target = Arc::clone(self);
        Unwinder::new(Some(kernel), Box::new(move |path| target.module_at_path(path).cloned()), fixed)
    }

    /// The name of an address: `do_fork+0x3` in the kernel, `appln:main` in a user module that is linked to a fixed
    /// address. Of a module that can be mapped anywhere the address says nothing.
    pub fn symbol(&self, address: u64) -> Option<String> {
        if let Some(at) = self.symbols.at(address) {
            return Some(at.to_string());
        }
        self.modules.iter().filter(|module| !module.is_dynamic()).find_map(|module| {
            let at = module.symbols().at(address)?;
            Some(format!("{}:{at}", basename(module.name())))
        })
    }
}
