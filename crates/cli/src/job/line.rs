//! A line on a terminal, which is no wider than that.

use crate::screen::{Screen, Tint};
use crate::text::{clean, cut};

/// A line as it is written, from left to right.
pub(super) struct Line<'a> {
    text: String,
    left: usize,
    screen: &'a Screen,
}

impl<'a> Line<'a> {
    pub(super) fn new(width: usize, screen: &'a Screen) -> Self {
        Self {
            text: String::new(),
            left: width,
            screen,
        }
    }

    /// Adds this, or as much of it as there is room for.
    pub(super) fn add(mut self, tint: Tint, text: &str) -> Self {
        let text = cut(text, self.left);
        if self.left > 0 {
            self.left -= console::measure_text_width(&text).min(self.left);
            self.text += &self.screen.paint(tint, &text);
        }
        self
    }

    /// Adds what somebody else has written, two blanks after what is there; nothing, if it is empty.
    pub(super) fn say(self, tint: Tint, text: &str) -> Self {
        match clean(text) {
            text if text.is_empty() => self,
            text => self.add(Tint::Plain, "  ").add(tint, &text),
        }
    }

    /// Adds what is painted already and so wide, if there is room for it.
    pub(super) fn painted(mut self, text: &str, width: usize) -> Self {
        if width <= self.left {
            self.left -= width;
            self.text += text;
        }
        self
    }

    pub(super) fn end(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_wider_than_its_screen() {
        let screen = Screen::plain(None);
        let line = |width| {
            let line = Line::new(width, &screen).add(Tint::Strong, "import-7");
            let line = line.say(Tint::Bad, "no\nroute").say(Tint::Plain, "");
            line.painted("━━━", 3).end()
        };
        assert_eq!(line(21), "import-7  no route━━━");
        assert_eq!(line(20), "import-7  no route");
        assert_eq!(line(15), "import-7  no r…");
        assert_eq!(line(8), "import-7");
        assert_eq!(line(0), "");
    }
}
