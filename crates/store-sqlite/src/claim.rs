//! Selects and takes tasks.

use std::sync::Arc;

use plimsoll_core::change::{Change, TaskChange};
use plimsoll_core::decide::task::Verdict;
use plimsoll_core::decide::{Moment, task};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Claim, Claimed, Pick};
use plimsoll_core::task::{Holder, Lane, Task, WorkerId};
use plimsoll_core::{Error, Fence, RequestId, Result, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::codec::{Id, decode, encode, timestamp};
use crate::error::{Answer, Fault};
use crate::overlay::{Overlay, Place};
use crate::rows;
use crate::transaction::{Transaction, find_lane};

/// What a claim took, as it is remembered.
type Taken = Vec<(TaskId, Fence)>;

impl Transaction<'_> {
    /// Takes what is asked for. The inner error refuses this claim alone.
    pub(crate) fn claim(
        &mut self,
        ns: i64,
        claim: &Claim,
        now: Timestamp,
    ) -> Answer<Result<Claimed>> {
        match claim.check(self.limits) {
            Ok(()) => self.take(ns, claim, now).map(Ok),
            Err(invalid) => Ok(Err(invalid.into())),
        }
    }

    fn take(&mut self, ns: i64, claim: &Claim, now: Timestamp) -> Answer<Claimed> {
        let mut claimed = Claimed {
            tasks: Vec::new(),
            refused: Vec::new(),
            next_due: None,
        };
        if let Pick::Next { .. } = &claim.pick
            && let Some(taken) = self.remembered(ns, claim.request)?
        {
            claimed.tasks = self.still_held(ns, taken, &claim.worker)?;
            return Ok(claimed);
        }
        let moment = self.moment(ns, now)?;
        let mut changes = Vec::new();
        loop {
            // Tasks that cannot be read stay at the head of their lane: others are taken instead.
            let refused = claimed.refused.len();
            let ids = match &claim.pick {
                // Deciding anew is safe: what this worker holds is answered as it is.
                Pick::Ids(ids) => ids.clone(),
                Pick::Next { lanes, limit } => {
                    let wanted = limit - claimed.tasks.len();
                    let among = wanted + refused;
                    let mut ids = next_pending(self.connection, &self.overlay, ns, lanes, among)?;
                    ids.retain(|id| !claimed.refused.iter().any(|(bad, _)| bad == id));
                    ids.truncate(wanted);
                    ids
                }
            };
            for id in ids {
                match self.claim_one(ns, id, claim, &moment)? {
                    Ok((task, change)) => {
                        claimed.tasks.push(task);
                        changes.extend(change);
                    }
                    Err(error) => claimed.refused.push((id, error)),
                }
            }
            let by_id = matches!(claim.pick, Pick::Ids(_));
            if by_id || claimed.refused.len() == refused {
                break;
            }
        }
        if let Pick::Next { lanes, limit } = &claim.pick
            && claimed.tasks.len() < *limit
        {
            claimed.next_due = next_due(self.connection, &self.overlay, ns, lanes)?;
        }
        if !changes.is_empty() {
            if let Pick::Next { .. } = &claim.pick {
                let taken = claimed.tasks.iter().map(|task| (task.id(), task.fence));
                self.remember(ns, claim.request, taken.collect(), now)?;
            }
            self.use_revision(ns, now)?;
            self.tell(ns, changes, now)?;
        }
        Ok(claimed)
    }

    #[allow(clippy::type_complexity)]
    fn claim_one(
        &mut self,
        ns: i64,
        id: TaskId,
        claim: &Claim,
        moment: &Moment<'_>,
    ) -> Answer<Result<(Task, Option<Change>), Error>> {
        let before = match self.task(ns, id) {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(Err(NotFound::Task(id).into())),
            // One task that cannot be read does not keep the others from being taken.
            Err(Fault::Corrupt(what)) => return Ok(Err(Error::Corrupt(what.into()))),
            Err(fault) => return Err(fault),
        };
        match task::claim(&before, &claim.worker, claim.lease, moment) {
            Err(error) => Ok(Err(error)),
            Ok(Verdict::Unchanged) => Ok(Ok((before.as_ref().clone(), None))),
            Ok(Verdict::Changed(after, event)) => {
                let change = Change::Task(TaskChange::new(&after, event));
                let task = after.as_ref().clone();
                self.put_task(ns, Some(&before), Some(after.into()), moment.now)?;
                Ok(Ok((task, Some(change))))
            }
        }
    }

    fn remembered(&self, ns: i64, request: RequestId) -> Answer<Option<Taken>> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT taken FROM claims WHERE ns = ? AND request = ?")?;
        let mut found = statement.query(params![ns, Id(request.as_u128())])?;
        let Some(row) = found.next()? else {
            return Ok(None);
        };
        decode(format_args!("claim {request}"), rows::blob(row, 0)?).map(Some)
    }

    fn remember(&self, ns: i64, request: RequestId, taken: Taken, now: Timestamp) -> Answer<()> {
        self.connection
            .prepare_cached("INSERT INTO claims VALUES (?, ?, ?, ?)")?
            .execute(params![
                ns,
                Id(request.as_u128()),
                now.as_micros(),
                encode(&taken)?
            ])?;
        Ok(())
    }

    fn still_held(&self, ns: i64, taken: Taken, worker: &WorkerId) -> Answer<Vec<Task>> {
        let mut held = Vec::with_capacity(taken.len());
        for (task, fence) in taken {
            let holder = Holder {
                task,
                worker: worker.clone(),
                fence,
            };
            let found = readable(self.task(ns, task))?;
            let found = found.filter(|found| found.holder() == Some(holder));
            held.extend(found.map(Arc::unwrap_or_clone));
        }
        Ok(held)
    }
}

