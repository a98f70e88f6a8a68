//! Positions in hits of a recording, as instruction counts.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use trapline_session::{Command, Followed, Guest, Limits, Observer, OwnPrograms, Position, Recording, Way};

use crate::failure::Failure;

/// Drops the output of a run that only searches.
struct Unseen;

impl Observer for Unseen {
    type Error = Infallible;
}

/// The position of an option. Hits are counted by the recording's programs: if these are left out, a replay with them
/// finds the instruction count of the hit.
///
/// # Errors
/// The recording has no such hit.
pub fn by_count(
    guest: &Guest,
    recording: &Recording,
    cancelled: &Arc<AtomicBool>,
    (option, position): (&str, Position),
) -> Result<Result<Position, Followed>, Failure> {
    let counts =
        matches!(position, Position::Hit(_)) && recording.own_programs(guest) == OwnPrograms::LeftOut;
    if !counts {
        return Ok(Ok(position));
    }
    let mut session = guest.start(recording.config().probing.clone())?;
    let mut course = recording.course(Way::Same, OwnPrograms::Stay);
    let limits = Limits::none().cancelled_by(Arc::clone(cancelled));
    let Ok(followed) = session.follow(&mut course, Some(position), &limits, &mut Unseen);
    match followed.map_err(|unknown| Failure::Usage(unknown.to_string()))? {
        Followed::Reached => Ok(Ok(Position::At { icount: session.icount(), ordinal: 0 })),
        Followed::NeverReached => {
            let why = match recording.commands().any(Command::inserts) {
                true => "fewer hits of its programs leave a record",
                false => "it has no probes; give an instruction count",
            };
            Err(Failure::Usage(format!("{option} {position} is not in the recording: {why}")))
        }
        other => Ok(Err(other)),
    }
}
