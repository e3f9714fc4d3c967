//! Groups, their members, and groups in groups.

use plimsoll_core::error::Conflict;
use plimsoll_core::store::{GroupCounts, Outcome};
use plimsoll_core::task::Status;

use super::*;

#[test]
fn members_of_a_group_that_was_deleted_count_nowhere() {
    let mut maps = Maps::new();
    maps.done(Commit::of(open("g")));
    maps.done(Commit::of(submit(task(1).group(group("g")))));
    maps.done(Commit::of(Write::DeleteGroup(group("g"))));
    maps.done(Commit::of(open("g")).write(submit(task(2).group(group("g")))));
    maps.done(Commit::of(Write::Seal(group("g"))));
    maps.done(Commit::of(cancel(1)));
    let found = &maps.groups[&group("g")];
    assert_eq!((found.spawned, found.done), (1, 0), "task 2 has not ended");
    assert_eq!(found.drained_at, None);
}

#[test]
fn what_an_inner_group_submits_counts_only_in_the_group_it_was_opened_in() {
    let mut maps = Maps::new();
    let inner = || {
        let new = NewGroup::new(group("inner")).then(task(9).group(group("outer")));
        Write::OpenGroup(Box::new(new))
    };
    maps.done(Commit::of(open("outer")).write(inner()));
    maps.done(Commit::of(Write::DeleteGroup(group("outer"))).write(open("outer")));
    maps.done(Commit::of(Write::Seal(group("inner"))));
    assert_eq!(maps.tasks[&id(9)].status, Status::Pending);
    maps.done(Commit::of(cancel(9)));
    maps.done(Commit::of(Write::DeleteGroup(group("inner"))));
    let found = &maps.groups[&group("outer")];
    assert_eq!((found.spawned, found.done, found.cancelled), (0, 0, 0));
    assert_eq!(found.modified_at, found.created_at);
}

#[test]
fn an_inner_group_is_opened_in_a_sealed_group_and_holds_it_open() {
    let seal = |text: &str| Write::Seal(group(text));
    let inner = NewGroup::new(group("inner")).then(task(9).group(group("outer")));
    let inner = inner.extending();
    let inner = || Write::OpenGroup(Box::new(inner.clone()));
    // The member leaves the inner group in its place, whichever it says first.
    for commit in [
        Commit::of(inner()).write(complete(1)),
        Commit::of(complete(1)).write(inner()),
    ] {
        let mut maps = Maps::new();
        let member = submit(task(1).group(group("outer")));
        maps.done(Commit::of(open("outer")).write(member).write(seal("outer")));
        maps.claim_all();
        maps.done(commit);
        assert_eq!(maps.groups[&group("outer")].drained_at, None);
        maps.done(Commit::of(seal("inner")));
        maps.done(Commit::of(cancel(9)));
        let outer = maps.groups[&group("outer")].clone();
        assert_eq!((outer.spawned, outer.done, outer.cancelled), (2, 2, 1));
        assert_eq!(outer.drained_at, Some(at(maps.now)));

        maps.done(Commit::of(Write::DeleteGroup(group("inner"))));
        let drained = Conflict::GroupDrained {
            group: group("outer"),
        };
        assert_eq!(maps.commit(&Commit::of(inner())), Err(drained.into()));
        assert_eq!(maps.groups[&group("outer")], outer);
        assert!(!maps.groups.contains_key(&group("inner")));
    }
}

#[test]
fn a_receipt_says_what_a_group_is_after_the_writes_up_to_its_own() {
    let mut maps = Maps::new();
    let member = submit(task(1).group(group("g")));
    maps.done(Commit::of(open("g")).write(member));
    maps.claim_all();
    let applied = maps.done(Commit::of(complete(1)).write(Write::Seal(group("g"))));
    let counts = GroupCounts {
        begun: 1,
        done: 1,
        failed: 0,
        drained: true,
        generation: 0,
    };
    assert_eq!(GroupCounts::from(&maps.groups[&group("g")]), counts);
    assert_eq!(applied.receipt.outcomes[1], Outcome::Group(counts));
}

#[test]
fn a_group_that_does_not_change_is_not_written() {
    let mut maps = Maps::new();
    maps.done(Commit::of(open("g")).write(Write::Arrive(group("g"), 1)));
    maps.now += 10;
    maps.done(Commit::of(Write::Seal(group("g"))));
    let before = maps.groups.clone();
    assert_eq!(before[&group("g")].modified_at, at(maps.now));
    maps.now += 10;
    for write in [open("g"), Write::Seal(group("g")), Write::Tally(group("g"))] {
        let applied = maps.done(Commit::of(write.clone()));
        assert_eq!(applied.changes, [], "{write:?}");
        assert_eq!(maps.groups, before, "{write:?}");
    }
    maps.done(Commit::of(Write::Reopen(group("g"))));
    let reopened = maps.groups.clone();
    maps.now += 10;
    maps.done(Commit::of(Write::Reopen(group("g"))));
    assert_eq!(maps.groups, reopened);
}

/// What reopens an inner group and what ends the last member of the outer one are one commit: the
/// outer group must not drain in between, whichever comes first.
#[test]
fn a_commit_adds_to_a_group_before_it_drains() {
    let join = task(9).group(group("outer"));
    let last = NewGroup::new(group("outer")).then(task(8));
    let inner = NewGroup::new(group("inner")).expecting(1).then(join);
    let member = |n, of: &str| submit(task(n).group(group(of)));
    let retry_inner = || retry(2);
    for commit in [
        Commit::of(retry_inner()).write(complete(1)),
        Commit::of(complete(1)).write(retry_inner()),
    ] {
        let mut maps = Maps::new();
        let opened = Commit::of(Write::OpenGroup(Box::new(last.clone())))
            .write(Write::OpenGroup(Box::new(inner.clone())))
            .write(member(1, "outer"))
            .write(member(2, "inner"))
            .write(Write::Seal(group("outer")));
        maps.done(opened);
        maps.done(Commit::of(cancel(2)));
        maps.done(Commit::of(cancel(9)));
        maps.claim_all();
        assert_eq!(maps.groups[&group("outer")].drained_at, None);
        maps.done(commit.id(commit_id(1)));
        let outer = &maps.groups[&group("outer")];
        assert_eq!((outer.drained_at, outer.generation), (None, 0));
        assert!(!maps.tasks.contains_key(&id(8)));
        maps.done(Commit::of(cancel(2)));
        let second = id(9).nth(1);
        maps.done(Commit::of(Write::Cancel(Cancel {
            task: second,
            reason: None,
        })));
        let outer = &maps.groups[&group("outer")];
        assert_eq!((outer.drained_at.is_some(), outer.generation), (true, 0));
        assert_eq!(maps.tasks[&id(8)].status, Status::Pending);
    }
}
