//! `plimsoll bench` as people and scripts run it.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn bench_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("bench")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command runs")
}

fn bench(arguments: &[&str]) -> Output {
    bench_in(folder().path(), arguments)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// What a run that must succeed printed.
fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// What a run that must fail complained about.
fn complaint(output: &Output) -> &str {
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
}

fn objects(output: &Output) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).expect("one JSON object a line");
    printed(output).lines().map(object).collect()
}

#[test]
fn the_list_names_every_workload_and_marks_those_that_take_long() {
    for arguments in [&["--list"][..], &["--list", "--full"]] {
        let output = bench(arguments);
        let list = printed(&output);
        let marked = |name: &str| {
            let line = list.lines().find(|line| line.starts_with(name));
            let words: Vec<&str> = line.expect(name).split_whitespace().collect();
            assert!(words.len() > 3, "{words:?} says what it does");
            words[1] == "*"
        };
        for name in ["cycle ", "key-half-attach ", "tail ", "claim-1-waiting-1k "] {
            assert!(!marked(name), "{name}");
        }
        for name in ["claim-1-waiting-5m ", "claim-100-foreign-1m "] {
            assert!(marked(name), "{name}");
        }
        assert!(list.contains("* only with --full"));
    }
}

#[test]
fn json_is_one_object_a_line_with_all_that_was_asked_for() {
    let arguments = ["--json", "--tasks", "100", "--workload", "key-half"];
    let output = bench(&[&arguments[..], &["--workload", "merge"]].concat());
    let objects = objects(&output);
    let names: Vec<&Value> = objects.iter().map(|object| &object["name"]).collect();
    assert_eq!(names, ["key-half-attach", "merge"]);
    for object in &objects {
        assert_eq!(object["store"], "sqlite");
        assert_eq!(object["settings"]["durability"], "disk");
        assert_eq!(object["settings"]["history"], "kept");
        for field in ["operations", "p50_us", "p99_us", "max_us"] {
            assert!(object[field].as_u64() > Some(0), "{field}: {object}");
        }
        for field in ["operations_per_second", "fsyncs_per_operation", "seconds"] {
            assert!(object[field].as_f64() > Some(0.0), "{field}: {object}");
        }
        if cfg!(target_os = "linux") {
            assert!(object["bytes_per_operation"].is_number(), "{object}");
            assert!(object["peak_rss_bytes"].is_number(), "{object}");
            assert!(object["settings"]["filesystem"].is_string(), "{object}");
        }
    }
    assert_eq!(objects[0]["counts"]["submits"], 50);
    assert_eq!(objects[0]["counts"]["created"], 25);
    assert_eq!(objects[0]["counts"]["completed"], 25);
}

#[test]
fn a_claim_is_compared_with_the_smallest_backlog_of_the_run() {
    let store = ["--store", "memory:", "--tasks", "100"];
    let workload = ["--workload", "claim-1-waiting-1"];
    let output = bench(&[&store[..], &workload, &["--json"]].concat());
    let objects = objects(&output);
    assert_eq!(objects.len(), 2, "those that take long are left out");
    assert_eq!(objects[0]["to_smallest"]["p50"], 1.0);
    let p99 = |object: &Value| object["p99_us"].as_f64().expect("a number");
    let ratio = p99(&objects[1]) / p99(&objects[0]);
    let found = objects[1]["to_smallest"]["p99"].as_f64().expect("a number");
    assert!((found - ratio).abs() < 1e-9, "{found} is not {ratio}");
}

#[test]
fn a_weaker_promise_has_no_fsyncs() {
    let store = ["--store", "sqlite:bench.db?durability=system"];
    let workload = ["--workload", "swap", "--tasks", "100", "--json"];
    let objects = objects(&bench(&[&store[..], &workload].concat()));
    assert_eq!(objects[0]["fsyncs_per_operation"], 0.0);
    assert_eq!(objects[0]["settings"]["durability"], "system");
}

#[test]
fn the_table_fits_a_terminal_and_nothing_is_left_behind() {
    let folder = folder();
    let output = bench_in(folder.path(), &["--tasks", "100"]);
    let table = printed(&output);
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{table}");
    for name in ["cycle", "sequential", "bulk", "merge", "swap", "tail"] {
        let row = |line: &str| line.split_whitespace().next() == Some(name);
        assert!(table.lines().any(row), "{name}: {table}");
    }
    assert!(table.contains("tasks a second from submit"), "{table}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0);
}

#[test]
fn what_cannot_be_run_is_refused_with_a_way_out() {
    for (arguments, part) in [
        (&["--workload", "nonsense"][..], "nonsense"),
        (&["--workload", "nonsense"], "--list"),
        (&["--workload", "cycle", "--workload", "nope"], "nope"),
        (&["--workload", "claim-1-waiting-5m"], "--full"),
        (&["--store", "mysql:x"], "sqlite:PATH or postgres://"),
        (&["--store", "sqlite:"], "sqlite:plimsoll.db"),
        (
            &["--store", "sqlite:no/such/folder.db"],
            "no/such/folder.db",
        ),
        (&["--full", "--tasks", "5"], "--tasks"),
    ] {
        let output = bench(arguments);
        let complaint = complaint(&output);
        assert!(complaint.contains(part), "{arguments:?}: {complaint}");
    }
}

#[test]
fn a_file_that_exists_is_left_alone_unless_told_otherwise() {
    let folder = folder();
    std::fs::write(folder.path().join("mine.db"), "").expect("a file");
    let arguments = [
        "--store",
        "sqlite:mine.db",
        "--workload",
        "merge",
        "--tasks",
        "20",
    ];
    let refused = bench_in(folder.path(), &arguments);
    let complaint = complaint(&refused);
    assert!(complaint.contains("mine.db exists"), "{complaint}");
    assert_eq!(
        std::fs::read(folder.path().join("mine.db")).expect("it"),
        b""
    );
    printed(&bench_in(
        folder.path(),
        &[&arguments[..], &["--anyway"]].concat(),
    ));
}

#[test]
fn nobody_who_listens_is_no_error() {
    let folder = folder();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["bench", "--tasks", "20", "--json"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(bench.stdout.take());
    let output = bench.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    assert_eq!(complaint, "");
}
