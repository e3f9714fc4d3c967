//! What is next in line.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::Claim;
use plimsoll_core::task::{Lane, Priority, Task};
use plimsoll_core::{Error, Fence, TaskId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Param, Sql, params};
use crate::codec::{At, Id, Place, column, lane_number, signed, unsigned};
use crate::error::{Answer, Fault};
use crate::floors::{Began, Floor, Floors, Look};
use crate::session::Session;
use crate::statement::sql_file;
use crate::task_row::{PRIORITY_COLUMN, TASK_COLUMNS, task_from};

pub(crate) static REMEMBERED: Sql = Sql {
    text: "SELECT tasks, coalesce(fences, array_fill(1::bigint, ARRAY[cardinality(tasks)])) FROM plimsoll.claims WHERE ns = $1 AND request = $2",
    types: &[Type::INT4, Type::UUID],
};
/// The next tasks of one lane that nobody else is taking.
pub(crate) static NEXT_OF_LANE: Sql = Sql {
    text: sql_file!("claim/next_of_lane"),
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
/// Likewise, from a floor on for each priority.
pub(crate) static NEXT_ABOVE: Sql = Sql {
    text: sql_file!("claim/next_above"),
    types: &[
        Type::INT4,
        Type::INT8,
        Type::INT8,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
};
/// The next tasks of several lanes that nobody else is taking.
pub(crate) static NEXT_OF_LANES: Sql = Sql {
    text: sql_file!("claim/next_of_lanes"),
    types: &[Type::INT4, Type::INT8_ARRAY, Type::INT8, Type::INT8],
};
/// Likewise, from a floor on for each lane and priority.
pub(crate) static NEXT_ABOVE_OF_LANES: Sql = Sql {
    text: sql_file!("claim/next_above_of_lanes"),
    types: ABOVE,
};
const ABOVE: &[Type] = &[
    Type::INT4,
    Type::INT8_ARRAY,
    Type::INT8,
    Type::INT8,
    Type::INT8_ARRAY,
    Type::INT2_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
];
/// How many heads there are, up to as many as are looked at.
pub(crate) static HEADS_OF_LANES: Sql = Sql {
    text: "SELECT count(*) FROM {heads_of_lanes}",
    types: &[Type::INT4, Type::INT8_ARRAY, Type::INT8, Type::INT8],
};
pub(crate) static HEADS_ABOVE: Sql = Sql {
    text: "SELECT count(*) FROM {heads_above}",
    types: ABOVE,
};
/// When the next task is due, and whether there is something in the inbox.
pub(crate) static NEXT_DUE: Sql = Sql {
    text: sql_file!("claim/next_due"),
    types: &[Type::INT8_ARRAY, Type::INT4],
};

/// How many more heads of lanes than wanted are looked at first: others may be taking some.
const HEADS_MORE: usize = 64;
/// Where a look at several lanes says how many heads there were.
const HEADS_COLUMN: usize = TASK_COLUMNS + 4;
/// How many heads are read in the time of one row.
const HEADS_AT_ONCE: usize = 8;

/// What is next in line.
pub(super) struct Next {
    pub(super) remembered: Option<Vec<(TaskId, Fence)>>,
    /// And where their rows are.
    pub(super) tasks: Vec<(Arc<Task>, Place)>,
    pub(super) refused: Vec<(TaskId, Error)>,
    pub(super) next_due: Option<Timestamp>,
    /// There is something in the inbox.
    pub(super) inbox: bool,
}

/// The lanes that a claim takes from.
pub(super) struct Line<'a> {
    pub(super) ns: i32,
    pub(super) lanes: &'a [Lane],
    pub(super) limit: usize,
    pub(super) floors: &'a Floors,
    /// The earliest that it can be.
    pub(super) now: Timestamp,
}

impl Line<'_> {
    pub(super) async fn next(
        &self,
        session: &mut Session,
        (claim, cautious): (&Claim, bool),
        mut calls: Vec<Call>,
    ) -> Answer<Next> {
        let (ns, limit) = (self.ns, self.limit);
        let mut numbers: Vec<i64> = (self.lanes.iter())
            .map(|lane| lane_number(ns, lane))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let request = Id(claim.request.as_u128());
        let recall = || Call::new(&REMEMBERED, params![ns, request]);
        if cautious {
            calls.push(recall());
        }
        let (mut wanted, mut heads) = (limit, limit + HEADS_MORE);
        let mut began = self.floors.begin(ns, &numbers);
        calls.push(Call::new(&NEXT_DUE, params![numbers.clone(), ns]));
        calls.push(look(ns, &began, wanted, heads));
        let timer = SystemClock::new();
        let mut answers = session.run(&calls).await?;
        let mut found = answers.pop().unwrap_or_default();
        let due = answers.pop();
        let mut remembered = match cautious {
            true => remembered_from(answers.pop())?,
            false => None,
        };
        let (next_due, inbox) = match due.iter().flatten().next() {
            Some(row) => (column::<Option<At>>(row, 0)?, column(row, 1)?),
            None => (None, false),
        };
        // A task that waits for another one has no time of its own.
        let next_due = next_due.map(|at| at.0).filter(|at| *at < Timestamp::MAX);
        self.saw(&found, &began, heads, timer.monotonic())?;
        // That there is nothing is only said if what was skipped was looked at lately.
        if found.is_empty()
            && let Some(whole) = self.floors.doubt(&began)
        {
            began = whole;
            let timer = SystemClock::new();
            let calls = [look(ns, &began, wanted, heads)];
            found = session.run(&calls).await?.swap_remove(0);
            self.saw(&found, &began, heads, timer.monotonic())?;
        }
        let (mut tasks, mut refused);
        loop {
            (tasks, refused) = (Vec::new(), Vec::new());
            for row in &found {
                match task_from(row) {
                    Ok(task) => tasks.push((Arc::new(task), column(row, TASK_COLUMNS)?)),
                    Err(Fault::Corrupt(what)) => {
                        refused.push((column::<Id>(row, 0)?.task(), Error::Corrupt(what.into())));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            // Tasks that cannot be read stay at the head of their lane, and others may be taking
            // whatever is there: then look further. A look at one lane does so by itself.
            let furthest = limit.saturating_mul(64) + HEADS_MORE * 64;
            let further = match found.last() {
                _ if remembered.is_some() || tasks.len() >= limit => false,
                Some(_) if found.len() == wanted => true,
                _ if numbers.len() == 1 || heads >= furthest => false,
                Some(last) => column::<i64>(last, HEADS_COLUMN)? >= signed(heads as u64),
                None => {
                    let count = [count_heads(ns, &began, heads)];
                    let count = session.run(&count).await?.swap_remove(0);
                    column::<i64>(&count[0], 0)? >= signed(heads as u64)
                }
            };
            if !further {
                break;
            }
            (wanted, heads) = (limit + refused.len(), heads.saturating_mul(8));
            let calls = [look(ns, &began, wanted, heads)];
            found = session.run(&calls).await?.swap_remove(0);
        }
        if !cautious && tasks.is_empty() {
            remembered = remembered_from(session.run(&[recall()]).await?.pop())?;
        }
        tasks.truncate(limit);
        Ok(Next {
            remembered,
            tasks,
            refused,
            next_due,
            inbox,
        })
    }

    /// Takes in what a look has found, and how long it took.
    fn saw(&self, found: &[Row], began: &Began, heads: usize, took: Duration) -> Answer<()> {
        let Some(last) = found.last() else {
            if began.at_heads() {
                self.floors.saw_nothing(began, took);
            }
            return Ok(());
        };
        // What cannot be read is told as such when it is to be taken.
        let place = |row: &Row| {
            let priority = column::<i16>(row, PRIORITY_COLUMN).ok()?;
            let priority = Priority::new(u8::try_from(priority).ok()?).ok()?;
            let At(runnable) = column(row, PRIORITY_COLUMN + 1).ok()?;
            let lane = column(row, TASK_COLUMNS + 1).ok()?;
            Some((lane, priority, runnable))
        };
        let At(started) = column(last, TASK_COLUMNS + 2)?;
        let At(ended) = column(last, TASK_COLUMNS + 3)?;
        // Of several lanes, no more than the heads were looked at.
        let lanes = began.floors().count();
        let more = lanes > 1 || found.len() >= self.limit;
        let places: Vec<_> = found.iter().filter_map(place).collect();
        let Some((_, priority, at)) = places.last().copied() else {
            return Ok(());
        };
        let look = Look {
            found: places,
            reach: more.then_some((priority, at)),
            rows: found.len()
                + if lanes > 1 {
                    lanes * heads / HEADS_AT_ONCE
                } else {
                    0
                },
            took: ended.since(started),
            now: self.now,
        };
        self.floors.saw(&look, began);
        Ok(())
    }
}

/// The look for the next tasks. Of several lanes, it goes no further than so many `heads`.
fn look(ns: i32, began: &Began, wanted: usize, heads: usize) -> Call {
    let lanes: Vec<(i64, Floor)> = began.floors().collect();
    match (&lanes[..], began.at_heads()) {
        ([(lane, _)], true) => Call::new(&NEXT_OF_LANE, params![ns, *lane, signed(wanted as u64)]),
        ([(lane, floor)], false) => {
            let (_, priorities, floors) = by_priority(&[(*lane, *floor)]);
            let wanted = signed(wanted as u64);
            Call::new(&NEXT_ABOVE, params![ns, *lane, wanted, priorities, floors])
        }
        (_, true) => Call::new(&NEXT_OF_LANES, of_several(ns, began, wanted, heads)),
        (_, false) => Call::new(&NEXT_ABOVE_OF_LANES, of_several(ns, began, wanted, heads)),
    }
}

/// How many heads a look at several lanes would have to choose from.
fn count_heads(ns: i32, began: &Began, heads: usize) -> Call {
    let sql = match began.at_heads() {
        true => &HEADS_OF_LANES,
        false => &HEADS_ABOVE,
    };
    Call::new(sql, of_several(ns, began, 0, heads))
}

/// What a statement about several lanes is given.
fn of_several(ns: i32, began: &Began, wanted: usize, heads: usize) -> Vec<Param> {
    let lanes: Vec<(i64, Floor)> = began.floors().collect();
    let numbers: Vec<i64> = lanes.iter().map(|(lane, _)| *lane).collect();
    let (wanted, heads) = (signed(wanted as u64), signed(heads as u64));
    let mut all = params![ns, numbers, wanted, heads];
    if !began.at_heads() {
        let (of, priorities, floors) = by_priority(&lanes);
        all.extend(params![of, priorities, floors]);
    }
    all
}

/// The floors of lanes, each with its lane and priority, those of the highest priority first.
fn by_priority(lanes: &[(i64, Floor)]) -> (Vec<i64>, Vec<i16>, Vec<At>) {
    let (mut of, mut priorities, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for (lane, floor) in lanes {
        let by_priority: Vec<(i16, &Timestamp)> = (0..).zip(floor).collect();
        for (priority, floor) in by_priority.into_iter().rev() {
            of.push(*lane);
            priorities.push(priority);
            floors.push(At(*floor));
        }
    }
    (of, priorities, floors)
}

fn remembered_from(found: Option<Vec<Row>>) -> Answer<Option<Vec<(TaskId, Fence)>>> {
    let Some(row) = found.iter().flatten().next() else {
        return Ok(None);
    };
    let tasks: Vec<Id> = column(row, 0)?;
    let fences: Vec<i64> = column(row, 1)?;
    let taken = (tasks.into_iter().zip(fences))
        .map(|(task, fence)| Ok((task.task(), Fence::new(unsigned(fence)?))));
    Ok(Some(taken.collect::<Answer<_>>()?))
}
