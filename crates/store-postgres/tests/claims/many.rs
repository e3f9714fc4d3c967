//! Tasks of every sort, one at a time and many at once, are what the memory store says they are:
//! rows are written in another way when there are many, and what is usual is not written at all.

use plimsoll_core::group::NewGroup;
use plimsoll_core::memory::{Memory, MemoryStore};
use plimsoll_core::store::FailRetry;
use plimsoll_core::task::{Due, KeyLifetime, OnConflict, Priority};
use plimsoll_core::{GroupId, IdempotencyKey, Limits, Revision};

use super::*;

/// Of the sorts and of the ends the one that most have.
const USUAL: usize = 16 * 9 - 1;
const DAY: Duration = Duration::from_secs(86_400);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A task of every sort, over and over.
fn sorts(ids: &Ids, n: usize) -> NewTask {
    let new = NewTask::new(ids.task(), lane(), format!("payload {n}"));
    let key = IdempotencyKey::new(format!("key {n}")).expect("a key");
    let kept = |lifetime| {
        new.clone()
            .key_with(key.clone(), lifetime, OnConflict::Attach)
    };
    match n % 16 {
        0 => kept(KeyLifetime::Forever),
        1 => kept(KeyLifetime::For(DAY)),
        2 => new.clone().group(GroupId::new("group").expect("a group")),
        3 => new.owner(name("owner")).label(name("a"), name("b")),
        4 => new.max_attempts(1),
        5 => new.max_attempts(0),
        6 => new.max_attempts(u32::MAX),
        7 => new.attempt_timeout(DAY).first_stage(name("stage")),
        8 => new.clone().on_failure(NewTask::new(ids.task(), lane(), "")),
        9 => new.trace("00-abc"),
        10 => NewTask {
            priority: Priority::new(9).expect("a priority"),
            ..new
        },
        11 => NewTask {
            due: Due::After(DAY),
            ..new
        },
        _ => new,
    }
}

/// How its holder ends it. Some are held on.
fn end(task: &Task, jitter: Jitter, n: usize) -> Option<Write> {
    let fail = |retry| Ending::Fail {
        error: "an error".into(),
        retry,
        jitter,
    };
    let how = match n % 9 {
        0 => Ending::Complete {
            result: Some("result".into()),
        },
        1 => fail(FailRetry::Policy),
        2 => fail(FailRetry::Fatal),
        3 => Ending::Snooze { delay: DAY },
        4 => Ending::Release { reason: None },
        5 => Ending::Cancel {
            reason: Some("a reason".into()),
        },
        6 => return None,
        _ => Ending::Complete { result: None },
    };
    let holder = holder(task);
    Some(Write::Settle(Settle { holder, how }))
}

/// But for revisions, which every store counts for itself.
fn told(task: Option<Task>) -> Option<Task> {
    let mut task = task?;
    task.state.revision = Revision::ZERO;
    let spec = Arc::make_mut(&mut task.spec);
    spec.born = Revision::ZERO;
    spec.group_born = spec.group_born.map(|_| Revision::ZERO);
    Some(task)
}

/// Both stores, and what they are asked.
struct Pair {
    world: World<1>,
    memory: MemoryStore,
}

impl Pair {
    async fn new() -> Self {
        let world = World::new().await;
        let memory = Memory::with(world.clock.clone(), Limits::default());
        let memory = memory.open(Namespace::new("memory").expect("a namespace"));
        let pair = Self { world, memory };
        let group = NewGroup::new(GroupId::new("group").expect("a group"));
        pair.write([Write::OpenGroup(Box::new(group))]).await;
        pair
    }

    async fn write(&self, writes: impl IntoIterator<Item = Write>) {
        let commits: Vec<Commit> = writes.into_iter().map(Commit::of).collect();
        let stores: [&dyn Store; 2] = [&self.world.stores[0], &self.memory];
        for store in stores {
            for answer in store.commit(commits.clone()).await {
                answer.expect("a receipt");
            }
        }
        self.world.clock.advance(Duration::from_secs(1));
    }

