//! Every verb with a call that is lost before or after it took effect: the same answer and the same
//! state as if nothing had happened, down to the history. And what others wrote meanwhile stays.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::ids::CommitId;
use plimsoll_core::record::fields;
use plimsoll_core::store::Merge;
use plimsoll_core::{Error, Key, Name, Result};
use plimsoll_engine::records::Swap;
use serde::{Deserialize, Serialize};

use crate::world::{MINUTE, World, on_each_store};

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    state: String,
    n: Option<u32>,
}

const METHODS: [Method; 8] = [
    Method::Get,
    Method::Scan,
    Method::DeclareIndex,
    Method::DropIndex,
    Method::Indexes,
    Method::Commit,
    Method::Ping,
    Method::Close,
];

type Verb = Box<dyn Fn(World) -> BoxFuture<'static, Result<String>>>;

macro_rules! verb {
    ($name:literal, $w:ident => $call:expr) => {
        (
            $name,
            Box::new(|$w: World| async move { told($call.await) }.boxed()) as Verb,
        )
    };
}

fn told(answer: impl Debug) -> Result<String> {
    Ok(format!("{answer:?}"))
}

fn claim() -> Swap {
    let claim = Swap::new("job").when("state", "pending");
    claim
        .set("state", "claimed")
        .set("worker", "w1")
        .add("n", 1)
}

fn verbs() -> Vec<(&'static str, Verb)> {
    vec![
        verb!("get", w => w.records.get("job")),
        verb!("get_many", w => w.records.get_many(["job", "nobody"])),
        verb!("get_field", w => w.records.get_field("job", "state")),
        verb!("ttl", w => w.records.ttl("job")),
        verb!("ping", w => w.records.ping()),
        verb!("scan", w => w.records.scan("").stream().try_collect::<Vec<_>>()),
        verb!("scan page", w => async { w.records.scan("").page(None).await }),
        verb!("declare_index", w => async {
            w.records.declare_index("", "n").await?;
            w.others.indexes().await
        }),
        // Whether it was there may be forgotten with the answer, as it says.
        verb!("drop_index", w => async {
            w.records.drop_index("j", "n").await?;
            w.others.indexes().await
        }),
        verb!("drop_index in vain", w => w.records.drop_index("x", "n")),
        verb!("indexes", w => w.records.indexes()),
        verb!("range", w => async { w.records.scan("j").range("n", 5..).page(None).await }),
        verb!("put", w => w.records.put("job", [("x", "1")], Some(MINUTE))),
        verb!("delete", w => w.records.delete("job")),
        verb!("set_field", w => w.records.set_field("job", "x", "1")),
        verb!("set_fields", w => w.records.set_fields("job", [("x", "1")], &["state"])),
        verb!("merge", w => w.records.merge(
            Merge::new(Key::new("job")?).set(fields([("x", "1")])?).add(Name::new("n")?, 1))),
        verb!("increment", w => w.records.increment("job", "n", 1)),
        verb!("raise", w => w.records.raise("job", "n", 70)),
        verb!("touch", w => w.records.touch("job", 2 * MINUTE)),
        verb!("persist", w => w.records.persist("job")),
        verb!("compare_and_swap", w =>
            w.records.compare_and_swap("job", "state", "pending", "claimed")),
        verb!("compare_and_swap in vain", w =>
            w.records.compare_and_swap("job", "state", "done", "claimed")),
        verb!("swap", w => w.records.swap(claim())),
        verb!("swap that deletes", w => w.records.swap(Swap::new("job").when_present().delete())),
        verb!("swap that creates", w => w.records.swap(Swap::new("b").when_absent().set("x", 1))),
        verb!("commit", w => w.records.commit([claim(), Swap::new("b").add("n", 1)])),
        verb!("typed put", w => async {
            let job = Job { state: "new".into(), n: None };
            w.records.typed().put("job", &job, None).await
        }),
        verb!("typed update", w => async {
            let next = |job: Option<Job>| job.map(|job| Job { n: job.n.map(|n| n + 1), ..job });
            w.records.typed().update("job", next).await
        }),
        verb!("close", w => w.records.close()),
    ]
}

/// The answer, what is stored then, and how many calls went wrong.
async fn outcome(verb: &Verb, w: World, fault: Option<Fault>) -> Result<(String, String, u64)> {
    let job = [("state", "pending"), ("n", "5")];
    w.others.put("job", job, Some(MINUTE)).await?;
    w.others.declare_index("j", "n").await?;
    if let Some(fault) = fault {
        for method in METHODS {
            w.plan.next(method, fault);
        }
    }
    let answer = verb(w.clone()).await?;
    let lost = w.plan.injected().values().sum();
    let mut told = [answer, w.everything().await?];
    if w.shares_numbers() {
        for what in ["Revision(", "Position("] {
            told = ranked(told, what);
        }
    }
    let [answer, state] = told;
    Ok((answer, state, lost))
}

