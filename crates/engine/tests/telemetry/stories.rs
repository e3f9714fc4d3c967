//! What real workers, sweepers and clients record.

use std::time::Duration;

use metrics_util::debugging::DebugValue;
use plimsoll_core::Key;
use plimsoll_core::log::Level;
use plimsoll_core::store::{Selector, TaskFilter, Write};
use plimsoll_core::task::{Lane, Status};
use plimsoll_engine::jobs::NewState;
use plimsoll_engine::records::Swap;
use plimsoll_engine::telemetry::{Kind, METRICS, Sampler};
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Answer, Completion, Context, Failure, WorkerBuilder};
use plimsoll_engine::{Retention, Sweeper};

use crate::figures::{Figures, shown};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Does what its payload says.
async fn obey(context: Context) -> Result<Answer, Failure> {
    let clock = context.engine().clock().clone();
    match &context.task().spec.payload[..] {
        b"fail" => Err(Failure::new("no")),
        b"fatal" => Err(Failure::fatal("never")),
        b"panic" => panic!("oh"),
        b"snooze" => Ok(Answer::Snooze(secs(60))),
        b"cancel" => Ok(Answer::Cancel(None)),
        b"follow" => {
            let next = context.engine().tasks().task("q", "other", "")?;
            Ok(Answer::Complete(Completion::new().submit(next)))
        }
        b"log" => {
            context.log(Level::Warn, "one").await?;
            context.log(Level::Info, "two").await?;
            Ok(Answer::Complete(Completion::new()))
        }
        b"too much" => {
            context.log(Level::Debug, "one").await?;
            let most = context.engine().store().limits().payload_bytes_max;
            Ok(Answer::Complete(Completion::bytes(vec![b'.'; most + 1])))
        }
        b"flush" => {
            context.log(Level::Error, "one").await?;
            context.job_log().flush().await?;
            Ok(Answer::Complete(Completion::new()))
        }
        b"long" => {
            clock.sleep(secs(100)).await;
            Ok(Answer::Complete(Completion::new()))
        }
        b"hang" => std::future::pending().await,
        _ => Ok(Answer::Complete(Completion::new())),
    }
}

fn worker(kit: &Kit) -> WorkerBuilder {
    kit.worker("w1").queue("q").handle("k", obey)
}

async fn perform(kit: &Kit, payload: &'static str) {
    let task = kit.tasks().task("q", "k", payload).unwrap();
    kit.perform(worker(kit), task).await;
}

#[test]
fn every_end_of_a_task_is_counted_with_its_status_and_duration() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        for payload in ["", "", "fatal", "cancel", "long"] {
            perform(&kit, payload).await;
        }
    });
    assert_eq!(figures.value("jobs_created_total"), 5.0);
    for (status, count) in [("completed", 3.0), ("failed", 1.0), ("cancelled", 1.0)] {
        let name = format!("jobs_completed_total{{status={status}}}");
        assert_eq!(figures.value(&name), count);
    }
    let took = figures.samples("job_duration_seconds{status=completed}");
    assert_eq!(took, [0.0, 0.0, 100.0]);
    assert_eq!(
        figures.samples("job_duration_seconds{status=failed}").len(),
        1
    );
    assert_eq!(
        figures
            .samples("plimsoll_attempt_seconds{queue=q,kind=k}")
            .len(),
        5
    );
}

#[test]
fn attempts_are_counted_by_lane_and_outcome() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        for payload in ["", "fail", "fail", "fatal", "panic", "snooze", "cancel"] {
            perform(&kit, payload).await;
        }
    });
    let expected = [
        ("completed", 1.0),
        ("failed", 3.0),
        ("panicked", 1.0),
        ("snoozed", 1.0),
        ("cancelled", 1.0),
    ];
    let expected = expected.map(|(outcome, count)| {
        (
            format!("plimsoll_attempts_total{{queue=q,kind=k,outcome={outcome}}}"),
            count,
        )
    });
    assert_eq!(figures.by_label("plimsoll_attempts_total"), expected.into());
    // Two failures and a panic are tried again; what is snoozed is no failure.
    assert_eq!(figures.value("plimsoll_retries_total"), 3.0);
}

