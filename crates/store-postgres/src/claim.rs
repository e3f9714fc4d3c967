//! Selects and takes tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::change::{Change, TaskChange};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::decide::task::Verdict;
use plimsoll_core::decide::{Moment, RowId, task};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Claim, Claimed, Pick};
use plimsoll_core::task::{Holder, Lane, Priority, Task};
use plimsoll_core::{Error, Fence, Revision, TaskId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::apply::Apply;
use crate::call::{Call, Sql, params};
use crate::claims::{is_plain, remember};
use crate::codec::{At, Id, Place, column, lane_number, signed, unsigned};
use crate::error::{Answer, Fault};
use crate::floors::{Began, Floor, Floors, Look};
use crate::load::{Loaded, Wanted};
use crate::session::Session;
use crate::task_row::{PRIORITY_COLUMN, TASK_COLUMNS, live_columns, task_from};

pub(crate) static REMEMBERED: Sql = Sql {
    text: "SELECT tasks, coalesce(fences, array_fill(1::bigint, ARRAY[cardinality(tasks)])) FROM plimsoll.claims WHERE ns = $1 AND request = $2",
    types: &[Type::INT4, Type::UUID],
};
/// The next tasks of one lane that nobody else is taking, where they are, and when the look at them
/// began and ended.
pub(crate) static NEXT_OF_LANE: Sql = Sql {
    text: concat!(
        "SELECT ",
        live_columns!(),
        ", t.place, statement_timestamp(), clock_timestamp() FROM (SELECT *, ctid AS place FROM plimsoll.tasks WHERE lane = $2 AND status = 1 \
                ORDER BY priority DESC, runnable_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) t \
          JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id \
          ORDER BY t.priority DESC, t.runnable_at, t.id"
    ),
    types: &[Type::INT4, Type::INT8, Type::INT8],
};
/// Likewise, from a floor on for each priority: what is before it is not even looked at.
pub(crate) static NEXT_ABOVE: Sql = Sql {
    text: concat!(
        "SELECT ",
        live_columns!(),
        ", t.place, statement_timestamp(), clock_timestamp() FROM (\
                SELECT w.* FROM unnest($4, $5) f(priority, floor) CROSS JOIN LATERAL (\
                SELECT *, ctid AS place FROM plimsoll.tasks WHERE lane = $2 AND status = 1 \
                AND priority = f.priority AND runnable_at >= f.floor \
                ORDER BY runnable_at, id LIMIT $3 FOR UPDATE SKIP LOCKED) w LIMIT $3) t \
          JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id \
          ORDER BY t.priority DESC, t.runnable_at, t.id"
    ),
    types: &[
        Type::INT4,
        Type::INT8,
        Type::INT8,
        Type::INT2_ARRAY,
        Type::TIMESTAMPTZ_ARRAY,
    ],
};
/// Likewise of several lanes: the heads of all of them in order, and of these as many as are free.
pub(crate) static NEXT_OF_LANES: Sql = Sql {
    text: concat!(
        "SELECT ",
        live_columns!(),
        ", t.place FROM (SELECT t.*, t.ctid AS place FROM \
                (SELECT head.* FROM unnest($2) l(lane) CROSS JOIN LATERAL \
                 (SELECT lane, id, priority, runnable_at FROM plimsoll.tasks w \
                  WHERE w.lane = l.lane AND w.status = 1 \
                  ORDER BY w.priority DESC, w.runnable_at, w.id LIMIT $4) head \
                 ORDER BY head.priority DESC, head.runnable_at, head.id LIMIT $4) heads \
                JOIN plimsoll.tasks t ON t.lane = heads.lane AND t.id = heads.id AND t.status = 1 \
                ORDER BY heads.priority DESC, heads.runnable_at, heads.id \
                LIMIT $3 FOR UPDATE OF t SKIP LOCKED) t \
          JOIN plimsoll.specs s ON s.ns = $1 AND s.id = t.id \
          ORDER BY t.priority DESC, t.runnable_at, t.id"
    ),
    types: &[Type::INT4, Type::INT8_ARRAY, Type::INT8, Type::INT8],
};
/// When the next task is due, and whether there is something in the inbox.
pub(crate) static NEXT_DUE: Sql = Sql {
    text: "SELECT min(due.runnable_at), EXISTS (SELECT 1 FROM plimsoll.inbox WHERE ns = $2) \
           FROM unnest($1) l(lane) CROSS JOIN LATERAL \
           (SELECT runnable_at FROM plimsoll.tasks WHERE lane = l.lane AND status = 0 \
            ORDER BY runnable_at LIMIT 1) due",
    types: &[Type::INT8_ARRAY, Type::INT4],
};

/// How many more heads of lanes than wanted are looked at first: others may be taking some.
const HEADS_MORE: usize = 64;

/// What a claim has taken, and what has to be written for it.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) claimed: Claimed,
    pub(crate) changes: Vec<Change>,
    pub(crate) remember: Option<Call>,
    /// Those of which the claim is all there is.
    pub(crate) plain: Vec<Arc<Task>>,
    /// It found less than it asked for, and there is something in the inbox.
    pub(crate) look_into_inbox: bool,
}

