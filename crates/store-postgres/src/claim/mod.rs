//! Selects and takes tasks.

pub(crate) mod line;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::change::{Change, TaskChange};
use plimsoll_core::decide::task::Verdict;
use plimsoll_core::decide::{Moment, RowId, task};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Claim, Claimed, Pick};
use plimsoll_core::task::{Holder, Task};
use plimsoll_core::{Error, Fence, Revision, TaskId};

use self::line::Line;
use crate::apply::Apply;
use crate::call::Call;
use crate::claims::{is_plain, remember};
use crate::codec::Place;
use crate::error::{Answer, Fault};
use crate::floors::Floors;
use crate::load::{Loaded, Wanted};
use crate::session::Session;
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