/// The same with these numbers counted from the lowest one: a server goes on with those of other namespaces.
fn ranked<const N: usize>(texts: [String; N], what: &str) -> [String; N] {
    // The number, and what comes after it.
    let split = |rest: &str| {
        let rest = rest.trim_start();
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap();
        let number: u64 = rest[..digits].parse().unwrap();
        (number, rest[digits..].to_owned())
    };
    let all = texts.iter().flat_map(|text| text.split(what).skip(1));
    let numbers: BTreeSet<u64> = all.map(|rest| split(rest).0).collect();
    texts.map(|text| {
        let mut parts = text.split(what);
        let mut ranked = parts.next().unwrap().to_owned();
        for rest in parts {
            let (number, after) = split(rest);
            let rank = numbers.range(..number).count();
            ranked += &format!("{what}{rank}{after}");
        }
        ranked
    })
}

async fn assert_repeated(world: impl AsyncFn() -> World) -> Result<()> {
    for (name, verb) in verbs() {
        let (answer, state, _) = outcome(&verb, world().await, None).await?;
        assert!(answer.starts_with("Ok("), "{name}: {answer}");
        for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
            let again = outcome(&verb, world().await, Some(fault)).await?;
            assert!(again.2 > 0, "{name}: no call went wrong");
            assert_eq!(again.0, answer, "{name}, {fault:?}");
            assert_eq!(again.1, state, "{name}, {fault:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_verb_is_repeated_safely_in_memory() -> Result<()> {
    assert_repeated(async || World::memory()).await
}

#[tokio::test]
async fn every_verb_is_repeated_safely_where_it_is_stored() -> Result<()> {
    assert_repeated(World::stored).await
}

#[tokio::test]
async fn a_commit_with_an_id_is_not_made_again_after_a_restart() -> Result<()> {
    let w = World::stored().await;
    let id = CommitId::from_u128(7);
    let add = || [Swap::new("a").add("n", 1)];
    let first = w.records.commit_as(id, add()).await?;
    let w = w.restarted().await;
    assert_eq!(w.records.commit_as(id, add()).await?, first);
    assert_eq!(w.text("a", "n").await?.unwrap(), "1");
    Ok(())
}

on_each_store!(
    a_swap_whose_answer_was_lost_says_that_it_took_effect,
    what_others_wrote_before_the_repeat_stays,
    a_delete_is_not_repeated_on_what_was_created_since,
);

/// Somebody else acts after the first commit took effect and before it is repeated.
fn meanwhile(w: &World, act: impl Fn(World) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    let world = w.clone();
    w.spy.after(Method::Commit, move || act(world.clone()));
}

async fn a_swap_whose_answer_was_lost_says_that_it_took_effect(w: World) -> Result<()> {
    w.records.put("job", [("state", "pending")], None).await?;
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    let swapped = w
        .records
        .compare_and_swap("job", "state", "pending", "claimed");
    assert!(swapped.await?);
    assert_eq!(w.text("job", "state").await?.unwrap(), "claimed");
    Ok(())
}

async fn what_others_wrote_before_the_repeat_stays(w: World) -> Result<()> {
    meanwhile(&w, |w| {
        async move {
            w.others.set_field("a", "x", "theirs").await.unwrap();
        }
        .boxed()
    });
    let mine = w.records.put("a", [("x", "mine")], None).await?;
    assert_eq!(w.text("a", "x").await?.unwrap(), "theirs");
    assert!(w.others.get("a").await?.unwrap().revision > mine);
    Ok(())
}

async fn a_delete_is_not_repeated_on_what_was_created_since(w: World) -> Result<()> {
    w.records.put("a", [("x", "old")], None).await?;
    meanwhile(&w, |w| {
        async move {
            w.others.put("a", [("x", "new")], None).await.unwrap();
        }
        .boxed()
    });
    assert!(w.records.delete("a").await?);
    assert_eq!(w.text("a", "x").await?.unwrap(), "new");
    Ok(())
}

#[tokio::test]
async fn what_stays_unanswered_says_whether_it_may_have_taken_effect() {
    let w = World::memory();
    for (fault, expected) in [
        (Fault::ErrorBefore, Applied::No),
        (Fault::ErrorAfter, Applied::Unknown),
    ] {
        for _ in 0..5 {
            w.plan.next(Method::Commit, fault);
        }
        let answer = w.records.increment("a", "n", 1).await;
        let Err(Error::Unavailable(Unavailable { applied, .. })) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(applied, expected);
    }
    assert_eq!(
        w.text("a", "n").await.unwrap().unwrap(),
        "1",
        "five times the same"
    );
}
