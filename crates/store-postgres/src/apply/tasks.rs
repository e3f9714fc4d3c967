//! Rows of tasks: what never changes, what has not ended, what has.

use std::sync::Arc;

use plimsoll_core::task::Task;
use tokio_postgres::types::Type;

use crate::codec::{At, Blob, Id, Json, lane_number, signed, status_code};
use crate::error::Answer;
use crate::session::{Call, Param, Sql, params};
use crate::task_row::{SpecMore, StateMore, settler};

static INSERT_SPECS: Sql = Sql {
    text: "INSERT INTO plimsoll.specs (ns, id, lane, born, created_at, group_born, attempt_timeout_us, \
           max_attempts, queue, kind, payload, key, \"group\", owner, labels, trace, more) \
           SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    types: &[
        Type::INT4,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

pub(crate) static DELETE_SPECS: Sql = Sql {
    text: "DELETE FROM plimsoll.specs WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::UUID_ARRAY],
};

pub(super) static INSERT_LIVE: Sql = Sql {
    text: "INSERT INTO plimsoll.tasks (ns, lane, id, status, priority, runnable_at, modified_at, revision, \
           fence, attempts, failures, started_at, claimed_at, until, deadline, incarnation, worker, stage, \
           progress, more) \
           SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
           $17, $18, $19, $20)",
    types: &[
        Type::INT4,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// A lease that goes on ends when its last renewal said, of which the writer may not have heard: a
/// renewal moves no revision, and nobody else changes when a lease ends.
pub(crate) static UPDATE_LIVE: Sql = Sql {
    text: "WITH changed AS (UPDATE plimsoll.tasks t SET status = u.status, priority = u.priority, \
           runnable_at = u.runnable_at, modified_at = u.modified_at, revision = u.revision, \
           fence = u.fence, attempts = u.attempts, failures = u.failures, started_at = u.started_at, \
           claimed_at = u.claimed_at, deadline = u.deadline, \
           until = CASE WHEN t.status = 2 AND u.status = 2 AND t.fence = u.fence \
           THEN t.until ELSE u.until END, \
           incarnation = u.incarnation, worker = u.worker, stage = u.stage, progress = u.progress, \
           more = u.more \
           FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
           $19, $20, $21) u(lane, id, status, priority, runnable_at, modified_at, revision, fence, \
           attempts, failures, started_at, claimed_at, until, deadline, incarnation, worker, stage, \
           progress, more, before) \
           WHERE t.lane = u.lane AND t.id = u.id AND t.revision = u.before AND t.ns = $1 RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($2))",
    types: &[
        Type::INT4,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::BYTEA_ARRAY,
        Type::INT8_ARRAY,
    ],
};

pub(crate) static DELETE_LIVE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks t USING unnest($1, $2, $3) u(lane, id, before) \
           WHERE t.lane = u.lane AND t.id = u.id AND t.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY],
};

/// Tasks that were locked when they were found there.
pub(super) static DELETE_PLACES: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks WHERE ctid = ANY($1) RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::TID_ARRAY],
};

pub(crate) static RENEW: Sql = Sql {
    text: "UPDATE plimsoll.tasks t SET until = u.until FROM unnest($1, $2, $3) u(lane, id, until) \
           WHERE t.lane = u.lane AND t.id = u.id",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

pub(super) static INSERT_DONE: Sql = Sql {
    text: "INSERT INTO plimsoll.tasks_done (ns, lane, id, status, priority, runnable_at, modified_at, \
           revision, fence, attempts, failures, started_at, claimed_at, finished_at, removable_from, \
           stage, progress, result, reason, settled_by, settled_worker, more) \
           SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
           $17, $18, $19, $20, $21, $22)",
    types: &[
        Type::INT4,
        Type::INT8_ARRAY,
        Type::UUID_ARRAY,
        Type::INT2_ARRAY,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::BYTEA_ARRAY,
        Type::TEXT_ARRAY,
        Type::UUID_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

pub(crate) static DELETE_DONE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks_done d USING unnest($1, $2, $3) u(lane, id, before) \
           WHERE d.lane = u.lane AND d.id = u.id AND d.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY],
};

