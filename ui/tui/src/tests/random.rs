//! Random keys, clicks and sizes, on a live run and on a recording: nothing panics, and the run stays what it is.

use std::io::{self, Write};
use std::sync::Mutex;

use trapline_session::{Digest, OwnPrograms, Recorder, Recording, Way};

use super::typing::plain;
use super::*;

/// A step of xorshift.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

const CODES: [KeyCode; 13] = [
    KeyCode::Tab,
    KeyCode::BackTab,
    KeyCode::Enter,
    KeyCode::Esc,
    KeyCode::Up,
    KeyCode::Down,
    KeyCode::PageUp,
    KeyCode::PageDown,
    KeyCode::Home,
    KeyCode::End,
    KeyCode::Backspace,
    KeyCode::F(1),
    KeyCode::Insert,
];

/// So many events. `TRAPLINE_TUI_EVENTS` says how many; 5,000 without it.
fn play(bench: &mut Bench, mut seed: u64) {
    let count = std::env::var("TRAPLINE_TUI_EVENTS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    for n in 0..count {
        let (what, value) = (random(&mut seed) % 16, random(&mut seed));
        match what {
            0..9 => bench.key(KeyCode::Char(char::from(b' ' + (value % 95) as u8)), KeyModifiers::NONE),
            9..12 => bench.key(CODES[value as usize % CODES.len()], KeyModifiers::NONE),
            12 => bench.key(KeyCode::Char(char::from(b'a' + (value % 26) as u8)), KeyModifiers::CONTROL),
            13 => {
                let kinds = [
                    MouseEventKind::Down(MouseButton::Left),
                    MouseEventKind::ScrollUp,
                    MouseEventKind::ScrollDown,
                    MouseEventKind::Moved,
                ];
                let (column, row) = ((value >> 8) as u16 % 220, (value >> 32) as u16 % 70);
                let kind = kinds[value as usize % kinds.len()];
                bench.event(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
            }
            14 => bench.event(Event::Resize((value % 220) as u16, (value >> 16) as u16 % 70)),
            _ => bench.event(Event::Paste("0x1000\x1b[ é".to_owned())),
        }
        bench.take_any();
        bench.app.tick();
        if n % 16 == 0 {
            let size = bench.app.size;
            bench.screen((size.width, size.height));
        }
        if n % 64 == 0 {
            // Moves reach their targets, too.
            bench.app.play.on = false;
            bench.settle();
        }
    }
    assert!(crate::terminal::panicked().is_none());
}

/// The digest at the end of the run, and what was typed in it.
fn digest_at_end(mut bench: Bench) -> (Digest, Vec<Typed>) {
    // Closes what is open, and cancels the move that is under way.
    (0..3).for_each(|_| bench.key(KeyCode::Esc, KeyModifiers::NONE));
    bench.settle();
    bench.press(">");
    let (end, _) = bench.app.run.ended.clone().unwrap();
    assert_eq!(bench.app.at(), end.icount);
    let typed = std::mem::take(&mut bench.typed);
    (bench.end().unwrap().session().digest(), typed)
}

#[test]
fn random_events_do_no_harm_to_a_live_run() {
    let mut bench = Bench::new(Look { colours: Colours::Dark, utf8: true });
    play(&mut bench, 0x9e37_79b9_7f4a_7c15);
    let (digest, typed) = digest_at_end(bench);
    assert_eq!(digest, plain(&typed).digest());
}

/// A run that is not made again.
struct Once;

impl Again for Once {
    fn session(&self) -> Result<Session, String> {
        Err("this run is not made again".to_owned())
    }

    fn timeline(&self, _: &[Command]) -> Result<Timeline, String> {
        Err("this run is not made again".to_owned())
    }

    fn program(&self, path: &str) -> Result<Command, String> {
        Err(format!("{path} is not read"))
    }

    fn clauses(&self, text: &str) -> Result<Command, String> {
        Err(format!("{text} is not compiled"))
    }

    fn observes(&self, _: &Command) -> bool {
        false
    }
}

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn random_events_do_no_harm_to_a_recording() {
    let (builder, mut config, blobs) =
        GuestBuilder::embedded("ia32").memory(32 << 20).recorded(false).unwrap();
    let probing = Probing { header: HeaderItems::all(), ..Probing::default() };
    config.probing = probing.clone();
    let file = Kept::default();
    let recorder = Recorder::begin(Box::new(file.clone()), &config, &blobs).unwrap();
    let guest = builder.open().unwrap();
    let mut recorded = guest.start(probing.clone()).unwrap();
    recorded.record(recorder).unwrap();
    let program = read_program(PROGRAM.as_ref(), &SourceOptions::default()).unwrap();
    recorded.apply(Command::insert("6-groups.rpn", program)).unwrap();
    recorded.run_until(&Condition::end(), &Limits::insns(LIMIT));
    recorded.finish_recording().unwrap();
    let recording = Arc::new(Recording::from_bytes(&file.0.lock().unwrap()).unwrap());

    let own = OwnPrograms::Stay;
    let mut begun = guest.start(probing.clone()).unwrap();
    begun.begin_as(&mut recording.course(Way::Same, own)).unwrap();
    let timeline = Timeline::of(begun, &recording, |_| true, 256 << 20).unwrap();
    let session = guest.start(probing).unwrap();
    let course = Course::Recorded { recording, own, others: false };
    let target = guest.target().clone();
    let (title, again) = ("run.tlr".to_owned(), Arc::new(Once));
    let opening = Opening {
        title,
        image: String::new(),
        target,
        session,
        course,
        timeline,
        templates: None,
        sources: Vec::new(),
        again,
    };
    let mut bench = Bench::of(opening, Look { colours: Colours::Light, utf8: true }, None);
    play(&mut bench, 0x2545_f491_4f6c_dd1d);
    assert_eq!(digest_at_end(bench), (recorded.digest(), Vec::new()));
}