    async fn claim(&self, limit: usize) -> Vec<Task> {
        let claim = Claim {
            pick: Pick::Next {
                lanes: vec![lane()],
                limit,
            },
            worker: self.world.worker.clone(),
            lease: LEASE,
            request: self.world.ids.request(),
        };
        let taken = self.world.stores[0].claim(claim.clone()).await;
        let taken = taken.expect("a claim").tasks;
        let wanted = self.memory.claim(claim).await.expect("a claim").tasks;
        let told = |tasks: Vec<Task>| tasks.into_iter().map(|task| told(Some(task)));
        assert!(told(taken.clone()).eq(told(wanted)));
        self.world.clock.advance(Duration::from_secs(1));
        taken
    }

    async fn agree(&self, ids: &[TaskId], when: &str) {
        let ids = ids.to_vec();
        let asked = Tasks { ids };
        let found = self.world.stores[0].tasks(asked.clone()).await;
        let wanted = self.memory.tasks(asked).await.expect("tasks");
        for (found, wanted) in found.expect("tasks").into_iter().zip(wanted) {
            assert_eq!(told(found), told(wanted), "{when}");
        }
    }
}

async fn tasks_are_as_they_should_be(tasks: usize, at_once: usize, alike: bool) {
    let pair = Pair::new().await;
    let new: Vec<NewTask> = (0..tasks)
        .map(|n| sorts(&pair.world.ids, if alike { USUAL } else { n }))
        .collect();
    let mut ids: Vec<TaskId> = new.iter().map(|new| new.id).collect();
    ids.extend(
        new.iter()
            .filter_map(|new| Some(new.on_failure.as_ref()?.id)),
    );
    // The second time they are there already, and rows that were taken for new ones are not.
    for when in ["submitted", "submitted again"] {
        for new in new.chunks(at_once) {
            let submit = |new: &NewTask| Write::Submit(Box::new(new.clone()));
            pair.write(new.iter().map(submit)).await;
        }
        pair.agree(&ids, when).await;
    }
    // Those that are cancelled before they begin have neither attempts nor a start.
    let cancel = |task: &TaskId| {
        Write::Cancel(Cancel {
            task: *task,
            reason: None,
        })
    };
    pair.write(ids[..tasks / 4].iter().map(cancel)).await;
    let urgent = Priority::new(10).expect("a priority");
    pair.write((ids[tasks / 4..tasks / 2].iter()).map(|id| Write::Prioritise(*id, urgent)))
        .await;
    pair.agree(&ids, "cancelled and prioritised").await;
    let mut place = 0;
    loop {
        let held = pair.claim(at_once).await;
        pair.agree(&ids, "claimed").await;
        if held.is_empty() {
            break;
        }
        let jitter = pair.world.ids.jitter();
        let ends = (place..).zip(&held);
        let ends = ends.filter_map(|(n, task)| end(task, jitter, if alike { USUAL } else { n }));
        pair.write(ends).await;
        place += held.len();
        pair.agree(&ids, "settled").await;
    }
    assert!(place >= tasks / 2, "{place} were claimed");
    pair.write(ids[..tasks / 8].iter().map(|id| Write::DeleteTask(*id)))
        .await;
    pair.agree(&ids, "deleted").await;
}

#[tokio::test]
async fn one_at_a_time() {
    tasks_are_as_they_should_be(48, 1, false).await;
}

#[tokio::test]
async fn a_few_at_once() {
    tasks_are_as_they_should_be(48, 48, false).await;
}

#[tokio::test]
async fn many_at_once() {
    tasks_are_as_they_should_be(900, 900, false).await;
}

#[tokio::test]
async fn many_alike_at_once() {
    tasks_are_as_they_should_be(900, 900, true).await;
}
