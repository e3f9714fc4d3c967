//! Every verb with a call that is lost before or after it took effect: the same answer and the same
//! state as if nothing had happened, down to the history.

use std::fmt::Debug;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::log::Level;
use plimsoll_core::record::fields;
use plimsoll_core::store::{List, Logs, Merge, Selector, TaskFilter, Write};
use plimsoll_core::task::{KeyLifetime, OnConflict, Priority, Progress, Status};
use plimsoll_core::{IdempotencyKey, Key, Limits, Name, Result, TaskId};
use plimsoll_engine::tasks::{Bulk, Held};

use crate::world::{LEASE, World, lane, seed};

type Verb = Box<dyn Fn(World) -> BoxFuture<'static, Result<String>>>;

const MINUTE: Duration = Duration::from_secs(60);

const METHODS: [Method; 12] = [
    Method::Tasks,
    Method::TaskByKey,
    Method::List,
    Method::Peek,
    Method::Counts,
    Method::Logs,
    Method::Changes,
    Method::Commit,
    Method::Claim,
    Method::Renew,
    Method::Ping,
    Method::Close,
];

/// A verb: what comes before it, and the call itself, whose answer is told as text.
macro_rules! verb {
    ($name:literal, $w:ident, $before:expr, $it:ident => $call:expr) => {
        (
            $name,
            Box::new(|$w: World| {
                Box::pin(async move {
                    let $it = $before.await?;
                    $w.go();
                    told($call.await)
                }) as BoxFuture<'static, Result<String>>
            }) as Verb,
        )
    };
}

fn told(answer: impl Debug) -> Result<String> {
    Ok(format!("{answer:?}"))
}

