//! Removes what has been kept long enough.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::limits::MEMORY;
use plimsoll_core::store::{Compact, Compacted};
use plimsoll_core::task::Status;
use rusqlite::params;

use crate::claim::readable;
use crate::codec::{Id, status_code};
use crate::error::Answer;
use crate::rows;
use crate::transaction::Transaction;

/// A table with an index by age.
struct Aged {
    name: &'static str,
    id: &'static str,
    at: &'static str,
}

const GROUPS: Aged = Aged {
    name: "groups",
    id: "id",
    at: "drained_at",
};
const COMMITS: Aged = Aged {
    name: "commits",
    id: "id",
    at: "at",
};
const CLAIMS: Aged = Aged {
    name: "claims",
    id: "request",
    at: "at",
};
/// What is remembered for ten minutes goes after them, not at their end.
const TICK: Duration = Duration::from_micros(1);

impl Transaction<'_> {
    pub(crate) fn compact(
        &mut self,
        ns: i64,
        compact: &Compact,
        now: Timestamp,
    ) -> Answer<Compacted> {
        let mut done = Compacted::default();
        for (status, age) in &compact.tasks {
            self.compact_tasks(ns, *status, *age, compact.limit, now, &mut done)?;
        }
        if let Some(age) = compact.groups {
            let cutoff = now.saturating_minus(age);
            done.groups = self.remove_old(&GROUPS, ns, cutoff, compact.limit, &mut done)?;
        }
        if let Some(age) = compact.history {
            self.compact_history(ns, now.saturating_minus(age), compact.limit, &mut done)?;
        }
        let cutoff = now.saturating_minus(MEMORY + TICK);
        for table in [&COMMITS, &CLAIMS] {
            done.remembered += self.remove_old(table, ns, cutoff, compact.limit, &mut done)?;
        }
        Ok(done)
    }

    /// Removes up to a limit what is at least as old, the oldest first, and says if more is left.
    fn remove_old(
        &self,
        table: &Aged,
        ns: i64,
        cutoff: Timestamp,
        limit: usize,
        done: &mut Compacted,
    ) -> Answer<u64> {
        let Aged { name, id, at } = table;
        let remove = format!(
            "DELETE FROM {name} WHERE ns = ?1 AND {id} IN \
             (SELECT {id} FROM {name} WHERE ns = ?1 AND {at} <= ?2 ORDER BY {at} LIMIT ?3)"
        );
        let removed = self.connection.prepare_cached(&remove)?.execute(params![
            ns,
            cutoff.as_micros(),
            limit as i64
        ])?;
        let left = format!("SELECT EXISTS (SELECT 1 FROM {name} WHERE ns = ?1 AND {at} <= ?2)");
        done.more |= self
            .connection
            .prepare_cached(&left)?
            .query_row(params![ns, cutoff.as_micros()], |row| row.get::<_, bool>(0))?;
        Ok(removed as u64)
    }

    fn compact_tasks(
        &mut self,
        ns: i64,
        status: Status,
        age: Duration,
        limit: usize,
        now: Timestamp,
        done: &mut Compacted,
    ) -> Answer<()> {
        let cutoff = now.saturating_minus(age).as_micros();
        let left = limit.saturating_sub(done.tasks as usize);
        let mut statement = self.connection.prepare_cached(
            "SELECT id FROM done INDEXED BY done_by_age \
             WHERE ns = ? AND status = ? AND removable_from <= ? ORDER BY removable_from LIMIT ?",
        )?;
        let mut old = statement.query(params![ns, status_code(status), cutoff, left as i64 + 1])?;
        let mut victims = Vec::new();
        while let Some(row) = old.next()? {
            if victims.len() == left {
                done.more = true;
                break;
            }
            let id = row.get::<_, Id>(0)?.task();
            victims.extend(readable(rows::task(self.connection, ns, id))?);
        }
        drop(old);
        for task in victims {
            if let Some((key, _)) = &task.spec.key
                && rows::key_holder(self.connection, ns, key)? == Some(task.id())
            {
                rows::put_key(self.connection, ns, key, None)?;
            }
            self.put_task(ns, Some(&task), None, now)?;
            done.tasks += 1;
        }
        Ok(())
    }

    fn compact_history(
        &self,
        ns: i64,
        cutoff: Timestamp,
        limit: usize,
        done: &mut Compacted,
    ) -> Answer<()> {
        let mut statement = self.connection.prepare_cached(
            "SELECT position, at FROM history WHERE ns = ? ORDER BY position LIMIT ?",
        )?;
        let mut oldest = statement.query(params![ns, limit as i64 + 1])?;
        let mut last = None;
        while let Some(row) = oldest.next()? {
            if row.get::<_, i64>(1)? > cutoff.as_micros() {
                break;
            }
            if done.entries == limit as u64 {
                done.more = true;
                break;
            }
            last = Some(row.get::<_, i64>(0)?);
            done.entries += 1;
        }
        drop(oldest);
        if let Some(position) = last {
            self.connection
                .prepare_cached("DELETE FROM history WHERE ns = ? AND position <= ?")?
                .execute(params![ns, position])?;
            self.connection
                .prepare_cached("UPDATE namespaces SET compacted = ?2 WHERE ns = ?1")?
                .execute(params![ns, position])?;
        }
        Ok(())
    }
}
