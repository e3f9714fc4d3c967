//! Rows of tasks: of those that have not ended, and of those that have.

use plimsoll_core::Timestamp;
use plimsoll_core::task::Task;
use tokio_postgres::types::Type;

use super::copy::{MANY, Rows, Table, none, table};
use crate::call::{Call, Param, Part, Sql, params, part};
use crate::codec::{
    At, Blob, Id, Json, LaneNumbers, lane_number, rare, same, shared, signed, status_code,
};
use crate::error::Answer;
use crate::statement::sql_file;
use crate::task_row::{StateMore, settler};

/// The types of what tasks have in common, as in [`Common::params`], and of more.
macro_rules! common_types {
    ($($more:ident),* $(,)?) => {
        [
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
            $(Type::$more),*
        ]
    };
}

/// Of a task that has not ended, as in [`Live::params`], and of the revision that it had.
static LIVE: [Type; 21] = common_types![
    TIMESTAMPTZ_ARRAY,
    TIMESTAMPTZ_ARRAY,
    UUID_ARRAY,
    TEXT_ARRAY,
    TEXT_ARRAY,
    JSONB_ARRAY,
    BYTEA_ARRAY,
    INT8_ARRAY,
];

static INSERT_LIVE: Part = part!(
    sql_file!("apply/insert_live"),
    LIVE.split_at(LIVE.len() - 1).0
);

/// Those of one lane that are alike, and have nothing that few have. Each column costs time on both sides, also if it is
/// empty.
static INSERT_USUAL_LIVE: Part = part!(
    "INSERT INTO plimsoll.tasks (ns, lane, id, status, priority, runnable_at, revision) \
           SELECT $1, $2, id, $3, $4, $5, revision FROM unnest($6, $7) u(id, revision)",
    &[
        Type::INT4,
        Type::INT8,
        Type::INT2,
        Type::INT2,
        Type::TIMESTAMPTZ,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
    ]
);

static COPY_LIVE: Table = table!(
    "tasks",
    "ns, lane, id, status, priority, revision, runnable_at" [
        INT4, INT8, UUID, INT2, INT2, INT8, TIMESTAMPTZ
    ],
    "modified_at, fence, attempts, failures, started_at, claimed_at, until, deadline, incarnation, worker, \
     stage, progress, more" [
        TIMESTAMPTZ, INT8, INT4, INT4, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, UUID, TEXT,
        TEXT, JSONB, BYTEA
    ]
);

pub(crate) static UPDATE_LIVE: Sql = Sql {
    text: sql_file!("apply/update_live"),
    types: &LIVE,
};

pub(crate) static DELETE_LIVE: Sql = Sql {
    text: sql_file!("apply/delete_live"),
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY],
};

/// Tasks that were locked when they were found there.
pub(crate) static DELETE_PLACES: Part = part!(
    "DELETE FROM plimsoll.tasks WHERE ctid = ANY($1) RETURNING 1",
    expects "cardinality($1)",
    &[Type::TID_ARRAY]
);

