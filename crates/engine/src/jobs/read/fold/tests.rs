//! What readers see and what barriers go by, in whatever order it is written and told.

use plimsoll_core::Timestamp;
use plimsoll_core::record::fields;
use proptest::prelude::*;

use super::*;
use crate::jobs::{ERROR, FINISHED, WARNING};

type Place = (u32, Name);
/// Who speaks, with the version: of several the lowest.
type Speaker = (i32, u32, Option<Name>, u64);

/// A write of the store's history: of a state, or of its end.
#[derive(Clone, Debug)]
struct Written {
    number: u64,
    place: Place,
    status: Option<i32>,
}

impl Written {
    /// Versions grow as revisions do.
    fn record(&self, keys: &Keys) -> Option<Record> {
        let fields = fields([
            ("status", self.status?.to_string()),
            ("message", String::new()),
            ("version", self.number.to_string()),
            ("schema_version", "1".into()),
            ("events", "[]".into()),
        ]);
        Some(Record {
            key: self.key(keys),
            fields: fields.unwrap(),
            revision: Revision::new(self.number),
            modified_at: Timestamp::MIN,
            expires_at: None,
        })
    }

    fn key(&self, keys: &Keys) -> Key {
        keys.state(self.place.0, &self.place.1).unwrap()
    }
}

/// The rule: of each state the newest counts that was told; and readers see what this process has written, if that is
/// newer.
#[derive(Debug, Default)]
struct Rule {
    partitions: u32,
    told: BTreeMap<Place, Written>,
    seen: BTreeMap<Place, Written>,
}

impl Rule {
    fn is(&mut self, written: &Written, told: bool) {
        let newest = |all: &mut BTreeMap<Place, Written>| {
            let last = all.entry(written.place.clone());
            let last = last.or_insert_with(|| written.clone());
            if last.number < written.number {
                *last = written.clone();
            }
        };
        newest(&mut self.seen);
        if told {
            newest(&mut self.told);
        }
    }

    fn lowest_told(&self, tag: &Name) -> (i32, u32) {
        let status = |partition| self.told.get(&(partition, tag.clone()))?.status;
        let told = (0..self.partitions).map(|one| (status(one).unwrap_or(NOT_STARTED), one));
        told.min().unwrap()
    }

    fn has_untold(&self, tag: &Name) -> bool {
        let number = |all: &BTreeMap<Place, Written>, partition| {
            all.get(&(partition, tag.clone())).map(|last| last.number)
        };
        (0..self.partitions).any(|one| number(&self.seen, one) > number(&self.told, one))
    }

    fn speaker(&self, scope: &Scope) -> Speaker {
        let is_in = |(partition, tag): &Place| {
            scope.partition.is_none_or(|of| of == *partition)
                && scope.tag.as_ref().is_none_or(|of| of == tag)
        };
        let there = (self.seen.values())
            .filter(|last| last.place.0 < self.partitions && is_in(&last.place));
        let mut all: Vec<Speaker> = there
            .filter_map(|last| {
                let (partition, tag) = last.place.clone();
                Some((last.status?, partition, Some(tag), last.number))
            })
            .collect();
        for partition in
            (0..self.partitions).filter(|one| scope.partition.is_none_or(|of| of == *one))
        {
            if !all.iter().any(|(_, one, ..)| *one == partition) {
                all.push((NOT_STARTED, partition, scope.tag.clone(), 0));
            }
        }
        all.into_iter().min().unwrap()
    }
}

fn statuses() -> impl Strategy<Value = Option<i32>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(NOT_STARTED)),
        1 => Just(Some(FINISHED)),
        1 => Just(Some(ERROR)),
        1 => Just(Some(WARNING)),
        6 => (1..6_i32).prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn what_is_seen_and_what_was_told_is_what_the_rule_says(
        partitions in 1..5_u32,
        history in prop::collection::vec((0..6_u32, 0..2_usize, statuses()), 1..40),
        heard in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..80),
    ) {
        let tags = ["a", "b"].map(|tag| Name::new(tag).unwrap());
        let keys = Arc::new(Keys::of(Name::new("import").unwrap()).unwrap());
        let history: Vec<Written> = (1..)
            .zip(history)
            .map(|(number, (partition, tag, status))| {
                let place = (partition, tags[tag].clone());
                Written { number, place, status }
            })
            .collect();
        let mut fold = Fold::new(keys.clone());
        fold.ready(partitions);
        let mut rule = Rule { partitions, ..Rule::default() };
        for (which, own) in heard {
            let written = which.get(&history);
            match written.record(&keys) {
                Some(record) if own => {
                    let stored = Stored::read(&keys, &record).unwrap();
                    fold.wrote(Own::read(&record, stored.state));
                    rule.is(written, false);
                }
                Some(record) => {
                    fold.put(&record);
                    rule.is(written, true);
                }
                // Whoever ends a state does not see that before others do.
                None => {
                    fold.remove(&written.key(&keys), Revision::new(written.number));
                    rule.is(written, true);
                }
            }
            for tag in &tags {
                let lowest = rule.lowest_told(tag);
                prop_assert_eq!(fold.lowest_told(tag), lowest);
                for status in [1, 3, FINISHED] {
                    let (plainly, is) = (fold.is_plainly_below(tag, status), lowest.0 < status);
                    // What is not told yet may hide it, and nothing else.
                    let right = plainly == is || (is && rule.has_untold(tag));
                    prop_assert!(right, "{}, {}: {}, but it is {:?}", tag, status, plainly, lowest);
                }
            }
            let of_tags = || tags.iter().cloned().map(Some).chain([None]);
            let of_partitions = (0..partitions).map(Some).chain([None]);
            for (partition, tag) in of_partitions.flat_map(|one| of_tags().map(move |tag| (one, tag))) {
                let scope = Scope { partition, tag };
                let state = fold.get(&scope).unwrap();
                let speaker = (state.status, state.partition, state.tag, state.version);
                prop_assert_eq!(speaker, rule.speaker(&scope), "{:?}", scope);
            }
        }
    }
}
