//! A worker process, its `/metrics`, and what `promtool` says of them.

#![cfg(feature = "prometheus")]
// A failed assertion is how a test fails; what is skipped is said.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use plimsoll::Plimsoll;
use plimsoll::telemetry::{Kind, METRICS};
use serde_json::{Value, json};

/// A worker of the demo that serves its metrics.
struct Worker {
    process: Child,
    address: String,
}

impl Worker {
    fn start(store: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["demo-worker", "--store", store, "--namespace", "metrics"])
            .args(["--name", "w1", "--concurrency", "4", "--lease-ms", "5000"])
            .args(["--metrics", "127.0.0.1:0", "--logs", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a worker");
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut addresses = lines.map_while(Result::ok).filter_map(|line| {
            let line: Value = serde_json::from_str(&line).expect("a line is JSON");
            line["address"].as_str().map(str::to_owned)
        });
        let address = addresses.next().expect("it says where metrics are");
        Self { process, address }
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

impl Drop for Worker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Some pictures, all of them resized in the end; one of them at the second attempt.
async fn work(store: &str) {
    let engine = Plimsoll::open(store)
        .unwrap()
        .engine("metrics")
        .await
        .unwrap();
    let tasks = engine.tasks();
    let mut ids = Vec::new();
    for number in 0..20 {
        let fails = usize::from(number == 0);
        let work = json!({ "takes_ms": 1, "fails": fails, "follow_up": false });
        let task = tasks.json("pictures", "resize", &work).unwrap();
        let task = task.retry(plimsoll::task::RetryPolicy {
            backoff: plimsoll::task::Backoff::Fixed(std::time::Duration::ZERO),
            ..Default::default()
        });
        ids.push(tasks.submit(task).await.unwrap().id);
    }
    for id in ids {
        tasks.wait(id).await.unwrap();
    }
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
async fn a_worker_process_serves_metrics_that_promtool_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let worker = Worker::start(&store);
    work(&store).await;
    // The store knows of the last completion before the worker hears of it.
    let done = "jobs_completed_total{status=\"completed\"} 20";
    let mut pages = (0..1_000).map(|_| worker.get("/metrics"));
    let scraped = pages.find(|(_, page)| page.contains(done));
    let (head, page) = scraped.expect("all are counted");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(worker.get("/").0.starts_with("HTTP/1.1 404"));

    let series = series(&page);
    assert_eq!(series["jobs_completed_total{status=\"completed\"}"], 20.0);
    assert_eq!(series["jobs_completed_total{status=\"failed\"}"], 0.0);
    assert_eq!(
        series["job_duration_seconds_count{status=\"completed\"}"],
        20.0
    );
    assert_eq!(series["plimsoll_retries_total"], 1.0);
    assert_eq!(series["workers_active"], 1.0);
    assert_eq!(series["jobs_in_progress"], 0.0);
    let lane = "queue=\"pictures\",kind=\"resize\"";
    assert_eq!(
        series[&*format!("plimsoll_pickup_seconds_count{{{lane}}}")],
        21.0
    );
    check_names(&page);
    promtool(&page);
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
