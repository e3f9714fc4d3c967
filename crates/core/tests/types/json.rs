//! Everything that is stored or sent survives JSON.

use std::fmt::Debug;
use std::time::Duration;

use plimsoll_core::change::{Change, Entry, GroupEvent, Removal, TaskChange, TaskEvent};
use plimsoll_core::error::{Error, Invalid, Problem};
use plimsoll_core::group::{Group, NewGroup};
use plimsoll_core::ids::{Fingerprint, Jitter};
use plimsoll_core::log::{ExecutionStep, Level, Line, NewLine};
use plimsoll_core::record::fields;
use plimsoll_core::store::{
    Commit, Ending, FailRetry, GroupCounts, Guard, Merge, Outcome, Put, Receipt, Settle,
    SubmitOutcome, Submitted, Write,
};
use plimsoll_core::task::{Due, Holder, NewTask, Status};
use plimsoll_core::{CommitId, Fence, GroupId, Key, LineId, Name, Position, Revision, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::errors::{conflicts, others};
use crate::samples::{new_task, raw, record, task};
use crate::unreadable::refuses;
use crate::{Checked, at, id, worker};

fn survives_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Checked {
    let text = serde_json::to_string(value)?;
    assert_eq!(&serde_json::from_str::<T>(&text)?, value, "{text}");
    let tree = serde_json::to_value(value)?;
    assert_eq!(&serde_json::from_value::<T>(tree)?, value, "{text}");
    Ok(())
}

#[test]
fn tasks_and_records_survive_json() -> Checked {
    survives_json(&task()?)?;
    survives_json(&record()?)?;
    let mut other = task()?;
    other.lease = None;
    other.result = None;
    for status in Status::ALL {
        other.status = status;
        survives_json(&other)?;
        assert_eq!(serde_json::to_value(status)?, json!(status.as_str()));
    }
    Ok(())
}

#[test]
fn a_fingerprint_is_written_as_32_hexadecimal_digits() -> Checked {
    let of_payload = Fingerprint::of(b"payload");
    let least = Fingerprint::from_u128(7);
    let greatest = Fingerprint::from_u128(u128::MAX);
    for fingerprint in [of_payload, least, greatest] {
        survives_json(&fingerprint)?;
        assert_eq!(
            serde_json::to_value(fingerprint)?,
            json!(fingerprint.to_string())
        );
    }
    assert_eq!(of_payload.to_string(), "239f59ed55e737c77147cf55ad0c1b03");
    assert_eq!(least.to_string(), "00000000000000000000000000000007");
    for bad in [
        json!(7),
        json!(""),
        json!("7"),
        json!("0".repeat(31)),
        json!("0".repeat(33)),
        json!("g".repeat(32)),
        json!(format!("-{}", "0".repeat(31))),
        json!(format!(" {}", "0".repeat(31))),
    ] {
        refuses(&least, "", bad)?;
    }
    Ok(())
}

#[test]
fn a_fingerprint_with_a_sign_is_not_read() -> Checked {
    let signed = format!("+{}", "0".repeat(31));
    refuses(&Fingerprint::from_u128(7), "", json!(signed))
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
    let opened = Group {
        again: u64::MAX,
        outer_born: Some(Revision::new(1)),
        ..Group::new(group.clone(), Revision::new(u64::MAX), at(1))
    };
    survives_json(&opened)?;
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
                modified_at: Timestamp::MAX,
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
