//! Commits: as a whole or not at all, guarded, in order, and once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::change::{Change, Entry, GroupEvent, Removal, TaskChange, TaskEvent};
use crate::conformance::parallel;
use crate::conformance::records::{assert_fields, persist};
use crate::conformance::world::{World, complete, conflict, holder, lost, name, text};
use crate::error::{Conflict, Error, LeaseLost, Lost, NotFound, Result};
use crate::group::{Group, NewGroup};
use crate::ids::{Position, Revision, TaskId};
use crate::log::{Level, Line, NewLine};
use crate::names::{GroupId, Key};
use crate::record::{Fields, Record, fields};
use crate::store::{
    Amend, Cancel, Commit, Ending, Get, Groups, Guard, Log, Logs, Merge, Outcome, Put, Receipt,
    Settle, Store, StoreExt, SubmitOutcome, Submitted, Tasks, Write,
};
use crate::task::{Holder, NewTask, Priority, Status, Task};

cases!["commits":
    a_guard_that_does_not_hold_keeps_every_write_from_happening,
    a_write_that_fails_undoes_the_writes_before_it,
    a_failing_commit_does_not_touch_its_neighbours,
    commits_of_one_call_see_those_before_them,
    writes_see_the_writes_before_them_in_the_same_commit,
    a_record_that_a_commit_makes_and_removes_was_never_there,
    a_guard_on_a_record_holds_or_is_named,
    a_guard_on_a_holder_holds_or_the_lease_is_lost,
    a_guard_on_a_task_holds_or_is_named,
    a_guard_on_a_group_holds_or_is_named,
    a_commit_of_guards_alone_changes_nothing,
    compare_and_swap_takes_an_expired_record_for_absent,
    of_many_that_compare_and_swap_at_once_one_wins,
    a_commit_id_is_applied_once,
    a_commit_id_is_applied_once_within_a_call,
    a_commit_that_was_refused_is_not_remembered,
    a_receipt_says_where_the_changes_are,
    receipts_of_one_call_say_where_their_changes_are,
    a_commit_with_nothing_to_show_has_no_position,
    the_largest_commit_answers_for_every_write,
    a_commit_over_many_records_is_seen_whole,
];

/// Makes a commit with nothing but this guard.
async fn check(w: &World, guard: Guard) -> Result<Receipt> {
    w.store.commit_one(Commit::new().guard(guard)).await
}

fn put(key: &str, value: &'static str) -> Result<Write> {
    let value = fields([("value", value)])?;
    Ok(Write::Put(Put::new(Key::new(key)?, value)))
}

fn add(key: &str, number: i64) -> Result<Write> {
    let merge = Merge::new(Key::new(key)?).add(name("sum")?, number);
    Ok(Write::Merge(merge))
}

fn open(group: NewGroup) -> Write {
    Write::OpenGroup(Box::new(group))
}

