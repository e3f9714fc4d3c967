//! Tasks by an indexed selector.

use plimsoll_core::store::{Cursor, List, Page, Pager, Selector};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{Error, IdempotencyKey, TaskId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::{Places, page};
use super::{after, end_of, readable, task_at};
use crate::call::{Call, Sql, params};
use crate::codec::{At, Id, column, lane_number, status_code};
use crate::error::Answer;
use crate::session::Session;
use crate::statement::sql_file;
use crate::task_row::TASK_COLUMNS;

const BY_TEXT: &[Type] = &[Type::INT4, Type::TEXT, Type::UUID, Type::INT8];
const BY_LANE: &[Type] = &[Type::INT4, Type::INT8, Type::UUID, Type::INT8, Type::INT2];

/// Tasks of a group in id order.
pub(crate) static MEMBERS: Sql = Sql {
    text: sql_file!("read/members"),
    types: BY_TEXT,
};
/// Likewise, of an owner.
pub(crate) static OWNED: Sql = Sql {
    text: sql_file!("read/owned"),
    types: BY_TEXT,
};
/// Tasks of a lane that have not ended, in id order. Those of another status come without their spec.
pub(crate) static WAITING: Sql = Sql {
    text: sql_file!("read/waiting"),
    types: BY_LANE,
};
/// Likewise, of those that are claimed.
pub(crate) static CLAIMED: Sql = Sql {
    text: sql_file!("read/claimed"),
    types: BY_LANE,
};
/// Likewise, of those that have ended.
pub(crate) static ENDED: Sql = Sql {
    text: sql_file!("read/ended"),
    types: BY_LANE,
};
/// Likewise, of those that have not ended well, which have an index of their own.
pub(crate) static ENDED_BADLY: Sql = Sql {
    text: sql_file!("read/ended_badly"),
    types: BY_LANE,
};
/// Tasks that keys were last given to, in key order.
pub(crate) static KEYS: Sql = Sql {
    text: sql_file!("read/keys"),
    types: &[Type::INT4, Type::TEXT, Type::TEXT, Type::INT8],
};
/// Finished tasks by when retention began to count for them.
pub(crate) static KEPT: Sql = Sql {
    text: sql_file!("read/kept"),
    types: &[
        Type::INT4,
        Type::INT2,
        Type::TIMESTAMPTZ,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::UUID,
        Type::INT8,
    ],
};

pub(crate) async fn list(
    session: &mut Session,
    ns: i32,
    list: &List,
    now: Timestamp,
) -> Answer<Page<Task>> {
    let by_id = |sql, of| ById { ns, sql, of, list };
    match &list.selector {
        Selector::Lane(lane, status) => {
            let of = Of::Lane(lane_number(ns, lane), status_code(*status));
            pages(session, &by_id(of_status(*status), of), list, by_id_place).await
        }
        Selector::Group(group) => {
            let members = by_id(&MEMBERS, Of::Text(group.as_str()));
            pages(session, &members, list, by_id_place).await
        }
        Selector::Owner(owner) => {
            let owned = by_id(&OWNED, Of::Text(owner.as_str()));
            pages(session, &owned, list, by_id_place).await
        }
        Selector::Key(prefix) => {
            let prefix = prefix.as_str();
            let keyed = ByKey { ns, prefix, list };
            let place = |text: &str| IdempotencyKey::new(text).ok().map(|key| key.to_string());
            pages(session, &keyed, list, place).await
        }
        Selector::KeptFor(status, age) => {
            let (status, upto) = (status_code(*status), now.saturating_minus(*age));
            let kept = Kept {
                ns,
                status,
                upto,
                list,
            };
            pages(session, &kept, list, kept_place).await
        }
    }
}

async fn pages<P: Places<Shown = Task>>(
    session: &mut Session,
    places: &P,
    list: &List,
    place: impl Fn(&str) -> Option<P::Place>,
) -> Answer<Page<Task>> {
    let last = Cursor::place(list.cursor.as_ref(), &list.scope(), place).map_err(Error::from)?;
    let pager = Pager::new(list.scope(), list.limit);
    page(session, places, last, pager, list.limit).await
}

fn by_id_place(text: &str) -> Option<TaskId> {
    TaskId::parse(text).ok()
}

fn of_status(status: Status) -> &'static Sql {
    match status {
        Status::Scheduled | Status::Pending => &WAITING,
        Status::Claimed => &CLAIMED,
        Status::Completed => &ENDED,
        Status::Failed | Status::Cancelled => &ENDED_BADLY,
    }
}

