//! What gdb reads of the guest: the kernel's or the program's file, and the lists of modules and libraries.
//!
//! The files are those that the guest consists of, by their paths in it; nothing of the host can be read. A kernel without
//! symbols in its file, and each of its modules, has a file made of the symbols that are known ([`elf`](crate::elf)).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use trapline_emu::load::{ElfView, Width};
use trapline_emu::symbols::{Symbols, UserModule};
use trapline_os::{LoadedModule, Module, ModuleKind};
use trapline_providers::Target;
use trapline_session::{Session, file_name};

use crate::elf::{Section, with_symbols};
use crate::stacks;
use crate::user::User;

/// Where the files of kernel modules are.
const MODULES: &str = "/lib/modules/";
/// Their ending.
const ENDING: &str = ".ko";
/// Most open files.
const MOST_OPEN: usize = 64;
/// p_type of a part that is loaded.
const LOADED: u32 = 1;
/// The bit of p_flags of a part that can be written.
const WRITABLE: u32 = 2;
/// p_type of the dynamic section.
const DYNAMIC: u32 = 2;

/// The files that gdb may open.
#[derive(Default)]
pub struct Files {
    kernel: Option<Arc<[u8]>>,
    open: BTreeMap<u32, Arc<[u8]>>,
}

/// The path of the kernel's file.
fn kernel_path(target: &Target) -> String {
    format!("/{}", file_name(&target.image().plan().name))
}

impl Files {
    /// Opens a file, and returns its descriptor; `None` if the guest has none of this path.
    pub fn open(&mut self, session: &Session, path: &str) -> Option<u32> {
        let bytes = self.find(session, path)?;
        let free = (1..).find(|number| !self.open.contains_key(number))?;
        if self.open.len() >= MOST_OPEN {
            return None;
        }
        self.open.insert(free, bytes);
        Some(free)
    }

    /// Closes a file; false if it is not open.
    pub fn close(&mut self, number: u32) -> bool {
        self.open.remove(&number).is_some()
    }

    /// The content of an open file.
    pub fn content(&self, number: u32) -> Option<&[u8]> {
        self.open.get(&number).map(AsRef::as_ref)
    }

    fn find(&mut self, session: &Session, path: &str) -> Option<Arc<[u8]>> {
        let target = session.target();
        if path == kernel_path(target) {
            return Some(Arc::clone(self.kernel.get_or_insert_with(|| kernel(target))));
        }
        if path == stacks::FILE {
            return Some(stacks::file(session).into());
        }
        let module = path.starts_with(MODULES).then_some(path);
        if let Some(file) = module.and_then(|path| module_file(session, path)) {
            return Some(file.into());
        }
        program(target, path).map(|module| module.shared_bytes())
    }
}

/// The file of a program or library at just this path; modules of a boot loader have names without a folder.
fn program<'a>(target: &'a Target, path: &str) -> Option<&'a Arc<UserModule>> {
    let found = target.guest_path(path);
    let path = found.as_deref().unwrap_or(path);
    let bare = path.strip_prefix('/').filter(|name| !name.contains('/'));
    target.modules().iter().find(|module| module.name() == path || Some(module.name()) == bare)
}

/// The kernel's file, if it has symbols; otherwise one with those that are known.
fn kernel(target: &Target) -> Arc<[u8]> {
    let plan = target.image().plan();
    let own = || Symbols::from_elf(&plan.image, "").is_ok_and(|symbols| !symbols.is_empty());
    if target.image().is_elf() && own() {
        return Arc::clone(&plan.image);
    }
    let mut sections: Vec<Section> = plan
        .sections
        .iter()
        .map(|section| Section {
            name: section.name.clone(),
            address: section.vaddr,
            size: section.size,
            code: section.executable,
        })
        .collect();
    if sections.is_empty() {
        sections.extend(plan.segments.iter().zip(0..).map(|(segment, n)| Section {
            name: format!(".segment{n}"),
            address: segment.vaddr,
            size: segment.mem_size,
            code: plan.is_executable(segment.vaddr) == Some(true),
        }));
    }
    with_symbols(plan.width == Width::Bits64, 0, &sections, target.symbols()).into()
}

