//! The colours of the screen; without colours, only weight.

use ratatui::style::{Color, Modifier, Style};

use super::state::Tone;

/// The colours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    /// Whether there are colours (`NO_COLOR`, `--color`).
    pub(super) is_colored: bool,
}

impl Palette {
    fn color(self, color: Color) -> Style {
        if self.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    /// Names and addresses.
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What explains something else.
    pub(super) fn quiet(self) -> Style {
        self.color(Color::DarkGray)
    }

    pub(super) fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub(super) fn warning(self) -> Style {
        self.color(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.color(Color::Red)
    }

    /// The chosen row.
    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The colour of a status; `None`: there is no answer yet.
    pub(super) fn status(self, status: Option<u16>) -> Style {
        match status {
            None | Some(0..=199) => self.quiet(),
            Some(200..=299) => self.good(),
            Some(300..=399) => self.color(Color::Cyan),
            Some(400..=499) => self.warning(),
            Some(500..) => self.bad(),
        }
    }

    pub(super) fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Quiet => self.quiet(),
            Tone::Good => self.good(),
            Tone::Warning => self.warning(),
            Tone::Bad => self.bad(),
        }
    }
}
