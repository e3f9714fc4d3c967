//! What happened, in words, for people to read and for tests to compare.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::TaskId;
use plimsoll_core::store::{Claim, Claimed, Commit, Outcome, Pick, Receipt, Write};
use plimsoll_core::{Error, Result};

/// Short names for tasks, in the order in which they are first mentioned. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aliases(Arc<Mutex<BTreeMap<TaskId, usize>>>);

impl Aliases {
    pub(crate) fn of(&self, task: TaskId) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = names.len() + 1;
        format!("T{}", names.entry(task).or_insert(next))
    }
}

/// The lines of a run. Nothing is kept unless somebody wants to read it.
#[derive(Debug)]
pub(crate) struct Trace {
    aliases: Aliases,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(kept: bool, aliases: Aliases) -> Self {
        Self {
            aliases,
            lines: kept.then(Vec::new),
        }
    }

    /// Adds a line, which is made only if it is kept.
    pub(crate) fn say(&mut self, at: Duration, who: &str, line: impl FnOnce(&Aliases) -> String) {
        if let Some(lines) = &mut self.lines {
            let text = line(&self.aliases);
            lines.push(format!("{:>12.6} {who:<12} {text}", at.as_secs_f64()));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}

/// What commits ask.
pub(crate) fn commits(commits: &[Commit], aliases: &Aliases) -> String {
    let mut text = String::new();
    for commit in commits {
        text.push('[');
        for (place, write) in commit.writes.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            // Writing to a string cannot fail.
            write!(text, "{comma}{}", one_write(write, aliases)).ok();
        }
        text.push(']');
    }
    text
}

fn one_write(write: &Write, aliases: &Aliases) -> String {
    match write {
        Write::Submit(new) => format!("submit {} {}", aliases.of(new.id), new.lane.kind),
        Write::Settle(settle) => format!(
            "{:?} {}#{}",
            settle.how.verb(),
            aliases.of(settle.holder.task),
            settle.holder.fence
        ),
        Write::Amend(amend) => format!(
            "amend {}#{}",
            aliases.of(amend.holder.task),
            amend.holder.fence
        ),
        Write::Cancel(cancel) => format!("cancel {}", aliases.of(cancel.task)),
        Write::Retry(retry) => format!("retry {} force={}", aliases.of(retry.task), retry.force),
        Write::Prioritise(task, to) => format!("prioritise {} {}", aliases.of(*task), to.get()),
        Write::Promote(task) => format!("promote {}", aliases.of(*task)),
        Write::Expire(expire) => format!("expire {}#{}", aliases.of(expire.task), expire.fence),
        Write::DeleteTask(task) => format!("delete {}", aliases.of(*task)),
        Write::OpenGroup(new) => format!("open {}", new.id),
        Write::Seal(group) => format!("seal {group}"),
        Write::Log(log) => format!("log {}#{}", aliases.of(log.holder.task), log.holder.fence),
        Write::Put(put) => format!("put {}", put.key),
        Write::Merge(merge) => format!("merge {}", merge.key),
        Write::Delete(key) => format!("delete {key}"),
        Write::Touch(key, _) => format!("touch {key}"),
        Write::ExpireRecord(key) => format!("expire {key}"),
        Write::Arrive(..) | Write::Reopen(_) | Write::Tally(_) | Write::DeleteGroup(_) => {
            "group".to_owned()
        }
    }
}

/// What a claim asks.
pub(crate) fn claim(claim: &Claim) -> String {
    match &claim.pick {
        Pick::Next { lanes, limit } => format!("claim {limit} of {} lanes", lanes.len()),
        Pick::Ids(ids) => format!("claim {} by id", ids.len()),
    }
}

/// What commits came to.
pub(crate) fn receipts(results: &[Result<Receipt>]) -> String {
    let one = |result: &Result<Receipt>| match result {
        Ok(receipt) => {
            let at = receipt.position.map_or(0, |position| position.get());
            let again = if receipt.repeated { " again" } else { "" };
            let what = receipt
                .outcomes
                .first()
                .map_or("", |outcome| match outcome {
                    Outcome::Settled { status, .. }
                    | Outcome::Changed { status, .. }
                    | Outcome::Already { status } => status.as_str(),
                    _ => "ok",
                });
            format!("{what}{again}@{at}")
        }
        Err(error) => error_word(error),
    };
    results.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What a claim took.
pub(crate) fn claimed(claimed: &Claimed, aliases: &Aliases) -> String {
    let one =
        |task: &plimsoll_core::task::Task| format!("{}#{}", aliases.of(task.id()), task.fence);
    let taken: Vec<String> = claimed.tasks.iter().map(one).collect();
    format!("took [{}]", taken.join(" "))
}

pub(crate) fn error_word(error: &Error) -> String {
    format!("{}!", error.code())
}
