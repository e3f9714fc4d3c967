//! Groups: random histories against a plain list of members.

use plimsoll_core::change::GroupEvent;
use plimsoll_core::decide::group::{self, Effects};
use plimsoll_core::error::{Conflict, Error};
use plimsoll_core::group::{Group, NewGroup};
use plimsoll_core::limits::GROUP_MAX;
use plimsoll_core::task::{Lane, NewTask, Status};
use plimsoll_core::{GroupId, TaskId, Timestamp};
use proptest::prelude::*;

use crate::{at, moment, moment_at};

const THEN: TaskId = TaskId::from_u128(1_000);
const ALARM: TaskId = TaskId::from_u128(2_000);

fn new_group(expected: Option<u64>) -> NewGroup {
    let lane = Lane::new("media", "join").unwrap();
    NewGroup {
        expected,
        ..NewGroup::new(GroupId::new("g").unwrap())
            .then(NewTask::new(THEN, lane.clone(), "then"))
            .on_first_failure(NewTask::new(ALARM, lane, "alarm"))
    }
}

fn now() -> Timestamp {
    moment(at(50)).now
}

/// A group as a list of its members, with everything counted anew each time.
#[derive(Debug)]
struct Model {
    expected: Option<u64>,
    sealed: bool,
    /// What each member has ended with, if it has.
    members: Vec<Option<Status>>,
    arrived: u64,
    /// How many more are expected than were at first.
    again: u64,
    generation: u32,
    drained: bool,
    first_failure: Option<TaskId>,
}

impl Model {
    fn total(&self) -> Option<u64> {
        match self.sealed {
            true => Some(self.members.len() as u64 + self.arrived),
            false => self.expected.map(|expected| expected + self.again),
        }
    }

    fn done(&self) -> u64 {
        self.members.iter().flatten().count() as u64 + self.arrived
    }

    fn ended_with(&self, status: Status) -> u64 {
        (self.members.iter().flatten())
            .filter(|s| **s == status)
            .count() as u64
    }

    fn admits(&self, more: u64) -> bool {
        let begun = self.members.len() as u64 + self.arrived;
        let room = self
            .expected
            .map_or(GROUP_MAX, |expected| expected + self.again);
        !self.sealed && begun + more <= room
    }

    fn members_that(&self, ended: bool) -> Vec<usize> {
        (0..self.members.len())
            .filter(|index| self.members[*index].is_some() == ended)
            .collect()
    }

    /// It drains if everything that will ever be in it is done.
    fn drain(&mut self, effects: &mut Effects) {
        if !self.drained && self.total() == Some(self.done()) {
            self.drained = true;
            effects.events.push(GroupEvent::Drained);
            effects.submit.push(fired(THEN, "then", self.generation));
        }
    }

    fn next_generation(&mut self, effects: &mut Effects) {
        if self.drained {
            self.drained = false;
            self.generation += 1;
            self.first_failure = None;
            effects.events.push(GroupEvent::Reopened);
        }
    }

    /// The group that has these members.
    fn group(&self) -> Group {
        Group {
            expected: self.expected,
            sealed: self.sealed,
            spawned: self.members.len() as u64,
            arrived: self.arrived,
            done: self.done(),
            failed: self.ended_with(Status::Failed),
            cancelled: self.ended_with(Status::Cancelled),
            generation: self.generation,
            first_failure: self.first_failure,
            drained_at: self.drained.then(now),
            again: self.again,
            ..Group::new(new_group(None), moment(now()).revision, now())
        }
    }
}

fn fired(id: TaskId, payload: &'static str, generation: u32) -> NewTask {
    NewTask::new(
        id.nth(generation),
        Lane::new("media", "join").unwrap(),
        payload,
    )
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Spawn,
    Arrive(u64),
    Seal,
    End(usize, Status),
    GiveUp(usize),
    Revive(usize),
    Reopen,
    Expect,
    ExpectAgain,
    Tally,
}

/// What a commit does in its end: counts and drains are told together.
fn and_drain(group: &mut Group, mut counted: Effects) -> Effects {
    let drained = group::drain(group, now());
    counted.events.extend(drained.events);
    counted.submit.extend(drained.submit);
    counted
}

