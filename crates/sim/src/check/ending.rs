//! What must hold from time to time and in the end.

use std::collections::BTreeMap;

use futures::FutureExt;
use plimsoll_core::store::{Compact, Counts};
use plimsoll_core::task::{Lane, Status};
use plimsoll_core::{Store, TaskId};

use super::Checker;

impl Checker {
    /// The store has removed what was kept long enough.
    pub(crate) fn compacted(&mut self, compact: &Compact) {
        let present: Vec<TaskId> = (self.tasks.iter())
            .filter(|(_, model)| !model.gone)
            .map(|(id, _)| *id)
            .collect();
        for ids in present.chunks(1_000) {
            for (id, row) in ids.iter().zip(self.rows(ids.to_vec())) {
                if row.is_some() {
                    continue;
                }
                let Some(model) = self.tasks.get_mut(id) else {
                    continue;
                };
                model.gone = true;
                let status = model.status;
                if !status.is_some_and(|status| compact.tasks.contains_key(&status)) {
                    let name = self.name(*id);
                    self.blame(
                        "lost",
                        format!("{name} was removed while it was {status:?}"),
                    );
                }
            }
        }
        self.compare_counts();
    }

    /// Counts are what there is.
    pub(crate) fn compare_counts(&mut self) {
        let mut told: BTreeMap<(Lane, Status), u64> = BTreeMap::new();
        for model in self.tasks.values().filter(|model| !model.gone) {
            if let Some(status) = model.status {
                *told.entry((model.lane.clone(), status)).or_default() += 1;
            }
        }
        let counts = self.source.live();
        let counts = counts.and_then(|store| store.counts(Counts::default()).now_or_never());
        let counts = counts.and_then(Result::ok).unwrap_or_default();
        let read = counts.into_iter().flat_map(|lane| {
            let name = lane.lane;
            (lane.by_status.into_iter()).map(move |(status, count)| ((name.clone(), status), count))
        });
        let read: BTreeMap<_, _> = read.collect();
        if told != read {
            self.blame("counts", format!("told {told:?}, read {read:?}"));
        }
    }

    /// What has not ended, in words; `None`: everything has.
    pub(crate) fn unfinished(&mut self) -> Option<String> {
        let active: Vec<TaskId> = (self.tasks.iter())
            .filter(|(_, model)| model.is_active())
            .map(|(id, _)| *id)
            .take(5)
            .collect();
        if !active.is_empty() {
            let now = self.store_time();
            let rows = self.rows(active);
            let words = rows.into_iter().flatten().map(|row| {
                let name = self.aliases.of(row.id());
                let until = row.lease.as_ref().map(|lease| lease.until);
                let (status, fence, at) = (row.status, row.fence, row.runnable_at);
                format!("{name}#{fence} {status}, runnable at {at}, lease until {until:?}")
            });
            let words: Vec<String> = words.collect();
            return Some(format!("now {now}: {}", words.join("; ")));
        }
        let open = (self.groups.iter()).find(|(_, group)| group.complete && !group.drained);
        let open = open
            .map(|(id, group)| format!("{id} has not drained in generation {}", group.generation));
        open.or_else(|| {
            let awaited = self.awaited.first()?;
            Some(format!("somebody still waits for {}", self.name(*awaited)))
        })
    }

    /// Whether anything has not ended.
    pub(crate) fn is_finished(&self) -> bool {
        !self.tasks.values().any(super::model::Model::is_active)
            && !(self.groups.values()).any(|group| group.complete && !group.drained)
    }

    /// Every acknowledged task is there, or was removed after its end; nothing is left that should
    /// not be.
    pub(crate) fn compare_all(&mut self) {
        self.compare_counts();
        self.compare_archive();
        self.compare_lines();
        self.compare_shelf();
        for id in self.acknowledged() {
            let gone = self.tasks.get(&id).is_none_or(|model| model.gone);
            let there = self.rows(vec![id]).into_iter().flatten().next().is_some();
            if !there && !gone {
                let name = self.name(id);
                self.blame("lost", format!("{name} is not there"));
            }
        }
    }

    /// How many tasks there were, and how many entries the history had.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.tasks.len(), self.entries.len())
    }
}
