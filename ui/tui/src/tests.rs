//! The whole user interface on the embedded guest, without a terminal: keys go in, screens come out.

mod channels;
mod d;
mod memory;
mod millions;
mod moves;
mod panics;
mod probing;
mod random;
mod saved;
mod sorting;
mod timeline;
mod typing;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use trapline_session::{
    Command, Condition, DSource, Guest, GuestBuilder, Limits, Probing, Selection, Session, SourceOptions,
    Timeline, only_observe, read_program,
};
use trapline_trace::{HeaderItems, HexStyle, Kind, hex};

use crate::app::{App, Effect, PANES, Pane, Saved};
use crate::keys::Keys;
use crate::message::{Input, Request, Typed};
use crate::patience::PATIENCE;
use crate::theme::{Colours, Look};
use crate::view;
use crate::worker::{Again, Course, Opening, Workers};

/// The program of docs/tui.md.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/man/6-groups.rpn");
/// Instructions of the run: it has more than 200 hits by then.
const LIMIT: u64 = 12_000_000;
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn guest() -> Guest {
    GuestBuilder::embedded("ia32").memory(32 << 20).open().unwrap()
}

fn session(guest: &Guest) -> Session {
    let probing = Probing { header: HeaderItems::all(), ..Probing::default() };
    let mut session = guest.start(probing).unwrap();
    let program = read_program(PROGRAM.as_ref(), &SourceOptions::default()).unwrap();
    session.apply(Command::insert("6-groups.rpn", program)).unwrap();
    session
}

/// The run of `session`, made again.
struct SameRun(Guest);

impl Again for SameRun {
    fn session(&self) -> Result<Session, String> {
        Ok(session(&self.0))
    }

    fn timeline(&self, more: &[Command]) -> Result<Timeline, String> {
        let mut session = session(&self.0);
        for command in more {
            session.apply(command.clone()).map_err(|error| error.to_string())?;
        }
        Timeline::new(session, 256 << 20).map_err(|error| error.to_string())
    }

    fn program(&self, path: &str) -> Result<Command, String> {
        let program = read_program(path.as_ref(), &SourceOptions::default());
        program.map(|program| Command::insert(path, program)).map_err(|error| error.to_string())
    }

    fn clauses(&self, text: &str) -> Result<Command, String> {
        Ok(Command::D(DSource::clauses(text)))
    }

    fn observes(&self, command: &Command) -> bool {
        only_observe(&self.0, &Probing::default(), std::iter::once(command.clone()))
    }
}

/// The run at its beginning.
fn opening(again: impl FnOnce(Guest) -> Arc<dyn Again>) -> Opening {
    opening_of(guest(), "embedded:ia32", again)
}

/// The same of another guest.
fn opening_of(guest: Guest, title: &str, again: impl FnOnce(Guest) -> Arc<dyn Again>) -> Opening {
    let timeline = Timeline::new(session(&guest), 256 << 20).unwrap();
    let session = session(&guest);
    let course = Course::Live { condition: Condition::end(), limits: Limits::insns(LIMIT) };
    let target = guest.target().clone();
    Opening {
        title: title.to_owned(),
        image: String::new(),
        target,
        session,
        course,
        timeline,
        templates: None,
        sources: Vec::new(),
        again: again(guest),
    }
}

/// The user interface with its threads.
struct Bench {
    app: App,
    workers: Option<Workers>,
    inputs: Receiver<Input>,
    /// What was typed at the guest's console.
    typed: Vec<Typed>,
}

impl Bench {
    /// Starts at the beginning of a run that is listed to its end.
    fn new(look: Look) -> Self {
        Self::begun(look, None)
    }

    /// With the text of a session file.
    fn restored(text: &str) -> Self {
        Self::begun(PLAIN, Some(Saved::parse(text).unwrap()))
    }

    fn begun(look: Look, saved: Option<Saved>) -> Self {
        Self::of(opening(|guest| Arc::new(SameRun(guest))), look, saved)
    }

    fn of(opening: Opening, look: Look, saved: Option<Saved>) -> Self {
        let mut app = App::new(opening.title.clone(), Arc::clone(&opening.target), look, Keys::default());
        app.programs = vec!["// 6-groups.rpn".to_owned()];
        if let Some(saved) = saved {
            app.restore(saved).unwrap();
        }
        let (told, inputs) = mpsc::channel();
        let workers = Some(Workers::start(opening, &told));
        let mut bench = Self { app, workers, inputs, typed: Vec::new() };
        bench.settle();
        bench
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        let Some(workers) = &mut self.workers else { return };
        for effect in effects {
            match effect {
                Effect::Ask(request) => workers.ask(request),
                Effect::Cancel => workers.cancel(),
                Effect::List(listing) => {
                    self.typed.clone_from(&listing.more.typed);
                    workers.list(listing);
                }
                // Effects on the terminal and on files.
                _ => {}
            }
        }
    }

