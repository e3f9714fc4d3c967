//! Writes rows that were decided, set by set.
//!
//! Rows that are changed or removed must be as they were when they were read, and rows that are
//! new must not be there: otherwise the transaction fails as a whole, and is decided again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::decide::{Rows, Written};
use plimsoll_core::group::Group;
use plimsoll_core::log::Line;
use plimsoll_core::record::Record;
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{GroupId, IdempotencyKey, Key, LineId, TaskId, Timestamp};
use tokio_postgres::types::Type;

use crate::claims::{PROLONG, TAKE_OUT, TAKE_OUT_REMOVED};
use crate::codec::{
    At, Blob, Id, Json, Place, encode, fields_to_json, lane_number, signed, status_code,
};
use crate::error::Answer;
use crate::indexes::{Known, Moves};
use crate::session::{Call, Param, Sql, params};
use crate::task_row::{SpecMore, StateMore, settler};

/// How many lines of logs go with their tasks in one transaction: others wait for it.
const LINES_REMOVED_MAX: i64 = 10_000;

static INSERT_RECORDS: Sql = Sql {
    text: "INSERT INTO plimsoll.records SELECT $1, * FROM unnest($2, $3, $4, $5, $6)",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
};
static UPDATE_RECORDS: Sql = Sql {
    text: "WITH changed AS (UPDATE plimsoll.records r \
           SET fields = u.fields, revision = u.revision, modified_at = u.modified_at, expires_at = u.expires_at \
           FROM unnest($2, $3, $4, $5, $6, $7) u(key, fields, revision, modified_at, expires_at, before) \
           WHERE r.ns = $1 AND r.key = u.key AND r.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($2))",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::JSONB_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::INT8_ARRAY,
    ],
};
static DELETE_RECORDS: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.records r USING unnest($2, $3) u(key, before) \
           WHERE r.ns = $1 AND r.key = u.key AND r.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($2))",
    types: &[Type::INT4, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};

static INSERT_KEYS: Sql = Sql {
    text: "INSERT INTO plimsoll.keys SELECT $1, * FROM unnest($2, $3)",
    types: &[Type::INT4, Type::TEXT_ARRAY, Type::UUID_ARRAY],
};
static UPDATE_KEYS: Sql = Sql {
    text: "WITH changed AS (UPDATE plimsoll.keys k SET task = u.task \
           FROM unnest($2, $3, $4) u(key, task, before) \
           WHERE k.ns = $1 AND k.key = u.key AND k.task = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM changed), cardinality($2))",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::UUID_ARRAY,
        Type::UUID_ARRAY,
    ],
};
static DELETE_KEYS: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.keys k USING unnest($2, $3) u(key, before) \
           WHERE k.ns = $1 AND k.key = u.key AND k.task = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($2))",
    types: &[Type::INT4, Type::TEXT_ARRAY, Type::UUID_ARRAY],
};

static UPSERT_GROUPS: Sql = Sql {
    text: "INSERT INTO plimsoll.groups SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8) \
           ON CONFLICT (ns, id) DO UPDATE SET spawned = excluded.spawned, done = excluded.done, \
           failed = excluded.failed, sealed = excluded.sealed, drained_at = excluded.drained_at, \
           body = excluded.body",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
static INSERT_GROUPS: Sql = Sql {
    text: "INSERT INTO plimsoll.groups SELECT $1, * FROM unnest($2, $3, $4, $5, $6, $7, $8)",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::BOOL_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};
static DELETE_GROUPS: Sql = Sql {
    text: "DELETE FROM plimsoll.groups WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::TEXT_ARRAY],
};

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
static DELETE_SPECS: Sql = Sql {
    text: "DELETE FROM plimsoll.specs WHERE ns = $1 AND id = ANY($2)",
    types: &[Type::INT4, Type::UUID_ARRAY],
};

static INSERT_LIVE: Sql = Sql {
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
static UPDATE_LIVE: Sql = Sql {
    text: "WITH changed AS (UPDATE plimsoll.tasks t SET status = u.status, priority = u.priority, \
           runnable_at = u.runnable_at, modified_at = u.modified_at, revision = u.revision, \
           fence = u.fence, attempts = u.attempts, failures = u.failures, started_at = u.started_at, \
           claimed_at = u.claimed_at, until = u.until, deadline = u.deadline, \
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
static DELETE_LIVE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks t USING unnest($1, $2, $3) u(lane, id, before) \
           WHERE t.lane = u.lane AND t.id = u.id AND t.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY],
};
/// Tasks that were locked when they were found there.
static DELETE_PLACES: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks WHERE ctid = ANY($1) RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::TID_ARRAY],
};
static RENEW: Sql = Sql {
    text: "UPDATE plimsoll.tasks t SET until = u.until FROM unnest($1, $2, $3) u(lane, id, until) \
           WHERE t.lane = u.lane AND t.id = u.id",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::TIMESTAMPTZ_ARRAY],
};

