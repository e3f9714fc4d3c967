//! The selecting methods of the memory store.

use crate::change::{Change, TaskChange};
use crate::decide::task::Verdict;
use crate::decide::{Moment, task};
use crate::error::{Error, NotFound};
use crate::ids::{Fence, TaskId};
use crate::limits::Limits;
use crate::memory::state::State;
use crate::store::{Claim, Claimed, Compact, Compacted, DueNow, Pick, Renew, Renewal};
use crate::task::{Holder, Task, WorkerId};
use crate::time::Timestamp;

impl State {
    pub(super) fn claim(
        &mut self,
        claim: &Claim,
        now: Timestamp,
        limits: &Limits,
    ) -> (Claimed, Vec<Change>) {
        let mut claimed = Claimed {
            tasks: Vec::new(),
            refused: Vec::new(),
            next_due: None,
        };
        let ids = match (&claim.pick, self.claims.get(&claim.request)) {
            // Deciding anew is safe: what this worker holds is answered as it is.
            (Pick::Ids(ids), _) => ids.clone(),
            (Pick::Next { .. }, Some(taken)) => {
                claimed.tasks = self.still_held(taken, &claim.worker);
                return (claimed, Vec::new());
            }
            (Pick::Next { lanes, limit }, None) => self.next_pending(lanes, *limit),
        };
        let moment = Moment {
            now,
            revision: self.revision.next(),
            limits,
        };
        self.revision = moment.revision;
        let mut changes = Vec::new();
        for id in ids {
            match self.claim_one(id, claim, &moment) {
                Ok((task, change)) => {
                    claimed.tasks.push(task);
                    changes.extend(change);
                }
                Err(error) => claimed.refused.push((id, error)),
            }
        }
        if let Pick::Next { lanes, limit } = &claim.pick
            && claimed.tasks.len() < *limit
        {
            let firsts = lanes
                .iter()
                .filter_map(|lane| self.scheduled.get(lane)?.first());
            // A task that waits for another one has no time of its own.
            let due = firsts.map(|(at, _)| *at).filter(|at| *at < Timestamp::MAX);
            claimed.next_due = due.min();
        }
        if let (Pick::Next { .. }, false) = (&claim.pick, changes.is_empty()) {
            let taken = claimed.tasks.iter().map(|task| (task.id(), task.fence));
            self.claims.insert(claim.request, taken.collect(), now);
        }
        self.append(changes.clone(), now);
        (claimed, changes)
    }

    fn claim_one(
        &mut self,
        id: TaskId,
        claim: &Claim,
        moment: &Moment<'_>,
    ) -> Result<(Task, Option<Change>), Error> {
        let before = self.tasks.get(&id).ok_or(NotFound::Task(id))?;
        match task::claim(before, &claim.worker, claim.lease, moment)? {
            Verdict::Unchanged => Ok((before.clone(), None)),
            Verdict::Changed(after, event) => {
                let change = Change::Task(TaskChange::new(&after, event));
                self.put_task(id, Some(after.as_ref().clone()));
                Ok((*after, Some(change)))
            }
        }
    }

    /// What a claim that was applied before still holds, in the order it was taken.
    fn still_held(&self, taken: &[(TaskId, Fence)], worker: &WorkerId) -> Vec<Task> {
        let held = |(id, fence): &(TaskId, Fence)| {
            let task = self.tasks.get(id)?;
            let holder = task.holder()?;
            (holder.fence == *fence && holder.worker == *worker).then(|| task.clone())
        };
        taken.iter().filter_map(held).collect()
    }

    pub(super) fn renew(&mut self, renew: &Renew, now: Timestamp) -> Vec<Renewal> {
        let one = |holder: &Holder| {
            let before = self.tasks.get(&holder.task);
            let renewal = task::renew(before, holder, renew.lease, now);
            if let Renewal::Held { until } | Renewal::CancelRequested { until, .. } = &renewal
                && let Some(mut task) = before.cloned()
                && let Some(lease) = &mut task.lease
            {
                lease.until = *until;
                self.put_task(task.id(), Some(task));
            }
            renewal
        };
        renew.holders.iter().map(one).collect()
    }

