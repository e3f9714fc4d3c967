//! What a run shows while it runs, on standard error: bars on a terminal, a few lines elsewhere.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::books::Books;
use super::fleet::{Fleet, State};
use crate::table::grouped;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

pub(super) struct Display {
    all: MultiProgress,
    workers: Vec<ProgressBar>,
    total: ProgressBar,
    next_line: Duration,
}

impl Display {
    pub(super) fn new(workers: usize, expected: u64) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        // Whoever goes on does the work of who does not: a bar is full at twice the fair share.
        let share = expected * 2 / workers as u64;
        let bar = |length: u64, prefix: String, colour: &str| {
            let bar = ProgressBar::hidden();
            bar.set_style(style(colour));
            bar.set_prefix(prefix);
            bar.set_length(length.max(1));
            all.add(bar)
        };
        let of_worker = |worker| bar(share, format!("worker {worker}"), "green");
        let workers: Vec<ProgressBar> = (1..=workers).map(of_worker).collect();
        let total = bar(expected, "all".into(), "cyan");
        Self {
            all,
            workers,
            total,
            next_line: LINE_EVERY,
        }
    }

    /// Whether nobody sees the bars.
    fn is_plain(&self) -> bool {
        self.all.is_hidden()
    }

    /// Says what happens, and when.
    pub(super) fn note(&self, now: Duration, text: &str) {
        let text = format!("{:6.1} s  {text}", now.as_secs_f64());
        if self.is_plain() {
            eprintln!("{text}");
        } else {
            // If the terminal is gone, nobody misses it.
            self.all.println(text).ok();
        }
    }

    pub(super) fn update(&mut self, now: Duration, fleet: &Fleet, books: &Books) {
        for (bar, member) in self.workers.iter().zip(&fleet.members) {
            let (colour, words) = match (member.state, member.report().running) {
                (State::Killed, _) => ("red", "killed".into()),
                (State::Frozen, _) => ("yellow", "frozen".into()),
                (State::Working | State::Thawed, 0) => ("green", String::new()),
                (State::Working | State::Thawed, held) => ("green", format!("{held} at work")),
            };
            bar.set_style(style(colour));
            bar.set_message(words);
            bar.set_position(member.completed());
        }
        let rate = books.completed as f64 / now.as_secs_f64().max(0.1);
        let mut words = format!(
            "of {}, {} a second",
            grouped(self.total.length().unwrap_or(0)),
            grouped(rate as u64)
        );
        if fleet.kills > 1 {
            words += &format!(", {} killed, {} frozen", fleet.kills, fleet.freezes);
        }
        if self.is_plain() && now >= self.next_line {
            self.next_line = now + LINE_EVERY;
            self.note(now, &format!("{} {words}", grouped(books.completed)));
        }
        self.total.set_position(books.completed);
        self.total.set_message(words);
    }
}

/// The bars stay as they are, also when somebody loses patience.
impl Drop for Display {
    fn drop(&mut self) {
        for bar in self.workers.iter().chain([&self.total]) {
            bar.abandon();
        }
        if !self.is_plain() {
            // The last bar has no end of line.
            eprintln!();
        }
    }
}

fn style(colour: &str) -> ProgressStyle {
    let template =
        format!("{{prefix:9}} {{bar:24.{colour}/dim}} {{human_pos:>7}} {{msg:.{colour}}}");
    let style = ProgressStyle::with_template(&template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━━─")
}
