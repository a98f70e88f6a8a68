//! Colours and characters of the screen. No information is shown by colour alone.

use ratatui::style::{Color, Modifier, Style};

/// The colours that a screen uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colours {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// No colours: bold, underlined and reversed text only.
    None,
}

/// The style of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Colours, of the sixteen that every terminal has.
    pub colours: Colours,
    /// Whether the terminal shows UTF-8.
    pub utf8: bool,
}

impl Look {
    fn coloured(self, dark: Color, light: Color) -> Style {
        match self.colours {
            Colours::Dark => Style::new().fg(dark),
            Colours::Light => Style::new().fg(light),
            Colours::None => Style::new(),
        }
    }

    /// Changed values.
    pub fn changed(self) -> Style {
        self.coloured(Color::Yellow, Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The position of the timeline.
    pub fn here(self) -> Style {
        self.coloured(Color::Green, Color::Blue).add_modifier(Modifier::BOLD)
    }

    /// Less important text.
    pub fn faint(self) -> Style {
        self.coloured(Color::DarkGray, Color::DarkGray)
    }

    /// Names.
    pub fn name(self) -> Style {
        self.coloured(Color::Cyan, Color::Blue)
    }

    /// Errors.
    pub fn bad(self) -> Style {
        self.coloured(Color::Red, Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The selection.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The border of the focused pane.
    pub fn focused(self) -> Style {
        self.coloured(Color::Green, Color::Blue).add_modifier(Modifier::BOLD)
    }

    /// Characters for a share of eight.
    pub fn bar(self, eighths: usize) -> char {
        let all = if self.utf8 {
            [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            [' ', '.', ':', '-', '=', '+', '*', '#', '@']
        };
        all.get(eighths.min(8)).copied().unwrap_or(' ')
    }

    /// A bar from left to right, of so many eighths of a character.
    pub fn across(self, eighths: usize) -> String {
        if !self.utf8 {
            return "#".repeat(eighths.div_ceil(8));
        }
        let part = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        let last = (eighths % 8).checked_sub(1).and_then(|part_of| part.get(part_of));
        "█".repeat(eighths / 8).chars().chain(last.copied()).collect()
    }

    /// The next colours in the cycle.
    #[must_use]
    pub const fn next(self) -> Self {
        let colours = match self.colours {
            Colours::Dark => Colours::Light,
            Colours::Light => Colours::None,
            Colours::None => Colours::Dark,
        };
        Self { colours, ..self }
    }
}