/// Does the step on both, if its precondition holds, and answers what each led to.
fn step(step: Step, group: &mut Group, model: &mut Model) -> Option<(Effects, Effects)> {
    let mut expected = Effects::default();
    let pick = |from: Vec<usize>, choice: usize| from.get(choice % from.len().max(1)).copied();
    let found = match step {
        Step::Spawn => {
            assert_eq!(group::admits(group, 1).is_ok(), model.admits(1));
            if !model.admits(1) {
                return None;
            }
            model.members.push(None);
            group::spawn(group)
        }
        Step::Arrive(count) => {
            assert_eq!(group::admits(group, count).is_ok(), model.admits(count));
            if !model.admits(count) {
                return None;
            }
            model.arrived += count;
            model.drain(&mut expected);
            let counted = group::arrive(group, count);
            and_drain(group, counted)
        }
        Step::Seal => {
            if !model.sealed {
                model.sealed = true;
                expected.events.push(GroupEvent::Sealed);
                model.drain(&mut expected);
            }
            let counted = group::seal(group);
            and_drain(group, counted)
        }
        Step::End(choice, status) => {
            let index = pick(model.members_that(false), choice)?;
            let task = TaskId::from_u128(index as u128);
            model.members[index] = Some(status);
            if status == Status::Failed && model.first_failure.is_none() {
                model.first_failure = Some(task);
                expected.events.push(GroupEvent::FirstFailure);
                expected
                    .submit
                    .push(fired(ALARM, "alarm", model.generation));
            }
            model.drain(&mut expected);
            let counted = group::member_ended(group, task, status);
            and_drain(group, counted)
        }
        Step::GiveUp(choice) => {
            let index = pick(model.members_that(false), choice)?;
            model.members[index] = Some(Status::Cancelled);
            model.drain(&mut expected);
            let counted = group::member_given_up(group);
            and_drain(group, counted)
        }
        Step::Revive(choice) => {
            let index = pick(model.members_that(true), choice)?;
            let status = model.members[index].filter(|s| *s != Status::Completed)?;
            model.next_generation(&mut expected);
            model.members[index] = None;
            group::member_revived(group, status)
        }
        Step::Reopen => {
            if model.drained {
                model.next_generation(&mut expected);
                model.sealed = false;
                model.expected = None;
                model.again = 0;
            }
            group::reopen(group)
        }
        Step::Expect => {
            let drained = Conflict::GroupDrained {
                group: group.id.clone(),
            };
            match group::expect(group, true) {
                Err(error) => {
                    assert!(model.drained);
                    assert_eq!(error, drained.into());
                    return None;
                }
                Ok(found) => {
                    assert!(!model.drained);
                    model.again += 1;
                    model.members.push(None);
                    found
                }
            }
        }
        Step::ExpectAgain => {
            model.next_generation(&mut expected);
            model.members.push(None);
            model.again += 1;
            group::expect_again(group)
        }
        Step::Tally => {
            model.drain(&mut expected);
            group::drain(group, now())
        }
    };
    Some((found, expected))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ended = [Status::Completed, Status::Failed, Status::Cancelled];
    let one = prop_oneof![
        4 => Just(Step::Spawn),
        2 => (1u64..3).prop_map(Step::Arrive),
        2 => Just(Step::Seal),
        6 => (0usize..8, prop::sample::select(ended.to_vec())).prop_map(|(n, s)| Step::End(n, s)),
        1 => (0usize..8).prop_map(Step::GiveUp),
        2 => (0usize..8).prop_map(Step::Revive),
        1 => Just(Step::Reopen),
        1 => Just(Step::Expect),
        1 => Just(Step::ExpectAgain),
        1 => Just(Step::Tally),
    ];
    prop::collection::vec(one, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_group_counts_like_a_list_of_its_members(
        expected in prop::option::of(0u64..5),
        steps in steps(),
    ) {
        let mut group = opened(&new_group(expected));
        let mut model = Model {
            expected,
            sealed: false,
            members: Vec::new(),
            arrived: 0,
            again: 0,
            generation: 0,
            drained: false,
            first_failure: None,
        };
        prop_assert_eq!(&group, &model.group());
        let mut submitted: Vec<TaskId> = Vec::new();
        for one in [Step::Tally].iter().chain(&steps) {
            let Some((found, wanted)) = step(*one, &mut group, &mut model) else {
                continue;
            };
            prop_assert_eq!(&found, &wanted, "{:?}", one);
            prop_assert_eq!(&group, &model.group(), "{:?}", one);
            let complete = model.total() == Some(model.done());
            prop_assert_eq!(group.drained_at.is_some(), complete, "{:?}", one);
            submitted.extend(found.submit.iter().map(|task| task.id));
        }
        let mut once = submitted.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), submitted.len(), "nothing is submitted twice");
        let drained = (0..=group.generation).filter(|n| submitted.contains(&THEN.nth(*n)));
        let ended = group.generation + u32::from(group.drained_at.is_some());
        prop_assert_eq!(drained.count(), ended as usize, "then once a generation");
    }
}

fn opened(new: &NewGroup) -> Group {
    group::open(None, new, &moment(now())).unwrap().unwrap()
}

