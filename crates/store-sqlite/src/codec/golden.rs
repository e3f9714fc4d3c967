//! The bytes of every stored body, kept in `tests/golden/bodies.txt`: files outlive programs.
//!
//! Bodies are positional: a struct is the list of its fields. So a new field of a stored type goes
//! last and has `#[serde(default)]`, and none is ever removed, moved or given another type.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::change::{Change, GroupEvent, Removal, TaskChange, TaskEvent};
use plimsoll_core::group::Group;
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::log::{ExecutionStep, Level, Line, NewLine};
use plimsoll_core::record::{Fields, Record, fields};
use plimsoll_core::store::{GroupCounts, Outcome, Receipt, SubmitOutcome, Submitted};
use plimsoll_core::task::{
    AttemptError, Backoff, CancelRequest, Due, FailureKind, KeyLifetime, KeyRequest, Lane, Lease,
    NewTask, OnConflict, Priority, Progress, RetryPolicy, Settled, Status, TaskSpec, TaskState,
    Verb, Waiting, WorkerId,
};
use plimsoll_core::{
    Fence, GroupId, Incarnation, Invalid, Key, LineId, Name, Position, Revision, TaskId, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{decode, encode};

const ADVICE: &str = "What is stored has changed. Files of earlier versions must stay readable: a \
    new field of a stored type goes last and has #[serde(default)]; nothing is removed, moved, \
    renamed or given another type. If that holds, run this test with PLIMSOLL_UPDATE_GOLDEN=1, \
    which refuses if the old bytes cannot be read, and review the difference";

/// Every variant of an enum without fields. A new one does not compile until it is listed.
macro_rules! every {
    ($type:ident: $($variant:ident),+ $(,)?) => {{
        let _ = |one: $type| match one { $($type::$variant => ()),+ };
        [$($type::$variant),+]
    }};
}

/// What is in the file, and what should be.
struct Golden {
    kept: BTreeMap<String, String>,
    made: BTreeMap<String, String>,
    updating: bool,
}

impl Golden {
    fn path() -> PathBuf {
        [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "bodies.txt"]
            .iter()
            .collect()
    }

    fn open() -> Self {
        let text = std::fs::read_to_string(Self::path()).unwrap_or_default();
        let split = |line: &str| {
            let (name, bytes) = line.split_once(": ")?;
            Some((name.to_owned(), bytes.to_owned()))
        };
        Self {
            kept: text.lines().filter_map(split).collect(),
            made: BTreeMap::new(),
            updating: std::env::var_os("PLIMSOLL_UPDATE_GOLDEN").is_some(),
        }
    }

    /// A value is written as the bytes that are kept for it, and these are read as the value.
    fn holds<T>(&mut self, name: &str, value: T)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let bytes = encode(&value).expect("a value");
        let read: T = decode(name, &bytes).expect("what was just written");
        assert_eq!(read, value);
        if let Some(kept) = self.kept.get(name) {
            let old: Result<T, _> = decode(name, &from_hex(kept));
            let old = old.unwrap_or_else(|error| panic!("{error:?}. {ADVICE}"));
            assert!(self.updating || old == value, "{name}: {old:?}. {ADVICE}");
        }
        let hex = to_hex(&bytes);
        assert!(
            self.updating || self.kept.get(name) == Some(&hex),
            "{name}: {hex}. {ADVICE}"
        );
        assert_eq!(self.made.insert(name.to_owned(), hex), None, "{name} twice");
    }

    fn close(self) {
        if self.updating {
            let lines = self.made.iter();
            let text: String = lines
                .map(|(name, bytes)| format!("{name}: {bytes}\n"))
                .collect();
            std::fs::write(Self::path(), text).expect("the file");
        } else {
            let names = |of: BTreeMap<String, String>| of.into_keys().collect::<Vec<_>>();
            assert_eq!(names(self.kept), names(self.made), "{ADVICE}");
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text grows");
        text
    })
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).expect("a moment")
}

fn lane() -> Result<Lane, Invalid> {
    Lane::new("queue", "kind")
}

fn worker() -> Result<WorkerId, Invalid> {
    Ok(WorkerId {
        name: Name::new("worker")?,
        incarnation: Incarnation::from_u128(1),
    })
}

fn record() -> Result<Record, Invalid> {
    Ok(Record {
        key: Key::new("key")?,
        fields: fields([("binary", &b"\0\xff"[..]), ("empty", b""), ("text", b"x")])?,
        revision: Revision::new(u64::MAX),
        modified_at: Timestamp::MAX,
        expires_at: Some(at(1)),
    })
}

fn new_task(due: Due, lifetime: KeyLifetime, on_conflict: OnConflict) -> Result<NewTask, Invalid> {
    Ok(NewTask {
        id: TaskId::from_u128(2),
        lane: lane()?,
        payload: "payload".into(),
        priority: Priority::HIGHEST,
        due,
        key: Some(KeyRequest {
            key: "key".try_into()?,
            lifetime,
            on_conflict,
        }),
        group: Some(GroupId::new("group")?),
        owner: Some(Name::new("owner")?),
        labels: [("label".try_into()?, "value".try_into()?)].into(),
        retry: RetryPolicy::default(),
        attempt_timeout: Some(Duration::from_millis(1)),
        first_stage: Some(Name::new("stage")?),
        on_failure: Some(Box::new(NewTask::new(TaskId::from_u128(3), lane()?, ""))),
        trace: Some("trace".into()),
        lifecycle: Some(Lifecycle::row(["one", "two"])?),
    })
}

