//! Trapline's own small guests, prebuilt and embedded.
//!
//! A guest is a kernel image with its Multiboot modules. The sources are in `src-guest/`;
//! `make -C guest-images install` rebuilds `prebuilt/`, and a test holds that the recorded toolchain gives the same
//! bytes. What a host may read out of a running guest (tasks, modules) is described in `src-guest/include/trapos.h`.
//!
//! This crate only holds bytes: it neither loads nor runs them.
#![forbid(unsafe_code)]

/// A guest that can be booted without any file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// Its name for users, e.g. `ia32`.
    pub name: &'static str,
    /// The kernel: an ELF file with a Multiboot 1 header and its symbol table.
    pub image: &'static [u8],
    /// The modules to load with it, in order: each one's Multiboot string and its bytes.
    pub modules: &'static [(&'static str, &'static [u8])],
    /// The kernel's command line.
    pub cmdline: &'static str,
}

/// The IA32 guest: kernel `vmlinux` (ELF32, linked at 0xC0100000), ring-3 program `appln`.
pub static IA32: Guest = Guest {
    name: "ia32",
    image: include_bytes!("../prebuilt/vmlinux-ia32"),
    modules: &[("appln", include_bytes!("../prebuilt/appln-ia32"))],
    cmdline: "vmlinux",
};

/// The x86-64 guest: the same sources in long mode, `vmlinux` an ELF64 linked at 0xFFFFFFFF80100000.
pub static X86_64: Guest = Guest {
    name: "x86_64",
    image: include_bytes!("../prebuilt/vmlinux-x86_64"),
    modules: &[("appln", include_bytes!("../prebuilt/appln-x86_64"))],
    cmdline: "vmlinux",
};

/// A kernel that halts forever and serves only its timer, without a program: for D scripts that probe no guest.
pub static IDLE: Guest =
    Guest { name: "idle", image: include_bytes!("../prebuilt/idle-x86_64"), modules: &[], cmdline: "idle" };

/// The x86-64 guest with drivers that trace: its channels are read by `trapline dti`.
pub static DTI: Guest =
    Guest { name: "dti", image: include_bytes!("../prebuilt/vmlinux-dti-x86_64"), ..X86_64 };

/// The IA32 guest with drivers that trace.
pub static DTI_IA32: Guest =
    Guest { name: "dti-ia32", image: include_bytes!("../prebuilt/vmlinux-dti-ia32"), ..IA32 };

/// The x86-64 guest with a mistake in a parser of its network driver (`vortex_control`), which the fuzzer is to find.
pub static PLANTED: Guest =
    Guest { name: "planted", image: include_bytes!("../prebuilt/vmlinux-planted-x86_64"), ..X86_64 };

/// The IA32 guest with that mistake.
pub static PLANTED_IA32: Guest =
    Guest { name: "planted-ia32", image: include_bytes!("../prebuilt/vmlinux-planted-ia32"), ..IA32 };

/// The guests with a program, in the order they are listed to the user.
pub static ALL: &[&Guest] = &[&IA32, &X86_64];

/// The guest with that name.
///
/// ```
/// assert!(trapline_guests::find("ia32").is_some() && trapline_guests::find("dti").is_some());
/// assert!(trapline_guests::find("pdp11").is_none());
/// ```
pub fn find(name: &str) -> Option<&'static Guest> {
    ALL.iter()
        .copied()
        .chain([&IDLE, &DTI, &DTI_IA32, &PLANTED, &PLANTED_IA32])
        .find(|guest| guest.name == name)
}
