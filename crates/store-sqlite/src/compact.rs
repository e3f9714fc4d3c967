//! Removes what has been kept long enough.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::limits::{MEMORY, ROWS_EXAMINED_MAX};
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
    /// What tells its rows apart within a namespace.
    id: &'static str,
    at: &'static str,
}

impl Aged {
    /// Removes the oldest rows. Inputs: 1 namespace, 2 the youngest moment, 3 how many.
    fn removal(&self) -> String {
        let Self { name, id, at } = self;
        format!(
            "DELETE FROM {name} WHERE ns = ?1 AND ({id}) IN \
             (SELECT {id} FROM {name} WHERE ns = ?1 AND {at} <= ?2 ORDER BY {at} LIMIT ?3)"
        )
    }

    /// Whether more would go.
    fn rest(&self) -> String {
        let Self { name, at, .. } = self;
        format!("SELECT EXISTS (SELECT 1 FROM {name} WHERE ns = ?1 AND {at} <= ?2)")
    }
}

const GROUPS: Aged = Aged {
    name: "groups",
    id: "id",
    at: "drained_at",
};
const LINES: Aged = Aged {
    name: "logs",
    id: "task, seq",
    at: "at",
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
        self.flush()?;
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
        let (orphans, more) = self.remove_orphans(ns)?;
        done.lines = orphans;
        done.more |= more;
        done.more |= self.remove_dropped(ns)?;
        if let Some(age) = compact.logs {
            let cutoff = now.saturating_minus(age);
            done.lines += self.remove_old(&LINES, ns, cutoff, compact.limit, &mut done)?;
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
        let removed = (self.connection.prepare_cached(&table.removal())?).execute(params![
            ns,
            cutoff.as_micros(),
            limit as i64
        ])?;
        done.more |= self
            .connection
            .prepare_cached(&table.rest())?
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
             WHERE ns = ? AND status = ? AND removable_from <= ? ORDER BY removable_from",
        )?;
        let mut old = statement.query(params![ns, status_code(status), cutoff])?;
        let (mut victims, mut examined) = (Vec::new(), 0);
        // What cannot be read stays, and keeps nothing else from going.
        while let Some(row) = old.next()? {
            if victims.len() == left {
                done.more = true;
                break;
            }
            if examined == ROWS_EXAMINED_MAX {
                tracing::warn!(examined, "too many finished tasks cannot be read");
                break;
            }
            examined += 1;
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
        let mut statement = self.connection.prepare_cached(OLDEST)?;
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
                .prepare_cached(DELETE_OLDEST)?
                .execute(params![ns, position])?;
            self.connection
                .prepare_cached("UPDATE namespaces SET compacted = ?2 WHERE ns = ?1")?
                .execute(params![ns, position])?;
        }
        Ok(())
    }
}

/// The first entries of the history. Inputs: namespace, how many.
pub(crate) const OLDEST: &str =
    "SELECT position, at FROM history WHERE ns = ? ORDER BY position LIMIT ?";
pub(crate) const DELETE_OLDEST: &str = "DELETE FROM history WHERE ns = ? AND position <= ?";

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::plan::{plan, tables};

    /// Finished tasks that were kept long enough are found by status and age, and a page begins
    /// where the one before ended.
    #[test]
    fn what_was_kept_is_found_by_an_index() {
        let connection = tables();
        let steps = plan(&connection, crate::read::KEPT);
        let [by_age] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert!(by_age.contains("COVERING INDEX done_by_age"), "{by_age}");
        assert!(by_age.contains("(removable_from,lane,id)>"), "{by_age}");
    }

    /// What is old is found by its age alone, and removed by its whole key; nothing is sorted.
    #[test]
    fn what_is_old_is_found_by_an_index() {
        let connection = tables();
        for table in [&GROUPS, &LINES, &COMMITS, &CLAIMS] {
            let removal = plan(&connection, &table.removal());
            let key = format!("(ns=? AND {}=?)", table.id.replace(", ", "=? AND "));
            let age = format!("(ns=? AND {}<?)", table.at);
            let [by_key, by_age] = &removal[..] else {
                panic!("{}: {removal:?}", table.name);
            };
            assert!(
                by_key.contains("USING PRIMARY KEY") && by_key.ends_with(&key),
                "{by_key}"
            );
            assert!(by_age.contains("USING COVERING INDEX"), "{by_age}");
            assert!(by_age.ends_with(&age), "{by_age}");
            let rest = plan(&connection, &table.rest());
            assert!(
                matches!(&rest[..], [step] if step.ends_with(&age)),
                "{rest:?}"
            );
        }
    }
}
