//! Draws what `trapline top` shows, on a screen of any size.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use trapline_export::profile::{By, Count, Moment, Table, Top, grouped, percent};

use crate::theme::Look;

/// What the keys do. The line below the tables, and the manual page, say it.
pub const TOP_KEYS: &[(&str, &str)] =
    &[("q", "quit"), ("f", "functions"), ("p", "processes"), ("Space", "pause"), ("r", "reset the counts")];

/// What the run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Runs,
    /// The user has paused it.
    Paused,
    /// It has ended; the reason.
    Ended(String),
}

/// What is on the screen.
#[derive(Debug, Clone)]
pub struct View {
    title: String,
    /// The table that is shown.
    pub by: By,
    /// What the run does.
    pub state: State,
    functions: Table,
    processes: Table,
    now: Moment,
    busy: f64,
    /// Instructions in a second of the host; none before the first refresh.
    speed: Option<f64>,
}

impl View {
    /// The screen before anything has run.
    pub fn new(title: String) -> Self {
        Self {
            title,
            by: By::Function,
            state: State::Runs,
            functions: Table::new(By::Function),
            processes: Table::new(By::Process),
            now: Moment::default(),
            busy: 0.0,
            speed: None,
        }
    }

    /// Shows the present counts; so much of the host's time has passed since the last refresh.
    pub fn renew(&mut self, top: &Top, passed: Duration) {
        (self.functions, self.processes) = (top.functions.clone(), top.processes.clone());
        let from = top.refreshed();
        self.now = top.now();
        self.busy = self.now.busy_since(from);
        let insns = self.now.icount.saturating_sub(from.icount);
        let seconds = passed.as_secs_f64();
        self.speed = (seconds > 0.0 && from.icount > 0).then(|| insns as f64 / seconds);
    }

    fn table(&self) -> &Table {
        if self.by == By::Process { &self.processes } else { &self.functions }
    }

    /// The first line.
    fn head(&self) -> String {
        let state = match &self.state {
            State::Runs => String::new(),
            State::Paused => "  paused".to_owned(),
            State::Ended(reason) => format!("  {reason}"),
        };
        let speed = self.speed.filter(|_| self.state == State::Runs);
        let speed = speed.map(|speed| format!("  {:.1} M/s", speed / 1e6)).unwrap_or_default();
        let (ms, insns) = (self.now.time_ns / 1_000_000, grouped(self.now.icount));
        let time = format!("{}.{:03} s", ms / 1000, ms % 1000);
        format!("{}  {time}  {insns} instructions{speed}  busy {:.0}%{state}", self.title, self.busy)
    }

    fn row(&self, (name, count): (&str, Count)) -> String {
        let sum = self.table().sum();
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        format!("{:6.2}% {:6.2}%  {name}", percent(count.now, sum.now), percent(count.all, sum.all))
    }
}

/// The keys, in a line.
fn keys() -> String {
    let keys: Vec<String> = TOP_KEYS.iter().map(|(key, what)| format!("{key} {what}")).collect();
    keys.join("  ")
}

/// Draws the screen.
pub fn draw(view: &View, look: Look, frame: &mut Frame<'_>) {
    let area = frame.area();
    let mut put = |y: u16, text: String, style: Style| {
        if y < area.height {
            let line = Rect { y: area.y + y, height: 1, ..area };
            frame.render_widget(Paragraph::new(Line::styled(text, style)), line);
        }
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    put(0, view.head(), bold);
    put(1, format!("    now  in all  {}", view.table().by().word()), look.selected());
    // The last line has the keys, if there is room for a row above it.
    let last = area.height.saturating_sub(1);
    let rows = view.table().hottest();
    for (y, row) in (2..if last > 2 { last } else { area.height }).zip(rows) {
        put(y, view.row(row), Style::new());
    }
    if last > 2 {
        put(last, keys(), look.faint());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Colours;
    use ratatui::backend::TestBackend;

    fn shown(width: u16, height: u16, view: &View) -> String {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        let look = Look { colours: Colours::None, utf8: false };
        terminal.draw(|frame| draw(view, look, frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
        (0..height).map(|y| format!("{}\n", line(y).trim_end())).collect()
    }

    fn view() -> View {
        let mut top = Top::default();
        for (name, count) in [("vmlinux`memcpy", 30), ("vmlinux`\x1b[2Jmemset", 10)] {
            top.functions.count(name, count);
        }
        top.processes.count("init (1)", 40);
        let mut view = View::new("bzImage".to_owned());
        view.renew(&top, Duration::from_millis(500));
        view
    }

    #[test]
    fn the_hottest_functions_or_processes_are_shown() {
        let mut view = view();
        let head = "bzImage  0.000 s  0 instructions  busy 0%";
        let keys = "q quit  f functions  p processes  Space pause  r reset the counts";
        let rows = " 75.00%  75.00%  vmlinux`memcpy\n 25.00%  25.00%  vmlinux`?[2Jmemset\n";
        let wanted = format!("{head}\n    now  in all  function\n{rows}\n{keys}\n");
        assert_eq!(shown(80, 6, &view), wanted);
        (view.by, view.state) = (By::Process, State::Ended("the guest halted".to_owned()));
        let shown = shown(80, 4, &view);
        assert!(
            shown.starts_with(&format!("{head}  the guest halted\n    now  in all  process\n")),
            "{shown}"
        );
        assert!(shown.contains("100.00% 100.00%  init (1)\n"), "{shown}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let view = view();
        for (width, height) in (0..12).flat_map(|w| (0..8).map(move |h| (w, h))).chain([(500, 1), (1, 500)]) {
            assert_eq!(shown(width, height, &view).lines().count(), usize::from(height));
        }
    }
}
