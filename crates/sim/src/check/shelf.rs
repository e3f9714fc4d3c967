//! Records that clerks write and watchers watch: each write once, as it was asked, under what it
//! expected; and what a watch tells adds up to what there is.

use std::collections::BTreeMap;

use plimsoll_core::change::{Change, Entry};
use plimsoll_core::record::{Record, integer};
use plimsoll_core::{Key, Position, Revision};
use plimsoll_engine::history::Place;
use plimsoll_engine::records::WatchEvent;

use super::Checker;

/// What the keys of these records begin with.
pub(crate) const SHELF: &str = "shelf/";

/// What a clerk is about to do to a record. Whatever is written names its deed.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Adds to a count.
    Add(i64),
    /// Raises a mark.
    Raise(i64),
    /// Replaces the record.
    Put,
    /// Writes if the last deed was this one; `None`: if there is no record.
    After(Option<String>),
}

/// What is known of these records.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    records: BTreeMap<Key, Record>,
    /// Everything that ever happened to them.
    changes: Vec<(Position, Change)>,
    deeds: Vec<(Deed, Option<Revision>)>,
}

/// What a watch has told so far. It survives crashes, as its cursor does.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// It goes on with what follows this, or began after it.
    reads_after: Position,
    records: BTreeMap<Key, Record>,
    /// Everything that was there has been told.
    live: bool,
    /// Of everything that ever happened, the first that it has not told.
    next: usize,
}

impl Checker {
    /// A clerk is about to do something. What it writes must name this number.
    pub(crate) fn does(&mut self, deed: Deed) -> usize {
        self.shelf.deeds.push((deed, None));
        self.shelf.deeds.len() - 1
    }

    /// It was told that it is done, at this revision.
    pub(crate) fn did(&mut self, number: usize, revision: Revision) {
        if self.shelf.deeds[number].1 != Some(revision) {
            let (deed, taken) = &self.shelf.deeds[number];
            let wrong = format!("{deed:?} was answered {revision}, but it was {taken:?}");
            self.blame("records", wrong);
        }
    }

    /// It was told that it was refused.
    pub(crate) fn did_not(&mut self, number: usize) {
        self.figures.swaps_refused += 1;
        if let (deed, Some(revision)) = &self.shelf.deeds[number] {
            let wrong = format!("{deed:?} was refused, but it was taken at {revision}");
            self.blame("records", wrong);
        }
    }

    pub(super) fn look_at_shelf(&mut self, change: &Change, entry: &Entry) {
        let key = match change {
            Change::Put(record) => &record.key,
            Change::Removed { key, .. } => key,
            Change::Task(_) | Change::Group { .. } => return,
        };
        if !key.as_str().starts_with(SHELF) {
            return;
        }
        let shelf = &mut self.shelf;
        shelf.changes.push((entry.position, change.clone()));
        let wrong = match change {
            Change::Put(record) => {
                let before = shelf.records.insert(key.clone(), record.clone());
                // What has expired is not there, though nobody has removed it yet.
                let before = before.filter(|before| !before.is_expired(entry.at));
                shelf.wrong_write(before.as_ref(), record)
            }
            _ => match shelf.records.remove(key) {
                Some(_) => None,
                None => Some("ended, and was not there".to_owned()),
            },
        };
        if let Some(wrong) = wrong {
            self.blame("records", format!("{key} {wrong}"));
        }
    }

    /// A watch is about to begin.
    pub(crate) fn watches(&self) -> Watched {
        Watched::begun(self.newest())
    }

    /// A watch has told something.
    pub(crate) fn watched(&mut self, watched: &mut Watched, event: &WatchEvent) {
        let shelf = &self.shelf;
        let told = match event {
            WatchEvent::Snapshot(_) if watched.live => Err("a snapshot after the marker".into()),
            WatchEvent::Snapshot(record) => {
                watched.records.insert(record.key.clone(), record.clone());
                Ok(())
            }
            WatchEvent::ReplayComplete { cursor } if !watched.live => {
                watched.live = true;
                watched.adds_up(shelf, position_of(*cursor))
            }
            WatchEvent::ReplayComplete { .. } => Err("a second marker".into()),
            WatchEvent::Put { record, .. } => {
                watched.records.insert(record.key.clone(), record.clone());
                watched.follows(shelf, &Change::Put(record.clone()))
            }
            WatchEvent::Removed {
                key, revision, how, ..
            } => {
                watched.records.remove(key);
                let (key, revision, how) = (key.clone(), *revision, *how);
                watched.follows(shelf, &Change::Removed { key, revision, how })
            }
            WatchEvent::Restarted if self.is_removed_after(watched.reads_after) => {
                *watched = self.watches();
                self.figures.replays_again += 1;
                Ok(())
            }
            WatchEvent::Restarted => Err("it begins again, though nothing is missing".to_owned()),
        };
        if let Err(wrong) = told {
            self.blame("watch", wrong);
        }
    }

