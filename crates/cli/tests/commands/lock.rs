//! `plimsoll lock`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::world::{Said, World};

/// Runs a shell under the lock `nightly`, with these options.
fn shell<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [
        &["lock", "run", "nightly"],
        options,
        &["--", "sh", "-c", script],
    ]
    .concat()
}

/// Starts it, and waits until it has said something.
fn started(world: &World, arguments: &[&str]) -> (Child, BufReader<ChildStdout>, String) {
    let mut child = world.start(&mut world.command(arguments));
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    (child, out, line)
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

#[test]
fn a_command_runs_under_a_lock_and_its_exit_code_counts() {
    let world = World::new();
    let script = "echo $PLIMSOLL_LOCK $PLIMSOLL_LOCK_TOKEN; exit 7";
    let tokens = [(); 3].map(|()| {
        let said = world.run(&shell(&[], script)).ended(7);
        let token = said.line().strip_prefix("nightly ").expect("the lock");
        token.parse::<u64>().expect("a token")
    });
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    world.run(&shell(&[], "kill -9 $$")).ended(128 + 9);
    world
        .run(&["lock", "run", "nightly", "--", "no-such-command"])
        .ended(127);
    world.run(&["lock", "run", "nightly"]).ended(2);
    let free = world.run(&["lock", "list"]).ended(0);
    assert_eq!(
        (free.out.as_str(), free.err.as_str()),
        ("", "Nobody holds a lock.\n")
    );
}

#[test]
fn a_lock_that_somebody_has_is_not_acquired() {
    let world = World::new();
    let holds = shell(&["--owner", "ada"], "echo held; read line; exit 3");
    let mut command = world.command(&holds);
    let mut child = world.start(command.stdin(Stdio::piped()));
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut String::new()).expect("a line");
    let locks = world.run(&["lock", "list", "--json"]).ended(0).object();
    assert_eq!(locks["name"], "nightly");
    assert_eq!(locks["owner"], "ada");
    let people = world.run(&["lock", "list"]).ended(0);
    assert!(
        people.out.starts_with("LOCK     OWNER  TOKEN  HELD "),
        "{people:?}"
    );
    for options in [&[][..], &["--timeout", "20ms"]] {
        let refused = world.run(&shell(options, "echo ran")).ended(20);
        assert_eq!(refused.out, "");
        let expected = "plimsoll: lock nightly is held by ada until";
        assert!(refused.err.starts_with(expected), "{refused:?}");
    }
    let waiting = world.start(&mut world.command(&shell(&["--wait"], "echo mine")));
    // It stands in line, before the lock is free.
    while world.run(&["lock", "list", "--json"]).object()["waiting"] != 1 {}
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    let waited = waiting.wait_with_output().expect("it ends");
    assert_eq!(waited.stdout, b"mine\n");
    assert_eq!(waited.status.code(), Some(0));
}

#[test]
fn when_the_lock_is_lost_all_that_the_command_started_is_ended() {
    let world = World::new();
    // What ignores the request to end holds standard output open for as long as it lives: the command
    // itself, or only what it has started.
    let stubborn = "trap '' TERM; sleep 600 & echo running; wait; sleep 600";
    let left_behind = "(trap '' TERM; echo running; exec sleep 600) & wait";
    for script in [stubborn, left_behind] {
        let (child, mut out, _) = started(&world, &shell(&["--ttl", "1s"], script));
        world.act(async |engine| engine.locks().break_lock("nightly").await);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("all have ended");
        let said = Said::from(child.wait_with_output().expect("it ends"));
        assert_eq!(
            said.ended(21).err,
            "plimsoll: lock nightly was lost: its command was ended\n"
        );
    }
}

#[test]
fn a_lock_is_taken_away_from_whoever_has_it() {
    let world = World::new();
    let script = "echo running; exec sleep 600";
    let options = ["--ttl", "3s", "--owner", "ada"];
    let (child, _, _) = started(&world, &shell(&options, script));
    // Nobody can be asked.
    let refused = world.run(&["lock", "break", "nightly"]).ended(2);
    assert!(
        refused
            .err
            .contains("this takes away lock nightly from ada"),
        "{refused:?}"
    );
    let taken = world.run(&["lock", "break", "nightly", "--yes"]).ended(0);
    assert_eq!(taken.err, "Took lock nightly from ada.\n");
    let said = Said::from(child.wait_with_output().expect("it ends"));
    said.ended(21);
    let free = world.run(&["lock", "break", "nightly", "--yes"]).ended(3);
    assert!(free.err.contains("nobody holds lock nightly"), "{free:?}");
}

