//! A random history by many workers, after which everything must add up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::change::{Change, TaskEvent};
use crate::conformance::act::insist;
use crate::conformance::concurrency::{all, changes, handles};
use crate::conformance::concurrent_groups::open_group;
use crate::conformance::observe::listed;
use crate::conformance::parallel;
use crate::conformance::world::{LEASE, World, complete, fail, fail_with, holder, name};
use crate::error::{Error, Result};
use crate::ids::{Ids, TaskId};
use crate::lifecycle::Lifecycle;
use crate::log::{Level, NewLine};
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::store::{
    Amend, Cancel, Commit, Counts, Ending, FailRetry, List, Log, Merge, Renew, Retry, Selector,
    Settle, StoreExt, Write,
};
use crate::task::{Holder, KeyLifetime, Lane, NewTask, OnConflict, Priority, Status, Task};

cases!["random_history":
    everything_adds_up_after_a_random_history,
];

const RANDOM_LANES: [&str; 3] = ["one", "two", "three"];

const RANDOM_GROUPS: [&str; 3] = ["group-0", "group-1", "group-2"];

/// One worker of a random history.
struct Actor {
    w: World,
    random: Ids,
    worker: crate::task::WorkerId,
    held: Vec<Holder>,
    known: Vec<TaskId>,
}

impl Actor {
    fn pick(&self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap_or(0)
    }

    fn some_task(&self) -> TaskId {
        match self.known.len() {
            0 => TaskId::from_u128(1),
            len => self.known[self.pick(len)],
        }
    }

    fn some_held(&mut self) -> Option<Holder> {
        match self.held.len() {
            0 => None,
            len => Some(self.held.swap_remove(self.pick(len))),
        }
    }

    fn new_task(&self) -> Result<NewTask> {
        let mut task = self.w.new_task(self.pick(3).to_string());
        task.lane = Lane::new("random", RANDOM_LANES[self.pick(3)])?;
        match self.pick(4) {
            0 => task.group = Some(GroupId::new(RANDOM_GROUPS[self.pick(3)])?),
            1 => {
                let key = IdempotencyKey::new(format!("key-{}", self.pick(4)))?;
                let policy = [
                    OnConflict::Attach,
                    OnConflict::Reject,
                    OnConflict::ReplacePending,
                    OnConflict::CancelAndReplace,
                ][self.pick(4)];
                task = task.key_with(key, KeyLifetime::WhileActive, policy);
            }
            2 => task = task.after(Duration::from_secs(1 + self.random.below(20))),
            _ => task = task.lifecycle(Lifecycle::row(["first", "stage"])?),
        }
        Ok(task)
    }

    async fn claim(&mut self) -> Result<()> {
        let mut claim = self.w.next(&self.worker, 1 + self.pick(4));
        if let crate::store::Pick::Next { lanes, .. } = &mut claim.pick {
            *lanes = vec![
                Lane::new("random", RANDOM_LANES[0])?,
                Lane::new("random", RANDOM_LANES[1 + self.pick(2)])?,
            ];
        }
        let claimed = self.w.store.claim(claim).await?;
        self.held.extend(claimed.tasks.iter().map(holder));
        Ok(())
    }

