//! Random commits over a tiny world, so that they meet each other.

use std::time::Duration;

use plimsoll_core::group::NewGroup;
use plimsoll_core::ids::Jitter;
use plimsoll_core::record::fields;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{
    Amend, Cancel, Ending, Expire, FailRetry, Guard, Merge, Put, Retry, Settle, Write,
};
use plimsoll_core::task::{Due, KeyLifetime, KeyRequest, OnConflict, Priority, RetryPolicy};
use proptest::prelude::*;

use super::*;
use crate::{LIMITS, name};

pub(super) const THEN: u128 = 100;
pub(super) const ALARM: u128 = 200;

fn records() -> impl Strategy<Value = Key> {
    prop::sample::select(vec!["r", "s"]).prop_map(record)
}

/// The outer group, or the inner one whose `then` is a member of the outer one.
fn groups() -> impl Strategy<Value = GroupId> {
    prop::sample::select(vec!["outer", "inner"]).prop_map(group)
}

pub(super) fn open(text: &GroupId, expected: Option<u64>) -> NewGroup {
    let then = match text.as_str() {
        "inner" => task(THEN).group(group("outer")),
        _ => task(THEN + 1),
    };
    NewGroup {
        expected,
        ..NewGroup::new(text.clone())
            .then(then)
            .on_first_failure(task(ALARM + THEN))
    }
}

fn ids() -> impl Strategy<Value = TaskId> {
    // Now and then the `then` of the inner group, which may be there.
    prop_oneof![12 => 1u128..6, 1 => Just(THEN)].prop_map(id)
}

/// Stands for the fence that the task has when the commit is made.
pub(super) const CURRENT: u64 = u64::MAX;

fn holders() -> impl Strategy<Value = Holder> {
    let fence = prop_oneof![4 => Just(CURRENT), 1 => 1u64..3];
    (ids(), fence).prop_map(|(task, fence)| Holder {
        task,
        ..holder(0, fence)
    })
}

fn seconds() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![0, 5, 40]).prop_map(secs)
}

fn key_requests() -> impl Strategy<Value = KeyRequest> {
    let lifetimes = vec![
        KeyLifetime::WhileActive,
        KeyLifetime::For(secs(20)),
        KeyLifetime::Forever,
    ];
    let policies = vec![
        OnConflict::Attach,
        OnConflict::Reject,
        OnConflict::ReplacePending,
        OnConflict::CancelAndReplace,
    ];
    (
        prop::sample::select(vec!["k", "l"]),
        prop::sample::select(lifetimes),
        prop::sample::select(policies),
    )
        .prop_map(|(text, lifetime, on_conflict)| KeyRequest {
            key: key(text),
            lifetime,
            on_conflict,
        })
}

fn submits() -> impl Strategy<Value = NewTask> {
    (
        1u128..6,
        prop::option::of(key_requests()),
        prop::option::of(groups()),
        prop::option::weighted(0.2, seconds()),
        any::<bool>(),
    )
        .prop_map(|(number, key, group, due, alarm)| NewTask {
            key,
            group,
            due: due.map_or(Due::Now, Due::After),
            on_failure: alarm.then(|| Box::new(task(ALARM + number))),
            retry: RetryPolicy {
                max_attempts: 2,
                ..RetryPolicy::default()
            },
            ..task(number)
        })
}

fn endings() -> impl Strategy<Value = Ending> {
    let fail = |retry| Ending::Fail {
        error: "broken".into(),
        retry,
        jitter: Jitter::default(),
    };
    prop_oneof![
        3 => Just(Ending::Complete { result: None }),
        1 => Just(fail(FailRetry::After(secs(0)))),
        2 => Just(fail(FailRetry::Fatal)),
        1 => seconds().prop_map(|delay| Ending::Snooze { delay }),
        1 => Just(Ending::Release { reason: None }),
        1 => Just(Ending::Cancel { reason: None }),
    ]
}

