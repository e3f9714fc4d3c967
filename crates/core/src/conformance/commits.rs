//! Commits: as a whole or not at all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::change::Entry;
use crate::conformance::act::insist;
use crate::conformance::observe::{created, field, lines};
use crate::conformance::parallel;
use crate::conformance::world::{World, complete, conflict, name, text};
use crate::conformance::writes::{log, open, put, settle, submit};
use crate::error::{Conflict, Error, LeaseLost, Lost, NotFound, Result};
use crate::group::{Group, NewGroup};
use crate::ids::Position;
use crate::log::{Level, Line, NewLine};
use crate::names::{GroupId, Key};
use crate::record::{Fields, Record, fields};
use crate::store::{
    Amend, Cancel, Commit, Get, Groups, Guard, Merge, Outcome, Put, Store, StoreExt, Tasks, Write,
};
use crate::task::{Holder, NewTask, Status, Task};

cases!["commits":
    a_guard_that_does_not_hold_keeps_every_write_from_happening,
    a_write_that_fails_undoes_the_writes_before_it,
    a_failing_commit_does_not_touch_its_neighbours,
    the_largest_commit_answers_for_every_write,
    a_commit_over_many_records_is_seen_whole,
];

pub(super) fn add(key: &str, number: i64) -> Result<Write> {
    let merge = Merge::new(Key::new(key)?).add(name("sum")?, number);
    Ok(Write::Merge(merge))
}

/// Something of every kind, for commits that must not change it.
struct Scene {
    first: Holder,
    second: Holder,
    unborn: NewTask,
    line: NewLine,
}

/// All that can be seen of a [`Scene`].
#[derive(Debug, PartialEq)]
struct Sight {
    records: Vec<Option<Record>>,
    tasks: Vec<Option<Task>>,
    by_key: Option<Task>,
    groups: Vec<Option<Group>>,
    lines: Vec<Line>,
    history: Vec<Entry>,
}

impl Scene {
    async fn set(w: &World) -> Result<Self> {
        let group = GroupId::new("group")?;
        let sealed = GroupId::new("sealed")?;
        w.store.write(open(NewGroup::new(group.clone()))).await?;
        w.store.write(open(NewGroup::new(sealed.clone()))).await?;
        w.store.write(Write::Seal(sealed)).await?;
        w.put("kept", [("value", "1")]).await?;
        w.put("deleted", [("value", "1")]).await?;
        let fading = Put::new(Key::new("fading")?, Fields::new()).ttl(Duration::from_secs(60));
        w.store.write(Write::Put(fading)).await?;
        let (_, first) = w.claimed(w.new_task("first")).await?;
        let member = w.new_task("second").group(group.clone());
        let (_, second) = w.claimed(member).await?;
        Ok(Self {
            first,
            second,
            unborn: w.new_task("unborn").group(group).key("key".try_into()?),
            line: NewLine::new(w.ids.line(), Level::Info, "said"),
        })
    }

    /// Changes every part of the scene.
    fn commit(&self) -> Result<Commit> {
        let mut amend = Amend::new(self.first.clone());
        amend.checkpoint = Some("here".into());
        let merge = Merge::new(Key::new("kept")?).set(fields([("value", "2")])?);
        Ok(Commit::new()
            .write(put("new", "1")?)
            .write(Write::Merge(merge))
            .write(Write::Delete(Key::new("deleted")?))
            .write(Write::Touch(Key::new("fading")?, None))
            .write(submit(self.unborn.clone()))
            .write(Write::Amend(Box::new(amend)))
            .write(log(&self.first, std::slice::from_ref(&self.line)))
            .write(settle(&self.second, complete()))
            .write(open(NewGroup::new(GroupId::new("another")?)))
            .write(Write::Seal(GroupId::new("group")?)))
    }

    async fn look(&self, w: &World) -> Result<Sight> {
        if !w.store.capabilities().joins_in_commit {
            w.sweep().await?;
        }
        let keys = ["kept", "deleted", "fading", "new", "last"].map(Key::new);
        let groups = ["group", "sealed", "another"].map(GroupId::new);
        let keys = keys.into_iter().collect::<Result<_, _>>()?;
        let ids = vec![self.first.task, self.second.task, self.unborn.id];
        let groups = groups.into_iter().collect::<Result<_, _>>()?;
        Ok(Sight {
            records: w.store.get(Get { keys }).await?,
            tasks: w.store.tasks(Tasks { ids }).await?,
            by_key: w.by_key("key").await?,
            groups: w.store.groups(Groups { ids: groups }).await?,
            lines: lines(w, self.first.task).await?,
            history: w.history().await?.entries,
        })
    }

