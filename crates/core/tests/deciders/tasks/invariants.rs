//! Each invariant is missed by exactly the tasks that break it.

use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::limits::ERRORS_KEPT;
use plimsoll_core::task::Violation;

use super::*;

type Edit = fn(&mut Task);

fn staged(mut task: Task) -> Task {
    let mut spec = task.spec.as_ref().clone();
    let row = ["reading", "writing"];
    spec.lifecycle = Some(Lifecycle::row(row).unwrap());
    task.spec = Arc::new(spec);
    task
}

#[test]
fn every_status_has_tasks_without_a_violation() {
    for State { name, task, .. } in states() {
        assert_eq!(task.violations(), [], "{name}");
        assert_eq!(task.violations_since(&task), [], "{name}");
    }
}

#[test]
fn every_violation_is_found() {
    let broken: &[(Status, Edit, &[Violation])] = &[
        (Status::Claimed, |t| t.lease = None, &[Violation::Lease]),
        (
            Status::Pending,
            |t| t.lease = in_status(Status::Claimed).lease.clone(),
            &[Violation::Lease],
        ),
        (
            Status::Claimed,
            |t| t.lease.as_mut().unwrap().deadline = Some(at(NOW)),
            &[Violation::Deadline],
        ),
        (
            Status::Completed,
            |t| t.stage = Some(name("writing")),
            &[Violation::StageUnclaimed],
        ),
        (
            Status::Claimed,
            |t| t.stage = Some(name("dreaming")),
            &[Violation::StageUnknown],
        ),
        (
            Status::Claimed,
            |t| t.stage = None,
            &[Violation::StageUnknown],
        ),
        (
            Status::Failed,
            |t| t.cancel = Some(asked_to_stop()),
            &[Violation::CancelUnclaimed],
        ),
        (
            Status::Pending,
            |t| t.waiting = waiting(at(1)).waiting.clone(),
            &[Violation::Waiting],
        ),
        (
            Status::Cancelled,
            |t| t.finished_at = None,
            &[Violation::Finished],
        ),
        (
            Status::Scheduled,
            |t| t.finished_at = Some(at(NOW)),
            &[Violation::Finished],
        ),
        (
            Status::Failed,
            |t| t.result = Some("done".into()),
            &[Violation::Result],
        ),
        (
            Status::Pending,
            |t| t.reason = Some("because".into()),
            &[Violation::Reason],
        ),
        (
            Status::Completed,
            |t| t.started_at = Some(at(960)),
            &[Violation::Started],
        ),
        (
            Status::Completed,
            |t| t.claimed_at = Some(at(960)),
            &[Violation::Started],
        ),
        (
            Status::Claimed,
            |t| t.started_at = None,
            &[Violation::Started],
        ),
        (
            Status::Claimed,
            |t| {
                t.started_at = None;
                t.claimed_at = None;
            },
            &[Violation::Started],
        ),
        (
            Status::Failed,
            |t| t.failures = CAP + 1,
            &[Violation::Failures],
        ),
        (
            Status::Pending,
            |t| t.failures = CAP,
            &[Violation::Failures],
        ),
        (
            Status::Pending,
            |t| t.fence = Fence::new(1),
            &[Violation::Fence],
        ),
        (
            Status::Pending,
            |t| t.errors = vec![t.errors[0].clone(); ERRORS_KEPT + 1],
            &[Violation::Errors],
        ),
    ];
    for (status, edit, violations) in broken {
        let task = with(staged(in_status(*status)), edit);
        assert_eq!(task.violations(), *violations, "{status}");
    }
}

#[test]
fn everything_that_must_not_happen_is_found() {
    let happened: &[(Status, Edit, &[Violation])] = &[
        (
            Status::Pending,
            |t| {
                let mut spec = t.spec.as_ref().clone();
                spec.id = TaskId::from_u128(99);
                t.spec = Arc::new(spec);
            },
            &[Violation::Identity, Violation::Spec],
        ),
        (
            Status::Failed,
            |t| t.status = Status::Pending,
            &[Violation::Revived],
        ),
        (
            Status::Cancelled,
            |t| t.status = Status::Failed,
            &[Violation::Revived],
        ),
        (
            Status::Completed,
            |t| t.result = Some("another".into()),
            &[Violation::Revived],
        ),
        (Status::Failed, |t| t.errors.clear(), &[Violation::Revived]),
        (
            // A retry that is not forced forgets nothing.
            Status::Failed,
            |t| {
                t.failures = 0;
                t.redrives += 1;
            },
            &[Violation::Forgotten],
        ),
        (
            Status::Completed,
            |t| {
                t.status = Status::Pending;
                t.redrives += 1;
            },
            &[Violation::Uncompleted],
        ),
        (
            Status::Claimed,
            |t| t.fence = Fence::new(1),
            &[Violation::Fell],
        ),
        (
            Status::Claimed,
            |t| t.revision = Revision::new(39),
            &[Violation::Fell],
        ),
        (Status::Claimed, |t| t.attempts -= 1, &[Violation::Fell]),
        (Status::Claimed, |t| t.defeats -= 1, &[Violation::Fell]),
        (Status::Claimed, |t| t.redrives -= 1, &[Violation::Fell]),
        (
            Status::Claimed,
            |t| t.failures -= 1,
            &[Violation::Forgotten],
        ),
        (
            Status::Claimed,
            |t| t.started_at = Some(at(701)),
            &[Violation::Restarted],
        ),
        (
            Status::Claimed,
            |t| t.stage = Some(name("reading")),
            &[Violation::Moved],
        ),
    ];
    for (status, edit, violations) in happened {
        let before = staged(in_status(*status));
        let after = with(before.clone(), edit);
        assert_eq!(after.violations_since(&before), *violations, "{status}");
    }
}

#[test]
fn what_a_retry_and_a_new_claim_do_is_no_violation() {
    let retried: Edit = |t| {
        t.status = Status::Pending;
        t.redrives += 1;
    };
    // One more attempt than the policy allows.
    let forced: Edit = |t| {
        t.status = Status::Pending;
        t.redrives += 1;
        t.failures = CAP - 1;
    };
    let claimed_again: Edit = |t| {
        t.fence = t.fence.next();
        t.stage = Some(name("reading"));
    };
    for (status, edit) in [
        (Status::Failed, retried),
        (Status::Cancelled, retried),
        (Status::Claimed, claimed_again),
    ] {
        let before = staged(in_status(status));
        let after = with(before.clone(), edit);
        assert_eq!(after.violations_since(&before), [], "{status}");
    }
    let before = with(staged(in_status(Status::Failed)), |t| t.failures = CAP);
    let after = with(before.clone(), forced);
    assert_eq!(after.violations_since(&before), [], "forced");
}
