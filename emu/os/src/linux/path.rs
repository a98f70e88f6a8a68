//! A file's path: the names of its dentries up to the root, through the mounts it lies in.

use super::layout::PathLayout;
use super::memory::Memory;

/// Longest name (NAME_MAX) and path (PATH_MAX), bytes.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 4096;
/// Dentries and mounts that one path visits, and all paths of one query.
const STEPS: usize = 2048;
pub(super) const BUDGET: usize = 1 << 19;

/// The path of the `struct file` at `file`, as the first mount namespace sees it; invalid UTF-8 is replaced.
/// The path of a file without a mount (an anonymous inode, a memfd) begins with its own name. `budget` is what is left
/// of [`BUDGET`].
pub(super) fn of_file(
    memory: &Memory<'_>,
    layout: &PathLayout,
    file: u64,
    budget: &mut usize,
) -> Option<String> {
    let mut mnt = memory.pointer(memory.add(file, layout.file_mnt))?;
    let mut dentry = memory.pointer(memory.add(file, layout.file_dentry))?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut len = 0;
    for _ in 0..STEPS {
        *budget = budget.checked_sub(1)?;
        if memory.pointer(memory.add(mnt, layout.mnt_root))? == dentry {
            let mount = memory.add(mnt, layout.vfsmount.wrapping_neg());
            let parent = memory.pointer(memory.add(mount, layout.mnt_parent))?;
            if parent == mount {
                return Some(join(&names));
            }
            dentry = memory.pointer(memory.add(mount, layout.mountpoint))?;
            mnt = memory.add(parent, layout.vfsmount);
            continue;
        }
        let parent = memory.pointer(memory.add(dentry, layout.parent))?;
        let name = name(memory, layout, dentry)?;
        if parent == dentry {
            // A root, but not a mount's: a file without a path.
            names.push(name.strip_prefix(b"/").unwrap_or(&name).to_vec());
            return Some(join(&names));
        }
        len += name.len() + 1;
        if len > PATH_MAX {
            return None;
        }
        names.push(name);
        dentry = parent;
    }
    None
}

fn name(memory: &Memory<'_>, layout: &PathLayout, dentry: u64) -> Option<Vec<u8>> {
    let len = usize::try_from(memory.u32(memory.add(dentry, layout.name_len))?).ok()?;
    let at = memory.pointer(memory.add(dentry, layout.name))?;
    if len > NAME_MAX { None } else { memory.bytes(at, len) }
}

/// Names from the last to the first.
fn join(names: &[Vec<u8>]) -> String {
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    String::from_utf8_lossy(&path).into_owned()
}
