//! Real concurrent runs on every store, recorded and shown to the checkers.

#![allow(clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use plimsoll::Plimsoll;
use plimsoll_core::clock::SystemClock;
use plimsoll_core::{Ids, Memory, Namespace, Store};
use plimsoll_sim::recorded::{Recording, Spoil, record};
use plimsoll_sim::{Figures, Violation};

const RECORDING: Recording = Recording {
    lasts: Duration::from_secs(3),
    clients: 8,
    spoil: None,
};

fn namespace() -> Namespace {
    let ids = Ids::random(Arc::new(SystemClock::new()));
    Namespace::new(ids.task().to_string()).expect("a namespace")
}

/// Handles to one new namespace, each as another process would have.
async fn handles(url: &str) -> Vec<Arc<dyn Store>> {
    let namespace = namespace();
    let mut handles = Vec::new();
    for _ in 0..3 {
        let plimsoll = Plimsoll::open(url).expect("a URL");
        handles.push(plimsoll.namespace(namespace.clone()).await.expect("open"));
    }
    handles
}

async fn postgres() -> Vec<Arc<dyn Store>> {
    let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
    let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
    let joint = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joint}unsafe_durability=accept");
    handles(&url).await
}

fn memory() -> Vec<Arc<dyn Store>> {
    let store: Arc<dyn Store> = Arc::new(Memory::new().open(namespace()));
    vec![store.clone(), store]
}

/// Whether everything has happened that could have gone wrong.
fn came_near_everything(figures: &Figures) -> bool {
    let often = [
        figures.calls_ordered,
        figures.swaps_refused,
        figures.leases_expired,
        figures.keys_shared,
        figures.locks_taken,
        figures.hand_overs,
        figures.states_written,
        figures.states_repeated,
        figures.resumed,
    ];
    often.iter().all(|often| *often > 0)
}

/// In how many real runs everything must have happened once: a busy machine does less in each.
const RUNS_TO_COME_NEAR: usize = 4;

/// Nothing is wrong in any run on such a store, until everything has happened.
async fn every_rule_is_kept(open: impl AsyncFn() -> Vec<Arc<dyn Store>>, recording: Recording) {
    let (mut all, mut runs) = (Figures::default(), 0);
    while !came_near_everything(&all) {
        assert!(runs < RUNS_TO_COME_NEAR, "{all:?}");
        let outcome = record(open().await, recording).await;
        all += outcome.expect("a run").expect("nothing is wrong");
        runs += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_keeps_every_rule() {
    // Calls of a server take longer, the more so beside the other runs.
    let recording = Recording {
        lasts: RECORDING.lasts * 4,
        ..RECORDING
    };
    every_rule_is_kept(postgres, recording).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_keeps_every_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let url = format!("sqlite:{}", path.display());
    every_rule_is_kept(async || handles(&url).await, RECORDING).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_every_rule() {
    every_rule_is_kept(async || memory(), RECORDING).await;
}

/// In how many real runs a bug must have done harm once: it takes two clients to meet, and a busy
/// machine may keep them apart for one run.
const RUNS: usize = 8;

/// What was found of a planted bug.
async fn found(spoil: Spoil) -> Option<Violation> {
    let recording = Recording {
        spoil: Some(spoil),
        ..RECORDING
    };
    for _ in 0..RUNS {
        let outcome = record(memory(), recording).await.expect("a run");
        if let Err(violation) = outcome {
            return Some(violation);
        }
    }
    None
}

/// Each planted bug is found, by the rule that is there for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn planted_bugs_are_found() {
    for (spoil, rules) in [
        (Spoil::StaleRead, &["linearizable"] as &[&str]),
        (Spoil::SharedTask, &["acknowledged"]),
        (Spoil::LostEntry, &["subscription"]),
        (Spoil::DoubledAdd, &["records"]),
        (Spoil::UnguardedSwap, &["records", "states"]),
        (Spoil::EndlessLease, &["acknowledged"]),
        (Spoil::UnguardedLock, &["locks"]),
        (Spoil::LostKey, &["keys"]),
        (Spoil::UntoldState, &["replay"]),
        (Spoil::RepeatedState, &["replay"]),
    ] {
        let found = found(spoil).await;
        let is_known = |violation: &Violation| rules.contains(&violation.rule);
        assert!(found.as_ref().is_some_and(is_known), "{spoil:?}: {found:?}");
    }
}
