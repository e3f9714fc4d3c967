//! The states of a job as its history tells them, in any order and however often.
//!
//! Whatever is told of a key is compared by revision, so a page of a scan, an entry of the history and
//! an entry that is answered again may come as they like: the newest stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use plimsoll_core::error::Problem;
use plimsoll_core::ids::Revision;
use plimsoll_core::record::Record;
use plimsoll_core::{Error, Invalid, Key, Name, Result};

use super::aggregate::{Aggregate, Lowest};
use crate::jobs::stored::{Keys, Own, Stored};
use crate::jobs::{NOT_STARTED, Scope, State};

/// How many writes of this process are known of each state before they are told.
const OWN_MAX: usize = 16;
/// How many records are known that were passed over because of their version. There are none, unless somebody
/// writes states by hand.
const PASSED_OVER_MAX: usize = 4_096;

/// The states of a job.
#[derive(Debug)]
pub(crate) struct Fold {
    keys: Arc<Keys>,
    /// By partition and tag.
    slots: BTreeMap<u32, BTreeMap<Name, Slot>>,
    unreadable: BTreeSet<(u32, Name)>,
    /// What readers see that was written in this process and is not told yet.
    untold: BTreeSet<(Name, u32)>,
    /// The last that were not told because their version does not grow.
    passed_over: BTreeSet<(Revision, Key)>,
    aggregate: Aggregate,
    /// Grows with whatever is told.
    turn: u64,
}

#[derive(Debug, Default)]
struct Slot {
    /// Of what was told last, also if that was its end.
    revision: Revision,
    told: Told,
    /// The last that were written in this process and are not told yet, the newest last: nobody has to read them
    /// once more when they are told.
    own: VecDeque<Untold>,
    /// Those before them, if they are not told yet either.
    crowded_out: Option<CrowdedOut>,
}

/// A state that was written in this process.
#[derive(Debug)]
struct Untold {
    revision: Revision,
    state: Arc<State>,
}

/// States of which nothing else is known any more.
#[derive(Clone, Copy, Debug)]
struct CrowdedOut {
    /// The revision of the last.
    last: Revision,
    /// The lowest of their statuses.
    lowest: i32,
}

#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    State(Arc<State>),
    Unreadable(Error),
}

impl Told {
    fn state(&self) -> Option<&Arc<State>> {
        match self {
            Self::State(state) => Some(state),
            Self::Nothing | Self::Unreadable(_) => None,
        }
    }
}

/// What is new about something that was told.
#[derive(Debug)]
pub(crate) enum News {
    /// Nothing: it was known, or something newer is.
    Known,
    State(Arc<State>),
    Unreadable(Error),
}

/// What the books about all slots have of one.
struct Booked {
    /// Of what readers see.
    status: Option<i32>,
    untold: bool,
    unreadable: bool,
}

impl Slot {
    fn booked(&self) -> Booked {
        Booked {
            status: self.state().map(|state| state.status),
            untold: !self.own.is_empty(),
            unreadable: self.error().is_some(),
        }
    }

    /// What readers see.
    fn state(&self) -> Option<&Arc<State>> {
        match self.own.back() {
            Some(own) => Some(&own.state),
            None => self.told.state(),
        }
    }

    fn error(&self) -> Option<&Error> {
        match (self.own.back(), &self.told) {
            (None, Told::Unreadable(error)) => Some(error),
            _ => None,
        }
    }

    /// The version that was told last.
    fn version(&self) -> Option<u64> {
        self.told.state().map(|state| state.version)
    }

    /// The status that was told last.
    fn status_told(&self) -> i32 {
        let told = self.told.state();
        told.map_or(NOT_STARTED, |told| told.status)
    }

    fn is_there(&self) -> bool {
        !matches!(self.told, Told::Nothing)
    }

    fn tell(&mut self, revision: Revision, told: Told) {
        self.told = told;
        self.pass(revision);
    }

    /// Everything up to this revision is told.
    fn pass(&mut self, revision: Revision) {
        self.revision = revision;
        let told = self.own.partition_point(|own| own.revision <= revision);
        self.own.drain(..told);
        self.crowded_out.take_if(|gone| gone.last <= revision);
    }

    fn wrote(&mut self, own: Untold) {
        if self.own.len() == OWN_MAX
            && let Some(gone) = self.own.pop_front()
        {
            let (before, status) = (self.crowded_out, gone.state.status);
            self.crowded_out = Some(CrowdedOut {
                last: gone.revision,
                lowest: before.map_or(status, |before| before.lowest.min(status)),
            });
        }
        self.own.push_back(own);
    }

