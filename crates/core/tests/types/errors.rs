//! What errors say.

use plimsoll_core::error::{
    Applied, Conflict, Error, Invalid, LeaseLost, Lost, NotFound, Problem, Unavailable,
};
use plimsoll_core::lifecycle::Phase;
use plimsoll_core::record::Index;
use plimsoll_core::store::Guard;
use plimsoll_core::task::{Holder, Status};
use plimsoll_core::{Fence, GroupId, IdempotencyKey, Key, Name, Position, Prefix, Revision};

use crate::{Checked, at, id, worker};

#[test]
fn every_problem_reads_as_a_sentence() {
    for (problem, text) in [
        (Problem::Empty, "must not be empty"),
        (
            Problem::Missing("a lease needs one".into()),
            "is missing: a lease needs one",
        ),
        (
            Problem::TooLong { bytes: 9, max: 8 },
            "9 bytes, at most 8 are allowed",
        ),
        (
            Problem::TooMany { count: 3, max: 2 },
            "3 given, at most 2 are allowed",
        ),
        (
            Problem::OutOfRange {
                value: "11".into(),
                min: "0".into(),
                max: "10".into(),
            },
            "11 is not between 0 and 10",
        ),
        (Problem::Nul, "contains a NUL character"),
        (
            Problem::Malformed {
                expected: "a UUID".into(),
            },
            "expected a UUID",
        ),
        (Problem::Repeated("f".into()), "names f twice"),
        (
            Problem::Contradiction("only one of the two".into()),
            "only one of the two",
        ),
    ] {
        let error = Error::from(Invalid::new("field", problem).within("writes[0]"));
        assert_eq!(
            error.to_string(),
            format!("invalid input: writes[0].field: {text}")
        );
        assert_eq!(error.kind(), "invalid");
    }
}

pub(crate) fn conflicts() -> Result<Vec<(Conflict, &'static str)>, Invalid> {
    let (task, key) = (id(1), Key::new("k")?);
    let (group, field) = (GroupId::new("g")?, Name::new("f")?);
    const ID: &str = "00000000-0000-0000-0000-000000000001";
    let guard = |guard| Conflict::Guard { index: 2, guard };
    let holder = Holder {
        task,
        worker: worker()?,
        fence: Fence::new(3),
    };
    assert_eq!(task.to_string(), ID);
    Ok(vec![
        (
            guard(Guard::RecordAbsent(key.clone())),
            "guard 2 does not hold: record k is absent",
        ),
        (
            guard(Guard::RecordPresent(key.clone())),
            "guard 2 does not hold: record k is present",
        ),
        (
            guard(Guard::RecordAt(key.clone(), Revision::new(7))),
            "guard 2 does not hold: record k is at revision 7",
        ),
        (
            guard(Guard::Field(key.clone(), field.clone(), Some("v".into()))),
            "guard 2 does not hold: field f of record k is b\"v\"",
        ),
        (
            guard(Guard::Field(key.clone(), field.clone(), None)),
            "guard 2 does not hold: field f of record k is absent",
        ),
        (
            guard(Guard::Held(holder)),
            "guard 2 does not hold: task ID is held by \
             w1#00000000-0000-0000-0000-000000000009 with fence 3",
        ),
        (
            guard(Guard::TaskAt(task, Revision::new(7))),
            "guard 2 does not hold: task ID is at revision 7",
        ),
        (
            guard(Guard::GroupOpen(group.clone())),
            "guard 2 does not hold: group g is open",
        ),
        (
            Conflict::AlreadyClaimed {
                task,
                holder: worker()?,
                until: at(60),
            },
            "task ID is claimed by w1#00000000-0000-0000-0000-000000000009 \
             until 1970-01-01T00:01:00Z",
        ),
        (
            Conflict::Finished {
                task,
                status: Status::Failed,
            },
            "task ID is already failed",
        ),
        (
            Conflict::NotDue {
                task,
                due_at: at(60),
            },
            "task ID is due at 1970-01-01T00:01:00Z",
        ),
        (
            Conflict::MoveNotAllowed {
                task,
                from: Phase::Stage(field.clone()),
                to: Phase::Completed,
                allowed: vec![Phase::Failed, Phase::Cancelled],
            },
            "task ID cannot go from f to completed; allowed: failed, cancelled",
        ),
        (
            Conflict::MoveNotAllowed {
                task,
                from: Phase::Cancelled,
                to: Phase::Pending,
                allowed: Vec::new(),
            },
            "task ID cannot go from cancelled to pending; submit it again",
        ),
        (
            Conflict::Waiting { task, on: task },
            "task ID waits for task ID to end",
        ),
        (
            Conflict::NotFinished {
                task,
                status: Status::Pending,
            },
            "task ID is pending: only a finished task can be deleted",
        ),
        (Conflict::Cancelling { task }, "task ID is being cancelled"),
        (
            Conflict::MaxAttemptsReached {
                task,
                failures: 4,
                cap: 4,
            },
            "task ID has failed 4 times, its cap is 4: force the retry to run it again",
        ),
        (
            Conflict::KeyTaken {
                key: IdempotencyKey::new("idem")?,
                holder: task,
                status: Status::Claimed,
            },
            "key idem is held by task ID, which is claimed",
        ),
        (
            Conflict::IdTaken { task },
            "task id ID is taken by another task",
        ),
        (
            Conflict::GroupSealed {
                group: group.clone(),
            },
            "group g is sealed",
        ),
        (
            Conflict::GroupFull {
                group: group.clone(),
                expected: 5,
            },
            "group g expects 5 and has them",
        ),
        (
            Conflict::GroupDiffers {
                group,
                field: "then".into(),
            },
            "group g exists with another then",
        ),
        (
            Conflict::NotInteger {
                key: key.clone(),
                field: field.clone(),
            },
            "field f of record k is not an integer",
        ),
        (
            Conflict::Overflow {
                key: key.clone(),
                field,
            },
            "field f of record k would overflow",
        ),
        (
            Conflict::TooLarge {
                key,
                problem: Problem::TooMany { count: 3, max: 2 },
            },
            "record k would exceed its limit: 3 given, at most 2 are allowed",
        ),
        (
            Conflict::CommitTooLarge { bytes: 9, max: 8 },
            "the commit would leave 9 bytes of records, at most 8 are allowed",
        ),
        (
            Conflict::Contended { attempts: 8 },
            "gave up after 8 attempts against concurrent changes",
        ),
        (
            Conflict::LockNotAcquired {
                lock: Name::new("nightly")?,
                owner: "host-7".into(),
                until: at(60),
            },
            "lock nightly is held by host-7 until 1970-01-01T00:01:00Z",
        ),
        (
            Conflict::LockNotHeld {
                lock: Name::new("nightly")?,
            },
            "lock nightly is not held, or no longer",
        ),
        (
            Conflict::JobDeleted {
                job: Name::new("import")?,
            },
            "job import was deleted",
        ),
        (
            Conflict::PartitionFailed {
                job: Name::new("import")?,
                tag: Name::new("ingest")?,
                partition: 3,
                status: -1,
                message: "disk full".into(),
            },
            "job import: partition 3 has status -1 at ingest: disk full",
        ),
        (
            Conflict::BarrierNotReached {
                job: Name::new("import")?,
                tag: Name::new("ingest")?,
                wanted: 5,
                behind: 2,
                partition: 3,
                status: 1,
            },
            "job import: 2 partitions have not reached status 5 at ingest, the first is 3 with 1",
        ),
        (
            Conflict::IndexNotReady { index: index()? },
            "the index on n of a.* is being filled: declare it again until it is ready",
        ),
    ])
}

