//! Every workload does what it says, and says what it did.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::clock::{Clock, SystemClock};
use plimsoll::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll::record::Record;
use plimsoll::store::{Counts, Range, Scan};
use plimsoll::task::Status;
use plimsoll::{Error, Memory, Name, Namespace, Plimsoll, Prefix, Result, Store};
use plimsoll_bench::{Figures, Scale, Workload, run, workloads};

const TASKS: u64 = 200;

fn memory() -> Result<Arc<dyn Store>> {
    Ok(Arc::new(Memory::new().open(Namespace::new("bench")?)))
}

/// Those that are over in a moment: all but claims, sweeps, ranges and writes beside many others.
fn quick() -> impl Iterator<Item = Workload> {
    let all = workloads(Scale::tasks(TASKS)).into_iter();
    // Workers that wait ask nothing in no time: they have a test of their own.
    let all = all.filter(|w| w.name != "waiting");
    let many = ["claim", "sweep", "range", "overdue", "indexed", "read"];
    let beside_many = move |w: &Workload| many.iter().any(|name| w.name.starts_with(name));
    let few = |w: &Workload| ["-10", "-1k"].iter().any(|size| w.name.ends_with(size));
    let all = all.filter(move |w| !beside_many(w) || few(w));
    all.filter(|w| !w.name.starts_with("read") || w.name.ends_with("-10"))
}

fn workload(name: &str) -> Workload {
    quick().find(|w| w.name == name).expect("a workload")
}

async fn measure(name: &str, store: Arc<dyn Store>) -> Result<Figures> {
    in_time(&workload(name), store).await
}

/// A workload that waits for what never comes must fail its test, not hang it.
async fn in_time(workload: &Workload, store: Arc<dyn Store>) -> Result<Figures> {
    tokio::select! {
        found = run(workload, store, |_, _| {}) => found,
        () = SystemClock::new().sleep(Duration::from_secs(60)) => panic!("{} hangs", workload.name),
    }
}

async fn by_status(store: &dyn Store) -> Result<BTreeMap<Status, u64>> {
    let mut all = BTreeMap::new();
    for lane in store.counts(Counts::default()).await? {
        for (status, count) in lane.by_status {
            *all.entry(status).or_default() += count;
        }
    }
    Ok(all)
}

/// How many operations a workload does at this scale.
fn operations(name: &str) -> u64 {
    match name {
        "cycle" | "submit" | "bulk" => TASKS,
        "sequential" => TASKS / 20,
        "payload-10k" | "key-half-attach" => TASKS / 4,
        "key-while-active" | "key-for-a-day" | "key-forever" => TASKS / 2,
        "merge" | "swap" | "tail" | "log" => TASKS / 2,
        "log-gathered" => (TASKS / 2).next_multiple_of(100),
        "scan" => 1,
        "start-idle" => TASKS / 40,
        "start-half" => TASKS / 4,
        "lock-64" => TASKS / 2,
        _ if name.starts_with("lock-") => TASKS / 20,
        _ if name.starts_with("work-") => TASKS,
        _ if name.starts_with("claim-100-") => TASKS / 20 * 100,
        _ if name.starts_with("claim-1-") => TASKS / 20,
        "sweep-1k" => TASKS / 20,
        "range-1k" | "range-large-1k" | "overdue-1k" => TASKS / 20 * 100,
        _ if name.starts_with("indexed-") => TASKS / 2,
        "sweep-all-1k" => 1_000,
        "states-1" => (TASKS / 20).next_multiple_of(4),
        "states-8" => TASKS.next_multiple_of(8 * 4),
        _ if name.starts_with("subscribers-seq") => 5 * (TASKS / 40).next_multiple_of(4),
        _ if name.starts_with("subscribers-") || name.starts_with("barriers-") => {
            5 * (TASKS / 10).next_multiple_of(8 * 4)
        }
        _ if name.starts_with("deliver-") || name.starts_with("watch-") => TASKS / 40,
        _ if name.starts_with("read-") => TASKS / 20 * 1_000,
        "resume-1k" => 5 * 1_000,
        _ if name.starts_with("replay-1k") => 5 * 1_000,
        _ if name.starts_with("replay-") => 5 * TASKS * 5 / 2,
        "contended-cas" => 3 * (TASKS / 20 / 3),
        _ => panic!("{name} is new: how many operations does it do?"),
    }
}