/// New tasks with every due, lifetime and policy.
fn new_tasks() -> Result<Vec<NewTask>, Invalid> {
    let dues = [Due::Now, Due::After(Duration::new(1, 2)), Due::At(at(3))];
    let lifetimes = [
        KeyLifetime::WhileActive,
        KeyLifetime::For(Duration::from_secs(4)),
        KeyLifetime::Forever,
    ];
    let policies = every!(OnConflict: Attach, Reject, ReplacePending, CancelAndReplace);
    (0..4)
        .map(|n| new_task(dues[n % 3], lifetimes[n % 3], policies[n]))
        .collect()
}

fn spec(lifetime: KeyLifetime, backoff: Backoff) -> Result<TaskSpec, Invalid> {
    Ok(TaskSpec {
        id: TaskId::from_u128(1),
        lane: lane()?,
        payload: vec![0, 0xff].into(),
        fingerprint: Fingerprint::of(b"payload"),
        key: Some(("key".try_into()?, lifetime)),
        group: Some(GroupId::new("group")?),
        group_born: Some(Revision::new(2)),
        owner: Some(Name::new("owner")?),
        labels: [("label".try_into()?, "value".try_into()?)].into(),
        retry: RetryPolicy {
            max_attempts: 3,
            backoff,
            jitter_percent: 4,
            total: Some(Duration::from_secs(5)),
        },
        attempt_timeout: Some(Duration::new(6, 7)),
        first_stage: Some(Name::new("stage")?),
        on_failure: Some(Box::new(NewTask::new(TaskId::from_u128(8), lane()?, ""))),
        trace: Some("trace".into()),
        created_at: at(9),
        born: Revision::new(10),
        lifecycle: Some(Lifecycle::row(["one", "two"])?),
    })
}

fn state(status: Status, verb: Verb) -> Result<TaskState, Invalid> {
    let kinds = every!(FailureKind:
        Error, Fatal, LeaseExpired, DeadlineExceeded, Interrupted, Revoked);
    let (worker, stage) = (worker()?, Name::new("stage")?);
    Ok(TaskState {
        status,
        priority: Priority::LOWEST,
        fence: Fence::new(1),
        attempts: 2,
        failures: 3,
        defeats: 4,
        redrives: 5,
        runnable_at: at(6),
        lease: Some(Lease {
            worker: worker.clone(),
            until: at(7),
            deadline: Some(at(8)),
        }),
        cancel: Some(CancelRequest {
            at: at(9),
            reason: Some("reason".into()),
        }),
        settled: Some(Settled {
            fence: Fence::new(10),
            by: Incarnation::from_u128(11),
            verb,
            status,
            runnable_at: Some(at(12)),
            worker: Some(Name::new("settler")?),
        }),
        waiting: Some(Waiting {
            on: TaskId::from_u128(13),
            then_at: at(14),
        }),
        successor: Some(TaskId::from_u128(15)),
        stage: Some(Name::new("stage")?),
        progress: Some(Progress {
            percent: Some(16),
            message: Some("message".into()),
            current_step: Some(17),
            step_count: Some(18),
        }),
        checkpoint: Some("checkpoint".into()),
        attributes: fields([("attribute", "value")])?,
        errors: kinds
            .map(|kind| AttemptError {
                fence: Fence::new(19),
                worker: worker.clone(),
                at: at(20),
                kind,
                message: "message".into(),
                stage: Some(stage.clone()),
            })
            .into(),
        result: Some("result".into()),
        reason: Some("reason".into()),
        started_at: Some(at(21)),
        claimed_at: Some(at(22)),
        finished_at: Some(at(23)),
        modified_at: at(24),
        revision: Revision::new(25),
    })
}

fn group() -> Result<Group, Invalid> {
    let [then, on_first_failure, ..] = &new_tasks()?[..] else {
        panic!("there are four");
    };
    Ok(Group {
        id: GroupId::new("group")?,
        expected: Some(1),
        sealed: true,
        spawned: 2,
        arrived: 3,
        done: 4,
        failed: 5,
        cancelled: 6,
        generation: 7,
        first_failure: Some(TaskId::from_u128(8)),
        drained_at: Some(at(9)),
        then: Some(Box::new(then.clone())),
        on_first_failure: Some(Box::new(on_first_failure.clone())),
        again: 10,
        born: Revision::new(11),
        outer_born: Some(Revision::new(12)),
        created_at: at(13),
        modified_at: at(14),
    })
}

