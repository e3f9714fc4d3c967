//! One transaction of the writer: any number of calls, decided one after another.
//!
//! Whatever a commit writes is decided before the first row is written, so a refused commit
//! leaves nothing and its neighbours go on. New tasks, history, counts and the namespace's counters
//! are written once, at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::change::Change;
use plimsoll_core::decide::{self, Applied, Moment, Rows};
use plimsoll_core::log::Line;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Exchange, Exchanged, Receipt};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::wake::Wake;
use plimsoll_core::{
    CommitId, Error, Limits, Namespace, Position, Result, Revision, TaskId, Timestamp,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::cache::Cache;
use crate::codec::{Id, encode, signed, status_code, unsigned};
use crate::error::{Answer, Fault};
use crate::indexes::{self, Known};
use crate::lanes::Lanes;
use crate::overlay::Overlay;
use crate::rows;

/// Past about so many bytes, what a transaction changed goes into a further entry of the history.
const ENTRY_BYTES_MAX: usize = 1024 * 1024;
/// How many lines of logs go with their tasks in one transaction: others wait for it.
pub(crate) const LINES_REMOVED_MAX: usize = 10_000;

const APPEND_LINE: &str = include_str!("../sql/append_line.sql");

pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) limits: &'a Limits,
    pub(crate) cache: &'a mut Cache,
    lanes: &'a mut Lanes,
    /// Lanes that this transaction has made: forgotten if it fails.
    new_lanes: Vec<(i64, Lane)>,
    /// What is new and waits for the end of the transaction.
    pub(crate) overlay: Overlay,
    /// How many more lines of logs may go with their tasks.
    pub(crate) lines_left: usize,
    namespaces: BTreeMap<i64, Pending>,
}

/// What a transaction did to a namespace, for those who listen.
pub(crate) struct Told {
    pub(crate) ns: i64,
    pub(crate) from: Revision,
    pub(crate) to: Revision,
    /// But for the history.
    pub(crate) wake: Wake,
    /// There is new history.
    pub(crate) history: bool,
}

/// What a namespace gets at the end of the transaction.
struct Pending {
    /// As the transaction found it.
    from: Revision,
    revision: Revision,
    position: Position,
    /// The number of the last line of any log.
    lines: i64,
    /// The declared indexes.
    indexes: Arc<[Known]>,
    at: Timestamp,
    /// For the entry that is being made, and about how many bytes they take.
    changes: Vec<Change>,
    bytes: usize,
    /// What all changes of the transaction are worth a look at.
    wake: Wake,
    counts: BTreeMap<(i64, Status), i64>,
    /// Lanes that have lost a task, perhaps their last one.
    left: BTreeMap<i64, Lane>,
}

