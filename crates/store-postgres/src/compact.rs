//! Removes what has been kept long enough.
//!
//! Several processes may do so at once. Rows that somebody else has locked are left alone: another
//! process is removing them, or a writer brings them back.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::limits::{MEMORY, ROWS_EXAMINED_MAX};
use plimsoll_core::store::{Compact, Compacted};
use plimsoll_core::task::{Status, Task};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::apply::Apply;
use crate::call::{BEGIN, COMMIT, Call, Sql, params};
use crate::codec::{At, Id, column, status_code};
use crate::error::Answer;
use crate::indexes::remove_dropped;
use crate::read::{HORIZON, readable, task_at};
use crate::session::Session;
use crate::statement::sql_file;

/// How many lines whose tasks are gone go in one transaction.
const LINES_REMOVED_MAX: i64 = 10_000;
/// How many rows of counts are summed up in one transaction.
const COUNTS_FOLDED_MAX: i64 = 50_000;
/// What is remembered for ten minutes goes after them, not at their end.
const TICK: Duration = Duration::from_micros(1);

const OLD: &[Type] = &[Type::INT4, Type::TIMESTAMPTZ, Type::INT8];

/// Finished tasks, the oldest first.
pub(crate) static VICTIMS: Sql = Sql {
    text: sql_file!("compact/victims"),
    types: &[Type::INT4, Type::INT2, Type::TIMESTAMPTZ, Type::INT8],
};
const BY_KEYS: &[Type] = &[Type::INT4, Type::TEXT_ARRAY];
pub(crate) static KEYS: Sql = Sql {
    text: "SELECT key, task FROM plimsoll.keys WHERE ns = $1 AND key = ANY($2)",
    types: BY_KEYS,
};
pub(crate) static FREE_KEYS: Sql = Sql {
    text: "SELECT key, task FROM plimsoll.keys WHERE ns = $1 AND key = ANY($2) \
           FOR UPDATE SKIP LOCKED",
    types: BY_KEYS,
};
pub(crate) static DELETE_KEYS: Sql = Sql {
    text: "DELETE FROM plimsoll.keys WHERE ns = $1 AND key = ANY($2)",
    types: BY_KEYS,
};

/// Removes the oldest rows of a table and answers how many. Inputs: namespace, the youngest moment,
/// how many.
macro_rules! removal {
    ($table:literal, $at:literal) => {
        removal!($table, $at, $at)
    };
    ($table:literal, $old:literal, $at:literal) => {
        Sql {
            text: concat!(
                "-- {table} = ",
                $table,
                "\n-- {old} = ",
                $old,
                "\n-- {at} = ",
                $at,
                "\n{removal}"
            ),
            types: OLD,
        }
    };
}

/// Whether more would go.
macro_rules! rest {
    ($table:literal, $at:literal) => {
        Sql {
            text: concat!(
                "SELECT EXISTS (SELECT FROM ",
                $table,
                " WHERE ns = $1 AND ",
                $at,
                " <= $2)"
            ),
            types: &[Type::INT4, Type::TIMESTAMPTZ],
        }
    };
}

/// A table with an index by age.
pub(crate) struct Aged {
    pub(crate) removal: Sql,
    pub(crate) rest: Sql,
}

pub(crate) static GROUPS: Aged = Aged {
    removal: removal!("plimsoll.groups", "drained_at"),
    rest: rest!("plimsoll.groups", "drained_at"),
};
pub(crate) static LINES: Aged = Aged {
    removal: removal!("plimsoll.logs", "at"),
    rest: rest!("plimsoll.logs", "at"),
};
pub(crate) static COMMITS: Aged = Aged {
    removal: removal!("plimsoll.commits", "at"),
    rest: rest!("plimsoll.commits", "at"),
};
pub(crate) static CLAIMS: Aged = Aged {
    removal: removal!("plimsoll.claims", "until IS NULL AND at", "at"),
    rest: rest!("plimsoll.claims", "until IS NULL AND at"),
};

