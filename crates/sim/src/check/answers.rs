//! What actors asked, and what they were told.

use std::time::Duration;

use plimsoll_core::change::{Entry, TaskEvent};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{
    ChangePage, Changes, Claim, Claimed, Commit, Outcome, Receipt, Settle, Start, SubmitOutcome,
    Submitted, Write,
};
use plimsoll_core::task::{Holder, KeyLifetime, KeyRequest, Status, Verb, WorkerId};
use plimsoll_core::{Error, Position, Result, TaskId};

use super::Checker;

impl Checker {
    /// An actor is about to send commits.
    pub(crate) fn asked(&mut self, who: &str, commits: &[Commit]) {
        for commit in commits {
            self.asked_of_locks(who, commit);
            self.asked_of_registry(who, commit);
        }
        for write in commits.iter().flat_map(|commit| &commit.writes) {
            match write {
                Write::Settle(settle) => {
                    let attempt = (settle.holder.task, settle.holder.fence);
                    let verbs = self.asked.entry(attempt).or_default();
                    verbs.push(settle.how.verb());
                }
                Write::Expire(expire) => {
                    self.overdue.insert((expire.task, expire.fence));
                }
                _ => {}
            }
        }
    }

    /// An actor was told what became of its commits.
    pub(crate) fn answered(&mut self, commits: &[Commit], results: &[Result<Receipt>]) {
        for (commit, result) in commits.iter().zip(results) {
            let Ok(receipt) = result else { continue };
            for (write, outcome) in commit.writes.iter().zip(&receipt.outcomes) {
                match (write, outcome) {
                    (Write::Settle(settle), Outcome::Settled { status, .. }) => {
                        self.settled(settle, *status, receipt);
                    }
                    (Write::Submit(new), Outcome::Submitted(submitted)) => {
                        self.submitted(new.id, submitted);
                        if self.source.live().is_none() {
                            self.submitted_under(new.key.as_ref(), submitted.id);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Somebody was told what became of a task that it submitted.
    pub(crate) fn submitted(&mut self, new: TaskId, submitted: &Submitted) {
        let id = submitted.id;
        if submitted.outcome == SubmitOutcome::Created && id != new {
            let name = self.name(new);
            self.blame("acknowledged", format!("{name} was created as another"));
        }
        self.acknowledged.insert(id);
        if !self.tasks.contains_key(&id) {
            let name = self.name(id);
            self.blame(
                "acknowledged",
                format!("{name} was submitted, but is not there"),
            );
        }
    }

    /// Somebody was told which task a key stands for. Nobody deletes tasks in a recorded run.
    fn submitted_under(&mut self, request: Option<&KeyRequest>, told: TaskId) {
        let kept = request.filter(|request| request.lifetime == KeyLifetime::Forever);
        let Some(key) = kept.map(|request| request.key.clone()) else {
            return;
        };
        match self.kept_keys.insert(key.clone(), told) {
            Some(before) if before != told => {
                let names = [self.name(before), self.name(told)];
                self.blame("keys", format!("{key} stands for {}", names.join(" and ")));
            }
            Some(_) => self.figures.keys_shared += 1,
            None => {}
        }
    }

    /// Tasks that somebody was told of, for an operator to act on.
    pub(crate) fn acknowledged(&self) -> Vec<TaskId> {
        self.acknowledged.iter().copied().collect()
    }

    fn settled(&mut self, settle: &Settle, status: Status, receipt: &Receipt) {
        let attempt = (settle.holder.task, settle.holder.fence);
        let ending = self.endings.get(&attempt).copied();
        let fits = ending.is_some_and(|(position, event)| {
            fits(settle.how.verb(), event)
                && (receipt.repeated || receipt.position == Some(position))
        });
        if !fits {
            let name = self.name(attempt.0);
            let (verb, fence) = (settle.how.verb(), attempt.1);
            let wrong =
                format!("{verb:?} of {name}#{fence} came to {status}, but it was {ending:?}");
            self.blame("acknowledged", wrong);
        }
    }

    /// A worker was told what it has claimed.
    pub(crate) fn claimed(&mut self, claim: &Claim, claimed: &Claimed) {
        for task in &claimed.tasks {
            let attempt = (task.id(), task.fence);
            let worker = self.claims.get_mut(&attempt);
            let worker = worker.map(|worker| worker.get_or_insert_with(|| claim.worker.clone()));
            if worker != Some(&mut claim.worker.clone()) {
                let name = self.name(task.id());
                let wrong = format!("{name}#{} was not claimed by {}", task.fence, claim.worker);
                self.blame("acknowledged", wrong);
            }
            self.known
                .insert((claim.worker.incarnation, task.id(), task.fence));
        }
        // A worker sends one claim after another, so by now it must know of everything.
        let unknown = (self.held_by(&claim.worker).into_iter()).find(|holder| {
            let told = (claim.worker.incarnation, holder.task, holder.fence);
            !self.known.contains(&told)
        });
        if let Some(holder) = unknown {
            let name = self.name(holder.task);
            let wrong = format!(
                "{name}#{} is held by {}, which does not know",
                holder.fence, claim.worker.name
            );
            self.blame("hidden", wrong);
        }
    }

    fn held_by(&self, worker: &WorkerId) -> Vec<Holder> {
        let held = self.tasks.iter().filter(|(_, model)| {
            model.status == Some(Status::Claimed) && model.holder.as_ref() == Some(worker)
        });
        held.map(|(id, model)| Holder {
            task: *id,
            worker: worker.clone(),
            fence: model.fence,
        })
        .collect()
    }

    /// A worker has ended properly, before it had to give up.
    pub(crate) fn drained(&mut self, worker: &WorkerId) {
        // What it thinks is over its time, a sweep will end as soon as the store thinks so too.
        // What it could not give back is not hidden for longer once its lease ran out.
        let now = self.store_time();
        let runs = |task| {
            let row = self.rows(vec![task]).into_iter().next().flatten();
            let lease = row.and_then(|row| row.state.lease);
            lease.is_some_and(|lease| lease.until > now)
        };
        let left = (self.held_by(worker).into_iter()).find(|holder| {
            runs(holder.task) && !self.overdue.contains(&(holder.task, holder.fence))
        });
        if let Some(holder) = left {
            let name = self.name(holder.task);
            let wrong = format!("{} drained and left {name}#{}", worker.name, holder.fence);
            self.blame("hidden", wrong);
        }
    }

    /// A handler may rely on its lease, as far as its worker knows.
    pub(crate) fn relies(&mut self, holder: &Holder) {
        let Some(model) = self.tasks.get(&holder.task) else {
            return;
        };
        let held = model.status == Some(Status::Claimed) && model.fence == holder.fence;
        // An operator's retry takes a task away without asking; a jump ends leases early.
        if !held && !self.clock_jumps && !model.revoked.contains(&holder.fence) {
            let name = self.name(holder.task);
            let ended = self.endings.get(&(holder.task, holder.fence)).copied();
            let wrong = format!(
                "{name}#{} is relied upon, but it was {ended:?}",
                holder.fence
            );
            self.blame("reliance", wrong);
        }
    }

    /// A handler runs, in a process that went on at this moment after its last pause: before that
    /// its worker could not have stopped it.
    pub(crate) fn still_runs(&mut self, holder: &Holder, resumed: Duration) {
        let ended = self.endings.get(&(holder.task, holder.fence)).copied();
        let ran_out = ended.is_some_and(|(_, event)| event == TaskEvent::Expired);
        if ran_out && !self.clock_jumps && self.now > resumed {
            let name = self.name(holder.task);
            let wrong = format!(
                "{name}#{} is worked on though its lease ran out",
                holder.fence
            );
            self.blame("reliance", wrong);
        }
    }

    /// A subscriber was shown a page: exactly what there is, in order. Where it goes on.
    pub(crate) fn shown(&mut self, asked: &Changes, answer: &Result<ChangePage>) -> Option<Start> {
        let page = match answer {
            Ok(page) => page,
            Err(Error::NotFound(NotFound::History { oldest })) => {
                return Some(Start::After(*oldest));
            }
            Err(Error::Unavailable(_)) => return None,
            Err(error) => {
                self.blame("subscription", format!("refused: {error}"));
                return None;
            }
        };
        let after = match asked.start {
            Start::After(position) => position,
            // The oldest that is kept decides where it begins, and nothing is missed before.
            Start::Oldest => {
                let first = page
                    .entries
                    .first()
                    .map_or(page.next, |entry| entry.position);
                Position::new(first.get().saturating_sub(1))
            }
            Start::Newest => page.next,
        };
        let within = |entry: &&Entry| entry.position > after && entry.position <= page.next;
        let shows = |entry: &Entry| {
            let changes = entry.changes.iter().filter(|change| asked.shows(change));
            let changes: Vec<_> = changes.cloned().collect();
            (!changes.is_empty()).then(|| Entry {
                changes,
                ..entry.clone()
            })
        };
        let skipped = (self.entries).partition_point(|entry| entry.position <= after);
        let truth: Vec<Entry> = (self.entries.iter().skip(skipped))
            .take_while(|entry| entry.position <= page.next)
            .filter(within)
            .filter_map(shows)
            .collect();
        if truth != page.entries {
            let wrong = format!(
                "after {after}: {} entries, not {}",
                page.entries.len(),
                truth.len()
            );
            self.blame("subscription", wrong);
        }
        Some(Start::After(page.next))
    }

    /// Whether a reader that goes on from here has seen everything.
    pub(crate) fn has_seen_all(&self, start: Start) -> bool {
        start == Start::After(self.newest())
    }
}

/// Whether an event is what a verb of the holder comes to.
fn fits(verb: Verb, event: TaskEvent) -> bool {
    match verb {
        Verb::Complete => event == TaskEvent::Completed,
        Verb::Fail => matches!(event, TaskEvent::Failed | TaskEvent::Cancelled),
        Verb::Snooze => matches!(event, TaskEvent::Snoozed | TaskEvent::Cancelled),
        Verb::Release => matches!(event, TaskEvent::Released | TaskEvent::Cancelled),
        Verb::Cancel => event == TaskEvent::Cancelled,
    }
}