    /// Does one thing. What others did before may forbid it; anything else is a fault.
    async fn act(&mut self) -> Result<()> {
        let write = match self.pick(20) {
            0..4 => {
                let task = self.new_task()?;
                self.known.push(task.id);
                Write::Submit(Box::new(task))
            }
            4..7 => return self.claim().await,
            7..11 => {
                let Some(holder) = self.some_held() else {
                    return Ok(());
                };
                let delay = Duration::from_secs(self.random.below(10));
                let how = match self.pick(6) {
                    0 | 1 => complete(),
                    2 => fail("again"),
                    3 => fail_with("no", FailRetry::Fatal),
                    4 => Ending::Snooze { delay },
                    _ => Ending::Release { reason: None },
                };
                Write::Settle(Settle { holder, how })
            }
            11 => {
                let renew = Renew {
                    holders: self.held.clone(),
                    lease: LEASE,
                };
                self.w.store.renew(renew).await?;
                return Ok(());
            }
            12 => {
                self.w.advance(Duration::from_secs(self.random.below(8)));
                self.w.store.sweep(10, &self.w.ids).await?;
                return Ok(());
            }
            13 => Write::Cancel(Cancel {
                task: self.some_task(),
                reason: None,
            }),
            14 => Write::Retry(Retry {
                task: self.some_task(),
                force: self.pick(2) == 0,
                delay: Duration::from_secs(self.random.below(3)),
            }),
            15 => {
                let priority = u8::try_from(self.pick(11)).unwrap_or(0);
                Write::Prioritise(self.some_task(), Priority::new(priority)?)
            }
            16 => {
                let task = self.some_task();
                match self.w.store.task(task).await? {
                    // The counts of a group go on counting members that were deleted.
                    Some(task) if task.spec.group.is_some() => return Ok(()),
                    _ => Write::DeleteTask(task),
                }
            }
            17 => Write::Arrive(GroupId::new(RANDOM_GROUPS[self.pick(3)])?, 1),
            18 => {
                let group = GroupId::new(RANDOM_GROUPS[self.pick(3)])?;
                match self.pick(4) {
                    0 => Write::Reopen(group),
                    1 => Write::Seal(group),
                    _ => Write::Merge(Merge::new(Key::new("sum")?).add(name("n")?, 1)),
                }
            }
            _ => {
                let Some(holder) = self.held.last().cloned() else {
                    return Ok(());
                };
                let line = NewLine::new(self.w.ids.line(), Level::Info, "said");
                match self.pick(2) {
                    0 => Write::Log(Log {
                        holder,
                        lines: vec![line],
                    }),
                    _ => Write::Amend(Box::new(Amend {
                        stage: Some(name("stage")?),
                        ..Amend::new(holder)
                    })),
                }
            }
        };
        let commit = Commit::of(write).id(self.w.ids.commit());
        match insist(self.w.store.as_ref(), commit).await {
            Ok(_) | Err(Error::Conflict(_) | Error::LeaseLost(_) | Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn everything_adds_up_after_a_random_history(w: World) -> Result<()> {
    for group in RANDOM_GROUPS {
        open_group(&w, group).await?;
    }
    let worlds = handles(&w, 6).await?;
    let mut seen = BTreeMap::new();
    for seed in [1, 2, 3] {
        let actors = (worlds.iter().cloned().enumerate()).map(|(n, w)| {
            let random = Ids::seeded(seed * 100 + n as u64, Arc::new(w.clock.clone()));
            async move {
                let mut actor = Actor {
                    worker: w.worker(&format!("worker-{n}"))?,
                    w,
                    random,
                    held: Vec::new(),
                    known: Vec::new(),
                };
                for _ in 0..60 {
                    actor.act().await?;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
        });
        all(parallel(actors).await)?;
        seen = assert_adds_up(&w, seed, &seen).await?;
    }
    Ok(())
}

/// The tasks that there are. They agree with all the store says, and with what was seen before.
async fn assert_adds_up(
    w: &World,
    seed: u64,
    seen: &BTreeMap<TaskId, Task>,
) -> Result<BTreeMap<TaskId, Task>> {
    let entries = w.history().await?.entries;
    let mut told = BTreeMap::new();
    for change in changes(&entries) {
        let Change::Task(now) = change else { continue };
        if let Some((status, fence, revision)) =
            told.insert(now.id, (now.status, now.fence, now.revision))
        {
            let grows = fence <= now.fence && revision <= now.revision;
            assert!(
                grows,
                "seed {seed}: {now:?} after {status} {fence} {revision}"
            );
        }
        if now.event == TaskEvent::Deleted {
            told.remove(&now.id);
        }
    }
    let mut found = BTreeMap::new();
    for counts in w.store.counts(Counts::default()).await? {
        for status in Status::ALL {
            let tasks = listed(
                w,
                List::new(Selector::Lane(counts.lane.clone(), status), 1_000),
            )
            .await?;
            let count = counts.by_status.get(&status).copied().unwrap_or(0);
            let lane = &counts.lane;
            assert_eq!(count, tasks.len() as u64, "seed {seed}: {status} in {lane}");
            for task in tasks {
                let context = format!("seed {seed}: {task:?}");
                assert_eq!(task.status, status, "{context}");
                assert_eq!(task.violations(), [], "{context}");
                if let Some(before) = seen.get(&task.id()) {
                    assert_eq!(task.violations_since(before), [], "{context}");
                }
                let (last_status, last_fence, _) = told[&task.id()];
                assert_eq!((last_status, last_fence), (status, task.fence), "{context}");
                found.insert(task.id(), task);
            }
        }
    }
    let (found_ids, told_ids): (Vec<_>, Vec<_>) = (
        found.keys().copied().collect(),
        told.keys().copied().collect(),
    );
    assert_eq!(found_ids, told_ids, "seed {seed}: what is there was told");
    let mut active: BTreeMap<&IdempotencyKey, &Task> = BTreeMap::new();
    for task in found.values().filter(|task| !task.status.is_terminal()) {
        // One that waits for its predecessor to end shares the key with it until then.
        if let (Some((key, _)), None) = (&task.spec.key, &task.waiting)
            && let Some(other) = active.insert(key, task)
        {
            panic!("seed {seed}: {key} stands for {task:?} and for {other:?}");
        }
    }
    for group in RANDOM_GROUPS {
        let members = listed(w, List::new(Selector::Group(GroupId::new(group)?), 1_000)).await?;
        let group = w.group(group).await?;
        let ended = |status| members.iter().filter(|task| task.status == status).count() as u64;
        let (failed, cancelled) = (ended(Status::Failed), ended(Status::Cancelled));
        let done = ended(Status::Completed) + failed + cancelled;
        assert_eq!(
            group.spawned,
            members.len() as u64,
            "seed {seed}: {group:?}"
        );
        assert_eq!(group.done, done + group.arrived, "seed {seed}: {group:?}");
        let counted = (group.failed, group.cancelled);
        assert_eq!(counted, (failed, cancelled), "seed {seed}: {group:?}");
        let complete = group.total() == Some(group.done);
        assert_eq!(
            group.drained_at.is_some(),
            complete,
            "seed {seed}: {group:?}"
        );
        let Some(then) = &group.then else { continue };
        for generation in 0..=group.generation {
            let drained = generation < group.generation || complete;
            let submitted = found.contains_key(&then.id.nth(generation));
            assert_eq!(submitted, drained, "seed {seed}: {group:?}");
        }
    }
    Ok(found)
}
