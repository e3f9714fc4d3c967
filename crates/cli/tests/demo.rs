//! `plimsoll demo` as people and scripts run it, and the short shares of the chaos runs.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn plimsoll(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).current_dir(folder);
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let output = plimsoll(folder, arguments).output();
    output.expect("the command runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn is_empty(folder: &Path) -> bool {
    let left = std::fs::read_dir(folder).expect("a folder").count();
    left == 0
}

/// The processes that work in this folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("a folder");
    let processes = std::fs::read_dir("/proc").expect("processes");
    let found = processes.flatten().filter(|process| {
        // One that has ended, or belongs to somebody else, cannot be read.
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder)
    });
    found
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The one JSON object that a run printed.
fn summary(output: &Output) -> Value {
    let (complaint, said) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{complaint}\n{said}");
    serde_json::from_str(said).expect("one JSON object")
}

fn number(summary: &Value, field: &str) -> u64 {
    let number = summary[field].as_u64();
    number.unwrap_or_else(|| panic!("{field} in {summary}"))
}

/// Every task is completed once, whatever happened on the way.
fn assert_books(summary: &Value, tasks: u64) {
    let follow_ups = (0..tasks)
        .filter(|n| n % 8 == 5 && n % 10 != 3 && n % 50 != 0)
        .count() as u64;
    let failures = (0..tasks).filter(|n| n % 20 == 3).count()
        + 2 * (0..tasks).filter(|n| n % 20 == 13).count();
    for (field, expected) in [
        ("submitted", tasks + follow_ups),
        ("follow_ups", follow_ups),
        ("completed", tasks + follow_ups),
        ("retried", failures as u64),
        ("zombie_writes_accepted", 0),
        ("lost", 0),
        ("done_twice", 0),
    ] {
        assert_eq!(number(summary, field), expected, "{field} in {summary}");
    }
    let ended = tasks + follow_ups + failures as u64;
    let attempts = ended + number(summary, "lease_expiries");
    assert!(number(summary, "attempts") >= attempts, "{summary}");
    assert!(
        summary["tasks_per_second"].as_f64() > Some(0.0),
        "{summary}"
    );
}

#[test]
fn the_demo_loses_nothing_and_leaves_nothing_behind() {
    run_until_happened([("killed", 1)], |_| {
        let folder = folder();
        let output = run(folder.path(), &["demo", "--tasks", "200", "--json"]);
        let summary = summary(&output);
        assert_books(&summary, 200);
        assert_eq!(number(&summary, "workers"), 4);
        assert!(number(&summary, "killed") <= 1, "{}", text(&output.stderr));
        assert!(is_empty(folder.path()));
        assert_eq!(processes_in(folder.path()), [] as [&str; 0]);
        summary
    });
}

#[test]
fn the_demo_says_what_it_does_and_its_summary_fits_a_terminal() {
    let events = [
        "kill -9: worker 2",
        "SIGSTOP: worker 3",
        "SIGCONT",
        "refused",
    ];
    run_until_happened(events.map(|words| (words, 1)), |_| {
        let folder = folder();
        let output = run(folder.path(), &["demo", "--tasks", "600", "--keep"]);
        let (said, shown) = (text(&output.stderr), text(&output.stdout));
        assert!(output.status.success(), "{said}");
        for line in ["lost 0", "done twice 0", "submitted 660"] {
            let squeezed = |shown: &str| shown.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(squeezed(shown).contains(line), "{line}: {shown}");
        }
        let widest = said
            .lines()
            .chain(shown.lines())
            .map(|line| line.chars().count());
        assert!(widest.max() <= Some(80), "{said}{shown}");
        assert!(!is_empty(folder.path()), "the file was to be kept");
        assert!(
            said.contains("The books are in sqlite:.plimsoll-demo-"),
            "{said}"
        );
        let times = |words: &'static str| (words, said.matches(words).count());
        events.map(times).into_iter().collect()
    });
}

#[test]
fn whoever_ends_the_demo_ends_its_workers() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = folder();
        let mut demo = plimsoll(folder.path(), &["demo"]);
        let mut demo = demo.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(demo.stderr.take().expect("its words")).lines();
        let killed = |line: &String| line.contains("kill -9");
        let killed = said.by_ref().map_while(Result::ok).find(killed);
        assert!(killed.is_some(), "it ended too early");
        assert_eq!(processes_in(folder.path()).len(), 4, "three workers go on");
        let id = i32::try_from(demo.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("an id"), signal).expect("a signal");
        let last = said.map_while(Result::ok).last();
        assert_eq!(last.as_deref(), Some("plimsoll: interrupted"));
        assert_eq!(demo.wait().expect("it ends").code(), Some(1));
        assert_eq!(processes_in(folder.path()), [] as [&str; 0]);
        assert!(is_empty(folder.path()));
    }
}

#[test]
fn what_cannot_be_shown_is_refused_with_a_way_out() {
    let folder = folder();
    for (arguments, part) in [
        (&["--store", "memory:"][..], "--store sqlite:PATH"),
        (&["--store", "mysql:x"], "sqlite:PATH or postgres://"),
        (&["--workers", "1"], "2..=64"),
        (&["--tasks", "0"], "1..=1000000"),
    ] {
        let output = run(folder.path(), &[&["demo"], arguments].concat());
        assert!(!output.status.success());
        let complaint = text(&output.stderr);
        assert!(complaint.contains(part), "{arguments:?}: {complaint}");
    }
}