/// A file with the symbols of a loaded kernel module. Its addresses count from the module's, which gdb adds to them.
fn module_file(session: &Session, path: &str) -> Option<Vec<u8>> {
    let (profile, core) = (session.profile()?, session.core());
    let module = kernel_modules(session).into_iter().find(|module| module_path(module) == path)?;
    let symbols = profile.module_symbols(core, &module.name);
    let section = |(n, range): (usize, &std::ops::Range<u64>)| Section {
        name: format!(".part{n}"),
        address: range.start,
        size: range.end - range.start,
        code: true,
    };
    let sections: Vec<Section> = module.ranges.iter().enumerate().map(section).collect();
    let wide = session.target().image().plan().width == Width::Bits64;
    Some(with_symbols(wide, module.base, &sections, &symbols))
}

/// The path of a module's file for gdb, which takes a library of the same path for the same one, wherever it lies: a folder is named
/// after the addresses of its parts. When the module has started, that of its start is gone.
fn module_path(module: &LoadedModule) -> String {
    let mut path = format!("{MODULES}{:x}", module.base);
    for range in module.ranges.iter().skip(1) {
        let _ = write!(path, "+{:x}", range.start.wrapping_sub(module.base));
    }
    format!("{path}/{}{ENDING}", module.name)
}

/// The kernel's modules now, with all parts of their memory that are known.
pub fn kernel_modules(session: &Session) -> Vec<LoadedModule> {
    let Some(profile) = session.profile() else { return Vec::new() };
    let all = profile.modules(session.core()).into_iter();
    // A name that is part of a path or of XML otherwise would be another one.
    let plain = |module: &Module| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !module.name.is_empty() && module.name.chars().all(plain)
    };
    // The kernel itself may be in its list.
    let segments = &session.target().image().plan().segments;
    let in_kernel =
        |at: u64| segments.iter().any(|segment| at.wrapping_sub(segment.vaddr) < segment.mem_size);
    let wanted =
        |module: &Module| module.kind == ModuleKind::Kernel && module.size > 0 && !in_kernel(module.base);
    let whole = |module: Module| {
        let found = profile.module_at(session.core(), module.base);
        found.filter(|found| found.name == module.name).unwrap_or_else(|| module.into())
    };
    all.filter(wanted).filter(plain).map(whole).collect()
}

/// Copies the part of `text` that is asked for.
pub fn part(text: &[u8], offset: u64, length: usize, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..)).unwrap_or_default();
    let count = rest.len().min(length).min(to.len());
    to.iter_mut().zip(rest.iter().take(count)).for_each(|(to, from)| *to = *from);
    count
}

/// The list of the kernel's modules, and of the file by which gdb finds stacks.
pub fn libraries(session: &Session) -> String {
    let mut text =
        format!("<library-list><library name=\"{}\"><section address=\"0x0\"/></library>", stacks::FILE);
    for module in kernel_modules(session) {
        let _ = write!(text, "<library name=\"{}\">", module_path(&module));
        // gdb wants an address for each section, and adds it to the section's own.
        for _ in &module.ranges {
            let _ = write!(text, "<section address=\"{:#x}\"/>", module.base);
        }
        text.push_str("</library>");
    }
    text.push_str("</library-list>");
    text
}

/// The path of the file that is debugged: the kernel's, or the program's.
pub fn executable(session: &Session, user: Option<&User>) -> Option<String> {
    if user.is_none() {
        return Some(kernel_path(session.target()));
    }
    let (profile, core) = (session.profile()?, session.core());
    let task = profile.current_task(core);
    profile.executable(core, task).or_else(|| {
        // A system that does not tell: the program among the files that are mapped.
        let files = user_files(session).into_iter().map(|module| module.name);
        files.into_iter().find(|name| program(session.target(), name).is_some_and(|file| file.is_program()))
    })
}

/// The files that the process has mapped; of a system that does not tell, all programs that it has loaded.
fn user_files(session: &Session) -> Vec<Module> {
    let (Some(profile), core) = (session.profile(), session.core()) else { return Vec::new() };
    let mapped = profile.user_modules(core, profile.current_task(core));
    if !mapped.is_empty() {
        return mapped;
    }
    let user = profile.modules(core).into_iter().filter(|module| module.kind == ModuleKind::User);
    // gdb opens files by absolute paths only.
    user.map(|module| Module { name: format!("/{}", module.name.trim_start_matches('/')), ..module })
        .collect()
}

