//! Tasks that this process holds, as it has written them.
//!
//! Whoever settles such a task need not read it. If it has a row of its own, writing it finds out
//! if it is still the same. If its claim is all there is of it, locking the claim finds out, but
//! nobody could tell two writers of this process apart: so one at a time gets it from here, and
//! others read.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::task::{Holder, Status, Task};
use plimsoll_core::{Revision, TaskId, Timestamp};

use crate::codec::Id;

/// How many are kept. Beyond, all are forgotten: they are read again when they are needed.
const HELD_MAX: usize = 100_000;

/// Tasks that this process holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    /// By namespace and id.
    tasks: HashMap<(i32, TaskId), Holding>,
    /// By namespace and request.
    claims: HashMap<(i32, Id), Rest>,
    /// Claims of which nothing is left, by namespace.
    spent: HashMap<i32, Vec<Id>>,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(crate) task: Arc<Task>,
    /// The claim that is all there is of it.
    pub(crate) claim: Option<Id>,
}

/// A task as a transaction has written it.
///
/// It is taken in some time after the commit. Others may have been faster: the revision tells.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) id: TaskId,
    born: Revision,
    /// Of a task that was removed, the last one that it had.
    revision: Revision,
    /// The task, if it is claimed. It has a row now.
    claimed: Option<Arc<Task>>,
}

impl Written {
    pub(crate) fn changed(task: &Arc<Task>) -> Self {
        let claimed = task.status == Status::Claimed;
        Self {
            claimed: claimed.then(|| task.clone()),
            ..Self::removed(task)
        }
    }

    pub(crate) fn removed(task: &Task) -> Self {
        Self {
            id: task.id(),
            born: task.spec.born,
            revision: task.revision,
            claimed: None,
        }
    }
}

/// How many tasks a claim still holds. One that was forgotten here counts, too.
#[derive(Debug)]
struct Rest {
    left: usize,
    /// How many of these somebody has taken from here.
    taken: usize,
}