#[test]
fn an_answer_that_may_not_be_written_is_no_completion() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let task = kit.tasks().task("q", "k", "").unwrap();
        let ruins = async || {
            let lock = Key::new("plimsoll.locks.nightly")?;
            let ruined = Completion::new().write(Write::Delete(lock));
            Ok::<_, Failure>(Answer::Complete(ruined))
        };
        let worker = kit.worker("w1").queue("q");
        kit.perform(worker.handle("k", ruins), task).await;
    });
    let failed = "plimsoll_attempts_total{queue=q,kind=k,outcome=failed}".to_owned();
    assert_eq!(
        figures.by_label("plimsoll_attempts_total"),
        [(failed, 1.0)].into()
    );
}

#[test]
fn pickup_is_measured_from_the_moment_a_task_is_runnable() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let tasks = kit.tasks();
        tasks
            .submit(tasks.task("q", "k", "").unwrap())
            .await
            .unwrap();
        let late = tasks.task("q", "k", "").unwrap().after(secs(10));
        tasks.submit(late).await.unwrap();
        kit.clock().advance(secs(30));
        Sweeper::new(kit.engine().clone())
            .sweep_once()
            .await
            .unwrap();
        kit.drain(worker(&kit)).await;
    });
    let mut waited = figures.samples("plimsoll_pickup_seconds{queue=q,kind=k}");
    waited.sort_by(f64::total_cmp);
    assert_eq!(waited, [20.0, 30.0]);
}

#[test]
fn gauges_follow_what_runs_and_a_dropped_worker_takes_its_share_back() {
    const GAUGES: [&str; 2] = ["jobs_in_progress", "worker_load"];
    let figures = Figures::of(async |look| {
        let kit = Kit::new();
        for payload in ["hang", "hang", ""] {
            let task = kit.tasks().task("q", "k", payload).unwrap();
            kit.tasks().submit(task).await.unwrap();
        }
        let started = kit.start(worker(&kit)).await;
        let alive = look.now();
        assert_eq!(GAUGES.map(|gauge| alive.value(gauge)), [2.0, 2.0]);
        started.crash();
        kit.idle().await;
    });
    // A gauge begins at zero after a look, so that this is what was taken back.
    assert_eq!(GAUGES.map(|gauge| figures.value(gauge)), [-2.0, -2.0]);
}

#[test]
fn a_lease_that_ends_is_counted_with_what_becomes_of_the_task() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let tasks = kit.tasks();
        let dying = || tasks.worker("dies").unwrap();
        for attempts in [1, 2] {
            let task = tasks.task("q", "k", "").unwrap().max_attempts(attempts);
            let id = tasks.submit(task).await.unwrap().id;
            tasks.claim(id, &dying(), secs(30)).await.unwrap();
        }
        let stopped = tasks.submit(tasks.task("q", "k", "").unwrap()).await;
        let stopped = stopped.unwrap().id;
        tasks.claim(stopped, &dying(), secs(30)).await.unwrap();
        tasks.cancel(stopped, None).await.unwrap();
        kit.clock().advance(secs(31));
        Sweeper::new(kit.engine().clone())
            .sweep_once()
            .await
            .unwrap();
    });
    assert_eq!(figures.value("plimsoll_lease_expiries_total"), 3.0);
    assert_eq!(figures.value("plimsoll_swept_total{what=expired}"), 3.0);
    assert_eq!(figures.value("plimsoll_sweeps_total{outcome=ok}"), 1.0);
    assert_eq!(figures.value("plimsoll_retries_total"), 1.0);
    assert_eq!(figures.value("jobs_completed_total{status=failed}"), 1.0);
    assert_eq!(figures.value("jobs_completed_total{status=cancelled}"), 1.0);
}