pub(crate) static RENEW: Sql = Sql {
    text: "UPDATE plimsoll.tasks t SET until = u.until FROM unnest($1, $2, $3) u(lane, id, until) \
           WHERE t.lane = u.lane AND t.id = u.id",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

static INSERT_DONE: Part = part!(
    sql_file!("apply/insert_done"),
    &common_types![
        TIMESTAMPTZ_ARRAY,
        TIMESTAMPTZ_ARRAY,
        TEXT_ARRAY,
        JSONB_ARRAY,
        BYTEA_ARRAY,
        TEXT_ARRAY,
        UUID_ARRAY,
        TEXT_ARRAY,
        BYTEA_ARRAY,
        UUID,
        TEXT,
    ]
);

/// As [`INSERT_USUAL_LIVE`].
static INSERT_USUAL_DONE: Part = part!(
    sql_file!("apply/insert_usual_done"),
    &[
        Type::INT4,
        Type::INT8,
        Type::INT2,
        Type::INT2,
        Type::TIMESTAMPTZ,
        Type::UUID,
        Type::TEXT,
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ]
);

static COPY_DONE: Table = table!(
    "tasks_done",
    "ns, lane, id, status, priority, revision, started_at, finished_at, settled_by, settled_worker" [
        INT4, INT8, UUID, INT2, INT2, INT8, TIMESTAMPTZ, TIMESTAMPTZ, UUID, TEXT
    ],
    "runnable_at, modified_at, fence, attempts, failures, claimed_at, removable_from, stage, progress, \
     result, reason, more" [
        TIMESTAMPTZ, TIMESTAMPTZ, INT8, INT4, INT4, TIMESTAMPTZ, TIMESTAMPTZ, TEXT, JSONB,
        BYTEA, TEXT, BYTEA
    ]
);

pub(crate) static DELETE_DONE: Sql = Sql {
    text: sql_file!("apply/delete_done"),
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

/// What is not written of a task: the table says how it is with most.
struct Usual {
    runnable_at: Option<Timestamp>,
    modified_at: Timestamp,
    claimed_at: Option<Timestamp>,
    /// Likewise, the fence.
    attempts: u32,
}

/// What tasks have in common, whether they have ended or not.
#[derive(Debug, Default)]
struct Common {
    numbers: LaneNumbers,
    lanes: Vec<i64>,
    ids: Vec<Id>,
    statuses: Vec<i16>,
    priorities: Vec<i16>,
    runnable: Vec<Option<At>>,
    modified: Vec<Option<At>>,
    revisions: Vec<i64>,
    fences: Vec<Option<i64>>,
    attempts: Vec<Option<i32>>,
    failures: Vec<Option<i32>>,
    started: Vec<Option<At>>,
    claimed: Vec<Option<At>>,
}

impl Common {
    fn push(&mut self, ns: i32, task: &Task, usual: &Usual) {
        let unless = |at: Timestamp, usual| (Some(at) != usual).then_some(At(at));
        let counter =
            |count: u32, usual| (count != usual).then(|| i32::try_from(count).unwrap_or(i32::MAX));
        let fence = task.fence.get();
        self.lanes.push(self.numbers.of(ns, &task.spec.lane));
        self.ids.push(task.id().into());
        self.statuses.push(status_code(task.status));
        self.priorities.push(task.priority.get().into());
        self.runnable
            .push(unless(task.runnable_at, usual.runnable_at));
        self.modified
            .push(unless(task.modified_at, Some(usual.modified_at)));
        self.revisions.push(signed(task.revision.get()));
        self.fences
            .push((fence != u64::from(usual.attempts)).then(|| signed(fence)));
        self.attempts.push(counter(task.attempts, usual.attempts));
        self.failures.push(counter(task.failures, 0));
        self.started.push(task.started_at.map(At));
        let claimed = task
            .claimed_at
            .filter(|_| usual.claimed_at != task.claimed_at);
        self.claimed.push(claimed.map(At));
    }

    /// Whether all are as most are, but for what tells whether they have ended.
    fn is_usual(&self) -> bool {
        none(&self.modified)
            && none(&self.fences)
            && none(&self.attempts)
            && none(&self.failures)
            && none(&self.claimed)
    }

    /// Namespace, lane, status and priority, if all have the same.
    fn shared(&self, ns: i32) -> Option<Vec<Param>> {
        let lane = *shared(&self.lanes)?;
        let status = *shared(&self.statuses)?;
        let priority = *shared(&self.priorities)?;
        Some(params![ns, lane, status, priority])
    }

    fn params(self, ns: i32) -> Vec<Param> {
        params![
            ns,
            same(self.lanes.into_iter()),
            self.ids,
            same(self.statuses.into_iter()),
            same(self.priorities.into_iter()),
            rare(self.runnable),
            rare(self.modified),
            self.revisions,
            rare(self.fences),
            rare(self.attempts),
            rare(self.failures),
            rare(self.started),
            rare(self.claimed)
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
        let usual = Usual {
            runnable_at: None,
            modified_at: task.runnable_at,
            claimed_at: None,
            attempts: 0,
        };
        self.common.push(ns, task, &usual);
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

    /// The statement that adds them.
    pub(super) fn insert(self, ns: i32, copies: bool) -> Answer<Call> {
        if copies && self.common.ids.len() >= MANY {
            return self.copy(ns);
        }
        Ok(match self.usual(ns) {
            Some(params) => {
                let of_each = params![self.common.ids, self.common.revisions];
                let params = params.into_iter().chain(of_each).collect();
                Call::part(&INSERT_USUAL_LIVE, params)
            }
            None => Call::part(&INSERT_LIVE, self.params(ns)),
        })
    }

    /// Whether they have nothing that few have.
    fn is_usual(&self) -> bool {
        self.common.is_usual()
            && none(&self.common.started)
            && none(&self.until)
            && none(&self.stages)
            && none(&self.progress)
            && none(&self.more)
    }

    /// What they share, if that is all but ids and revisions.
    fn usual(&self, ns: i32) -> Option<Vec<Param>> {
        let shares = self.common.shared(ns).filter(|_| self.is_usual())?;
        let runnable = *shared(&self.common.runnable)?;
        Some(shares.into_iter().chain(params![runnable]).collect())
    }

    fn copy(&self, ns: i32) -> Answer<Call> {
        let common = &self.common;
        let mut rows = Rows::new(&COPY_LIVE, self.is_usual(), common.ids.len());
        for n in 0..common.ids.len() {
            rows.push([
                &ns,
                &common.lanes[n],
                &common.ids[n],
                &common.statuses[n],
                &common.priorities[n],
                &common.revisions[n],
                &common.runnable[n],
                &common.modified[n],
                &common.fences[n],
                &common.attempts[n],
                &common.failures[n],
                &common.started[n],
                &common.claimed[n],
                &self.until[n],
                &self.deadlines[n],
                &self.incarnations[n],
                &self.workers[n],
                &self.stages[n],
                &self.progress[n],
                &self.more[n],
            ])?;
        }
        Ok(rows.call())
    }

    pub(super) fn params(self, ns: i32) -> Vec<Param> {
        let mut params = self.common.params(ns);
        params.extend(params![
            rare(self.until),
            rare(self.deadlines),
            rare(self.incarnations),
            rare(self.workers),
            rare(self.stages),
            rare(self.progress),
            rare(self.more)
        ]);
        params
    }
}

/// Tasks that have ended.
#[derive(Debug, Default)]
pub(super) struct Done {
    common: Common,
    finished: Vec<At>,
    removable: Vec<Option<At>>,
    stages: Vec<Option<String>>,
    progress: Vec<Option<Json>>,
    results: Vec<Option<Blob>>,
    reasons: Vec<Option<String>>,
    /// The life of the worker that ended it, and its name.
    settlers: Vec<Option<(Id, String)>>,
    more: Vec<Option<Vec<u8>>>,
}

impl Done {
    pub(super) fn is_empty(&self) -> bool {
        self.common.ids.is_empty()
    }

    pub(super) fn push(&mut self, ns: i32, task: &Task) -> Answer<()> {
        let finished = task.finished_at.unwrap_or(task.modified_at);
        let usual = Usual {
            runnable_at: Some(task.spec.created_at),
            modified_at: finished,
            claimed_at: task.started_at,
            attempts: 1,
        };
        self.common.push(ns, task, &usual);
        self.finished.push(At(finished));
        let removable = task.removable_from().filter(|from| *from != finished);
        self.removable.push(removable.map(At));
        self.stages
            .push(task.stage.as_ref().map(ToString::to_string));
        self.progress
            .push(task.progress.as_ref().map(Json::of).transpose()?);
        self.results.push(task.result.clone().map(Blob));
        self.reasons.push(task.reason.clone());
        let settler = settler(task).map(|by| (Id(by.incarnation.as_u128()), by.name.to_string()));
        self.settlers.push(settler);
        self.more.push(StateMore::stored(task)?);
        Ok(())
    }

    /// The statement that adds them.
    pub(super) fn insert(self, ns: i32, copies: bool) -> Answer<Call> {
        if copies && self.common.ids.len() >= MANY {
            return self.copy(ns);
        }
        Ok(match self.usual(ns) {
            Some(params) => {
                let of_each = params![self.common.ids, self.common.revisions, self.common.started];
                let params = params.into_iter().chain(of_each).collect();
                Call::part(&INSERT_USUAL_DONE, params)
            }
            None => Call::part(&INSERT_DONE, self.params(ns)),
        })
    }

    /// Whether they have nothing that few have.
    fn is_usual(&self) -> bool {
        self.common.is_usual()
            && none(&self.common.runnable)
            && none(&self.removable)
            && none(&self.stages)
            && none(&self.progress)
            && none(&self.results)
            && none(&self.reasons)
            && none(&self.more)
    }

    /// What they share, if that is all but ids, revisions and when they were started.
    fn usual(&self, ns: i32) -> Option<Vec<Param>> {
        let shares = self.common.shared(ns).filter(|_| self.is_usual())?;
        let finished = *shared(&self.finished)?;
        let (by, worker) = shared(&self.settlers)?.clone().unzip();
        Some(
            shares
                .into_iter()
                .chain(params![finished, by, worker])
                .collect(),
        )
    }

    fn copy(&self, ns: i32) -> Answer<Call> {
        let common = &self.common;
        let mut rows = Rows::new(&COPY_DONE, self.is_usual(), common.ids.len());
        for n in 0..common.ids.len() {
            let settler = self.settlers[n].as_ref();
            let (by, worker) = settler.map(|(by, name)| (by, name)).unzip();
            rows.push([
                &ns,
                &common.lanes[n],
                &common.ids[n],
                &common.statuses[n],
                &common.priorities[n],
                &common.revisions[n],
                &common.started[n],
                &self.finished[n],
                &by,
                &worker,
                &common.runnable[n],
                &common.modified[n],
                &common.fences[n],
                &common.attempts[n],
                &common.failures[n],
                &common.claimed[n],
                &self.removable[n],
                &self.stages[n],
                &self.progress[n],
                &self.results[n],
                &self.reasons[n],
                &self.more[n],
            ])?;
        }
        Ok(rows.call())
    }

    fn params(self, ns: i32) -> Vec<Param> {
        // Whoever ends many tasks at once is mostly the same.
        let first = self.settlers.first().cloned();
        let all_same = |first: &Option<_>| self.settlers.iter().all(|by| by == first);
        let settler = first.filter(all_same).flatten();
        let (settled_by, settled_workers) = match &settler {
            Some(_) => (Vec::new(), Vec::new()),
            None => self.settlers.into_iter().map(Option::unzip).unzip(),
        };
        let (by, worker) = settler.unzip();
        let mut params = self.common.params(ns);
        params.extend(params![
            same(self.finished.into_iter()),
            rare(self.removable),
            rare(self.stages),
            rare(self.progress),
            rare(self.results),
            rare(self.reasons),
            settled_by,
            settled_workers,
            rare(self.more),
            by,
            worker
        ]);
        params
    }
}
