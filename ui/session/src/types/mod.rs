//! The types, symbols and probe arguments of a guest, for D programs: from BTF, of the kernel and of its modules, or
//! from the kernel's debugging information (DWARF). They are read when a program first asks.

mod arguments;
mod flags;
mod linux;
mod logged;
mod shapes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use trapline_d::{GuestArguments, GuestMember, GuestSymbol, GuestType, GuestTypeId, Model, TypeTag, Types};
use trapline_emu::load as elf;
use trapline_emu::symbols::{Btf, CName, CType, Dwarf, Symbol, TypeInfo, UserModule};
use trapline_providers::Target;
use trapline_rpn::Width;
use trapline_trace::Pointee;

/// The number of the kernel among the files.
const KERNEL: u32 = 0;

/// How wide the words of a guest are.
pub(crate) fn model_of(target: &Target) -> Model {
    if target.width() == Width::W64 { Model::Lp64 } else { Model::Ilp32 }
}

/// The types, symbols and probe arguments of a guest.
#[derive(Debug)]
pub struct GuestTypes {
    target: Arc<Target>,
    kernel: OnceLock<Option<File>>,
    /// The types of each kernel module, in the order of the target.
    modules: Vec<OnceLock<Option<File>>>,
    /// The types of each program and library, in the order of the target; their numbers follow those of the modules.
    programs: Vec<OnceLock<Option<File>>>,
    /// How pointers to a type are shown, for the types that were asked about.
    pointees: Mutex<BTreeMap<GuestTypeId, Pointee>>,
}

/// The types of one file.
#[derive(Debug)]
struct File {
    info: Arc<dyn TypeInfo>,
    /// The BTF of the kernel, on which the BTF of modules is based.
    btf: Option<Arc<Btf>>,
    /// Functions and variables by name; `None` if one name has several types.
    names: BTreeMap<(CName, String), Option<u32>>,
    enumerators: OnceLock<BTreeMap<String, (i64, u32)>>,
}

impl File {
    fn new(info: Arc<dyn TypeInfo>, btf: Option<Arc<Btf>>) -> Self {
        let mut names: BTreeMap<(CName, String), Option<u32>> = BTreeMap::new();
        for (kind, name, id) in info.names() {
            let known = names.entry((kind, name)).or_insert(Some(id));
            let one = !matches!(kind, CName::Function | CName::Variable);
            // If several types have one name, the first is used, as in the kernel's own tools.
            if !one && *known != Some(id) {
                *known = None;
            }
        }
        Self { info, btf, names, enumerators: OnceLock::new() }
    }

    fn named(&self, kind: CName, name: &str) -> Option<u32> {
        *self.names.get(&(kind, name.to_owned()))?
    }

    fn enumerator(&self, name: &str) -> Option<(i64, u32)> {
        let read = || {
            let mut found = BTreeMap::new();
            for id in self.info.enumerations() {
                let CType::Enum { items, .. } = self.info.describe(id) else { continue };
                for (name, value) in items {
                    found.entry(name).or_insert((value, id));
                }
            }
            found
        };
        self.enumerators.get_or_init(read).get(name).copied()
    }
}

impl GuestTypes {
    /// The types of the guest of `target`.
    #[must_use]
    pub fn new(target: Arc<Target>) -> Self {
        let modules = target.kernel_modules().iter().map(|_| OnceLock::new()).collect();
        let programs = target.modules().iter().map(|_| OnceLock::new()).collect();
        Self { target, kernel: OnceLock::new(), modules, programs, pointees: Mutex::default() }
    }

    fn kernel(&self) -> Option<&File> {
        let read = || match Btf::from_vmlinux(&self.target.image().plan().image) {
            Ok(Some(btf)) => {
                let btf = Arc::new(btf);
                Some(File::new(Arc::clone(&btf) as Arc<dyn TypeInfo>, Some(btf)))
            }
            _ => self.target.debug_types().map(|types| File::new(Arc::new(types), None)),
        };
        self.kernel.get_or_init(read).as_ref()
    }

    /// A file by its number.
    fn file(&self, number: u32) -> Option<&File> {
        if let Some(program) = (number as usize).checked_sub(1 + self.modules.len()) {
            return self.program(program);
        }
        let kernel = self.kernel()?;
        let Some(index) = number.checked_sub(1) else { return Some(kernel) };
        let read = || {
            let module = self.target.kernel_modules().get(index as usize)?;
            let base = Arc::clone(kernel.btf.as_ref()?);
            let btf = Btf::from_module(module.file().bytes(), base).ok()??;
            Some(File::new(Arc::new(btf), None))
        };
        self.modules.get(index as usize)?.get_or_init(read).as_ref()
    }

    /// A program or library by its index.
    fn program(&self, index: usize) -> Option<&File> {
        let read = || {
            let dwarf = Dwarf::from_elf(self.target.modules().get(index)?.bytes()).ok()??;
            Some(File::new(Arc::new(dwarf.types()), None))
        };
        self.programs.get(index)?.get_or_init(read).as_ref()
    }

    /// The signature of a function of a program with debugging information, whose words are as wide as the kernel's.
    fn program_function(&self, program: &Arc<UserModule>, name: &str) -> Option<GuestTypeId> {
        if (program.width() == elf::Width::Bits64) != (self.target.width() == Width::W64) {
            return None;
        }
        let index = self.target.modules().iter().position(|known| Arc::ptr_eq(known, program))?;
        let id = self.program(index)?.named(CName::Function, name)?;
        Some(self.typed(u32::try_from(1 + self.modules.len() + index).ok()?, id))
    }

