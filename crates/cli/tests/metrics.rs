//! Processes, their `/metrics`, and what `promtool` says of them.

#![cfg(feature = "prometheus")]
// A failed assertion is how a test fails; what is skipped is said.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use plimsoll::Plimsoll;
use plimsoll::jobs::NewState;
use plimsoll::task::{Backoff, RetryPolicy};
use plimsoll::telemetry::{Kind, METRICS};
use plimsoll::{Engine, TaskId};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A process that serves its metrics.
struct Serving {
    process: Child,
    address: String,
    /// Whoever writes to a pipe that nobody reads any more fails.
    _lines: Lines<BufReader<ChildStderr>>,
}

impl Serving {
    /// The command worker.
    fn worker(folder: &TempDir, store: &str) -> Self {
        let queue = ["--queue", "pictures", "--concurrency", "4"];
        let command = ["--", "sh", "-c", RESIZE];
        Self::start(folder, store, &["work"], &[&queue[..], &command].concat())
    }

    fn start(folder: &TempDir, store: &str, verb: &[&str], more: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(verb)
            .args(["--store", store, "--namespace", "metrics"])
            .args(["--metrics", "127.0.0.1:0", "--logs", "json"])
            .args(more)
            .env("TMPDIR", folder.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let line: Value = serde_json::from_str(&line).expect("a line is JSON");
            line["address"].as_str().map(str::to_owned)
        });
        Self {
            process,
            address: address.expect("it says where metrics are"),
            _lines: lines,
        }
    }

    /// Asks for metrics until they say all of this.
    fn scrape(&self, says: &[&str]) -> (String, String) {
        let mut pages = (0..10_000).map(|_| self.get("/metrics"));
        let found = pages.find(|(_, page)| says.iter().all(|line| page.contains(line)));
        found.unwrap_or_else(|| panic!("not {says:?} but {}", self.get("/metrics").1))
    }

    /// Lets it finish.
    fn drain(self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.end();
    }

    fn end(mut self) {
        assert!(self.process.wait().unwrap().success());
    }

    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Resizes a picture; one that is `flaky` at the second attempt.
const RESIZE: &str = r#"read -r picture; [ "$picture" = steady ] || [ "$PLIMSOLL_ATTEMPT" -gt 1 ]"#;

async fn submit(engine: &Engine, queue: &str, payload: &'static str) -> TaskId {
    let task = engine.tasks().task(queue, "resize", payload).unwrap();
    let task = task.retry(RetryPolicy {
        backoff: Backoff::Fixed(std::time::Duration::ZERO),
        ..RetryPolicy::default()
    });
    engine.tasks().submit(task).await.unwrap().id
}

/// Values by series, as `name{labels}`.
fn series(page: &str) -> BTreeMap<&str, f64> {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let split = |line| {
        let (series, value): (&str, &str) = str::rsplit_once(line, ' ').expect("a value");
        (series, value.parse().expect("a number"))
    };
    lines.map(split).collect()
}

