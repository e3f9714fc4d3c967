//! Bugs on purpose: each must be caught, or the checkers are not worth much.

mod records;
mod stages;
mod states;

use std::sync::Arc;

use clap::ValueEnum;
use futures::FutureExt;
use plimsoll_core::change::Interest;
use plimsoll_core::log::NewLine;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{
    ChangePage, Changes, Claim, Commit, Ending, Outcome, Peek, Pick, Receipt, Renew, Settle,
    SubmitOutcome, Submitted, Tasks, Write,
};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{Ids, Store, TaskId};

use crate::dice::Dice;

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Planted {
    /// A settle is taken from whoever sends it, whatever its fence.
    FencelessSettle,
    /// A repeated claim is taken for a new one.
    ForgottenRequest,
    /// A worker that is told to drain ends at once, and gives nothing back.
    DroppingDrain,
    /// A lease that ran out costs nothing: the task is released, and nothing is counted.
    FreeExpiry,
    /// Leases are shorter than was asked for.
    ShortLease,
    /// A claim takes what comes last.
    UnfairClaim,
    /// A submit is acknowledged and forgotten.
    ForgottenSubmit,
    /// A reader of history is not shown the first entry of some pages.
    SkippedEntry,
    /// Who follows the ends of tasks is shown none.
    HiddenEnd,
    /// A read shows cancelled tasks as completed.
    WrongEnd,
    /// A repeated commit is taken for a new one.
    ForgottenCommit,
    /// The last of several lines of a log is not stored.
    LostLine,
    /// The last line of a log is stored twice.
    RepeatedLine,
    /// Lines of a log are stored in another order.
    SwappedLines,
    /// A move that a lifecycle does not allow is taken as if the stages between had been entered.
    IllegalMove,
    /// Everybody who takes a lock is told the same token.
    ReusedToken,
    /// A lock is taken whether another has it or not.
    UnguardedLock,
    /// A lock is released by whoever says so.
    AnybodyReleases,
    /// A lock is renewed by whoever says so.
    AnybodyRenews,
    /// A lock does not end when its time is over.
    EndlessLock,
    /// A lock ends before its time is over.
    ShortLock,
    /// Of those who wait for a lock, the last gets it.
    LastInLine,
    /// Nobody is marked as offline.
    UnmarkedWorker,
    /// Heartbeats come too late to count.
    DeafRegistry,
    /// A task that was archived is not deleted.
    ArchivedTwice,
    /// A task that was to be archived is only deleted.
    NeverArchived,
    /// Tasks are archived long before it is time.
    EarlyArchive,
    /// A state is written whatever version there is.
    UnguardedVersion,
    /// A state is written although the one that was called before it was refused.
    Unbound,
    /// The events of a state are not remembered.
    ForgottenEvent,
    /// A job that was deleted, or another of its name, is written by those who were part of it.
    LateManager,
    /// An event that was written is answered as repeated, also after its job was deleted.
    LateRepeat,
    /// A sweeper takes states to be an hour older than they are.
    AgedStates,
    /// Who loads the states of a job does not see one of them.
    LostAtSwitch,
    /// A subscriber that goes on is told some states again.
    RepeatedState,
    /// A subscriber goes on behind states that it was not told of.
    EarlyCursor,
    /// Some states are left out for those who follow the history.
    LostState,
    /// Who follows states gives up as soon as the store does not answer.
    Impatient,
    /// A subscriber is told twice that the replay is complete.
    SecondMarker,
    /// A subscriber is not told that the replay is complete.
    NoMarker,
    /// A subscriber is told a state once more after the next version of it.
    FallingVersion,
    /// A replay tells what was set together in another order.
    TurnedMoment,
    /// A subscriber that goes on is told everything again, although nothing of it is gone.
    NeedlessRestart,
    /// A reader is told that its job is gone, although it is not.
    HiddenJob,
    /// The highest status of a scope wins, instead of the lowest.
    HighestWins,
    /// A job is taken to have one partition more than it has.
    OneTooMany,
    /// A barrier takes an error for what it waits for.
    DeafBarrier,
    /// A barrier waits on when it is told what it waits for.
    SleepyBarrier,
    /// A barrier does not fail by an error, and opens later.
    ForgivingBarrier,
    /// A barrier that all have reached waits on, and fails by what comes after that.
    UnopenedBarrier,
    /// A barrier fails by an error that was over before it began.
    PastError,
    /// A barrier opens although its own process has taken back what it waits for.
    ReopenedBarrier,
    /// A barrier that was not reached in time counts one too few of those who are behind.
    OverlookedLaggard,
    /// Who writes a state does not see it until the history tells.
    HiddenWrite,
    /// A record is written whatever there is.
    UnguardedSwap,
    /// A watch is not told that a record ended.
    LostRemoval,
    /// A watch goes on from where it was when it last told something, and not from where it is.
    StaleCursor,
}

