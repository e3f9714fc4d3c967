//! How a transaction reads and writes tasks: in its overlay, or in the file.

use std::sync::Arc;

use plimsoll_core::decide::{self, RowId, Rows};
use plimsoll_core::store::{Renew, Renewal};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{TaskId, Timestamp};

use crate::claim::readable;
use crate::error::Answer;
use crate::overlay::Overlay;
use crate::rows;
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Loads a row for the deciders.
    pub(crate) fn load(&mut self, ns: i64, id: RowId, rows: &mut Rows) -> Answer<()> {
        let connection = self.connection;
        match id {
            RowId::Record(key) => {
                let row = rows::record(connection, ns, &key)?;
                rows.records.load(key, row);
            }
            RowId::Key(key) => {
                let row = rows::key_holder(connection, ns, &key)?;
                rows.keys.load(key, row);
            }
            RowId::Task(id) => {
                self.cache.learn_newest(connection, ns);
                rows.tasks.load(id, self.task(ns, id)?);
            }
            RowId::Group(id) => {
                let row = rows::group(connection, ns, &id)?;
                rows.groups.load(id, row);
            }
            RowId::Commit(id) => rows.commits.load(id, rows::receipt(connection, ns, id)?),
        }
        Ok(())
    }

    /// The task as the transaction leaves it so far.
    pub(crate) fn task(&self, ns: i64, id: TaskId) -> Answer<Option<Arc<Task>>> {
        let known = (self.overlay.task(ns, id)).or_else(|| self.cache.task(ns, id));
        match known {
            Some(task) => Ok(Some(task.clone())),
            None if self.cache.is_newer(ns, id) => Ok(None),
            None => Ok(rows::task(self.connection, ns, id)?.map(Arc::new)),
        }
    }

    /// Writes a task and counts it.
    pub(crate) fn put_task(
        &mut self,
        ns: i64,
        before: Option<&Task>,
        after: Option<Arc<Task>>,
        now: Timestamp,
    ) -> Answer<()> {
        match (before, after) {
            (None, None) => Ok(()),
            (Some(before), None) => self.remove_task(ns, before, now),
            (Some(before), Some(after)) if before.spec.born != after.spec.born => {
                // Another task has taken the id in the same commit.
                self.remove_task(ns, before, now)?;
                self.put_task(ns, None, Some(after), now)
            }
            (before, Some(after)) => {
                let was = before.map(|task| task.status);
                let lane = self.lane(ns, &after.spec.lane)?;
                let statuses = (was, Some(after.status));
                self.count_task(ns, (lane, &after.spec.lane), statuses, now)?;
                self.store_task(ns, lane, was, after)
            }
        }
    }

    /// Keeps a task for the end of the transaction, or writes it at once if it waits in the file.
    fn store_task(
        &mut self,
        ns: i64,
        lane: i64,
        was: Option<Status>,
        after: Arc<Task>,
    ) -> Answer<()> {
        self.cache.raise_newest(ns, after.id());
        if Overlay::takes(was) || self.overlay.task(ns, after.id()).is_some() {
            self.overlay.put(ns, lane, was, after);
        } else {
            rows::update_waiting(self.connection, ns, lane, &after)?;
            self.cache.put(ns, after);
        }
        Ok(())
    }

    /// Removes a task with its log, at once: another one may take its id.
    fn remove_task(&mut self, ns: i64, task: &Task, now: Timestamp) -> Answer<()> {
        let lane = self.lane(ns, &task.spec.lane)?;
        let stored = match self.overlay.remove(ns, task.id()) {
            Some(unwritten) => unwritten.stored,
            None => Some(task.status),
        };
        if let Some(stored) = stored {
            rows::remove_task(self.connection, ns, lane, stored, &task.spec)?;
            self.cache.remove(ns, task.id());
        }
        self.remove_log(ns, task.id(), now)?;
        self.count_task(ns, (lane, &task.spec.lane), (Some(task.status), None), now)
    }

    /// Removes a log, or as much of it as may go in this transaction: others wait for it. What is left
    /// is seen by nobody, and goes with the next steps of `compact`.
    fn remove_log(&mut self, ns: i64, task: TaskId, now: Timestamp) -> Answer<()> {
        let upto = self.last_line(ns, now)?;
        let removed = rows::shorten_log(self.connection, ns, task, upto, self.lines_left)?;
        self.lines_left -= removed;
        if self.lines_left == 0 && rows::has_log(self.connection, ns, task)? {
            rows::put_orphan(self.connection, ns, task, upto)?;
        }
        Ok(())
    }

    /// Removes lines whose task is gone. Answers how many, and whether there are more.
    pub(crate) fn remove_orphans(&mut self, ns: i64) -> Answer<(u64, bool)> {
        let mut lines = 0;
        while let Some((task, upto)) = rows::orphan(self.connection, ns)? {
            if self.lines_left == 0 {
                return Ok((lines, true));
            }
            let removed = rows::shorten_log(self.connection, ns, task, upto, self.lines_left)?;
            self.lines_left -= removed;
            lines += removed as u64;
            if self.lines_left > 0 {
                rows::remove_orphan(self.connection, ns, task)?;
            }
        }
        Ok((lines, false))
    }

    /// Prolongs leases.
    pub(crate) fn renew(&mut self, ns: i64, renew: &Renew, now: Timestamp) -> Answer<Vec<Renewal>> {
        let mut renewals = Vec::with_capacity(renew.holders.len());
        for holder in &renew.holders {
            let task = readable(self.task(ns, holder.task))?;
            let renewal = decide::task::renew(task.as_deref(), holder, renew.lease, now);
            if let Renewal::Held { until } | Renewal::CancelRequested { until, .. } = &renewal
                && let Some(task) = task
            {
                self.put_lease_end(ns, &task, *until)?;
            }
            renewals.push(renewal);
        }
        Ok(renewals)
    }

    /// Moves the end of a lease, and nothing else.
    fn put_lease_end(&mut self, ns: i64, task: &Task, until: Timestamp) -> Answer<()> {
        let lane = self.lane(ns, &task.spec.lane)?;
        let mut task = task.clone();
        if let Some(lease) = &mut task.lease {
            lease.until = until;
        }
        let task = Arc::new(task);
        if self.overlay.task(ns, task.id()).is_some() {
            self.overlay.put(ns, lane, None, task);
        } else {
            rows::put_lease_end(self.connection, lane, task.id(), until)?;
            self.cache.put(ns, task);
        }
        Ok(())
    }

    /// Writes what the overlay keeps, before something looks for it in the file.
    pub(crate) fn flush(&mut self) -> Answer<()> {
        self.overlay.flush(self.connection, self.cache)
    }
}
