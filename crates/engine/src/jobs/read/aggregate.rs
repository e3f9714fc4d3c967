//! The lowest status wins: which state speaks for a tag, a partition or a whole job.
//!
//! Kept up to date with every change, so that no question reads more than a few of the states,
//! however many there are.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::Name;

use super::gaps::Gaps;
use crate::jobs::{FINISHED, NOT_STARTED, WARNING};

/// What the partitions of a job have said, in the order of who speaks first.
///
/// | scope | who counts | no state counts as |
/// |---|---|---|
/// | a tag | each partition, with its state of the tag | not started |
/// | a partition | its states | – |
/// | the job | all states, and each partition without any | not started |
///
/// Of several with the lowest status the lowest partition speaks, and of its states the first tag in
/// order. A partition that the job does not have is not counted.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    partitions: u32,
    all: BTreeSet<(i32, u32, Name)>,
    by_partition: BTreeMap<u32, BTreeSet<(i32, Name)>>,
    by_tag: BTreeMap<Name, OfTag>,
    /// The partitions without any state.
    silent: Gaps,
}

#[derive(Debug)]
struct OfTag {
    ranks: BTreeSet<(i32, u32)>,
    /// The partitions without a state of this tag.
    missing: Gaps,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    running: u32,
    finished: u32,
    failed: u32,
}

/// Who speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lowest {
    /// The state of this partition and tag.
    State(u32, Name),
    /// This partition, which has not said anything.
    Silent(u32),
}

/// How far the partitions of a job are with a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The tag.
    pub tag: Name,
    /// How many partitions have status 0, or have not said anything.
    pub not_started: u32,
    /// How many have a status between 0 and [`FINISHED`].
    pub running: u32,
    /// How many are [`FINISHED`].
    pub finished: u32,
    /// How many have a negative status: an error or a warning.
    pub failed: u32,
}

impl Lowest {
    pub(crate) fn partition(&self) -> u32 {
        match self {
            Self::State(partition, _) | Self::Silent(partition) => *partition,
        }
    }
}