    /// Takes the next message.
    fn take(&mut self) {
        let busy = &self.app.travel.busy;
        let input =
            self.inputs.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no message; busy {busy:?}"));
        self.update(input);
    }

    /// Takes a message if there is one.
    fn take_any(&mut self) {
        if let Ok(input) = self.inputs.try_recv() {
            self.update(input);
        }
    }

    /// Whether this asks for something.
    fn update(&mut self, input: Input) -> bool {
        let effects = self.app.update(input);
        let asks = effects.iter().any(|effect| matches!(effect, Effect::Ask(_)));
        self.carry_out(effects);
        asks
    }

    /// Waits until no move is in progress and all hits are listed.
    fn settle(&mut self) {
        let searches =
            |app: &App| app.with_channels && app.scene.as_ref().is_some_and(|scene| scene.channels.is_none());
        while self.app.travel.busy.is_some() || !self.app.run.is_listed() || searches(&self.app) {
            self.take();
        }
        while self.app.tick() {}
    }

    /// Waits until this is true of the state.
    fn wait_for(&mut self, is_so: impl Fn(&App) -> bool) {
        while !is_so(&self.app) {
            self.take();
        }
    }

    fn event(&mut self, event: Event) {
        let effects = self.app.update(Input::Terminal(event, Instant::now()));
        self.carry_out(effects);
    }

    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        self.event(Event::Key(KeyEvent::new(code, modifiers)));
    }

    /// Types a text, and waits until everything is done.
    fn press(&mut self, text: &str) {
        self.type_all(text);
        self.settle();
        self.answered();
        self.app.message = None;
    }

    /// Waits until all requests are answered, also those that are not moves: they are answered in order.
    fn answered(&mut self) {
        const LAST: &str = "{ what no prompt has }";
        let mut asks = true;
        while std::mem::take(&mut asks) {
            self.carry_out(vec![Effect::Ask(Request::Complete(LAST.to_owned()))]);
            loop {
                let input = self.inputs.recv_timeout(PATIENCE).expect("a request is not answered");
                if matches!(&input, Input::Completed(text, _) if text == LAST) {
                    break;
                }
                asks |= self.update(input);
            }
        }
        self.settle();
    }

    fn type_all(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' => self.key(KeyCode::Enter, KeyModifiers::NONE),
                '\t' => self.key(KeyCode::Tab, KeyModifiers::NONE),
                '\x0f' => self.key(KeyCode::Char('o'), KeyModifiers::CONTROL),
                '\x19' => self.key(KeyCode::Char('y'), KeyModifiers::CONTROL),
                c => self.key(KeyCode::Char(c), KeyModifiers::NONE),
            }
        }
    }

    fn screen(&mut self, (width, height): (u16, u16)) -> String {
        self.app.size = Rect::new(0, 0, width, height);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut ends = Default::default();
        terminal.draw(|frame| ends = view::draw(&self.app, frame)).unwrap();
        self.app.ends = ends;
        let buffer = terminal.backend().buffer();
        let row = |y| {
            let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
            format!("{}\n", line.trim_end())
        };
        (0..height).map(row).collect()
    }
}

impl Bench {
    /// Ends the threads; the timeline, where it is.
    fn end(&mut self) -> Option<Timeline> {
        self.workers.take().and_then(Workers::end)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.end();
    }
}

const PLAIN: Look = Look { colours: Colours::None, utf8: true };

