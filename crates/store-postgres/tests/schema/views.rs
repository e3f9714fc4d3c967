//! What people see in SQL is what the engine says.

use std::time::Duration;

use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Counts, Logs, Put, Write};
use plimsoll_core::task::{Progress, Status, Task};
use plimsoll_core::{Name, StoreExt, TaskId, Timestamp};
use plimsoll_engine::jobs::{NewState, Scope};
use plimsoll_engine::registry::WorkerStatus;
use plimsoll_engine::tasks::{Held, StepEnd};
use plimsoll_engine::{Engine, Retention, Sweeper};
use serde_json::{Value, json};

use crate::server::Place;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A moment as JSON, to the microsecond.
fn at(moment: impl Into<Option<Timestamp>>) -> Value {
    json!(moment.into().map(Timestamp::as_micros))
}

/// A column that holds a moment, in the same form.
fn micros(column: &str) -> String {
    format!("(extract(epoch FROM {column}) * 1000000)::bigint AS {column}")
}

/// One task of each sort.
struct Tasks {
    waiting: TaskId,
    later: TaskId,
    running: Held,
    staged: Held,
    done: TaskId,
    failed: TaskId,
    cancelled: TaskId,
    again: TaskId,
}

async fn tasks_of(engine: &Engine) -> Tasks {
    let tasks = engine.tasks();
    let worker = tasks.worker("w1").unwrap();
    let new = |payload: &'static str| tasks.task("media", "clip", payload).unwrap();
    let submit = async |task| tasks.submit(task).await.unwrap().id;
    let claim = async |id| tasks.claim(id, &worker, MINUTE).await.unwrap();

    let rich = new(r#"{"in": "a.mov"}"#)
        .owner(name("ada"))
        .priority(plimsoll_core::task::Priority::new(7).unwrap())
        .label(name("show"), name("news"))
        .key("order-7".try_into().unwrap())
        .trace("00-abc");
    let waiting = submit(rich).await;
    let later = submit(new("{}").owner(name("ada")).after(DAY)).await;
    let running = claim(submit(new("not JSON").max_attempts(0)).await).await;
    let half = Progress {
        percent: Some(50),
        ..Progress::default()
    };
    running.progress(half).await.unwrap();
    let staged = claim(submit(new("\u{0}").first_stage(name("validating"))).await).await;

    let done = submit(new("{}").owner(name("bob"))).await;
    let held = claim(done).await;
    let metadata = br#"{"frames": 200}"#;
    let line = NewLine {
        metadata: Some(metadata.as_slice().into()),
        ..NewLine::new(held.job_log().line_id(), Level::Warn, "slow")
    };
    held.log_lines(vec![line]).await.unwrap();
    held.log(Level::Info, "hello").await.unwrap();
    let log = held.job_log();
    for (step, end) in [
        ("fetch", StepEnd::ok()),
        ("encode", StepEnd::exit(1).stderr("disk full")),
    ] {
        let step = log.step(step, "ffmpeg").unwrap().command("ffmpeg -i in");
        step.start().await.unwrap().end(end).await.unwrap();
    }
    log.step("upload", "s3").unwrap().start().await.unwrap();
    log.flush().await.unwrap();
    held.complete(r#"["out.mp4"]"#).await.unwrap();

    let failed = submit(new("{}").max_attempts(1)).await;
    claim(failed).await.fail("disk full").await.unwrap();
    let cancelled = submit(new("{}")).await;
    tasks
        .cancel(cancelled, Some("not wanted".into()))
        .await
        .unwrap();
    let again = submit(new("{}")).await;
    claim(again).await.fail("try again").await.unwrap();
    Tasks {
        waiting,
        later,
        running,
        staged,
        done,
        failed,
        cancelled,
        again,
    }
}

/// What the view should say of a task.
fn shown(task: &Task, status: &str) -> Value {
    let spec = &task.spec;
    let json = |bytes: &[u8]| -> Value {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        if bytes == b"\0" { Value::Null } else { value }
    };
    let retries = spec.retry.max_attempts.checked_sub(1);
    json!({
        "job_id": task.id().to_string(),
        "user_id": spec.owner,
        "status": status,
        "priority": task.priority.get(),
        "spec": json(&spec.payload),
        "plan": null,
        "created_at": at(spec.created_at),
        "updated_at": at(task.modified_at),
        "started_at": at(task.started_at),
        "completed_at": at(task.finished_at),
        "progress": task.progress.as_ref().map(|progress| json!(progress)),
        "output_files": task.result.as_ref().map(|result| json(result)),
        "error": task.status.is_terminal().then_some(task.reason.as_ref()).flatten()
            .map(|reason| json!({ "message": reason })),
        "worker_id": task.lease.as_ref().map(|lease| lease.worker.to_string()),
        "worker_claimed_at": at(task.claimed_at),
        "retry_count": retries.map_or(task.failures, |most| most.min(task.failures)),
        "max_retries": retries,
        "version": task.revision.get(),
        "namespace": "media",
        "queue": spec.lane.queue,
        "kind": spec.lane.kind,
        "key": spec.key.as_ref().map(|(key, _)| key),
        "labels": (!spec.labels.is_empty()).then_some(&spec.labels),
        "group": spec.group,
        "trace": spec.trace,
        "task_status": task.status.as_str(),
        "stage": task.stage,
        "attempts": task.attempts,
        "failures": task.failures,
        "fence": task.fence.get(),
        "run_at": at(task.runnable_at),
        "lease_until": at(task.lease.as_ref().map(|lease| lease.until)),
    })
}

#[tokio::test]
async fn jobs_are_the_tasks_of_the_engine() {
    let place = Place::new("test_jobs").await;
    let engine = place.engine().await;
    let made = tasks_of(&engine).await;
    let moments =
        "created_at updated_at started_at completed_at worker_claimed_at run_at lease_until";
    let moments: Vec<_> = moments.split(' ').map(micros).collect();
    let columns = format!(
        "job_id, user_id, status, priority, spec, plan, progress, output_files, error, worker_id, \
         retry_count, max_retries, version, namespace, queue, kind, key, labels, \"group\", trace, \
         task_status, stage, attempts, failures, fence, {}",
        moments.join(", ")
    );
    for (id, status) in [
        (made.waiting, "pending"),
        (made.later, "pending"),
        (made.running.task().id(), "processing"),
        (made.staged.task().id(), "validating"),
        (made.done, "completed"),
        (made.failed, "failed"),
        (made.cancelled, "cancelled"),
        (made.again, "pending"),
    ] {
        let task = engine.tasks().get(id).await.unwrap();
        let query = format!("SELECT {columns} FROM jobs WHERE job_id = '{id}'");
        assert_eq!(place.rows(&query).await, [shown(&task, status)]);
    }
    let bytes = format!(
        "SELECT encode(payload, 'hex') FROM jobs WHERE job_id = '{}'",
        made.staged.task().id()
    );
    assert_eq!(place.column(&bytes).await, ["00"]);

    let lanes = engine.tasks().counts(Counts::default()).await.unwrap();
    let by = &lanes[0].by_status;
    let count = |status| json!(by.get(&status).copied().unwrap_or(0));
    let counted = place
        .rows("SELECT scheduled, pending, claimed, completed, failed, cancelled FROM lanes")
        .await;
    assert_eq!(
        counted,
        [json!({
            "scheduled": count(Status::Scheduled), "pending": count(Status::Pending),
            "claimed": count(Status::Claimed), "completed": count(Status::Completed),
            "failed": count(Status::Failed), "cancelled": count(Status::Cancelled),
        })]
    );
    let by_lane =
        "SELECT job_id FROM jobs WHERE lane IN (SELECT lane FROM lanes WHERE queue = 'media')";
    assert_eq!(place.column(by_lane).await.len(), 8);
    place.drop().await;
}

#[tokio::test]
async fn logs_and_steps_are_those_of_the_engine() {
    let place = Place::new("test_logs").await;
    let engine = place.engine().await;
    let id = tasks_of(&engine).await.done;
    let logs = Logs {
        task: id,
        level: Level::Debug,
        cursor: None,
        limit: 100,
    };
    let lines = engine.tasks().logs(logs).await.unwrap().lines;
    let expected: Vec<_> = (lines.iter())
        .map(|line| {
            let metadata = line.line.metadata.as_ref();
            json!({
                "timestamp": at(line.at),
                "level": line.line.level.as_str(),
                "stage": line.line.stage,
                "message": line.line.message,
                "metadata": metadata.map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap()),
                "fence": line.fence.get(),
            })
        })
        .collect();
    let query = format!(
        "SELECT {}, level, stage, message, metadata, fence FROM job_logs WHERE job_id = '{id}' ORDER BY id",
        micros("timestamp")
    );
    assert_eq!(place.rows(&query).await, expected);
    assert!(
        expected
            .iter()
            .any(|line| line["metadata"] == json!({ "frames": 200 }))
    );

    let steps = engine.tasks().steps(id).await.unwrap();
    let expected: Vec<_> = (steps.iter())
        .map(|step| {
            json!({
                "step_id": step.step_id, "type": step.kind, "command": step.command,
                "exit_code": step.exit_code, "stdout": step.stdout, "stderr": step.stderr,
                "started_at": at(step.started_at), "completed_at": at(step.completed_at),
                "duration_ms": step.duration_ms, "success": step.success, "error": step.error,
                "fence": step.fence.get(),
            })
        })
        .collect();
    let query = format!(
        "SELECT step_id, type, command, exit_code, stdout, stderr, {}, {}, duration_ms, success, error, fence \
         FROM execution_steps WHERE job_id = '{id}' ORDER BY id",
        micros("started_at"),
        micros("completed_at"),
    );
    let found = place.rows(&query).await;
    assert_eq!(found, expected);
    assert_eq!(found.len(), 3);

    // A log that is too long to go at once with its task is not shown any more.
    let orphan = "INSERT INTO orphans SELECT ns, task, max(seq) FROM logs GROUP BY ns, task";
    place.run(orphan).await;
    assert!(place.rows("SELECT id FROM job_logs").await.is_empty());
    place.drop().await;
}

/// A worker's record that says this, and was heard of so long ago.
async fn register(engine: &Engine, id: &str, status: &str, silent: Duration) {
    let key = format!("plimsoll.workers.{}", id.replace('#', "/"));
    let told = fields(
        [
            ("worker_id", id),
            ("hostname", "box"),
            ("version", "1.2"),
            ("pid", "7"),
            ("queues", "[\"media\"]"),
            ("kinds", "[\"clip\"]"),
            ("max_concurrent", "4"),
            ("stale_after_ms", "30000"),
            ("ttl_ms", "86400000"),
            ("started_at", "1700000000000000"),
            ("status", status),
            ("current_load", "1"),
            ("total_jobs", "12"),
            ("failed_jobs", "3"),
        ]
        .map(|(name, value)| (name, value.to_owned())),
    );
    let put = Put::new(key.as_str().try_into().unwrap(), told.unwrap()).ttl(DAY - silent);
    engine
        .store()
        .commit_one(Commit::of(Write::Put(put)))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_queries_of_the_document_find_what_the_engine_finds() {
    let place = Place::new("test_queries").await;
    let engine = place.engine().await;
    let made = tasks_of(&engine).await;
    let own = made.running.holder().worker.to_string();
    let other = engine.tasks().worker("w2").unwrap().to_string();
    let third = engine.tasks().worker("w3").unwrap().to_string();
    register(&engine, &own, "offline", Duration::ZERO).await;
    register(&engine, &other, "active", MINUTE).await;
    register(&engine, &third, "active", Duration::ZERO).await;

    let stale = "SELECT worker_id FROM workers
        WHERE status = 'active' AND last_heartbeat < NOW() - INTERVAL '30 seconds'";
    let said = engine.workers().stale().await.unwrap();
    let said: Vec<_> = said.iter().map(|worker| worker.id.to_string()).collect();
    assert_eq!(
        (place.column(stale).await, said.as_slice()),
        (vec![other.clone()], [other].as_slice())
    );
    assert_eq!(
        place
            .column("SELECT worker_id FROM workers WHERE stale")
            .await,
        said
    );

    let orphans = "SELECT job_id FROM jobs WHERE status = 'validating'
        AND worker_id IN (SELECT worker_id FROM workers WHERE status = 'offline')
        AND retry_count < max_retries";
    assert_eq!(
        place.column(orphans).await,
        [made.staged.task().id().to_string()]
    );

    let newest = "SELECT job_id FROM jobs ORDER BY created_at DESC, job_id DESC LIMIT 1";
    assert_eq!(place.column(newest).await, [made.again.to_string()]);
    let of_ada = "SELECT job_id FROM jobs WHERE user_id = 'ada' ORDER BY created_at DESC";
    assert_eq!(
        place.column(of_ada).await,
        [made.later.to_string(), made.waiting.to_string()]
    );
    let next = "SELECT job_id FROM jobs WHERE status = 'pending' AND run_at <= NOW()
        ORDER BY priority DESC, created_at ASC";
    assert_eq!(place.column(next).await, [made.waiting.to_string()]);
    let by_status = "SELECT status || ' ' || count(*) FROM jobs GROUP BY status ORDER BY 1";
    let expected = [
        "cancelled 1",
        "completed 1",
        "failed 1",
        "pending 3",
        "processing 1",
        "validating 1",
    ];
    assert_eq!(place.column(by_status).await, expected);
    let archivable =
        "SELECT count(*) FROM jobs WHERE status IN ('completed', 'failed', 'cancelled')
        AND completed_at < NOW() - INTERVAL '30 days'";
    assert_eq!(place.column(archivable).await, ["0"]);
    for broken in [
        "started_at > completed_at",
        "retry_count > max_retries",
        "(worker_id IS NOT NULL) <> (status IN ('processing', 'validating'))",
    ] {
        let query = format!("SELECT job_id FROM jobs WHERE {broken}");
        assert!(place.column(&query).await.is_empty(), "{broken}");
    }
    place.drop().await;
}

#[tokio::test]
async fn workers_locks_and_states_are_those_of_the_engine() {
    let place = Place::new("test_others").await;
    let engine = place.engine().await;
    let worker = engine
        .worker("w1")
        .queue("media")
        .handle("clip", async || {});
    worker.build().unwrap().run_until_empty().await.unwrap();
    let known = &engine.workers().list().await.unwrap()[0];
    assert_eq!(known.status, WorkerStatus::Offline);
    let query = format!(
        "SELECT worker_id, hostname, version, status, {}, {}, max_concurrent, current_load, total_jobs, \
         failed_jobs, queues FROM workers",
        micros("started_at"),
        micros("last_heartbeat")
    );
    let (profile, load) = (&known.profile, &known.load);
    assert_eq!(
        place.rows(&query).await,
        [json!({
            "worker_id": known.id.to_string(), "hostname": profile.hostname, "version": profile.version,
            "status": "offline", "started_at": at(known.started_at), "last_heartbeat": at(known.last_heartbeat),
            "max_concurrent": profile.max_concurrent, "current_load": load.current_load,
            "total_jobs": load.total_jobs, "failed_jobs": load.failed_jobs, "queues": ["media"],
        })]
    );

    let lock = engine.locks().lock("job:4.2").ttl(MINUTE).owner("w1");
    let guard = lock.try_acquire().await.unwrap();
    let state = engine.locks().get("job:4.2").await.unwrap().unwrap();
    let query = format!(
        "SELECT name, owner, {}, {}, token, reserved FROM locks",
        micros("since"),
        micros("until")
    );
    assert_eq!(
        place.rows(&query).await,
        [json!({
            "name": "job:4.2", "owner": "w1", "since": at(state.since), "until": at(state.until),
            "token": state.token.get(), "reserved": false,
        })]
    );
    guard.release().await.unwrap();
    assert!(place.rows("SELECT * FROM locks").await.is_empty());

    let odd = "import.7%";
    let zero = engine.jobs().join(odd, 0, 3).about("source", "ftp");
    zero.unwrap().await.unwrap();
    let job = engine.jobs().join(odd, 1, 3).await.unwrap();
    let state = NewState::new("load-up.x", 40).unwrap().message("40 of 100");
    job.set_state(state.payload(json!({ "bytes": 8 })).unwrap())
        .await
        .unwrap();
    job.set_started(NewState::of("ingest").unwrap())
        .await
        .unwrap();
    let query = format!(
        "SELECT job_id, partition, tag, status, message, {}, version, payload FROM states ORDER BY tag",
        micros("timestamp")
    );
    let states = job.states(&Scope::all()).await.unwrap();
    let mut expected: Vec<_> = (states.iter())
        .map(|state| {
            json!({
                "job_id": odd, "partition": state.partition, "tag": state.tag, "status": state.status,
                "message": state.message, "timestamp": at(state.timestamp), "version": state.version,
                "payload": state.payload,
            })
        })
        .collect();
    expected.sort_by_key(|state| state["tag"].to_string());
    assert_eq!(place.rows(&query).await, expected);
    assert_eq!(expected.len(), 2);
    let query =
        "SELECT job_id, partitions, phase, generation, about, deleted_at FROM partitioned_jobs";
    assert_eq!(
        place.rows(query).await,
        [json!({
            "job_id": odd, "partitions": 3, "phase": "open", "generation": 1,
            "about": { "source": "ftp" }, "deleted_at": null,
        })]
    );
    // What somebody else writes there breaks no view.
    for key in [
        "workers.x",
        "locks.x",
        "jobs.x",
        "states.x",
        "archive.tasks.x",
    ] {
        let key = format!("plimsoll.{key}");
        let odd = fields([
            ("started_at", "soon"),
            ("pid", "\u{1}"),
            ("job_id", "7"),
            ("queues", "["),
        ]);
        let put = Put::new(key.as_str().try_into().unwrap(), odd.unwrap());
        engine
            .store()
            .commit_one(Commit::of(Write::Put(put)))
            .await
            .unwrap();
    }
    for view in [
        "workers",
        "locks",
        "states",
        "partitioned_jobs",
        "jobs_archive",
    ] {
        place.rows(&format!("SELECT * FROM {view}")).await;
    }
    place.drop().await;
}

#[tokio::test]
async fn the_archive_has_the_columns_of_jobs() {
    let place = Place::new("test_archive").await;
    let engine = place.engine().await;
    let made = tasks_of(&engine).await;
    let described = async |view: &str| {
        let columns = format!(
            "SELECT column_name || ' ' || data_type FROM information_schema.columns \
             WHERE table_schema = 'test_archive' AND table_name = '{view}' ORDER BY ordinal_position"
        );
        place.column(&columns).await
    };
    let columns = described("jobs").await;
    assert_eq!(columns.len(), 35);
    assert_eq!(described("jobs_archive").await, columns);
    // One with everything, and with bytes that are not text.
    let tasks = engine.tasks();
    let rich = tasks.task("media", "clip", vec![0xff, 0]).unwrap();
    let rich = rich.owner(name("ada")).label(name("show"), name("news"));
    let rich = rich.key("k".try_into().unwrap()).trace("00-abc");
    let rich = tasks.submit(rich.first_stage(name("validating"))).await;
    let worker = tasks.worker("w1").unwrap();
    let held = tasks.claim(rich.unwrap().id, &worker, MINUTE).await;
    let held = held.unwrap();
    held.progress(Progress {
        percent: Some(50),
        ..Progress::default()
    })
    .await
    .unwrap();
    held.complete(vec![0xfe, 1]).await.unwrap();
    // Who has ended it, all errors of its attempts, and a version of its own come with the archive.
    let same =
        "to_jsonb(j) - '{worker_id,error,version}'::text[] AS task, error ->> 'message' AS why";
    let ended = format!("SELECT {same} FROM jobs j WHERE completed_at IS NOT NULL ORDER BY job_id");
    let before = place.rows(&ended).await;
    assert_eq!(before.len(), 4);
    let versions = "SELECT max(version) FROM jobs";
    let newest: u64 = place.column(versions).await[0].parse().unwrap();
    let mut at_once = Retention::default();
    at_once.tasks = Status::ALL
        .into_iter()
        .filter(|status| status.is_terminal())
        .map(|status| (status, Duration::ZERO))
        .collect();
    at_once.archive = at_once.tasks.keys().copied().collect();
    let pass = Sweeper::new(engine.clone()).retention(at_once).pass().await;
    assert_eq!(pass.archived, 4, "{:?}", pass.troubles);
    assert!(place.rows(&ended).await.is_empty());
    let archived = format!("SELECT {same} FROM jobs_archive j ORDER BY job_id");
    assert_eq!(place.rows(&archived).await, before);
    let own = format!(
        "SELECT jsonb_array_length(error -> 'attempts') AS errors, version > {newest} AS newer, \
         starts_with(worker_id, 'w1#') AS known FROM jobs_archive WHERE job_id = '{}'",
        made.failed
    );
    let told = json!({ "errors": 1, "newer": true, "known": true });
    assert_eq!(place.rows(&own).await, [told]);
    place.drop().await;
}
