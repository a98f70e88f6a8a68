//! Memory for the pages of snapshots.
//!
//! Pages come from blocks that the host is asked to back with large pages, so that storing a page seldom costs a page
//! fault. A block stays for the life of the process; pages that are dropped are used again, the last one first.

use crate::ram::PAGE;
use memmap2::MmapMut;
use std::mem;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// Bytes of a block: several large pages of the host.
const BLOCK: usize = 8 << 20;

/// Pages that nothing uses.
static FREE: Mutex<Vec<&'static mut [u8]>> = Mutex::new(Vec::new());

/// The bytes of one page.
#[derive(Debug)]
pub(crate) struct StoredPage(&'static mut [u8]);

impl StoredPage {
    /// A copy of the bytes of a page.
    pub fn of(bytes: &[u8]) -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            free.extend(block().chunks_exact_mut(PAGE as usize).rev());
        }
        let page = free.pop().unwrap_or_default();
        drop(free);
        page.copy_from_slice(bytes);
        StoredPage(page)
    }
}

impl Deref for StoredPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for StoredPage {
    fn drop(&mut self) {
        let page = mem::take(&mut self.0);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(page);
    }
}

/// A new block of zeros, in large pages where the host has them.
fn block() -> &'static mut [u8] {
    let Ok(map) = MmapMut::map_anon(BLOCK) else { return Box::leak(vec![0; BLOCK].into_boxed_slice()) };
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    let map: &'static mut MmapMut = Box::leak(Box::new(map));
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_used_again_and_never_shared() {
        let page = |byte: u8| StoredPage::of(&vec![byte; PAGE as usize]);
        let many: Vec<StoredPage> = (0..5000u32).map(|n| page(n as u8)).collect();
        assert!((0..5000u32).zip(&many).all(|(n, stored)| stored.iter().all(|&byte| byte == n as u8)));
        let mut places: Vec<*const u8> = many.iter().map(|stored| stored.as_ptr()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].wrapping_add(PAGE as usize) <= pair[1]));
        drop(many);
        std::thread::spawn(move || assert_eq!(page(7)[0], 7)).join().unwrap();
    }
}