/// Rows of tasks that must still have the revision they were read with.
#[derive(Debug, Default)]
pub(super) struct Places {
    lanes: Vec<i64>,
    ids: Vec<Id>,
    before: Vec<i64>,
}

impl Places {
    pub(super) fn push(&mut self, ns: i32, task: &Task) {
        self.lanes.push(lane_number(ns, &task.spec.lane));
        self.ids.push(task.id().into());
        self.before.push(signed(task.revision.get()));
    }

    pub(super) fn call(self, sql: &'static Sql) -> Option<Call> {
        let Self { lanes, ids, before } = self;
        (!ids.is_empty()).then(|| Call::new(sql, params![lanes, ids, before]))
    }
}

/// What tasks have in common, whether they have ended or not.
#[derive(Debug, Default)]
struct Common {
    lanes: Vec<i64>,
    ids: Vec<Id>,
    statuses: Vec<i16>,
    priorities: Vec<i16>,
    runnable: Vec<At>,
    modified: Vec<At>,
    revisions: Vec<i64>,
    fences: Vec<i64>,
    attempts: Vec<i32>,
    failures: Vec<i32>,
    started: Vec<Option<At>>,
    claimed: Vec<Option<At>>,
}

impl Common {
    fn push(&mut self, ns: i32, task: &Task) {
        let counter = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        self.lanes.push(lane_number(ns, &task.spec.lane));
        self.ids.push(task.id().into());
        self.statuses.push(status_code(task.status));
        self.priorities.push(task.priority.get().into());
        self.runnable.push(At(task.runnable_at));
        self.modified.push(At(task.modified_at));
        self.revisions.push(signed(task.revision.get()));
        self.fences.push(signed(task.fence.get()));
        self.attempts.push(counter(task.attempts));
        self.failures.push(counter(task.failures));
        self.started.push(task.started_at.map(At));
        self.claimed.push(task.claimed_at.map(At));
    }

    fn params(self, ns: i32) -> Vec<Param> {
        params![
            ns,
            self.lanes,
            self.ids,
            self.statuses,
            self.priorities,
            self.runnable,
            self.modified,
            self.revisions,
            self.fences,
            self.attempts,
            self.failures,
            self.started,
            self.claimed
        ]
    }
}

/// Tasks that have not ended.
#[derive(Debug, Default)]
pub(super) struct Live {
    common: Common,
    until: Vec<Option<At>>,
    deadlines: Vec<Option<At>>,
    incarnations: Vec<Option<Id>>,
    workers: Vec<Option<String>>,
    stages: Vec<Option<String>>,
    progress: Vec<Option<Json>>,
    more: Vec<Option<Vec<u8>>>,
}

impl Live {
    pub(super) fn is_empty(&self) -> bool {
        self.common.ids.is_empty()
    }

    pub(super) fn push(&mut self, ns: i32, task: &Task) -> Answer<()> {
        let lease = task.lease.as_ref();
        self.common.push(ns, task);
        self.until.push(lease.map(|lease| At(lease.until)));
        self.deadlines
            .push(lease.and_then(|lease| lease.deadline).map(At));
        self.incarnations
            .push(lease.map(|lease| Id(lease.worker.incarnation.as_u128())));
        self.workers
            .push(lease.map(|lease| lease.worker.name.to_string()));
        self.stages
            .push(task.stage.as_ref().map(ToString::to_string));
        self.progress
            .push(task.progress.as_ref().map(Json::of).transpose()?);
        self.more.push(StateMore::stored(task)?);
        Ok(())
    }

    pub(super) fn params(self, ns: i32) -> Vec<Param> {
        let mut params = self.common.params(ns);
        params.extend(params![
            self.until,
            self.deadlines,
            self.incarnations,
            self.workers,
            self.stages,
            self.progress,
            self.more
        ]);
        params
    }
}

