//! The offsets of the members that the profile reads.
//!
//! They depend on the kernel's version and configuration, so they come from BTF, or without BTF from the kernel's initial
//! data (`infer.rs`). That data does not show the small structures; their members come in the order that Linux 5.10 to 6.5
//! have (include/linux/{mm_types,fs,dcache,mount,path}.h, fs/mount.h), if the initial data shows one of those.

use trapline_emu::symbols::Btf;

use super::LinuxError;

/// How the threads of a process are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// In each other, by the list `thread_group` of `task_struct` (until 6.6).
    Group(u64),
    /// By the list `thread_head` of their `signal_struct`, through their `thread_node`.
    Signal {
        /// Offset of `signal` in `task_struct`.
        signal: u64,
        /// Offset of `thread_head` in `signal_struct`.
        head: u64,
        /// Offset of `thread_node` in `task_struct`.
        node: u64,
    },
}

/// `task_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskLayout {
    pub flags: u64,
    pub tasks: u64,
    pub group_leader: u64,
    pub threads: Threads,
    pub mm: u64,
    pub pid: u64,
    pub tgid: u64,
    pub comm: u64,
    pub cred: u64,
    /// Optional: only stacks need it.
    pub stack: Option<u64>,
}

/// How the mappings of a process are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mappings {
    /// In a maple tree (from 6.1): the offset of its root in `mm_struct`.
    Tree(u64),
    /// In a list by address: the offsets of its first in `mm_struct`, and of the next in `vm_area_struct`.
    List {
        /// `mmap`.
        first: u64,
        /// `vm_next`.
        next: u64,
    },
}

/// `vm_area_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VmaLayout {
    pub start: u64,
    pub end: u64,
    pub mm: u64,
    pub flags: u64,
    pub pgoff: u64,
    pub file: u64,
}

/// `file`, `dentry`, `mount` and `vfsmount`: the parts of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathLayout {
    pub file_mnt: u64,
    pub file_dentry: u64,
    pub parent: u64,
    pub name_len: u64,
    pub name: u64,
    /// Offset of the `vfsmount` in its `mount`.
    pub vfsmount: u64,
    pub mnt_parent: u64,
    pub mountpoint: u64,
    pub mnt_root: u64,
}

/// What a process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileLayout {
    pub mappings: Mappings,
    pub exe_file: u64,
    pub vma: VmaLayout,
    pub path: PathLayout,
}

/// All of them, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub task: TaskLayout,
    pub cred_uid: u64,
    pub pgd: u64,
    /// `None` if they are unknown: a process has neither mappings nor a program then.
    pub files: Option<FileLayout>,
}

/// The offset of a member by BTF.
fn member(btf: &Btf, name: &'static str, path: &'static str) -> Result<u64, LinuxError> {
    let member = btf.member(name, path).filter(|member| member.bit_offset % 8 == 0);
    member.map(|member| member.offset()).ok_or(LinuxError::NoMember { name, path })
}

impl TaskLayout {
    fn from_btf(btf: &Btf) -> Result<Self, LinuxError> {
        let at = |path: &'static str| member(btf, "task_struct", path);
        let by_signal = || {
            let (signal, node) = (at("signal")?, at("thread_node")?);
            Ok(Threads::Signal { signal, head: member(btf, "signal_struct", "thread_head")?, node })
        };
        Ok(Self {
            flags: at("flags")?,
            tasks: at("tasks")?,
            group_leader: at("group_leader")?,
            threads: at("thread_group").map(Threads::Group).or_else(|_| by_signal())?,
            mm: at("mm")?,
            pid: at("pid")?,
            tgid: at("tgid")?,
            comm: at("comm")?,
            cred: at("cred")?,
            stack: at("stack").ok(),
        })
    }
}

impl Mappings {
    fn from_btf(btf: &Btf) -> Result<Self, LinuxError> {
        let root = member(btf, "mm_struct", "mm_mt.ma_root");
        root.map(Self::Tree).or_else(|error| match member(btf, "mm_struct", "mmap") {
            Ok(first) => Ok(Self::List { first, next: member(btf, "vm_area_struct", "vm_next")? }),
            // The newer of the two forms.
            Err(_) => Err(error),
        })
    }
}

impl FileLayout {
    fn from_btf(btf: &Btf) -> Result<Self, LinuxError> {
        let at = |name, path| member(btf, name, path);
        Ok(Self {
            mappings: Mappings::from_btf(btf)?,
            exe_file: at("mm_struct", "exe_file")?,
            vma: VmaLayout {
                start: at("vm_area_struct", "vm_start")?,
                end: at("vm_area_struct", "vm_end")?,
                mm: at("vm_area_struct", "vm_mm")?,
                flags: at("vm_area_struct", "vm_flags")?,
                pgoff: at("vm_area_struct", "vm_pgoff")?,
                file: at("vm_area_struct", "vm_file")?,
            },
            path: PathLayout {
                file_mnt: at("file", "f_path.mnt")?,
                file_dentry: at("file", "f_path.dentry")?,
                parent: at("dentry", "d_parent")?,
                name_len: at("dentry", "d_name.len")?,
                name: at("dentry", "d_name.name")?,
                vfsmount: at("mount", "mnt")?,
                mnt_parent: at("mount", "mnt_parent")?,
                mountpoint: at("mount", "mnt_mountpoint")?,
                mnt_root: at("vfsmount", "mnt_root")?,
            },
        })
    }

    /// The layout with the small structures as Linux 5.10 to 6.5 order them, in words of `w` bytes.
    pub(super) fn ordered(w: u64, mappings: Mappings, exe_file: u64) -> Self {
        let vma = match mappings {
            // Start, end, mm, protection, flags; an rb_node and its subtree's end; a list; anon_vma, vm_ops.
            Mappings::Tree(_) => {
                VmaLayout { start: 0, end: w, mm: 2 * w, flags: 4 * w, pgoff: 13 * w, file: 14 * w }
            }
            // After start and end, the list, an rb_node and its subtree's gap.
            Mappings::List { .. } => {
                VmaLayout { start: 0, end: w, mm: 8 * w, flags: 10 * w, pgoff: 19 * w, file: 20 * w }
            }
        };
        let path = PathLayout {
            // After an rcu_head of two words.
            file_mnt: 2 * w,
            file_dentry: 3 * w,
            // Flags, sequence count and a hash list's two words before it; the name's hash and length after it.
            parent: 8 + 2 * w,
            name_len: 12 + 3 * w,
            name: 16 + 3 * w,
            vfsmount: 4 * w,
            mnt_parent: 2 * w,
            mountpoint: 3 * w,
            mnt_root: 0,
        };
        Self { mappings, exe_file, vma, path }
    }
}

impl Layout {
    /// The layout from BTF, and why it lacks that of files, if it does.
    pub(super) fn from_btf(btf: &Btf) -> Result<(Self, Option<LinuxError>), LinuxError> {
        let (files, lacks) = match FileLayout::from_btf(btf) {
            Ok(files) => (Some(files), None),
            Err(error) => (None, Some(error)),
        };
        let layout = Self {
            task: TaskLayout::from_btf(btf)?,
            cred_uid: member(btf, "cred", "uid")?,
            pgd: member(btf, "mm_struct", "pgd")?,
            files,
        };
        Ok((layout, lacks))
    }
}
