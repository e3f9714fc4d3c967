//! A store that takes moves which a lifecycle does not allow.

use std::sync::Arc;

use plimsoll_core::lifecycle::Phase;
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::store::{Amend, Commit, Ending, Write};
use plimsoll_core::task::Holder;

use super::row;

/// Lets a task into the stage between before it is moved, so that its row shows nothing wrong.
pub(super) fn take_all_between(commit: &mut Commit, store: &Arc<MemoryStore>) {
    let between = commit.writes.iter().find_map(|write| {
        let (holder, to) = match write {
            Write::Amend(amend) => (&amend.holder, Phase::Stage(amend.stage.clone()?)),
            Write::Settle(settle) if matches!(settle.how, Ending::Complete { .. }) => {
                (&settle.holder, Phase::Completed)
            }
            _ => return None,
        };
        stage_between(holder, &to, store)
    });
    if let Some(amend) = between {
        commit.writes.insert(0, Write::Amend(Box::new(amend)));
    }
}

fn stage_between(holder: &Holder, to: &Phase, store: &Arc<MemoryStore>) -> Option<Amend> {
    let task = row(holder.task, store)?;
    let (lifecycle, from) = (task.spec.lifecycle.clone()?, Phase::of(&task)?);
    if lifecycle.allows(&from, to) || from == *to {
        return None;
    }
    let next = lifecycle.allowed(&from).into_iter();
    let between = next.filter(|stage| lifecycle.allows(stage, to));
    let stage = between.into_iter().find_map(|phase| match phase {
        Phase::Stage(stage) => Some(stage),
        _ => None,
    })?;
    Some(Amend {
        stage: Some(stage),
        ..Amend::new(holder.clone())
    })
}
