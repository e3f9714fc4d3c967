//! The types of the core by themselves: limits of names, texts of errors, JSON, and time.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::change::{Change, Entry, GroupEvent, Removal, TaskChange, TaskEvent};
use plimsoll_core::clock::ManualClock;
use plimsoll_core::error::{
    Applied, Conflict, Error, Invalid, LeaseLost, Lost, NotFound, Problem, Unavailable,
};
use plimsoll_core::group::{Group, NewGroup};
use plimsoll_core::ids::{Fingerprint, Jitter};
use plimsoll_core::log::{ExecutionStep, Level, Line, NewLine};
use plimsoll_core::record::{Record, fields};
use plimsoll_core::store::{
    Commit, Ending, FailRetry, GroupCounts, Guard, Merge, Outcome, Put, Receipt, Settle,
    SubmitOutcome, Submitted, Write,
};
use plimsoll_core::task::{
    AttemptError, Backoff, CancelRequest, Due, FailureKind, Holder, KeyLifetime, Lane, Lease,
    NewTask, OnConflict, Priority, Progress, RetryPolicy, Settled, Status, Task, TaskSpec, Verb,
    Waiting, Worker,
};
use plimsoll_core::{
    CommitId, Fence, GroupId, IdempotencyKey, Incarnation, Key, Limits, LineId, Memory, Name,
    Namespace, Position, Prefix, RequestId, Revision, Store, StoreExt, TaskId, Timestamp,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

type Checked = Result<(), Box<dyn StdError>>;

fn at(seconds: u64) -> Timestamp {
    Timestamp::MIN.saturating_plus(Duration::from_secs(seconds))
}

fn id(number: u128) -> TaskId {
    TaskId::from_u128(number)
}

fn worker() -> Result<Worker, Invalid> {
    Ok(Worker {
        name: Name::new("w1")?,
        incarnation: Incarnation::from_u128(9),
    })
}

/// What is wrong with this text, as a name of this type; `None`: nothing.
type Judge = fn(&str) -> Option<Problem>;

fn judges() -> [(&'static str, usize, usize, Judge); 6] {
    [
        ("key", 1, 512, |text| {
            Key::new(text).err().map(|e| e.problem)
        }),
        ("prefix", 0, 512, |text| {
            Prefix::new(text).err().map(|e| e.problem)
        }),
        ("name", 1, 128, |text| {
            Name::new(text).err().map(|e| e.problem)
        }),
        ("idempotency_key", 1, 512, |text| {
            IdempotencyKey::new(text).err().map(|e| e.problem)
        }),
        ("group", 1, 512, |text| {
            GroupId::new(text).err().map(|e| e.problem)
        }),
        ("namespace", 1, 64, |text| {
            Namespace::new(text).err().map(|e| e.problem)
        }),
    ]
}

#[test]
fn a_name_is_limited_in_bytes() {
    for (what, min, max, judge) in judges() {
        let too_long = Some(Problem::TooLong {
            bytes: max + 1,
            max,
        });
        let empty = (min > 0).then_some(Problem::Empty);
        assert_eq!(judge(""), empty, "{what}");
        assert_eq!(judge("x"), None, "{what}");
        assert_eq!(judge(&"x".repeat(max)), None, "{what}");
        assert_eq!(judge(&"x".repeat(max + 1)), too_long, "{what}");
        assert_eq!(judge(&("é".repeat(max / 2) + "x")), too_long, "{what}");
        let huge = "x".repeat(1 << 20);
        let bytes = huge.len();
        assert_eq!(
            judge(&huge),
            Some(Problem::TooLong { bytes, max }),
            "{what}"
        );
    }
}

#[test]
fn a_name_holds_every_character_but_nul() {
    let odd = [
        "é", "🚢", "'; --", "a b", ".", "..", "*", ">", "%", "\n", "\u{feff}", "\u{202e}",
    ];
    for (what, _, max, judge) in judges() {
        for nul in ["\0", "a\0b", "a\0"] {
            assert_eq!(judge(nul), Some(Problem::Nul), "{what}");
        }
        let plain = what == "namespace";
        for text in odd {
            assert_eq!(judge(text).is_some(), plain, "{what} {text:?}");
        }
        let full = "🚢".repeat(max / 4);
        assert_eq!(judge(&full).is_some(), plain, "{what}");
    }
    assert!(Namespace::new("aZ09_-").is_ok());
}

#[test]
fn an_error_blames_the_input_that_was_meant() {
    let blamed = [
        Key::new("").err(),
        Prefix::new("\0").err(),
        Name::new("").err(),
        IdempotencyKey::new("").err(),
        GroupId::new("").err(),
        Namespace::new("").err(),
        Name::for_field("stage", "").err(),
        Lane::new("", "kind").err(),
        Lane::new("queue", "").err(),
        TaskId::parse("seven").err(),
        Priority::new(11).err(),
        Timestamp::from_micros(-1).err(),
    ];
    let fields = blamed.map(|error| error.map(|error| error.field));
    let expected = [
        "key",
        "prefix",
        "name",
        "idempotency_key",
        "group",
        "namespace",
        "stage",
        "queue",
        "kind",
        "task",
        "priority",
        "timestamp",
    ];
    assert_eq!(fields, expected.map(|field| Some(field.to_owned())));
}

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

fn conflicts() -> Result<Vec<(Conflict, &'static str)>, Invalid> {
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
            Conflict::Contended { attempts: 8 },
            "gave up after 8 attempts against concurrent changes",
        ),
    ])
}