/// Tasks that have ended.
#[derive(Debug, Default)]
pub(super) struct Done {
    common: Common,
    finished: Vec<At>,
    removable: Vec<At>,
    stages: Vec<Option<String>>,
    progress: Vec<Option<Json>>,
    results: Vec<Option<Blob>>,
    reasons: Vec<Option<String>>,
    settled_by: Vec<Option<Id>>,
    settled_workers: Vec<Option<String>>,
    more: Vec<Option<Vec<u8>>>,
}

impl Done {
    pub(super) fn is_empty(&self) -> bool {
        self.common.ids.is_empty()
    }

    pub(super) fn push(&mut self, ns: i32, task: &Task) -> Answer<()> {
        self.common.push(ns, task);
        self.finished
            .push(At(task.finished_at.unwrap_or(task.modified_at)));
        self.removable
            .push(At(task.removable_from().unwrap_or(task.modified_at)));
        self.stages
            .push(task.stage.as_ref().map(ToString::to_string));
        self.progress
            .push(task.progress.as_ref().map(Json::of).transpose()?);
        self.results.push(task.result.clone().map(Blob));
        self.reasons.push(task.reason.clone());
        let settler = settler(task);
        self.settled_by
            .push(settler.as_ref().map(|by| Id(by.incarnation.as_u128())));
        self.settled_workers
            .push(settler.map(|by| by.name.to_string()));
        self.more.push(StateMore::stored(task)?);
        Ok(())
    }

    pub(super) fn params(self, ns: i32) -> Vec<Param> {
        let mut params = self.common.params(ns);
        params.extend(params![
            self.finished,
            self.removable,
            self.stages,
            self.progress,
            self.results,
            self.reasons,
            self.settled_by,
            self.settled_workers,
            self.more
        ]);
        params
    }
}

pub(super) fn insert_specs(ns: i32, tasks: &[Arc<Task>]) -> Answer<Call> {
    let specs = || tasks.iter().map(|task| &task.spec);
    let ids: Vec<_> = specs().map(|spec| Id::from(spec.id)).collect();
    let lanes: Vec<_> = specs().map(|spec| lane_number(ns, &spec.lane)).collect();
    let born: Vec<_> = specs().map(|spec| signed(spec.born.get())).collect();
    let created: Vec<_> = specs().map(|spec| At(spec.created_at)).collect();
    let group_born: Vec<_> = specs()
        .map(|spec| spec.group_born.map(|born| signed(born.get())))
        .collect();
    let timeouts: Vec<_> = specs()
        .map(|spec| {
            spec.attempt_timeout
                .map(|limit| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX))
        })
        .collect();
    let attempts: Vec<_> = specs()
        .map(|spec| i32::try_from(spec.retry.max_attempts).unwrap_or(i32::MAX))
        .collect();
    let queues: Vec<_> = specs().map(|spec| spec.lane.queue.to_string()).collect();
    let kinds: Vec<_> = specs().map(|spec| spec.lane.kind.to_string()).collect();
    let payloads: Vec<_> = specs().map(|spec| Blob(spec.payload.clone())).collect();
    let keys: Vec<_> = specs()
        .map(|spec| spec.key.as_ref().map(|(key, _)| key.to_string()))
        .collect();
    let groups: Vec<_> = specs()
        .map(|spec| spec.group.as_ref().map(ToString::to_string))
        .collect();
    let owners: Vec<_> = specs()
        .map(|spec| spec.owner.as_ref().map(ToString::to_string))
        .collect();
    let labels = specs()
        .map(|spec| {
            (!spec.labels.is_empty())
                .then(|| Json::of(&spec.labels))
                .transpose()
        })
        .collect::<Answer<Vec<_>>>()?;
    let traces: Vec<_> = specs().map(|spec| spec.trace.clone()).collect();
    let more = specs()
        .map(|spec| SpecMore::stored(spec))
        .collect::<Answer<Vec<_>>>()?;
    Ok(Call::new(
        &INSERT_SPECS,
        params![
            ns, ids, lanes, born, created, group_born, timeouts, attempts, queues, kinds, payloads,
            keys, groups, owners, labels, traces, more
        ],
    ))
}
