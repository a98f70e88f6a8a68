//! The memory-mapped transport (virtio 1.2, chapter 4.2), version 2.

use super::queue::{MAX_SIZE, Memory, Queue};
use super::{Block, Console, Entropy, REQUEST_NS, block};
use serde::{Deserialize, Serialize};

/// Bytes of the register window that firmware announces.
pub const WINDOW_BYTES: u32 = 0x200;

const MAGIC: u32 = 0x7472_6976;
const VENDOR: u32 = 0x5054_4c4e;
/// VIRTIO_F_VERSION_1.
const VERSION_1: u64 = 1 << 32;

const DRIVER_OK: u8 = 0x04;
const FEATURES_OK: u8 = 0x08;
const NEEDS_RESET: u8 = 0x40;

/// A used buffer notification.
const USED: u32 = 1;
/// A configuration change notification.
const CHANGED: u32 = 2;

/// The kind of a device, with its state.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub enum Function {
    /// A disk.
    Block(Block),
    /// A console.
    Console(Console),
    /// A source of entropy.
    Entropy(Entropy),
}

impl Function {
    pub(super) fn device_id(&self) -> u32 {
        match self {
            Self::Block(_) => 2,
            Self::Console(_) => 3,
            Self::Entropy(_) => 4,
        }
    }

    fn features(&self) -> u64 {
        match self {
            Self::Block(_) => VERSION_1 | block::FEATURES,
            Self::Console(_) | Self::Entropy(_) => VERSION_1,
        }
    }

    pub(super) fn queues(&self) -> usize {
        match self {
            Self::Block(_) | Self::Entropy(_) => 1,
            Self::Console(_) => 2,
        }
    }

    fn config(&self, offset: u64) -> u8 {
        match self {
            Self::Block(block) => block.config(offset),
            Self::Console(_) | Self::Entropy(_) => 0,
        }
    }
}

/// In place of a time: a queue was notified before the driver was ready, so the device looks when it is. Linux 5.10 does
/// so for entropy.
const WHEN_READY: u64 = u64::MAX;

/// A device behind its registers.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub struct VirtioMmio {
    function: Function,
    status: u8,
    features_select: u32,
    driver_features_select: u32,
    driver_features: u64,
    queue_select: u32,
    queues: [Queue; 2],
    interrupt: u32,
    /// When the device looks at its queues next.
    due: Option<u64>,
}

impl crate::devices::Stored for VirtioMmio {
    const NAME: &str = "virtio transport";
    const VERSION: u16 = 1;
}

impl VirtioMmio {
    /// A device that no driver has touched.
    pub fn new(function: Function) -> Self {
        Self {
            function,
            status: 0,
            features_select: 0,
            driver_features_select: 0,
            driver_features: 0,
            queue_select: 0,
            queues: Default::default(),
            interrupt: 0,
            due: None,
        }
    }

    /// Attaches a restored device to the host resources of `machine`, the same device before.
    pub(crate) fn attach_as(&mut self, machine: &Self) {
        if let (Function::Block(ours), Function::Block(theirs)) = (&mut self.function, &machine.function) {
            ours.attach_image(theirs);
        }
    }

    /// The device behind the registers.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Level of its interrupt line.
    pub fn irq(&self) -> bool {
        self.interrupt != 0
    }

    /// When [`VirtioMmio::serve`] is to be called next.
    #[inline]
    pub fn next_event(&self) -> Option<u64> {
        self.due.filter(|at| *at != WHEN_READY)
    }

    fn running(&self) -> bool {
        self.status & DRIVER_OK != 0 && self.status & NEEDS_RESET == 0
    }

    fn wake(&mut self, now_ns: u64) {
        if self.running() && self.due.is_none() {
            self.due = Some(now_ns.saturating_add(REQUEST_NS));
        }
    }

    fn notify(&mut self, now_ns: u64) {
        self.wake(now_ns);
        if self.status & DRIVER_OK == 0 {
            self.due = Some(WHEN_READY);
        }
    }

    /// Types into a console; nothing for other devices.
    pub fn type_in(&mut self, bytes: &[u8], now_ns: u64) {
        if let Function::Console(console) = &mut self.function {
            console.type_in(bytes);
            self.wake(now_ns);
        }
    }

    /// Takes the output of a console's guest.
    pub fn take_output(&mut self) -> Vec<u8> {
        match &mut self.function {
            Function::Console(console) => console.take_output(),
            Function::Block(_) | Function::Entropy(_) => Vec::new(),
        }
    }

