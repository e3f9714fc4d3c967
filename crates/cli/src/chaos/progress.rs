//! What a run shows while it runs, on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// One line that changes on a terminal, a line now and then elsewhere.
pub(super) struct Progress {
    bar: ProgressBar,
    next_line: Duration,
}

impl Progress {
    pub(super) fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self {
            bar: ProgressBar::new_spinner().with_style(style),
            next_line: LINE_EVERY,
        }
    }

    pub(super) fn show(&mut self, now: Duration, words: impl FnOnce() -> String) {
        if !self.bar.is_hidden() {
            self.bar.set_message(words());
            self.bar.tick();
        } else if now >= self.next_line {
            self.next_line = now + LINE_EVERY;
            eprintln!("{:6.1} s  {}", now.as_secs_f64(), words());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