impl Pending {
    /// Appends what changed so far as one entry of the history.
    fn append(&mut self, connection: &Connection, ns: i64) -> Answer<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        self.position = self.position.next();
        connection
            .prepare_cached("INSERT INTO history (ns, position, at, changes) VALUES (?, ?, ?, ?)")?
            .execute(params![
                ns,
                signed(self.position.get()),
                self.at.as_micros(),
                encode(&self.changes)?,
            ])?;
        self.changes.clear();
        self.bytes = 0;
        Ok(())
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        limits: &'a Limits,
        cache: &'a mut Cache,
        lanes: &'a mut Lanes,
    ) -> Self {
        Self {
            connection,
            limits,
            cache,
            lanes,
            new_lanes: Vec::new(),
            overlay: Overlay::default(),
            lines_left: LINES_REMOVED_MAX,
            namespaces: BTreeMap::new(),
        }
    }

    /// Decides a commit and writes its rows. The inner error refuses this commit alone.
    pub(crate) fn commit(
        &mut self,
        ns: i64,
        commit: &Commit,
        now: Timestamp,
    ) -> Answer<Result<Receipt>> {
        if let Err(invalid) = commit.check(self.limits) {
            return Ok(Err(invalid.into()));
        }
        let moment = self.moment(ns, now)?;
        let mut loaded = Rows::default();
        let decided = loop {
            match decide::batch(std::slice::from_ref(commit), &mut loaded, moment) {
                Ok(decided) => {
                    break decided
                        .into_iter()
                        .next()
                        .unwrap_or_else(|| Err(undecided()));
                }
                Err(missing) => {
                    for row in missing {
                        match self.load(ns, row, &mut loaded) {
                            Ok(()) => {}
                            // Nothing was written yet: a row that cannot be read fails those who
                            // need it, and nobody else.
                            Err(Fault::Corrupt(what)) => {
                                return Ok(Err(Error::Corrupt(what.into())));
                            }
                            Err(fault) => return Err(fault),
                        }
                    }
                }
            }
        };
        let applied = match decided {
            Ok(applied) => applied,
            Err(error) => return Ok(Err(error)),
        };
        if applied.receipt.repeated {
            return Ok(Ok(applied.receipt));
        }
        self.pending(ns, now)?.revision = moment.revision;
        self.apply(ns, commit.id, applied, loaded, now).map(Ok)
    }

    /// Commits and renews, in this order.
    pub(crate) fn exchange(
        &mut self,
        ns: i64,
        exchange: &Exchange,
        now: Timestamp,
    ) -> Answer<Exchanged> {
        let commits = (exchange.commits.iter())
            .map(|commit| self.commit(ns, commit, now))
            .collect::<Answer<Vec<_>>>()?;
        let renewals = match &exchange.renew {
            None => None,
            Some(renew) => Some(match renew.check(self.limits) {
                Ok(()) => Ok(self.renew(ns, renew, now)?),
                Err(invalid) => Err(invalid.into()),
            }),
        };
        Ok(Exchanged {
            commits,
            renewals,
            claimed: None,
        })
    }

    /// The number of a namespace, which is new if need be.
    pub(crate) fn namespace(&self, name: &Namespace) -> Answer<i64> {
        let found = self
            .connection
            .prepare_cached("SELECT ns FROM namespaces WHERE name = ?")?
            .query_row([name.as_str()], |row| row.get(0))
            .optional()?;
        if let Some(ns) = found {
            return Ok(ns);
        }
        self.connection
            .prepare_cached("INSERT INTO namespaces (name) VALUES (?)")?
            .execute([name.as_str()])?;
        Ok(self.connection.last_insert_rowid())
    }

    /// What a decision about this namespace depends on.
    pub(crate) fn moment(&mut self, ns: i64, now: Timestamp) -> Answer<Moment<'a>> {
        Ok(Moment {
            now,
            revision: self.pending(ns, now)?.revision.next(),
            limits: self.limits,
        })
    }

    fn pending(&mut self, ns: i64, now: Timestamp) -> Answer<&mut Pending> {
        if !self.namespaces.contains_key(&ns) {
            let (revision, position, lines, indexes): (i64, i64, i64, i64) = self
                .connection
                .prepare_cached(
                    "SELECT revision, position, lines, indexes FROM namespaces WHERE ns = ?",
                )?
                .query_row([ns], |row| row.try_into())?;
            let indexes = match indexes {
                0 => Arc::default(),
                _ => indexes::known(self.connection, ns)?,
            };
            let revision = Revision::new(unsigned(revision)?);
            let pending = Pending {
                from: revision,
                revision,
                position: Position::new(unsigned(position)?),
                lines,
                indexes,
                at: now,
                changes: Vec::new(),
                bytes: 0,
                wake: Wake::default(),
                counts: BTreeMap::new(),
                left: BTreeMap::new(),
            };
            self.namespaces.insert(ns, pending);
        }
        self.namespaces
            .get_mut(&ns)
            .ok_or_else(|| Fault::Corrupt(format!("namespace {ns} is not open")))
    }

    fn apply(
        &mut self,
        ns: i64,
        id: Option<CommitId>,
        applied: Applied,
        written: Rows,
        now: Timestamp,
    ) -> Answer<Receipt> {
        let indexes = self.indexes(ns, now)?;
        for row in written.records.into_written() {
            let after = row.after.as_ref();
            rows::put_record(self.connection, ns, &row.key, after)?;
            self.index_record(ns, &indexes, &row.key, row.before.as_ref(), after)?;
        }
        for row in written.keys.into_written() {
            rows::put_key(self.connection, ns, &row.key, row.after)?;
        }
        for row in written.tasks.into_written() {
            self.put_task(ns, row.before.as_deref(), row.after, now)?;
        }
        for row in written.groups.into_written() {
            rows::put_group(self.connection, ns, &row.key, row.after.as_ref())?;
        }
        for (task, line) in &applied.lines {
            self.append_line(ns, *task, line, now)?;
        }
        let position = self.tell(ns, applied.changes, now)?;
        let receipt = Receipt {
            position,
            ..applied.receipt
        };
        if let Some(id) = id {
            self.connection
                .prepare_cached("INSERT INTO commits VALUES (?, ?, ?, ?)")?
                .execute(params![
                    ns,
                    Id(id.as_u128()),
                    now.as_micros(),
                    encode(&receipt)?
                ])?;
        }
        Ok(receipt)
    }

    /// Counts what a task was and is. Lanes that lose a task may have lost their last one.
    pub(crate) fn count_task(
        &mut self,
        ns: i64,
        lane: (i64, &Lane),
        (was, is): (Option<Status>, Option<Status>),
        now: Timestamp,
    ) -> Answer<()> {
        if was == is {
            return Ok(());
        }
        let (number, lane) = lane;
        let pending = self.pending(ns, now)?;
        if is.is_none() {
            (pending.left.entry(number)).or_insert_with(|| lane.clone());
        }
        for (status, by) in [(was, -1), (is, 1)] {
            if let Some(status) = status {
                *pending.counts.entry((number, status)).or_default() += by;
            }
        }
        Ok(())
    }

    /// Keeps changes for the entry of this transaction, and says where that will be.
    pub(crate) fn tell(
        &mut self,
        ns: i64,
        changes: Vec<Change>,
        now: Timestamp,
    ) -> Answer<Option<Position>> {
        if changes.is_empty() {
            return Ok(None);
        }
        let connection = self.connection;
        let pending = self.pending(ns, now)?;
        pending.at = pending.at.max(now);
        pending.wake.absorb(&Wake::of(&changes));
        pending.bytes += changes.iter().map(Change::size).sum::<usize>();
        pending.changes.extend(changes);
        let position = pending.position.next();
        if pending.bytes > ENTRY_BYTES_MAX {
            pending.append(connection, ns)?;
        }
        Ok(Some(position))
    }

    /// Uses up the revision that [`moment`](Self::moment) gave.
    pub(crate) fn use_revision(&mut self, ns: i64, now: Timestamp) -> Answer<()> {
        let pending = self.pending(ns, now)?;
        pending.revision = pending.revision.next();
        Ok(())
    }

    /// The number of a lane, which is new if need be.
    pub(crate) fn lane(&mut self, ns: i64, lane: &Lane) -> Answer<i64> {
        if let Some(number) = self.lanes.get(ns, lane) {
            return Ok(number);
        }
        let number = match find_lane(self.connection, ns, lane)? {
            Some(number) => number,
            None => {
                self.connection
                    .prepare_cached("INSERT INTO lanes (ns, queue, kind) VALUES (?, ?, ?)")?
                    .execute(params![ns, lane.queue.as_str(), lane.kind.as_str()])?;
                self.new_lanes.push((ns, lane.clone()));
                self.connection.last_insert_rowid()
            }
        };
        self.lanes.insert(ns, lane.clone(), number);
        Ok(number)
    }

    /// The declared indexes of a namespace.
    pub(crate) fn indexes(&mut self, ns: i64, now: Timestamp) -> Answer<Arc<[Known]>> {
        Ok(self.pending(ns, now)?.indexes.clone())
    }

    /// Takes notice of what was declared or dropped.
    pub(crate) fn indexes_changed(&mut self, ns: i64, now: Timestamp) -> Answer<()> {
        let indexes = indexes::known(self.connection, ns)?;
        self.connection
            .prepare_cached("UPDATE namespaces SET indexes = ?2 WHERE ns = ?1")?
            .execute(params![ns, indexes.len() as i64])?;
        self.pending(ns, now)?.indexes = indexes;
        Ok(())
    }

    /// The number of the last line of any log.
    pub(crate) fn last_line(&mut self, ns: i64, now: Timestamp) -> Answer<i64> {
        Ok(self.pending(ns, now)?.lines)
    }

    /// Appends a line to the log of a task, unless the log has a line of this id. One of a task that had
    /// the id before does not count.
    fn append_line(&mut self, ns: i64, task: TaskId, line: &Line, now: Timestamp) -> Answer<()> {
        let pending = self.pending(ns, now)?;
        pending.lines += 1;
        pending.wake.logs = true;
        let number = pending.lines;
        self.connection
            .prepare_cached(APPEND_LINE)?
            .execute(params![
                ns,
                Id::from(task),
                number,
                Id(line.line.id.as_u128()),
                line.line.level as i64,
                line.at.as_micros(),
                encode(line)?,
            ])?;
        Ok(())
    }

    /// Writes what is written once. What each namespace's listeners should look at.
    pub(crate) fn finish(&mut self) -> Answer<Vec<Told>> {
        self.flush()?;
        let mut told = Vec::new();
        for (ns, mut pending) in std::mem::take(&mut self.namespaces) {
            for ((lane, status), by) in std::mem::take(&mut pending.counts) {
                if by != 0 {
                    self.count(lane, status, by)?;
                }
            }
            for (number, lane) in std::mem::take(&mut pending.left) {
                self.remove_lane_if_empty(ns, number, lane)?;
            }
            pending.append(self.connection, ns)?;
            self.connection
                .prepare_cached(
                    "UPDATE namespaces SET revision = ?2, position = ?3, lines = ?4 WHERE ns = ?1",
                )?
                .execute(params![
                    ns,
                    signed(pending.revision.get()),
                    signed(pending.position.get()),
                    pending.lines,
                ])?;
            let history = std::mem::take(&mut pending.wake.history);
            told.push(Told {
                ns,
                from: pending.from,
                to: pending.revision,
                wake: pending.wake,
                history,
            });
        }
        Ok(told)
    }

    fn count(&self, lane: i64, status: Status, by: i64) -> Answer<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO counts VALUES (?1, ?2, ?3) \
                 ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks",
            )?
            .execute(params![lane, status_code(status), by])?;
        Ok(())
    }

    /// Removes a lane that has no tasks, whatever their status. Called when all tasks of the
    /// transaction are counted.
    fn remove_lane_if_empty(&mut self, ns: i64, number: i64, lane: Lane) -> Answer<()> {
        let has_tasks: bool = self
            .connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM counts WHERE lane = ? AND tasks > 0)")?
            .query_row([number], |row| row.get(0))?;
        if !has_tasks {
            for remove in [
                "DELETE FROM counts WHERE lane = ?",
                "DELETE FROM lanes WHERE lane = ?",
            ] {
                self.connection.prepare_cached(remove)?.execute([number])?;
            }
            self.lanes.remove(ns, &lane);
        }
        Ok(())
    }

    /// Forgets what is undone with the transaction.
    pub(crate) fn forget(self) {
        self.cache.clear();
        for (ns, lane) in self.new_lanes {
            self.lanes.remove(ns, &lane);
        }
    }
}

fn undecided() -> Error {
    Error::Corrupt("a commit was not decided".into())
}

/// The number of a lane, if it has one.
pub(crate) fn find_lane(connection: &Connection, ns: i64, lane: &Lane) -> Answer<Option<i64>> {
    Ok(connection
        .prepare_cached("SELECT lane FROM lanes WHERE ns = ? AND queue = ? AND kind = ?")?
        .query_row(
            params![ns, lane.queue.as_str(), lane.kind.as_str()],
            |row| row.get(0),
        )
        .optional()?)
}