fn index() -> Result<Index, Invalid> {
    Ok(Index {
        prefix: Prefix::new("a.")?,
        field: Name::new("n")?,
    })
}

pub(crate) fn others() -> Result<Vec<(Error, &'static str, &'static str)>, Invalid> {
    let lost = |why| {
        Error::from(LeaseLost {
            task: id(1),
            fence: Fence::new(3),
            why,
        })
    };
    let unavailable = |applied| {
        Error::from(Unavailable {
            applied,
            cause: "connection reset".into(),
        })
    };
    Ok(vec![
        (
            lost(Lost::NotClaimed {
                status: Status::Pending,
            }),
            "lease_lost",
            "lease lost: task ID at fence 3: nobody holds it, it is pending",
        ),
        (
            lost(Lost::WrongWorker { holder: worker()? }),
            "lease_lost",
            "lease lost: task ID at fence 3: it is held by \
             w1#00000000-0000-0000-0000-000000000009",
        ),
        (
            lost(Lost::Superseded {
                fence: Fence::new(4),
            }),
            "lease_lost",
            "lease lost: task ID at fence 3: it was claimed again with fence 4",
        ),
        (
            lost(Lost::Finished {
                status: Status::Completed,
            }),
            "lease_lost",
            "lease lost: task ID at fence 3: it is already completed",
        ),
        (
            lost(Lost::Gone),
            "lease_lost",
            "lease lost: task ID at fence 3: there is no such task",
        ),
        (
            NotFound::Record(Key::new("k")?).into(),
            "not_found",
            "no record k",
        ),
        (NotFound::Task(id(1)).into(), "not_found", "no task ID"),
        (
            NotFound::TaskByKey(IdempotencyKey::new("k")?).into(),
            "not_found",
            "no task with key k",
        ),
        (
            NotFound::Group(GroupId::new("g")?).into(),
            "not_found",
            "no group g",
        ),
        (
            NotFound::History {
                oldest: Position::new(12),
            }
            .into(),
            "not_found",
            "there is no history from there, the oldest is after position 12: take a snapshot",
        ),
        (
            NotFound::Index(index()?).into(),
            "not_found",
            "no index on n of a.*: declare it first",
        ),
        (
            unavailable(Applied::No),
            "unavailable",
            "store unavailable (nothing was applied): connection reset",
        ),
        (
            unavailable(Applied::Unknown),
            "unavailable",
            "store unavailable (it is unknown whether it was applied; repeating is safe): \
             connection reset",
        ),
        (
            Error::Unsupported("atomic batches".into()),
            "unsupported",
            "not supported here: atomic batches",
        ),
        (
            Error::Corrupt("row 7".into()),
            "corrupt",
            "stored value cannot be read: row 7",
        ),
        (Error::Closed, "closed", "the store was closed"),
    ])
}

#[test]
fn every_conflict_reads_as_a_sentence() -> Checked {
    for (conflict, text) in conflicts()? {
        let error = Error::from(conflict);
        let text = text.replace("ID", &id(1).to_string());
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), "conflict");
        assert!(!error.is_transient());
    }
    Ok(())
}

#[test]
fn every_other_error_reads_as_a_sentence() -> Checked {
    for (error, kind, text) in others()? {
        assert_eq!(error.to_string(), text.replace("ID", &id(1).to_string()));
        assert_eq!(error.kind(), kind);
        assert_eq!(error.is_transient(), kind == "unavailable");
    }
    Ok(())
}