#[test]
fn an_attempt_that_takes_too_long_is_an_expiry_that_its_own_worker_tells() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let task = kit.tasks().task("q", "k", "hang").unwrap();
        let task = task.attempt_timeout(secs(5)).max_attempts(1);
        kit.tasks().submit(task).await.unwrap();
        let _started = kit.start(worker(&kit).sweeps(false)).await;
        kit.pass(secs(6)).await;
    });
    assert_eq!(figures.value("plimsoll_lease_expiries_total"), 1.0);
    assert_eq!(figures.value("jobs_completed_total{status=failed}"), 1.0);
    let cut = "plimsoll_attempts_total{queue=q,kind=k,outcome=cut}";
    assert_eq!(figures.value(cut), 1.0);
    assert_eq!(
        figures.samples("job_duration_seconds{status=failed}").len(),
        1
    );
}

#[test]
fn renewals_are_counted_by_what_they_came_to() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let submit = async || {
            let task = kit.tasks().task("q", "k", "hang").unwrap();
            kit.tasks().submit(task).await.unwrap().id
        };
        let (_kept, stopped, revoked) = (submit().await, submit().await, submit().await);
        let _started = kit.start(worker(&kit)).await;
        kit.tasks().cancel(stopped, None).await.unwrap();
        kit.tasks().retry(revoked).await.unwrap();
        kit.idle().await;
    });
    assert!(figures.value("plimsoll_renewals_total{outcome=held}") >= 1.0);
    assert!(figures.value("plimsoll_renewals_total{outcome=cancel_requested}") >= 1.0);
    assert_eq!(figures.value("plimsoll_renewals_total{outcome=lost}"), 1.0);
    assert_eq!(
        figures.value("plimsoll_renewals_total{outcome=unanswered}"),
        0.0
    );
}

#[test]
fn clients_count_what_they_do_without_a_worker() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let tasks = kit.tasks();
        let task = || tasks.task("q", "k", "").unwrap();
        let many = tasks.submit_all((0..5).map(|_| task())).await;
        assert!(many.iter().all(Result::is_ok));
        let keyed = || task().key("once".try_into().unwrap());
        let one = tasks.submit(keyed()).await.unwrap();
        tasks.submit(keyed()).await.unwrap();
        let swap = Swap::new("record").set("x", 1).submit(task());
        kit.engine().records().swap(swap).await.unwrap();
        let held = tasks
            .claim(one.id, &tasks.worker("w").unwrap(), secs(30))
            .await;
        let held = held.unwrap();
        held.log(Level::Error, "line").await.unwrap();
        held.complete("").await.unwrap();
        let pending = Selector::Lane(Lane::new("q", "k").unwrap(), Status::Pending);
        let bulk = tasks.bulk(pending, TaskFilter::default());
        bulk.cancel(None).await.unwrap();
    });
    assert_eq!(figures.value("jobs_created_total"), 7.0);
    assert_eq!(figures.value("jobs_completed_total{status=completed}"), 1.0);
    assert_eq!(figures.value("jobs_completed_total{status=cancelled}"), 6.0);
    assert_eq!(figures.value("plimsoll_log_lines_total{level=error}"), 1.0);
}

#[test]
fn what_a_handler_submits_and_logs_is_counted() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        perform(&kit, "follow").await;
        perform(&kit, "log").await;
        perform(&kit, "flush").await;
    });
    assert_eq!(figures.value("jobs_created_total"), 4.0);
    assert_eq!(figures.value("jobs_completed_total{status=completed}"), 3.0);
    let took = figures.samples("job_duration_seconds{status=completed}");
    assert_eq!(took.len(), 3, "also after lines that come with the answer");
    assert_eq!(figures.value("plimsoll_log_lines_total{level=error}"), 1.0);
    assert_eq!(figures.value("plimsoll_log_lines_total{level=warn}"), 1.0);
    assert_eq!(figures.value("plimsoll_log_lines_total{level=info}"), 1.0);
}

