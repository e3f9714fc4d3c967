//! What need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::TaskId;
use plimsoll_core::decide::Rows;
use plimsoll_core::store::{Commit, Guard, Write};
use plimsoll_core::task::Task;

use super::{About, Part};
use crate::claims;
use crate::held::Taken;
use crate::load::Loaded;

/// The task that a write of its holder changes.
pub(super) fn held_task(write: &Write) -> Option<TaskId> {
    match write {
        Write::Settle(settle) => Some(settle.holder.task),
        Write::Amend(amend) => Some(amend.holder.task),
        _ => None,
    }
}

/// The tasks that a commit only wants to be held.
fn seen(commit: &Commit) -> impl Iterator<Item = TaskId> {
    let logged = commit.writes.iter().filter_map(|write| match write {
        Write::Log(log) => Some(log.holder.task),
        _ => None,
    });
    let guarded = commit.guards.iter().filter_map(|guard| match guard {
        Guard::Held(holder) => Some(holder.task),
        _ => None,
    });
    logged.chain(guarded)
}

/// The task that its holder amends, and that stays claimed.
fn amended_task(write: &Write) -> Option<TaskId> {
    match write {
        Write::Amend(amend) => Some(amend.holder.task),
        _ => None,
    }
}

/// Tasks that need not be read, as they are assumed to be: new ones do not exist, and those that
/// this process holds are as it has written them. Writing them, or locking their claims, finds out.
pub(super) struct Assumed<'a> {
    new: BTreeSet<TaskId>,
    pub(super) held: Taken<'a>,
}

impl<'a> Assumed<'a> {
    /// What can be assumed of the tasks of these commits. For a submit that needs another row,
    /// reading the task as well costs no further turn.
    pub(super) fn of(commits: &[Commit], about: About<'a>) -> Self {
        let writes = || commits.iter().flat_map(|commit| &commit.writes);
        let new = writes().filter_map(|write| match write {
            Write::Submit(new) if new.key.is_none() && new.group.is_none() => Some(new.id),
            _ => None,
        });
        let (written, seen) = (
            writes().filter_map(held_task),
            commits.iter().flat_map(seen),
        );
        Self {
            new: new.collect(),
            held: about.held.take(about.ns, written, seen),
        }
    }

    /// Nothing.
    pub(super) fn nothing(about: About<'a>) -> Self {
        Self::of(&[], about)
    }

    pub(super) fn load(&self, loaded: &mut Loaded) {
        for id in &self.new {
            loaded.rows.tasks.load(*id, None);
        }
        for (id, holding) in &self.held.tasks {
            loaded.newest = holding.task.revision.max(loaded.newest);
            loaded.rows.tasks.load(*id, Some(holding.task.clone()));
        }
    }

    /// Whether everything that was assumed is going to be found out.
    pub(super) fn is_verified(&self, rows: &Rows) -> bool {
        let after = |id: &TaskId| rows.tasks.get(id).flatten();
        let mut held = self.held.tasks.iter();
        self.new.iter().all(|id| after(id).is_some())
            && held.all(|(id, holding)| {
                let changed = |after: &Arc<Task>| after.revision != holding.task.revision;
                holding.claim.is_some() || after(id).is_none_or(changed)
            })
    }
}

/// The claims that are written without being read: those of the tasks that this process settles,
/// and those of which it prolongs all that they hold.
pub(super) fn claims_of(
    about: About<'_>,
    part: &Part,
    assumed: &Assumed<'_>,
    cautious: bool,
) -> claims::Assumed {
    let writes = part.commits.iter().flat_map(|commit| &commit.writes);
    let amended = writes.filter_map(amended_task).collect();
    let renew = part.renew.iter().filter(|_| !cautious);
    let holders = renew.flat_map(|renew| renew.holders.iter().cloned());
    let prolonged = about.held.whole(about.ns, holders);
    claims::Assumed::new(&assumed.held, &amended, prolonged)
}