    pub(super) fn due(&self, limit: usize, now: Timestamp) -> DueNow {
        let mut due = DueNow::default();
        let mut next = Vec::new();
        let scheduled = overdue(self.due.iter().map(|(at, id)| (*at, *id)), limit, now);
        let leases = overdue(self.leases.iter().map(|(at, id)| (*at, *id)), limit, now);
        let expiries = self.expiries.iter().map(|(at, key)| (*at, key.clone()));
        let records = overdue(expiries, limit, now);
        due.more = scheduled.more || leases.more || records.more;
        next.extend(
            [scheduled.next, leases.next, records.next]
                .into_iter()
                .flatten(),
        );
        due.scheduled = scheduled.rows;
        due.expired = (leases.rows.into_iter())
            .filter_map(|id| Some((id, self.tasks.get(&id)?.fence)))
            .collect();
        due.records = records.rows;
        if due.is_empty() {
            due.next = next.into_iter().filter(|at| *at < Timestamp::MAX).min();
        }
        due
    }

    pub(super) fn compact(&mut self, compact: &Compact, now: Timestamp) -> Compacted {
        let mut done = Compacted::default();
        for (status, age) in &compact.tasks {
            let cutoff = now.saturating_minus(*age);
            let old = self.finished.get(status).into_iter().flatten();
            let old: Vec<TaskId> = (old.take_while(|(at, _)| *at <= cutoff))
                .map(|(_, id)| *id)
                .take(compact.limit + 1)
                .collect();
            for id in old {
                if done.tasks == compact.limit as u64 {
                    done.more = true;
                    break;
                }
                self.drop_task(id);
                done.tasks += 1;
            }
        }
        if let Some(age) = compact.groups {
            self.compact_groups(now.saturating_minus(age), compact.limit, &mut done);
        }
        if let Some(age) = compact.history {
            self.compact_history(now.saturating_minus(age), compact.limit, &mut done);
        }
        if let Some(age) = compact.logs {
            self.compact_logs(now.saturating_minus(age), compact.limit, &mut done);
        }
        let (commits, more_commits) = self.commits.forget(now, compact.limit);
        let (claims, more_claims) = self.claims.forget(now, compact.limit);
        done.remembered = commits + claims;
        done.more |= more_commits || more_claims;
        done
    }

    fn compact_groups(&mut self, cutoff: Timestamp, limit: usize, done: &mut Compacted) {
        while let Some((at, id)) = self.drained.first().cloned() {
            if at > cutoff {
                break;
            }
            if done.groups == limit as u64 {
                done.more = true;
                break;
            }
            self.drained.pop_first();
            self.groups.remove(&id);
            done.groups += 1;
        }
    }

    fn compact_history(&mut self, cutoff: Timestamp, limit: usize, done: &mut Compacted) {
        while let Some(entry) = self.history.front() {
            if entry.at > cutoff {
                break;
            }
            if done.entries == limit as u64 {
                done.more = true;
                break;
            }
            self.compacted = entry.position;
            self.history.pop_front();
            done.entries += 1;
        }
    }

    fn compact_logs(&mut self, cutoff: Timestamp, limit: usize, done: &mut Compacted) {
        while let Some((at, task, number)) = self.lines_by_age.first().copied() {
            if at > cutoff {
                break;
            }
            if done.lines == limit as u64 {
                done.more = true;
                break;
            }
            self.remove_line(task, number);
            done.lines += 1;
        }
    }

    fn drop_task(&mut self, id: TaskId) {
        let key = self.tasks.get(&id).and_then(|task| task.spec.key.clone());
        if let Some((key, _)) = key
            && self.keys.get(&key) == Some(&id)
        {
            self.keys.remove(&key);
        }
        self.put_task(id, None);
    }
}

/// The rows of an index by time that are overdue, and what comes after them.
struct Overdue<T> {
    rows: Vec<T>,
    next: Option<Timestamp>,
    more: bool,
}

fn overdue<T>(
    index: impl Iterator<Item = (Timestamp, T)>,
    limit: usize,
    now: Timestamp,
) -> Overdue<T> {
    let mut found = Overdue {
        rows: Vec::new(),
        next: None,
        more: false,
    };
    for (at, row) in index {
        if at > now {
            found.next = Some(at);
            break;
        }
        if found.rows.len() == limit {
            found.more = true;
            break;
        }
        found.rows.push(row);
    }
    found
}
