//! Logs: what a handler logged is there when its success is.

use futures::FutureExt;
use plimsoll_core::log::Level;
use plimsoll_core::store::Logs;
use plimsoll_core::{Fence, Store, TaskId};

use super::Checker;

impl Checker {
    /// The attempt has completed, and has logged so many lines: their numbers, from zero.
    pub(super) fn look_at_log(&mut self, task: TaskId, fence: Fence, lines: i64) {
        let (mut said, mut cursor) = (Vec::new(), None);
        loop {
            let logs = Logs {
                task,
                level: Level::Debug,
                cursor,
                limit: 1_000,
            };
            let Some(Ok(page)) = self.store.logs(logs).now_or_never() else {
                return self.blame("logs", "a log cannot be read".into());
            };
            let of_attempt = page.lines.into_iter().filter(|line| line.fence == fence);
            said.extend(of_attempt.filter_map(|line| line.line.message.parse::<i64>().ok()));
            if !page.more {
                break;
            }
            cursor = Some(page.next);
        }
        if !said.iter().copied().eq(0..lines) {
            let name = self.name(task);
            let wrong = format!("{name}#{fence} logged {lines} lines, there are {said:?}");
            self.blame("logs", wrong);
        }
    }
}
