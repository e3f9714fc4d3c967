//! Logs: what a handler logged is there in order and once; all of it when its attempt was settled,
//! otherwise what comes first of it.

use futures::FutureExt;
use plimsoll_core::log::{Level, Line};
use plimsoll_core::store::Logs;
use plimsoll_core::task::Holder;
use plimsoll_core::{Store, TaskId};

use super::{Attempt, Checker};

/// A line, as its handler knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Line(String),
    Started(String),
    Ended(String),
}

impl From<Line> for Said {
    fn from(line: Line) -> Self {
        match line.line.step {
            None => Self::Line(line.line.message),
            Some(step) if step.completed_at.is_none() => Self::Started(step.step_id.to_string()),
            Some(step) => Self::Ended(step.step_id.to_string()),
        }
    }
}

impl Checker {
    /// A handler is about to append a line.
    pub(crate) fn says(&mut self, holder: &Holder, said: Said) {
        let attempt = (holder.task, holder.fence);
        self.said.entry(attempt).or_default().push(said);
    }

    /// An attempt has ended; `settled`: by its holder.
    pub(super) fn look_at_log(&mut self, attempt: Attempt, settled: bool) {
        let Some(said) = self.said.remove(&attempt) else {
            return;
        };
        let Some(lines) = self.log_of(attempt.0) else {
            return self.blame("logs", "a log cannot be read".into());
        };
        let of_attempt = lines.into_iter().filter(|line| line.fence == attempt.1);
        let stored: Vec<Said> = of_attempt.map(Said::from).collect();
        self.figures.lines_stored += stored.len() as u64;
        self.figures.lines_lost += (said.len().saturating_sub(stored.len())) as u64;
        let whole = stored.len() == said.len() || !settled;
        if !whole || !said.starts_with(&stored) {
            let (name, fence) = (self.name(attempt.0), attempt.1);
            let wrong = format!("{name}#{fence} logged {said:?}, there is {stored:?}");
            self.blame("logs", wrong);
        }
    }

    fn log_of(&self, task: TaskId) -> Option<Vec<Line>> {
        let (mut lines, mut cursor) = (Vec::new(), None);
        loop {
            let logs = Logs {
                task,
                level: Level::Debug,
                cursor,
                limit: 1_000,
            };
            let page = self.source.live()?.logs(logs).now_or_never()?.ok()?;
            lines.extend(page.lines);
            if !page.more {
                return Some(lines);
            }
            cursor = Some(page.next);
        }
    }
}
