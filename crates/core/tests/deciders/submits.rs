//! Submits: every holder of a key, with every conflict policy.

use std::sync::Arc;

use plimsoll_core::decide::submit::{self, Submission};
use plimsoll_core::error::{Conflict, Error};
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::store::SubmitOutcome;
use plimsoll_core::task::{
    Due, KeyLifetime, KeyRequest, Lane, NewTask, OnConflict, Priority, RetryPolicy, Status, Task,
    TaskSpec, TaskState, Waiting,
};
use plimsoll_core::{Fence, IdempotencyKey, Result, Revision, TaskId, Timestamp};

use crate::{assert_whole, at, cells, moment, name, secs};

const NEW: TaskId = TaskId::from_u128(1);
const HOLDER: TaskId = TaskId::from_u128(2);
const NOW: u64 = 1_000;

/// What a submit onto a key leads to, by its holder and by conflict policy and payload. A holder
/// is a status and what the lifetime of its key says: `active` while the task is, `running` for a
/// time that is not over, `over` for one that is, `forever`.
const TABLE: &str = "
                  attach/same attach/other reject/same reject/other pending/same pending/other cancel/same cancel/other
none              Create      Create       Create      Create       Create       Create        Create      Create
scheduled/active  Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
scheduled/running Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
scheduled/over    Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
scheduled/forever Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
pending/active    Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
pending/running   Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
pending/over      Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
pending/forever   Existing    Other        Taken       Taken        Replace      Replace       Replace     Replace
claimed/active    Existing    Other        Taken       Taken        Existing     Other         Succeed     Succeed
claimed/running   Existing    Other        Taken       Taken        Existing     Other         Succeed     Succeed
claimed/over      Existing    Other        Taken       Taken        Existing     Other         Succeed     Succeed
claimed/forever   Existing    Other        Taken       Taken        Existing     Other         Succeed     Succeed
completed/active  Create      Create       Create      Create       Create       Create        Create      Create
completed/running Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
completed/over    Create      Create       Create      Create       Create       Create        Create      Create
completed/forever Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
failed/active     Create      Create       Create      Create       Create       Create        Create      Create
failed/running    Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
failed/over       Create      Create       Create      Create       Create       Create        Create      Create
failed/forever    Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
cancelled/active  Create      Create       Create      Create       Create       Create        Create      Create
cancelled/running Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
cancelled/over    Create      Create       Create      Create       Create       Create        Create      Create
cancelled/forever Finished    Finished     Taken       Taken        Finished     Finished      Finished    Finished
";

const POLICIES: [(&str, OnConflict); 4] = [
    ("attach", OnConflict::Attach),
    ("reject", OnConflict::Reject),
    ("pending", OnConflict::ReplacePending),
    ("cancel", OnConflict::CancelAndReplace),
];

fn key() -> IdempotencyKey {
    IdempotencyKey::new("order-7").unwrap()
}

/// What is submitted: with this policy, and the payload of the holder or another one.
fn requests() -> Vec<(String, NewTask)> {
    let mut requests = Vec::new();
    for (policy, on_conflict) in POLICIES {
        for payload in ["same", "other"] {
            let new = task(NEW, payload).key_with(key(), KeyLifetime::Forever, on_conflict);
            requests.push((format!("{policy}/{payload}"), new));
        }
    }
    requests
}

fn task(id: TaskId, payload: &'static str) -> NewTask {
    NewTask::new(id, Lane::new("shop", "ship").unwrap(), payload)
}

/// What holds the key.
fn holders() -> Vec<(String, Option<Task>)> {
    let lifetimes = [
        ("active", KeyLifetime::WhileActive),
        ("running", KeyLifetime::For(secs(901))),
        ("over", KeyLifetime::For(secs(900))),
        ("forever", KeyLifetime::Forever),
    ];
    let mut holders = vec![("none".to_owned(), None)];
    for status in Status::ALL {
        for (word, lifetime) in lifetimes {
            let new = task(HOLDER, "same").key_with(key(), lifetime, OnConflict::Attach);
            let mut holder = submit::create(&new, None, None, &moment(at(100))).unwrap();
            holder.status = status;
            holders.push((format!("{status}/{word}"), Some(holder)));
        }
    }
    holders
}

fn decide(new: &NewTask, same_id: Option<&Task>, holder: Option<&Task>) -> Result<Submission> {
    submit::submit(new, same_id, holder, at(NOW))
}

