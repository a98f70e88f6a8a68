//! The offsets of the members that the profile reads.
//!
//! For `task_struct`, `mm_struct` and `module` they depend on the kernel's configuration: they come from BTF, or
//! without BTF from the kernel's initial data (`infer.rs`). The members of the small structures come in the order of
//! Linux 6.1 (include/linux/{mm_types,fs,dcache,mount,path}.h, fs/mount.h, kernel/module/sysfs.c); BTF replaces that
//! order where there is one.

use trapline_emu::symbols::Btf;

use super::LinuxError;

/// `task_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskLayout {
    pub flags: u64,
    pub tasks: u64,
    pub group_leader: u64,
    pub thread_group: u64,
    pub mm: u64,
    pub pid: u64,
    pub tgid: u64,
    pub comm: u64,
    pub cred: u64,
    /// Optional: only stacks need it.
    pub stack: Option<u64>,
}

/// `mm_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MmLayout {
    pub root: u64,
    pub pgd: u64,
    pub exe_file: u64,
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

/// All of them, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub task: TaskLayout,
    pub cred_uid: u64,
    pub mm: MmLayout,
    pub vma: VmaLayout,
    pub path: PathLayout,
}

impl Layout {
    /// The layout from BTF.
    pub(super) fn from_btf(btf: &Btf) -> Result<Self, LinuxError> {
        let at = |name: &'static str, path: &'static str| {
            let member = btf.member(name, path).filter(|member| member.bit_offset % 8 == 0);
            member.map(|member| member.offset()).ok_or(LinuxError::NoMember { name, path })
        };
        Ok(Self {
            task: TaskLayout {
                flags: at("task_struct", "flags")?,
                tasks: at("task_struct", "tasks")?,
                group_leader: at("task_struct", "group_leader")?,
                thread_group: at("task_struct", "thread_group")?,
                mm: at("task_struct", "mm")?,
                pid: at("task_struct", "pid")?,
                tgid: at("task_struct", "tgid")?,
                comm: at("task_struct", "comm")?,
                cred: at("task_struct", "cred")?,
                stack: at("task_struct", "stack").ok(),
            },
            cred_uid: at("cred", "uid")?,
            mm: MmLayout {
                root: at("mm_struct", "mm_mt.ma_root")?,
                pgd: at("mm_struct", "pgd")?,
                exe_file: at("mm_struct", "exe_file")?,
            },
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

    /// The layout with the small structures as Linux 6.1 orders them, in words of `w` bytes.
    pub(super) fn ordered(w: u64, task: TaskLayout, mm: MmLayout) -> Self {
        Self {
            task,
            // After the reference count, a long.
            cred_uid: w,
            mm,
            // Start, end, mm, protection, flags; an rb_node and its subtree's end; a list; anon_vma, vm_ops.
            vma: VmaLayout { start: 0, end: w, mm: 2 * w, flags: 4 * w, pgoff: 13 * w, file: 14 * w },
            path: PathLayout {
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
            },
        }
    }
}