impl Planted {
    /// What the store sees instead of these commits.
    pub(crate) fn commits(
        self,
        commits: Vec<Commit>,
        ids: &Ids,
        store: &Arc<MemoryStore>,
    ) -> Vec<Commit> {
        let one = |mut commit: Commit| {
            if self == Self::ForgottenCommit {
                commit.id = commit.id.map(|_| ids.commit());
            }
            for write in &mut commit.writes {
                self.spoil(write, ids, store);
            }
            self.spoil_records(&mut commit, store);
            self.spoil_states(&mut commit);
            if self == Self::IllegalMove {
                stages::take_all_between(&mut commit, store);
            }
            commit
        };
        commits.into_iter().map(one).collect()
    }

    fn spoil(self, write: &mut Write, ids: &Ids, store: &Arc<MemoryStore>) {
        match (self, &mut *write) {
            (Self::FencelessSettle, Write::Settle(settle)) => {
                let task = row(settle.holder.task, store);
                if let Some(holder) = task.and_then(|task| task.holder()) {
                    settle.holder = holder;
                }
            }
            (Self::LostLine, Write::Log(log)) if log.lines.len() > 1 => {
                log.lines.pop();
            }
            (Self::SwappedLines, Write::Log(log)) => log.lines.reverse(),
            (Self::RepeatedLine, Write::Log(log)) => {
                let again = log.lines.last().cloned();
                let id = ids.line();
                (log.lines).extend(again.map(|line| NewLine { id, ..line }));
            }
            (Self::FreeExpiry, Write::Expire(expire)) => {
                let task = row(expire.task, store).filter(|task| task.fence == expire.fence);
                if let Some(holder) = task.and_then(|task| task.holder()) {
                    let how = Ending::Release { reason: None };
                    *write = Write::Settle(Settle { holder, how });
                }
            }
            _ => {}
        }
    }

    /// What the store sees instead of this claim.
    pub(crate) fn claim(self, mut claim: Claim, ids: &Ids, store: &Arc<MemoryStore>) -> Claim {
        match self {
            Self::ForgottenRequest => claim.request = ids.request(),
            Self::ShortLease => claim.lease /= 4,
            Self::UnfairClaim => {
                if let Pick::Next { lanes, limit } = claim.pick {
                    let all = Peek {
                        lanes: lanes.clone(),
                        limit: store.limits().page_max,
                    };
                    let waiting = store.peek(all).now_or_never().and_then(Result::ok);
                    let last = waiting.into_iter().flatten().rev().take(limit);
                    let ids: Vec<TaskId> = last.map(|task| task.id()).collect();
                    claim.pick = if ids.is_empty() {
                        Pick::Next { lanes, limit }
                    } else {
                        Pick::Ids(ids)
                    };
                }
            }
            _ => {}
        }
        claim
    }

    /// What the store sees instead of this renewal.
    pub(crate) fn renew(self, mut renew: Renew) -> Renew {
        if self == Self::ShortLease {
            renew.lease /= 4;
        }
        renew
    }

    /// Whether this commit is acknowledged and forgotten.
    pub(crate) fn forgets(self, commit: &Commit, dice: &Dice) -> Option<Receipt> {
        let [Write::Submit(new)] = commit.writes.as_slice() else {
            return None;
        };
        let forgets = self == Self::ForgottenSubmit && dice.chance(100);
        forgets.then(|| Receipt {
            outcomes: vec![Outcome::Submitted(Submitted {
                id: new.id,
                outcome: SubmitOutcome::Created,
            })],
            position: None,
            repeated: false,
        })
    }

    /// What a reader of history is shown instead of this page.
    pub(crate) fn page(self, mut page: ChangePage, asked: &Changes, dice: &Dice) -> ChangePage {
        let ends = |interest: &Interest| matches!(interest, Interest::Tasks { terminal: true, .. });
        if self == Self::HiddenEnd && asked.interests.iter().any(ends) {
            page.entries.clear();
        }
        if self == Self::SkippedEntry && page.entries.len() > 1 && dice.chance(100) {
            page.entries.remove(0);
        }
        self.spoil_changes(&mut page, asked, dice);
        page
    }

    /// What a reader of tasks is shown instead of this one.
    pub(crate) fn task(self, mut task: Task) -> Task {
        if self == Self::WrongEnd && task.status == Status::Cancelled {
            task.status = Status::Completed;
        }
        task
    }
}

fn row(id: TaskId, store: &Arc<MemoryStore>) -> Option<Task> {
    let rows = store.tasks(Tasks { ids: vec![id] }).now_or_never()?;
    rows.ok()?.into_iter().next().flatten()
}
