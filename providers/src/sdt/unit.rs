//! A Linux kernel or a module of it, with the tables that name its probe sites.

use std::sync::Arc;

use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::{KernelModule, SymbolAt};
use trapline_interposer::Place;

use super::kernel_module;
use super::read::{KernelFile, LinuxSites};
use crate::target::Target;

/// The kernel or a module.
#[derive(Debug)]
pub struct Unit {
    /// Its name, as probes have it.
    pub name: Arc<str>,
    /// Its memory by address.
    pub file: KernelFile,
    /// Its tables.
    pub sites: LinuxSites,
    /// The module; `None` for the kernel.
    module: Option<Arc<KernelModule>>,
}

impl Unit {
    /// The kernel, if it is Linux, and its modules.
    pub fn all(target: &Target) -> Vec<Self> {
        if target.symbols().sole("__start___tracepoints_ptrs").is_none() {
            return Vec::new();
        }
        let plan = target.image().plan();
        let kernel =
            ElfView::parse(&plan.image).and_then(|view| KernelFile::image(&view, target.symbols())).ok();
        let kernel = kernel.map(|file| Self::new(kernel_module(target), file, None));
        let modules = super::kernel_modules(target).filter_map(|module| {
            let view = ElfView::parse(module.file().bytes()).ok()?;
            let has_tables = view.sections().iter().any(|section| {
                matches!(section.name.as_str(), "__tracepoints_ptrs" | "__jump_table" | ".static_call_sites")
            });
            let file = has_tables.then(|| KernelFile::module(&view).ok()).flatten()?;
            Some(Self::new(module.name().into(), file, Some(Arc::clone(module))))
        });
        kernel.into_iter().chain(modules).collect()
    }

    fn new(name: Arc<str>, file: KernelFile, module: Option<Arc<KernelModule>>) -> Self {
        Self { name, sites: LinuxSites::read(&file), file, module }
    }

    /// The offset in a module's file of an address of its tables.
    fn offset(&self, module: &KernelModule, address: u64) -> Option<u64> {
        let (section, into) = self.file.section_at(address)?;
        module.section_offset(section, into)
    }

    /// The place of a probe at an address of the tables, and the byte there.
    pub fn place(&self, target: &Target, address: u64) -> Option<(Place, u8)> {
        match &self.module {
            None => {
                let plan = target.image().plan();
                let place = Place::Kernel { linear: address, paddr: plan.vaddr_to_paddr(address)? };
                Some((place, plan.bytes_at(address, 1)?.first().copied()?))
            }
            Some(module) => {
                let offset = self.offset(module, address)?;
                let byte = module.file().bytes_at(offset, 1)?.first().copied()?;
                Some((Place::Module { module: Arc::clone(module), offset }, byte))
            }
        }
    }

    /// The symbol that holds an address of the tables.
    pub fn symbol<'a>(&'a self, target: &'a Target, address: u64) -> Option<SymbolAt<'a>> {
        match &self.module {
            None => target.symbols().at(address),
            Some(module) => module.file().symbol_at_offset(self.offset(module, address)?),
        }
    }

    /// Whether it is a module, whose functions are not in the kernel's types.
    pub fn is_module(&self) -> bool {
        self.module.is_some()
    }

    /// Width of its code.
    pub fn width(&self) -> Width {
        self.file.width()
    }
}