/// The value of a record that [`put`] wrote.
async fn value(w: &World, key: &str) -> Result<Option<String>> {
    let record = w.record(key).await?;
    Ok(record.and_then(|record| text(&record.fields, "value")))
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
        let log = Log {
            holder: self.first.clone(),
            lines: vec![self.line.clone()],
        };
        let settle = Settle {
            holder: self.second.clone(),
            how: complete(),
        };
        let merge = Merge::new(Key::new("kept")?).set(fields([("value", "2")])?);
        Ok(Commit::new()
            .write(put("new", "1")?)
            .write(Write::Merge(merge))
            .write(Write::Delete(Key::new("deleted")?))
            .write(Write::Touch(Key::new("fading")?, None))
            .write(Write::Submit(Box::new(self.unborn.clone())))
            .write(Write::Amend(Box::new(amend)))
            .write(Write::Log(log))
            .write(Write::Settle(settle))
            .write(open(NewGroup::new(GroupId::new("another")?)))
            .write(Write::Seal(GroupId::new("group")?)))
    }

    async fn look(&self, w: &World) -> Result<Sight> {
        if !w.store.capabilities().joins_in_commit {
            w.sweep().await?;
        }
        let keys = ["kept", "deleted", "fading", "new", "last"].map(Key::new);
        let groups = ["group", "sealed", "another"].map(GroupId::new);
        let logs = Logs {
            task: self.first.task,
            level: Level::Debug,
            cursor: None,
            limit: 10,
        };
        let keys = keys.into_iter().collect::<Result<_, _>>()?;
        let ids = vec![self.first.task, self.second.task, self.unborn.id];
        let groups = groups.into_iter().collect::<Result<_, _>>()?;
        Ok(Sight {
            records: w.store.get(Get { keys }).await?,
            tasks: w.store.tasks(Tasks { ids }).await?,
            by_key: w.by_key("key").await?,
            groups: w.store.groups(Groups { ids: groups }).await?,
            lines: w.store.logs(logs).await?.lines,
            history: w.history().await?.entries,
        })
    }

    /// Asserts that the commit of the scene happens as if nothing had been tried before.
    async fn assert_commits(&self, w: &World) -> Result<()> {
        let receipt = w.store.commit_one(self.commit()?).await?;
        assert_eq!(receipt.outcomes.len(), 10);
        assert!(!receipt.repeated);
        let submitted = Submitted {
            id: self.unborn.id,
            outcome: SubmitOutcome::Created,
        };
        assert_eq!(receipt.outcomes[4], Outcome::Submitted(submitted));
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

fn fields_of(value: &'static str) -> Result<Fields> {
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
        Write::Submit(Box::new(task))
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
        assert_eq!(value(&w, key).await?.as_deref(), expected, "{key}");
    }
    assert_eq!(w.store.commit(Vec::new()).await, []);
    Ok(())
}

async fn commits_of_one_call_see_those_before_them(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let is = |value: Option<&'static str>| -> Result<Guard> {
        let value = value.map(Into::into);
        Ok(Guard::Field(key.clone(), name("value")?, value))
    };
    let task = w.new_task("work");
    let (id, reason) = (task.id, Some("not wanted".to_owned()));
    let receipts = w
        .store
        .commit(vec![
            Commit::of(put("key", "1")?).guard(is(None)?),
            Commit::of(put("key", "2")?).guard(is(Some("1"))?),
            Commit::of(put("key", "never")?).guard(is(Some("1"))?),
            Commit::of(Write::Delete(key.clone())).guard(is(Some("2"))?),
            Commit::of(put("key", "3")?).guard(Guard::RecordAbsent(key.clone())),
            Commit::of(Write::Submit(Box::new(task))),
            Commit::of(Write::Cancel(Cancel { task: id, reason })),
        ])
        .await;
    let done: Vec<bool> = receipts.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, true, false, true, true, true, true]);
    let guard = is(Some("1"))?;
    assert_eq!(
        conflict(receipts[2].clone()),
        Conflict::Guard { index: 0, guard }
    );
    assert_eq!(
        receipts[3].clone()?.outcomes,
        [Outcome::Removed { existed: true }]
    );
    assert_eq!(value(&w, "key").await?.as_deref(), Some("3"));
    assert_eq!(w.status(id).await?, Status::Cancelled);
    let revisions: Vec<Revision> = (receipts.iter().flatten())
        .filter_map(|receipt| match receipt.outcomes[0] {
            Outcome::Written { revision, .. } => Some(revision),
            _ => None,
        })
        .collect();
    assert!(revisions.is_sorted_by(|one, next| one < next));
    assert_eq!(revisions.len(), 3);
    // Each of the commits is told, although one after another wrote the same key.
    let history = w.history().await?.entries;
    let told: Vec<Option<String>> = (history.iter().flat_map(|entry| &entry.changes))
        .filter_map(|change| match change {
            Change::Put(record) => Some(text(&record.fields, "value")),
            Change::Removed { how, .. } => {
                assert_eq!(*how, Removal::Deleted);
                Some(None)
            }
            Change::Task(_) | Change::Group { .. } => None,
        })
        .collect();
    let expected = [Some("1"), Some("2"), None, Some("3")];
    assert_eq!(told, expected.map(|value| value.map(str::to_owned)));
    Ok(())
}