    /// Whether a watch has told everything.
    pub(crate) fn is_all_watched(&self, watched: &Watched) -> bool {
        watched.live && watched.next == self.shelf.changes.len()
    }

    /// What somebody found on the shelf last.
    pub(crate) fn last_deed(&self, key: &Key) -> Option<String> {
        self.shelf.records.get(key).and_then(deed_of)
    }

    /// What the history tells is what there is.
    pub(super) fn compare_shelf(&mut self) {
        let now = self.store_time();
        let there = self.records(SHELF).into_iter();
        let there: BTreeMap<Key, Record> =
            there.map(|record| (record.key.clone(), record)).collect();
        let told = self.shelf.records.iter();
        let told = told.filter(|(_, record)| !record.is_expired(now));
        if !told.eq(&there) {
            self.blame("records", format!("there is {there:?}"));
        }
    }
}

impl Shelf {
    /// What is wrong with a write.
    fn wrong_write(&mut self, before: Option<&Record>, record: &Record) -> Option<String> {
        let name = deed_of(record)?;
        let deed = name.parse().ok().and_then(|n: usize| self.deeds.get_mut(n));
        let Some((deed, taken)) = deed else {
            return Some(format!("was written by {name}, which nobody said"));
        };
        if let Some(at) = taken.replace(record.revision) {
            return Some(format!("was written twice by {deed:?}, first at {at}"));
        }
        let number = |record: Option<&Record>, field: &str| {
            let value = record.and_then(|record| record.field(field));
            value.and_then(|value| integer(value))
        };
        let (count, mark) = (number(before, "count"), number(before, "mark"));
        let expected = match deed {
            Deed::Add(by) => (Some(count.unwrap_or(0) + *by), mark),
            Deed::Raise(to) => (count, mark.max(Some(*to))),
            Deed::Put => (Some(0), None),
            Deed::After(last) => {
                if before.and_then(deed_of) != *last {
                    let found = before.and_then(deed_of);
                    return Some(format!("was written after {found:?} by {deed:?}"));
                }
                (count, mark)
            }
        };
        let after = (number(Some(record), "count"), number(Some(record), "mark"));
        (after != expected).then(|| format!("has {after:?}, not {expected:?}, by {deed:?}"))
    }
}

impl Watched {
    /// Has told nothing, and tells what was there after this, and what came then.
    pub(crate) fn begun(after: Position) -> Self {
        Self {
            reads_after: after,
            records: BTreeMap::new(),
            live: false,
            next: 0,
        }
    }

    /// It would go on from here.
    pub(crate) fn goes_on(&mut self, place: Place) {
        let within = place.to_string().contains('.');
        // More may have changed in the same entry.
        let before = position_of(place).get() - u64::from(within);
        self.reads_after = Position::new(before);
    }

    /// What was told is what there was at a position.
    fn adds_up(&mut self, shelf: &Shelf, at: Position) -> Result<(), String> {
        self.next = shelf
            .changes
            .partition_point(|(position, _)| *position <= at);
        let mut there = BTreeMap::new();
        for (_, change) in shelf.changes.iter().take(self.next) {
            match change {
                Change::Put(record) => drop(there.insert(&record.key, record)),
                Change::Removed { key, .. } => drop(there.remove(key)),
                Change::Task(_) | Change::Group { .. } => {}
            }
        }
        // Nobody is shown what has expired, though the history tells it later.
        let missing = there
            .iter()
            .find(|(key, record)| record.expires_at.is_none() && !self.records.contains_key(**key));
        let wrong = (self.records.iter()).find(|(key, record)| there.get(key) != Some(record));
        match (missing, wrong) {
            (None, None) => Ok(()),
            _ => Err(format!(
                "at {at}: {missing:?} is missing, {wrong:?} is wrong"
            )),
        }
    }

    /// What is told now is what happened next.
    fn follows(&mut self, shelf: &Shelf, told: &Change) -> Result<(), String> {
        if !self.live {
            return Ok(());
        }
        let next = shelf.changes.get(self.next);
        self.next += 1;
        match next {
            Some((_, change)) if change == told => Ok(()),
            next => Err(format!("{told:?} is told, but {next:?} comes next")),
        }
    }
}

fn deed_of(record: &Record) -> Option<String> {
    let by = record.field("by")?;
    Some(String::from_utf8_lossy(by).into_owned())
}

fn position_of(place: Place) -> Position {
    let text = place.to_string();
    let digits = text.split('.').next();
    Position::new(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
}
