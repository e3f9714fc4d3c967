//! What becomes of a group. Counts change here and nowhere else.
//!
//! Counting and draining are apart: a commit counts everything first and drains in the end.
//!
//! A `then` that is itself a member of another group is counted there when the group is opened,
//! not when it is submitted: otherwise the outer group could drain while the inner one works.

use crate::change::GroupEvent;
use crate::decide::Moment;
use crate::error::{Conflict, Result};
use crate::group::{Group, NewGroup};
use crate::ids::TaskId;
use crate::limits::GROUP_MAX;
use crate::task::{NewTask, Status};
use crate::time::Timestamp;

/// What a decision about a group leads to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// For the history.
    pub events: Vec<GroupEvent>,
    /// Tasks to submit.
    pub submit: Vec<NewTask>,
}

/// Opens a group, or finds it open with the same definition.
pub fn open(
    existing: Option<&Group>,
    new: &NewGroup,
    moment: &Moment<'_>,
) -> Result<Option<Group>> {
    let Some(group) = existing else {
        return Ok(Some(Group::new(new.clone(), moment.revision, moment.now)));
    };
    let id = |task: &Option<Box<NewTask>>| task.as_ref().map(|task| task.id);
    let differs = if group.generation == 0 && group.expected != new.expected {
        Some("expected")
    } else if id(&group.then) != id(&new.then) {
        Some("then")
    } else if id(&group.on_first_failure) != id(&new.on_first_failure) {
        Some("on_first_failure")
    } else {
        None
    };
    match differs {
        None => Ok(None),
        Some(field) => Err(Conflict::GroupDiffers {
            group: group.id.clone(),
            field: field.into(),
        }
        .into()),
    }
}

/// Whether the group takes `more` members or arrivals.
pub fn admits(group: &Group, more: u64) -> Result<()> {
    if group.sealed {
        return Err(Conflict::GroupSealed {
            group: group.id.clone(),
        }
        .into());
    }
    let expected = group.expected.map_or(GROUP_MAX, |n| n + group.again);
    if more > expected.saturating_sub(group.begun()) {
        return Err(Conflict::GroupFull {
            group: group.id.clone(),
            expected,
        }
        .into());
    }
    Ok(())
}

/// An inner group is opened whose `then` is a member here: one of those expected, or on top of
/// them, whether or not the group was sealed or full, as long as it has not drained.
pub fn expect(group: &mut Group, on_top: bool) -> Result<Effects> {
    if !on_top {
        admits(group, 1)?;
        return Ok(spawn(group));
    }
    if group.drained_at.is_some() {
        return Err(Conflict::GroupDrained {
            group: group.id.clone(),
        }
        .into());
    }
    Ok(expect_again(group))
}

/// A member was submitted, or will be for sure.
pub fn spawn(group: &mut Group) -> Effects {
    group.spawned += 1;
    Effects::default()
}

/// Things that are not tasks are done.
pub fn arrive(group: &mut Group, arrivals: u64) -> Effects {
    group.arrived += arrivals;
    group.done += arrivals;
    Effects::default()
}

/// No more members will come.
pub fn seal(group: &mut Group) -> Effects {
    if group.sealed {
        return Effects::default();
    }
    group.sealed = true;
    Effects {
        events: vec![GroupEvent::Sealed],
        submit: Vec::new(),
    }
}

/// A member has ended with this status.
pub fn member_ended(group: &mut Group, task: TaskId, status: Status) -> Effects {
    let mut effects = Effects::default();
    group.done += 1;
    match status {
        Status::Failed => {
            group.failed += 1;
            if group.first_failure.is_none() {
                group.first_failure = Some(task);
                effects.events.push(GroupEvent::FirstFailure);
                effects.submit.extend(fire(&group.on_first_failure, group));
            }
        }
        Status::Cancelled => group.cancelled += 1,
        Status::Completed | Status::Scheduled | Status::Pending | Status::Claimed => {}
    }
    effects
}

/// A member that had ended with this status runs again.
pub fn member_revived(group: &mut Group, status: Status) -> Effects {
    let effects = if group.drained_at.is_some() {
        // The group keeps what it was sealed with: only the revived member is outstanding.
        begin_generation(group)
    } else {
        Effects::default()
    };
    group.done = group.done.saturating_sub(1);
    match status {
        Status::Failed => group.failed = group.failed.saturating_sub(1),
        Status::Cancelled => group.cancelled = group.cancelled.saturating_sub(1),
        Status::Completed | Status::Scheduled | Status::Pending | Status::Claimed => {}
    }
    effects
}

/// A task that was counted beforehand will never run.
pub fn member_given_up(group: &mut Group) -> Effects {
    group.done += 1;
    group.cancelled += 1;
    Effects::default()
}

/// An inner group whose `then` is a member here was opened again: one more is to come, whether
/// this group was sealed, full or even drained.
pub fn expect_again(group: &mut Group) -> Effects {
    let effects = if group.drained_at.is_some() {
        begin_generation(group)
    } else {
        Effects::default()
    };
    group.spawned += 1;
    group.again += 1;
    effects
}

/// A drained group takes members again.
pub fn reopen(group: &mut Group) -> Effects {
    if group.drained_at.is_none() {
        return Effects::default();
    }
    group.sealed = false;
    group.expected = None;
    group.again = 0;
    begin_generation(group)
}

/// The group drains if it is complete.
pub fn drain(group: &mut Group, now: Timestamp) -> Effects {
    if group.drained_at.is_some() || group.total() != Some(group.done) {
        return Effects::default();
    }
    group.drained_at = Some(now);
    Effects {
        events: vec![GroupEvent::Drained],
        submit: fire(&group.then, group).into_iter().collect(),
    }
}

fn begin_generation(group: &mut Group) -> Effects {
    group.drained_at = None;
    group.generation += 1;
    group.first_failure = None;
    Effects {
        events: vec![GroupEvent::Reopened],
        submit: Vec::new(),
    }
}

/// The task under the id of this generation, so that each generation submits it exactly once.
fn fire(task: &Option<Box<NewTask>>, group: &Group) -> Option<NewTask> {
    let task = task.as_deref()?;
    Some(NewTask {
        id: task.id.nth(group.generation),
        ..task.clone()
    })
}