fn others() -> Result<Vec<(Error, &'static str, &'static str)>, Invalid> {
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
            "history before position 12 was compacted: take a snapshot and go on from there",
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

fn survives_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Checked {
    let text = serde_json::to_string(value)?;
    assert_eq!(&serde_json::from_str::<T>(&text)?, value, "{text}");
    let tree = serde_json::to_value(value)?;
    assert_eq!(&serde_json::from_value::<T>(tree)?, value, "{text}");
    Ok(())
}

fn raw() -> Bytes {
    Bytes::from_static(&[0, 1, 127, 128, 255])
}

fn new_task(number: u128) -> Result<NewTask, Invalid> {
    let mut task = NewTask::new(id(number), Lane::new("queue", "kind")?, raw())
        .priority(Priority::HIGHEST)
        .key_with(
            IdempotencyKey::new("🚢")?,
            KeyLifetime::For(Duration::new(3, 7)),
            OnConflict::CancelAndReplace,
        )
        .group(GroupId::new("g")?);
    task.due = Due::At(Timestamp::MAX);
    task.owner = Some(Name::new("owner")?);
    task.labels = BTreeMap::from([(Name::new("a")?, Name::new("b")?)]);
    task.retry = RetryPolicy {
        max_attempts: u32::MAX,
        backoff: Backoff::Fixed(Duration::from_millis(1)),
        jitter_percent: 100,
        total: Some(Duration::MAX),
    };
    task.attempt_timeout = Some(Duration::from_nanos(1));
    task.first_stage = Some(Name::new("validating")?);
    task.trace = Some("00-trace".into());
    let inner = NewTask::new(id(number + 1), Lane::new("queue", "kind")?, "");
    task.on_failure = Some(Box::new(inner));
    Ok(task)
}

fn task() -> Result<Task, Invalid> {
    let new = new_task(1)?;
    let spec = TaskSpec {
        id: new.id,
        lane: new.lane,
        fingerprint: Fingerprint::from_u128(7),
        payload: new.payload,
        key: new.key.map(|key| (key.key, key.lifetime)),
        group: new.group,
        owner: new.owner,
        labels: new.labels,
        retry: new.retry,
        attempt_timeout: new.attempt_timeout,
        first_stage: new.first_stage,
        on_failure: new.on_failure,
        trace: new.trace,
        created_at: Timestamp::MIN,
    };
    Ok(Task {
        spec: Arc::new(spec),
        status: Status::Claimed,
        priority: Priority::LOWEST,
        fence: Fence::new(u64::MAX),
        attempts: u32::MAX,
        failures: 1,
        redrives: 2,
        runnable_at: at(1),
        lease: Some(Lease {
            worker: worker()?,
            until: at(30),
            deadline: Some(at(60)),
            request: RequestId::from_u128(u128::MAX),
        }),
        cancel: Some(CancelRequest {
            at: at(2),
            reason: Some("why".into()),
        }),
        settled: Some(Settled {
            fence: Fence::new(1),
            verb: Verb::Snooze,
            status: Status::Scheduled,
            runnable_at: Some(at(3)),
        }),
        waiting: Some(Waiting {
            on: id(4),
            then_at: at(4),
        }),
        successor: Some(id(5)),
        stage: Some(Name::new("processing")?),
        progress: Some(Progress {
            percent: Some(50),
            message: Some("half".into()),
            current_step: Some(1),
            step_count: Some(u32::MAX),
        }),
        checkpoint: Some(raw()),
        attributes: fields([("a", raw())])?,
        errors: vec![AttemptError {
            fence: Fence::new(1),
            worker: worker()?,
            at: at(5),
            kind: FailureKind::DeadlineExceeded,
            message: "oops".into(),
        }],
        result: Some(Bytes::new()),
        reason: Some("reason".into()),
        started_at: Some(at(6)),
        claimed_at: Some(at(7)),
        finished_at: Some(at(8)),
        modified_at: Timestamp::MAX,
        revision: Revision::new(u64::MAX),
    })
}

fn record() -> Result<Record, Invalid> {
    Ok(Record {
        key: Key::new("a.🚢")?,
        fields: fields([("raw", raw()), ("empty", Bytes::new())])?,
        revision: Revision::new(u64::MAX),
        modified_at: at(1),
        expires_at: Some(Timestamp::MAX),
    })
}

#[test]
fn tasks_and_records_survive_json() -> Checked {
    survives_json(&task()?)?;
    survives_json(&record()?)?;
    for status in Status::ALL {
        survives_json(&Task {
            status,
            lease: None,
            result: None,
            ..task()?
        })?;
        assert_eq!(serde_json::to_value(status)?, json!(status.as_str()));
    }
    Ok(())
}

#[test]
fn a_fingerprint_survives_json() -> Checked {
    survives_json(&Fingerprint::of(b"payload"))
}

#[test]
fn what_is_submitted_survives_json() -> Checked {
    let new = new_task(1)?;
    survives_json(&new)?;
    for due in [Due::Now, Due::After(Duration::MAX), Due::At(at(1))] {
        survives_json(&NewTask { due, ..new.clone() })?;
    }
    let group = NewGroup::new(GroupId::new("g")?)
        .expecting(u64::MAX)
        .then(new.clone())
        .on_first_failure(new);
    survives_json(&group)?;
    survives_json(&Group::new(group.clone(), at(1)))?;
    let holder = Holder {
        task: id(1),
        worker: worker()?,
        fence: Fence::new(2),
    };
    let merge = Merge::new(Key::new("k")?)
        .set(fields([("a", raw())])?)
        .unset(Name::new("b")?)
        .add(Name::new("c")?, i64::MIN)
        .raise(Name::new("d")?, i64::MAX)
        .returning();
    let commit = Commit::new()
        .id(CommitId::from_u128(3))
        .guard(Guard::Held(holder.clone()))
        .guard(Guard::Field(Key::new("k")?, Name::new("f")?, Some(raw())))
        .write(Write::Put(
            Put::new(Key::new("k")?, fields([("a", raw())])?).ttl(Duration::MAX),
        ))
        .write(Write::Merge(merge))
        .write(Write::OpenGroup(Box::new(group)))
        .write(Write::Settle(Settle {
            holder,
            how: Ending::Fail {
                error: "oops".into(),
                retry: FailRetry::After(Duration::MAX),
                jitter: Jitter(u32::MAX),
            },
        }));
    survives_json(&commit)
}

#[test]
fn log_lines_survive_json() -> Checked {
    survives_json(&Line {
        line: NewLine {
            id: LineId::from_u128(1),
            level: Level::Warn,
            stage: Some(Name::new("processing")?),
            message: "line".into(),
            metadata: Some(raw()),
            step: Some(Box::new(ExecutionStep {
                step_id: Name::new("s")?,
                kind: Name::new("ffmpeg")?,
                command: Some("ffmpeg".into()),
                exit_code: Some(i32::MIN),
                stdout: Some("out".into()),
                stderr: None,
                started_at: at(1),
                completed_at: Some(at(2)),
                duration_ms: Some(u64::MAX),
                success: Some(false),
                error: Some("oops".into()),
            })),
        },
        fence: Fence::new(u64::MAX),
        at: at(3),
    })
}

#[test]
fn history_survives_json() -> Checked {
    let change = TaskChange::new(&task()?, TaskEvent::CancelRequested);
    survives_json(&Entry {
        position: Position::new(u64::MAX),
        at: at(1),
        changes: vec![
            Change::Put(record()?),
            Change::Removed {
                key: Key::new("k")?,
                revision: Revision::new(1),
                how: Removal::Expired,
            },
            Change::Task(change),
            Change::Group {
                id: GroupId::new("g")?,
                generation: u32::MAX,
                event: GroupEvent::FirstFailure,
            },
        ],
    })
}

#[test]
fn receipts_survive_json() -> Checked {
    let submitted = |outcome| Outcome::Submitted(Submitted { id: id(1), outcome });
    let status = Status::Cancelled;
    survives_json(&Receipt {
        outcomes: vec![
            Outcome::Written {
                revision: Revision::new(1),
                record: Some(record()?),
            },
            Outcome::Removed { existed: true },
            submitted(SubmitOutcome::Created),
            submitted(SubmitOutcome::Existing),
            submitted(SubmitOutcome::ExistingOtherPayload),
            submitted(SubmitOutcome::ExistingFinished(status)),
            Outcome::Settled {
                status,
                runnable_at: Some(at(1)),
            },
            Outcome::Changed {
                status,
                revision: Revision::new(2),
            },
            Outcome::Already { status },
            Outcome::Group(GroupCounts {
                begun: 3,
                done: 2,
                failed: 1,
                drained: true,
                generation: 4,
            }),
            Outcome::Logged,
        ],
        position: Some(Position::new(9)),
        repeated: true,
    })
}

#[test]
fn every_error_survives_json() -> Checked {
    for (conflict, _) in conflicts()? {
        survives_json(&Error::from(conflict))?;
    }
    for (error, _, _) in others()? {
        survives_json(&error)?;
    }
    let problem = Problem::Malformed {
        expected: "a UUID".into(),
    };
    survives_json(&Error::from(Invalid::new("task", problem)))
}

/// Whether JSON with `value` at `pointer` is refused as a `T`.
fn refuses<T: Serialize + DeserializeOwned + Debug>(
    good: &T,
    pointer: &str,
    value: Value,
) -> Checked {
    let mut tree = serde_json::to_value(good)?;
    let place = tree.pointer_mut(pointer);
    *place.ok_or_else(|| format!("nothing at {pointer}"))? = value.clone();
    let read = serde_json::from_value::<T>(tree.clone());
    assert!(read.is_err(), "{pointer} = {value} was read as {read:?}");
    let text = serde_json::from_str::<T>(&tree.to_string());
    assert!(text.is_err(), "{pointer} = {value} was read as {text:?}");
    Ok(())
}

#[test]
fn a_stored_task_that_breaks_a_limit_is_not_read() -> Checked {
    let good = task()?;
    for (pointer, value) in [
        ("/spec/lane/queue", json!("x".repeat(129))),
        ("/spec/lane/kind", json!("")),
        ("/spec/owner", json!("a\0b")),
        ("/spec/group", json!("x".repeat(513))),
        ("/spec/key/0", json!("")),
        ("/spec/labels", json!({"": "b"})),
        ("/spec/id", json!("seven")),
        ("/spec/created_at", json!(-1)),
        ("/spec/payload", json!([256])),
        (
            "/spec/attempt_timeout",
            json!({"secs": u64::MAX, "nanos": 1_000_000_000}),
        ),
        ("/spec/retry/max_attempts", json!(4_294_967_296_u64)),
        ("/spec/retry/backoff", json!({"linear": 1})),
        ("/status", json!("paused")),
        ("/status", json!("Pending")),
        ("/status", json!(null)),
        ("/priority", json!(11)),
        ("/priority", json!(-1)),
        ("/priority", json!(256)),
        ("/fence", json!(-1)),
        ("/fence", json!(1.5)),
        ("/runnable_at", json!(253_402_207_200_000_001_i64)),
        ("/runnable_at", json!(i64::MIN)),
        ("/runnable_at", json!(u64::MAX)),
        ("/runnable_at", json!("1970-01-01T00:00:00Z")),
        ("/lease/worker/name", json!("")),
        ("/errors/0/kind", json!("unlucky")),
        ("/progress/percent", json!(256)),
        ("/attributes", json!({"a\u{0}b": []})),
    ] {
        refuses(&good, pointer, value)?;
    }
    Ok(())
}

#[test]
fn a_stored_value_without_a_part_it_must_have_is_not_read() -> Checked {
    let whole = serde_json::to_value(task()?)?;
    let must = [
        "spec",
        "status",
        "priority",
        "fence",
        "attempts",
        "runnable_at",
        "attributes",
    ];
    for part in must
        .into_iter()
        .chain(["errors", "modified_at", "revision"])
    {
        let mut tree = whole.clone();
        let parts = tree.as_object_mut().ok_or("a task is an object")?;
        assert!(parts.remove(part).is_some(), "{part}");
        let read = serde_json::from_value::<Task>(tree);
        assert!(read.is_err(), "without {part}: {read:?}");
    }
    Ok(())
}

#[test]
fn other_stored_values_that_break_a_limit_are_not_read() -> Checked {
    refuses(&record()?, "/key", json!("x".repeat(513)))?;
    refuses(&record()?, "/key", json!(""))?;
    refuses(&record()?, "/expires_at", json!(i64::MAX))?;
    refuses(&record()?, "/revision", json!(-1))?;
    refuses(&new_task(1)?, "/priority", json!(11))?;
    refuses(&new_task(1)?, "/on_failure/lane/kind", json!("\u{0}"))?;
    refuses(&new_task(1)?, "/due", json!({"at": -1}))?;
    let namespace = Namespace::new("plain")?;
    refuses(&namespace, "", json!("not plain"))?;
    refuses(&namespace, "", json!("x".repeat(65)))?;
    refuses(&Prefix::any(), "", json!("x".repeat(513)))?;
    refuses(&Error::Closed, "", json!("Exploded"))
}

#[test]
fn the_reader_of_json_is_told_the_limit() {
    let text = json!("x".repeat(129)).to_string();
    let error = serde_json::from_str::<Name>(&text).err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(
        error.contains("name: 129 bytes, at most 128 are allowed"),
        "{error}"
    );
    let error = serde_json::from_str::<Priority>("11").err();
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("11 is not between 0 and 10"), "{error}");
}