/// How much happens in a short run depends on what else the machine does: a frozen worker may be killed before it wakes
/// up, or have held nothing. Where something did not happen there is another run. Nothing may be wrong in any of them.
fn run_until_happened<const N: usize>(least: [(&str, u64); N], attempt: impl Fn(&str) -> Value) {
    let mut missing = BTreeMap::from(least);
    for seed in ["3", "4", "5", "6"] {
        let summary = attempt(seed);
        missing.retain(|field, least| number(&summary, field) < *least);
        if missing.is_empty() {
            return;
        }
    }
    panic!("too little happened in any run: {missing:?}");
}

/// The whole of it is `scripts/chaos`.
#[test]
fn workers_that_are_killed_and_frozen_all_the_time_lose_nothing() {
    let least = [
        ("killed", 3),
        ("frozen", 2),
        ("lease_expiries", 5),
        ("zombie_writes_refused", 1),
    ];
    run_until_happened(least, |seed| {
        let folder = folder();
        let arguments = ["chaos", "--tasks", "3000", "--concurrency", "4", "--json"];
        let bounds = ["--seed", seed, "--minutes-max", "3"];
        let output = run(folder.path(), &[&arguments[..], &bounds].concat());
        let summary = summary(&output);
        assert_books(&summary, 3_000);
        assert!(is_empty(folder.path()));
        assert_eq!(processes_in(folder.path()), [] as [&str; 0]);
        summary
    });
}

/// What can be done to a server and to the way to it, and where the summary counts it.
const TROUBLES: [(&str, &str); 6] = [
    ("restart", "server_killed"),
    ("backends", "backends_killed"),
    ("cut", "cut"),
    ("cut-answers", "cut_in_answers"),
    ("stall", "stalled"),
    ("half-open", "half_open"),
];

/// A short share of `scripts/chaos postgres`, from which nothing may be wrong.
fn chaos_on_postgres(tasks: u64, arguments: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/chaos");
    let mut chaos = Command::new(script);
    chaos.args(["postgres", "--tasks", &tasks.to_string(), "--workers", "4"]);
    chaos.args(["--concurrency", "16", "--seed", "7", "--minutes-max", "5"]);
    chaos.arg("--json").args(arguments);
    chaos.env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"));
    let summary = summary(&chaos.output().expect("scripts/chaos runs"));
    assert_books(&summary, tasks);
    for field in ["fences_fallen", "leases_left", "miscounted"] {
        assert_eq!(number(&summary, field), 0, "{field} in {summary}");
    }
    summary
}

/// The whole of it is `scripts/chaos postgres`.
#[test]
fn workers_on_a_server_that_is_killed_and_hard_to_reach_lose_nothing() {
    let summary = chaos_on_postgres(2_000, &[]);
    let troubles = TROUBLES.map(|(_, field)| field);
    for field in ["killed", "frozen"].iter().chain(&troubles) {
        assert!(number(&summary, field) > 0, "{field} in {summary}");
    }
}

#[test]
fn chaos_does_only_what_it_is_told_to_a_server() {
    let only = ["backends", "cut"];
    let summary = chaos_on_postgres(1_000, &["--only", &only.join(",")]);
    for (kind, field) in TROUBLES {
        let happened = number(&summary, field) > 0;
        assert_eq!(happened, only.contains(&kind), "{field} in {summary}");
    }
}

/// The whole of it is `scripts/chaos coordination`.
#[test]
fn workers_holders_and_watchdogs_that_are_killed_and_frozen_leave_nothing_wrong() {
    let least = [
        ("workers_killed", 2),
        ("workers_frozen", 2),
        ("workers_drained", 1),
        ("commands_killed", 2),
        ("holders_killed", 1),
        ("holders_frozen", 2),
        ("watchdogs_killed", 1),
        ("watchdogs_frozen", 1),
        ("tasks", 30),
        ("lease_expiries", 1),
        ("processes_to_end", 1),
        ("writes_accepted", 30),
    ];
    run_until_happened(least, |seed| {
        let folder = folder();
        let arguments = ["chaos", "coordination", "--seconds", "8", "--json"];
        let output = run(folder.path(), &[&arguments[..], &["--seed", seed]].concat());
        let summary = summary(&output);
        assert_eq!(summary["faults"], serde_json::json!([]), "{summary}");
        assert!(is_empty(folder.path()));
        assert_eq!(processes_in(folder.path()), [] as [&str; 0]);
        summary
    });
}

/// Waits until a process is gone.
fn await_gone(process: &str) {
    let id = process.parse().ok().and_then(Pid::from_raw).expect("an id");
    if let Ok(process) = pidfd_open(id, PidfdFlags::empty()) {
        poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("it can be waited for");
    }
}

#[test]
fn however_the_chaos_ends_so_do_its_processes() {
    for signal in [Signal::TERM, Signal::KILL] {
        let folder = folder();
        let mut chaos = plimsoll(folder.path(), &["chaos", "coordination", "--seed", "3"]);
        let mut chaos = chaos.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(chaos.stderr.take().expect("its words")).lines();
        let busy = |line: &String| line.contains(" of ") && line.contains("tasks");
        let busy = said.by_ref().map_while(Result::ok).find(busy);
        assert!(busy.is_some(), "it ended too early");
        assert!(processes_in(folder.path()).len() > 12);
        let id = i32::try_from(chaos.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("an id"), signal).expect("a signal");
        let ended = chaos.wait().expect("it ends");
        assert!(!ended.success());
        if signal == Signal::TERM {
            assert_eq!(processes_in(folder.path()), [] as [&str; 0]);
            assert!(is_empty(folder.path()));
        }
        // Nobody was there to do it: the system and the guards end them.
        while let Some(process) = processes_in(folder.path()).first() {
            await_gone(process);
        }
    }
}