    /// The revision of the last write that is not told yet and may be lower than this.
    fn untold_below(&self, status: i32) -> Option<Revision> {
        let mut low = self.own.iter().rev();
        let low = low.find(|own| own.state.status < status);
        let crowded_out = self.crowded_out.filter(|gone| gone.lowest < status);
        (low.map(|own| own.revision)).or(crowded_out.map(|gone| gone.last))
    }

    /// What this process has written as this revision, as long as that is known.
    fn own_at(&self, revision: Revision) -> Option<&Arc<State>> {
        let own = self.own.iter().find(|own| own.revision == revision);
        own.map(|own| &own.state)
    }
}

impl Fold {
    /// Nothing is known. [`ready`](Self::ready) has to be called before anything is asked.
    pub(crate) fn new(keys: Arc<Keys>) -> Self {
        Self {
            keys,
            slots: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            untold: BTreeSet::new(),
            passed_over: BTreeSet::new(),
            aggregate: Aggregate::default(),
            turn: 0,
        }
    }

    /// So many partitions there are.
    pub(crate) fn ready(&mut self, partitions: u32) {
        self.aggregate = Aggregate::new(partitions);
        for (partition, tags) in &self.slots {
            for (tag, slot) in tags {
                let status = slot.state().map(|state| state.status);
                self.aggregate.replace(*partition, tag, None, status);
            }
        }
    }

    pub(crate) fn aggregate(&self) -> &Aggregate {
        &self.aggregate
    }

    /// Another one as soon as anything is told.
    pub(crate) fn turn(&self) -> u64 {
        self.turn
    }

    /// A record was written.
    pub(crate) fn put(&mut self, record: &Record) -> News {
        let Some(place) = self.keys.parse(&record.key) else {
            return match Stored::read(&self.keys, record) {
                Err(error) => News::Unreadable(error),
                Ok(_) => News::Known,
            };
        };
        let slot = self.slot(place.0, &place.1);
        if slot.is_some_and(|slot| record.revision <= slot.revision) {
            return News::Known;
        }
        let version = slot.and_then(Slot::version);
        let state = match slot.and_then(|slot| slot.own_at(record.revision)) {
            Some(own) => Ok(own.clone()),
            None => Stored::read(&self.keys, record).map(|stored| Arc::new(stored.state)),
        };
        let (told, news) = match state {
            // Versions only grow as long as a state is there. Who wrote this did not go by that.
            Ok(state) if version.is_some_and(|known| state.version <= known) => {
                self.tell(place, |slot| slot.pass(record.revision));
                self.pass_over(record);
                return News::Known;
            }
            Ok(state) => (Told::State(state.clone()), News::State(state)),
            Err(error) => (Told::Unreadable(error.clone()), News::Unreadable(error)),
        };
        self.tell(place, |slot| slot.tell(record.revision, told));
        news
    }

    fn pass_over(&mut self, record: &Record) {
        self.passed_over
            .insert((record.revision, record.key.clone()));
        if self.passed_over.len() > PASSED_OVER_MAX {
            self.passed_over.pop_first();
        }
    }

    /// Whether this was not told because its version does not grow.
    pub(crate) fn passes_over(&self, record: &Record) -> bool {
        // As always, unless somebody writes by hand.
        let none = self.passed_over.is_empty();
        !none && (self.passed_over).contains(&(record.revision, record.key.clone()))
    }

    /// The version that was told last of a state that is there.
    pub(crate) fn version(&self, partition: u32, tag: &Name) -> Option<u64> {
        self.slot(partition, tag).and_then(Slot::version)
    }

    /// A record ended. Answers whether it was there.
    pub(crate) fn remove(&mut self, key: &Key, revision: Revision) -> bool {
        let Some(place) = self.keys.parse(key) else {
            return false;
        };
        let slot = self.slot(place.0, &place.1);
        if slot.is_some_and(|slot| revision < slot.revision) {
            return false;
        }
        let there = slot.is_some_and(Slot::is_there);
        // That it ended stays known: what was written before may yet be told.
        self.tell(place, |slot| slot.tell(revision, Told::Nothing));
        there
    }

    /// A state was written in this process: readers see it at once.
    pub(crate) fn wrote(&mut self, own: Own) {
        let newer = |slot: &Slot| {
            let last = slot.own.back().map(|own| own.revision);
            own.revision > slot.revision.max(last.unwrap_or_default())
        };
        if let Some(place) = self.keys.parse(&own.key)
            && self.slot(place.0, &place.1).is_none_or(newer)
        {
            let own = Untold {
                revision: own.revision,
                state: own.state,
            };
            self.change(place, |slot| slot.wrote(own));
        }
    }