/// The task, unless it cannot be read: that must not fail what is done for others.
pub(crate) fn readable<T>(task: Answer<Option<T>>) -> Answer<Option<T>> {
    match task {
        Err(Fault::Corrupt(what)) => {
            tracing::warn!(what, "a task cannot be read");
            Ok(None)
        }
        other => other,
    }
}

/// Pending tasks of these lanes in claim order, those of the file and those of the overlay.
pub(crate) fn next_pending(
    connection: &Connection,
    overlay: &Overlay,
    ns: i64,
    lanes: &[Lane],
    limit: usize,
) -> Answer<Vec<TaskId>> {
    let mut places: Vec<Place> = Vec::new();
    for lane in lanes {
        let Some(number) = find_lane(connection, ns, lane)? else {
            continue;
        };
        let mut statement = connection.prepare_cached(
            "SELECT -priority, runnable_at, id FROM tasks INDEXED BY tasks_ready \
             WHERE lane = ? AND status = 1 ORDER BY priority DESC, runnable_at, id LIMIT ?",
        )?;
        let mut rows = statement.query(params![number, limit as i64])?;
        while let Some(row) = rows.next()? {
            places.push((row.get(0)?, row.get(1)?, row.get::<_, Id>(2)?.task()));
        }
        places.extend(overlay.ready(number).take(limit));
    }
    // A few ascending runs, which this sort merges.
    places.sort();
    places.truncate(limit);
    Ok(places.into_iter().map(|(_, _, id)| id).collect())
}

/// When the next scheduled task of these lanes is due.
fn next_due(
    connection: &Connection,
    overlay: &Overlay,
    ns: i64,
    lanes: &[Lane],
) -> Answer<Option<Timestamp>> {
    let mut next: Option<i64> = None;
    for lane in lanes {
        let Some(number) = find_lane(connection, ns, lane)? else {
            continue;
        };
        let due: Option<i64> = connection
            .prepare_cached(
                "SELECT runnable_at FROM tasks INDEXED BY tasks_scheduled \
                 WHERE lane = ? AND status = 0 ORDER BY runnable_at LIMIT 1",
            )?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let due = due.into_iter().chain(overlay.next_due(number));
        next = next.into_iter().chain(due).min();
    }
    // A task that waits for another one has no time of its own.
    let next = next.filter(|at| *at < Timestamp::MAX.as_micros());
    next.map(timestamp).transpose()
}
