//! What need not be read.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::decide::Rows;
use plimsoll_core::store::{Commit, Guard, Write};
use plimsoll_core::task::{NewTask, Task};
use plimsoll_core::{IdempotencyKey, TaskId};

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

fn submits(commit: &Commit) -> impl Iterator<Item = &NewTask> {
    commit.writes.iter().filter_map(|write| match write {
        Write::Submit(new) => Some(&**new),
        _ => None,
    })
}

/// The keys that tasks are submitted under.
pub(super) fn keys(commits: &[Commit]) -> impl Iterator<Item = &IdempotencyKey> {
    let requests = commits.iter().flat_map(submits);
    requests.filter_map(|new| new.key.as_ref().map(|request| &request.key))
}

/// What need not be read, as it is assumed to be: new tasks do not exist, their keys are free, and tasks
/// that this process holds are as it has written them. Writing them, or locking their claims, finds out.
pub(super) struct Assumed<'a> {
    new: BTreeSet<TaskId>,
    free: Vec<IdempotencyKey>,
    pub(super) held: Taken<'a>,
}

impl<'a> Assumed<'a> {
    /// What can be assumed of the tasks of these commits. For a submit that needs another row, reading the task
    /// and its key as well costs no further turn.
    pub(super) fn of(commits: &[Commit], about: About<'a>) -> Self {
        let writes = commits.iter().flat_map(|commit| &commit.writes);
        let keys_are_free = !about.taken_keys.are_likely(about.ns);
        let (mut new, mut free) = (BTreeSet::new(), Vec::new());
        for commit in commits {
            let looks = !keys_are_free || !commit.guards.is_empty() || commit.id.is_some();
            for task in submits(commit).filter(|task| task.group.is_none()) {
                match &task.key {
                    Some(_) if looks => continue,
                    Some(request) => free.push(request.key.clone()),
                    None => {}
                }
                new.insert(task.id);
            }
        }
        let (written, seen) = (writes.filter_map(held_task), commits.iter().flat_map(seen));
        Self {
            new,
            free,
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
        for key in &self.free {
            loaded.rows.keys.load(key.clone(), None);
        }
        for (id, holding) in &self.held.tasks {
            loaded.newest = holding.task.revision.max(loaded.newest);
            loaded.rows.tasks.load(*id, Some(holding.task.clone()));
        }
    }

    /// Whether keys are assumed to be free.
    pub(super) fn has_keys(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether everything that was assumed is going to be found out.
    pub(super) fn is_verified(&self, rows: &Rows) -> bool {
        let after = |id: &TaskId| rows.tasks.get(id).flatten();
        let mut held = self.held.tasks.iter();
        let is_given = |key| rows.keys.get(key).flatten().is_some();
        self.new.iter().all(|id| after(id).is_some())
            && self.free.iter().all(is_given)
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

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::clock::SystemClock;
    use plimsoll_core::ids::CommitId;
    use plimsoll_core::task::Lane;
    use plimsoll_core::{Key, Limits};

    use super::*;
    use crate::floors::Floors;
    use crate::held::Held;
    use crate::stuck::Stuck;
    use crate::taken_keys::TakenKeys;

    fn submit(id: u128, key: Option<&str>) -> NewTask {
        let lane = Lane::new("queue", "kind").expect("a lane");
        let new = NewTask::new(TaskId::from_u128(id), lane, "payload");
        match key {
            Some(key) => new.key(key.try_into().expect("a key")),
            None => new,
        }
    }

    fn commit(new: NewTask) -> Commit {
        Commit::of(Write::Submit(Box::new(new)))
    }

    /// The tasks that are assumed to be new, and the keys that are assumed to be free.
    fn assumed(commits: &[Commit], taken: bool) -> (Vec<u128>, Vec<String>) {
        let (limits, clock) = (Limits::default(), SystemClock::new());
        let (held, stuck) = (Held::default(), Stuck::default());
        let (taken_keys, floors) = (TakenKeys::default(), Floors::default());
        taken_keys.learn(1, taken);
        let about = About {
            ns: 1,
            limits: &limits,
            clock: &clock,
            off: Duration::ZERO,
            held: &held,
            stuck: &stuck,
            taken_keys: &taken_keys,
            listening: None,
            floors: &floors,
        };
        let mut loaded = Loaded::default();
        let assumed = Assumed::of(commits, about);
        assumed.load(&mut loaded);
        assert_eq!(assumed.has_keys(), !assumed.free.is_empty());
        for id in &assumed.new {
            assert_eq!(loaded.rows.tasks.get(id), Some(None));
        }
        for key in &assumed.free {
            assert_eq!(loaded.rows.keys.get(key), Some(None));
        }
        let new = assumed.new.iter().map(|id| id.as_u128());
        (
            new.collect(),
            assumed.free.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn nothing_is_read_for_new_tasks_unless_keys_were_taken_lately() {
        let commits = [
            commit(submit(1, None)),
            commit(submit(2, Some("a"))).write(Write::Submit(Box::new(submit(3, Some("b"))))),
        ];
        let both = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(assumed(&commits, false), (vec![1, 2, 3], both));
        assert_eq!(assumed(&commits, true), (vec![1], vec![]));
    }

    #[test]
    fn what_needs_another_row_is_read_with_its_key() {
        let group = "group".try_into().expect("a group");
        let record = Guard::RecordAbsent(Key::new("key").expect("a key"));
        let mut repeatable = commit(submit(3, Some("c")));
        repeatable.id = Some(CommitId::from_u128(1));
        let commits = [
            commit(submit(1, Some("a")).group(group)),
            commit(submit(2, Some("b"))).guard(record),
            repeatable,
        ];
        assert_eq!(assumed(&commits, false), (vec![], vec![]));
    }
}