    /// Asserts that the commit of the scene happens as if nothing had been tried before.
    async fn assert_commits(&self, w: &World) -> Result<()> {
        let receipt = w.store.commit_one(self.commit()?).await?;
        assert_eq!(receipt.outcomes.len(), 10);
        assert!(!receipt.repeated);
        let submitted = Outcome::Submitted(created(self.unborn.id));
        assert_eq!(receipt.outcomes[4], submitted);
        let seen = self.look(w).await?;
        let fields = seen
            .records
            .iter()
            .map(|r| Some(r.as_ref()?.fields.clone()));
        let (one, two) = (fields_of("1")?, fields_of("2")?);
        let expected = [Some(two), None, Some(Fields::new()), Some(one), None];
        assert_eq!(fields.collect::<Vec<_>>(), expected);
        let statuses = seen.tasks.iter().map(|task| Some(task.as_ref()?.status));
        assert_eq!(
            statuses.collect::<Vec<_>>(),
            [Status::Claimed, Status::Completed, Status::Pending].map(Some)
        );
        let counts = seen.groups[0]
            .as_ref()
            .map(|g| (g.spawned, g.done, g.sealed));
        assert_eq!(counts, Some((2, 1, true)));
        assert!(seen.groups[2].is_some());
        assert_eq!(seen.by_key.map(|task| task.id()), Some(self.unborn.id));
        assert_eq!(seen.lines.len(), 1);
        Ok(())
    }
}

pub(super) fn fields_of(value: &'static str) -> Result<Fields> {
    Ok(fields([("value", value)])?)
}

async fn a_guard_that_does_not_hold_keeps_every_write_from_happening(w: World) -> Result<()> {
    let scene = Scene::set(&w).await?;
    let before = scene.look(&w).await?;
    let failing = Guard::RecordAbsent(Key::new("deleted")?);
    let commit = scene
        .commit()?
        .guard(Guard::RecordPresent(Key::new("kept")?))
        .guard(Guard::Held(scene.first.clone()))
        .guard(failing.clone());
    let answer = w.store.commit_one(commit).await;
    let expected = Conflict::Guard {
        index: 2,
        guard: failing,
    };
    assert_eq!(conflict(answer), expected);
    assert_eq!(scene.look(&w).await?, before);
    scene.assert_commits(&w).await
}

async fn a_write_that_fails_undoes_the_writes_before_it(w: World) -> Result<()> {
    let scene = Scene::set(&w).await?;
    let (_, stale) = w.claimed(w.new_task("third")).await?;
    w.store.settle(stale.clone(), complete()).await?;
    let before = scene.look(&w).await?;
    let absent = Key::new("absent")?;
    let (sealed, nowhere) = (GroupId::new("sealed")?, GroupId::new("nowhere")?);
    let unknown = w.ids.task();
    let submit = |group: &GroupId| {
        let task = w.new_task("member").group(group.clone());
        submit(task)
    };
    let overwrite = Merge::new(Key::new("new")?).set(fields([("sum", "many")])?);
    let amend = Write::Amend(Box::new(Amend::new(stale.clone())));
    let cancel = Write::Cancel(Cancel {
        task: unknown,
        reason: None,
    });
    let failures: Vec<(Vec<Write>, Error)> = vec![
        (
            vec![Write::Touch(absent.clone(), None)],
            NotFound::Record(absent).into(),
        ),
        (
            // What an earlier write of the commit has set counts.
            vec![Write::Merge(overwrite), add("new", 1)?],
            Conflict::NotInteger {
                key: Key::new("new")?,
                field: name("sum")?,
            }
            .into(),
        ),
        (
            vec![amend],
            LeaseLost {
                task: stale.task,
                fence: stale.fence,
                why: Lost::Finished {
                    status: Status::Completed,
                },
            }
            .into(),
        ),
        (
            vec![submit(&sealed)],
            Conflict::GroupSealed { group: sealed }.into(),
        ),
        (vec![submit(&nowhere)], NotFound::Group(nowhere).into()),
        (
            vec![Write::DeleteTask(scene.unborn.id)],
            Conflict::NotFinished {
                task: scene.unborn.id,
                status: Status::Pending,
            }
            .into(),
        ),
        (vec![cancel], NotFound::Task(unknown).into()),
    ];
    for (writes, error) in failures {
        let mut commit = scene.commit()?;
        commit.writes.extend(writes);
        let answer = w.store.commit_one(commit.write(put("last", "1")?)).await;
        assert_eq!(answer, Err(error));
        assert_eq!(scene.look(&w).await?, before);
    }
    scene.assert_commits(&w).await
}