    /// The numbers of the files that a module's name selects.
    fn meant(&self, module: Option<&str>) -> Vec<u32> {
        let modules = self.target.kernel_modules().iter();
        match module {
            None => vec![KERNEL],
            Some(name) if self.is_kernel(name) => vec![KERNEL],
            Some(name) => {
                let named = (1..).zip(modules).filter(|(_, module)| module.name() == name);
                named.map(|(number, _)| number).collect()
            }
        }
    }

    fn is_kernel(&self, module: &str) -> bool {
        matches!(module, "vmlinux" | "kernel") || module == self.target.kernel_name()
    }

    fn find(&self, kind: CName, module: Option<&str>, name: &str) -> Option<GuestTypeId> {
        let within = |number: u32| {
            let file = self.file(number)?;
            Some(self.typed(number, file.named(kind, name)?))
        };
        let found = self.meant(module).into_iter().find_map(within);
        // Typedefs are looked up for every word of a program, so modules are not searched for them.
        let anywhere = module.is_none() && kind != CName::Typedef;
        found.or_else(|| (1..=self.modules.len() as u32).filter(|_| anywhere).find_map(within))
    }

    /// A type of a file; a type that a module has from the kernel belongs to the kernel.
    fn typed(&self, file: u32, id: u32) -> GuestTypeId {
        let first = self.file(file).map_or(1, |file| file.info.first());
        if id < first { GuestTypeId { file: KERNEL, id } } else { GuestTypeId { file, id } }
    }

    fn converted(&self, file: u32, ty: CType) -> GuestType {
        let typed = |id: u32| self.typed(file, id);
        let small = |size: u32| u8::try_from(size).unwrap_or(u8::MAX);
        match ty {
            CType::Void => GuestType::Void,
            CType::Int { name, size, signed } => GuestType::Int { name, size: small(size), signed },
            CType::Float { size } => GuestType::Float { size: small(size) },
            CType::Pointer(to) => GuestType::Pointer(typed(to)),
            CType::Array { of, length } => GuestType::Array { of: typed(of), length: length.into() },
            CType::Composite { union, name, size, members } => {
                let member = |member: trapline_emu::symbols::CMember| GuestMember {
                    name: member.name,
                    ty: typed(member.ty),
                    bit_offset: member.bit_offset,
                    bits: member.bits,
                };
                let members = members.map(|list| list.into_iter().map(member).collect());
                GuestType::Composite { union, name, size: size.into(), members }
            }
            CType::Enum { name, size, signed, items } => {
                GuestType::Enum { name, size: small(size), signed, items }
            }
            CType::Typedef { name, to } => GuestType::Typedef { name, to: typed(to) },
            CType::Qualified { word, to } => GuestType::Qualified { word, to: typed(to) },
            CType::Function { returns, parameters, variadic } => GuestType::Function {
                returns: typed(returns),
                parameters: parameters.into_iter().map(typed).collect(),
                variadic,
            },
        }
    }

    /// A symbol of the kernel with its type.
    fn described(&self, name: &str, symbol: &Symbol) -> GuestSymbol {
        let is_linux = self.target.is_linux();
        if symbol.is_function() {
            let ty = self.find(CName::Function, Some("kernel"), name).or(Some(linux::FUNCTION));
            return GuestSymbol { address: symbol.addr, ty, base: None };
        }
        let known = self.find(CName::Variable, Some("kernel"), name);
        // The variables in Linux's own BTF are per-CPU variables.
        let own = known.filter(|_| is_linux && self.kernel().is_some_and(|kernel| kernel.btf.is_some()));
        let base = own.and_then(|_| Some(self.target.symbols().sole("__per_cpu_offset")?.addr));
        let ty = known.or_else(|| self.global(name).filter(|_| is_linux));
        GuestSymbol { address: symbol.addr, ty, base }
    }
}

impl Types for GuestTypes {
    fn type_named(&self, tag: TypeTag, module: Option<&str>, name: &str) -> Option<GuestTypeId> {
        let kind = match tag {
            TypeTag::Struct => CName::Struct,
            TypeTag::Union => CName::Union,
            TypeTag::Enum => CName::Enum,
            TypeTag::Typedef => CName::Typedef,
        };
        self.find(kind, module, name)
    }

    fn describe(&self, id: GuestTypeId) -> GuestType {
        if id.file == linux::FILE {
            return linux::describe(id.id, self.target.width());
        }
        let described = self.file(id.file).map(|file| file.info.describe(id.id));
        self.converted(id.file, described.unwrap_or(CType::Void))
    }

    fn symbol(&self, module: Option<&str>, name: &str) -> Result<Option<GuestSymbol>, String> {
        if module.is_some_and(|module| !self.is_kernel(module)) {
            return Ok(None);
        }
        let named = self.target.symbols().named(name).one();
        Ok(named.map_err(|ambiguous| ambiguous.to_string())?.map(|symbol| self.described(name, symbol)))
    }

    fn enumerator(&self, name: &str) -> Option<(i64, GuestTypeId)> {
        let (value, id) = self.kernel()?.enumerator(name)?;
        Some((value, self.typed(KERNEL, id)))
    }

    fn arguments(&self, description: &str) -> GuestArguments {
        self.probe_arguments(description)
    }
}
