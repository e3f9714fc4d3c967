//! Guards: a commit happens only while they hold, and the one that does not is named.

use std::time::Duration;

use crate::conformance::act::insist;
use crate::conformance::commits::{add, fields_of};
use crate::conformance::observe::{assert_fields, field};
use crate::conformance::parallel;
use crate::conformance::world::{World, complete, conflict, holder, lost, name};
use crate::conformance::writes::{open, put};
use crate::error::{Conflict, LeaseLost, Lost, Result};
use crate::group::NewGroup;
use crate::ids::Revision;
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{Cancel, Commit, Ending, Guard, Put, Receipt, StoreExt, Write};
use crate::task::{Holder, Status};

cases!["guards":
    a_guard_on_a_record_holds_or_is_named,
    a_guard_on_a_holder_holds_or_the_lease_is_lost,
    a_guard_on_a_task_holds_or_is_named,
    a_guard_on_a_group_holds_or_is_named,
    a_commit_of_guards_alone_changes_nothing,
    compare_and_swap_takes_an_expired_record_for_absent,
    of_many_that_compare_and_swap_at_once_one_wins,
];

/// Makes a commit with nothing but this guard.
async fn check(w: &World, guard: Guard) -> Result<Receipt> {
    w.store.commit_one(Commit::new().guard(guard)).await
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
    assert_eq!(field(&w, "witness", "value").await?.as_deref(), Some("1"));
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
            insist(store.as_ref(), commit).await
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
