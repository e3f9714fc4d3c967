//! Claims as rows: the leases of tasks that have no row of their own.
//!
//! Such a task is [plain](is_plain): there is nothing to say about it but that its claim took it.
//! It leaves its claim when a row for it is written. The process that holds it knows it, locks the
//! claim so that others can too, and checks that nobody took the task out. All others lock the
//! claim for themselves, look again, and note what they take out.
//!
//! Claims are locked before rows of tasks, where they are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::store::Claim;
use plimsoll_core::task::{Lease, Status, Task, TaskState};
use plimsoll_core::{Fence, Revision, TaskId, Timestamp};
use tokio_postgres::types::Type;

use crate::call::{Call, Param, Part, Sql, params, part};
use crate::codec::{At, Id, same, signed};
use crate::held::Taken;
use crate::statement::sql_file;

static REMEMBER: Part = part!(
    "INSERT INTO plimsoll.claims (ns, request, at, revision, until, incarnation, worker, tasks, \
           fences, priorities, runnable) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    &[
        Type::INT4,
        Type::UUID,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::UUID,
        Type::TEXT,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ]
);

/// Namespace, requests and when their leases must end, if that matters; tasks.
const ASSUMED: &[Type] = &[
    Type::INT4,
    Type::UUID_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
    Type::UUID_ARRAY,
];

