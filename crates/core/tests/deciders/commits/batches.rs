//! Commits that are decided together.

use plimsoll_core::LineId;
use plimsoll_core::error::Error;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::store::{Log, Merge, Outcome};
use plimsoll_core::task::Status;

use super::*;
use crate::name;

/// Twenty tasks that are claimed, each in a group of its own that submits a task at the end.
fn twenty() -> Maps {
    let mut maps = Maps::new();
    for number in 0..20 {
        let new = NewGroup::new(group(&format!("g{number}"))).then(task(100 + number));
        let member = submit(task(number).group(new.id.clone()));
        let open = Write::OpenGroup(Box::new(new));
        let seal = Write::Seal(group(&format!("g{number}")));
        maps.done(Commit::of(open).write(member).write(seal));
    }
    maps.claim_all();
    maps
}

#[test]
fn rows_that_a_commit_needs_after_another_one_are_missing_before_both() {
    let mut maps = Maps::new();
    maps.done(Commit::of(submit(task(1).key(key("k")))));
    maps.claim_all();
    let commits = [Commit::of(fail(1)), Commit::of(retry(1))];
    let decided = maps.decide(&commits);
    assert!(decided.answers.iter().all(Result::is_ok));
    let expected = [RowId::Task(id(1)), RowId::Key(key("k"))].map(|row| BTreeSet::from([row]));
    assert_eq!(decided.rounds, expected);
}

#[test]
fn many_rows_are_loaded_in_a_few_rounds_whether_one_commit_needs_them_or_many() {
    let maps = twenty();
    let one = (0..20).fold(Commit::new(), |commit, number| {
        commit.write(complete(number))
    });
    let many: Vec<Commit> = (0..20).map(|n| Commit::of(complete(n))).collect();
    for commits in [vec![one], many] {
        let decided = maps.decide(&commits);
        assert!(decided.answers.iter().all(Result::is_ok));
        let loaded: BTreeSet<&RowId> = decided.rounds.iter().flatten().collect();
        assert_eq!(loaded.len(), 60, "tasks, groups, and what they submit");
        assert_eq!(decided.rounds.len(), 3, "{:?}", decided.rounds);
    }
}

#[test]
fn each_commit_of_a_batch_has_a_revision_of_its_own_and_sees_those_before() {
    let mut maps = Maps::new();
    maps.revision = 40;
    let add = || Commit::of(Write::Merge(Merge::new(record("r")).add(name("n"), 1)));
    let refused = Commit::of(Write::Promote(id(9)));
    let answers = maps.batch(&[add(), refused, add()]);
    let revisions: Vec<Option<Revision>> = (answers.iter())
        .map(|answer| match &answer.as_ref().ok()?.receipt.outcomes[..] {
            [Outcome::Written { revision, .. }] => Some(*revision),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(revisions, [Some(revision(41)), None, Some(revision(43))]);
    assert!(matches!(answers[1], Err(Error::NotFound(_))));
    let found = &maps.records[&record("r")];
    assert_eq!(found.revision, revision(43));
    assert_eq!(found.field("n"), Some(&"2".into()));
}

#[test]
fn a_commit_that_comes_twice_in_a_batch_is_applied_once() {
    let mut maps = Maps::new();
    let add = Commit::of(Write::Merge(Merge::new(record("r")).add(name("n"), 1)));
    let add = add.id(commit_id(7));
    let answers = maps.batch(&[add.clone(), add.clone()]);
    let [Ok(first), Ok(second)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(!first.receipt.repeated && second.receipt.repeated);
    assert_eq!(second.receipt.outcomes, first.receipt.outcomes);
    assert_eq!((first.changes.len(), second.changes.len()), (1, 0));
    assert_eq!(maps.records[&record("r")].field("n"), Some(&"1".into()));
    assert_eq!((first.repeats, second.repeats), (None, Some(0)));
    assert_eq!(maps.receipts[&commit_id(7)], first.receipt);

    let third = maps.done(add);
    assert_eq!(third.receipt, second.receipt);
}

#[test]
fn lines_go_with_the_task_that_a_later_commit_of_the_batch_removes() {
    let mut maps = twenty();
    let held = maps.tasks[&id(3)].holder().expect("it is claimed");
    let line = NewLine::new(LineId::from_u128(1), Level::Info, "hello");
    let log = Write::Log(Log {
        holder: held,
        lines: vec![line],
    });
    let remove = Commit::of(complete(3)).write(Write::DeleteTask(id(3)));
    let answers = maps.batch(&[Commit::of(log), remove]);
    let [Ok(first), Ok(second)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((first.lines.len(), second.lines.len()), (0, 0));
}

#[test]
fn a_settle_that_comes_twice_in_a_batch_is_applied_once() {
    let mut maps = twenty();
    let complete = Commit::of(complete(3));
    let answers = maps.batch(&[complete.clone(), complete]);
    let [Ok(first), Ok(second)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(!first.receipt.repeated && second.receipt.repeated);
    assert_eq!(second.receipt.outcomes, first.receipt.outcomes);
    assert_eq!(maps.tasks[&id(103)].status, Status::Pending);
    assert_eq!(maps.groups[&group("g3")].done, 1);
}

#[test]
fn a_batch_that_misses_rows_leaves_those_it_has_as_they_were() {
    let maps = twenty();
    let commits = [Commit::of(complete(0)), Commit::of(complete(1))];
    let mut rows = Rows::default();
    for number in [0, 1] {
        maps.load(&RowId::Task(id(number)), &mut rows);
    }
    let missing = decide::batch(&commits, &mut rows, maps.moment()).unwrap_err();
    let groups = ["g0", "g1"].map(|text| RowId::Group(group(text)));
    assert_eq!(missing, BTreeSet::from(groups));
    assert_eq!(written(&rows), written(&Rows::default()));
    for number in [0, 1] {
        let task = rows.tasks.get(&id(number));
        assert_eq!(task, Some(maps.tasks.get(&id(number))));
    }
    assert!(missing.iter().all(|row| !rows.is_loaded(row)));
    assert_eq!(rows.tasks.get(&id(100)), None, "it would be submitted");
}
