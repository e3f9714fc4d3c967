//! The rule as it is written down, and whether what is kept up to date agrees with it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::jobs::{ERROR, WARNING};

type States = BTreeMap<(u32, Name), i32>;

fn tag(tag: &str) -> Name {
    Name::new(tag).unwrap()
}

fn aggregate(partitions: u32, states: &[(u32, &str, i32)]) -> Aggregate {
    let mut aggregate = Aggregate::new(partitions);
    for (partition, name, status) in states {
        aggregate.replace(*partition, &tag(name), None, Some(*status));
    }
    aggregate
}

/// The lowest of these; of several, the first in the order of partitions and tags.
fn lowest(all: impl IntoIterator<Item = (i32, Lowest)>) -> Option<(i32, Lowest)> {
    let order = |lowest: &Lowest| match lowest {
        Lowest::State(partition, tag) => (*partition, Some(tag.clone())),
        Lowest::Silent(partition) => (*partition, None),
    };
    all.into_iter()
        .min_by_key(|(status, lowest)| (*status, order(lowest)))
}

fn of_tag(partitions: u32, states: &States, tag: &Name) -> (i32, Lowest) {
    let said = |partition| match states.get(&(partition, tag.clone())) {
        Some(status) => (*status, Lowest::State(partition, tag.clone())),
        None => (NOT_STARTED, Lowest::Silent(partition)),
    };
    lowest((0..partitions).map(said)).unwrap()
}

fn of_partition(states: &States, partition: u32) -> Lowest {
    let its = states.iter().filter(|((of, _), _)| *of == partition);
    let its = its.map(|((of, tag), status)| (*status, Lowest::State(*of, tag.clone())));
    lowest(its).map_or(Lowest::Silent(partition), |(_, lowest)| lowest)
}

fn of_all(partitions: u32, states: &States) -> Lowest {
    let inside = states.iter().filter(|((of, _), _)| *of < partitions);
    let said = inside.map(|((of, tag), status)| (*status, Lowest::State(*of, tag.clone())));
    let silent = (0..partitions)
        .filter(|one| !states.keys().any(|(of, _)| of == one))
        .map(|one| (NOT_STARTED, Lowest::Silent(one)));
    lowest(said.chain(silent)).unwrap().1
}

fn progress(partitions: u32, states: &States, tag: &Name) -> Progress {
    let count = |which: fn(i32) -> bool| {
        let of = |one: &u32| states.get(&(*one, tag.clone())).copied().unwrap_or(0);
        (0..partitions).filter(|one| which(of(one))).count() as u32
    };
    Progress {
        tag: tag.clone(),
        not_started: count(|status| status == 0),
        running: count(|status| status > 0 && status < FINISHED),
        finished: count(|status| status == FINISHED),
        failed: count(|status| status < 0),
    }
}

fn statuses() -> impl Strategy<Value = Option<i32>> {
    prop_oneof![
        2 => Just(None),
        2 => Just(Some(NOT_STARTED)),
        2 => Just(Some(FINISHED)),
        1 => Just(Some(ERROR)),
        1 => Just(Some(WARNING)),
        4 => (1..5_i32).prop_map(Some),
        1 => any::<i32>().prop_map(Some),
    ]
}