    /// Serves at most one request that is due at `now_ns`.
    pub fn serve(&mut self, now_ns: u64, memory: &mut dyn Memory) {
        if self.due.take_if(|at| *at <= now_ns).is_none() || !self.running() {
            return;
        }
        let done = match &mut self.function {
            Function::Block(block) => {
                let [queue, _] = &mut self.queues;
                block.serve(queue, memory)
            }
            Function::Console(console) => console.serve(&mut self.queues, memory),
            Function::Entropy(entropy) => {
                let [queue, _] = &mut self.queues;
                entropy.serve(queue, memory)
            }
        };
        match done {
            Ok(None) => {}
            Ok(Some((ns, interrupt))) => {
                self.interrupt |= if interrupt { USED } else { 0 };
                self.due = Some(now_ns.saturating_add(ns));
            }
            Err(_) => {
                self.status |= NEEDS_RESET;
                self.interrupt |= CHANGED;
            }
        }
    }

    fn queue(&mut self) -> Option<&mut Queue> {
        let count = self.function.queues();
        let index = usize::try_from(self.queue_select).ok()?;
        self.queues.get_mut(index).filter(|_| index < count)
    }

    /// Reads `size` bytes at `offset` of the window. Registers are 32 bits at multiples of 4; the configuration space from
    /// 100h on takes any access.
    pub fn read(&mut self, offset: u16, size: u8) -> u32 {
        if offset >= 0x100 {
            let bytes = [0, 1, 2, 3].map(|n| {
                if n < u64::from(size) { self.function.config(u64::from(offset) - 0x100 + n) } else { 0 }
            });
            return u32::from_le_bytes(bytes);
        }
        if size != 4 {
            return 0;
        }
        match offset {
            0x00 => MAGIC,
            0x04 => 2,
            0x08 => self.function.device_id(),
            0x0c => VENDOR,
            0x10 => half(self.function.features(), self.features_select),
            0x34 => self.queue().map_or(0, |_| MAX_SIZE.into()),
            0x44 => self.queue().map_or(0, |q| q.ready.into()),
            0x60 => self.interrupt,
            0x70 => self.status.into(),
            // No shared memory regions: a length of all ones (4.2.2).
            0xb0..=0xbf => u32::MAX,
            _ => 0,
        }
    }

    /// Writes a register: 32 bits at a multiple of 4, all else is dropped.
    pub fn write(&mut self, offset: u16, size: u8, value: u32, now_ns: u64) {
        if size != 4 {
            return;
        }
        match offset {
            0x14 => self.features_select = value,
            0x20 if self.status & FEATURES_OK == 0 => {
                let select = self.driver_features_select;
                set_half(&mut self.driver_features, select, value);
            }
            0x24 => self.driver_features_select = value,
            0x30 => self.queue_select = value,
            0x50 if (value as usize) < self.function.queues() => self.notify(now_ns),
            0x64 => self.interrupt &= !value,
            0x70 => self.write_status(value as u8, now_ns),
            0x38..=0xa4 => self.write_queue(offset, value),
            _ => {}
        }
    }

    fn write_status(&mut self, value: u8, now_ns: u64) {
        if value == 0 {
            // Input that no driver has taken waits for the next.
            let function = self.function.clone();
            *self = Self::new(function);
            return;
        }
        let offered = self.function.features();
        let agreed = self.driver_features & !offered == 0 && self.driver_features & VERSION_1 != 0;
        let refused = if agreed || self.status & FEATURES_OK != 0 { 0 } else { FEATURES_OK };
        self.status = value & !NEEDS_RESET & !refused | self.status & NEEDS_RESET;
        if self.running() && self.due.take_if(|at| *at == WHEN_READY).is_some() {
            self.wake(now_ns);
        }
    }

    fn write_queue(&mut self, offset: u16, value: u32) {
        let Some(queue) = self.queue() else { return };
        if queue.ready && offset != 0x44 {
            return;
        }
        match offset {
            0x38 => queue.size = u16::try_from(value).unwrap_or(0),
            0x44 if value & 1 == 0 => *queue = Queue::default(),
            0x44 => queue.ready = queue.well_formed(),
            0x80 => set_half(&mut queue.descriptors, 0, value),
            0x84 => set_half(&mut queue.descriptors, 1, value),
            0x90 => set_half(&mut queue.available, 0, value),
            0x94 => set_half(&mut queue.available, 1, value),
            0xa0 => set_half(&mut queue.used, 0, value),
            0xa4 => set_half(&mut queue.used, 1, value),
            _ => {}
        }
    }
}

fn half(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

fn set_half(value: &mut u64, select: u32, to: u32) {
    match select {
        0 => *value = *value & !0xffff_ffff | u64::from(to),
        1 => *value = *value & 0xffff_ffff | u64::from(to) << 32,
        _ => {}
    }
}