thread_local! {
    static FAULT: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

impl World {
    /// From here on, the first call of each method goes wrong.
    fn go(&self) {
        if let Some(fault) = FAULT.get() {
            for method in METHODS {
                self.plan.next(method, fault);
            }
        }
    }

    async fn nothing(&self) -> Result<()> {
        Ok(())
    }

    /// A task that has failed as often as it may.
    async fn failed(&self) -> Result<TaskId> {
        let held = self.hold(self.task("x").max_attempts(1)).await?;
        held.fail("e").await?;
        Ok(held.task().id())
    }

    async fn cancelled(&self) -> Result<TaskId> {
        let id = self.submitted().await?;
        self.tasks.cancel(id, None).await?;
        Ok(id)
    }

    /// A completed task with the key.
    async fn completed(&self) -> Result<TaskId> {
        let held = self.hold(self.task("x").key(key())).await?;
        held.complete("r").await?;
        Ok(held.task().id())
    }

    /// Five tasks of a lane.
    async fn five(&self) -> Result<()> {
        for _ in 0..5 {
            self.submitted().await?;
        }
        Ok(())
    }

    /// Three tasks of an owner, of which the second is cancelled and the third failed for good.
    async fn three(&self) -> Result<Bulk> {
        let owner = Name::new("ada")?;
        let task = || self.task("work").owner(owner.clone());
        self.tasks.submit(task()).await?;
        let second = self.tasks.submit(task()).await?.id;
        self.tasks.cancel(second, None).await?;
        let third = self.hold(task()).await?;
        third.fail_fatal("no").await?;
        let selector = Selector::Owner(owner.clone());
        Ok(self.tasks.bulk(selector, TaskFilter::default()))
    }
}

fn key() -> IdempotencyKey {
    IdempotencyKey::new("k").unwrap()
}

fn replace(on_conflict: OnConflict, w: &World) -> plimsoll_core::task::NewTask {
    w.task("other")
        .key_with(key(), KeyLifetime::WhileActive, on_conflict)
}

fn told_held(answer: Result<Vec<Held>>) -> Result<String> {
    let held = answer?;
    told(held.iter().map(Held::task).collect::<Vec<_>>())
}

fn submits() -> Vec<(&'static str, Verb)> {
    vec![
        verb!("submit", w, w.nothing(), _n => w.tasks.submit(w.task("x"))),
        verb!("submit of a key", w, w.nothing(), _n => w.tasks.submit(w.task("x").key(key()))),
        verb!("submit of a taken key", w, w.tasks.submit(w.task("x").key(key())), _n =>
            w.tasks.submit(w.task("x").key(key()))),
        verb!("submit that rejects", w, w.nothing(), _n =>
            w.tasks.submit(replace(OnConflict::Reject, &w))),
        verb!("submit that replaces", w, w.tasks.submit(w.task("x").key(key())), _n =>
            w.tasks.submit(replace(OnConflict::ReplacePending, &w))),
        verb!("submit that cancels", w, w.hold(w.task("x").key(key())), _n =>
            w.tasks.submit(replace(OnConflict::CancelAndReplace, &w))),
        verb!("submit_all", w, w.nothing(), _n =>
            w.tasks.submit_all([w.task("x"), w.task(&"x".repeat(300_000)), w.task("y")])),
    ]
}

fn holds() -> Vec<(&'static str, Verb)> {
    vec![
        verb!("complete", w, w.held(), held => held.complete("r")),
        verb!("complete_json", w, w.held(), held => held.complete_json(&7)),
        verb!("complete_with", w, w.held(), held => {
            let add = Merge::new(Key::new("n")?).add(Name::new("n")?, 1).returning();
            let next = w.task("next").key(key());
            held.complete_with(None, vec![Write::Merge(add), Write::Submit(Box::new(next))])
        }),
        verb!("fail", w, w.held(), held => held.fail("e")),
        verb!("fail_fatal", w, w.held(), held => held.fail_fatal("e")),
        verb!("retry_after", w, w.held(), held => held.retry_after(MINUTE, "e")),
        verb!("snooze", w, w.held(), held => held.snooze(MINUTE)),
        verb!("release", w, w.held(), held => held.release(Some("drain".into()))),
        verb!("cancel by the holder", w, w.held(), held => held.cancel(None)),
        verb!("renew", w, w.held(), held => held.renew(MINUTE)),
        verb!("progress", w, w.held(), held => held.progress(Progress::default())),
        verb!("checkpoint", w, w.held(), held => held.checkpoint("c")),
        verb!("stage", w, w.held(), held => held.stage(Name::new("s")?)),
        verb!("set_attributes", w, w.held(), held => held.set_attributes(fields([("a", "b")])?)),
        verb!("unset_attributes", w, w.held(), held => held.unset_attributes(vec![Name::new("a")?])),
        verb!("log", w, w.held(), held => held.log(Level::Info, "line")),
        verb!("still_mine", w, w.held(), held => held.still_mine()),
        verb!("claim", w, w.submitted(), id => async {
            told_held(w.tasks.claim(id, &w.worker("w"), LEASE).await.map(|held| vec![held]))
        }),
        verb!("claim_next", w, w.five(), _n => async {
            told_held(w.tasks.claim_next([lane()], 2, &w.worker("w"), LEASE).await)
        }),
    ]
}

fn operators() -> Vec<(&'static str, Verb)> {
    vec![
        verb!("cancel", w, w.submitted(), id => w.tasks.cancel(id, Some("r".into()))),
        verb!("cancel of a claimed task", w, w.held(), held =>
            w.tasks.cancel(held.task().id(), None)),
        verb!("cancel_by_key", w, w.tasks.submit(w.task("x").key(key())), _n => async {
            w.tasks.cancel_by_key(&key(), None).await
        }),
        verb!("retry", w, w.held(), held => async {
            w.tasks.retry(held.task().id()).await
        }),
        verb!("forced retry", w, w.failed(), id => w.tasks.retry_with(id, true, Duration::ZERO)),
        verb!("prioritise", w, w.submitted(), id => w.tasks.prioritise(id, Priority::HIGHEST)),
        verb!("delete", w, w.cancelled(), id => w.tasks.delete(id)),
        verb!("bulk dry run", w, w.three(), bulk => bulk.dry_run()),
        verb!("bulk cancel", w, w.three(), bulk => bulk.cancel(None)),
        verb!("bulk retry", w, w.three(), bulk => bulk.retry(false)),
        verb!("bulk delete", w, w.three(), bulk => bulk.delete()),
        verb!("bulk prioritise", w, w.three(), bulk => bulk.prioritise(Priority::HIGHEST)),
    ]
}

fn reads() -> Vec<(&'static str, Verb)> {
    vec![
        verb!("get", w, w.submitted(), id => w.tasks.get(id)),
        verb!("find_by_key", w, w.tasks.submit(w.task("x").key(key())), _n => async {
            w.tasks.find_by_key(&key()).await
        }),
        verb!("list", w, w.submitted(), _n =>
            w.tasks.list(List::new(Selector::Lane(lane(), Status::Pending), 10))),
        verb!("list_status", w, w.submitted(), _n =>
            w.tasks.list_status(lane(), Status::Pending).try_collect::<Vec<_>>()),
        verb!("peek", w, w.submitted(), _n => w.tasks.peek([lane()], 5)),
        verb!("counts", w, w.submitted(), _n => w.tasks.counts(Default::default())),
        verb!("logs", w, w.held(), held => w.tasks.logs(Logs {
            task: held.task().id(),
            level: Level::Debug,
            cursor: None,
            limit: 5,
        })),
        verb!("wait", w, w.completed(), id => w.tasks.wait(id)),
        verb!("submit_and_wait", w, w.completed(), _n => w.tasks.submit_and_wait(w.task("x").key(key()))),
        verb!("close", w, w.nothing(), _n => w.tasks.close()),
    ]
}

async fn outcome(verb: &Verb, seed: u64, fault: Option<Fault>) -> Result<(String, String, u64)> {
    let w = World::with(seed, Limits::default()).hasty();
    FAULT.set(fault);
    let answer = w.soon(verb(w.clone())).await?;
    let lost = w.plan.injected().values().sum();
    Ok((answer, w.everything().await?, lost))
}

async fn assert_repeated(verbs: Vec<(&'static str, Verb)>) -> Result<()> {
    let seed = seed();
    for (name, verb) in verbs {
        let (answer, state, _) = outcome(&verb, seed, None).await?;
        for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
            let (again, state_again, lost) = outcome(&verb, seed, Some(fault)).await?;
            assert!(lost > 0, "{name}: no call went wrong");
            assert_eq!(again, answer, "{name}, {fault:?}");
            assert_eq!(state_again, state, "{name}, {fault:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn submits_are_repeated_safely() -> Result<()> {
    assert_repeated(submits()).await
}

#[tokio::test]
async fn what_holders_do_is_repeated_safely() -> Result<()> {
    assert_repeated(holds()).await
}

#[tokio::test]
async fn what_operators_do_is_repeated_safely() -> Result<()> {
    assert_repeated(operators()).await
}

#[tokio::test]
async fn reads_are_repeated() -> Result<()> {
    assert_repeated(reads()).await
}