fn moments() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        (0..=Timestamp::MAX.as_micros())
            .prop_map(|micros| at(0).saturating_plus(Duration::from_micros(micros.unsigned_abs()))),
    ]
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        (0..500_000_000_000_u64, 0..1_000_000_000_u32)
            .prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_moment_is_within_its_limits_or_is_none(micros in any::<i64>()) {
        let inside = (0..=Timestamp::MAX.as_micros()).contains(&micros);
        let moment = Timestamp::from_micros(micros);
        prop_assert_eq!(moment.is_ok(), inside);
        prop_assert_eq!(moment.ok().map(Timestamp::as_micros), inside.then_some(micros));
    }

    #[test]
    fn a_moment_reads_as_a_date_and_survives_json(moment in moments()) {
        let text = moment.to_string();
        prop_assert!(text.len() >= 20 && text.ends_with('Z'), "{}", text);
        let parsed: Option<jiff::Timestamp> = text.parse().ok();
        prop_assert_eq!(parsed.map(|parsed| parsed.as_microsecond()), Some(moment.as_micros()));
        let json = serde_json::to_string(&moment).unwrap_or_default();
        prop_assert_eq!(json.clone(), moment.as_micros().to_string());
        prop_assert_eq!(serde_json::from_str::<Timestamp>(&json).ok(), Some(moment));
    }

    #[test]
    fn adding_is_exact_or_refused_and_saturates_at_the_end(
        moment in moments(),
        duration in durations(),
    ) {
        let room = u128::from(Timestamp::MAX.as_micros().abs_diff(moment.as_micros()));
        let later = moment.plus("delay", duration);
        let saturated = moment.saturating_plus(duration);
        if duration.as_micros() <= room {
            prop_assert_eq!(later, Ok(saturated));
            prop_assert_eq!(saturated.since(moment).as_micros(), duration.as_micros());
            prop_assert_eq!(saturated.saturating_minus(duration), moment);
        } else {
            prop_assert_eq!(later.map_err(|error| error.field), Err("delay".to_owned()));
            prop_assert_eq!(saturated, Timestamp::MAX);
        }
    }

    #[test]
    fn subtracting_stops_at_the_beginning(moment in moments(), duration in durations()) {
        let earlier = moment.saturating_minus(duration);
        let passed = u128::from(moment.since(Timestamp::MIN).as_micros() as u64);
        let expected = passed.saturating_sub(duration.as_micros());
        prop_assert_eq!(earlier.since(Timestamp::MIN).as_micros(), expected);
        prop_assert!(earlier <= moment);
    }

    #[test]
    fn what_is_not_later_is_no_time_later(first in moments(), second in moments()) {
        let (earlier, later) = (first.min(second), first.max(second));
        prop_assert_eq!(earlier.since(later), Duration::ZERO);
        prop_assert_eq!(earlier.saturating_plus(later.since(earlier)), later);
    }

    #[test]
    fn a_retry_policy_survives_json(
        factor in 1.0_f64..=100.0,
        first in durations(),
        cap in durations(),
    ) {
        let backoff = Backoff::Exponential { first, factor, cap };
        let policy = RetryPolicy { backoff, ..RetryPolicy::default() };
        let json = serde_json::to_string(&policy).unwrap_or_default();
        prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&json).ok(), Some(policy));
    }
}

