//! The types of Linux's variables, which are not in its BTF: that of Linux 6.1 has only the types of per-CPU variables.

use trapline_d::{GuestType, GuestTypeId, TypeTag, Types};
use trapline_rpn::Width;

use super::GuestTypes;

/// The number that stands for the types of this table.
pub(super) const FILE: u32 = u32::MAX;

const fn own(id: u32) -> GuestTypeId {
    GuestTypeId { file: FILE, id }
}

const UNSIGNED_LONG: GuestTypeId = own(1);
pub(super) const INT: GuestTypeId = own(2);
const UNSIGNED_INT: GuestTypeId = own(3);
const CHAR: GuestTypeId = own(4);
const TEXT: GuestTypeId = own(5);
const TEXT_POINTER: GuestTypeId = own(6);
/// A function with an unknown prototype.
pub(super) const FUNCTION: GuestTypeId = own(7);
const BOOL: GuestTypeId = own(8);

/// The type of a variable.
enum Global {
    One(GuestTypeId),
    Named(TypeTag, &'static str),
}

use Global::{Named, One};

/// Variables of Linux 6.1 by name (include/linux and arch/x86/include).
const GLOBALS: &[(&str, Global)] = &[
    ("boot_cpu_data", Named(TypeTag::Struct, "cpuinfo_x86")),
    ("boot_params", Named(TypeTag::Struct, "boot_params")),
    ("cgrp_dfl_root", Named(TypeTag::Struct, "cgroup_root")),
    ("contig_page_data", Named(TypeTag::Struct, "pglist_data")),
    ("crashing_cpu", One(INT)),
    ("init_cred", Named(TypeTag::Struct, "cred")),
    ("init_files", Named(TypeTag::Struct, "files_struct")),
    ("init_fs", Named(TypeTag::Struct, "fs_struct")),
    ("init_mm", Named(TypeTag::Struct, "mm_struct")),
    ("init_net", Named(TypeTag::Struct, "net")),
    ("init_pid_ns", Named(TypeTag::Struct, "pid_namespace")),
    ("init_signals", Named(TypeTag::Struct, "signal_struct")),
    ("init_task", Named(TypeTag::Struct, "task_struct")),
    ("init_user_ns", Named(TypeTag::Struct, "user_namespace")),
    ("init_uts_ns", Named(TypeTag::Struct, "uts_namespace")),
    ("iomem_resource", Named(TypeTag::Struct, "resource")),
    ("ioport_resource", Named(TypeTag::Struct, "resource")),
    ("jiffies", One(UNSIGNED_LONG)),
    ("jiffies_64", Named(TypeTag::Typedef, "u64")),
    ("linux_banner", One(TEXT)),
    ("linux_proc_banner", One(TEXT)),
    ("loops_per_jiffy", One(UNSIGNED_LONG)),
    ("max_low_pfn", One(UNSIGNED_LONG)),
    ("max_pfn", One(UNSIGNED_LONG)),
    ("min_low_pfn", One(UNSIGNED_LONG)),
    ("modules", Named(TypeTag::Struct, "list_head")),
    ("nr_cpu_ids", One(UNSIGNED_INT)),
    ("nr_threads", One(INT)),
    ("oops_in_progress", One(INT)),
    ("panic_timeout", One(INT)),
    ("preset_lpj", One(UNSIGNED_LONG)),
    ("root_mountflags", One(INT)),
    ("root_task_group", Named(TypeTag::Struct, "task_group")),
    ("saved_command_line", One(TEXT_POINTER)),
    ("system_state", Named(TypeTag::Enum, "system_states")),
    ("total_forks", One(UNSIGNED_LONG)),
    ("tsc_khz", One(UNSIGNED_INT)),
    ("cpu_khz", One(UNSIGNED_INT)),
    ("vm_swappiness", One(INT)),
    ("sysctl_overcommit_memory", One(INT)),
    ("kptr_restrict", One(INT)),
    ("phys_base", One(UNSIGNED_LONG)),
    ("page_offset_base", One(UNSIGNED_LONG)),
    ("vmemmap_base", One(UNSIGNED_LONG)),
    ("vmalloc_base", One(UNSIGNED_LONG)),
    ("timekeeping_suspended", One(INT)),
    ("initcall_debug", One(BOOL)),
];

/// A type of this table.
pub(super) fn describe(id: u32, width: Width) -> GuestType {
    let word = width.bits() / 8;
    let int = |name: &str, size, signed| GuestType::Int { name: name.to_owned(), size, signed };
    match own(id) {
        UNSIGNED_LONG => int("long unsigned int", word, false),
        INT => int("int", 4, true),
        UNSIGNED_INT => int("unsigned int", 4, false),
        CHAR => int("char", 1, true),
        BOOL => int("_Bool", 1, false),
        TEXT => GuestType::Array { of: CHAR, length: 0 },
        TEXT_POINTER => GuestType::Pointer(CHAR),
        FUNCTION => GuestType::Function { returns: INT, parameters: Vec::new(), variadic: true },
        _ => GuestType::Void,
    }
}

impl GuestTypes {
    /// The type of a variable of Linux.
    pub(super) fn global(&self, name: &str) -> Option<GuestTypeId> {
        let (_, global) = GLOBALS.iter().find(|(known, _)| *known == name)?;
        match global {
            One(ty) => Some(*ty),
            Named(tag, name) => self.type_named(*tag, None, name),
        }
    }
}
