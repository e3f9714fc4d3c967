//! What barriers wait for, decided with every change.
//!
//! A page of the history tells many changes at once, and so does a round of writes. Whoever looked only at what is there
//! after all of them would not see a partition that failed and began again in between, nor a moment at which all were
//! there.
//!
//! - **All are there** by what was told alone. Put together with a later write of this process, which nobody was told of
//!   yet, older states of others would make a moment that never was; and a lower one would hide one that was.
//! - **One has failed** as soon as readers see it, also if this process has written that and nobody was told yet.
//! - **What was over before does not count.** Whoever has written something and waits then is not answered by what is
//!   told of before it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name, Result, Revision};
use tokio::sync::Notify;

use super::fold::Fold;
use crate::jobs::{Scope, State};

/// How many aims may begin before those that nobody waits for any more are looked for.
const BEGUN_MIN: usize = 64;

/// What a barrier waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    /// This status, or a higher one.
    pub(crate) status: i32,
    /// A partition with a warning is waited for.
    pub(crate) despite_warnings: bool,
}

/// Those that are not decided. Whoever waits holds his: one that nobody holds is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Aims {
    by_tag: BTreeMap<Name, AtTag>,
    /// How many have begun since those that nobody waits for any more were looked for, and how many were left then.
    begun: usize,
    kept: usize,
    /// Those who wait for these have yet to be told.
    decided: Vec<Arc<Aim>>,
}

/// Apart, since a warning decides all of the ones and none of the others.
#[derive(Debug, Default)]
struct AtTag {
    plain: Rising,
    despite_warnings: Rising,
}

/// By the status that is waited for: a change is looked at for those alone that it may decide.
#[derive(Debug, Default)]
struct Rising(BTreeMap<i32, Vec<Weak<Aim>>>);

/// What some barriers wait for: all that have begun to wait for the same before it was decided.
#[derive(Debug)]
pub(crate) struct Aim {
    goal: Goal,
    /// Which partitions this process had set too low when this began, and nobody was told of it yet, up to which revision:
    /// what is told before that was over then.
    taken_back: Vec<(u32, Revision)>,
    decision: OnceLock<Result<State>>,
    told: Notify,
}

/// What was decided. Those who wait for it are told when this is dropped: not under a lock, since a waker may run
/// anything.
#[derive(Debug, Default)]
pub(crate) struct Decided(Vec<Arc<Aim>>);

impl Drop for Decided {
    fn drop(&mut self) {
        self.0.iter().for_each(|aim| aim.told.notify_waiters());
    }
}

impl Aims {
    /// An aim that is decided now or with a change from now on.
    pub(crate) fn begin(&mut self, fold: &Fold, tag: &Name, goal: Goal) -> Arc<Aim> {
        let aim = Aim {
            goal,
            taken_back: fold.untold_below(tag, goal.status),
            decision: OnceLock::new(),
            told: Notify::new(),
        };
        if aim.is_decided(&Standing::of(fold, tag)) {
            return Arc::new(aim);
        }
        self.forget();
        let at_tag = self.by_tag.entry(tag.clone()).or_default();
        let rising = match goal.despite_warnings {
            false => &mut at_tag.plain,
            true => &mut at_tag.despite_warnings,
        };
        let aims = rising.0.entry(goal.status).or_default();
        let mut same = aims.iter().filter_map(Weak::upgrade);
        // One that began before may be decided by what was over when this one began.
        let same =
            same.find(|other| aim.taken_back.is_empty() || aim.taken_back == other.taken_back);
        same.unwrap_or_else(|| {
            let aim = Arc::new(aim);
            aims.push(Arc::downgrade(&aim));
            aim
        })
    }