async fn writes_see_the_writes_before_them_in_the_same_commit(w: World) -> Result<()> {
    let ttl = Duration::from_secs(60);
    let before = w.put("again", [("value", "before"), ("old", "1")]).await?;
    let (key, group) = (Key::new("key")?, GroupId::new("group")?);
    let member = w.new_task("member").group(group.clone());
    let id = member.id;
    let returning = Merge::new(key.clone()).add(name("sum")?, 2).returning();
    let commit = Commit::new()
        .guard(Guard::RecordAbsent(key.clone()))
        .write(put("key", "1")?)
        .write(add("key", 40)?)
        .write(Write::Touch(key.clone(), Some(ttl)))
        .write(Write::Merge(returning))
        .write(Write::Delete(before.key.clone()))
        .write(put("again", "after")?)
        .write(open(NewGroup::new(group.clone())))
        .write(Write::Submit(Box::new(member)))
        .write(Write::Cancel(Cancel {
            task: id,
            reason: None,
        }))
        .write(Write::Seal(group.clone()));
    let receipt = w.commit_with_id(commit).await?;
    let record = w.record("key").await?;
    let expected = Record {
        key,
        fields: fields([("sum", "42"), ("value", "1")])?,
        revision: record.as_ref().map_or(Revision::ZERO, |r| r.revision),
        modified_at: w.now(),
        expires_at: Some(w.now().saturating_plus(ttl)),
    };
    assert_eq!(record.as_ref(), Some(&expected));
    let answered = Outcome::Written {
        revision: expected.revision,
        record: Some(expected.clone()),
    };
    assert_eq!(receipt.outcomes[3], answered);
    assert_eq!(receipt.outcomes[4], Outcome::Removed { existed: true });
    let again = w.record("again").await?;
    assert_eq!(
        again.as_ref().map(|record| record.fields.clone()),
        Some(fields_of("after")?)
    );
    assert_eq!(w.status(id).await?, Status::Cancelled);
    let group = w.group("group").await?;
    assert_eq!((group.spawned, group.done, group.cancelled), (1, 1, 1));
    assert_eq!(group.drained_at, Some(w.now()));
    let told = w.history().await?.entries.into_iter();
    let told: Vec<Change> = (told.flat_map(|entry| entry.changes))
        .filter(|change| matches!(change, Change::Put(_) | Change::Removed { .. }))
        .collect();
    let mut all = vec![Change::Put(before), Change::Put(expected)];
    all.extend(again.map(Change::Put));
    assert_eq!(told, all, "one change for each record");
    Ok(())
}

async fn a_record_that_a_commit_makes_and_removes_was_never_there(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let commit = Commit::of(put("key", "1")?).write(Write::Delete(key.clone()));
    let receipt = w.store.commit_one(commit.clone()).await?;
    assert_eq!(receipt.outcomes[1], Outcome::Removed { existed: true });
    assert_eq!(receipt.position, None);
    assert_eq!(w.record("key").await?, None);
    assert_eq!(w.history().await?.entries, []);
    let record = w.put("key", [("value", "0")]).await?;
    w.store.commit_one(commit).await?;
    let history = w.history().await?.entries.into_iter();
    let removed = Change::Removed {
        key,
        revision: record.revision,
        how: Removal::Deleted,
    };
    assert_eq!(
        history.flat_map(|entry| entry.changes).collect::<Vec<_>>(),
        [Change::Put(record), removed]
    );
    Ok(())
}

