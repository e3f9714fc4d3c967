//! What single rules of deciders come to once they meet in commits.

use plimsoll_core::change::{Change, Removal, TaskEvent};
use plimsoll_core::error::{Conflict, Error};
use plimsoll_core::group::NewGroup;
use plimsoll_core::ids::Jitter;
use plimsoll_core::record::fields;
use plimsoll_core::store::{
    Cancel, Ending, FailRetry, Guard, Merge, Outcome, Put, Retry, Settle, SubmitOutcome, Submitted,
    Write,
};
use plimsoll_core::task::{KeyLifetime, OnConflict, Status};

use super::*;
use crate::name;

fn submit(new: NewTask) -> Write {
    Write::Submit(Box::new(new))
}

fn cancel(number: u128) -> Write {
    Write::Cancel(Cancel {
        task: id(number),
        reason: None,
    })
}

fn retry(number: u128) -> Write {
    Write::Retry(Retry {
        task: id(number),
        force: true,
        delay: secs(0),
    })
}

fn settle(number: u128, fence: u64, how: Ending) -> Write {
    Write::Settle(Settle {
        holder: holder(number, fence),
        how,
    })
}

fn complete(number: u128) -> Write {
    settle(number, 1, Ending::Complete { result: None })
}

fn fail(number: u128) -> Write {
    let how = Ending::Fail {
        error: "broken".into(),
        retry: FailRetry::Fatal,
        jitter: Jitter::default(),
    };
    settle(number, 1, how)
}

fn open(text: &str) -> Write {
    Write::OpenGroup(Box::new(NewGroup::new(group(text))))
}

/// A task that takes the key over from whoever holds it.
fn successor(number: u128) -> NewTask {
    let policy = OnConflict::CancelAndReplace;
    task(number).key_with(key("k"), KeyLifetime::WhileActive, policy)
}

/// Task 1 runs with the key, was asked to stop, and task 2 waits for it.
fn replaced_while_running() -> Maps {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(successor(1))));
    maps.claim_all();
    maps.done(Commit::of(submit(successor(2))));
    assert_eq!(maps.tasks[&id(1)].status, Status::Claimed);
    assert_eq!(maps.tasks[&id(2)].waiting.as_ref().unwrap().on, id(1));
    maps
}

#[test]
fn a_successor_runs_once_the_task_it_replaces_has_ended() {
    let mut maps = replaced_while_running();
    let applied = maps.done(Commit::of(complete(1)));
    assert_eq!(maps.tasks[&id(1)].status, Status::Completed);
    assert_eq!(maps.tasks[&id(2)].status, Status::Pending);
    let events: Vec<TaskEvent> = (applied.changes.iter())
        .map(|change| match change {
            Change::Task(change) => change.event,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(events, [TaskEvent::Completed, TaskEvent::Unblocked]);
}

#[test]
fn whoever_replaces_a_waiting_task_waits_in_its_place() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(submit(successor(3))));
    assert_eq!(maps.tasks[&id(2)].status, Status::Cancelled);
    assert_eq!(maps.tasks[&id(3)].waiting.as_ref().unwrap().on, id(1));
    maps.done(Commit::of(complete(1)));
    assert_eq!(maps.tasks[&id(3)].status, Status::Pending);
}

#[test]
fn a_key_is_not_free_while_a_task_that_was_replaced_still_runs() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(cancel(2)));
    let _ = maps.commit(&Commit::of(submit(successor(3))));
    let runs = |number| {
        (maps.tasks.get(&id(number)))
            .is_some_and(|task| !task.status.is_terminal() && task.waiting.is_none())
    };
    assert!(runs(1) && !runs(3), "1 and 3 have the same key");
}

#[test]
fn a_retried_successor_still_waits_for_the_task_it_replaces() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(cancel(2)));
    let _ = maps.commit(&Commit::of(retry(2)));
    let second = &maps.tasks[&id(2)];
    let runs = !second.status.is_terminal() && second.waiting.is_none();
    assert!(!runs, "1 and 2 have the same key");
}

