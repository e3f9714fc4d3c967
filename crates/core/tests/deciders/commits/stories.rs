//! What single rules of deciders come to once they meet in commits.

use plimsoll_core::change::{Change, Removal};
use plimsoll_core::error::{Conflict, Error};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Guard, Merge, Outcome, Put};
use plimsoll_core::{Limits, Timestamp};

use super::*;
use crate::name;

#[test]
fn a_failure_task_is_submitted_for_each_time_that_a_task_fails_for_good() {
    let mut maps = Maps::new();
    let alarm = Some(Box::new(task(50)));
    maps.done(Commit::of(submit(NewTask {
        on_failure: alarm,
        ..task(1)
    })));
    let fired = |maps: &Maps| {
        let ids = (0..4).map(|n| id(50).nth(n));
        ids.filter(|id| maps.tasks.contains_key(id)).count()
    };
    // Cancelled in between, which is no failure.
    for (fence, how, alarms) in [
        (1, fatal(), 1),
        (2, Ending::Cancel { reason: None }, 1),
        (3, fatal(), 2),
    ] {
        maps.claim_all();
        maps.done(Commit::of(settle(1, fence, how)));
        assert_eq!(fired(&maps), alarms, "after attempt {fence}");
        maps.done(Commit::of(retry(1)));
    }
    assert_eq!(maps.tasks[&id(1)].defeats, 2);
    assert!(maps.tasks.contains_key(&id(50).nth(1)));
}

#[test]
fn what_follows_from_a_settle_is_submitted_also_at_the_end_of_time() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(NewTask {
        on_failure: Some(Box::new(task(50).after(secs(60)))),
        ..task(1)
    })));
    maps.claim_all();
    maps.now = u64::MAX;
    maps.done(Commit::of(fail(1)));
    assert_eq!(maps.tasks[&id(50)].runnable_at, Timestamp::MAX);
}

#[test]
fn an_input_that_turns_out_to_be_wrong_is_blamed_on_its_write() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(task(1))));
    maps.claim_all();
    maps.now = u64::MAX;
    let snooze = Ending::Snooze { delay: secs(1) };
    let put = Put::new(record("r"), fields([("n", "1")]).unwrap());
    for (field, write) in [
        ("writes[1].delay", settle(1, 1, snooze)),
        ("writes[1].ttl", Write::Put(put.ttl(secs(1)))),
        ("writes[1].due", submit(task(2).after(secs(1)))),
    ] {
        let commit = Commit::of(Write::Delete(record("s"))).write(write);
        match maps.commit(&commit) {
            Err(Error::Invalid(invalid)) => assert_eq!(invalid.field, field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_commit_that_would_leave_more_than_a_transaction_holds_is_refused() {
    let limits = |commit_bytes_max| Limits {
        commit_bytes_max,
        ..Limits::default()
    };
    let mut maps = Maps::new();
    for text in ["r", "s"] {
        let put = Put::new(record(text), fields([("n", "12345")]).unwrap());
        maps.done(Commit::of(Write::Put(put)));
    }
    // Each merge is small; what they leave is two keys with seven bytes and eight in all.
    let merge = |text| Write::Merge(Merge::new(record(text)).set(fields([("m", "")]).unwrap()));
    let commit = Commit::of(merge("r")).write(merge("s"));
    for (max, allowed) in [(16, true), (15, false)] {
        let limits = limits(max);
        let m = Moment {
            limits: &limits,
            ..maps.moment()
        };
        let mut rows = Rows::default();
        (decide::footprint(&commit).iter()).for_each(|id| maps.load(id, &mut rows));
        let answer = decide::commit(&commit, &mut rows, m);
        if allowed {
            assert!(answer.is_ok(), "{answer:?}");
        } else {
            let too_large = Conflict::CommitTooLarge { bytes: 16, max };
            assert_eq!(answer, Err(too_large.into()));
            assert_eq!(written(&rows), written(&Rows::default()));
        }
    }
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
fn a_settle_with_other_writes_is_repeated_by_its_id_and_refused_without() {
    for id_of_commit in [Some(commit_id(7)), None] {
        let mut maps = Maps::new();
        maps.done(Commit::of(submit(task(1))));
        maps.claim_all();
        let commit = Commit {
            id: id_of_commit,
            ..Commit::of(complete(1))
                .write(Write::Merge(Merge::new(record("r")).add(name("n"), 1)))
                .write(submit(task(2)))
        };
        let first = maps.done(commit.clone());
        let before = maps.clone();
        match (id_of_commit, maps.commit(&commit)) {
            (Some(_), Ok(second)) => {
                assert!(!first.receipt.repeated && second.receipt.repeated);
                assert_eq!(second.receipt.outcomes, first.receipt.outcomes);
                assert_eq!(second.changes, []);
            }
            (None, Err(Error::LeaseLost(_))) => {}
            (_, other) => panic!("{other:?}"),
        }
        assert_eq!((maps.tasks, maps.records), (before.tasks, before.records));
    }
}