impl Held {
    /// These tasks as they were written last, as far as they are known and nobody else has them.
    /// Those that are only `seen` come if a claim is all there is of them: nothing else would find
    /// out how they are.
    pub(crate) fn take(
        &self,
        ns: i32,
        written: impl Iterator<Item = TaskId>,
        seen: impl Iterator<Item = TaskId>,
    ) -> Taken<'_> {
        let mut all = self.lock();
        let mut tasks = BTreeMap::new();
        let wanted = written.map(|id| (id, true));
        for (id, written) in wanted.chain(seen.map(|id| (id, false))) {
            let Some(holding) = all.tasks.get(&(ns, id)).cloned() else {
                continue;
            };
            match holding.claim {
                Some(claim) => {
                    all.tasks.remove(&(ns, id));
                    if let Some(rest) = all.claims.get_mut(&(ns, claim)) {
                        rest.taken += 1;
                    }
                }
                None if written => {}
                None => continue,
            }
            tasks.insert(id, holding);
        }
        Taken {
            held: self,
            ns,
            tasks,
        }
    }

    /// Those of the holders' tasks that are all their claims hold, but for what somebody else has
    /// taken to write it, by claim.
    pub(crate) fn whole(
        &self,
        ns: i32,
        holders: impl IntoIterator<Item = Holder>,
    ) -> BTreeMap<Id, Vec<Arc<Task>>> {
        let all = self.lock();
        let mut claims: BTreeMap<Id, BTreeMap<TaskId, Arc<Task>>> = BTreeMap::new();
        for holder in holders {
            let holding = all.tasks.get(&(ns, holder.task));
            if let Some(holding) = holding
                && let Some(claim) = holding.claim
                && holding.task.holder().as_ref() == Some(&holder)
            {
                let tasks = claims.entry(claim).or_default();
                tasks.insert(holder.task, holding.task.clone());
            }
        }
        claims.retain(|claim, tasks| {
            let rest = all.claims.get(&(ns, *claim));
            rest.is_some_and(|rest| rest.left == rest.taken + tasks.len())
        });
        let tasks = |tasks: BTreeMap<_, _>| tasks.into_values().collect();
        (claims.into_iter())
            .map(|(claim, of)| (claim, tasks(of)))
            .collect()
    }

    /// Claims of which nothing is left, to be closed. They are told once.
    pub(crate) fn spent(&self, ns: i32) -> Vec<Id> {
        self.lock().spent.remove(&ns).unwrap_or_default()
    }

    /// Takes in what was committed: tasks that are claimed have a row now and are kept, others are
    /// not. What is known already, but written later, stays as it is. A renewal gives a task a row
    /// without another revision.
    pub(crate) fn committed(&self, ns: i32, written: impl IntoIterator<Item = Written>) {
        let mut all = self.lock();
        for written in written {
            let place = (ns, written.id);
            let claim = match all.tasks.get(&place) {
                Some(known) if known.task.spec.born != written.born => {
                    // Which of two tasks with the same id is the later one, nobody can tell.
                    all.tasks.remove(&place);
                    continue;
                }
                Some(known) if known.task.revision > written.revision => continue,
                known => known.and_then(|known| known.claim),
            };
            match written.claimed {
                Some(task) => drop(all.tasks.insert(place, Holding { task, claim: None })),
                None => drop(all.tasks.remove(&place)),
            }
            if let Some(claim) = claim {
                all.leave(ns, claim, 1);
            }
        }
        all.bound();
    }

    /// Takes in tasks of which this claim is all there is.
    pub(crate) fn claimed(&self, ns: i32, claim: Id, tasks: Vec<Arc<Task>>) {
        let mut all = self.lock();
        let rest = Rest {
            left: tasks.len(),
            taken: 0,
        };
        all.claims.insert((ns, claim), rest);
        for task in tasks {
            let claim = Some(claim);
            all.tasks.insert((ns, task.id()), Holding { task, claim });
        }
        all.bound();
    }

    /// Takes in leases that end at another time.
    pub(crate) fn renewed(&self, ns: i32, renewed: impl IntoIterator<Item = (TaskId, Timestamp)>) {
        let mut all = self.lock();
        for (id, until) in renewed {
            if let Some(holding) = all.tasks.get_mut(&(ns, id))
                && let Some(lease) = &mut Arc::make_mut(&mut holding.task).lease
            {
                lease.until = until;
            }
        }
    }

    /// Forgets tasks of which it is not known how they are.
    pub(crate) fn forget(&self, ns: i32, ids: impl IntoIterator<Item = TaskId>) {
        let mut all = self.lock();
        for id in ids {
            all.tasks.remove(&(ns, id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    /// So many tasks have left a claim.
    fn leave(&mut self, ns: i32, claim: Id, tasks: usize) {
        let Some(rest) = self.claims.get_mut(&(ns, claim)) else {
            return;
        };
        rest.left = rest.left.saturating_sub(tasks);
        if rest.left == 0 {
            self.claims.remove(&(ns, claim));
            self.spent.entry(ns).or_default().push(claim);
        }
    }

    fn bound(&mut self) {
        if self.tasks.len().max(self.claims.len()) > HELD_MAX {
            *self = Self::default();
        }
    }
}

/// Tasks that one writer has. If it gives up, those without a row are forgotten: nobody knows how
/// they are.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    held: &'a Held,
    ns: i32,
    pub(crate) tasks: BTreeMap<TaskId, Holding>,
}

impl Taken<'_> {
    /// Those of which a claim is all there is, and the claim.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&Arc<Task>, Id)> {
        (self.tasks.values()).filter_map(|holding| Some((&holding.task, holding.claim?)))
    }

    /// The claims of which nothing is left if the tasks that `leaves` names leave them.
    pub(crate) fn last(&self, leaves: impl Fn(TaskId) -> bool) -> Vec<Id> {
        let mut leaving: BTreeMap<Id, usize> = BTreeMap::new();
        for (_, claim) in self.claims().filter(|(task, _)| leaves(task.id())) {
            *leaving.entry(claim).or_default() += 1;
        }
        let all = self.held.lock();
        let is_last = |claim: &Id, tasks: usize| {
            let rest = all.claims.get(&(self.ns, *claim));
            rest.is_some_and(|rest| rest.left == tasks)
        };
        (leaving.into_iter())
            .filter_map(|(claim, tasks)| is_last(&claim, tasks).then_some(claim))
            .collect()
    }

    /// It was committed. What `leaves` names has left its claim, the rest is given back; `closed`
    /// are claims that were closed with it.
    pub(crate) fn committed(mut self, leaves: impl Fn(TaskId) -> bool, closed: &[Id]) {
        let mut all = self.held.lock();
        for claim in closed {
            all.claims.remove(&(self.ns, *claim));
        }
        for (id, holding) in std::mem::take(&mut self.tasks) {
            let Some(claim) = holding.claim else { continue };
            if let Some(rest) = all.claims.get_mut(&(self.ns, claim)) {
                rest.taken = rest.taken.saturating_sub(1);
            }
            match leaves(id) {
                true => all.leave(self.ns, claim, 1),
                // If there is one again, it was written after this one.
                false => drop(all.tasks.entry((self.ns, id)).or_insert(holding)),
            }
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut all = self.held.lock();
        for (_, claim) in self.claims() {
            if let Some(rest) = all.claims.get_mut(&(self.ns, claim)) {
                rest.taken = rest.taken.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::decide::task::{Verdict, claim};
    use plimsoll_core::decide::{Moment, Rows, batch};
    use plimsoll_core::store::{Commit, Write};
    use plimsoll_core::task::{Lane, NewTask, WorkerId};
    use plimsoll_core::{Incarnation, Limits, Name};

    use super::*;

    const NS: i32 = 1;
    const CLAIM: Id = Id(77);

    /// A task that was submitted with one revision and claimed with the next.
    fn task(born: u64) -> [Arc<Task>; 2] {
        let limits = Limits::default();
        let moment = |revision| Moment {
            now: Timestamp::MIN,
            revision: Revision::new(revision),
            limits: &limits,
        };
        let lane = Lane::new("queue", "kind").expect("a lane");
        let new = NewTask::new(TaskId::from_u128(7), lane, "x");
        let (id, mut rows) = (new.id, Rows::default());
        rows.tasks.load(id, None);
        let submit = [Commit::of(Write::Submit(Box::new(new)))];
        batch(&submit, &mut rows, moment(born)).expect("all rows");
        let pending = rows.tasks.get(&id).flatten().expect("a task").clone();
        let worker = WorkerId {
            name: Name::new("worker").expect("a name"),
            incarnation: Incarnation::from_u128(1),
        };
        match claim(
            &pending,
            &worker,
            Duration::from_secs(30),
            &moment(born + 1),
        ) {
            Ok(Verdict::Changed(claimed, _)) => [pending, claimed.into()],
            other => panic!("{other:?}"),
        }
    }

    fn with_revision(task: &Arc<Task>, revision: u64) -> Arc<Task> {
        let mut task = task.clone();
        Arc::make_mut(&mut task).state.revision = Revision::new(revision);
        task
    }

    /// The claim holds the task, and then that is heard. Answers what is known, and what is closed.
    fn heard(written: Written) -> (Option<Option<Id>>, Vec<Id>) {
        let held = Held::default();
        held.claimed(NS, CLAIM, vec![task(1)[1].clone()]);
        held.committed(NS, [written]);
        let id = TaskId::from_u128(7);
        let taken = held.take(NS, [id].into_iter(), [].into_iter());
        let known = taken.tasks.get(&id).map(|holding| holding.claim);
        (known, held.spent(NS))
    }

    const AS_BEFORE: (Option<Option<Id>>, Vec<Id>) = (Some(Some(CLAIM)), Vec::new());

    #[test]
    fn what_was_written_before_a_claim_does_not_close_it() {
        let [pending, _] = task(1);
        assert_eq!(heard(Written::changed(&pending)), AS_BEFORE);
        assert_eq!(heard(Written::removed(&pending)), AS_BEFORE);
    }

    #[test]
    fn what_leaves_a_claim_closes_it() {
        let [pending, claimed] = task(1);
        let closed = vec![CLAIM];
        let settled = Written::changed(&with_revision(&pending, 3));
        assert_eq!(heard(settled), (None, closed.clone()));
        assert_eq!(heard(Written::removed(&claimed)), (None, closed.clone()));
        let amended = Written::changed(&with_revision(&claimed, 3));
        assert_eq!(heard(amended), (Some(None), closed.clone()));
        // A renewal that gives it a row.
        assert_eq!(heard(Written::changed(&claimed)), (Some(None), closed));
    }

    #[test]
    fn another_task_with_the_same_id_does_not_close_a_claim() {
        for born in [0, 5] {
            for other in task(born) {
                assert_eq!(heard(Written::changed(&other)), (None, vec![]));
                assert_eq!(heard(Written::removed(&other)), (None, vec![]));
            }
        }
    }

    #[test]
    fn what_is_given_back_does_not_replace_what_was_written_meanwhile() {
        let held = Held::default();
        let [_, claimed] = task(1);
        let id = claimed.id();
        held.claimed(NS, CLAIM, vec![claimed.clone()]);
        let seen = held.take(NS, [].into_iter(), [id].into_iter());
        held.committed(NS, [Written::changed(&with_revision(&claimed, 3))]);
        seen.committed(|_| false, &[]);
        let taken = held.take(NS, [id].into_iter(), [].into_iter());
        assert_eq!(taken.tasks[&id].task.revision, Revision::new(3));
    }
}
