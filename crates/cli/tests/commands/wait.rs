//! `plimsoll task wait`, and `submit --wait`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use plimsoll::task::{Lane, Status};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Said, World};

#[test]
fn the_exit_code_tells_how_a_task_ended() {
    let world = World::new();
    let submit = |payload| world.submit(["mail", "send"], payload, &[]);
    let [done, failed, cancelled] = ["a", "b", "c"].map(submit);
    world.work(&done, async |held| held.complete("sent").await);
    world.work(&failed, async |held| held.fail_fatal("no route").await);
    world
        .run(&["task", "cancel", &cancelled, "--reason", "typo"])
        .ended(0);
    let wait = |ids: &[&str]| world.run(&[&["task", "wait"], ids].concat());
    let line = wait(&[&done]).ended(0);
    assert!(
        line.line()
            .starts_with(&format!("{done}  completed  took ")),
        "{line:?}"
    );
    assert_eq!(
        wait(&[&failed]).ended(10).out,
        format!("{failed}  failed  no route\n")
    );
    assert_eq!(
        wait(&[&cancelled]).ended(11).out,
        format!("{cancelled}  cancelled  typo\n")
    );
    wait(&[&done, &cancelled]).ended(11);
    wait(&[&cancelled, &failed, &done]).ended(10);
    wait(&["key:nothing"]).ended(3);
    assert_eq!(wait(&[&done, "--result"]).ended(0).out, "sent");
    let failure = wait(&[&failed, "--result", "--quiet"]).ended(10);
    assert_eq!(failure.out, "");
    assert_eq!(
        failure.err,
        format!("plimsoll: task {failed} failed: no route\n")
    );
    assert_eq!(
        wait(&[&done, "--json"]).ended(0).object()["result"]["text"],
        "sent"
    );
}

#[test]
fn results_come_in_the_order_of_the_arguments() {
    let world = World::new();
    let ids = ["a", "b", "c"].map(|payload| world.submit(["mail", "send"], payload, &[]));
    for (id, result) in ids.iter().zip(["1", "2", "3"]) {
        world.work(id, async |held| held.complete(result).await);
    }
    let said = world.run(&["task", "wait", "--result", &ids[2], &ids[0], &ids[1]]);
    assert_eq!(said.ended(0).out, "312");
}

#[test]
fn who_waits_hears_when_the_task_ends() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    let child = world.start(&mut world.command(&["task", "wait", &id, "--result"]));
    world.work(&id, async |held| held.complete("sent").await);
    let said = Said::from(child.wait_with_output().expect("it ends"));
    assert_eq!(said.ended(0).out, "sent");
}

#[test]
fn who_submits_can_wait() {
    let world = World::new();
    // Makes the file, so that the worker can look for the task.
    world.submit(["other", "send"], "x", &[]);
    let submit = ["task", "submit", "mail", "send", "x", "--wait", "--json"];
    let child = world.start(&mut world.command(&submit));
    world.act(async |engine| {
        let (tasks, lane) = (engine.tasks(), Lane::new("mail", "send")?);
        let (worker, lease) = (tasks.worker("w1")?, Duration::from_secs(600));
        loop {
            let held = tasks.claim_next([lane.clone()], 1, &worker, lease).await?;
            if let [held] = &held[..] {
                return held.complete("sent").await;
            }
        }
    });
    let said = Said::from(child.wait_with_output().expect("it ends"));
    let said = said.ended(0);
    let task = said.object();
    assert_eq!(task["status"], Status::Completed.as_str());
    let expected = format!(
        "{{\"submitted\":{{\"id\":{},\"outcome\":\"created\"}}}}\n",
        task["id"]
    );
    assert_eq!(said.err, expected);
    world
        .run(&["task", "submit", "a", "b", "c", "--timeout", "1s"])
        .ended(2);
}

#[test]
fn who_waits_too_long_is_told() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    let late = world
        .run(&["task", "wait", &id, "--timeout", "20ms"])
        .ended(6);
    assert_eq!(
        late.err,
        format!("plimsoll: task {id} has not ended within 20ms: it goes on\n")
    );
    let several = ["task", "wait", &id, &id, "--timeout", "20ms"];
    assert_eq!(
        world.run(&several).ended(6).err,
        "plimsoll: 2 of 2 tasks have not ended within 20ms: they go on\n"
    );
    let submit = ["task", "submit", "mail", "send", "y", "--wait"];
    let late = world.run(&[&submit[..], &["--timeout", "20ms"]].concat());
    let late = late.ended(6);
    let id = late.err.lines().next().expect("the id");
    assert_eq!(world.task(id)["payload"]["text"], "y");
    let expected = format!("{id}\nplimsoll: task {id} has not ended within 20ms: it goes on\n");
    assert_eq!(late.err, expected);
    let late = world
        .run(&["task", "wait", id, "--timeout", "20ms", "--json"])
        .ended(6);
    assert_eq!(late.error()["code"], "timeout");
}

#[test]
fn an_interrupt_ends_the_wait_at_once() {
    let world = World::new();
    let [done, id] = ["a", "b"].map(|payload| world.submit(["mail", "send"], payload, &[]));
    world.run(&["task", "cancel", &done]).ended(0);
    let wait = world.command(&["task", "wait", &done, &id]);
    // Whoever runs the tests in the background ignores interrupts, and so would the command.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(wait.get_program());
    command.args(wait.get_args()).current_dir(world.path());
    command.envs(
        wait.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut child = world.start(&mut command);
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert!(line.starts_with(&done), "it waits for the other: {line}");
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("it is there");
    let status = child.wait().expect("it ends");
    // Shells call this 130.
    assert_eq!(status.signal(), Some(2));
}
