//! However a command has to end, nothing of it is left, and its task goes on elsewhere.

use std::time::Duration;

use plimsoll::task::Status;
use rustix::process::{Pid, Signal, kill_process};

use crate::setup::{Working, World, await_gone, is_alive};

/// Starts children of children, none of which listens to SIGTERM, and tells all process ids, the
/// guard's first. It goes on for ever in its first attempt, and is done at once in others.
const FAMILY: &str = "
    [ $PLIMSOLL_ATTEMPT = 1 ] || exit 0
    trap '' TERM
    sh -c 'sleep 600 & sleep 600 & wait' & one=$!
    sh -c 'while :; do sleep 600; done' & two=$!
    (echo $PPID $$ $one $two) > pids
    wait; wait; wait";

/// A worker that runs the family, and the family.
fn family(world: &World, options: &[&str]) -> (Working, Vec<Pid>) {
    let fifo = world.fifo("pids");
    let worker = Working::start(world, options, &["sh", "-c", FAMILY]);
    let pids = fifo.pids();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    (worker, pids)
}

fn assert_gone(pids: &[Pid]) {
    let left: Vec<_> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} of {pids:?} are left");
}

fn drain(worker: Working) {
    worker.signal(Signal::TERM);
    assert_eq!(worker.end(), 0);
}

#[tokio::test]
async fn a_command_that_is_cancelled() {
    let world = World::new().await;
    let id = world.submit("").await;
    let (worker, pids) = family(&world, &["--grace", "200ms"]);
    let reason = Some("enough".to_owned());
    world.tasks.cancel(id, reason.clone()).await.unwrap();
    let task = world.tasks.wait(id).await.unwrap();
    // Nothing was left when the task was settled.
    assert_gone(&pids);
    assert_eq!((task.status, &task.reason), (Status::Cancelled, &reason));
    drain(worker);
    world.assert_tidy();
}

#[tokio::test]
async fn a_command_whose_lease_is_lost_runs_again() {
    let world = World::new().await;
    let id = world.submit("").await;
    let (mut worker, pids) = family(&world, &["--grace", "200ms"]);
    worker.event("started");
    // The lease is taken away, and the task is runnable.
    world.tasks.retry(id).await.unwrap();
    worker.event("ended");
    let task = world.tasks.wait(id).await.unwrap();
    assert_eq!((task.status, task.attempts), (Status::Completed, 2));
    for pid in &pids {
        await_gone(*pid);
    }
    drain(worker);
}

#[tokio::test]
async fn a_command_that_takes_too_long_runs_again() {
    let world = World::new().await;
    let task = world.task("").attempt_timeout(Duration::from_secs(3));
    let id = world.add(task).await;
    let (worker, pids) = family(&world, &[]);
    let task = world.tasks.wait(id).await.unwrap();
    assert_gone(&pids);
    assert_eq!((task.status, task.attempts), (Status::Completed, 2));
    assert_eq!(task.failures, 1);
    let error = &task.errors[0].message;
    assert!(error.contains("time limit of 3s"), "{error}");
    drain(worker);
}

#[tokio::test]
async fn a_command_that_does_not_finish_while_its_worker_drains_runs_again() {
    let world = World::new().await;
    let id = world.submit("").await;
    let options = ["--drain-timeout", "100ms", "--grace", "200ms"];
    let (mut worker, pids) = family(&world, &options);
    worker.signal(Signal::TERM);
    let summary = worker.event("summary");
    assert_eq!(summary["done"]["interrupted"], 1, "{summary}");
    assert_eq!(worker.end(), 12);
    assert_gone(&pids);
    let task = world.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    world.run(FAMILY);
    assert_eq!(world.get(id).await.status, Status::Completed);
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let world = World::new().await;
    let id = world.submit("").await;
    let (mut worker, pids) = family(&world, &["--grace", "1h"]);
    worker.signal(Signal::INT);
    worker.event("note");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end(), 12);
    assert_gone(&pids);
    let task = world.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    world.assert_tidy();
}

#[tokio::test]
async fn a_command_may_finish_while_its_worker_drains() {
    let world = World::new().await;
    let (ready, go) = (world.fifo("ready"), world.path().join("go"));
    let _made = world.fifo("go");
    let id = world.submit("").await;
    let script = "echo ready > ready; read line < go; echo $line";
    let mut worker = Working::start(&world, &[], &["sh", "-c", script]);
    ready.read();
    worker.signal(Signal::TERM);
    worker.event("note");
    std::fs::write(go, "finished\n").unwrap();
    assert_eq!(worker.end(), 0);
    assert_eq!(
        world.get(id).await.result.as_deref(),
        Some(&b"finished\n"[..])
    );
}