/// Takes tasks, as they are in the transaction after `before` was sent, and writes them to `apply`.
/// Unless it is `cautious`, a claim that takes something is assumed to be new: it cannot be remembered
/// twice.
pub(crate) async fn claim(
    session: &mut Session,
    ns: i32,
    (claim, cautious): (&Claim, bool),
    moment: &mut Revised<'_>,
    before: Vec<Call>,
    apply: &mut Apply,
    (floors, off): (&Floors, Duration),
) -> Answer<Taken> {
    let mut taken = Taken {
        claimed: Claimed {
            tasks: Vec::new(),
            refused: Vec::new(),
            next_due: None,
        },
        changes: Vec::new(),
        remember: None,
        plain: Vec::new(),
        look_into_inbox: false,
    };
    match &claim.pick {
        Pick::Ids(wanted) => {
            let found = by_ids(session, ns, wanted, before, apply).await?;
            moment.above(session, found.values().flatten()).await?;
            for id in wanted {
                match found.get(id) {
                    None => taken.refused(*id, NotFound::Task(*id).into()),
                    Some(Err(what)) => taken.refused(*id, Error::Corrupt(what.clone().into())),
                    Some(Ok(task)) => taken.take(task, None, claim, &moment.moment, apply)?,
                }
            }
        }
        Pick::Next { lanes, limit } => {
            let line = Line {
                ns,
                lanes,
                limit: *limit,
                floors,
                now: moment.moment.now.saturating_minus(off),
            };
            let found = line.next(session, (claim, cautious), before).await?;
            if let Some(remembered) = found.remembered {
                taken.claimed.tasks = still_held(session, ns, remembered, claim, apply).await?;
                return Ok(taken);
            }
            let tasks = found.tasks.iter().map(|(task, _)| task);
            moment.above(session, tasks).await?;
            for (task, place) in &found.tasks {
                taken.take(task, Some(*place), claim, &moment.moment, apply)?;
            }
            taken.claimed.refused = found.refused;
            if taken.claimed.tasks.len() < *limit {
                taken.claimed.next_due = found.next_due;
                taken.look_into_inbox = found.inbox;
            }
            if !taken.changes.is_empty() {
                let moment = (moment.moment.now, moment.moment.revision);
                taken.remember = Some(remember(ns, claim, &taken.claimed.tasks, moment));
            }
        }
    }
    Ok(taken)
}

impl Taken {
    fn refused(&mut self, id: TaskId, error: Error) {
        self.claimed.refused.push((id, error));
    }

    /// Takes a task. If it was found in line, it is known where its row is.
    fn take(
        &mut self,
        before: &Arc<Task>,
        place: Option<Place>,
        claim: &Claim,
        moment: &Moment<'_>,
        apply: &mut Apply,
    ) -> Answer<()> {
        match task::claim(before, &claim.worker, claim.lease, moment) {
            Err(error) => self.refused(before.id(), error),
            Ok(Verdict::Unchanged) => self.claimed.tasks.push(before.as_ref().clone()),
            Ok(Verdict::Changed(after, event)) => {
                self.changes
                    .push(Change::Task(TaskChange::new(&after, event)));
                self.claimed.tasks.push(after.as_ref().clone());
                let after: Arc<Task> = after.into();
                match place.filter(|_| is_plain(&after)) {
                    Some(place) => {
                        apply.claim(place, before, &after);
                        self.plain.push(after);
                    }
                    None => apply.task(Some(before), Some(after))?,
                }
            }
        }
        Ok(())
    }
}

