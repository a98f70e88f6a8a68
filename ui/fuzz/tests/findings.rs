//! Trials, and findings as files: what a state shows on trial, the replay of its recording shows again.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{CONTROL, PLANTED, recorded, trials};
use trapline_fuzz::explain::explained;
use trapline_fuzz::finding::{Finding, Folder, position};
use trapline_fuzz::minimise::minimised;
use trapline_fuzz::state::State;
use trapline_fuzz::subject::Subject;
use trapline_session::{
    Difference, GuestBuilder, Limits, Names, Observer, OwnPrograms, Places, Position, RecordView, Recording,
    Way, Word,
};

/// Keeps how the handlers of records ended.
#[derive(Default)]
struct Ends(Vec<u16>);

impl Observer for Ends {
    type Error = std::convert::Infallible;

    fn record(&mut self, record: &RecordView<'_>, _: &Names<'_>) -> Result<(), Self::Error> {
        self.0.push(record.header.termination);
        Ok(())
    }
}

#[test]
fn a_real_hit_on_trial_does_what_it_did_in_the_run() {
    let folder = common::Folder::new("real");
    let (mut trials, _) = trials(&recorded(folder.path(), "control", CONTROL), &[]);
    for first in 0..trials.hits().list.len() {
        let fallen = trials.run(&State::real(first)).unwrap().to_vec();
        assert!(fallen.is_empty(), "{fallen:?}");
    }
    assert_eq!(trials.summary.longest, 7);
    assert_eq!(trials.summary.longest_log, 8);
    assert!(trials.summary.exceptions.is_empty());
    assert!(trials.code()[0].reached.iter().all(|reached| *reached));
}

#[test]
fn a_finding_is_minimised_explained_and_replayed() {
    let folder = common::Folder::new("finding");
    let pointer = &PLANTED[0];
    let path = recorded(folder.path(), pointer.name, pointer.code);
    let (mut trials, _) = trials(&path, &[]);
    let real = trials.check(&State::real(1)).unwrap();
    assert!(real.is_empty(), "{real:?}");
    let asked = trials.learn(&State::real(1)).unwrap().asked;
    assert!(asked.len() >= 3, "{asked:?}");
    // The return address becomes a pointer to nowhere; the other differences do not matter.
    let esp = asked.iter().find_map(|(_, answered)| match answered.ask {
        trapline_fuzz::seen::Ask::Memory(address, 4) => Some(address),
        _ => None,
    });
    let esp = esp.unwrap();
    let mut state = State::real(1);
    state.set(0, Difference::Word { what: Word::Task, value: 9 });
    state.set(0, Difference::Memory { address: esp, bytes: vec![0x44, 0x33, 0x22, 0x11] });
    state.hits.push(Vec::new());
    let fallen = trials.check(&state).unwrap();
    assert_eq!(fallen.len(), 1, "{fallen:?}");
    assert_eq!(fallen[0].file_name(), "exception-invalid_addr-pointer.rpn-2");
    let least = minimised(&mut trials, &state, &fallen[0]).unwrap();
    assert_eq!((least.first, least.hits.len(), least.differences()), (1, 1, 1), "{least:?}");
    assert!(trials.check(&least).unwrap().contains(&fallen[0]));

    let recording = Recording::read(&path).unwrap();
    let places = Places::of(&path);
    let to = Folder { recording: &recording, places: &places, folder: folder.path() };
    let at = trials.fell_at(&least, &fallen[0]).unwrap();
    let finding = Finding { fallen: fallen[0].clone(), state: least, trials: 1, at };
    let file = Subject::write(&mut trials, &finding, &to).unwrap();
    let found = Recording::read(&file).unwrap();
    assert_eq!(position(&found), Some(Position::At { icount: at.icount, ordinal: 2 }));
    assert_eq!(position(&recording), None);
    let lines = explained(&found, &Places::of(&file), "f").unwrap();
    assert!(lines[0].contains("pointer.rpn, run 2 at 0x"), "{lines:?}");
    assert!(lines[1].contains("at the real hit it holds"), "{lines:?}");
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("Then the objective exception falls INVALID_ADDR at operation 2 (push mem, u32"),
        "{last}"
    );

    let guest = GuestBuilder::of_recording(&found, &Places::of(&file)).unwrap().open().unwrap();
    let ends = |recording: &Recording| {
        let mut session = guest.start(recording.config().probing.clone()).unwrap();
        let mut course = recording.course(Way::Same, OwnPrograms::Stay);
        session.begin_as(&mut course).unwrap();
        let mut ends = Ends::default();
        let Ok(followed) = session.follow(&mut course, None, &Limits::none(), &mut ends);
        followed.unwrap();
        (ends.0, session.digest())
    };
    // The first hit is as it was; the second, which is altered, ends by INVALID_ADDR.
    let (altered, digest) = ends(&found);
    assert_eq!(altered, [0, 1]);
    // The handler only observes, and so does what it sees: the guest is the same.
    let (plain, whole) = ends(&recording);
    assert_eq!(plain[..2], [0, 0]);
    assert_ne!(digest, whole);
    assert_eq!(ends(&found).1, digest);
}