/// The outcome that the table means.
fn expected(word: &str, holder: Option<&Task>) -> Result<Submission> {
    let status = holder.map(|holder| holder.status);
    match (word, status) {
        ("Create", _) => Ok(Submission::Create),
        ("Existing", _) => Ok(Submission::Existing(HOLDER, SubmitOutcome::Existing)),
        ("Other", _) => {
            let outcome = SubmitOutcome::ExistingOtherPayload;
            Ok(Submission::Existing(HOLDER, outcome))
        }
        ("Finished", Some(status)) => {
            let outcome = SubmitOutcome::ExistingFinished(status);
            Ok(Submission::Existing(HOLDER, outcome))
        }
        ("Replace", _) => Ok(Submission::Replace),
        ("Succeed", _) => Ok(Submission::Succeed),
        ("Taken", Some(status)) => Err(Conflict::KeyTaken {
            key: key(),
            holder: HOLDER,
            status,
        }
        .into()),
        other => panic!("the table says {other:?}"),
    }
}

#[test]
fn the_table_has_every_holder_with_every_request_exactly_once() {
    let (holders, requests) = (holders(), requests());
    let rows: Vec<&str> = holders.iter().map(|(name, _)| name.as_str()).collect();
    let columns: Vec<&str> = requests.iter().map(|(name, _)| name.as_str()).collect();
    assert_whole(TABLE, &rows, &columns);
}

#[test]
fn a_submit_onto_a_key_leads_to_what_the_table_says() {
    let (holders, requests) = (holders(), requests());
    for (row, column, word) in cells(TABLE) {
        let (_, holder) = holders.iter().find(|(name, _)| name == row).unwrap();
        let (_, new) = requests.iter().find(|(name, _)| name == column).unwrap();
        assert_eq!(
            decide(new, None, holder.as_ref()),
            expected(word, holder.as_ref()),
            "{column} onto {row}"
        );
    }
}

#[test]
fn the_same_id_again_is_the_same_submission_whatever_holds_the_key() {
    for (_, new) in requests() {
        let mut same_id = submit::create(&new, None, None, &moment(at(500))).unwrap();
        for status in Status::ALL {
            same_id.status = status;
            for (row, holder) in holders() {
                let found = decide(&new, Some(&same_id), holder.as_ref());
                assert_eq!(found, Ok(Submission::Repeated), "{status} with {row}");
            }
        }
    }
}

#[test]
fn an_id_of_another_task_is_taken_whatever_holds_the_key() {
    let differences: [fn(&mut TaskSpec); 5] = [
        |spec| spec.lane.queue = name("other"),
        |spec| spec.lane.kind = name("other"),
        |spec| spec.fingerprint = Fingerprint::of(b"third"),
        |spec| spec.key = None,
        |spec| {
            spec.key = Some((
                IdempotencyKey::new("order-8").unwrap(),
                KeyLifetime::Forever,
            ))
        },
    ];
    for (_, new) in requests() {
        for differ in differences {
            let mut same_id = submit::create(&new, None, None, &moment(at(500))).unwrap();
            differ(Arc::make_mut(&mut same_id.spec));
            for (row, holder) in holders() {
                let taken = Error::from(Conflict::IdTaken { task: NEW });
                let found = decide(&new, Some(&same_id), holder.as_ref());
                assert_eq!(found, Err(taken), "with {row}");
            }
        }
    }
}

#[test]
fn what_may_have_changed_since_does_not_make_it_another_submission() {
    let new = task(NEW, "same").key(key());
    let created = submit::create(&new, None, None, &moment(at(500))).unwrap();
    let again = NewTask {
        due: Due::At(at(3)),
        priority: Priority::HIGHEST,
        key: Some(KeyRequest {
            key: key(),
            lifetime: KeyLifetime::WhileActive,
            on_conflict: OnConflict::Reject,
        }),
        ..new
    };
    assert_eq!(
        decide(&again, Some(&created), None),
        Ok(Submission::Repeated)
    );
}

#[test]
fn a_submit_without_a_key_creates_whatever_else_there_is() {
    for (row, holder) in holders() {
        let found = decide(&task(NEW, "same"), None, holder.as_ref());
        assert_eq!(found, Ok(Submission::Create), "with {row}");
    }
}