#[test]
fn a_task_that_gets_a_successor_says_when_it_was_written() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(successor(1))));
    maps.claim_all();
    maps.done(Commit::of(cancel(1)));
    maps.now += 10;
    maps.done(Commit::of(submit(successor(2))));
    let first = &maps.tasks[&id(1)];
    assert_eq!(first.successor, Some(id(2)));
    assert_eq!(first.revision, revision(maps.revision));
    assert_eq!(first.modified_at, at(maps.now));
}

#[test]
fn members_of_a_group_that_was_deleted_count_nowhere() {
    let mut maps = Maps::new();
    maps.done(Commit::of(open("g")));
    maps.done(Commit::of(submit(task(1).group(group("g")))));
    maps.done(Commit::of(Write::DeleteGroup(group("g"))));
    maps.done(Commit::of(open("g")).write(submit(task(2).group(group("g")))));
    maps.done(Commit::of(Write::Seal(group("g"))));
    maps.done(Commit::of(cancel(1)));
    let found = &maps.groups[&group("g")];
    assert_eq!((found.spawned, found.done), (1, 0), "task 2 has not ended");
    assert_eq!(found.drained_at, None);
}

#[test]
fn a_record_that_was_not_there_did_not_expire() {
    let mut maps = Maps::new();
    let expire = || Commit::of(Write::ExpireRecord(record("r")));
    let put = Put::new(record("r"), fields([("n", "1")]).unwrap()).ttl(secs(5));
    maps.done(Commit::of(Write::Put(put)));
    let answer = |maps: &mut Maps| maps.done(expire()).receipt.outcomes;
    assert_eq!(
        answer(&mut maps),
        [Outcome::Removed { existed: false }],
        "live"
    );
    maps.now += 5;
    assert_eq!(
        answer(&mut maps),
        [Outcome::Removed { existed: true }],
        "expired"
    );
    assert_eq!(
        answer(&mut maps),
        [Outcome::Removed { existed: false }],
        "gone"
    );
}

#[test]
fn that_a_record_expired_is_told_once_whoever_notices() {
    let put = |text| Put::new(record("r"), fields([("n", text)]).unwrap());
    let merge = Merge::new(record("r")).add(name("n"), 5);
    for (write, after) in [
        (Write::ExpireRecord(record("r")), None),
        (Write::Delete(record("r")), None),
        (Write::Put(put("9")), Some("9")),
        (Write::Merge(merge), Some("5")),
    ] {
        let mut maps = Maps::new();
        maps.done(Commit::of(Write::Put(put("1").ttl(secs(5)))));
        maps.now += 5;
        let applied = maps.done(Commit::of(write.clone()));
        let removed = Change::Removed {
            key: record("r"),
            revision: revision(1),
            how: Removal::Expired,
        };
        assert_eq!(applied.changes[0], removed, "{write:?}");
        let found: Vec<&Record> = (applied.changes[1..].iter())
            .map(|change| match change {
                Change::Put(record) => record,
                other => panic!("{other:?}"),
            })
            .collect();
        let stored: Vec<&Record> = maps.records.values().collect();
        assert_eq!(found, stored, "{write:?}");
        let value = maps
            .records
            .get(&record("r"))
            .and_then(|r| r.field("n").cloned());
        assert_eq!(value, after.map(Into::into), "{write:?}");
    }
}

