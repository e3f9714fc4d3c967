//! Prolongs leases.
//!
//! One row that somebody else keeps locked must not cost a worker all its leases. Once a renewal has
//! waited in vain, it prolongs those whose rows are free. The others stay as they are, and are
//! answered by [`unprolonged`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::decide::task;
use plimsoll_core::error::{LeaseLost, Lost};
use plimsoll_core::store::{Renew, Renewal};
use plimsoll_core::task::{Holder, Task};
use plimsoll_core::{TaskId, Timestamp};
use tokio_postgres::Row;

use crate::apply::Apply;
use crate::call::{Call, params};
use crate::claim::{Found, by_ids, readable};
use crate::codec::{Id, column};
use crate::error::{Answer, Fault};
use crate::load::{FREE_HOLDERS, FREE_TASKS, HELD_TASKS, ids};
use crate::read::TASKS;
use crate::session::Session;
use crate::task_row::{TASK_COLUMNS, task_from};

/// What is known of the leases that are to be prolonged.
pub(crate) struct Known<'a> {
    /// Claims that are locked, and hold nothing else but these tasks.
    pub(crate) prolonged: &'a BTreeMap<Id, Vec<Arc<Task>>>,
    /// Whether somebody keeps a row of the others locked.
    pub(crate) some_are_locked: bool,
}

/// Prolongs leases. What is not known is as it is in the transaction after `calls`, which are sent if
/// that is needed.
pub(crate) async fn renew(
    session: &mut Session,
    ns: i32,
    renew: &Renew,
    now: Timestamp,
    known: Known<'_>,
    calls: &mut Vec<Call>,
    apply: &mut Apply,
) -> Answer<Vec<Renewal>> {
    let prolonged = known.prolonged;
    let whole: BTreeMap<TaskId, &Arc<Task>> = (prolonged.values().flatten())
        .map(|task| (task.id(), task))
        .collect();
    let others = renew.holders.iter().map(|holder| holder.task);
    let others: Vec<TaskId> = others.filter(|id| !whole.contains_key(id)).collect();
    let mut locked = Found::new();
    let tasks = match (others.is_empty(), known.some_are_locked) {
        (true, _) => Found::new(),
        (false, false) => by_ids(session, ns, &others, std::mem::take(calls), apply).await?,
        (false, true) => {
            let free = free(session, ns, &others, std::mem::take(calls), apply).await?;
            let rest = others.iter().filter(|id| !free.contains_key(id));
            locked = as_they_are(session, ns, &rest.copied().collect::<Vec<_>>()).await?;
            free
        }
    };
    let (mut renewals, mut renewed) = (Vec::new(), BTreeMap::new());
    for holder in &renew.holders {
        if let Some(task) = locked.get(&holder.task) {
            let task = readable(task).map(AsRef::as_ref);
            renewals.push(unprolonged(task, holder, renew.lease, now));
            continue;
        }
        let known = whole.get(&holder.task).copied();
        let task = known.or_else(|| readable(tasks.get(&holder.task)?));
        let renewal = task::renew(task.map(AsRef::as_ref), holder, renew.lease, now);
        if let Renewal::Held { until } | Renewal::CancelRequested { until, .. } = &renewal
            && let Some(task) = task
            && known.is_none()
        {
            renewed.insert(task.id(), (task.clone(), *until));
        }
        renewals.push(renewal);
    }
    let renewed: Vec<_> = renewed.into_values().collect();
    apply.leases(&renewed)?;
    if !prolonged.is_empty() {
        // None of these tasks has a deadline.
        let claims = prolonged.keys().copied().collect();
        apply.prolong(claims, now.saturating_plus(renew.lease));
    }
    Ok(renewals)
}