    /// Something is told.
    fn tell(&mut self, place: (u32, Name), tell: impl FnOnce(&mut Slot)) {
        self.turn += 1;
        self.change(place, tell);
    }

    fn change(&mut self, place: (u32, Name), change: impl FnOnce(&mut Slot)) {
        let tags = self.slots.entry(place.0).or_default();
        let slot = tags.entry(place.1.clone()).or_default();
        let before = slot.booked();
        change(slot);
        let after = slot.booked();
        if after.untold != before.untold {
            let place = (place.1.clone(), place.0);
            match after.untold {
                true => self.untold.insert(place),
                false => self.untold.remove(&place),
            };
        }
        if after.unreadable != before.unreadable {
            match after.unreadable {
                true => self.unreadable.insert(place.clone()),
                false => self.unreadable.remove(&place),
            };
        }
        self.aggregate
            .replace(place.0, &place.1, before.status, after.status);
    }

    /// The partitions of which readers see something of a tag that was written in this process and is not told yet.
    fn untold_of(&self, tag: &Name) -> impl Iterator<Item = (u32, &Slot)> {
        let untold = self.untold.range((tag.clone(), 0)..);
        let of_tag = untold.take_while(move |(of, _)| of == tag);
        of_tag.filter_map(|(tag, partition)| Some((*partition, self.slot(*partition, tag)?)))
    }

    /// Which partitions this process has set to a lower status than this, and at which revision last, as far as that is not
    /// told yet.
    pub(crate) fn untold_below(&self, tag: &Name, status: i32) -> Vec<(u32, Revision)> {
        let untold = self.untold_of(tag);
        let low = untold.filter_map(|(one, slot)| Some((one, slot.untold_below(status)?)));
        low.collect()
    }

    /// Whether a partition and tag was told up to this revision. Of what nothing is known of, everything was: all was
    /// read anew.
    pub(crate) fn is_told(&self, partition: u32, tag: &Name, revision: Revision) -> bool {
        let slot = self.slot(partition, tag);
        slot.is_none_or(|slot| slot.revision >= revision)
    }

    /// The status of a partition and tag as it was told last.
    pub(crate) fn status_told(&self, partition: u32, tag: &Name) -> i32 {
        let slot = self.slot(partition, tag);
        slot.map_or(NOT_STARTED, Slot::status_told)
    }

    /// The state of a partition and tag as it was told last; not started, if there is none.
    pub(crate) fn state_told(&self, partition: u32, tag: &Name) -> State {
        let told = self.slot(partition, tag).and_then(|slot| slot.told.state());
        told.map_or_else(
            || State::not_started(self.keys.name.clone(), partition, Some(tag.clone())),
            |told| State::clone(told),
        )
    }

    /// Whether it is plain, without a look at everybody, that the lowest status of a tag as it was told is lower than
    /// this.
    pub(crate) fn is_plainly_below(&self, tag: &Name, status: i32) -> bool {
        let (seen, lowest) = self.aggregate.of_tag(tag);
        let slot = self.slot(lowest.partition(), tag);
        if seen < status && slot.is_none_or(|slot| slot.own.is_empty()) {
            return true;
        }
        let counts = |partition: u32| partition < self.aggregate.partitions();
        let mut untold = self.untold_of(tag);
        untold.any(|(partition, slot)| counts(partition) && slot.status_told() < status)
    }

    /// The lowest status of a tag as it was told, and whose it is.
    pub(crate) fn lowest_told(&self, tag: &Name) -> (i32, u32) {
        let (partitions, mut untold) = (self.aggregate.partitions(), BTreeMap::new());
        for (partition, slot) in self.untold_of(tag).filter(|(one, _)| *one < partitions) {
            untold.insert(partition, slot.status_told());
        }
        let told = self
            .aggregate
            .lowest_of(tag, |one| !untold.contains_key(&one));
        let untold = untold
            .iter()
            .map(|(partition, status)| (*status, *partition));
        untold.chain(told).min().unwrap_or((NOT_STARTED, 0))
    }