async fn a_failing_commit_does_not_touch_its_neighbours(w: World) -> Result<()> {
    let absent = Guard::RecordAbsent(Key::new("one")?);
    let too_short = Put::new(Key::new("three")?, Fields::new()).ttl(Duration::ZERO);
    let receipts = w
        .store
        .commit(vec![
            Commit::of(put("one", "1")?),
            Commit::of(put("two", "2")?).guard(absent.clone()),
            Commit::of(put("four", "4")?),
            Commit::of(put("three", "3")?).write(Write::Put(too_short)),
            Commit::of(put("five", "5")?).write(Write::Touch(Key::new("six")?, None)),
            Commit::new(),
            Commit::of(put("seven", "7")?),
        ])
        .await;
    assert_eq!(receipts.len(), 7);
    for index in [0, 2, 6] {
        let receipt = receipts[index].clone()?;
        assert!(receipt.position.is_some());
        assert!(matches!(receipt.outcomes[..], [Outcome::Written { .. }]));
    }
    let guard = Conflict::Guard {
        index: 0,
        guard: absent,
    };
    assert_eq!(conflict(receipts[1].clone()), guard);
    assert!(matches!(&receipts[3], Err(Error::Invalid(i)) if i.field == "writes[1].ttl"));
    assert_eq!(receipts[4], Err(NotFound::Record(Key::new("six")?).into()));
    assert!(matches!(&receipts[5], Err(Error::Invalid(_))));
    for (key, expected) in [
        ("one", Some("1")),
        ("two", None),
        ("three", None),
        ("four", Some("4")),
        ("five", None),
        ("seven", Some("7")),
    ] {
        assert_eq!(field(&w, key, "value").await?.as_deref(), expected, "{key}");
    }
    assert_eq!(w.store.commit(Vec::new()).await, []);
    Ok(())
}

/// What the history tells at this position.
pub(super) async fn told_at(w: &World, position: Option<Position>) -> Result<Entry> {
    let history = w.history().await?.entries;
    let entry = (history.into_iter()).find(|entry| Some(entry.position) == position);
    entry.ok_or_else(|| Error::Corrupt(format!("no entry at {position:?}").into()))
}

async fn the_largest_commit_answers_for_every_write(w: World) -> Result<()> {
    let mut commit = Commit::new();
    for n in 0..200 {
        commit = commit.guard(Guard::RecordAbsent(Key::new(format!("key.{n}"))?));
        let write = if n % 3 == 0 {
            Write::Delete(Key::new(format!("key.{n}"))?)
        } else {
            put(&format!("key.{n}"), "1")?
        };
        commit = commit.write(write);
    }
    let receipt = w.store.commit_one(commit.clone()).await?;
    assert_eq!(receipt.outcomes.len(), 200);
    for (n, outcome) in receipt.outcomes.iter().enumerate() {
        let deleted = matches!(outcome, Outcome::Removed { existed: false });
        assert_eq!(deleted, n % 3 == 0, "{n}: {outcome:?}");
    }
    let entry = told_at(&w, receipt.position).await?;
    assert_eq!(entry.changes.len(), 133);
    let named = Conflict::Guard {
        index: 1,
        guard: commit.guards[1].clone(),
    };
    assert_eq!(conflict(w.store.commit_one(commit).await), named);
    Ok(())
}

async fn a_commit_over_many_records_is_seen_whole(w: World) -> Result<()> {
    let keys = (0..20).map(|n| Key::new(format!("key.{n}")));
    let keys = keys.collect::<Result<Vec<Key>, _>>()?;
    write_round(w.store.as_ref(), &keys, 0).await?;
    let done = Arc::new(AtomicBool::new(false));
    let (store, all, last) = (w.store.clone(), keys.clone(), done.clone());
    let mut work: Vec<Pin<Box<dyn Future<Output = Result<()>> + Send>>> = Vec::new();
    work.push(Box::pin(async move {
        let mut answer = Ok(());
        for round in 1..=25 {
            answer = answer.and(write_round(store.as_ref(), &all, round).await);
        }
        last.store(true, Ordering::Release);
        answer
    }));
    for store in [w.store.clone(), w.second().await?] {
        let (keys, done) = (keys.clone(), done.clone());
        work.push(Box::pin(async move {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let round = read_round(store.as_ref(), &keys).await?;
                assert!(round >= last, "{round} after {last}");
                last = round;
                tokio::task::yield_now().await;
            }
            assert_eq!(read_round(store.as_ref(), &keys).await?, 25);
            Ok(())
        }));
    }
    parallel(work).await.into_iter().collect()
}

/// Writes the same to all these records in one commit.
async fn write_round(store: &dyn Store, keys: &[Key], round: u32) -> Result<()> {
    let mut commit = Commit::new();
    for key in keys {
        let value = fields([("round", round.to_string())])?;
        commit = commit.write(Write::Put(Put::new(key.clone(), value)));
    }
    insist(store, commit).await.map(drop)
}

/// Reads what must be the same in all these records.
async fn read_round(store: &dyn Store, keys: &[Key]) -> Result<u32> {
    let keys = keys.to_vec();
    let seen = store.get(Get { keys }).await?;
    let mut rounds: Vec<Option<String>> = (seen.into_iter())
        .map(|record| record.and_then(|record| text(&record.fields, "round")))
        .collect();
    rounds.dedup();
    assert_eq!(rounds.len(), 1, "a part of a commit was seen: {rounds:?}");
    let round = rounds.remove(0).and_then(|round| round.parse().ok());
    round.ok_or_else(|| Error::Corrupt("no round was written".into()))
}