/// Locks claims that are as they are assumed to be, so that others can too.
pub(crate) static SHARE: Part = part!(
    concat!(sql_file!("claims/lock"), "FOR SHARE OF c"),
    expects "cardinality($2)",
    ASSUMED
);
/// Likewise, so that nobody else can.
pub(crate) static LOCK: Part = part!(
    concat!(sql_file!("claims/lock"), "FOR UPDATE OF c"),
    expects "cardinality($2)",
    ASSUMED
);
/// Closes claims that are as they are assumed to be.
pub(crate) static CLOSE: Part = part!(
    sql_file!("claims/close"),
    expects "cardinality($2)",
    ASSUMED
);
/// Closes claims of which nothing is left. It waits for nobody: whoever looks at one of them may
/// have it open for a while longer.
pub(crate) static CLOSE_SPENT: Sql = Sql {
    text: "UPDATE plimsoll.claims SET until = NULL WHERE ctid = ANY(ARRAY(\
           SELECT ctid FROM plimsoll.claims WHERE ns = $1 AND request = ANY($2) \
           AND until IS NOT NULL FOR UPDATE SKIP LOCKED))",
    types: &[Type::INT4, Type::UUID_ARRAY],
};
/// Prolongs leases of claims that are locked, and were not closed with their last task.
pub(crate) static PROLONG: Sql = Sql {
    text: "UPDATE plimsoll.claims SET until = $3 \
           WHERE ns = $1 AND request = ANY($2) AND until IS NOT NULL",
    types: &[Type::INT4, Type::UUID_ARRAY, Type::TIMESTAMPTZ],
};
/// Notes which tasks were taken out of claims that are locked, and closes those of which nothing is left.
pub(crate) static TAKE_OUT: Sql = Sql {
    text: sql_file!("claims/take_out"),
    types: &[Type::INT4, Type::UUID_ARRAY, Type::UUID_ARRAY],
};
/// Likewise, of tasks that are removed, so that others may have their ids. `$3` says when they were
/// claimed for the first time: other claims cannot have them.
pub(crate) static TAKE_OUT_REMOVED: Sql = Sql {
    text: "UPDATE plimsoll.claims c \
           SET gone = c.gone || ARRAY(SELECT unnest(c.tasks) INTERSECT SELECT unnest($2)) \
           WHERE c.ns = $1 AND c.until IS NOT NULL AND c.at = ANY($3) AND c.tasks && $2",
    types: &[Type::INT4, Type::UUID_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

/// Whether all that can be said of a claimed task is in its spec and its claim.
pub(crate) fn is_plain(task: &Task) -> bool {
    // Every field is named, so that a new one is not forgotten.
    let TaskState {
        status: Status::Claimed,
        priority: _,
        fence,
        attempts: 1,
        failures: 0,
        defeats: 0,
        redrives: 0,
        runnable_at: _,
        lease:
            Some(Lease {
                worker: _,
                until: _,
                deadline: None,
            }),
        cancel: None,
        settled: None,
        waiting: None,
        successor: None,
        stage: None,
        progress: None,
        checkpoint: None,
        attributes,
        errors,
        result: None,
        reason: None,
        started_at,
        claimed_at,
        finished_at: None,
        modified_at,
        revision: _,
    } = &task.state
    else {
        return false;
    };
    *fence == Fence::new(1)
        && attributes.is_empty()
        && errors.is_empty()
        && *started_at == Some(*modified_at)
        && *claimed_at == Some(*modified_at)
}

/// Remembers a claim and what it took, of which the plain ones have no row.
pub(crate) fn remember(
    ns: i32,
    claim: &Claim,
    tasks: &[Task],
    (now, revision): (Timestamp, Revision),
) -> Call {
    let ids: Vec<_> = tasks.iter().map(|task| Id::from(task.id())).collect();
    let first = tasks.iter().all(|task| task.fence == Fence::new(1));
    let fences = tasks.iter().map(|task| signed(task.fence.get()));
    let fences: Option<Vec<i64>> = (!first).then(|| fences.collect());
    let plain = |task: &&Task| is_plain(task);
    let until = tasks.iter().find(plain).and_then(|task| task.lease.clone());
    // What is the same for all is said once.
    let priorities =
        (tasks.iter()).map(|task| is_plain(task).then(|| i16::from(task.priority.get())));
    let runnable = (tasks.iter()).map(|task| is_plain(task).then_some(At(task.runnable_at)));
    Call::part(
        &REMEMBER,
        params![
            ns,
            Id(claim.request.as_u128()),
            At(now),
            signed(revision.get()),
            until.map(|lease| At(lease.until)),
            Id(claim.worker.incarnation.as_u128()),
            claim.worker.name.to_string(),
            ids,
            fences,
            same(priorities),
            same(runnable)
        ],
    )
}

/// Claims as a writer assumes they are, and what it wants of them.
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    /// Those of which tasks are written, and when their leases must end: what stays claimed takes
    /// that with it.
    written: BTreeMap<Id, Option<Timestamp>>,
    /// Those that are prolonged, with all tasks that they hold.
    pub(crate) prolonged: BTreeMap<Id, Vec<Arc<Task>>>,
    tasks: Vec<Id>,
}

impl Assumed {
    /// For tasks of which those that are `amended` stay claimed.
    pub(crate) fn new(
        taken: &Taken<'_>,
        amended: &BTreeSet<TaskId>,
        prolonged: BTreeMap<Id, Vec<Arc<Task>>>,
    ) -> Self {
        let mut assumed = Self::default();
        for (task, claim) in taken.claims() {
            let until = assumed.written.entry(claim).or_default();
            if amended.contains(&task.id()) {
                *until = task.lease.as_ref().map(|lease| lease.until);
            }
            assumed.tasks.push(task.id().into());
        }
        let renewed = prolonged.values().flatten();
        assumed
            .tasks
            .extend(renewed.map(|task| Id::from(task.id())));
        assumed.prolonged = prolonged;
        assumed
    }

    /// Whether nothing is wanted of any.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.prolonged.is_empty()
    }

    /// Locks the claims but for these, and checks them.
    pub(crate) fn lock(&self, ns: i32, but: &[Id]) -> Option<Call> {
        let mut claims = self.written.clone();
        claims.retain(|claim, _| !but.contains(claim));
        for claim in self.prolonged.keys() {
            claims.entry(*claim).or_default();
        }
        // Whoever prolongs does not lock twice: two who do might wait for each other.
        let lock = match self.prolonged.is_empty() {
            true => &SHARE,
            false => &LOCK,
        };
        self.call(lock, ns, claims)
    }

    /// Checks these claims and closes them.
    pub(crate) fn close(&self, ns: i32, claims: &[Id]) -> Option<Call> {
        let untils = claims.iter().map(|claim| (*claim, self.until(claim)));
        self.call(&CLOSE, ns, untils.collect())
    }

    fn until(&self, claim: &Id) -> Option<Timestamp> {
        self.written.get(claim).copied().flatten()
    }

    fn call(
        &self,
        part: &'static Part,
        ns: i32,
        claims: BTreeMap<Id, Option<Timestamp>>,
    ) -> Option<Call> {
        let (requests, untils): (Vec<Id>, Vec<_>) = claims.into_iter().unzip();
        let untils: Vec<Option<At>> = untils.into_iter().map(|until| until.map(At)).collect();
        let params: Vec<Param> = params![ns, requests.clone(), untils, self.tasks.clone()];
        (!requests.is_empty()).then(|| Call::part(part, params))
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
pub(crate) mod tests {
    use std::time::Duration;

    use plimsoll_core::decide::task::{Verdict, claim};
    use plimsoll_core::decide::{Moment, Rows, batch};
    use plimsoll_core::record::fields;
    use plimsoll_core::store::{Commit, Write};
    use plimsoll_core::task::{
        AttemptError, CancelRequest, FailureKind, Lane, NewTask, Priority, Progress, Settled, Verb,
        Waiting, WorkerId,
    };
    use plimsoll_core::{Incarnation, Limits, Name};

    use super::*;

    pub(crate) const NOW: Timestamp = Timestamp::MIN;

    fn worker(n: u128) -> WorkerId {
        WorkerId {
            name: Name::new("worker").expect("a name"),
            incarnation: Incarnation::from_u128(n),
        }
    }

    /// A task that is claimed for the first time.
    pub(crate) fn claimed(new: NewTask) -> Task {
        let limits = Limits::default();
        let moment = |revision| Moment {
            now: NOW,
            revision: Revision::new(revision),
            limits: &limits,
        };
        let (id, mut rows) = (new.id, Rows::default());
        rows.tasks.load(id, None);
        let submit = [Commit::of(Write::Submit(Box::new(new)))];
        batch(&submit, &mut rows, moment(1)).expect("all rows");
        let task = rows.tasks.get(&id).flatten().expect("a task");
        match claim(task, &worker(1), Duration::from_secs(30), &moment(2)) {
            Ok(Verdict::Changed(task, _)) => *task,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn new() -> NewTask {
        let lane = Lane::new("queue", "kind").expect("a lane");
        NewTask::new(TaskId::from_u128(7), lane, "x")
    }

    #[test]
    fn the_first_claim_of_a_task_is_all_there_is_of_it() {
        let kept: [fn(&mut TaskState); 5] = [
            |_| {},
            |task| task.priority = Priority::new(9).expect("a priority"),
            |task| task.runnable_at = NOW.saturating_plus(Duration::from_secs(1)),
            |task| task.revision = Revision::new(99),
            |task| task.lease.as_mut().expect("a lease").worker = worker(2),
        ];
        for change in kept {
            let mut task = claimed(new());
            change(&mut task.state);
            assert!(is_plain(&task), "{task:?}");
        }
    }

    #[test]
    fn a_task_of_which_there_is_more_to_say_needs_a_row() {
        let told: [fn(&mut TaskState); 25] = [
            |task| task.status = Status::Pending,
            |task| task.fence = task.fence.next(),
            |task| task.fence = Fence::ZERO,
            |task| task.attempts = 2,
            |task| task.failures = 1,
            |task| task.defeats = 1,
            |task| task.redrives = 1,
            |task| task.lease = None,
            |task| task.lease.as_mut().expect("a lease").deadline = Some(NOW),
            |task| {
                task.cancel = Some(CancelRequest {
                    at: NOW,
                    reason: None,
                })
            },
            |task| task.settled = Some(settled()),
            |task| task.waiting = Some(waiting()),
            |task| task.successor = Some(TaskId::from_u128(8)),
            |task| task.stage = Some(Name::new("stage").expect("a name")),
            |task| task.progress = Some(Progress::default()),
            |task| task.checkpoint = Some("here".into()),
            |task| task.attributes = fields([("a", "b")]).expect("fields"),
            |task| task.errors.push(error()),
            |task| task.result = Some("result".into()),
            |task| task.reason = Some("reason".into()),
            |task| task.started_at = None,
            |task| task.claimed_at = Some(NOW.saturating_plus(Duration::from_secs(1))),
            |task| task.started_at = Some(NOW.saturating_plus(Duration::from_secs(1))),
            |task| task.finished_at = Some(NOW),
            |task| task.modified_at = NOW.saturating_plus(Duration::from_secs(1)),
        ];
        for (place, change) in told.into_iter().enumerate() {
            let mut task = claimed(new());
            change(&mut task.state);
            assert!(!is_plain(&task), "{place}: {task:?}");
        }
    }

    #[test]
    fn what_a_claim_adds_needs_a_row() {
        let timed = NewTask {
            attempt_timeout: Some(Duration::from_secs(5)),
            ..new()
        };
        let staged = NewTask {
            first_stage: Some(Name::new("stage").expect("a name")),
            ..new()
        };
        assert!(!is_plain(&claimed(timed)));
        assert!(!is_plain(&claimed(staged)));
    }

    fn settled() -> Settled {
        Settled {
            fence: Fence::new(1),
            by: Incarnation::from_u128(1),
            verb: Verb::Complete,
            status: Status::Completed,
            runnable_at: None,
            worker: None,
        }
    }

    fn waiting() -> Waiting {
        Waiting {
            on: TaskId::from_u128(8),
            then_at: NOW,
        }
    }

    fn error() -> AttemptError {
        AttemptError {
            fence: Fence::new(1),
            worker: worker(1),
            at: NOW,
            kind: FailureKind::Error,
            message: String::new(),
            stage: None,
        }
    }
}