/// One process at a time removes history.
static OLDEST: Sql = Sql {
    text: "SELECT compacted FROM plimsoll.namespaces WHERE ns = $1 FOR UPDATE SKIP LOCKED",
    types: &[Type::INT4],
};
pub(crate) static ENTRIES: Sql = Sql {
    text: "SELECT position, at FROM plimsoll.changes WHERE ns = $1 AND position > $2 \
           ORDER BY position LIMIT $3",
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
pub(crate) static DELETE_ENTRIES: Sql = Sql {
    text: "DELETE FROM plimsoll.changes WHERE ns = $1 AND position <= $2",
    types: &[Type::INT4, Type::INT8],
};
static COMPACTED: Sql = Sql {
    text: "UPDATE plimsoll.namespaces SET compacted = $2 WHERE ns = $1",
    types: &[Type::INT4, Type::INT8],
};

/// Removes lines whose task is gone and answers how many.
pub(crate) static REMOVE_ORPHANS: Sql = Sql {
    text: sql_file!("compact/remove_orphans"),
    types: &[Type::INT4, Type::INT8],
};
pub(crate) static FORGET_ORPHANS: Sql = Sql {
    text: sql_file!("compact/forget_orphans"),
    types: &[Type::INT4, Type::INT8],
};
pub(crate) static ANY_ORPHANS: Sql = Sql {
    text: "SELECT EXISTS (SELECT FROM plimsoll.orphans WHERE ns = $1)",
    types: &[Type::INT4],
};

/// Sums up what transactions have added to the counts, and answers of how many rows.
pub(crate) static FOLD: Sql = Sql {
    text: sql_file!("compact/fold"),
    types: &[Type::INT4, Type::INT8],
};

pub(crate) async fn compact(
    session: &mut Session,
    ns: i32,
    compact: &Compact,
    now: Timestamp,
) -> Answer<Compacted> {
    let answer = compact_all(session, ns, compact, now).await;
    if answer.is_err() {
        session.roll_back().await;
    }
    answer
}

async fn compact_all(
    session: &mut Session,
    ns: i32,
    compact: &Compact,
    now: Timestamp,
) -> Answer<Compacted> {
    let mut done = Compacted::default();
    for (status, age) in &compact.tasks {
        let left = compact.limit.saturating_sub(done.tasks as usize);
        let old = (*status, now.saturating_minus(*age));
        compact_tasks(session, ns, old, left, &mut done).await?;
    }
    if let Some(age) = compact.history {
        let cutoff = now.saturating_minus(age);
        compact_history(session, ns, cutoff, compact.limit, &mut done).await?;
    }
    remove_orphans(session, ns, &mut done).await?;
    done.more |= remove_dropped(session, ns).await?;
    if let Some(age) = compact.groups {
        let cutoff = now.saturating_minus(age);
        done.groups = remove_old(session, &GROUPS, ns, cutoff, compact.limit, &mut done).await?;
    }
    if let Some(age) = compact.logs {
        let cutoff = now.saturating_minus(age);
        done.lines += remove_old(session, &LINES, ns, cutoff, compact.limit, &mut done).await?;
    }
    let cutoff = now.saturating_minus(MEMORY + TICK);
    for table in [&COMMITS, &CLAIMS] {
        done.remembered += remove_old(session, table, ns, cutoff, compact.limit, &mut done).await?;
    }
    let found = session
        .run(&[Call::new(&FOLD, params![ns, COUNTS_FOLDED_MAX])])
        .await?;
    done.more |= column::<i64>(&found[0][0], 0)? == COUNTS_FOLDED_MAX;
    Ok(done)
}

/// Removes finished tasks that were kept long enough, up to a limit, with their keys and logs. They
/// are locked from the moment they are found: one that a writer brings back meanwhile is not.
async fn compact_tasks(
    session: &mut Session,
    ns: i32,
    (status, cutoff): (Status, Timestamp),
    limit: usize,
    done: &mut Compacted,
) -> Answer<()> {
    session.run(&[(&BEGIN).into()]).await?;
    let (mut tasks, more) = victims(session, ns, (status, cutoff), limit).await?;
    done.more |= more;
    if tasks.is_empty() {
        session.roll_back().await;
        return Ok(());
    }
    let keys = free_keys(session, ns, &mut tasks, done).await?;
    let mut apply = Apply::new(ns);
    for task in &tasks {
        apply.task(Some(task), None)?;
    }
    let counts = std::mem::take(&mut apply.counts);
    let mut calls = apply.calls(false)?;
    calls.extend(counts.call(ns));
    calls.push(Call::new(&DELETE_KEYS, params![ns, keys]));
    calls.push((&COMMIT).into());
    session.run(&calls).await?;
    done.tasks += tasks.len() as u64;
    Ok(())
}

/// Locks the oldest tasks that can be read, and says if there are more. What cannot be read stays,
/// and keeps nothing else from going.
async fn victims(
    session: &mut Session,
    ns: i32,
    (status, cutoff): (Status, Timestamp),
    limit: usize,
) -> Answer<(Vec<Task>, bool)> {
    // One more tells whether there are more.
    let mut rows = limit.saturating_add(1);
    let most = limit.saturating_add(ROWS_EXAMINED_MAX);
    loop {
        let params = params![ns, status_code(status), At(cutoff), rows as i64];
        let found = session.run(&[Call::new(&VICTIMS, params)]).await?;
        let tasks = found[0]
            .iter()
            .filter_map(|row| readable(task_at(row)).transpose());
        let mut tasks = tasks.collect::<Answer<Vec<_>>>()?;
        let all = found[0].len() < rows;
        if all || tasks.len() > limit || rows == most {
            let more = tasks.len() > limit;
            tasks.truncate(limit);
            if !all && !more {
                tracing::warn!(rows, "too many finished tasks cannot be read");
            }
            return Ok((tasks, more));
        }
        rows = rows.saturating_mul(4).min(most);
    }
}

/// Locks the keys that stand for these tasks. A task whose key somebody else is about to take is
/// left for later: waiting here for who waits for the task would never end.
async fn free_keys(
    session: &mut Session,
    ns: i32,
    tasks: &mut Vec<Task>,
    done: &mut Compacted,
) -> Answer<Vec<String>> {
    let key_of = |task: &Task| task.spec.key.as_ref().map(|(key, _)| key.to_string());
    let keys: Vec<String> = tasks.iter().filter_map(key_of).collect();
    if keys.is_empty() {
        return Ok(keys);
    }
    let calls = [
        Call::new(&KEYS, params![ns, keys.clone()]),
        Call::new(&FREE_KEYS, params![ns, keys]),
    ];
    let found = session.run(&calls).await?;
    let (held, free) = (holders(&found[0])?, holders(&found[1])?);
    let stands_in = |holders: &BTreeMap<String, Id>, task: &Task| {
        let key = key_of(task).filter(|key| holders.get(key) == Some(&Id::from(task.id())));
        key.is_some()
    };
    let before = tasks.len();
    tasks.retain(|task| stands_in(&free, task) || !stands_in(&held, task));
    done.more |= tasks.len() < before;
    let free = tasks.iter().filter(|task| stands_in(&free, task));
    Ok(free.filter_map(key_of).collect())
}

fn holders(rows: &[Row]) -> Answer<BTreeMap<String, Id>> {
    (rows.iter())
        .map(|row| Ok((column(row, 0)?, column(row, 1)?)))
        .collect()
}

/// Removes history from its old end, and nothing that a reader could not have seen: an entry before
/// it may still be in flight.
async fn compact_history(
    session: &mut Session,
    ns: i32,
    cutoff: Timestamp,
    limit: usize,
    done: &mut Compacted,
) -> Answer<()> {
    let calls = [
        (&BEGIN).into(),
        Call::new(&OLDEST, params![ns]),
        Call::new(&HORIZON, params![ns]),
    ];
    let found = session.run(&calls).await?;
    let Some(row) = found[1].first() else {
        // Another process is at it.
        session.roll_back().await;
        return Ok(());
    };
    let (compacted, upto): (i64, i64) = (column(row, 0)?, column(&found[2][0], 0)?);
    let rows = limit.saturating_add(1) as i64;
    let call = Call::new(&ENTRIES, params![ns, compacted, rows]);
    let found = session.run(&[call]).await?;
    let mut last = None;
    for row in &found[0] {
        let (position, At(at)): (i64, At) = (column(row, 0)?, column(row, 1)?);
        if at > cutoff || position > upto {
            break;
        }
        if done.entries == limit as u64 {
            done.more = true;
            break;
        }
        last = Some(position);
        done.entries += 1;
    }
    let Some(last) = last else {
        session.roll_back().await;
        return Ok(());
    };
    let calls = [
        Call::new(&DELETE_ENTRIES, params![ns, last]),
        Call::new(&COMPACTED, params![ns, last]),
        (&COMMIT).into(),
    ];
    session.run(&calls).await.map(drop)
}

/// Removes a bounded number of lines that tasks have left.
async fn remove_orphans(session: &mut Session, ns: i32, done: &mut Compacted) -> Answer<()> {
    let calls = [
        Call::new(&REMOVE_ORPHANS, params![ns, LINES_REMOVED_MAX]),
        Call::new(&FORGET_ORPHANS, params![ns, LINES_REMOVED_MAX]),
        Call::new(&ANY_ORPHANS, params![ns]),
    ];
    let found = session.run(&calls).await?;
    done.lines += column::<i64>(&found[0][0], 0)?.unsigned_abs();
    done.more |= column::<bool>(&found[2][0], 0)?;
    Ok(())
}

/// Removes up to a limit what is at least as old, the oldest first, and says if more is left.
async fn remove_old(
    session: &mut Session,
    table: &'static Aged,
    ns: i32,
    cutoff: Timestamp,
    limit: usize,
    done: &mut Compacted,
) -> Answer<u64> {
    let calls = [
        Call::new(&table.removal, params![ns, At(cutoff), limit as i64]),
        Call::new(&table.rest, params![ns, At(cutoff)]),
    ];
    let found = session.run(&calls).await?;
    done.more |= column::<bool>(&found[1][0], 0)?;
    Ok(column::<i64>(&found[0][0], 0)?.unsigned_abs())
}
