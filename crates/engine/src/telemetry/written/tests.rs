//! Every settlement with every status it could come to.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::ids::Revision;
use plimsoll_core::store::{Cancel, Expire, FailRetry, Settle, Submitted};
use plimsoll_core::task::{Holder, NewTask, WorkerId};
use plimsoll_core::{Fence, Ids};

use super::*;

fn ids() -> Ids {
    Ids::seeded(1, Arc::new(ManualClock::new()))
}

fn endings() -> Vec<Ending> {
    let reason = || None;
    vec![
        Ending::Complete { result: None },
        Ending::Fail {
            error: "no".into(),
            retry: FailRetry::Policy,
            jitter: ids().jitter(),
        },
        Ending::Snooze {
            delay: Duration::ZERO,
        },
        Ending::Release { reason: reason() },
        Ending::Cancel { reason: reason() },
    ]
}

fn ended(status: Status, expired: bool) -> Option<Fact<'static>> {
    let end = match status {
        Status::Completed => End::Completed,
        Status::Failed => End::Failed,
        Status::Cancelled => End::Cancelled,
        Status::Scheduled | Status::Pending | Status::Claimed => return None,
    };
    Some(Fact::Ended { end, expired })
}

#[test]
fn a_settle_ends_a_task_retries_it_or_is_nothing_to_count() {
    let ids = ids();
    let holder = Holder {
        task: ids.task(),
        worker: WorkerId {
            name: Name::new("w").unwrap(),
            incarnation: ids.incarnation(),
        },
        fence: Fence::new(1),
    };
    for how in endings() {
        let failed = matches!(how, Ending::Fail { .. });
        let holder = holder.clone();
        let write = Write::Settle(Settle { holder, how });
        for status in Status::ALL {
            let settled = Outcome::Settled {
                status,
                runnable_at: None,
            };
            let retried = failed.then_some(Fact::Retried { expired: false });
            let expected = ended(status, false).or(retried);
            assert_eq!(fact(&write, &settled), expected, "{write:?} {status}");
            assert_eq!(fact(&write, &Outcome::Already { status }), None);
        }
    }
}

#[test]
fn an_expiry_ends_a_task_or_retries_it_and_a_cancel_ends_it_or_only_asks() {
    let ids = ids();
    let task = ids.task();
    let expire = Write::Expire(Expire {
        task,
        fence: Fence::new(1),
        jitter: ids.jitter(),
    });
    let cancel = Write::Cancel(Cancel { task, reason: None });
    for status in Status::ALL {
        let changed = Outcome::Changed {
            status,
            revision: Revision::ZERO,
        };
        let retried = Some(Fact::Retried { expired: true });
        assert_eq!(fact(&expire, &changed), ended(status, true).or(retried));
        assert_eq!(fact(&cancel, &changed), ended(status, false));
        assert_eq!(fact(&expire, &Outcome::Already { status }), None);
    }
}

#[test]
fn only_a_new_task_is_created() {
    let id = ids().task();
    let lane = plimsoll_core::task::Lane::new("q", "k").unwrap();
    let task = NewTask::new(id, lane, "").owner(Name::new("ada").unwrap());
    let write = Write::Submit(Box::new(task));
    let owner = Name::new("ada").unwrap();
    let submitted = |outcome| Outcome::Submitted(Submitted { id, outcome });
    let created = fact(&write, &submitted(SubmitOutcome::Created));
    assert_eq!(created, Some(Fact::Created(Some(&owner))));
    for outcome in [
        SubmitOutcome::Existing,
        SubmitOutcome::ExistingOtherPayload,
        SubmitOutcome::ExistingFinished(Status::Failed),
    ] {
        assert_eq!(fact(&write, &submitted(outcome)), None);
    }
}
