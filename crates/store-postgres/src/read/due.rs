//! What time has made ready for a decision.

use plimsoll_core::limits::ROWS_EXAMINED_MAX;
use plimsoll_core::store::DueNow;
use plimsoll_core::{Fence, Key, TaskId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::task_at;
use crate::call::{Call, Sql, params};
use crate::codec::{At, Id, column, unsigned};
use crate::error::{Answer, Fault};
use crate::record_row::record_from;
use crate::session::Session;
use crate::statement::sql_file;
use crate::task_row::TASK_COLUMNS;

/// How many claims are looked at, at first. Of those whose processes died there may be thousands, with a hundred tasks
/// each of which nothing is left: whoever looked at all of them at once would not come to an end where connections
/// do not last for long.
const CLAIMS_AT_FIRST: i64 = 32;

/// Namespace, now, how many.
const OVERDUE: &[Type] = &[Type::INT4, Type::TIMESTAMPTZ, Type::INT8];

/// Scheduled tasks that are due.
pub(crate) static SCHEDULED: Sql = Sql {
    text: sql_file!("read/scheduled"),
    types: OVERDUE,
};
pub(crate) static EXPIRED: Sql = Sql {
    text: sql_file!("read/expired"),
    types: &[Type::INT4, Type::TIMESTAMPTZ, Type::INT8, Type::INT8],
};
pub(crate) static RECORDS: Sql = Sql {
    text: "SELECT {record_columns} FROM plimsoll.records r \
           WHERE r.ns = $1 AND r.expires_at IS NOT NULL AND r.expires_at <= $2 \
           ORDER BY r.expires_at LIMIT $3",
    types: OVERDUE,
};
/// How many claims are over; one more than are looked at if there are more.
pub(crate) static OVER: Sql = Sql {
    text: "SELECT count(*) FROM (\
           SELECT FROM plimsoll.claims WHERE ns = $1 AND until <= $2 LIMIT $3 + 1) o",
    types: OVERDUE,
};
/// When the next of each kind is due.
pub(crate) static NEXT: Sql = Sql {
    text: sql_file!("read/next"),
    types: OVERDUE,
};
/// Closes claims that are over and of which nothing is left.
pub(crate) static CLOSE_OVER: Sql = Sql {
    text: sql_file!("read/close_over"),
    types: OVERDUE,
};

/// What is overdue. Tasks and records that cannot be read come last, and only as far as the limit
/// leaves room for them: nobody can decide about them, and they must not stand before others.
pub(crate) async fn due(
    session: &mut Session,
    ns: i32,
    limit: usize,
    now: Timestamp,
) -> Answer<DueNow> {
    // One more tells whether there are more.
    let mut rows = limit.saturating_add(1);
    let mut claims = CLAIMS_AT_FIRST;
    loop {
        let of = |sql, count: i64| Call::new(sql, params![ns, At(now), count]);
        // Claims are counted before they are looked at: what others close meanwhile is not taken for the end.
        let calls = [
            of(&OVER, claims),
            of(&SCHEDULED, rows as i64),
            Call::new(&EXPIRED, params![ns, At(now), rows as i64, claims]),
            of(&RECORDS, rows as i64),
            of(&NEXT, claims),
        ];
        let found = session.run(&calls).await?;
        let scheduled = overdue(&found[1], rows, limit, task_id, is_task)?;
        let expired = overdue(&found[2], rows, limit, attempt, is_task)?;
        let records = overdue(&found[3], rows, limit, record_key, |row| {
            record_from(row, 0).map(drop)
        })?;
        // So many rows that cannot be read end the search that it does not take for ever.
        let hidden = scheduled.hides || expired.hides || records.hides;
        if hidden && rows < limit.saturating_add(ROWS_EXAMINED_MAX) {
            rows = rows
                .saturating_mul(4)
                .min(limit.saturating_add(ROWS_EXAMINED_MAX));
            continue;
        }
        let nothing = scheduled.readable + expired.readable + records.readable == 0;
        let over: i64 = column(&found[0][0], 0)?;
        let closed = match over {
            0 => 0,
            _ => close_over(session, ns, claims, now).await?,
        };
        let more_claims = over > claims && !expired.more;
        if more_claims && closed == 0 {
            // These hold something, or others have them locked: there is room for what those behind them hold.
            claims = claims.saturating_mul(4);
            continue;
        }
        if more_claims && nothing {
            claims = CLAIMS_AT_FIRST;
            continue;
        }
        let next: Option<At> = column(&found[4][0], 0)?;
        let next = next.filter(|_| nothing).map(|at| at.0);
        return Ok(DueNow {
            more: scheduled.more || expired.more || records.more || more_claims,
            scheduled: scheduled.rows,
            expired: expired.rows,
            records: records.rows,
            groups: Vec::new(),
            // What waits for something else has no time of its own.
            next: next.filter(|at| *at < Timestamp::MAX),
        });
    }
}

/// Closes those of the first claims that are over of which nothing is left. Answers how many.
async fn close_over(session: &mut Session, ns: i32, claims: i64, now: Timestamp) -> Answer<i64> {
    let close = Call::new(&CLOSE_OVER, params![ns, At(now), claims]);
    match session.run(&[close]).await {
        Ok(found) => column(&found[0][0], 0),
        Err(fault @ Fault::Unreachable(_)) => Err(fault),
        Err(fault) if fault.breaks_connection() => Err(fault),
        // What is due can be read where nothing can be written.
        Err(fault) => {
            tracing::debug!(?fault, "claims that are over stay open");
            Ok(0)
        }
    }
}

/// The rows of an index by time that are overdue.
struct Overdue<T> {
    rows: Vec<T>,
    /// How many of these can be read: the first ones.
    readable: usize,
    more: bool,
    /// Whether rows that cannot be read stand before others.
    hides: bool,
}

/// Sorts out what was found, of which `asked` were asked for. `name` says what a row is, and `read`
/// if it can be read.
fn overdue<T>(
    found: &[Row],
    asked: usize,
    limit: usize,
    name: impl Fn(&Row) -> Answer<T>,
    read: impl Fn(&Row) -> Answer<()>,
) -> Answer<Overdue<T>> {
    let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
    for row in found {
        match read(row) {
            Ok(()) => rows.push(name(row)?),
            Err(Fault::Corrupt(what)) => {
                tracing::warn!(what, "what is due cannot be read");
                unreadable.push(name(row)?);
            }
            Err(fault) => return Err(fault),
        }
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let readable = rows.len();
    rows.extend(unreadable);
    rows.truncate(limit);
    Ok(Overdue {
        rows,
        readable,
        more,
        hides: found.len() == asked && !more,
    })
}

fn is_task(row: &Row) -> Answer<()> {
    match task_at(row)? {
        Some(_) => Ok(()),
        None => {
            let id = column::<Id>(row, TASK_COLUMNS)?.task();
            Err(Fault::Corrupt(format!("task {id} has no spec")))
        }
    }
}

fn task_id(row: &Row) -> Answer<TaskId> {
    Ok(column::<Id>(row, TASK_COLUMNS)?.task())
}

fn attempt(row: &Row) -> Answer<(TaskId, Fence)> {
    let fence = Fence::new(unsigned(column(row, TASK_COLUMNS + 1)?)?);
    Ok((task_id(row)?, fence))
}

fn record_key(row: &Row) -> Answer<Key> {
    Key::new(column::<&str>(row, 0)?).map_err(|error| Fault::Corrupt(error.to_string()))
}