/// Writes that keep what they are about.
pub(super) fn keeping() -> impl Strategy<Value = Write> {
    let settle = (holders(), endings()).prop_map(|(holder, how)| Settle { holder, how });
    let expire = holders().prop_map(|holder| Expire {
        task: holder.task,
        fence: holder.fence,
        jitter: Jitter::default(),
    });
    let retry = (ids(), any::<bool>(), seconds());
    prop_oneof![
        8 => submits().prop_map(|new| Write::Submit(Box::new(new))),
        8 => settle.prop_map(Write::Settle),
        1 => holders().prop_map(|holder| Write::Amend(Box::new(Amend::new(holder)))),
        2 => ids().prop_map(|task| Write::Cancel(Cancel { task, reason: None })),
        2 => retry.prop_map(|(task, force, delay)| Write::Retry(Retry { task, force, delay })),
        1 => ids().prop_map(|id| Write::Prioritise(id, Priority::HIGHEST)),
        1 => ids().prop_map(Write::Promote),
        1 => expire.prop_map(Write::Expire),
        3 => (groups(), prop::option::of(0u64..3))
            .prop_map(|(id, expected)| Write::OpenGroup(Box::new(open(&id, expected)))),
        1 => groups().prop_map(|id| Write::Arrive(id, 1)),
        2 => groups().prop_map(Write::Seal),
        1 => groups().prop_map(Write::Reopen),
        1 => groups().prop_map(Write::Tally),
    ]
}

/// Writes of records, and writes that remove what they are about.
fn removing() -> impl Strategy<Value = Write> {
    let put = (records(), prop::option::of(1u64..9)).prop_map(|(key, ttl)| Put {
        ttl: ttl.map(secs),
        ..Put::new(key, fields([("n", "1")]).unwrap())
    });
    prop_oneof![
        2 => put.prop_map(Write::Put),
        2 => records().prop_map(|key| Write::Merge(Merge::new(key).add(name("n"), 1).returning())),
        1 => records().prop_map(Write::Delete),
        1 => records().prop_map(|key| Write::Touch(key, Some(secs(5)))),
        1 => records().prop_map(Write::ExpireRecord),
        1 => ids().prop_map(Write::DeleteTask),
        1 => groups().prop_map(Write::DeleteGroup),
    ]
}

fn guards() -> impl Strategy<Value = Guard> {
    prop_oneof![
        records().prop_map(Guard::RecordAbsent),
        records().prop_map(Guard::RecordPresent),
        (records(), 1u64..20).prop_map(|(key, at)| Guard::RecordAt(key, revision(at))),
        holders().prop_map(Guard::Held),
        (ids(), 1u64..20).prop_map(|(id, at)| Guard::TaskAt(id, revision(at))),
        groups().prop_map(Guard::GroupOpen),
    ]
}

/// Commits that a store would accept for a decision.
fn commits_of<W: Strategy<Value = Write>>(write: W) -> impl Strategy<Value = Commit> {
    (
        // Small enough for an id to come twice now and then.
        1u128..300,
        prop::option::weighted(0.15, guards()),
        prop::collection::vec(write, 1..4),
    )
        .prop_map(|(id, guard, writes)| Commit {
            id: Some(commit_id(id)),
            guards: guard.into_iter().collect(),
            writes,
        })
        .prop_filter("a commit that no store takes", |commit| {
            commit.check(&LIMITS).is_ok()
        })
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Commits(Vec<Commit>),
    Claim,
    Advance(u64),
}

pub(super) fn history<W: Strategy<Value = Write>>(
    write: impl Fn() -> W,
) -> impl Strategy<Value = Vec<Step>> {
    let commits = prop::collection::vec(commits_of(write()), 1..6);
    let step = prop_oneof![
        4 => commits.prop_map(Step::Commits),
        2 => Just(Step::Claim),
        1 => (1u64..40).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..25)
}

/// Writes about one key.
pub(super) fn competing() -> impl Strategy<Value = Write> {
    let policies = vec![
        OnConflict::Attach,
        OnConflict::ReplacePending,
        OnConflict::CancelAndReplace,
    ];
    let lifetimes = vec![KeyLifetime::WhileActive, KeyLifetime::Forever];
    let submit = (
        1u128..6,
        prop::sample::select(lifetimes),
        prop::sample::select(policies),
    )
        .prop_map(|(number, lifetime, on_conflict)| {
            Write::Submit(Box::new(task(number).key_with(
                key("k"),
                lifetime,
                on_conflict,
            )))
        });
    let settle = (holders(), endings()).prop_map(|(holder, how)| Settle { holder, how });
    prop_oneof![
        4 => submit,
        2 => ids().prop_map(|task| Write::Cancel(Cancel { task, reason: None })),
        2 => ids().prop_map(|task| Write::Retry(Retry { task, force: true, delay: secs(0) })),
        1 => settle.prop_map(Write::Settle),
    ]
}

/// Writes after which a group may have the id of another one that is gone.
pub(super) fn regrouping() -> impl Strategy<Value = Write> {
    prop_oneof![8 => keeping(), 1 => groups().prop_map(Write::DeleteGroup)]
}

pub(super) fn everything() -> impl Strategy<Value = Write> {
    prop_oneof![3 => keeping(), 1 => removing()]
}