static INSERT_DONE: Sql = Sql {
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
static DELETE_DONE: Sql = Sql {
    text: "WITH gone AS (DELETE FROM plimsoll.tasks_done d USING unnest($1, $2, $3) u(lane, id, before) \
           WHERE d.lane = u.lane AND d.id = u.id AND d.revision = u.before RETURNING 1) \
           SELECT plimsoll.expect((SELECT count(*) FROM gone), cardinality($1))",
    types: &[Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY],
};

static DELETE_LOGS: Sql = Sql {
    text: "DELETE FROM plimsoll.logs WHERE (ns, task, seq) IN \
           (SELECT ns, task, seq FROM plimsoll.logs WHERE ns = $1 AND task = ANY($2) LIMIT $3)",
    types: &[Type::INT4, Type::UUID_ARRAY, Type::INT8],
};
static ORPHAN_LOGS: Sql = Sql {
    text: "INSERT INTO plimsoll.orphans SELECT ns, task, max(seq) FROM plimsoll.logs \
           WHERE ns = $1 AND task = ANY($2) GROUP BY ns, task \
           ON CONFLICT (ns, task) DO UPDATE SET upto = excluded.upto",
    types: &[Type::INT4, Type::UUID_ARRAY],
};
static APPEND_LINES: Sql = Sql {
    text: "INSERT INTO plimsoll.logs (ns, task, id, level, fence, at, stage, message, metadata, step) \
           SELECT $1, u.task, u.id, u.level, u.fence, u.at, u.stage, u.message, u.metadata, u.step \
           FROM unnest($2, $3, $4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY \
           u(task, id, level, fence, at, stage, message, metadata, step, place) ORDER BY place \
           ON CONFLICT (ns, task, id) DO UPDATE SET seq = DEFAULT, level = excluded.level, \
           fence = excluded.fence, at = excluded.at, stage = excluded.stage, message = excluded.message, \
           metadata = excluded.metadata, step = excluded.step \
           WHERE logs.seq <= (SELECT upto FROM plimsoll.orphans o \
                              WHERE o.ns = excluded.ns AND o.task = excluded.task)",
    types: &[
        Type::INT4,
        Type::UUID_ARRAY,
        Type::UUID_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::BYTEA_ARRAY,
        Type::JSONB_ARRAY,
    ],
};

static COUNT: Sql = Sql {
    text: "INSERT INTO plimsoll.counts SELECT $1, * FROM unnest($2, $3, $4, $5)",
    types: &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
    ],
};

/// The statements that write what a transaction decided, in an order in which rows make way for
/// others with the same key.
#[derive(Debug, Default)]
pub(crate) struct Apply {
    ns: i32,
    /// Tasks without a row of their own, and the claims to tell when they leave them, if that has to
    /// be told.
    rowless: BTreeMap<TaskId, Option<Id>>,
    taken_out: (BTreeSet<Id>, Vec<Id>),
    removed: Vec<TaskId>,
    /// When those that are removed were claimed first.
    started: BTreeSet<Timestamp>,
    claimed: Vec<Place>,
    delete_live: Places,
    delete_done: Places,
    update_live: (Live, Vec<i64>),
    new: Vec<Arc<Task>>,
    insert_live: Live,
    insert_done: Done,
    counts: BTreeMap<(Lane, Status), i64>,
    others: Vec<Call>,
    /// Tasks as they are written; `None`: removed.
    pub(crate) written: Vec<(TaskId, Option<Arc<Task>>)>,
}

