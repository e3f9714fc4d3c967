//! Calls that are lost before or after they took effect, or are made twice: the same answers and the same
//! records as if nothing had happened.

use std::collections::BTreeMap;

use futures::future::join_all;
use plimsoll_core::Error;
use plimsoll_core::decorate::{Fault, FaultPlan, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::Record;
use plimsoll_engine::jobs::Written;

use crate::world::{World, at, number, text, worlds};

/// What is stored, but for random ids and revisions, which differ when something is made twice.
fn shown(records: &[Record]) -> Vec<String> {
    let shown = records.iter().map(|record| {
        let fields = [
            "status",
            "version",
            "generation",
            "closing",
            "deleted",
            "floor",
        ];
        let fields = fields.map(|field| text(record, field));
        format!("{} {fields:?} {:?}", record.key, record.expires_at)
    });
    shown.collect()
}

/// How many things are done in the story, each of which commits something.
const STEPS: u64 = 10;

/// What callers were answered, what is stored in the end, and what went wrong how often.
type Story = (Vec<Written>, Vec<String>, BTreeMap<Method, u64>);

/// Everything that writes, one after another.
async fn story(world: &World, fault: impl Fn(&FaultPlan)) -> Story {
    let process = world.process(1);
    let go = || fault(&process.plan);
    let mut answers = Vec::new();
    go();
    let manager = process.jobs.join("import", 0, 2).await.unwrap();
    go();
    answers.push(manager.set_state(at("a", 1)).await.unwrap());
    go();
    let calls = [at("a", 2), at("b", 3), at("a", 4)];
    for answer in join_all(calls.map(|state| manager.set_state(state))).await {
        answers.push(answer.unwrap());
    }
    go();
    let event = || at("c", 6).event_id("event").unwrap();
    answers.push(manager.set_state(event()).await.unwrap());
    go();
    answers.push(manager.set_state(event()).await.unwrap());
    go();
    assert!(manager.describe([("a", "1")]).await.unwrap());
    go();
    assert!(manager.delete_job().await.unwrap());
    go();
    let again = process.jobs.join("import", 0, 2).await.unwrap();
    assert!(again.created());
    go();
    answers.push(again.set_state(at("a", 5)).await.unwrap());
    go();
    assert!(process.jobs.mark_deleted("import").await.unwrap());
    let stored = shown(&world.records("plimsoll.").await);
    (answers, stored, process.plan.injected())
}

#[tokio::test]
async fn every_write_with_every_fault_ends_as_without() {
    for n in 0..worlds().await.len() {
        let (expected, stored, injected) = story(&worlds().await[n], |_| {}).await;
        assert!(injected.is_empty());
        let versions: Vec<u64> = expected.iter().map(|written| written.version).collect();
        assert_eq!(versions, [1, 2, 1, 3, 1, 1, 4]);
        let repeated = expected.iter().map(|written| written.repeated);
        assert!(repeated.eq([false, false, false, false, false, true, false]));
        for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
            let faults = |plan: &FaultPlan| {
                plan.calm();
                for method in [Method::Get, Method::Scan, Method::Commit] {
                    plan.next(method, fault);
                }
            };
            let (told, left, injected) = story(&worlds().await[n], faults).await;
            assert_eq!((&told, &left), (&expected, &stored), "{fault:?}");
            assert_eq!(injected.get(&Method::Commit), Some(&STEPS), "{fault:?}");
            let read = [Method::Get, Method::Scan].map(|method| injected.contains_key(&method));
            assert_eq!(read, [true; 2], "{fault:?}: {injected:?}");
        }
    }
}

#[tokio::test]
async fn after_patience_ended_the_same_event_tells_what_became_of_it() {
    for world in worlds().await {
        let process = world.process(1);
        let manager = process.jobs.join("import", 0, 1).await.unwrap();
        for (fault, version) in [(Fault::ErrorAfter, 1), (Fault::ErrorBefore, 2)] {
            let state = || at("a", 7).event_id(format!("{fault:?}")).unwrap();
            for _ in 0..5 {
                process.plan.next(Method::Commit, fault);
            }
            let unknown = manager.set_state(state()).await;
            let Err(Error::Unavailable(Unavailable { applied, .. })) = unknown else {
                panic!("{unknown:?}");
            };
            let repeated = fault == Fault::ErrorAfter;
            assert_eq!(applied == Applied::Unknown, repeated);
            let written = manager.set_state(state()).await.unwrap();
            assert_eq!(written, Written { version, repeated });
        }
        let state = world.state("import", 0, "a").await.unwrap();
        assert_eq!(number(&state, "version"), 2);
    }
}
