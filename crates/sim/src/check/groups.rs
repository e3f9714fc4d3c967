//! Groups drain once a generation, when everything in them has ended, and submit their `then`.

use std::collections::BTreeSet;

use plimsoll_core::change::{Change, Entry, GroupEvent, TaskChange, TaskEvent};
use plimsoll_core::task::Status;
use plimsoll_core::{GroupId, TaskId};

use super::Checker;

/// A group as the history tells it.
#[derive(Debug, Default)]
pub(super) struct GroupModel {
    pub(super) generation: u32,
    pub(super) drained: bool,
    members: BTreeSet<TaskId>,
    /// What its submitter asked to run when it drains.
    then: Option<TaskId>,
    /// Whether its submitter was told that it is complete.
    pub(super) complete: bool,
}

impl Checker {
    /// A submitter is about to open a group.
    pub(crate) fn expect_group(&mut self, id: &GroupId, then: TaskId) {
        self.groups.entry(id.clone()).or_default().then = Some(then);
    }

    /// A submitter was told that the group takes no more members, or has all it expects.
    pub(crate) fn group_complete(&mut self, id: &GroupId) {
        self.groups.entry(id.clone()).or_default().complete = true;
    }

    pub(super) fn member(&mut self, group: &GroupId, change: &TaskChange) {
        if change.event == TaskEvent::Submitted {
            let group = self.groups.entry(group.clone()).or_default();
            group.members.insert(change.id);
        }
    }

    pub(super) fn look_at_group(
        &mut self,
        id: &GroupId,
        generation: u32,
        event: GroupEvent,
        entry: &Entry,
    ) {
        let group = self.groups.entry(id.clone()).or_default();
        let wrong = match event {
            GroupEvent::Drained if group.drained => Some("drained twice".to_owned()),
            GroupEvent::Drained if generation != group.generation => {
                Some(format!("drained in generation {generation}"))
            }
            GroupEvent::Drained => {
                group.drained = true;
                let then = group.then.map(|then| then.nth(generation));
                let submits = |change: &Change| {
                    matches!(change, Change::Task(task)
                        if task.event == TaskEvent::Submitted && Some(task.id) == then)
                };
                let fired = entry
                    .changes
                    .iter()
                    .filter(|change| submits(change))
                    .count();
                (then.is_some() && fired != 1)
                    .then(|| format!("drained and submitted its `then` {fired} times"))
            }
            GroupEvent::Reopened => {
                let known = group.drained && generation == group.generation + 1;
                group.drained = false;
                group.generation = generation;
                (!known).then(|| format!("opened again as generation {generation}"))
            }
            GroupEvent::Opened
            | GroupEvent::Sealed
            | GroupEvent::FirstFailure
            | GroupEvent::Deleted => None,
        };
        if let Some(wrong) = wrong {
            self.blame("groups", format!("{id} {wrong}"));
        }
    }

    /// Whatever drains in an entry has only members that have ended by the end of it.
    pub(super) fn look_at_drained(&mut self, entry: &Entry) {
        for change in &entry.changes {
            let Change::Group {
                id,
                event: GroupEvent::Drained,
                ..
            } = change
            else {
                continue;
            };
            let members = (self.groups.get(id)).map(|group| group.members.clone());
            for member in members.into_iter().flatten() {
                let status = self.tasks.get(&member).and_then(|model| model.status);
                if !status.is_some_and(Status::is_terminal) {
                    let name = self.name(member);
                    self.blame("groups", format!("{id} drained while {name} goes on"));
                }
            }
        }
    }
}