/// Rows of tasks that must still have the revision they were read with.
#[derive(Debug, Default)]
struct Places {
    lanes: Vec<i64>,
    ids: Vec<Id>,
    before: Vec<i64>,
}

impl Places {
    fn push(&mut self, ns: i32, task: &Task) {
        self.lanes.push(lane_number(ns, &task.spec.lane));
        self.ids.push(task.id().into());
        self.before.push(signed(task.revision.get()));
    }

    fn call(self, sql: &'static Sql) -> Option<Call> {
        let Self { lanes, ids, before } = self;
        (!ids.is_empty()).then(|| Call::new(sql, params![lanes, ids, before]))
    }
}

impl Apply {
    pub(crate) fn new(ns: i32) -> Self {
        Self {
            ns,
            ..Self::default()
        }
    }

    /// Takes in all rows that commits have written.
    pub(crate) fn rows(&mut self, rows: Rows, indexes: &[Known]) -> Answer<()> {
        self.records(rows.records.into_written(), indexes)?;
        self.keys(rows.keys.into_written());
        for row in rows.tasks.into_written() {
            self.task(row.before.as_deref(), row.after)?;
        }
        self.groups(rows.groups.into_written())
    }

    /// Takes in which tasks have no row of their own, and the claims to tell when they leave them.
    pub(crate) fn rowless(&mut self, rowless: impl IntoIterator<Item = (TaskId, Option<Id>)>) {
        self.rowless.extend(rowless);
    }

    /// Takes in a task that leaves its row, for its claim is all there is of it.
    pub(crate) fn claim(&mut self, place: Place, before: &Task, after: &Task) {
        self.claimed.push(place);
        self.count(Some(before), Some(after));
    }

    /// Whether a task had no row. If it had not, it leaves its claim.
    fn leaves_claim(&mut self, id: TaskId) -> bool {
        let claim = self.rowless.remove(&id);
        if let Some(Some(claim)) = claim {
            self.taken_out.0.insert(claim);
            self.taken_out.1.push(id.into());
        }
        claim.is_some()
    }

