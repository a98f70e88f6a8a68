//! What is large is freed and made by other threads: to give hundreds of megabytes back to the system takes longer than a frame.
//! Not only the memory that is freed counts. An allocator gives back what is free at the end of a heap, also if another thread freed it, and a
//! thread allocates from a heap of its own. So this thread does not free what others have sent, and its own heap stays small.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// What frees this many parts, or fewer, may be done at once.
const FEW: usize = 8;
/// Empty parts that are kept ready.
const READY: usize = 16;

/// The thread that frees; none if there is no thread for it.
static FREES: LazyLock<Option<Sender<Box<dyn Send>>>> = LazyLock::new(|| {
    let (gone, freed) = mpsc::channel::<Box<dyn Send>>();
    let free = move || freed.into_iter().for_each(drop);
    thread::Builder::new().name("trapline-free".to_owned()).spawn(free).ok().map(|_| gone)
});

/// Frees a value in another thread.
pub fn free_later(value: impl Send + 'static) {
    if let Some(gone) = &*FREES {
        // The thread does not end before this one.
        let _ = gone.send(Box::new(value));
    }
}

/// Parts of a list.
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
            free_later(std::mem::take(&mut self.0));
        }
    }
}

/// Makes empty parts with room for so many values, in another thread.
#[derive(Debug)]
pub struct Maker<T> {
    made: Receiver<Vec<T>>,
    room: usize,
}

impl<T: Send + 'static> Maker<T> {
    /// Parts with this room.
    pub fn new(room: usize) -> Self {
        let (ready, made) = mpsc::sync_channel(READY);
        let make = move || while ready.send(Vec::with_capacity(room)).is_ok() {};
        // Without a thread, this one makes them.
        let _ = thread::Builder::new().name("trapline-make".to_owned()).spawn(make);
        Self { made, room }
    }

    /// A part. If none is ready, it is made here.
    pub fn part(&self) -> Vec<T> {
        self.made.try_recv().unwrap_or_else(|_| Vec::with_capacity(self.room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn parts_have_room_and_are_freed_in_the_end() {
        let maker = Maker::<u32>::new(100);
        assert!((0..100).all(|_| maker.part().capacity() == 100));
        let value = Arc::new(());
        let mut large = Large::default();
        (0..20).for_each(|_| large.push(Arc::clone(&value)));
        drop(large);
        while Arc::strong_count(&value) > 1 {
            thread::yield_now();
        }
    }
}