#[test]
fn opening_again_with_the_same_definition_finds_the_group() {
    let new = new_group(Some(3));
    let group = opened(&new);
    assert_eq!(
        group,
        Group::new(new.clone(), moment(now()).revision, now())
    );
    let later = moment_at(at(99), 501);
    assert_eq!(group::open(Some(&group), &new, &later), Ok(None));
}

#[test]
fn opening_again_with_another_definition_says_what_differs() {
    let base = new_group(Some(3));
    let other = NewTask::new(TaskId::from_u128(7), Lane::new("a", "b").unwrap(), "");
    let group = opened(&base);
    for (field, new) in [
        ("expected", new_group(Some(4))),
        ("expected", new_group(None)),
        ("then", base.clone().then(other.clone())),
        (
            "then",
            NewGroup {
                then: None,
                ..base.clone()
            },
        ),
        ("on_first_failure", base.clone().on_first_failure(other)),
        (
            "on_first_failure",
            NewGroup {
                on_first_failure: None,
                ..base.clone()
            },
        ),
    ] {
        let differs = Conflict::GroupDiffers {
            group: group.id.clone(),
            field: field.into(),
        };
        let found = group::open(Some(&group), &new, &moment(now()));
        assert_eq!(found, Err(differs.into()));
    }
}

#[test]
fn a_later_generation_is_found_by_its_first_definition() {
    let new = new_group(Some(0));
    let mut group = opened(&new);
    group::drain(&mut group, now());
    group::reopen(&mut group);
    assert_eq!(group.expected, None);
    assert_eq!(group::open(Some(&group), &new, &moment(now())), Ok(None));
}

#[test]
fn a_group_that_expects_one_more_is_found_by_its_first_definition() {
    let new = new_group(Some(2));
    let mut group = opened(&new);
    group::expect_again(&mut group);
    assert_eq!((group.expected, group.again), (Some(2), 1));
    assert_eq!(group.total(), Some(3));
    assert_eq!(group::open(Some(&group), &new, &moment(now())), Ok(None));
}

#[test]
fn a_sealed_or_full_group_says_why_it_takes_no_more() {
    let mut group = opened(&new_group(Some(3)));
    group::spawn(&mut group);
    group::arrive(&mut group, 1);
    assert_eq!(group::admits(&group, 1), Ok(()));
    let id = group.id.clone();
    let full = Error::from(Conflict::GroupFull {
        group: id.clone(),
        expected: 3,
    });
    assert_eq!(group::admits(&group, 2), Err(full.clone()));
    assert_eq!(group::admits(&group, u64::MAX), Err(full));
    group::seal(&mut group);
    assert_eq!(
        group::admits(&group, 1),
        Err(Conflict::GroupSealed { group: id }.into())
    );
}

#[test]
fn counts_that_do_not_fit_are_refused() {
    let mut group = opened(&new_group(None));
    group::spawn(&mut group);
    let full = Error::from(Conflict::GroupFull {
        group: group.id.clone(),
        expected: GROUP_MAX,
    });
    assert_eq!(group::admits(&group, GROUP_MAX - 1), Ok(()));
    assert_eq!(group::admits(&group, GROUP_MAX), Err(full.clone()));
    assert_eq!(group::admits(&group, u64::MAX), Err(full));
}

#[test]
fn an_inner_group_counts_in_a_group_that_takes_no_more_unless_that_has_drained() {
    let sealed = |group: &mut Group| drop(group::seal(group));
    let full = |_: &mut Group| {};
    for (close, expected) in [(sealed as fn(&mut Group), None), (full, Some(1))] {
        let mut group = opened(&new_group(expected));
        group::spawn(&mut group);
        close(&mut group);
        let refused = group::admits(&group, 1).unwrap_err();
        let before = group.clone();
        assert_eq!(group::expect(&mut group, false), Err(refused));
        assert_eq!(group, before, "one of those expected");
        assert_eq!(group::expect(&mut group, true), Ok(Effects::default()));
        assert_eq!(group.total(), Some(2), "the member and the one to come");
        assert!(group::admits(&group, 1).is_err(), "nobody else");

        let member = TaskId::from_u128(1);
        group::member_ended(&mut group, member, Status::Completed);
        assert_eq!(group::drain(&mut group, now()), Effects::default());
        assert_eq!(group.drained_at, None, "one is to come");
        group::member_ended(&mut group, THEN, Status::Completed);
        group::drain(&mut group, now());
        assert_eq!(group.drained_at, Some(now()));
        let before = group.clone();
        let drained = Conflict::GroupDrained {
            group: group.id.clone(),
        };
        assert_eq!(group::expect(&mut group, true), Err(drained.into()));
        assert_eq!(group, before);
    }
}