#[test]
fn what_is_said_instead_of_a_refused_answer_counts_with_its_lines_and_duration() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        perform(&kit, "too much").await;
    });
    assert_eq!(figures.value("jobs_completed_total{status=failed}"), 1.0);
    assert_eq!(figures.value("plimsoll_log_lines_total{level=debug}"), 1.0);
    let took = figures.samples("job_duration_seconds{status=failed}");
    assert_eq!(took, [0.0]);
}

#[test]
fn what_is_removed_is_counted() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        perform(&kit, "").await;
        kit.clock().advance(secs(3_600));
        let sweeper = Sweeper::new(kit.engine().clone());
        let mut soon = Retention::default();
        soon.tasks.insert(Status::Completed, secs(60));
        let pass = sweeper.retention(soon.without_archive()).pass().await;
        assert_eq!(pass.removed.tasks, 1);
    });
    assert_eq!(figures.value("plimsoll_compacted_total{what=task}"), 1.0);
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let jobs = kit.engine().jobs();
        let manager = jobs.join("import", 0, 1).await.unwrap();
        for tag in ["a", "b", "c"] {
            let finished = NewState::of(tag).unwrap();
            manager.set_finished(finished).await.unwrap();
        }
        kit.clock().advance(secs(3_600));
        let soon = Retention {
            jobs: Some(secs(60)),
            ..Retention::forever()
        };
        let sweeper = Sweeper::new(kit.engine().clone());
        let pass = sweeper.retention(soon).pass_all().await;
        assert_eq!((pass.jobs, pass.states), (1, 3));
    });
    assert_eq!(figures.value("plimsoll_compacted_total{what=job}"), 1.0);
    assert_eq!(figures.value("plimsoll_compacted_total{what=state}"), 3.0);
}

/// Whatever is recorded is in the table, with its kind and exactly its labels; and whatever of the
/// table the engine itself records is recorded from the start or by this story.
#[test]
fn the_table_and_what_is_recorded_agree() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let engine = kit.engine().clone().observed();
        let tasks = engine.tasks();
        let task = tasks.task("q", "k", "").unwrap();
        tasks.submit(task.clone()).await.unwrap();
        Sampler::new(engine.clone()).sample_once().await.unwrap();
        let merged = plimsoll_engine::group_commit(engine.store().clone());
        plimsoll_core::StoreExt::submit(&merged, task)
            .await
            .unwrap();
        let worker = engine.worker("w1").queue("q").handle("k", obey);
        worker.build().unwrap().run_until_empty().await.unwrap();
        let sweep = Sweeper::new(engine).run();
        tokio::select! {
            biased;
            () = sweep => {}
            () = kit.idle() => {}
        }
    });
    for (key, _, value) in &figures.rows {
        let metric = METRICS.iter().find(|metric| metric.name == key.name());
        let metric = metric.unwrap_or_else(|| panic!("{} is not in the table", shown(key)));
        let kind = match value {
            DebugValue::Counter(_) => "counter",
            DebugValue::Gauge(_) => "gauge",
            DebugValue::Histogram(_) => "histogram",
        };
        assert_eq!(metric.kind.as_str(), kind, "{}", metric.name);
        let labels: Vec<&str> = key.labels().map(metrics::Label::key).collect();
        let expected = metric.labels.iter().filter(|label| !label.ends_with('?'));
        assert_eq!(
            labels,
            expected.copied().collect::<Vec<_>>(),
            "{}",
            metric.name
        );
    }
    // These two are of the SQLite store.
    let elsewhere = [
        "plimsoll_group_commits_total",
        "plimsoll_group_commit_calls",
    ];
    for metric in METRICS {
        let recorded = figures
            .rows
            .iter()
            .any(|(key, ..)| key.name() == metric.name);
        assert_ne!(
            recorded,
            elsewhere.contains(&metric.name),
            "{}",
            metric.name
        );
        assert!(
            !matches!(metric.kind, Kind::Histogram([])),
            "{}",
            metric.name
        );
    }
}
