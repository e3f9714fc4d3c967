//! Writes rows that were decided, set by set.
//!
//! Rows that are changed or removed must be as they were when they were read, and rows that are
//! new must not be there: otherwise the transaction fails as a whole, and is decided again.

mod copy;
pub(crate) mod logs;
pub(crate) mod records;
pub(crate) mod specs;
pub(crate) mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::decide::Rows;
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{TaskId, Timestamp};
use tokio_postgres::types::Type;

pub(crate) use self::copy::MANY;
use self::records::NewKeys;
use self::specs::{DELETE_SPECS, insert_specs};
use self::tasks::{
    DELETE_DONE, DELETE_LIVE, DELETE_PLACES, Done, Live, Places, RENEW, UPDATE_LIVE,
};
use crate::call::{Call, Param, Part, params, part};
use crate::claims::{PROLONG, TAKE_OUT, TAKE_OUT_REMOVED};
use crate::codec::{At, Id, Place, lane_number, signed, status_code};
use crate::error::Answer;
use crate::held::Written;
use crate::indexes::Known;
use crate::notice::earlier;

static COUNT: Part = part!(
    "INSERT INTO plimsoll.counts SELECT $1, * FROM unnest($2, $3, $4, $5)",
    &[
        Type::INT4,
        Type::TEXT_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT2_ARRAY,
        Type::INT8_ARRAY,
    ]
);

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
    new_keys: NewKeys,
    new: Vec<Arc<Task>>,
    insert_live: Live,
    insert_done: Done,
    pub(crate) counts: Counts,
    others: Vec<Call>,
    pub(crate) written: Vec<Written>,
    /// Since when tasks wait that others have had before.
    pub(crate) back_to: Option<Timestamp>,
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
                self.written.push(Written::changed(&after));
                self.count(before, Some(&after));
                if before.is_some() && after.status == Status::Pending {
                    self.back_to = earlier(self.back_to, Some(after.runnable_at));
                }
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
        self.written.push(Written::removed(task));
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
                self.counts.add(&task.spec.lane, task.status, by);
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
                self.written.push(Written::changed(&task));
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

    /// The statements, in order. `copies`: many rows may be copied.
    pub(crate) fn calls(self, copies: bool) -> Answer<Vec<Call>> {
        let ns = self.ns;
        let mut calls = Vec::new();
        let (claims, tasks) = self.taken_out;
        if !claims.is_empty() {
            let claims: Vec<Id> = claims.into_iter().collect();
            calls.push(Call::new(&TAKE_OUT, params![ns, claims, tasks]));
        }
        if !self.claimed.is_empty() {
            calls.push(Call::part(&DELETE_PLACES, params![self.claimed]));
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
            calls.extend(logs::remove(ns, ids));
        }
        let (update, before) = self.update_live;
        if !before.is_empty() {
            let params = update.params(ns).into_iter().chain(params![before]);
            calls.push(Call::new(&UPDATE_LIVE, params.collect()));
        }
        // First of what is new: where a key is taken, nothing is written in vain.
        if !self.new_keys.is_empty() {
            calls.push(self.new_keys.insert(ns));
        }
        if !self.new.is_empty() {
            calls.push(insert_specs(ns, &self.new, copies)?);
        }
        if !self.insert_live.is_empty() {
            calls.push(self.insert_live.insert(ns, copies)?);
        }
        if !self.insert_done.is_empty() {
            calls.push(self.insert_done.insert(ns, copies)?);
        }
        calls.extend(self.others);
        Ok(calls)
    }
}

/// How many tasks of each lane came into a status, or left it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_status: BTreeMap<(Lane, Status), i64>,
}

impl Counts {
    fn add(&mut self, lane: &Lane, status: Status, by: i64) {
        *self.by_status.entry((lane.clone(), status)).or_default() += by;
    }

    pub(crate) fn absorb(&mut self, others: Self) {
        for ((lane, status), by) in others.by_status {
            self.add(&lane, status, by);
        }
    }

    /// The statement that adds them, if there is something to add.
    pub(crate) fn call(self, ns: i32) -> Option<Call> {
        let changed = self.by_status.values().any(|by| *by != 0);
        changed.then(|| {
            Call::part(
                &COUNT,
                params![ns].into_iter().chain(self.params()).collect(),
            )
        })
    }

    /// Arrays of queues, kinds, statuses and numbers.
    fn params(self) -> Vec<Param> {
        let (mut queues, mut kinds) = (Vec::new(), Vec::new());
        let (mut statuses, mut numbers) = (Vec::new(), Vec::new());
        for ((lane, status), by) in self.by_status {
            if by != 0 {
                queues.push(lane.queue.to_string());
                kinds.push(lane.kind.to_string());
                statuses.push(status_code(status));
                numbers.push(by);
            }
        }
        params![queues, kinds, statuses, numbers]
    }
}