async fn a_guard_on_a_record_holds_or_is_named(w: World) -> Result<()> {
    let old = w.put("there", [("value", "0")]).await?;
    let now = w.put("there", [("value", "1"), ("empty", "")]).await?;
    let (there, gone) = (now.key.clone(), Key::new("gone")?);
    let field = |key: &Key, field: &str, value: Option<&'static str>| {
        name(field).map(|field| Guard::Field(key.clone(), field, value.map(Into::into)))
    };
    for (guard, holds) in [
        (Guard::RecordAbsent(gone.clone()), true),
        (Guard::RecordAbsent(there.clone()), false),
        (Guard::RecordPresent(there.clone()), true),
        (Guard::RecordPresent(gone.clone()), false),
        (Guard::RecordAt(there.clone(), now.revision), true),
        (Guard::RecordAt(there.clone(), old.revision), false),
        (Guard::RecordAt(there.clone(), now.revision.next()), false),
        (Guard::RecordAt(gone.clone(), now.revision), false),
        (Guard::RecordAt(gone.clone(), Revision::ZERO), false),
        (field(&there, "value", Some("1"))?, true),
        (field(&there, "value", Some("0"))?, false),
        (field(&there, "value", Some("1 "))?, false),
        (field(&there, "value", Some(""))?, false),
        (field(&there, "value", None)?, false),
        (field(&there, "empty", Some(""))?, true),
        (field(&there, "empty", None)?, false),
        (field(&there, "other", None)?, true),
        (field(&there, "other", Some(""))?, false),
        (field(&gone, "value", None)?, true),
        (field(&gone, "value", Some("1"))?, false),
        (field(&gone, "value", Some(""))?, false),
    ] {
        let commit = Commit::of(put("witness", "1")?)
            .guard(Guard::RecordPresent(there.clone()))
            .guard(guard.clone())
            .guard(Guard::RecordAbsent(Key::new("witness")?));
        let answer = w.store.commit_one(commit).await;
        if holds {
            assert!(answer.is_ok(), "{guard}");
            w.store.write(Write::Delete(Key::new("witness")?)).await?;
        } else {
            let named = Conflict::Guard { index: 1, guard };
            assert_eq!(conflict(answer), named);
            assert_eq!(w.record("witness").await?, None);
        }
    }
    assert_eq!(w.record("there").await?, Some(now));
    Ok(())
}

async fn a_guard_on_a_holder_holds_or_the_lease_is_lost(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let id = w.submit(w.new_task("work")).await?.id();
    let first = holder(&w.claim_ids(&worker, &[id]).await?.tasks[0]);
    let guarded = |by: &Holder| -> Result<_> {
        let guard = Guard::Held(by.clone());
        let commit = Commit::of(put("witness", "1")?).guard(guard);
        Ok(w.store.commit_one(commit))
    };
    let mut wrong = first.clone();
    wrong.worker = w.worker("worker")?;
    let holds = Lost::WrongWorker {
        holder: worker.clone(),
    };
    assert_eq!(lost(guarded(&wrong)?.await), holds);
    let unknown = Holder {
        task: w.ids.task(),
        ..first.clone()
    };
    assert_eq!(lost(guarded(&unknown)?.await), Lost::Gone);
    let release = || Ending::Release { reason: None };
    w.store.settle(first.clone(), release()).await?;
    let status = Status::Pending;
    assert_eq!(lost(guarded(&first)?.await), Lost::NotClaimed { status });
    let second = holder(&w.claim_ids(&worker, &[id]).await?.tasks[0]);
    let fence = second.fence;
    assert_eq!(lost(guarded(&first)?.await), Lost::Superseded { fence });
    assert_eq!(w.record("witness").await?, None);
    // A lease that ran out holds until it is expired.
    w.advance(Duration::from_secs(3_600));
    guarded(&second)?.await?;
    assert_eq!(value(&w, "witness").await?.as_deref(), Some("1"));
    w.store.settle(second.clone(), complete()).await?;
    let expected = LeaseLost {
        task: id,
        fence,
        why: Lost::Finished {
            status: Status::Completed,
        },
    };
    assert_eq!(guarded(&second)?.await, Err(expected.into()));
    Ok(())
}

async fn a_guard_on_a_task_holds_or_is_named(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("work")).await?;
    let id = pending.id();
    check(&w, Guard::TaskAt(id, pending.revision)).await?;
    let worker = w.worker("worker")?;
    let claimed = w.claim_ids(&worker, &[id]).await?.tasks.remove(0);
    check(&w, Guard::TaskAt(id, claimed.revision)).await?;
    for guard in [
        Guard::TaskAt(id, pending.revision),
        Guard::TaskAt(id, claimed.revision.next()),
        Guard::TaskAt(w.ids.task(), claimed.revision),
        Guard::TaskAt(w.ids.task(), Revision::ZERO),
    ] {
        let cancel = Write::Cancel(Cancel {
            task: id,
            reason: None,
        });
        let commit = Commit::of(cancel).guard(guard.clone());
        let answer = w.store.commit_one(commit).await;
        assert_eq!(conflict(answer), Conflict::Guard { index: 0, guard });
    }
    assert_eq!(w.task(id).await?, claimed);
    Ok(())
}

