//! Tasks that follow each other under one key.

use plimsoll_core::error::Conflict;
use plimsoll_core::task::{KeyLifetime, OnConflict, Status};

use super::*;

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
    maps.now += 10;
    let applied = maps.done(Commit::of(complete(1)));
    assert_eq!(maps.tasks[&id(1)].status, Status::Completed);
    let second = &maps.tasks[&id(2)];
    assert_eq!(second.status, Status::Pending);
    assert_eq!(second.runnable_at, at(maps.now), "nobody is overtaken");
    let events = [(id(1), TaskEvent::Completed), (id(2), TaskEvent::Unblocked)];
    assert_eq!(task_events(&applied), events);
}

#[test]
fn whoever_replaces_a_waiting_task_waits_in_its_place() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(submit(successor(3))));
    assert_eq!(maps.tasks[&id(2)].status, Status::Cancelled);
    assert_eq!(maps.tasks[&id(3)].waiting.as_ref().unwrap().on, id(1));
    assert_eq!(maps.keys[&key("k")], id(3));
    maps.done(Commit::of(complete(1)));
    assert_eq!(maps.tasks[&id(3)].status, Status::Pending);
}

#[test]
fn a_waiting_task_that_ends_gives_its_key_back_to_the_one_that_still_runs() {
    let mut maps = replaced_while_running();
    let wanted_at = at(maps.now);
    maps.now += 10;
    maps.done(Commit::of(cancel(2)));
    assert_eq!(maps.keys[&key("k")], id(1));
    let second = &maps.tasks[&id(2)];
    assert_eq!((second.status, &second.waiting), (Status::Cancelled, &None));
    assert_eq!(second.runnable_at, wanted_at);

    maps.done(Commit::of(submit(successor(3))));
    assert_eq!(maps.keys[&key("k")], id(3));
    assert_eq!(maps.tasks[&id(3)].waiting.as_ref().unwrap().on, id(1));
    maps.done(Commit::of(complete(1)));
    assert_eq!(maps.tasks[&id(2)].status, Status::Cancelled);
    assert_eq!(maps.tasks[&id(3)].status, Status::Pending);
}

#[test]
fn a_successor_that_ended_is_not_revived_while_the_task_it_replaced_runs() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(cancel(2)));
    let taken = Conflict::KeyTaken {
        key: key("k"),
        holder: id(1),
        status: Status::Claimed,
    };
    assert_eq!(maps.commit(&Commit::of(retry(2))), Err(taken.into()));
    maps.done(Commit::of(complete(1)));
    maps.done(Commit::of(retry(2)));
    assert_eq!(maps.tasks[&id(2)].status, Status::Pending);
    assert_eq!(maps.keys[&key("k")], id(2));
}

#[test]
fn a_waiting_task_gives_its_key_back_before_the_next_write_of_its_commit() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(cancel(2)).write(submit(successor(3))));
    assert_eq!(maps.tasks[&id(1)].successor, Some(id(3)));
    let third = maps.tasks[&id(3)].waiting.as_ref();
    assert_eq!(third.map(|waiting| waiting.on), Some(id(1)));

    let mut maps = replaced_while_running();
    let answer = maps.commit(&Commit::of(cancel(2)).write(retry(2)));
    let taken = Conflict::KeyTaken {
        key: key("k"),
        holder: id(1),
        status: Status::Claimed,
    };
    assert_eq!(answer, Err(taken.into()));
}

#[test]
fn nobody_waits_for_a_task_that_ended_in_the_same_commit() {
    let mut maps = replaced_while_running();
    maps.done(Commit::of(complete(1)).write(submit(successor(3))));
    assert_eq!(maps.tasks[&id(1)].status, Status::Completed);
    assert_eq!(maps.tasks[&id(2)].status, Status::Cancelled);
    let third = &maps.tasks[&id(3)];
    assert_eq!((third.status, &third.waiting), (Status::Pending, &None));
}

#[test]
fn a_task_that_gets_a_successor_says_when_it_was_written() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(successor(1))));
    maps.claim_all();
    maps.done(Commit::of(cancel(1)));
    maps.now += 10;
    let applied = maps.done(Commit::of(submit(successor(2))));
    let first = &maps.tasks[&id(1)];
    assert_eq!(first.successor, Some(id(2)));
    assert_eq!(first.revision, revision(maps.revision));
    assert_eq!(first.modified_at, at(maps.now));
    let events = [(id(1), TaskEvent::Amended), (id(2), TaskEvent::Submitted)];
    assert_eq!(task_events(&applied), events);
}

#[test]
fn a_task_that_is_asked_to_stop_for_its_successor_is_told_of_once() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(successor(1))));
    maps.claim_all();
    let applied = maps.done(Commit::of(submit(successor(2))));
    let first = &maps.tasks[&id(1)];
    assert_eq!(first.successor, Some(id(2)));
    assert_eq!(first.revision, revision(maps.revision));
    let events = [
        (id(1), TaskEvent::CancelRequested),
        (id(2), TaskEvent::Submitted),
    ];
    assert_eq!(task_events(&applied), events);
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