fn shown(task: Option<Task>, list: &List) -> (Option<Task>, usize) {
    let size = task.as_ref().map_or(0, Task::size);
    (task.filter(|task| list.filter.matches(task)), size)
}

/// What tasks in id order have in common.
enum Of<'s> {
    Text(&'s str),
    /// The number of the lane, and the status.
    Lane(i64, i16),
}

struct ById<'s> {
    ns: i32,
    sql: &'static Sql,
    of: Of<'s>,
    list: &'s List,
}

impl Places for ById<'_> {
    type Place = TaskId;
    type Shown = Task;

    fn call(&self, last: Option<&TaskId>, rows: i64) -> Option<Call> {
        let from = match last {
            Some(last) => Id(last.as_u128().checked_add(1)?),
            None => Id(0),
        };
        let params = match self.of {
            Of::Text(text) => params![self.ns, text.to_owned(), from, rows],
            Of::Lane(lane, status) => params![self.ns, lane, from, rows, status],
        };
        Some(Call::new(self.sql, params))
    }

    fn place(&self, row: &Row) -> Answer<TaskId> {
        Ok(column::<Id>(row, TASK_COLUMNS)?.task())
    }

    fn text(place: &TaskId) -> String {
        place.to_string()
    }

    fn read(&self, row: &Row) -> Answer<(Option<Task>, usize)> {
        Ok(shown(task_at(row)?, self.list))
    }
}

struct ByKey<'s> {
    ns: i32,
    prefix: &'s str,
    list: &'s List,
}

impl Places for ByKey<'_> {
    type Place = String;
    type Shown = Task;

    fn call(&self, last: Option<&String>, rows: i64) -> Option<Call> {
        let from = last.map_or(self.prefix.to_owned(), |key| after(key));
        Some(Call::new(
            &KEYS,
            params![self.ns, from, end_of(self.prefix), rows],
        ))
    }

    fn place(&self, row: &Row) -> Answer<String> {
        column(row, TASK_COLUMNS)
    }

    fn text(place: &String) -> String {
        place.clone()
    }

    fn read(&self, row: &Row) -> Answer<(Option<Task>, usize)> {
        Ok(shown(task_at(row)?, self.list))
    }
}

/// What cannot be read is left out: it must not keep others from being found.
struct Kept<'s> {
    ns: i32,
    status: i16,
    upto: Timestamp,
    list: &'s List,
}

/// Where a task stands among those that were kept: since when, its lane and id.
type KeptPlace = (Timestamp, i64, TaskId);

impl Places for Kept<'_> {
    type Place = KeptPlace;
    type Shown = Task;

    fn call(&self, last: Option<&KeptPlace>, rows: i64) -> Option<Call> {
        let first = (Timestamp::MIN, i64::MIN, TaskId::from_u128(0));
        let (since, lane, id) = *last.unwrap_or(&first);
        let place = params![At(since), lane, Id::from(id), rows];
        let mut params = params![self.ns, self.status, At(self.upto)];
        params.extend(place);
        Some(Call::new(&KEPT, params))
    }

    fn place(&self, row: &Row) -> Answer<KeptPlace> {
        let At(since) = column(row, TASK_COLUMNS)?;
        let id = column::<Id>(row, TASK_COLUMNS + 2)?.task();
        Ok((since, column(row, TASK_COLUMNS + 1)?, id))
    }

    fn text((since, lane, id): &KeptPlace) -> String {
        format!("{} {lane} {id}", since.as_micros())
    }

    fn read(&self, row: &Row) -> Answer<(Option<Task>, usize)> {
        Ok(shown(readable(task_at(row))?, self.list))
    }
}

fn kept_place(text: &str) -> Option<KeptPlace> {
    let mut parts = text.splitn(3, ' ');
    let since = Timestamp::from_micros(parts.next()?.parse().ok()?).ok()?;
    let lane = parts.next()?.parse().ok()?;
    Some((since, lane, TaskId::parse(parts.next()?).ok()?))
}