async fn a_guard_on_a_group_holds_or_is_named(w: World) -> Result<()> {
    let [open_one, full, sealed, nowhere] = ["open", "full", "sealed", "nowhere"].map(GroupId::new);
    let (open_one, full, sealed, nowhere) = (open_one?, full?, sealed?, nowhere?);
    w.store.write(open(NewGroup::new(open_one.clone()))).await?;
    w.store.write(open(NewGroup::new(sealed.clone()))).await?;
    let one = NewGroup::new(full.clone()).expecting(1);
    w.store.write(open(one)).await?;
    for group in [&open_one, &full, &sealed] {
        check(&w, Guard::GroupOpen(group.clone())).await?;
    }
    w.submit(w.new_task("member").group(full.clone())).await?;
    w.store.write(Write::Seal(sealed.clone())).await?;
    for group in [full, sealed, nowhere] {
        let guard = Guard::GroupOpen(group);
        let commit = Commit::of(put("witness", "1")?)
            .guard(Guard::GroupOpen(open_one.clone()))
            .guard(guard.clone());
        let answer = w.store.commit_one(commit).await;
        assert_eq!(conflict(answer), Conflict::Guard { index: 1, guard });
    }
    assert_eq!(w.record("witness").await?, None);
    Ok(())
}

async fn a_commit_of_guards_alone_changes_nothing(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let record = w.put("key", [("value", "1")]).await?;
    let history = w.history().await?.entries;
    let commit = Commit::new()
        .guard(Guard::RecordAt(record.key.clone(), record.revision))
        .guard(Guard::Held(held))
        .guard(Guard::TaskAt(task.id(), task.revision));
    let receipt = w.store.commit_one(commit.clone()).await?;
    let expected = Receipt {
        outcomes: Vec::new(),
        position: None,
        repeated: false,
    };
    assert_eq!(receipt, expected);
    assert_eq!(w.record("key").await?, Some(record.clone()));
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.history().await?.entries, history);
    let guard = Guard::RecordAbsent(record.key);
    let answer = w.store.commit_one(commit.guard(guard.clone())).await;
    assert_eq!(conflict(answer), Conflict::Guard { index: 3, guard });
    Ok(())
}

async fn compare_and_swap_takes_an_expired_record_for_absent(w: World) -> Result<()> {
    let (ttl, key) = (Duration::from_secs(5), Key::new("key")?);
    let millisecond = Duration::from_millis(1);
    for (wait, in_time) in [
        (ttl - millisecond, true),
        (ttl, false),
        (ttl + millisecond, false),
    ] {
        let old = Put::new(key.clone(), fields_of("old")?).ttl(ttl);
        w.store.write(Write::Put(old)).await?;
        let old = w.record("key").await?;
        let revision = old.as_ref().map_or(Revision::ZERO, |old| old.revision);
        w.advance(wait);
        let field = |value: Option<&'static str>| -> Result<Guard> {
            let value = value.map(Into::into);
            Ok(Guard::Field(key.clone(), name("value")?, value))
        };
        for (guard, expects_old) in [
            (Guard::RecordAt(key.clone(), revision), true),
            (Guard::RecordPresent(key.clone()), true),
            (field(Some("old"))?, true),
            (Guard::RecordAbsent(key.clone()), false),
            (field(None)?, false),
        ] {
            let answer = check(&w, guard.clone()).await;
            assert_eq!(answer.is_ok(), expects_old == in_time, "{guard}");
        }
        let swap = Commit::of(put("key", "new")?).guard(Guard::RecordAt(key.clone(), revision));
        let create = Commit::of(put("key", "anew")?).guard(Guard::RecordAbsent(key.clone()));
        let history = w.history().await?.entries;
        let (refused, done, then) = if in_time {
            (create, swap, "new")
        } else {
            (swap, create, "anew")
        };
        conflict(w.store.commit_one(refused).await);
        assert_eq!(w.history().await?.entries, history);
        w.store.commit_one(done).await?;
        let new = w.record("key").await?;
        assert_eq!(
            new.as_ref().map(|new| (new.fields.clone(), new.expires_at)),
            Some((fields_of(then)?, None))
        );
        w.advance(millisecond);
        assert_eq!(w.sweep().await?.records, 0);
        assert_eq!(w.record("key").await?, new);
    }
    Ok(())
}

