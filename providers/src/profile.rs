//! Probes on time: `profile:::tick-N[UNIT]` and `profile:::profile-N[UNIT]`.
//!
//! Time is the guest's, so a tick comes at the same instruction in every run. The unit `insn` counts
//! instructions. With one processor both kinds are the same. Probes are made on request, so a glob
//! matches none.

use std::sync::Arc;

use trapline_emu::Core;
use trapline_interposer::{Arguments, Clock, Place, Timer};
use trapline_rpn::{Argument, ArgumentError};
use trapline_trace::ProbeName;

use crate::name::Description;
use crate::provider::{Probe, Provider, ProviderError, Site};
use crate::target::Target;

/// The provider's name.
const PROFILE: &str = "profile";
/// The valid names, for messages.
const FORM: &str = "use tick-N or profile-N, and after N one of hz, ns, us, ms, s, m, h, d, insn";
/// Shortest period in virtual nanoseconds or instructions: a shorter one would slow the run to a crawl.
const SHORTEST: u64 = 1000;
/// Units and their nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("nsec", 1),
    ("us", 1_000),
    ("usec", 1_000),
    ("ms", 1_000_000),
    ("msec", 1_000_000),
    ("s", 1_000_000_000),
    ("sec", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("hour", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("day", 86_400_000_000_000),
];

/// The provider.
#[derive(Debug, Clone, Copy)]
pub struct Profile;

impl Provider for Profile {
    fn name(&self) -> &str {
        PROFILE
    }

    fn ids(&self, _: &Target) -> u32 {
        0
    }

    fn find(&self, _: &Target, wanted: &Description, found: &mut Vec<Probe>) -> Result<(), ProviderError> {
        let [provider, _, _, name] = wanted.written();
        if !wanted.module("") || !wanted.function("") {
            return Ok(());
        }
        let timer = match timer(name) {
            Ok(Some(timer)) => timer,
            Ok(None) if provider != PROFILE || name.is_empty() || name.contains(['*', '?', '[']) => {
                return Ok(());
            }
            Ok(None) => return Err(invalid(name, FORM.to_owned())),
            Err(why) => return Err(invalid(name, why)),
        };
        let site = Site {
            place: Place::Timer(timer),
            offset: 0,
            opcode: 0,
            rule: "clock",
            arguments: Arc::new(AtTick),
            within: None,
            shown: Vec::new(),
            at_call: false,
            tail_call: false,
            when: None,
        };
        let empty: Arc<str> = "".into();
        let name = ProbeName {
            provider: PROFILE.into(),
            module: Arc::clone(&empty),
            function: empty,
            name: name.as_str().into(),
        };
        found.push(Probe {
            id: 0,
            name: Arc::new(name),
            sites: vec![site],
            logged: 2,
            processes: None,
            types: Vec::new(),
        });
        Ok(())
    }
}

fn invalid(name: &str, why: String) -> ProviderError {
    ProviderError::InvalidName { name: name.to_owned(), why }
}

/// The timer of a name; `None` if it does not name a timer, and a message if its period is out of range.
fn timer(name: &str) -> Result<Option<Timer>, String> {
    let Some(rest) = name.strip_prefix("tick-").or_else(|| name.strip_prefix("profile-")) else {
        return Ok(None);
    };
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = rest.strip_suffix(unit).unwrap_or_default();
    let Ok(number) = number.parse::<u64>() else { return Ok(None) };
    let (clock, period) = match unit {
        "insn" | "insns" => (Clock::Instructions, Some(number)),
        "" | "hz" => (Clock::Virtual, 1_000_000_000u64.checked_div(number)),
        _ => match UNITS.iter().find(|(word, _)| *word == unit) {
            Some((_, ns)) => (Clock::Virtual, number.checked_mul(*ns)),
            None => return Ok(None),
        },
    };
    match period {
        Some(period) if period >= SHORTEST => Ok(Some(Timer { clock, period })),
        _ => Err(format!("the shortest period is {SHORTEST} ns or instructions, the longest 584 years")),
    }
}

/// The arguments of a tick: argument 0 is the instruction pointer if the kernel runs, argument 1 if a user program
/// does; the other is 0.
#[derive(Debug, Clone, Copy)]
struct AtTick;

impl Arguments for AtTick {
    fn has(&self, which: Argument) -> bool {
        matches!(which, Argument::Number(0 | 1))
    }

    fn argument(&self, core: &Core, which: Argument) -> Result<u64, ArgumentError> {
        let user = u8::from(core.env().cpl() == 3);
        match which {
            Argument::Number(n @ (0 | 1)) => Ok(if n == user { core.env().eip() } else { 0 }),
            _ => Err(ArgumentError::None),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_periods() {
        let period = |name: &str| timer(name).unwrap().map(|timer| (timer.clock, timer.period));
        assert_eq!(period("tick-10ms"), Some((Clock::Virtual, 10_000_000)));
        assert_eq!(period("profile-97"), Some((Clock::Virtual, 10_309_278)));
        assert_eq!(period("tick-1000hz"), Some((Clock::Virtual, 1_000_000)));
        assert_eq!(period("tick-2min"), Some((Clock::Virtual, 120_000_000_000)));
        assert_eq!(period("tick-5000insn"), Some((Clock::Instructions, 5000)));
        for no in ["tick", "tick-", "tick-ms", "tick-1parsec", "entry", "tick--1ms"] {
            assert_eq!(period(no), None, "{no}");
        }
        for bad in ["tick-0", "tick-999ns", "tick-99999999999h", "tick-2000000000hz", "tick-1insn"] {
            assert!(timer(bad).is_err(), "{bad}");
        }
    }
}