    /// Those that nobody waits for any more: now and then, so that it costs each that begins little.
    fn forget(&mut self) {
        self.begun += 1;
        if self.begun <= self.kept.max(BEGUN_MIN) {
            return;
        }
        (self.begun, self.kept) = (0, 0);
        self.by_tag.retain(|_, at_tag| {
            for rising in at_tag.both() {
                rising.0.retain(|_, aims| forget(aims));
                self.kept += rising.0.values().map(Vec::len).sum::<usize>();
            }
            !at_tag.is_empty()
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_tag.is_empty()
    }

    /// The state of a partition and tag has changed.
    pub(crate) fn changed(&mut self, fold: &Fold, partition: u32, tag: &Name) {
        if self.by_tag.contains_key(tag) {
            // As long as nothing is wrong, all can be there only if this one is.
            self.decide(fold, tag, fold.status_told(partition, tag));
        }
    }

    /// Any state may have changed.
    pub(crate) fn all_changed(&mut self, fold: &Fold) {
        let tags: Vec<Name> = self.by_tag.keys().cloned().collect();
        for tag in &tags {
            self.decide(fold, tag, i32::MAX);
        }
    }

    /// Decides those at a tag that may be decided by how it stands, up to this status.
    fn decide(&mut self, fold: &Fold, tag: &Name, upto: i32) {
        let Some(at_tag) = self.by_tag.get_mut(tag) else {
            return;
        };
        let standing = Standing::of(fold, tag);
        let decided = at_tag.plain.decide(&standing, false, upto);
        self.decided.extend(decided);
        let decided = at_tag.despite_warnings.decide(&standing, true, upto);
        self.decided.extend(decided);
        if at_tag.is_empty() {
            self.by_tag.remove(tag);
        }
    }

    /// Nothing changes any more.
    pub(crate) fn end(&mut self, error: &Error) {
        for mut at_tag in std::mem::take(&mut self.by_tag).into_values() {
            let aims = at_tag
                .both()
                .into_iter()
                .flat_map(|rising| rising.0.values());
            for aim in aims.flatten().filter_map(Weak::upgrade) {
                aim.settle(Err(error.clone()));
                self.decided.push(aim);
            }
        }
    }

    /// What was decided since this was asked last.
    pub(crate) fn decided(&mut self) -> Decided {
        Decided(std::mem::take(&mut self.decided))
    }
}

impl AtTag {
    fn both(&mut self) -> [&mut Rising; 2] {
        [&mut self.plain, &mut self.despite_warnings]
    }

    fn is_empty(&self) -> bool {
        self.plain.0.is_empty() && self.despite_warnings.0.is_empty()
    }
}

impl Rising {
    /// The lowest first, up to this status or the first that is not reached; and if something is wrong, all. Answers
    /// which are decided.
    fn decide(
        &mut self,
        standing: &Standing<'_>,
        despite_warnings: bool,
        upto: i32,
    ) -> Vec<Arc<Aim>> {
        let (mut decided, mut emptied) = (Vec::new(), false);
        let wrong = !self.0.is_empty() && standing.is_wrong(despite_warnings);
        for (status, aims) in &mut self.0 {
            let may_be = wrong || (*status <= upto && standing.is_reached(*status));
            if may_be {
                let held = aims.iter().filter_map(Weak::upgrade);
                decided.extend(held.filter(|aim| aim.is_decided(standing)));
                aims.retain(|aim| {
                    aim.upgrade()
                        .is_some_and(|aim| aim.decision.get().is_none())
                });
            }
            emptied |= !forget(aims);
            if !may_be && !aims.is_empty() {
                break;
            }
        }
        if emptied {
            self.0.retain(|_, aims| !aims.is_empty());
        }
        decided
    }
}

/// Forgets those that nobody waits for any more. Answers whether any are left.
fn forget(aims: &mut Vec<Weak<Aim>>) -> bool {
    aims.retain(|aim| aim.strong_count() > 0);
    !aims.is_empty()
}

impl Aim {
    /// The lowest state when all partitions were there, or why that will not be waited for.
    pub(crate) async fn decided(&self) -> Result<State> {
        loop {
            let mut told = pin!(self.told.notified());
            // What is told from here on is not missed.
            told.as_mut().enable();
            if let Some(decision) = self.decision() {
                return decision;
            }
            told.await;
        }
    }

    /// The same, if that is known.
    pub(crate) fn decision(&self) -> Option<Result<State>> {
        self.decision.get().cloned()
    }

    fn is_decided(&self, standing: &Standing<'_>) -> bool {
        let decision = standing.decision(self.goal, &self.taken_back);
        decision.map(|decision| self.settle(decision)).is_some()
    }

    fn settle(&self, decision: Result<State>) {
        // It stays what it was decided to be first.
        self.decision.set(decision).ok();
    }
}

/// How the partitions of a job stand at a tag.
struct Standing<'a> {
    fold: &'a Fold,
    tag: &'a Name,
    unreadable: Option<Error>,
    /// The partition with the lowest negative status, as readers see it; and with the lowest that is no warning.
    failed: Option<u32>,
    failed_by_error: Option<u32>,
    /// The lowest status that was told, and whose it is.
    lowest: OnceCell<(i32, u32)>,
}

impl<'a> Standing<'a> {
    fn of(fold: &'a Fold, tag: &'a Name) -> Self {
        let scope = Scope {
            partition: None,
            tag: Some(tag.clone()),
        };
        let failed = fold.aggregate().failed(tag, false);
        Self {
            fold,
            tag,
            unreadable: fold.check(&scope).err(),
            failed,
            failed_by_error: failed.and_then(|_| fold.aggregate().failed(tag, true)),
            lowest: OnceCell::new(),
        }
    }

    fn failed(&self, despite_warnings: bool) -> Option<u32> {
        match despite_warnings {
            false => self.failed,
            true => self.failed_by_error,
        }
    }

    fn is_wrong(&self, despite_warnings: bool) -> bool {
        self.unreadable.is_some() || self.failed(despite_warnings).is_some()
    }