#[test]
fn a_lock_that_cannot_be_read_is_removed() {
    let world = World::new();
    world.run(&shell(&[], "exit 0")).ended(0);
    world.act(async |engine| {
        let key = plimsoll::Key::new("plimsoll.locks.nightly")?;
        let put = plimsoll::store::Put::new(key, plimsoll::record::Fields::new());
        let write = plimsoll::store::Write::Put(put);
        plimsoll::StoreExt::write(engine.store().as_ref(), write).await
    });
    world.run(&shell(&[], "exit 0")).ended(1);
    let holds = [
        "lock",
        "run",
        "other",
        "--",
        "sh",
        "-c",
        "echo held; read line",
    ];
    let mut command = world.command(&holds);
    let mut child = world.start(command.stdin(Stdio::piped()));
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut String::new()).expect("a line");
    let listed = world.run(&["lock", "list"]).ended(1);
    assert!(listed.out.contains("other"), "{listed:?}");
    assert!(
        listed.err.contains("record plimsoll.locks.nightly"),
        "{listed:?}"
    );
    drop(child.stdin.take());
    child.wait().expect("it ends");
    world.run(&["lock", "break", "nightly", "--yes"]).ended(0);
    world.run(&shell(&[], "exit 0")).ended(0);
}

#[test]
fn a_signal_is_for_the_command() {
    let world = World::new();
    let script = "trap 'echo asked; exit 9' TERM; echo running; while :; do sleep 0.01; done";
    let (mut child, mut out, _) = started(&world, &shell(&[], script));
    signal(&child, Signal::TERM);
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("it ends");
    assert_eq!(rest, "asked\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
    // The lock is free at once.
    world.run(&shell(&[], "exit 0")).ended(0);
}

#[test]
fn the_command_does_not_outlive_who_holds_its_lock() {
    let world = World::new();
    let (mut child, mut out, _) = started(&world, &shell(&[], "echo running; exec sleep 600"));
    signal(&child, Signal::KILL);
    child.wait().expect("it ends");
    let mut rest = String::new();
    // It ends with who holds it open: the command.
    out.read_to_string(&mut rest).expect("it ends");
    // Nobody released the lock: it ends by itself, within its time to live of when it was renewed last.
    let lock = world.act(async |engine| engine.locks().get("nightly").await);
    let lock = lock.expect("nobody released it");
    let lasts = lock.until.since(lock.since);
    assert_eq!(lasts.as_secs(), 30, "{lasts:?}");
    assert!(!lock.reserved);
}

/// The state of a process, as in `R` for one that runs and `T` for one that is stopped.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[test]
fn a_command_does_not_go_on_while_who_holds_its_lock_is_stopped() {
    let world = World::new();
    let script = "echo $$; read line; exit 3";
    let mut command = world.command(&shell(&[], script));
    let mut child = world.start(command.stdin(Stdio::piped()));
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    let running = Pid::from_raw(line.trim().parse().expect("a number")).expect("a process");
    signal(&child, Signal::TSTP);
    let stopped = waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::STOPPED);
    stopped.expect("a child").expect("it is stopped");
    while state(running) != Some('T') {}
    signal(&child, Signal::CONT);
    while state(running) == Some('T') {}
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
}

#[test]
fn a_command_in_the_foreground_shares_the_terminal_and_others_do_not() {
    let world = World::new();
    let script = "echo $$; cut -d ' ' -f 5 /proc/$$/stat; cut -d ' ' -f 5 /proc/$PPID/stat";
    let groups = |options: &[&str]| {
        let said = world.run(&shell(options, script)).ended(0).out;
        let numbers: Vec<u32> = said
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        let [pid, group, of_parent] = numbers[..] else {
            panic!("{said}");
        };
        (group == pid, group == of_parent)
    };
    assert_eq!(groups(&[]), (true, false));
    assert_eq!(groups(&["--foreground"]), (false, true));
}
