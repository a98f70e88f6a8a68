//! Exact conversion between virtual nanoseconds and the ticks of a device's input clock.
//!
//! Pure functions without state, in integer arithmetic only, so that repeated conversions cannot drift.

/// Nanoseconds in a second.
pub const NS_PER_SEC: u64 = 1_000_000_000;

/// Number of whole ticks of a `hz` clock that have happened at `ns` (tick 0 happens at 0 ns).
pub fn ticks_at(ns: u64, hz: u64) -> u64 {
    match ns.checked_mul(hz) {
        Some(product) => product / NS_PER_SEC,
        None => saturate(u128::from(ns) * u128::from(hz) / u128::from(NS_PER_SEC)),
    }
}

/// The first nanosecond at which [`ticks_at`] gives at least `tick`; a `hz` of 0 counts as 1.
pub fn ns_of_tick(tick: u64, hz: u64) -> u64 {
    let hz = hz.max(1);
    match tick.checked_mul(NS_PER_SEC) {
        Some(product) => product.div_ceil(hz),
        None => saturate((u128::from(tick) * u128::from(NS_PER_SEC)).div_ceil(u128::from(hz))),
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_is_exact_and_does_not_drift() {
        let hz = 1_193_182;
        assert_eq!(ticks_at(NS_PER_SEC, hz), hz);
        assert_eq!(ticks_at(NS_PER_SEC * 86_400, hz), hz * 86_400);
        for tick in [0, 1, 2, 11_931, 65_536, 1_193_182, 1 << 34, 18_446_744_073, 18_446_744_074, 1 << 40] {
            let ns = ns_of_tick(tick, hz);
            assert_eq!(ticks_at(ns, hz), tick);
            assert!(ns == 0 || ticks_at(ns - 1, hz) < tick);
        }
        assert_eq!(ns_of_tick(u64::MAX, 1), u64::MAX);
    }
}
