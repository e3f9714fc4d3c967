//! What submitters submit: drawn once, so that a submitter that begins again repeats itself.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::group::NewGroup;
use plimsoll_core::lifecycle::{Lifecycle, Stage};
use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::{Backoff, KeyLifetime, Lane, NewTask, OnConflict, Priority, RetryPolicy};
use plimsoll_core::{GroupId, IdempotencyKey, Invalid, TaskId};

use crate::dice::Dice;

/// The queues that there are.
pub(crate) const QUEUES: [&str; 2] = ["a", "b"];
/// How many keys there are.
pub(crate) const KEYS: u64 = 6;
/// The kinds that there are: see [`handlers`](super::handlers).
pub(crate) const KINDS: [&str; 8] = [
    "plain", "flaky", "slow", "snoozer", "panicky", "spawner", "staged", "poison",
];
/// The stages of `staged`, in a row, with a way back from the second to the first.
pub(crate) const STAGES: [&str; 3] = ["one", "two", "three"];

/// What is to be done, in one way or the other.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// The client submits each of these on its own.
    Submit(Vec<NewTask>),
    /// All or nothing.
    Commit(Commit),
}

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) deed: Deed,
    /// The group it opens, with what runs when that drains.
    pub(crate) opens: Option<(GroupId, TaskId)>,
    /// The group that has everything it will ever have once this is done.
    pub(crate) completes: Option<GroupId>,
}

impl Order {
    fn of(deed: Deed) -> Self {
        Self {
            deed,
            opens: None,
            completes: None,
        }
    }
}

/// Draws orders.
#[derive(Debug)]
pub(crate) struct Orders {
    dice: Dice,
    clock: Arc<ManualClock>,
    submitter: u64,
}

impl Orders {
    pub(crate) fn new(dice: Dice, clock: Arc<ManualClock>, submitter: u64) -> Self {
        Self {
            dice,
            clock,
            submitter,
        }
    }

    /// About this many things to do.
    pub(crate) fn draw(&self, count: u64) -> Result<Vec<Order>, Invalid> {
        let mut orders = Vec::new();
        for number in 0..count {
            if self.dice.chance(150) {
                self.group(number, &mut orders)?;
            } else {
                let tasks = (0..self.dice.range(1, 3)).map(|_| self.with_key(self.task()?));
                let tasks = tasks.collect::<Result<Vec<_>, Invalid>>()?;
                orders.push(Order::of(if self.dice.chance(300) {
                    Deed::Commit(
                        tasks
                            .into_iter()
                            .map(submit)
                            .fold(Commit::new(), Commit::write),
                    )
                } else {
                    Deed::Submit(tasks)
                }));
            }
        }
        Ok(orders)
    }

    /// Opens a group, submits its members in one commit or several, and seals it if it must be.
    fn group(&self, number: u64, orders: &mut Vec<Order>) -> Result<(), Invalid> {
        let dice = &self.dice;
        let id = GroupId::new(format!("g{}.{number}", self.submitter))?;
        let then = self.plain()?;
        let size = dice.range(0, 6);
        let counted = dice.chance(500) && size > 0;
        let opens = Some((id.clone(), then.id));
        let mut new = NewGroup::new(id.clone()).then(then);
        if counted {
            new = new.expecting(size);
        }
        if dice.chance(300) {
            new = new.on_first_failure(self.plain()?);
        }
        let mut open = Order::of(Deed::Commit(Commit::of(Write::OpenGroup(Box::new(new)))));
        open.opens = opens;
        orders.push(open);
        for _ in 0..size {
            let member = self.task()?.group(id.clone());
            let together = dice.chance(500);
            match orders.last_mut().map(|order| &mut order.deed) {
                Some(Deed::Commit(commit)) if together => commit.writes.push(submit(member)),
                Some(Deed::Submit(tasks)) if together => tasks.push(member),
                _ => orders.push(Order::of(Deed::Submit(vec![member]))),
            }
        }
        if !counted {
            orders.push(Order::of(Deed::Commit(Commit::of(Write::Seal(id.clone())))));
        }
        if let Some(last) = orders.last_mut() {
            last.completes = Some(id);
        }
        Ok(())
    }

    fn plain(&self) -> Result<NewTask, Invalid> {
        let lane = Lane::new(*self.dice.pick(&QUEUES), "plain")?;
        Ok(NewTask::new(self.dice.ids().task(), lane, "").retry(self.retry(3)))
    }

    fn task(&self) -> Result<NewTask, Invalid> {
        let dice = &self.dice;
        let kind = match *dice.pick(&KINDS) {
            // One in twenty is enough: each kills up to three lives.
            "poison" if dice.chance(600) => "plain",
            kind => kind,
        };
        let lane = Lane::new(*dice.pick(&QUEUES), kind)?;
        let payload = dice.below(3).to_string();
        let mut task = NewTask::new(dice.ids().task(), lane, payload)
            .priority(Priority::new(u8::try_from(dice.below(4) * 3).unwrap_or(0))?)
            .retry(self.retry(if kind == "poison" { 3 } else { 5 }));
        if kind == "staged" {
            task = task.lifecycle(lifecycle()?);
        }
        if dice.chance(200) {
            task = task.after(dice.millis(0, 20_000));
        } else if dice.chance(100) {
            task = task.at(self.clock.now().saturating_plus(dice.millis(0, 60_000)));
        }
        if dice.chance(150) {
            task = task.attempt_timeout(dice.millis(500, 15_000));
        }
        if dice.chance(200) {
            task = task.on_failure(self.plain()?);
        }
        Ok(task)
    }

    /// A policy that gives up after a few failures, or never if `most` is high enough.
    fn retry(&self, most: u64) -> RetryPolicy {
        let dice = &self.dice;
        let first = dice.millis(0, 4_000);
        RetryPolicy {
            // More than four is read as no limit.
            max_attempts: match u32::try_from(dice.range(1, most)).unwrap_or(1) {
                5.. => 0,
                some => some,
            },
            backoff: if dice.chance(500) {
                Backoff::Fixed(first)
            } else {
                Backoff::Exponential {
                    first,
                    factor: 2.0,
                    cap: Duration::from_secs(20),
                }
            },
            jitter_percent: 20,
            total: dice.chance(100).then(|| dice.millis(1_000, 60_000)),
        }
    }

    fn with_key(&self, task: NewTask) -> Result<NewTask, Invalid> {
        let dice = &self.dice;
        if !dice.chance(350) {
            return Ok(task);
        }
        let key = IdempotencyKey::new(format!("k{}", dice.below(KEYS)))?;
        let lifetime = match dice.below(3) {
            0 => KeyLifetime::WhileActive,
            1 => KeyLifetime::For(dice.millis(1_000, 60_000)),
            _ => KeyLifetime::Forever,
        };
        let on_conflict = *dice.pick(&[
            OnConflict::Attach,
            OnConflict::Reject,
            OnConflict::ReplacePending,
            OnConflict::CancelAndReplace,
            OnConflict::CancelAndReplace,
        ]);
        Ok(task.key_with(key, lifetime, on_conflict))
    }
}

fn lifecycle() -> Result<Lifecycle, Invalid> {
    let [one, two, three] = STAGES;
    Lifecycle::new([
        Stage::new(one)?.to(two)?,
        Stage::new(two)?.to(three)?.to(one)?,
        Stage::new(three)?.completes(),
    ])
}

fn submit(task: NewTask) -> Write {
    Write::Submit(Box::new(task))
}