/// The files that the process has mapped, with their files, if these are known, and their displacement.
fn mapped(session: &Session) -> Vec<(Module, Arc<UserModule>, u64)> {
    let with_file = |module: Module| {
        let file = Arc::clone(program(session.target(), &module.name)?);
        let first = file.segments().first()?;
        let linked = first.vaddr.wrapping_sub(first.offset) & !0xfff;
        let displacement = module.base.wrapping_sub(linked);
        Some((module, file, displacement))
    };
    user_files(session).into_iter().filter_map(with_file).collect()
}

/// The linked address of a file's dynamic section.
fn dynamic(file: &UserModule) -> Option<u64> {
    let view = ElfView::parse(file.bytes()).ok()?;
    view.programs().iter().find(|program| program.p_type == DYNAMIC).map(|program| program.p_vaddr)
}

/// Text in an attribute of XML.
fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '"' => "&quot;".to_owned(),
            c if c.is_control() => "?".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

/// The libraries of the process.
pub fn libraries_svr4(session: &Session, user: Option<&User>) -> String {
    let program = executable(session, user);
    let mut text = "<library-list-svr4 version=\"1.0\">".to_owned();
    for (module, file, displacement) in mapped(session) {
        if let Some(dynamic) = dynamic(&file).filter(|_| Some(&module.name) != program.as_ref()) {
            let _ = write!(
                text,
                "<library name=\"{}\" lmid=\"0x0\" lm=\"{:#x}\" l_addr=\"{displacement:#x}\" l_ld=\"{:#x}\"/>",
                escaped(&module.name),
                module.base,
                displacement.wrapping_add(dynamic)
            );
        }
    }
    text.push_str("</library-list-svr4>");
    text
}

/// Reads code and constants of the process that are not in memory yet, from the files that it has mapped; the number of
/// bytes. Nothing of a part that the process may write: that may have been written and moved out of memory.
pub fn read_mapped(session: &Session, address: u64, to: &mut [u8]) -> usize {
    for (_, file, displacement) in mapped(session) {
        let Ok(view) = ElfView::parse(file.bytes()) else { continue };
        for part in
            view.programs().iter().filter(|part| part.p_type == LOADED && part.p_flags & WRITABLE == 0)
        {
            let at = address.wrapping_sub(part.p_vaddr.wrapping_add(displacement));
            let left = part.p_filesz.saturating_sub(at);
            let start = part.p_offset.checked_add(at).and_then(|start| usize::try_from(start).ok());
            let bytes = start.filter(|_| left > 0).and_then(|start| file.bytes().get(start..));
            if let Some(bytes) = bytes {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()).min(to.len());
                to.iter_mut().zip(bytes.iter().take(count)).for_each(|(to, from)| *to = *from);
                return count;
            }
        }
    }
    0
}

/// The part of the auxiliary vector that follows from the mappings and the files (`AT_PHDR`, `AT_PHENT`, `AT_PHNUM`,
/// `AT_PAGESZ`, `AT_BASE`, `AT_ENTRY`).
pub fn auxv(session: &Session, user: Option<&User>) -> Vec<u8> {
    let program = executable(session, user);
    let all = mapped(session);
    let Some((_, file, displacement)) =
        all.iter().find(|(module, ..)| Some(&module.name) == program.as_ref())
    else {
        return Vec::new();
    };
    let wide = file.width() == Width::Bits64;
    let word = |at: usize, length: usize| {
        let bytes = file.bytes().get(at..at + length).unwrap_or_default();
        bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    // e_phoff, e_phentsize, e_phnum.
    let (table, entry, count) =
        if wide { (word(32, 8), word(54, 2), word(56, 2)) } else { (word(28, 4), word(42, 2), word(44, 2)) };
    let first = file.segments().first().map_or(0, |first| first.vaddr.wrapping_sub(first.offset));
    let linker = all.iter().find(|(module, ..)| {
        let name = file_name(&module.name);
        name.starts_with("ld-") || name.starts_with("ld.")
    });
    let mut entries = vec![
        (3, displacement.wrapping_add(first).wrapping_add(table)),
        (4, entry),
        (5, count),
        (6, 4096),
        (9, displacement.wrapping_add(file.entry())),
    ];
    entries.extend(linker.map(|(module, ..)| (7, module.base)));
    entries.push((0, 0));
    let bytes = |value: u64| value.to_le_bytes().into_iter().take(if wide { 8 } else { 4 });
    entries.into_iter().flat_map(|(kind, value)| bytes(kind).chain(bytes(value))).collect()
}