    /// Takes in a task.
    pub(crate) fn task(&mut self, before: Option<&Task>, after: Option<Arc<Task>>) -> Answer<()> {
        match (before, after) {
            (None, None) => {}
            (Some(before), None) => self.remove(before),
            (Some(before), Some(after)) if before.spec.born != after.spec.born => {
                // Another task has taken the id.
                self.remove(before);
                self.task(None, Some(after))?;
            }
            (before, Some(after)) => {
                self.written.push((after.id(), Some(after.clone())));
                self.count(before, Some(&after));
                match before {
                    None => self.new.push(after.clone()),
                    Some(before) if self.leaves_claim(before.id()) => {}
                    Some(before) if before.status.is_terminal() => {
                        self.delete_done.push(self.ns, before);
                    }
                    Some(before) if after.status.is_terminal() => {
                        self.delete_live.push(self.ns, before);
                    }
                    Some(before) => {
                        self.update_live.0.push(self.ns, &after)?;
                        self.update_live.1.push(signed(before.revision.get()));
                        return Ok(());
                    }
                }
                match after.status.is_terminal() {
                    true => self.insert_done.push(self.ns, &after)?,
                    false => self.insert_live.push(self.ns, &after)?,
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, task: &Task) {
        self.written.push((task.id(), None));
        self.count(Some(task), None);
        self.removed.push(task.id());
        self.started.extend(task.started_at);
        if self.leaves_claim(task.id()) {
            return;
        }
        match task.status.is_terminal() {
            true => self.delete_done.push(self.ns, task),
            false => self.delete_live.push(self.ns, task),
        }
    }

    fn count(&mut self, before: Option<&Task>, after: Option<&Task>) {
        for (task, by) in [(before, -1), (after, 1)] {
            if let Some(task) = task {
                let place = (task.spec.lane.clone(), task.status);
                *self.counts.entry(place).or_default() += by;
            }
        }
    }

    /// Takes in leases that end at another time. What has no row gets one: the others of its claim
    /// are not prolonged with it.
    pub(crate) fn leases(&mut self, renewed: &[(Arc<Task>, Timestamp)]) -> Answer<()> {
        let (mut lanes, mut ids, mut untils) = (Vec::new(), Vec::new(), Vec::new());
        for (task, until) in renewed {
            if self.leaves_claim(task.id()) {
                let mut task = task.clone();
                if let Some(lease) = &mut Arc::make_mut(&mut task).lease {
                    lease.until = *until;
                }
                self.insert_live.push(self.ns, &task)?;
                self.written.push((task.id(), Some(task)));
            } else {
                lanes.push(lane_number(self.ns, &task.spec.lane));
                ids.push(Id::from(task.id()));
                untils.push(At(*until));
            }
        }
        if !ids.is_empty() {
            self.others
                .push(Call::new(&RENEW, params![lanes, ids, untils]));
        }
        Ok(())
    }

    /// Takes in claims whose leases end at another time.
    pub(crate) fn prolong(&mut self, claims: Vec<Id>, until: Timestamp) {
        self.others
            .push(Call::new(&PROLONG, params![self.ns, claims, At(until)]));
    }

    /// Takes in lines of logs. Of several with the same id, the first one counts.
    pub(crate) fn lines(&mut self, lines: &[(TaskId, Line)]) -> Answer<()> {
        let mut seen: BTreeSet<(TaskId, LineId)> = BTreeSet::new();
        let lines: Vec<_> = (lines.iter())
            .filter(|(task, line)| seen.insert((*task, line.line.id)))
            .collect();
        if lines.is_empty() {
            return Ok(());
        }
        let of =
            |get: fn(&Line) -> i64| lines.iter().map(|(_, line)| get(line)).collect::<Vec<_>>();
        let tasks: Vec<_> = lines.iter().map(|(task, _)| Id::from(*task)).collect();
        let ids: Vec<_> = lines
            .iter()
            .map(|(_, line)| Id(line.line.id.as_u128()))
            .collect();
        let levels: Vec<_> = lines
            .iter()
            .map(|(_, line)| line.line.level as i16)
            .collect();
        let at: Vec<_> = lines.iter().map(|(_, line)| At(line.at)).collect();
        let stages: Vec<_> = (lines.iter())
            .map(|(_, line)| line.line.stage.as_ref().map(ToString::to_string))
            .collect();
        let messages: Vec<_> = lines
            .iter()
            .map(|(_, line)| line.line.message.clone())
            .collect();
        let metadata: Vec<_> = (lines.iter())
            .map(|(_, line)| line.line.metadata.clone().map(Blob))
            .collect();
        let steps = (lines.iter())
            .map(|(_, line)| line.line.step.as_ref().map(Json::of).transpose())
            .collect::<Answer<Vec<_>>>()?;
        let fences = of(|line| signed(line.fence.get()));
        self.others.push(Call::new(
            &APPEND_LINES,
            params![
                self.ns, tasks, ids, levels, fences, at, stages, messages, metadata, steps
            ],
        ));
        Ok(())
    }

    fn records(
        &mut self,
        written: impl Iterator<Item = Written<Key, Record>>,
        indexes: &[Known],
    ) -> Answer<()> {
        let (mut insert, mut update) = (Records::default(), Records::default());
        let (mut updated, mut gone, mut gone_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut moves = Moves::default();
        for row in written {
            let (before, after) = (row.before.as_ref(), row.after.as_ref());
            moves.add(indexes, &row.key, before, after);
            match (before, after) {
                (None, None) => {}
                (None, Some(after)) => insert.push(after)?,
                (Some(before), Some(after)) => {
                    update.push(after)?;
                    updated.push(signed(before.revision.get()));
                }
                (Some(before), None) => {
                    gone.push(row.key.to_string());
                    gone_at.push(signed(before.revision.get()));
                }
            }
        }
        if !gone.is_empty() {
            let call = Call::new(&DELETE_RECORDS, params![self.ns, gone, gone_at]);
            self.others.push(call);
        }
        if !updated.is_empty() {
            let params = update.params(self.ns).into_iter().chain(params![updated]);
            self.others
                .push(Call::new(&UPDATE_RECORDS, params.collect()));
        }
        if !insert.keys.is_empty() {
            self.others
                .push(Call::new(&INSERT_RECORDS, insert.params(self.ns)));
        }
        self.others.extend(moves.calls());
        Ok(())
    }

    fn keys(&mut self, written: impl Iterator<Item = Written<IdempotencyKey, TaskId>>) {
        let (mut insert, mut update, mut delete) = (
            (Vec::new(), Vec::new()),
            (Vec::new(), Vec::new(), Vec::new()),
            (Vec::new(), Vec::new()),
        );
        for row in written {
            let key = row.key.to_string();
            match (row.before.map(Id::from), row.after.map(Id::from)) {
                (None, None) => {}
                (None, Some(after)) => {
                    insert.0.push(key);
                    insert.1.push(after);
                }
                (Some(before), Some(after)) => {
                    update.0.push(key);
                    update.1.push(after);
                    update.2.push(before);
                }
                (Some(before), None) => {
                    delete.0.push(key);
                    delete.1.push(before);
                }
            }
        }
        let ns = self.ns;
        if !delete.0.is_empty() {
            self.others
                .push(Call::new(&DELETE_KEYS, params![ns, delete.0, delete.1]));
        }
        if !update.0.is_empty() {
            let params = params![ns, update.0, update.1, update.2];
            self.others.push(Call::new(&UPDATE_KEYS, params));
        }
        if !insert.0.is_empty() {
            self.others
                .push(Call::new(&INSERT_KEYS, params![ns, insert.0, insert.1]));
        }
    }

    fn groups(&mut self, written: impl Iterator<Item = Written<GroupId, Group>>) -> Answer<()> {
        let (mut new, mut changed, mut gone) = (Groups::default(), Groups::default(), Vec::new());
        for row in written {
            match (&row.before, &row.after) {
                (_, None) => gone.push(row.key.to_string()),
                (None, Some(group)) => new.push(group)?,
                (Some(_), Some(group)) => changed.push(group)?,
            }
        }
        if !gone.is_empty() {
            self.others
                .push(Call::new(&DELETE_GROUPS, params![self.ns, gone]));
        }
        self.others.extend(new.call(&INSERT_GROUPS, self.ns));
        self.others.extend(changed.call(&UPSERT_GROUPS, self.ns));
        Ok(())
    }

    /// The statements, in order.
    pub(crate) fn calls(self) -> Answer<Vec<Call>> {
        let ns = self.ns;
        let mut calls = Vec::new();
        let (claims, tasks) = self.taken_out;
        if !claims.is_empty() {
            let claims: Vec<Id> = claims.into_iter().collect();
            calls.push(Call::new(&TAKE_OUT, params![ns, claims, tasks]));
        }
        if !self.claimed.is_empty() {
            calls.push(Call::new(&DELETE_PLACES, params![self.claimed]));
        }
        calls.extend(self.delete_live.call(&DELETE_LIVE));
        calls.extend(self.delete_done.call(&DELETE_DONE));
        if !self.removed.is_empty() {
            let ids: Vec<_> = self.removed.iter().map(|id| Id::from(*id)).collect();
            let started: Vec<_> = self.started.into_iter().map(At).collect();
            if !started.is_empty() {
                let params = params![ns, ids.clone(), started];
                calls.push(Call::new(&TAKE_OUT_REMOVED, params));
            }
            calls.push(Call::new(&DELETE_SPECS, params![ns, ids.clone()]));
            calls.push(Call::new(
                &DELETE_LOGS,
                params![ns, ids.clone(), LINES_REMOVED_MAX],
            ));
            calls.push(Call::new(&ORPHAN_LOGS, params![ns, ids]));
        }
        let (update, before) = self.update_live;
        if !before.is_empty() {
            let params = update.params(ns).into_iter().chain(params![before]);
            calls.push(Call::new(&UPDATE_LIVE, params.collect()));
        }
        if !self.new.is_empty() {
            calls.push(insert_specs(ns, &self.new)?);
        }
        if !self.insert_live.common.ids.is_empty() {
            calls.push(Call::new(&INSERT_LIVE, self.insert_live.params(ns)));
        }
        if !self.insert_done.common.ids.is_empty() {
            calls.push(Call::new(&INSERT_DONE, self.insert_done.params(ns)));
        }
        calls.extend(self.others);
        calls.extend(count(ns, self.counts));
        Ok(calls)
    }
}

fn count(ns: i32, counts: BTreeMap<(Lane, Status), i64>) -> Option<Call> {
    let changed: Vec<_> = counts.into_iter().filter(|(_, by)| *by != 0).collect();
    if changed.is_empty() {
        return None;
    }
    let queues: Vec<_> = changed
        .iter()
        .map(|((lane, _), _)| lane.queue.to_string())
        .collect();
    let kinds: Vec<_> = changed
        .iter()
        .map(|((lane, _), _)| lane.kind.to_string())
        .collect();
    let statuses: Vec<_> = changed
        .iter()
        .map(|((_, status), _)| status_code(*status))
        .collect();
    let by: Vec<_> = changed.iter().map(|(_, by)| *by).collect();
    Some(Call::new(&COUNT, params![ns, queues, kinds, statuses, by]))
}

#[derive(Debug, Default)]
struct Records {
    keys: Vec<String>,
    fields: Vec<Json>,
    revisions: Vec<i64>,
    modified: Vec<At>,
    expires: Vec<Option<At>>,
}

impl Records {
    fn push(&mut self, record: &Record) -> Answer<()> {
        self.keys.push(record.key.to_string());
        self.fields.push(fields_to_json(&record.fields)?);
        self.revisions.push(signed(record.revision.get()));
        self.modified.push(At(record.modified_at));
        self.expires.push(record.expires_at.map(At));
        Ok(())
    }

    fn params(self, ns: i32) -> Vec<Param> {
        params![
            ns,
            self.keys,
            self.fields,
            self.revisions,
            self.modified,
            self.expires
        ]
    }
}

#[derive(Debug, Default)]
struct Groups {
    ids: Vec<String>,
    spawned: Vec<i64>,
    done: Vec<i64>,
    failed: Vec<i64>,
    sealed: Vec<bool>,
    drained: Vec<Option<At>>,
    bodies: Vec<Vec<u8>>,
}

impl Groups {
    fn push(&mut self, group: &Group) -> Answer<()> {
        self.ids.push(group.id.to_string());
        self.spawned.push(signed(group.spawned));
        self.done.push(signed(group.done));
        self.failed.push(signed(group.failed));
        self.sealed.push(group.sealed);
        self.drained.push(group.drained_at.map(At));
        self.bodies.push(encode(group)?);
        Ok(())
    }

    fn call(self, sql: &'static Sql, ns: i32) -> Option<Call> {
        if self.ids.is_empty() {
            return None;
        }
        let params = params![
            ns,
            self.ids,
            self.spawned,
            self.done,
            self.failed,
            self.sealed,
            self.drained,
            self.bodies
        ];
        Some(Call::new(sql, params))
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
struct Live {
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
    fn push(&mut self, ns: i32, task: &Task) -> Answer<()> {
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

    fn params(self, ns: i32) -> Vec<Param> {
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
struct Done {
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
    fn push(&mut self, ns: i32, task: &Task) -> Answer<()> {
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

    fn params(self, ns: i32) -> Vec<Param> {
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

fn insert_specs(ns: i32, tasks: &[Arc<Task>]) -> Answer<Call> {
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
