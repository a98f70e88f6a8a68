//! The names of flags, which no type information holds: they are macros of the kernel's headers (include/uapi/linux and
//! include/uapi/asm-generic).

/// Name, mask and value of a flag.
type Flag = (&'static str, u64, u64);

/// A flag that is one bit, or several.
const fn one(name: &'static str, bits: u64) -> Flag {
    (name, bits, bits)
}

/// linux/sched.h.
const CLONE: &[Flag] = &[
    one("CLONE_VM", 0x100),
    one("CLONE_FS", 0x200),
    one("CLONE_FILES", 0x400),
    one("CLONE_SIGHAND", 0x800),
    one("CLONE_PIDFD", 0x1000),
    one("CLONE_PTRACE", 0x2000),
    one("CLONE_VFORK", 0x4000),
    one("CLONE_PARENT", 0x8000),
    one("CLONE_THREAD", 0x1_0000),
    one("CLONE_NEWNS", 0x2_0000),
    one("CLONE_SYSVSEM", 0x4_0000),
    one("CLONE_SETTLS", 0x8_0000),
    one("CLONE_PARENT_SETTID", 0x10_0000),
    one("CLONE_CHILD_CLEARTID", 0x20_0000),
    one("CLONE_DETACHED", 0x40_0000),
    one("CLONE_UNTRACED", 0x80_0000),
    one("CLONE_CHILD_SETTID", 0x100_0000),
    one("CLONE_NEWCGROUP", 0x200_0000),
    one("CLONE_NEWUTS", 0x400_0000),
    one("CLONE_NEWIPC", 0x800_0000),
    one("CLONE_NEWUSER", 0x1000_0000),
    one("CLONE_NEWPID", 0x2000_0000),
    one("CLONE_NEWNET", 0x4000_0000),
    one("CLONE_IO", 0x8000_0000),
    ("SIGCHLD", 0xff, 17),
];

/// asm-generic/fcntl.h.
const OPEN: &[Flag] = &[
    ("O_RDONLY", 3, 0),
    ("O_WRONLY", 3, 1),
    ("O_RDWR", 3, 2),
    one("O_CREAT", 0o100),
    one("O_EXCL", 0o200),
    one("O_NOCTTY", 0o400),
    one("O_TRUNC", 0o1000),
    one("O_APPEND", 0o2000),
    one("O_NONBLOCK", 0o4000),
    one("O_DIRECT", 0o40000),
    one("O_LARGEFILE", 0o100_000),
    one("O_DIRECTORY", 0o200_000),
    one("O_NOFOLLOW", 0o400_000),
    one("O_NOATIME", 0o1_000_000),
    one("O_CLOEXEC", 0o2_000_000),
    one("O_PATH", 0o10_000_000),
];

/// asm-generic/mman-common.h.
const PROTECTION: &[Flag] =
    &[("PROT_NONE", 7, 0), one("PROT_READ", 1), one("PROT_WRITE", 2), one("PROT_EXEC", 4)];

/// asm-generic/mman.h and mman-common.h.
const MAP: &[Flag] = &[
    ("MAP_SHARED", 0xf, 1),
    ("MAP_PRIVATE", 0xf, 2),
    one("MAP_FIXED", 0x10),
    one("MAP_ANONYMOUS", 0x20),
    one("MAP_GROWSDOWN", 0x100),
    one("MAP_DENYWRITE", 0x800),
    one("MAP_LOCKED", 0x2000),
    one("MAP_NORESERVE", 0x4000),
    one("MAP_POPULATE", 0x8000),
    one("MAP_STACK", 0x2_0000),
    one("MAP_FIXED_NOREPLACE", 0x10_0000),
];

/// Struct or function, name of the member or argument, flags.
const KNOWN: &[(&str, &str, &[Flag])] = &[
    ("kernel_clone_args", "flags", CLONE),
    ("syscall:clone", "clone_flags", CLONE),
    ("syscall:open", "flags", OPEN),
    ("syscall:openat", "flags", OPEN),
    ("file", "f_flags", OPEN),
    ("open_flags", "open_flag", OPEN),
    ("syscall:mmap", "prot", PROTECTION),
    ("syscall:mmap", "flags", MAP),
    ("syscall:mprotect", "prot", PROTECTION),
];

/// The flags of a member of a struct, or of an argument of a function (`provider:function`).
pub(super) fn flags(place: &str, name: &str) -> Option<&'static [Flag]> {
    KNOWN.iter().find(|(of, own, _)| *of == place && *own == name).map(|(.., flags)| *flags)
}