#[tokio::test]
async fn a_command_whose_worker_is_killed_runs_again() {
    let world = World::new().await;
    let id = world.submit("").await;
    let (worker, pids) = family(&world, &["--grace", "200ms", "--lease", "5s"]);
    worker.kill();
    for pid in &pids {
        await_gone(*pid);
    }
    world.assert_tidy();
    let again = Working::start(&world, &[], &["sh", "-c", FAMILY]);
    let task = world.tasks.wait(id).await.unwrap();
    assert_eq!((task.status, task.attempts), (Status::Completed, 2));
    drain(again);
}

#[tokio::test]
async fn a_command_whose_guard_is_killed_has_failed() {
    let world = World::new().await;
    let id = world.submit("").await;
    let (worker, pids) = family(&world, &[]);
    kill_process(pids[0], Signal::KILL).unwrap();
    let task = world.tasks.wait(id).await.unwrap();
    assert_gone(&pids);
    assert_eq!((task.status, task.failures), (Status::Completed, 1));
    assert_eq!(task.errors[0].message, "killed by SIGKILL");
    drain(worker);
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed_with_its_end() {
    let world = World::new().await;
    let fifo = world.fifo("pids");
    let id = world.submit("").await;
    let script = "sleep 600 & echo $! > pids; echo done";
    let worker = Working::start(&world, &[], &["sh", "-c", script]);
    let pids = fifo.pids();
    let task = world.tasks.wait(id).await.unwrap();
    assert_gone(&pids);
    assert_eq!(task.result.as_deref(), Some(&b"done\n"[..]));
    drain(worker);
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed_also_while_its_worker_is_frozen() {
    let world = World::new().await;
    let (fifo, go) = (world.fifo("pids"), world.path().join("go"));
    let _made = world.fifo("go");
    let id = world.submit("").await;
    let script = "sleep 600 & echo $PPID $! > pids; read line < go; echo done";
    let worker = Working::start(&world, &[], &["sh", "-c", script]);
    let pids = fifo.pids();
    worker.signal(Signal::STOP);
    std::fs::write(go, "\n").unwrap();
    for pid in &pids {
        await_gone(*pid);
    }
    // It hears what its guard had to say all the same.
    worker.signal(Signal::CONT);
    let task = world.tasks.wait(id).await.unwrap();
    assert_eq!(task.result.as_deref(), Some(&b"done\n"[..]));
    assert_eq!(task.attempts, 1);
    drain(worker);
}

#[tokio::test]
async fn a_command_that_kills_its_own_group_ends_like_any_other() {
    let world = World::new().await;
    let id = world.add(world.task("").max_attempts(1)).await;
    world.run("sleep 600 & kill 0");
    let task = world.get(id).await;
    assert_eq!(task.errors[0].message, "exit code 143: killed by SIGTERM");
}

#[tokio::test]
async fn a_command_may_finish_what_it_does_when_it_is_told_to_stop() {
    let world = World::new().await;
    let ready = world.fifo("ready");
    let id = world.submit("").await;
    let script = "trap 'echo saved; exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let options = ["--drain-timeout", "0s"];
    let worker = Working::start(&world, &options, &["sh", "-c", script]);
    ready.read();
    worker.signal(Signal::TERM);
    assert_eq!(worker.end(), 0);
    let task = world.get(id).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.result.as_deref(), Some(&b"saved\n"[..]));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_keeps_neither_the_task_nor_a_zombie() {
    let world = World::new().await;
    let (fifo, go) = (world.fifo("pids"), world.path().join("go"));
    let _made = world.fifo("go");
    let id = world.submit("").await;
    // It keeps the pipes of the command, until it may go.
    let script = "[ \"$(cat)\" = next ] && exit
        setsid sh -c 'echo $$ > pids; read line < go' & while [ -e pids ]; do sleep 0.01; done
        echo out";
    let worker = Working::start(&world, &[], &["sh", "-c", script]);
    let [escaped] = fifo.pids()[..] else {
        panic!("one process escapes");
    };
    std::fs::remove_file(world.path().join("pids")).unwrap();
    let task = world.tasks.wait(id).await.unwrap();
    assert_eq!(task.result.as_deref(), Some(&b"out\n"[..]));
    assert!(is_alive(escaped));
    std::fs::write(go, "\n").unwrap();
    await_gone(escaped);
    let next = world.submit("next").await;
    world.tasks.wait(next).await.unwrap();
    // The worker has waited for what became its child.
    let process = format!("/proc/{}", escaped.as_raw_nonzero());
    assert!(!std::path::Path::new(&process).exists());
    drain(worker);
}

#[tokio::test]
async fn a_guard_that_leads_no_group_starts_nothing() {
    let world = World::new().await;
    let mut guard = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    guard.args(["work-guard", "--grace", "1s", "--folder", "none"]);
    guard
        .args(["--", "touch", "started"])
        .current_dir(world.path());
    assert_eq!(guard.output().unwrap().status.code(), Some(71));
    assert!(!world.path().join("started").exists());
}

/// A parent that dies at once of SIGTERM, and a child that has something to save. The child must not
/// say anything: without a worker, nobody listens, and it would die of that.
const ORPHAN: &str = "
    [ $PLIMSOLL_ATTEMPT = 1 ] || exit 0
    sh -c 'exec 2> /dev/null; trap stop=1 TERM; echo $$ > pids; while [ -z \"$stop\" ]; do sleep 0.01; done
        echo > saving; read line < go; echo saved > saved' &
    wait; wait";

/// A worker that runs the parent, when the parent is gone and the child has begun to save; then
/// the child may go on. Answers the child.
fn orphan(world: &World, options: &[&str], stop: impl FnOnce(&Working)) -> (Working, Pid) {
    let [pids, saving, _go] = ["pids", "saving", "go"].map(|name| world.fifo(name));
    let worker = Working::start(world, options, &["sh", "-c", ORPHAN]);
    let child = pids.pids()[0];
    stop(&worker);
    saving.read();
    std::fs::write(world.path().join("go"), "\n").unwrap();
    (worker, child)
}

#[tokio::test]
async fn what_a_command_has_started_may_finish_when_the_command_is_told_to_stop() {
    let world = World::new().await;
    let id = world.submit("").await;
    let options = ["--drain-timeout", "0s", "--grace", "1h"];
    let (worker, child) = orphan(&world, &options, |worker| worker.signal(Signal::TERM));
    assert_eq!(worker.end(), 12);
    assert_gone(&[child]);
    assert!(world.path().join("saved").exists());
    let task = world.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    world.assert_tidy();
}

#[tokio::test]
async fn what_a_command_has_started_may_finish_when_the_worker_is_killed() {
    let world = World::new().await;
    world.submit("").await;
    let kill = |worker: &Working| worker.signal(Signal::KILL);
    let (worker, child) = orphan(&world, &["--grace", "1h"], kill);
    assert_eq!(worker.end(), -9);
    await_gone(child);
    assert!(world.path().join("saved").exists());
}

/// A service manager may send SIGTERM to the worker and to all that it has started.
#[tokio::test]
async fn a_signal_to_everything_at_once_fails_no_task() {
    for (signal, command_first) in [(Signal::TERM, true), (Signal::HUP, false)] {
        let world = World::new().await;
        let pids = world.fifo("pids");
        let id = world.submit("").await;
        let script = "echo $$ > pids; exec sleep 600";
        let mut worker = Working::start(&world, &[], &["sh", "-c", script]);
        let command = pids.pids()[0];
        if command_first {
            kill_process(command, signal).unwrap();
            worker.signal(signal);
        } else {
            worker.signal(signal);
            worker.event("note");
            kill_process(command, signal).unwrap();
        }
        assert_eq!(worker.end(), 12);
        let task = world.get(id).await;
        assert_eq!((task.status, task.failures), (Status::Pending, 0));
    }
}

#[tokio::test]
async fn a_worker_that_can_run_nothing_gives_up() {
    let world = World::new().await;
    let id = world.submit("").await;
    let mut work = world.work(&["--json"], &["true"]);
    let output = work
        .env("TMPDIR", world.path().join("none"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot run commands: "), "{said}");
    let task = world.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
}

#[tokio::test]
async fn an_idle_worker_that_is_killed_leaves_nothing_behind() {
    let world = World::new().await;
    let id = world.submit("").await;
    let worker = Working::start(&world, &[], &["true"]);
    world.tasks.wait(id).await.unwrap();
    worker.kill();
    world.assert_tidy();
}

/// Somebody else holds the file for so long that the lease runs out.
#[tokio::test]
async fn a_command_whose_lease_cannot_be_renewed_in_time_is_ended() {
    let world = World::on_file().await;
    let id = world.submit("").await;
    let options = ["--grace", "100ms", "--lease", "5s"];
    let (mut worker, pids) = family(&world, &options);
    let file = rusqlite::Connection::open(world.path().join("work.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Before anybody else can have the task.
    for pid in &pids {
        await_gone(*pid);
    }
    file.execute_batch("ROLLBACK").unwrap();
    worker.event("ended");
    let task = world.tasks.wait(id).await.unwrap();
    assert_eq!(task.status, Status::Completed);
    assert!(task.attempts >= 2, "{}", task.attempts);
    drain(worker);
}