#[test]
fn a_commit_tells_of_each_record_once_and_of_touches_never() {
    let mut maps = Maps::new();
    let put = |text| Write::Put(Put::new(record("r"), fields([("n", text)]).unwrap()));
    let applied = maps.done(Commit::of(put("1")).write(put("2")));
    assert_eq!(
        applied.changes,
        [Change::Put(maps.records[&record("r")].clone())]
    );
    let applied = maps.done(Commit::of(Write::Touch(record("r"), Some(secs(5)))));
    assert_eq!(applied.changes, []);
    let both = Commit::of(put("3")).write(Write::Delete(record("r")));
    let [
        Change::Removed {
            how: Removal::Deleted,
            ..
        },
    ] = &maps.done(both).changes[..]
    else {
        panic!("not one removal");
    };
    let nothing = Commit::of(put("4")).write(Write::Delete(record("r")));
    assert_eq!(maps.done(nothing).changes, []);
}

#[test]
fn a_commit_is_refused_as_a_whole_and_names_its_guard() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(task(1))));
    let before = maps.clone();
    let guard = Guard::RecordPresent(record("r"));
    let guarded = Commit::new()
        .guard(Guard::RecordAbsent(record("r")))
        .guard(guard.clone())
        .write(cancel(1));
    let refused = Conflict::Guard { index: 1, guard };
    assert_eq!(maps.commit(&guarded), Err(refused.into()));
    let late = Commit::of(cancel(1)).write(Write::Promote(id(9)));
    let Err(Error::NotFound(_)) = maps.commit(&late) else {
        panic!("not refused");
    };
    assert_eq!(
        (&maps.tasks, &maps.records),
        (&before.tasks, &before.records)
    );
}

#[test]
fn a_settle_that_was_applied_answers_its_first_result_with_all_of_its_commit() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(task(1))));
    maps.claim_all();
    let commit = Commit::of(complete(1))
        .write(Write::Merge(Merge::new(record("r")).add(name("n"), 1)))
        .write(submit(task(2)));
    let first = maps.done(commit.clone());
    let before = maps.clone();
    let second = maps.done(commit);
    assert!(!first.receipt.repeated && second.receipt.repeated);
    assert_eq!(second.receipt.outcomes, first.receipt.outcomes);
    let submitted = Submitted {
        id: id(2),
        outcome: SubmitOutcome::Created,
    };
    assert_eq!(second.receipt.outcomes[2], Outcome::Submitted(submitted));
    assert_eq!(second.changes, []);
    assert_eq!((maps.tasks, maps.records), (before.tasks, before.records));
}

#[test]
fn a_retry_needs_the_key_again() {
    let keyed =
        |number| task(number).key_with(key("k"), KeyLifetime::WhileActive, OnConflict::Attach);
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(keyed(1))));
    maps.done(Commit::of(cancel(1)));
    maps.done(Commit::of(submit(keyed(2))));
    let taken = Conflict::KeyTaken {
        key: key("k"),
        holder: id(2),
        status: Status::Pending,
    };
    let refused = maps.commit(&Commit::of(retry(1)));
    assert_eq!(refused, Err(taken.into()));
    maps.done(Commit::of(cancel(2)));
    maps.done(Commit::of(retry(1)));
    assert_eq!(maps.keys[&key("k")], id(1));
}

#[test]
fn rows_that_a_commit_needs_after_another_one_are_missing_before_both() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(task(1).key(key("k")))));
    maps.claim_all();
    let commits = [Commit::of(fail(1)), Commit::of(retry(1))];
    let mut rows = Rows::default();
    maps.load_missing(&commits, &mut rows);
    for commit in &commits {
        let answer = maps.decide(commit, &mut rows);
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[test]
fn many_writes_of_one_commit_are_loaded_in_a_few_rounds() {
    let mut maps = Maps::new();
    for number in 0..20 {
        let text = format!("g{number}");
        let member = submit(task(number).group(group(&text)));
        maps.done(Commit::of(open(&text)).write(member));
    }
    maps.claim_all();
    let commit = (0..20).fold(Commit::new(), |commit, number| {
        commit.write(complete(number))
    });
    let (rounds, loaded) = maps.load_missing(&[commit], &mut Rows::default());
    assert_eq!(loaded.len(), 40);
    assert!(rounds <= 3, "{rounds} rounds");
}