/// What a holder is told of a lease that could not be prolonged, given the task as it is. It goes on
/// as long as half of what was asked for is left of it: until then the holder asks again. Otherwise
/// the holder must take it for lost, before it really is.
fn unprolonged(task: Option<&Task>, holder: &Holder, lease: Duration, now: Timestamp) -> Renewal {
    let present = task.and_then(|task| task.lease.as_ref());
    let ends = present.map(|lease| lease.until);
    match task::renew(task, holder, lease, now) {
        lost @ Renewal::Lost(_) => lost,
        Renewal::Held { .. } | Renewal::CancelRequested { .. }
            if ends.is_none_or(|ends| ends < now.saturating_plus(lease / 2)) =>
        {
            Renewal::Lost(LeaseLost {
                task: holder.task,
                fence: holder.fence,
                why: Lost::AttemptOver,
            })
        }
        Renewal::Held { until } => Renewal::Held {
            until: ends.unwrap_or(until),
        },
        Renewal::CancelRequested { until, reason } => Renewal::CancelRequested {
            until: ends.unwrap_or(until),
            reason,
        },
    }
}

/// Those of these tasks whose rows or claims nobody else has locked, locked.
async fn free(
    session: &mut Session,
    ns: i32,
    tasks: &[TaskId],
    mut calls: Vec<Call>,
    apply: &mut Apply,
) -> Answer<Found> {
    calls.push(Call::new(&FREE_HOLDERS, params![ns, ids(tasks)]));
    let holders = session.run(&calls).await?.pop().unwrap_or_default();
    let holders = holders.iter().map(|row| column::<Id>(row, 0));
    let holders = holders.collect::<Answer<Vec<_>>>()?;
    let found = session
        .run(&[
            Call::new(&HELD_TASKS, params![ns, ids(tasks), holders]),
            Call::new(&FREE_TASKS, params![ns, ids(tasks)]),
        ])
        .await?;
    let claims = found[0].iter().map(|row| {
        let (task, claim): (Id, Id) = (column(row, 0)?, column(row, TASK_COLUMNS)?);
        Ok((task.task(), Some(claim)))
    });
    apply.rowless(claims.collect::<Answer<Vec<_>>>()?);
    found.iter().flatten().map(task_in).collect()
}

/// Tasks as they are, whoever has them locked.
async fn as_they_are(session: &mut Session, ns: i32, tasks: &[TaskId]) -> Answer<Found> {
    let calls = [Call::new(&TASKS, params![ns, ids(tasks)])];
    match tasks.is_empty() {
        true => Ok(Found::new()),
        false => session.run(&calls).await?[0].iter().map(task_in).collect(),
    }
}

fn task_in(row: &Row) -> Answer<(TaskId, Result<Arc<Task>, String>)> {
    let id = column::<Id>(row, 0)?.task();
    match task_from(row) {
        Ok(task) => Ok((id, Ok(Arc::new(task)))),
        Err(Fault::Corrupt(what)) => Ok((id, Err(what))),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use plimsoll_core::task::CancelRequest;

    use super::*;
    use crate::claims::tests::{NOW, claimed, new};

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn what_is_not_prolonged_goes_on_while_half_of_it_is_left() {
        let mut task = claimed(new());
        let holder = task.holder().expect("a holder");
        let after = |seconds| NOW.saturating_plus(Duration::from_secs(seconds));
        let told = |task: &Task, now| unprolonged(Some(task), &holder, LEASE, now);
        let lost = |why| {
            let (task, fence) = (holder.task, holder.fence);
            Renewal::Lost(LeaseLost { task, fence, why })
        };
        let until = after(30);
        for seconds in 0..=15 {
            assert_eq!(told(&task, after(seconds)), Renewal::Held { until });
        }
        for seconds in [16, 29, 30, 31, 100] {
            let lost = lost(Lost::AttemptOver);
            assert_eq!(told(&task, after(seconds)), lost);
        }
        assert_eq!(unprolonged(None, &holder, LEASE, NOW), lost(Lost::Gone));
        let reason = Some("enough".to_owned());
        task.state.cancel = Some(CancelRequest {
            at: NOW,
            reason: reason.clone(),
        });
        let cancelled = Renewal::CancelRequested { until, reason };
        assert_eq!(told(&task, NOW), cancelled);
        task.state.fence = task.fence.next();
        let fence = task.fence;
        assert_eq!(told(&task, NOW), lost(Lost::Superseded { fence }));
    }
}
