//! Bits of EFLAGS (SDM volume 1, 3.4.3).

pub(crate) const ZF: u64 = 1 << 6;
pub(crate) const TF: u64 = 1 << 8;
pub(crate) const IF: u64 = 1 << 9;
pub(crate) const IOPL: u64 = 3 << 12;
pub(crate) const NT: u64 = 1 << 14;
pub(crate) const RF: u64 = 1 << 16;
pub(crate) const VM: u64 = 1 << 17;
pub(crate) const AC: u64 = 1 << 18;