    /// The state that speaks for a scope.
    pub(crate) fn get(&self, scope: &Scope) -> Result<State> {
        self.check(scope)?;
        let (partition, tag) = match (scope.partition, &scope.tag) {
            (Some(partition), Some(tag)) => (partition, Some(tag.clone())),
            (Some(partition), None) => match self.aggregate.of_partition(partition) {
                Lowest::State(partition, tag) => (partition, Some(tag)),
                Lowest::Silent(partition) => (partition, None),
            },
            (None, Some(tag)) => match self.aggregate.of_tag(tag).1 {
                Lowest::State(partition, _) | Lowest::Silent(partition) => {
                    (partition, Some(tag.clone()))
                }
            },
            (None, None) => match self.aggregate.of_all() {
                Lowest::State(partition, tag) => (partition, Some(tag)),
                Lowest::Silent(partition) => (partition, None),
            },
        };
        Ok(self.state(partition, tag))
    }

    /// The state of a partition and tag; not started, if there is none.
    pub(crate) fn state(&self, partition: u32, tag: Option<Name>) -> State {
        let slot = tag.as_ref().and_then(|tag| self.slot(partition, tag));
        match slot.and_then(Slot::state) {
            Some(state) => State::clone(state),
            None => State::not_started(self.keys.name.clone(), partition, tag),
        }
    }

    /// The states of a scope that readers see, in the order of partitions and tags.
    pub(crate) fn states(&self, scope: &Scope) -> Result<Vec<Arc<State>>> {
        self.check(scope)?;
        let slots = self.slots_of(scope).filter_map(Slot::state);
        Ok(slots.cloned().collect())
    }

    /// The states of a scope that were told, in no useful order, each with the revision up to which its record was told: its
    /// own, unless somebody wrote by hand what is passed over.
    pub(crate) fn told(&self, scope: &Scope) -> Vec<(Revision, Arc<State>)> {
        let told = self.slots_of(scope);
        let told = told.filter_map(|slot| Some((slot.revision, slot.told.state()?.clone())));
        told.collect()
    }

    fn slots_of<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Slot> {
        let first = scope.partition.unwrap_or(0);
        let last = scope.partition.unwrap_or(u32::MAX);
        let tags = match &scope.tag {
            Some(tag) => (Bound::Included(tag), Bound::Included(tag)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let partitions = self.slots.range(first..=last);
        let slots = partitions.flat_map(move |(_, slots)| slots.range::<Name, _>(tags));
        slots.map(|(_, slot)| slot)
    }

    fn slot(&self, partition: u32, tag: &Name) -> Option<&Slot> {
        self.slots.get(&partition)?.get(tag)
    }

    fn slot_of(&self, key: &Key) -> Option<&Slot> {
        let (partition, tag) = self.keys.parse(key)?;
        self.slot(partition, &tag)
    }

    /// Whether the scope is one of this job, and everything in it can be read.
    pub(crate) fn check(&self, scope: &Scope) -> Result<()> {
        self.in_range(scope)?;
        let covers = |(partition, tag): &&(u32, Name)| {
            scope.partition.is_none_or(|of| of == *partition)
                && scope.tag.as_ref().is_none_or(|of| of == tag)
        };
        let bad = self.unreadable.iter().find(covers);
        match bad.and_then(|(partition, tag)| self.slot(*partition, tag)?.error()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn in_range(&self, scope: &Scope) -> Result<(), Invalid> {
        let partitions = self.aggregate.partitions();
        match scope.partition {
            Some(partition) if partition >= partitions => Err(Invalid::new(
                "partition",
                Problem::OutOfRange {
                    value: partition.to_string(),
                    min: 0.to_string(),
                    max: partitions.saturating_sub(1).to_string(),
                },
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether this record is newer than what was told.
    pub(crate) fn is_news(&self, record: &Record) -> bool {
        let slot = self.slot_of(&record.key);
        slot.is_none_or(|slot| record.revision > slot.revision)
    }

    /// What there is, by key, with its revision.
    pub(crate) fn revisions(&self) -> BTreeMap<Key, Revision> {
        let mut there = BTreeMap::new();
        for (partition, tags) in &self.slots {
            for (tag, slot) in tags.iter().filter(|(_, slot)| slot.is_there()) {
                if let Ok(key) = self.keys.state(*partition, tag) {
                    there.insert(key, slot.revision);
                }
            }
        }
        there
    }

    /// Whether this is still what was told last of a key.
    pub(crate) fn still(&self, key: &Key, revision: Revision) -> bool {
        let slot = self.slot_of(key);
        slot.is_some_and(|slot| slot.revision == revision && slot.is_there())
    }
}

#[cfg(test)]
mod tests;