#[test]
fn a_wait_that_starts_at_zero_stays_zero_however_often_it_grows() {
    let policy = RetryPolicy {
        max_attempts: 0,
        backoff: Backoff::Exponential {
            first: Duration::ZERO,
            factor: 2.0,
            cap: Duration::from_secs(300),
        },
        jitter_percent: 0,
        total: None,
    };
    for failures in [1, 2, 1_000, 1_100, u32::MAX] {
        let delay = policy.delay(failures, Jitter::default());
        assert_eq!(delay, Duration::ZERO, "after {failures} failures");
    }
}

#[tokio::test]
async fn a_store_can_be_used_without_knowing_its_type() -> Checked {
    let clock = Arc::new(ManualClock::new());
    let memory = Memory::with(clock, Limits::default());
    let shared: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("one")?));
    let owned: Box<dyn Store> = Box::new(memory.open(Namespace::new("one")?));
    let new = NewTask::new(id(1), Lane::new("queue", "kind")?, "work");
    assert_eq!(shared.submit(new).await?.id, id(1));
    let stores: Vec<&dyn Store> = vec![shared.as_ref(), owned.as_ref()];
    for store in stores {
        let task = store.task(id(1)).await?;
        assert_eq!(task.map(|task| task.status), Some(Status::Pending));
    }
    Ok(())
}
