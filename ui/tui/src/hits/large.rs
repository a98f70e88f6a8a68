//! What is large and is freed by another thread: to give back hundreds of megabytes takes longer than a frame.

use std::ops::{Deref, DerefMut};
use std::thread;

/// What frees this many parts, or fewer, may be done at once.
const FEW: usize = 8;

/// Parts of a list, each up to a megabyte.
#[derive(Debug)]
pub struct Large<T: Send + 'static>(Vec<T>);

impl<T: Send + 'static> Default for Large<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Send + 'static> Deref for Large<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Send + 'static> DerefMut for Large<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Send + 'static> Drop for Large<T> {
    fn drop(&mut self) {
        if self.0.len() > FEW {
            let parts = std::mem::take(&mut self.0);
            // Without a thread, they are freed here.
            let _ = thread::Builder::new().name("trapline-free".to_owned()).spawn(move || drop(parts));
        }
    }
}