fn changes() -> Result<Vec<Change>, Invalid> {
    let events = every!(TaskEvent:
        Submitted, Promoted, Claimed, Completed, Failed, Snoozed, Released, CancelRequested,
        Cancelled, Expired, Retried, Unblocked, Amended, Deleted);
    let of_groups = every!(GroupEvent: Opened, Sealed, FirstFailure, Drained, Reopened, Deleted);
    let key = Key::new("key")?;
    let (lane, group) = (lane()?, GroupId::new("group")?);
    let mut changes = vec![Change::Put(record()?)];
    changes.extend(
        every!(Removal: Deleted, Expired).map(|how| Change::Removed {
            key: key.clone(),
            revision: Revision::new(1),
            how,
        }),
    );
    changes.extend(events.map(|event| {
        Change::Task(TaskChange {
            id: TaskId::from_u128(2),
            lane: lane.clone(),
            group: Some(group.clone()),
            event,
            status: Status::Claimed,
            fence: Fence::new(3),
            revision: Revision::new(4),
        })
    }));
    changes.extend(of_groups.map(|event| Change::Group {
        id: group.clone(),
        generation: 5,
        event,
    }));
    Ok(changes)
}

fn line(level: Level) -> Result<Line, Invalid> {
    let step = ExecutionStep {
        step_id: Name::new("step")?,
        kind: Name::new("download")?,
        command: Some("command".into()),
        exit_code: Some(-1),
        stdout: Some("out".into()),
        stderr: Some("err".into()),
        started_at: at(1),
        completed_at: Some(at(2)),
        duration_ms: Some(3),
        success: Some(true),
        error: Some("error".into()),
    };
    Ok(Line {
        line: NewLine {
            id: LineId::from_u128(4),
            level,
            stage: Some(Name::new("stage")?),
            message: "message".into(),
            metadata: Some(vec![0, 0xff].into()),
            step: Some(Box::new(step)),
        },
        fence: Fence::new(5),
        at: at(6),
    })
}

fn receipt() -> Result<Receipt, Invalid> {
    let mut outcomes = vec![
        Outcome::Written {
            revision: Revision::new(1),
            record: Some(record()?),
            modified_at: at(9),
        },
        Outcome::Removed { existed: true },
        Outcome::Settled {
            status: Status::Scheduled,
            runnable_at: Some(at(2)),
        },
        Outcome::Changed {
            status: Status::Pending,
            revision: Revision::new(3),
        },
        Outcome::Already {
            status: Status::Failed,
        },
        Outcome::Group(GroupCounts {
            begun: 4,
            done: 5,
            failed: 6,
            drained: true,
            generation: 7,
        }),
        Outcome::Logged,
    ];
    for outcome in [
        SubmitOutcome::Created,
        SubmitOutcome::Existing,
        SubmitOutcome::ExistingOtherPayload,
        SubmitOutcome::ExistingFinished(Status::Cancelled),
    ] {
        let id = TaskId::from_u128(8);
        outcomes.push(Outcome::Submitted(Submitted { id, outcome }));
    }
    Ok(Receipt {
        outcomes,
        position: Some(Position::new(9)),
        repeated: false,
    })
}

/// A receipt of a record that was written, as it was stored before it said when.
#[test]
fn receipts_from_before_they_said_when_are_read() {
    let old = from_hex("939181a77772697474656e9203c007c2");
    let outcomes = vec![Outcome::Written {
        revision: Revision::new(3),
        record: None,
        modified_at: Timestamp::MIN,
    }];
    let expected = Receipt {
        outcomes,
        position: Some(Position::new(7)),
        repeated: false,
    };
    let read: Receipt = decode("a receipt", &old).expect("readable");
    assert_eq!(read, expected);
}

#[test]
fn what_is_stored_is_what_was_stored_before() -> Result<(), Invalid> {
    let mut golden = Golden::open();
    let fixed = Backoff::Fixed(Duration::from_secs(1));
    for (name, lifetime, backoff) in [
        ("while active", KeyLifetime::WhileActive, Backoff::default()),
        ("for ever", KeyLifetime::Forever, fixed.clone()),
        ("for a time", KeyLifetime::For(Duration::MAX), fixed),
    ] {
        golden.holds(&format!("spec of a key {name}"), spec(lifetime, backoff)?);
    }
    for (n, task) in new_tasks()?.into_iter().enumerate() {
        let on_failure = Some(Box::new(task));
        let spec = spec(KeyLifetime::Forever, Backoff::default())?;
        golden.holds(
            &format!("spec on failure {n}"),
            TaskSpec { on_failure, ..spec },
        );
    }
    let verbs = every!(Verb: Complete, Fail, Snooze, Release, Cancel);
    for (n, status) in Status::ALL.into_iter().enumerate() {
        golden.holds(
            &format!("state {status}"),
            state(status, verbs[n % verbs.len()])?,
        );
    }
    golden.holds::<Fields>("fields", record()?.fields);
    golden.holds("group", group()?);
    golden.holds("changes", changes()?);
    for level in every!(Level: Debug, Info, Warn, Error) {
        golden.holds(&format!("line {level:?}"), line(level)?);
    }
    golden.holds("receipt", receipt()?);
    let taken = vec![(TaskId::from_u128(1), Fence::new(2))];
    golden.holds::<Vec<(TaskId, Fence)>>("claim", taken);
    golden.close();
    Ok(())
}