fn check_names(page: &str) {
    let kinds: BTreeMap<&str, &str> = (page.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    for (name, kind) in &kinds {
        let metric = METRICS.iter().find(|metric| metric.name == *name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(metric.kind.as_str(), *kind, "{name}");
        assert!(
            page.contains(&format!("# HELP {name} {}", metric.help)),
            "{name}"
        );
        if let Kind::Histogram(buckets) = metric.kind {
            for bucket in buckets {
                let bucket = format!("le=\"{bucket}\"");
                let found = page
                    .lines()
                    .any(|line| line.starts_with(name) && line.contains(&bucket));
                assert!(found, "{name} {bucket}");
            }
        }
    }
    assert!(
        kinds.contains_key("plimsoll_group_commits_total"),
        "{kinds:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_worker_serves_metrics_that_promtool_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let engine = Plimsoll::open(&store).unwrap().engine("metrics").await;
    let engine = engine.unwrap();
    // Nobody works on these: they are there when the worker looks for the first time.
    for _ in 0..3 {
        submit(&engine, "idle", "steady").await;
    }
    let worker = Serving::worker(&folder, &store);
    let mut ids = vec![submit(&engine, "pictures", "flaky\n").await];
    for _ in 1..20 {
        ids.push(submit(&engine, "pictures", "steady\n").await);
    }
    for id in ids {
        engine.tasks().wait(id).await.unwrap();
    }
    // The store knows of the last completion before the worker hears of it.
    let (head, page) = worker.scrape(&[
        "jobs_completed_total{status=\"completed\"} 20",
        "queue_size{namespace=\"metrics\",queue=\"idle\"} 3",
        "plimsoll_heartbeats_total{outcome=\"ok\"} 1",
        "plimsoll_sweepers_leading{namespace=\"metrics\"} 1",
    ]);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(worker.get("/").0.starts_with("HTTP/1.1 404"));

    let series = series(&page);
    let count = |name: &str| {
        *series
            .get(name)
            .unwrap_or_else(|| panic!("{name} in {page}"))
    };
    assert_eq!(count("jobs_completed_total{status=\"failed\"}"), 0.0);
    let took = "job_duration_seconds_count{status=\"completed\"}";
    assert_eq!(count(took), 20.0);
    assert_eq!(count("plimsoll_retries_total"), 1.0);
    assert_eq!(count("jobs_in_progress"), 0.0);
    assert_eq!(count("worker_load"), 0.0);
    let lane = "queue=\"pictures\",kind=\"resize\"";
    let pickups = format!("plimsoll_pickup_seconds_count{{{lane}}}");
    assert_eq!(count(&pickups), 21.0);
    // Each run is a step in a log, and goes with what settles its task.
    assert!(count("plimsoll_log_lines_total{level=\"info\"}") >= 20.0);
    // This worker, if it was registered when the store was looked at first.
    assert!([0.0, 1.0].contains(&count("workers_active{namespace=\"metrics\"}")));
    let exchanges =
        "plimsoll_store_calls_total{store=\"sqlite\",method=\"exchange\",outcome=\"ok\"}";
    assert!(count(exchanges) > 0.0);
    check_names(&page);
    promtool(&page);
    worker.drain();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_watches_a_job_serves_what_that_costs() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let engine = Plimsoll::open(&store).unwrap().engine("metrics").await;
    let manager = engine.unwrap().jobs().join("import", 0, 1).await.unwrap();
    manager
        .set_started(NewState::of("a").unwrap())
        .await
        .unwrap();
    let watch = ["job", "watch", "import"];
    let more = ["--json", "--until", "finished", "--tag", "a"];
    let watching = Serving::start(&folder, &store, &watch, &more);
    watching.scrape(&["plimsoll_state_replay_duration_seconds_count 1"]);
    manager
        .set_state(NewState::new("a", 5).unwrap())
        .await
        .unwrap();
    let (_, page) = watching.scrape(&["plimsoll_state_delivery_latency_seconds_count 1"]);
    let series = series(&page);
    for name in ["listener_reconnects", "version_drift", "subscription_drops"] {
        assert_eq!(series[&*format!("plimsoll_state_{name}_total")], 0.0);
    }
    promtool(&page);
    manager
        .set_finished(NewState::of("a").unwrap())
        .await
        .unwrap();
    watching.end();
}

/// Fails if it is not there, unless the run was asked to do without it.
fn promtool(page: &str) {
    if std::env::var("PLIMSOLL_SKIP").is_ok_and(|skip| skip.split(',').any(|one| one == "promtool"))
    {
        eprintln!("skipped as asked for: promtool");
        return;
    }
    let tools = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/tools/promtool"
    ));
    let promtool = if tools.exists() {
        tools
    } else {
        "promtool".into()
    };
    let process = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = process.expect("promtool is missing: scripts/install fetches it");
    process
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = process.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(
        output.status.success() && said.concat().is_empty(),
        "{said:?}\n{page}"
    );
}