#[test]
fn a_key_stands_as_long_as_its_lifetime_says() {
    for (row, holder) in holders() {
        let Some(holder) = holder else { continue };
        let (status, lifetime) = row.split_once('/').unwrap();
        let active = ["scheduled", "pending", "claimed"].contains(&status);
        let stands = active || ["running", "forever"].contains(&lifetime);
        assert_eq!(submit::key_stands(&holder, at(NOW)), stands, "{row}");
    }
    let without = submit::create(&task(NEW, "same"), None, None, &moment(at(NOW))).unwrap();
    assert!(!submit::key_stands(&without, at(NOW)));
}

fn everything() -> NewTask {
    NewTask {
        priority: Priority::HIGHEST,
        key: Some(KeyRequest {
            key: key(),
            lifetime: KeyLifetime::WhileActive,
            on_conflict: OnConflict::Reject,
        }),
        group: Some("g".try_into().unwrap()),
        owner: Some(name("owner")),
        labels: [(name("colour"), name("red"))].into(),
        retry: RetryPolicy::never(),
        attempt_timeout: Some(secs(9)),
        first_stage: Some(name("reading")),
        on_failure: Some(Box::new(task(TaskId::from_u128(5), "alarm"))),
        trace: Some("00-trace".into()),
        lifecycle: Some(Lifecycle::row(["reading", "writing"]).unwrap()),
        ..task(NEW, "same")
    }
}

#[test]
fn a_new_task_is_what_was_submitted_and_nothing_more() {
    let new = everything();
    let m = moment(at(NOW));
    let born = Some(Revision::new(33));
    let spec = TaskSpec {
        id: NEW,
        lane: new.lane.clone(),
        payload: "same".into(),
        fingerprint: Fingerprint::of(b"same"),
        key: Some((key(), KeyLifetime::WhileActive)),
        group: new.group.clone(),
        group_born: born,
        owner: new.owner.clone(),
        labels: new.labels.clone(),
        retry: new.retry.clone(),
        attempt_timeout: new.attempt_timeout,
        first_stage: new.first_stage.clone(),
        on_failure: new.on_failure.clone(),
        trace: new.trace.clone(),
        created_at: at(NOW),
        born: m.revision,
        lifecycle: new.lifecycle.clone(),
    };
    let state = TaskState {
        status: Status::Pending,
        priority: Priority::HIGHEST,
        fence: Fence::ZERO,
        attempts: 0,
        failures: 0,
        defeats: 0,
        redrives: 0,
        runnable_at: at(NOW),
        lease: None,
        cancel: None,
        settled: None,
        waiting: None,
        successor: None,
        stage: None,
        progress: None,
        checkpoint: None,
        attributes: Default::default(),
        errors: Vec::new(),
        result: None,
        reason: None,
        started_at: None,
        claimed_at: None,
        finished_at: None,
        modified_at: at(NOW),
        revision: m.revision,
    };
    let task = Task {
        spec: Arc::new(spec),
        state,
    };
    assert_eq!(submit::create(&new, None, born, &m), Ok(task));
}

#[test]
fn a_new_task_is_runnable_when_it_is_due() {
    for (due, status, runnable_at) in [
        (Due::Now, Status::Pending, NOW),
        (Due::After(secs(0)), Status::Pending, NOW),
        (Due::After(secs(5)), Status::Scheduled, NOW + 5),
        (Due::At(at(NOW + 5)), Status::Scheduled, NOW + 5),
        (Due::At(at(NOW)), Status::Pending, NOW),
        (Due::At(at(NOW - 5)), Status::Pending, NOW),
    ] {
        let new = NewTask {
            due,
            ..everything()
        };
        let free = submit::create(&new, None, None, &moment(at(NOW))).unwrap();
        assert_eq!(
            (free.status, free.runnable_at),
            (status, at(runnable_at)),
            "{due:?}"
        );
        let behind = submit::create(&new, Some(HOLDER), None, &moment(at(NOW))).unwrap();
        let state = TaskState {
            status: Status::Scheduled,
            runnable_at: Timestamp::MAX,
            waiting: Some(Waiting {
                on: HOLDER,
                then_at: at(runnable_at),
            }),
            ..free.state
        };
        assert_eq!(behind.spec, free.spec, "{due:?}");
        assert_eq!(behind.state, state, "{due:?}");
    }
}

#[test]
fn a_delay_past_the_year_9999_is_refused() {
    let new = task(NEW, "same").after(secs(1));
    let refused = submit::create(&new, None, None, &moment(Timestamp::MAX)).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(i) if i.field == "due"),
        "{refused:?}"
    );
}