impl Aggregate {
    pub(crate) fn new(partitions: u32) -> Self {
        Self {
            partitions,
            silent: Gaps::upto(partitions),
            ..Self::default()
        }
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The status of a partition and tag was this and becomes that; `None`: there is no state.
    pub(crate) fn replace(
        &mut self,
        partition: u32,
        tag: &Name,
        old: Option<i32>,
        new: Option<i32>,
    ) {
        if old == new || partition >= self.partitions {
            return;
        }
        if let Some(old) = old {
            self.remove(partition, tag, old);
        }
        if let Some(new) = new {
            self.insert(partition, tag, new);
        }
    }

    fn insert(&mut self, partition: u32, tag: &Name, status: i32) {
        self.all.insert((status, partition, tag.clone()));
        let of_partition = self.by_partition.entry(partition).or_default();
        of_partition.insert((status, tag.clone()));
        self.silent.fill(partition);
        let of_tag = self.by_tag.entry(tag.clone()).or_insert_with(|| OfTag {
            ranks: BTreeSet::new(),
            missing: Gaps::upto(self.partitions),
            counts: Counts::default(),
        });
        of_tag.ranks.insert((status, partition));
        of_tag.missing.fill(partition);
        if let Some(count) = of_tag.counts.of(status) {
            *count += 1;
        }
    }

    fn remove(&mut self, partition: u32, tag: &Name, status: i32) {
        self.all.remove(&(status, partition, tag.clone()));
        if let Some(of_partition) = self.by_partition.get_mut(&partition) {
            of_partition.remove(&(status, tag.clone()));
            if of_partition.is_empty() {
                self.by_partition.remove(&partition);
                self.silent.open(partition);
            }
        }
        if let Some(of_tag) = self.by_tag.get_mut(tag) {
            of_tag.ranks.remove(&(status, partition));
            of_tag.missing.open(partition);
            if let Some(count) = of_tag.counts.of(status) {
                *count -= 1;
            }
            if of_tag.ranks.is_empty() {
                self.by_tag.remove(tag);
            }
        }
    }

    /// Who speaks for a tag, with its status.
    pub(crate) fn of_tag(&self, tag: &Name) -> (i32, Lowest) {
        let Some(of_tag) = self.by_tag.get(tag) else {
            return (NOT_STARTED, Lowest::Silent(0));
        };
        let said = of_tag.ranks.first().copied();
        let silent = of_tag.missing.first().map(|gap| (NOT_STARTED, gap));
        match (said, silent) {
            (Some(said), silent) if silent.is_none_or(|silent| said < silent) => {
                (said.0, Lowest::State(said.1, tag.clone()))
            }
            (_, silent) => (NOT_STARTED, Lowest::Silent(silent.map_or(0, |gap| gap.1))),
        }
    }

    /// Who speaks for a partition.
    pub(crate) fn of_partition(&self, partition: u32) -> Lowest {
        let said = self.by_partition.get(&partition).and_then(BTreeSet::first);
        match said {
            Some((_, tag)) => Lowest::State(partition, tag.clone()),
            None => Lowest::Silent(partition),
        }
    }

    /// Who speaks for the job.
    pub(crate) fn of_all(&self) -> Lowest {
        let silent = self.silent.first().map(|gap| (NOT_STARTED, gap));
        match self.all.first() {
            Some((status, partition, tag))
                if silent.is_none_or(|silent| (*status, *partition) < silent) =>
            {
                Lowest::State(*partition, tag.clone())
            }
            _ => Lowest::Silent(silent.map_or(0, |gap| gap.1)),
        }
    }

    /// How far each tag is, in the order of tags.
    pub(crate) fn progress(&self) -> Vec<Progress> {
        let of = |(tag, of_tag): (&Name, &OfTag)| {
            let Counts {
                running,
                finished,
                failed,
            } = of_tag.counts;
            Progress {
                tag: tag.clone(),
                not_started: self.partitions - running - finished - failed,
                running,
                finished,
                failed,
            }
        };
        self.by_tag.iter().map(of).collect()
    }

    /// The lowest status of a tag, and whose it is, among the partitions that count. One without a state always does.
    pub(crate) fn lowest_of(&self, tag: &Name, counts: impl Fn(u32) -> bool) -> Option<(i32, u32)> {
        let Some(of_tag) = self.by_tag.get(tag) else {
            return (self.partitions > 0).then_some((NOT_STARTED, 0));
        };
        let silent = of_tag.missing.first().map(|gap| (NOT_STARTED, gap));
        let said = of_tag.ranks.iter().find(|(_, one)| counts(*one)).copied();
        said.into_iter().chain(silent).min()
    }

    /// The partition with the lowest negative status at a tag, or the lowest that is no warning if these do not count.
    /// However many have warned, none of them is looked at then.
    pub(crate) fn failed(&self, tag: &Name, despite_warnings: bool) -> Option<u32> {
        let ranks = &self.by_tag.get(tag)?.ranks;
        let negative = (i32::MIN, 0)..(NOT_STARTED, 0);
        let failed = match despite_warnings {
            false => ranks.range(negative).next(),
            true => {
                let below = ranks.range((i32::MIN, 0)..(WARNING, 0));
                below
                    .chain(ranks.range((WARNING + 1, 0)..(NOT_STARTED, 0)))
                    .next()
            }
        };
        failed.map(|(_, partition)| *partition)
    }

    /// How many partitions have a lower status than this, which is positive.
    pub(crate) fn behind(&self, tag: &Name, wanted: i32) -> u32 {
        let Some(of_tag) = self.by_tag.get(tag) else {
            return self.partitions;
        };
        let there = of_tag.ranks.range((wanted, 0)..).count();
        self.partitions - u32::try_from(there).unwrap_or(self.partitions)
    }
}

impl Counts {
    fn of(&mut self, status: i32) -> Option<&mut u32> {
        match status {
            ..0 => Some(&mut self.failed),
            NOT_STARTED => None,
            FINISHED => Some(&mut self.finished),
            1.. => Some(&mut self.running),
        }
    }
}

#[cfg(test)]
mod tests;