async fn of_many_that_compare_and_swap_at_once_one_wins(w: World) -> Result<()> {
    let stores = [w.store.clone(), w.second().await?];
    let first = w.put("key", [("sum", "0")]).await?;
    let at = Guard::RecordAt(first.key.clone(), first.revision);
    let swap = |n: usize| {
        let (store, guard, id) = (stores[n % 2].clone(), at.clone(), w.ids.commit());
        async move {
            let commit = Commit::of(add("key", 1)?).guard(guard).id(id);
            persist(store.as_ref(), commit).await
        }
    };
    let answers = parallel((0..10).map(swap)).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    for answer in answers.into_iter().filter(Result::is_err) {
        let guard = at.clone();
        assert_eq!(conflict(answer), Conflict::Guard { index: 0, guard });
    }
    assert_fields(&w, "key", fields([("sum", "1")])?).await?;
    Ok(())
}

async fn a_commit_id_is_applied_once(w: World) -> Result<()> {
    let returning = Merge::new(Key::new("key")?)
        .add(name("sum")?, 5)
        .returning();
    let task = w.new_task("work");
    let id = task.id;
    let commit = Commit::of(Write::Merge(returning))
        .guard(Guard::RecordAbsent(Key::new("key")?))
        .write(Write::Submit(Box::new(task)))
        .id(w.ids.commit());
    let first = w.store.commit_one(commit.clone()).await?;
    assert!(!first.repeated);
    assert!(first.position.is_some());
    // In between everything that it did and what it was guarded by has changed.
    w.write_with_id(add("key", 1)?).await?;
    w.store.cancel(id, None).await?;
    w.store.write(Write::DeleteTask(id)).await?;
    w.advance(Duration::from_secs(599));
    let record = w.record("key").await?;
    let history = w.history().await?.entries;
    let repeated = Receipt {
        repeated: true,
        ..first
    };
    for store in [w.store.clone(), w.second().await?] {
        let receipt = store.commit_one(commit.clone()).await?;
        assert_eq!(receipt, repeated);
    }
    assert_eq!(w.record("key").await?, record);
    assert_eq!(w.store.task(id).await?, None);
    assert_eq!(w.history().await?.entries, history);
    let other = Commit::of(add("key", 5)?).id(w.ids.commit());
    assert!(!w.store.commit_one(other).await?.repeated);
    assert_fields(&w, "key", fields([("sum", "11")])?).await?;
    Ok(())
}

async fn a_commit_id_is_applied_once_within_a_call(w: World) -> Result<()> {
    let once = Commit::of(add("key", 1)?).id(w.ids.commit());
    let other = Commit::of(add("key", 10)?).id(w.ids.commit());
    let commits = vec![once.clone(), other, once.clone(), once];
    let receipts = w.store.commit(commits).await;
    let receipts = receipts.into_iter().collect::<Result<Vec<Receipt>>>()?;
    let repeated: Vec<bool> = receipts.iter().map(|receipt| receipt.repeated).collect();
    assert_eq!(repeated, [false, false, true, true]);
    let first = Receipt {
        repeated: true,
        ..receipts[0].clone()
    };
    assert_eq!(receipts[2..], [first.clone(), first]);
    assert_fields(&w, "key", fields([("sum", "11")])?).await?;
    Ok(())
}

async fn a_commit_that_was_refused_is_not_remembered(w: World) -> Result<()> {
    let commit = Commit::of(add("key", 1)?)
        .guard(Guard::RecordPresent(Key::new("permit")?))
        .id(w.ids.commit());
    conflict(w.store.commit_one(commit.clone()).await);
    conflict(w.store.commit_one(commit.clone()).await);
    w.put("permit", [("value", "1")]).await?;
    assert!(!w.store.commit_one(commit.clone()).await?.repeated);
    assert!(w.store.commit_one(commit).await?.repeated);
    assert_fields(&w, "key", fields([("sum", "1")])?).await?;
    Ok(())
}

/// What the history tells at this position.
async fn told_at(w: &World, position: Option<Position>) -> Result<Entry> {
    let history = w.history().await?.entries;
    let entry = (history.into_iter()).find(|entry| Some(entry.position) == position);
    entry.ok_or_else(|| Error::Corrupt(format!("no entry at {position:?}").into()))
}