proptest! {
    #[test]
    fn what_is_kept_up_to_date_is_what_the_rule_says(
        partitions in 1..6_u32,
        steps in prop::collection::vec((0..7_u32, 0..3_usize, statuses()), 0..60),
    ) {
        let tags = ["a", "b", "c"].map(tag);
        let mut kept = Aggregate::new(partitions);
        let mut states = States::new();
        for (partition, name, status) in steps {
            let key = (partition, tags[name].clone());
            let before = match status {
                Some(status) => states.insert(key.clone(), status),
                None => states.remove(&key),
            };
            kept.replace(partition, &key.1, before, status);
            prop_assert_eq!(kept.of_all(), of_all(partitions, &states));
            for tag in &tags {
                let (status, lowest) = of_tag(partitions, &states, tag);
                prop_assert_eq!(kept.of_tag(tag), (status, lowest.clone()));
                for wanted in [1, 3, FINISHED] {
                    let behind = (0..partitions)
                        .filter(|one| states.get(&(*one, tag.clone())).copied().unwrap_or(0) < wanted)
                        .count() as u32;
                    prop_assert_eq!(kept.behind(tag, wanted), behind);
                }
                let of_tag = || {
                    let of_tag = states.iter().filter(|((_, of), _)| of == tag);
                    of_tag.map(|((partition, _), status)| (*status, *partition))
                };
                let there = |(_, partition): &(i32, u32)| *partition < partitions;
                for despite_warnings in [false, true] {
                    let fails =
                        |(status, _): &(i32, u32)| *status < 0 && !(despite_warnings && *status == WARNING);
                    let failed = of_tag().filter(there).filter(fails).min();
                    let failed = failed.map(|(_, partition)| partition);
                    prop_assert_eq!(kept.failed(tag, despite_warnings), failed);
                }
                // Those that count, and those that have said nothing.
                let counts = |partition: u32| partition.is_multiple_of(2);
                let said: BTreeSet<u32> = of_tag().map(|(_, partition)| partition).collect();
                let silent = (0..partitions).filter(|one| !said.contains(one));
                let some = of_tag().filter(there).filter(|(_, one)| counts(*one));
                let some = some.chain(silent.map(|one| (NOT_STARTED, one))).min();
                prop_assert_eq!(kept.lowest_of(tag, counts), some);
            }
            for partition in 0..partitions {
                prop_assert_eq!(kept.of_partition(partition), of_partition(&states, partition));
            }
            let spoken = |tag: &&Name| {
                let mut said = states.keys();
                said.any(|(partition, of)| *partition < partitions && of == *tag)
            };
            let expected = tags.iter().filter(spoken);
            let expected = expected.map(|tag| progress(partitions, &states, tag));
            prop_assert_eq!(kept.progress(), expected.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_partition_that_has_said_nothing_of_a_tag_counts_as_not_started() {
    let half = aggregate(3, &[(0, "a", FINISHED), (2, "a", 7)]);
    assert_eq!(half.of_tag(&tag("a")), (NOT_STARTED, Lowest::Silent(1)));
    let unknown = half.of_tag(&tag("never"));
    assert_eq!(unknown, (NOT_STARTED, Lowest::Silent(0)));
    let all = aggregate(2, &[(0, "a", FINISHED), (1, "a", 7)]);
    assert_eq!(all.of_tag(&tag("a")), (7, Lowest::State(1, tag("a"))));
}

#[test]
fn an_error_is_lower_than_what_is_missing_and_a_warning_than_an_error() {
    let aggregate = aggregate(3, &[(1, "a", ERROR), (2, "a", WARNING)]);
    let lowest = Lowest::State(2, tag("a"));
    assert_eq!(aggregate.of_tag(&tag("a")), (WARNING, lowest.clone()));
    assert_eq!(aggregate.of_all(), lowest);
}

#[test]
fn ties_go_to_the_lowest_partition_and_then_to_the_first_tag() {
    let same = aggregate(2, &[(1, "a", 5), (0, "c", 5), (0, "b", 5)]);
    assert_eq!(same.of_all(), Lowest::State(0, tag("b")));
    assert_eq!(same.of_partition(0), Lowest::State(0, tag("b")));
    // Nothing said is as low as a status of 0, wherever it is.
    let zeros = aggregate(3, &[(1, "a", 0)]);
    assert_eq!(zeros.of_tag(&tag("a")), (0, Lowest::Silent(0)));
    let zeros = aggregate(3, &[(0, "a", 0)]);
    assert_eq!(zeros.of_tag(&tag("a")), (0, Lowest::State(0, tag("a"))));
}

#[test]
fn in_the_whole_job_only_partitions_without_any_state_count_as_not_started() {
    // Neither has said anything of the other's tag, and that does not matter here.
    let all = aggregate(2, &[(0, "a", 5), (1, "b", 3)]);
    assert_eq!(all.of_all(), Lowest::State(1, tag("b")));
    let one = aggregate(3, &[(0, "a", 5), (1, "b", 3)]);
    assert_eq!(one.of_all(), Lowest::Silent(2));
    assert_eq!(Aggregate::new(4).of_all(), Lowest::Silent(0));
}

#[test]
fn a_partition_without_states_is_not_started_and_has_no_tag() {
    let aggregate = aggregate(2, &[(0, "a", 5)]);
    assert_eq!(aggregate.of_partition(1), Lowest::Silent(1));
}

#[test]
fn a_job_of_ten_thousand_partitions_finds_the_one_that_is_missing() {
    let mut aggregate = Aggregate::new(10_000);
    for partition in (0..10_000).rev().filter(|partition| *partition != 7_777) {
        aggregate.replace(partition, &tag("a"), None, Some(FINISHED));
    }
    assert_eq!(aggregate.of_all(), Lowest::Silent(7_777));
    let lowest = aggregate.lowest_of(&tag("a"), |_| true);
    assert_eq!(lowest, Some((NOT_STARTED, 7_777)));
    assert_eq!(aggregate.behind(&tag("a"), FINISHED), 1);
}