    /// What it means for this goal, if it decides it.
    fn decision(&self, goal: Goal, taken_back: &[(u32, Revision)]) -> Option<Result<State>> {
        if let Some(error) = &self.unreadable {
            return Some(Err(error.clone()));
        }
        if let Some(partition) = self.failed(goal.despite_warnings) {
            return Some(Err(self.failure(partition)));
        }
        let is_told = |(one, revision): &_| self.fold.is_told(*one, self.tag, *revision);
        let reached = self.is_reached(goal.status) && taken_back.iter().all(is_told);
        reached.then(|| Ok(self.fold.state_told(self.lowest().1, self.tag)))
    }

    /// Whether all partitions have at least this status, as it was told.
    fn is_reached(&self, status: i32) -> bool {
        // Who writes for thousands must not look at all of them with each change.
        !self.fold.is_plainly_below(self.tag, status) && self.lowest().0 >= status
    }

    fn lowest(&self) -> (i32, u32) {
        *self.lowest.get_or_init(|| self.fold.lowest_told(self.tag))
    }

    fn failure(&self, partition: u32) -> Error {
        let state = self.fold.state(partition, Some(self.tag.clone()));
        let failed = Conflict::PartitionFailed {
            job: state.job,
            tag: self.tag.clone(),
            partition,
            status: state.status,
            message: state.message,
        };
        failed.into()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::record::{Record, fields};
    use plimsoll_core::{Key, Timestamp};

    use super::*;
    use crate::jobs::stored::{Keys, Own, Stored};

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn goal(status: i32) -> Goal {
        Goal {
            status,
            despite_warnings: false,
        }
    }

    impl Aims {
        fn len(&self) -> usize {
            let tags = self.by_tag.values();
            let rising = tags.flat_map(|at_tag| [&at_tag.plain, &at_tag.despite_warnings]);
            rising
                .flat_map(|rising| rising.0.values())
                .map(Vec::len)
                .sum()
        }
    }

    fn status(number: u64, status: i32) -> Record {
        let fields = fields([
            ("status", status.to_string()),
            ("message", String::new()),
            ("version", number.to_string()),
            ("schema_version", "1".into()),
            ("events", "[]".into()),
        ]);
        Record {
            key: Key::new("plimsoll.states.import.0-a").unwrap(),
            fields: fields.unwrap(),
            revision: Revision::new(number),
            modified_at: Timestamp::MIN,
            expires_at: None,
        }
    }

    /// A process that is always far ahead of what is told does not wait for that to end.
    #[test]
    fn what_was_told_of_since_it_was_taken_back_counts_although_more_is_untold() {
        let keys = Arc::new(Keys::of(name("import")).unwrap());
        let mut fold = Fold::new(keys.clone());
        fold.ready(1);
        let mut aims = Aims::default();
        let statuses = |number| {
            if number == 60 {
                1
            } else {
                i32::try_from(number).unwrap()
            }
        };
        let mut aim = None;
        for number in 1..=140 {
            let own = status(number, statuses(number));
            let state = Stored::read(&keys, &own).unwrap().state;
            fold.wrote(Own::read(&own, state));
            if number == 80 {
                // 50 to 59 were told of by nobody, and were taken back: they are over.
                aim = Some(aims.begin(&fold, &name("a"), goal(50)));
            }
            let Some(told) = number.checked_sub(40) else {
                continue;
            };
            fold.put(&status(told, statuses(told)));
            aims.changed(&fold, 0, &name("a"));
            let decision = aim.as_ref().and_then(|aim| aim.decision());
            assert_eq!(
                decision.is_some(),
                told >= 64,
                "{told} was told: {decision:?}"
            );
        }
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_forgotten() {
        let mut fold = Fold::new(Arc::new(Keys::of(name("import")).unwrap()));
        fold.ready(2);
        let mut aims = Aims::default();
        let held = aims.begin(&fold, &name("held"), goal(5));
        for number in 0..10 * BEGUN_MIN {
            let tag = name(&format!("tag-{number}"));
            drop(aims.begin(&fold, &tag, goal(5)));
            let status = i32::try_from(number + 6).unwrap();
            drop(aims.begin(&fold, &name("held"), goal(status)));
        }
        assert!(aims.len() <= 1 + BEGUN_MIN, "{}", aims.len());
        let same = aims.begin(&fold, &name("held"), goal(5));
        assert!(Arc::ptr_eq(&held, &same));
        // As many as somebody waits for are kept.
        let tags = (0..10 * BEGUN_MIN).map(|number| name(&format!("tag-{number}")));
        let waiting: Vec<_> = tags.map(|tag| aims.begin(&fold, &tag, goal(5))).collect();
        assert!(aims.len() > waiting.len());
        drop(waiting);
        for number in 0..20 * BEGUN_MIN {
            drop(aims.begin(&fold, &name(&format!("more-{number}")), goal(5)));
        }
        assert!(aims.len() <= 2 * (1 + BEGUN_MIN), "{}", aims.len());
    }
}