async fn a_receipt_says_where_the_changes_are(w: World) -> Result<()> {
    w.put("before", [("value", "1")]).await?;
    let gone = w.put("gone", [("value", "1")]).await?;
    w.advance(Duration::from_secs(1));
    let task = w.new_task("work");
    let (id, group) = (task.id, GroupId::new("group")?);
    let commit = Commit::of(put("key", "1")?)
        .write(Write::Submit(Box::new(task)))
        .write(Write::Delete(gone.key.clone()))
        .write(open(NewGroup::new(group.clone())));
    let receipt = w.store.commit_one(commit).await?;
    w.advance(Duration::from_secs(1));
    w.put("after", [("value", "1")]).await?;
    let task = w.task(id).await?;
    let mut changes: Vec<Change> = w
        .record("key")
        .await?
        .map(Change::Put)
        .into_iter()
        .collect();
    changes.push(Change::Task(TaskChange::new(&task, TaskEvent::Submitted)));
    changes.push(Change::Removed {
        key: gone.key,
        revision: gone.revision,
        how: Removal::Deleted,
    });
    changes.push(Change::Group {
        id: group,
        generation: 0,
        event: GroupEvent::Opened,
    });
    let entry = told_at(&w, receipt.position).await?;
    assert_eq!(entry.at, task.modified_at);
    assert_eq!(entry.changes, changes);
    Ok(())
}

async fn receipts_of_one_call_say_where_their_changes_are(w: World) -> Result<()> {
    let keys = ["a", "b", "a", "c", "a"];
    let mut commits = Vec::new();
    for (n, key) in keys.into_iter().enumerate() {
        let other = format!("{key}.{n}");
        commits.push(Commit::of(put(key, "1")?).write(put(&other, "2")?));
    }
    let receipts = w.store.commit(commits).await;
    for (n, (key, receipt)) in keys.into_iter().zip(receipts).enumerate() {
        let receipt = receipt?;
        let told = told_at(&w, receipt.position).await?.changes;
        let told = told.iter().filter_map(|change| match change {
            Change::Put(record) => Some((record.key.as_str(), record.revision)),
            _ => None,
        });
        let told: Vec<(&str, Revision)> = told.collect();
        let other = format!("{key}.{n}");
        for (key, outcome) in [key, &other].into_iter().zip(receipt.outcomes) {
            match outcome {
                Outcome::Written { revision, .. } => assert!(told.contains(&(key, revision))),
                outcome => panic!("expected a written record, got {outcome:?}"),
            }
        }
    }
    let all = w.history().await?.entries.into_iter();
    let all = all.flat_map(|entry| entry.changes).count();
    assert_eq!(all, 10, "each is told once");
    Ok(())
}

async fn a_commit_with_nothing_to_show_has_no_position(w: World) -> Result<()> {
    let record = w.put("key", [("value", "1")]).await?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let cancelled = w.submit(w.new_task("unwanted")).await?.id();
    w.store.cancel(cancelled, None).await?;
    let group = || open(NewGroup::new(GroupId::new("group").expect("valid")));
    w.store.write(group()).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "said");
    let history = w.history().await?;
    let unknown: TaskId = w.ids.task();
    for write in [
        Write::Touch(record.key.clone(), Some(Duration::from_secs(60))),
        Write::Touch(record.key.clone(), None),
        Write::Delete(Key::new("absent")?),
        Write::ExpireRecord(record.key.clone()),
        Write::Log(Log {
            holder: held,
            lines: vec![line],
        }),
        Write::Cancel(Cancel {
            task: cancelled,
            reason: None,
        }),
        Write::Prioritise(task.id(), Priority::default()),
        Write::Promote(task.id()),
        Write::DeleteTask(unknown),
        Write::DeleteGroup(GroupId::new("absent")?),
        group(),
    ] {
        let receipt = w.commit_with_id(Commit::of(write.clone())).await?;
        assert_eq!(receipt.position, None, "{write:?}");
    }
    assert_eq!(w.history().await?.entries, history.entries);
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
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
    persist(store, commit).await.map(drop)
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