#[tokio::test]
async fn every_workload_finds_figures_that_agree() -> Result<()> {
    for workload in quick() {
        let name = &workload.name;
        let found = in_time(&workload, memory()?).await?;
        assert_eq!(found.name, *name);
        assert_eq!(found.store, "memory");
        assert_eq!(found.operations, operations(name), "{name}");
        let rate = found.operations as f64 / found.seconds;
        let off = (found.operations_per_second - rate).abs();
        assert!(rate > 0.0 && off <= rate / 1e6, "{found:?}");
        assert!(found.p50_us > 0 && found.p50_us <= found.p99_us, "{name}");
        assert!(found.p99_us <= found.max_us, "{name}");
        // Latencies are kept to three digits.
        let longest = found.seconds * 1e6 * 1.01 + 1.0;
        assert!(found.max_us as f64 <= longest, "{found:?}");
        assert_eq!(found.fsyncs_per_operation, Some(0.0), "{name}");
        assert_eq!(found.word("durability"), Some("process"), "{name}");
        assert_eq!(found.word("history"), Some("kept"), "{name}");
        if cfg!(target_os = "linux") {
            let megabyte = 1_000_000;
            assert!(found.peak_rss_bytes > Some(megabyte), "{name}");
            assert!(found.bytes_per_operation.is_some(), "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_task_of_a_cycle_is_completed() -> Result<()> {
    for name in ["cycle", "sequential", "payload-10k", "key-while-active"] {
        let store = memory()?;
        let found = measure(name, store.clone()).await?;
        let completed = BTreeMap::from([(Status::Completed, found.operations)]);
        assert_eq!(by_status(store.as_ref()).await?, completed, "{name}");
        assert_eq!(found.counts["submits"], found.operations, "{name}");
        assert_eq!(found.counts["created"], found.operations, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn half_of_the_submits_attach_and_only_created_tasks_are_worked() -> Result<()> {
    let store = memory()?;
    let found = measure("key-half-attach", store.clone()).await?;
    assert_eq!(found.counts["submits"], TASKS / 2);
    assert_eq!(found.counts["created"], TASKS / 4);
    assert_eq!(found.counts["completed"], TASKS / 4);
    let completed = BTreeMap::from([(Status::Completed, TASKS / 4)]);
    assert_eq!(by_status(store.as_ref()).await?, completed);
    Ok(())
}

#[tokio::test]
async fn a_sweep_stands_beside_tasks_of_every_status_and_leaves_them_alone() -> Result<()> {
    let store = memory()?;
    let found = measure("sweep-1k", store.clone()).await?;
    let of_each = Status::ALL.map(|status| (status, 1_000));
    assert_eq!(by_status(store.as_ref()).await?, BTreeMap::from(of_each));
    assert_eq!(found.counts["acted"], 0);
    Ok(())
}

#[tokio::test]
async fn a_sweep_of_everything_leaves_it_in_the_archive() -> Result<()> {
    let store = memory()?;
    let found = measure("sweep-all-1k", store.clone()).await?;
    assert_eq!(by_status(store.as_ref()).await?, BTreeMap::new());
    assert_eq!(
        (found.counts["archived"], found.counts["passes"]),
        (1_000, 2)
    );
    Ok(())
}

#[tokio::test]
async fn a_range_finds_a_hundred_records_among_those_it_names() -> Result<()> {
    for (name, size) in [
        ("range-1k", 0..1_000),
        ("range-large-1k", 1_000..2_000),
        ("overdue-1k", 0..1_000),
    ] {
        let store = memory()?;
        let found = measure(name, store.clone()).await?;
        assert_eq!(found.number("depth"), Some(1_000), "{name}");
        assert_eq!(found.counts["found"], found.counts["scans"] * 100, "{name}");
        let all = store.scan(Scan::new(Prefix::any(), 1_000)).await?;
        assert_eq!((all.rows.len(), all.next), (1_000, None), "{name}");
        let value = |record: &Record| record.field("updated_at").cloned();
        let values: BTreeSet<_> = all.rows.iter().filter_map(value).collect();
        assert_eq!(values.len(), 1_000, "{name}: each has a value of its own");
        let bytes = |record: &Record| record.fields.values().map(|value| value.len()).sum();
        let sizes: BTreeSet<usize> = all.rows.iter().map(bytes).collect();
        assert!(
            sizes.iter().all(|bytes| size.contains(bytes)),
            "{name}: {sizes:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn writes_of_indexed_records_move_them_or_leave_them_where_they_are() -> Result<()> {
    for (name, moved) in [("indexed-move-1k", TASKS / 2), ("indexed-stay-1k", 0)] {
        let store = memory()?;
        let found = measure(name, store.clone()).await?;
        assert_eq!(found.number("depth"), Some(1_000));
        let new = Range::new(Name::new("updated_at")?).from(1_000);
        let scan = Scan::new(Prefix::new("bench.state.")?, 1_000).range(new);
        let rows = store.scan(scan).await?.rows;
        assert_eq!(rows.len() as u64, moved, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn claims_stand_beside_the_backlog_they_name_and_give_back_what_they_take() -> Result<()> {
    use Status::{Completed, Pending, Scheduled};
    for (name, expected) in [
        ("claim-100-waiting-1k", vec![(Pending, 1_100)]),
        (
            "claim-1-scheduled-1k",
            vec![(Scheduled, 1_000), (Pending, 1)],
        ),
        (
            "claim-1-finished-1k",
            vec![(Completed, 1_000), (Pending, 1)],
        ),
        ("claim-100-foreign-1k", vec![(Pending, 1_100)]),
    ] {
        let store = memory()?;
        let found = measure(name, store.clone()).await?;
        let expected = expected.into_iter().collect();
        assert_eq!(by_status(store.as_ref()).await?, expected, "{name}");
        assert_eq!(found.number("depth"), Some(1_000));
    }
    Ok(())
}

#[tokio::test]
async fn claims_are_compared_with_the_same_claim_beside_the_smallest_backlog() -> Result<()> {
    let mut small = measure("claim-1-waiting-1k", memory()?).await?;
    let other = measure("claim-100-waiting-1k", memory()?).await?;
    small.compare(std::slice::from_ref(&other));
    let ratio = small.to_smallest.expect("a ratio");
    assert_eq!((ratio.p50, ratio.p99), (1.0, 1.0));
    let mut large = small.clone();
    large.settings.insert("depth", 100_000.into());
    large.p50_us = small.p50_us * 3;
    large.p99_us = small.p99_us * 2;
    large.compare(&[other, small]);
    let ratio = large.to_smallest.expect("a ratio");
    assert_eq!((ratio.p50, ratio.p99), (3.0, 2.0));
    let mut cycle = measure("cycle", memory()?).await?;
    cycle.compare(&[large]);
    assert_eq!(cycle.to_smallest, None);
    Ok(())
}

#[tokio::test]
async fn figures_are_one_line_of_json_with_the_documented_fields() -> Result<()> {
    let found = measure("cycle", memory()?).await?;
    let line = serde_json::to_string(&found).expect("JSON");
    assert!(!line.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let fields: BTreeSet<&str> = (value.as_object().expect("an object").keys())
        .map(String::as_str)
        .collect();
    let documented = [
        "name",
        "about",
        "store",
        "operation",
        "operations",
        "seconds",
        "operations_per_second",
        "latency_of",
        "p50_us",
        "p99_us",
        "max_us",
        "bytes_per_operation",
        "fsyncs_per_operation",
        "peak_rss_bytes",
        "counts",
        "settings",
        "to_smallest",
        "to_alone",
    ];
    assert_eq!(fields, documented.into());
    assert_eq!(value["settings"]["callers"], 64);
    assert_eq!(value["settings"]["durability"], "process");
    Ok(())
}

#[tokio::test]
async fn only_a_durable_store_waits_for_the_disk() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("bench.db");
    for (durability, at_least, at_most) in [("disk", 1.0, 4.0), ("system", 0.0, 0.0)] {
        let url = format!("sqlite:{}?durability={durability}", file.display());
        let namespace = Namespace::new(durability)?;
        let store = Plimsoll::open(&url)?.namespace(namespace).await?;
        // Each submit has its own transaction, for the next one waits for it.
        let found = measure("sequential", store).await?;
        let fsyncs = found.fsyncs_per_operation.expect("fsyncs are counted");
        assert!((at_least..=at_most).contains(&fsyncs), "{found:?}");
        assert_eq!(found.word("durability"), Some(durability));
    }
    Ok(())
}

/// Runs a workload on a store whose `call`th call of a method fails, once.
async fn with_fault(workload: &Workload, method: Method, call: usize) -> Result<Figures> {
    let plan = FaultPlan::none();
    for _ in 1..call {
        plan.next(method, Fault::Delay(Duration::ZERO));
    }
    plan.next(method, Fault::ErrorBefore);
    let faults = Faults::new(plan, Arc::new(SystemClock::new()));
    in_time(workload, Arc::new(Decorated::new(memory()?, faults))).await
}

#[tokio::test]
async fn a_call_that_fails_ends_the_workload() {
    for workload in quick() {
        let name = &workload.name;
        let commits = (Method::Commit, 1);
        let faults = match name.as_str() {
            "submit" | "merge" | "swap" => vec![commits, (Method::Commit, 50)],
            "bulk" => vec![commits],
            "log" | "log-gathered" => {
                vec![commits, (Method::Commit, 2), (Method::Claim, 1)]
            }
            "scan" => vec![commits, (Method::Scan, 1)],
            "tail" => vec![commits, (Method::Commit, 50), (Method::Changes, 1)],
            _ if name.starts_with("claim") => {
                vec![commits, (Method::Claim, 1), (Method::Claim, 10)]
            }
            "resume-1k" => vec![commits, (Method::Commit, 10)],
            _ if name.starts_with("read-") || name.starts_with("replay-") => {
                vec![commits, (Method::Commit, 10)]
            }
            "contended-cas" => vec![commits, (Method::Commit, 70), (Method::Get, 5)],
            _ if name.starts_with("states-") => vec![commits, (Method::Commit, 2)],
            _ if name.starts_with("subscribers-") || name.starts_with("barriers-") => {
                vec![commits, (Method::Commit, 50)]
            }
            _ if name.starts_with("deliver-") || name.starts_with("watch-") => {
                vec![commits, (Method::Commit, 3)]
            }
            "range-1k" | "range-large-1k" | "overdue-1k" => vec![
                commits,
                (Method::DeclareIndex, 1),
                (Method::Scan, 1),
                (Method::Scan, 10),
            ],
            _ if name.starts_with("indexed-") => {
                vec![commits, (Method::Commit, 50), (Method::DeclareIndex, 1)]
            }
            "sweep-1k" | "sweep-all-1k" => vec![commits, (Method::Claim, 1), (Method::Due, 1)],
            // Workers repeat what failed; a caller does not.
            _ if name.starts_with("work") || name.starts_with("start") => vec![commits],
            // Whoever wants a lock waits on when a call fails.
            _ if name.starts_with("lock") => vec![],
            // The worker must not wait for a task that a caller failed to submit.
            _ => vec![commits, (Method::Commit, 10), (Method::Exchange, 2)],
        };
        for (method, call) in faults {
            let ended = with_fault(&workload, method, call).await;
            let failed = matches!(ended, Err(Error::Unavailable(_)));
            assert!(failed, "{name}, {method} {call}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn workers_that_wait_for_no_time_end_at_once() -> Result<()> {
    let all = workloads(Scale::tasks(TASKS));
    let waiting = all
        .iter()
        .find(|w| w.name == "waiting")
        .expect("it is there");
    let found = in_time(waiting, memory()?).await?;
    assert_eq!(found.operation, "store call");
    assert_eq!(found.number("workers"), Some(10));
    Ok(())
}

#[tokio::test]
async fn progress_is_told_once_a_percent() -> Result<()> {
    for (name, expected) in [("sequential", TASKS / 20), ("cycle", 100)] {
        let (tell, told) = std::sync::mpsc::channel();
        let progress = move |done, total| {
            assert!(done < total, "{done} of {total}");
            tell.send(done).expect("somebody listens");
        };
        run(&workload(name), memory()?, progress).await?;
        assert_eq!(told.into_iter().count() as u64, expected, "{name}");
    }
    Ok(())
}

#[test]
fn every_name_is_there_once_and_large_backlogs_are_marked() {
    let all = workloads(Scale::SHORT);
    let names: BTreeSet<&str> = all.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names.len(), all.len());
    for backlog in ["waiting", "scheduled", "finished", "foreign"] {
        for limit in [1, 100] {
            for (size, full_only) in [("1k", false), ("100k", false), ("1m", true), ("5m", true)] {
                let name = format!("claim-{limit}-{backlog}-{size}");
                let found = all.iter().find(|w| w.name == name).expect("a workload");
                assert_eq!(found.full_only, full_only, "{name}");
            }
        }
    }
    for (size, full_only) in [("1k", false), ("100k", false), ("1m", true)] {
        for name in ["range", "range-large", "overdue"].map(|kind| format!("{kind}-{size}")) {
            let found = all.iter().find(|w| w.name == name).expect("a workload");
            assert_eq!(found.full_only, full_only, "{name}");
        }
    }
    let keyed = names.iter().filter(|name| name.starts_with("key-"));
    assert_eq!(keyed.count(), 4);
}