/// What a decision depends on, with a revision that is above those of all rows it is about.
pub(crate) struct Revised<'a> {
    pub(crate) moment: Moment<'a>,
}

impl Revised<'_> {
    async fn above(
        &mut self,
        session: &mut Session,
        tasks: impl Iterator<Item = &Arc<Task>>,
    ) -> Answer<()> {
        let newest = tasks.map(|task| task.revision).max();
        if newest.is_some_and(|newest| newest >= self.moment.revision) {
            self.moment.revision = Revision::new(session.fresh_revisions().await?);
        }
        Ok(())
    }
}

/// Tasks, each as it is or why it cannot be read.
pub(crate) type Found = BTreeMap<TaskId, Result<Arc<Task>, String>>;

/// Tasks by id, locked, each as it is or why it cannot be read. What has ended is there, too.
/// `apply` hears which of them have no row of their own.
pub(crate) async fn by_ids(
    session: &mut Session,
    ns: i32,
    wanted: &[TaskId],
    before: Vec<Call>,
    apply: &mut Apply,
) -> Answer<Found> {
    let wanted: BTreeSet<TaskId> = wanted.iter().copied().collect();
    let mut found = BTreeMap::new();
    match load(session, ns, &wanted, before, apply).await {
        Ok(tasks) => found.extend(tasks.into_iter().map(|task| (task.id(), Ok(task)))),
        // One that cannot be read does not keep the others from being taken.
        Err(Fault::Corrupt(_)) => {
            for id in wanted {
                match load(session, ns, &BTreeSet::from([id]), Vec::new(), apply).await {
                    Ok(tasks) => found.extend(tasks.into_iter().map(|task| (id, Ok(task)))),
                    Err(Fault::Corrupt(what)) => drop(found.insert(id, Err(what))),
                    Err(fault) => return Err(fault),
                }
            }
        }
        Err(fault) => return Err(fault),
    }
    Ok(found)
}

async fn load(
    session: &mut Session,
    ns: i32,
    wanted: &BTreeSet<TaskId>,
    before: Vec<Call>,
    apply: &mut Apply,
) -> Answer<Vec<Arc<Task>>> {
    let mut loaded = Loaded::default();
    let rows = Wanted::of(wanted.iter().map(|id| RowId::Task(*id)).collect());
    rows.load(session, ns, before, &mut loaded).await?;
    let rowless = loaded.rowless.into_iter();
    apply.rowless(rowless.map(|(task, claim)| (task, Some(claim))));
    let tasks = wanted.iter().filter_map(|id| loaded.rows.tasks.get(id)?);
    Ok(tasks.cloned().collect())
}

/// What is next in line.
struct Next {
    remembered: Option<Vec<(TaskId, Fence)>>,
    /// And where their rows are.
    tasks: Vec<(Arc<Task>, Place)>,
    refused: Vec<(TaskId, Error)>,
    next_due: Option<Timestamp>,
    /// There is something in the inbox.
    inbox: bool,
}

/// The lanes that a claim takes from.
struct Line<'a> {
    ns: i32,
    lanes: &'a [Lane],
    limit: usize,
    floors: &'a Floors,
    /// The earliest that it can be.
    now: Timestamp,
}