#[test]
fn every_screen_at_three_sizes() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    for size in SIZES {
        insta::assert_snapshot!(format!("main-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("?");
        insta::assert_snapshot!(format!("help-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("?:hit");
        insta::assert_snapshot!(format!("palette-{}x{}", size.0, size.1), bench.screen(size));
        bench.key(KeyCode::Esc, KeyModifiers::NONE);
        bench.press("z");
        for pane in PANES {
            bench.press(&pane.key().to_string());
            let name = format!("{}-{}x{}", pane.name().to_lowercase(), size.0, size.1);
            insta::assert_snapshot!(name, bench.screen(size));
        }
        bench.press("z1");
    }
}

#[test]
fn colours_and_characters_say_nothing_that_text_does_not() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]s");
    let plain = bench.screen((120, 40));
    for colours in [Colours::Dark, Colours::Light] {
        bench.app.look = Look { colours, utf8: true };
        assert_eq!(bench.screen((120, 40)), plain);
    }
    bench.app.look = Look { colours: Colours::None, utf8: false };
    for pane in PANES {
        bench.app.perform(
            crate::action::TABLE.iter().find(|entry| entry.sentence.ends_with(pane.name())).unwrap().action,
        );
        assert!(bench.screen((120, 40)).is_ascii());
    }
}

#[test]
fn hits_back_to_the_first_and_forth_again_give_the_same_screens() {
    let mut bench = Bench::new(PLAIN);
    let count = bench.app.run.hits.len().min(200);
    assert!(count > 50, "{count}");
    bench.press(&format!("g#{count}\n"));
    let mut seen = vec![bench.screen((120, 40))];
    // Changed values are marked, and depend on the move.
    let shown = |bench: &mut Bench| {
        bench.app.before.clear();
        (bench.app.memory_before, bench.app.typed_before) = (None, None);
        bench.screen((120, 40))
    };
    seen[0] = shown(&mut bench);
    for _ in 1..count {
        bench.press("[");
        seen.push(shown(&mut bench));
    }
    assert!(seen[count - 1].contains("hit 1 "), "{}", seen[count - 1]);
    for before in seen.iter().rev().skip(1) {
        bench.press("]");
        assert_eq!(&shown(&mut bench), before);
    }
}

#[test]
fn all_operations_of_a_hit_are_gone_along_both_ways() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    let outside = bench.screen((120, 40));
    bench.press("i");
    assert_eq!(bench.app.focused(), Pane::Handler);
    let handler = |bench: &Bench| bench.app.scene.as_ref().unwrap().handler.clone();
    let all = handler(&bench).unwrap().all;
    let mut seen = vec![bench.screen((120, 40))];
    for executed in 1..=all {
        bench.press(".");
        assert_eq!(handler(&bench).unwrap().executed, executed);
        seen.push(bench.screen((120, 40)));
    }
    let last = handler(&bench).unwrap();
    assert_eq!(last.ending.as_deref(), Some("the handler has ended"));
    assert_eq!(Some(hex(&last.log, HexStyle::Pairs).as_bytes()), bench.app.run.hits.logged(2));
    bench.press(".");
    assert_eq!(handler(&bench).unwrap(), last, "nothing follows the last operation");
    for (n, before) in seen.iter().enumerate().rev().skip(1) {
        bench.press(",");
        assert_eq!(&bench.screen((120, 40)), before, "operation {n}");
    }
    bench.press("..I");
    assert_eq!((handler(&bench), bench.app.cursor), (None, Some(2)));
    bench.press("\x0f");
    assert_eq!(handler(&bench).unwrap().executed, 2);
    bench.press("I1");
    assert_eq!(bench.screen((120, 40)).lines().nth(2), outside.lines().nth(2));
    bench.press("s");
    assert_eq!(handler(&bench), None);
}

#[test]
fn a_handler_is_shown_at_three_sizes() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]i..");
    for size in SIZES {
        insta::assert_snapshot!(format!("within-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("z");
        insta::assert_snapshot!(format!("within-zoomed-{}x{}", size.0, size.1), bench.screen(size));
        bench.press("z");
    }
}

#[test]
fn breakpoints_are_met_both_ways_and_functions_are_left_both_ways() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]bdo_fork\nc");
    let ip = |bench: &Bench| bench.app.scene.as_ref().unwrap().symbol.clone().unwrap();
    assert_eq!(ip(&bench), "do_fork");
    let at = bench.app.at();
    bench.press("sssFN");
    bench.press(&format!("g{at}\n"));
    bench.press("c");
    assert!(bench.app.at() > at);
    bench.press("C");
    assert_eq!((bench.app.at(), ip(&bench)), (at, "do_fork".to_owned()));
}

#[test]
fn panes_are_scrolled_to_their_end_and_back_and_the_console_from_its_end() {
    let mut bench = Bench::new(PLAIN);
    bench.press("3z>");
    let mut screens = vec![bench.screen((80, 24))];
    for key in [KeyCode::End, KeyCode::Up, KeyCode::Home] {
        bench.key(key, KeyModifiers::NONE);
        screens.push(bench.screen((80, 24)));
    }
    assert!(screens[1].contains("xmm7") && screens[1] != screens[0] && screens[2] != screens[1]);
    assert_eq!(screens[3], screens[0]);
    bench.press("7");
    let last = bench.screen((80, 24));
    bench.key(KeyCode::Home, KeyModifiers::NONE);
    let first = bench.screen((80, 24));
    bench.key(KeyCode::End, KeyModifiers::NONE);
    assert_ne!(first, last);
    assert_eq!(bench.screen((80, 24)), last);
}

#[test]
fn a_filter_shows_its_hits_and_moves_go_along_them() {
    let mut bench = Bench::new(PLAIN);
    bench.press("/kmalloc\n");
    assert!(bench.app.rows() > 0 && bench.app.rows() < bench.app.run.hits.len());
    bench.press("]]");
    assert_eq!(bench.app.cursor, bench.app.hit_of(1));
}