impl Line<'_> {
    async fn next(
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
        calls.push(Call::new(&NEXT_DUE, params![numbers.clone(), ns]));
        let (mut wanted, mut heads) = (limit, limit + HEADS_MORE);
        let began = match numbers[..] {
            [lane] => self.floors.begin(lane),
            _ => Began::default(),
        };
        calls.push(match (&began.floor, &numbers[..]) {
            (Some(floor), [lane]) => above(ns, *lane, wanted, floor),
            _ => heads_of(ns, &numbers, wanted, heads),
        });
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
        self.saw(&numbers, &found, &began, timer.monotonic())?;
        // That there is nothing is only said of the whole lane, as it is or was a moment ago.
        if let (Some(_), [lane], true) = (began.floor, &numbers[..], found.is_empty())
            && let Some(began) = self.floors.doubt(*lane)
        {
            let (whole, timer) = ([heads_of(ns, &numbers, wanted, heads)], SystemClock::new());
            found = session.run(&whole).await?.swap_remove(0);
            self.saw(&numbers, &found, &began, timer.monotonic())?;
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
            // whatever is there: then look further.
            let further = match (
                tasks.len() < limit,
                found.len() == wanted,
                numbers.len() > 1,
            ) {
                (true, true, _) => true,
                (true, false, true) => heads < limit.saturating_mul(64) + HEADS_MORE * 64,
                (_, _, _) => false,
            };
            if remembered.is_some() || !further || (refused.is_empty() && found.is_empty()) {
                break;
            }
            (wanted, heads) = (limit + refused.len(), heads.saturating_mul(8));
            found = session
                .run(&[heads_of(ns, &numbers, wanted, heads)])
                .await?
                .swap_remove(0);
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

    /// Takes in what a look at one lane has found, and how long it took.
    fn saw(&self, lanes: &[i64], found: &[Row], began: &Began, took: Duration) -> Answer<()> {
        let [lane] = lanes else {
            return Ok(());
        };
        let Some(last) = found.last() else {
            if began.floor.is_none() {
                self.floors.saw_nothing(*lane, took);
            }
            return Ok(());
        };
        // What cannot be read is told as such when it is to be taken.
        let place = |row: &Row| {
            let priority = column::<i16>(row, PRIORITY_COLUMN).ok()?;
            let priority = Priority::new(u8::try_from(priority).ok()?).ok()?;
            let At(runnable) = column(row, PRIORITY_COLUMN + 1).ok()?;
            Some((priority, runnable))
        };
        let At(started) = column(last, TASK_COLUMNS + 1)?;
        let At(ended) = column(last, TASK_COLUMNS + 2)?;
        let look = Look {
            found: found.iter().filter_map(place).collect(),
            more: found.len() >= self.limit,
            took: ended.since(started),
            now: self.now,
        };
        self.floors.saw(*lane, &look, began);
        Ok(())
    }
}

fn above(ns: i32, lane: i64, wanted: usize, floor: &Floor) -> Call {
    let by_priority = (0_i16..).zip(floor.map(At));
    let (mut priorities, mut floors): (Vec<i16>, Vec<At>) = by_priority.unzip();
    priorities.reverse();
    floors.reverse();
    Call::new(
        &NEXT_ABOVE,
        params![ns, lane, signed(wanted as u64), priorities, floors],
    )
}

fn heads_of(ns: i32, lanes: &[i64], wanted: usize, heads: usize) -> Call {
    let (wanted, heads) = (signed(wanted as u64), signed(heads as u64));
    match lanes {
        [lane] => Call::new(&NEXT_OF_LANE, params![ns, *lane, wanted]),
        _ => Call::new(&NEXT_OF_LANES, params![ns, lanes.to_vec(), wanted, heads]),
    }
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

/// What a claim that was applied before still holds, in the order it was taken.
async fn still_held(
    session: &mut Session,
    ns: i32,
    taken: Vec<(TaskId, Fence)>,
    claim: &Claim,
    apply: &mut Apply,
) -> Answer<Vec<Task>> {
    let wanted: Vec<TaskId> = taken.iter().map(|(id, _)| *id).collect();
    let found = by_ids(session, ns, &wanted, Vec::new(), apply).await?;
    let held = taken.into_iter().filter_map(|(task, fence)| {
        let holder = Holder {
            task,
            worker: claim.worker.clone(),
            fence,
        };
        let found = readable(found.get(&task)?)?;
        (found.holder() == Some(holder)).then(|| found.as_ref().clone())
    });
    Ok(held.collect())
}

pub(crate) fn readable(task: &Result<Arc<Task>, String>) -> Option<&Arc<Task>> {
    match task {
        Ok(task) => Some(task),
        Err(what) => {
            tracing::warn!(what, "a task cannot be read");
            None
        }
    }
}
