//! `plimsoll job watch` and `job barrier`, with partitions in other processes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command};

use plimsoll::jobs::NewState;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::job::set;
use crate::record_watch::forget_history;
use crate::world::{Said, World};

/// A watch in a process of its own, and what it says.
struct Watching {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Watching {
    fn start(world: &World, more: &[&str]) -> Self {
        let command = [&["job", "watch", "import"], more].concat();
        let mut child = world.start(&mut world.command(&command));
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line
    }

    fn event(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("an event: {line:?}"))
    }

    /// What else it says, and how it ends.
    fn end(mut self, code: i32) -> (Vec<String>, Said) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        let said = Said::from(self.child.wait_with_output().expect("it ends"));
        (rest.lines().map(String::from).collect(), said.ended(code))
    }

    fn kill(mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
    }
}

/// Waits until somebody has opened the store, which was not there. Nobody can tell that of a server.
fn until_open(world: &World, waiting: &mut Child) {
    let file = world.path().join("plimsoll.db");
    while !world.is_on_a_server() && !file.exists() {
        let ended = waiting.try_wait().expect("a process");
        assert_eq!(ended, None, "it waits");
        std::thread::yield_now();
    }
}

/// What happened, in short.
fn short(event: &Value) -> String {
    let (name, replay) = (&event["event"], &event["replay"]);
    let (state, live) = (&event["state"], event["cursor"].is_string());
    let (partition, version) = (&state["partition"], &state["version"]);
    format!("{name} {replay} {partition} {version} {live}").replace('"', "")
}

#[test]
fn what_another_process_sets_is_told_as_it_comes() {
    let world = World::new();
    set(&world, "import", "2", "ingest", &["--started"]);
    set(&world, "import", "0", "ingest", &["--started"]);
    set(&world, "import", "0", "export", &["--started"]);
    let more = ["--json", "--tag", "ingest", "--until", "finished"];
    let mut watching = Watching::start(&world, &more);
    assert_eq!(short(&watching.event()), "state true 2 1 false");
    assert_eq!(short(&watching.event()), "state true 0 1 false");
    assert_eq!(
        short(&watching.event()),
        "replay_complete false null null true"
    );
    set(&world, "import", "2", "ingest", &["--error", "no route"]);
    let failed = watching.event();
    assert_eq!(short(&failed), "state false 2 2 true");
    assert_eq!(failed["state"]["message"], "🔴 no route");
    for partition in ["0", "1", "2", "3"] {
        set(&world, "import", partition, "ingest", &["--finished"]);
    }
    // It ends by itself, after the last of them.
    let (rest, _) = watching.end(0);
    let rest = rest
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let rest: Vec<String> = rest.map(|event| short(&event)).collect();
    let expected = [
        "state false 0 2 true",
        "state false 1 1 true",
        "state false 2 3 true",
        "state false 3 1 true",
    ];
    assert_eq!(rest, expected);

    // Another goes on behind that, and is told what came after it, also if nothing more will.
    let cursor = failed["cursor"].as_str().expect("a cursor");
    let more = [
        "--json", "--tag", "ingest", "--until", "finished", "--after", cursor,
    ];
    let (rest, _) = Watching::start(&world, &more).end(0);
    assert_eq!(rest.len(), 4, "{rest:#?}");
    let last: Value = serde_json::from_str(&rest[3]).expect("JSON");
    let cursor = last["cursor"].as_str().expect("a cursor");
    let more = [
        "--json", "--tag", "ingest", "--until", "finished", "--after", cursor,
    ];
    let (rest, _) = Watching::start(&world, &more).end(0);
    assert_eq!(rest, [""; 0]);
    // One of another job leads nowhere.
    set(&world, "other", "0", "ingest", &["--finished"]);
    world
        .run(&["job", "watch", "other", "--after", cursor])
        .ended(2);
    world.run(&["job", "watch", "nothing"]).ended(3);
}

#[test]
fn a_watch_may_begin_before_its_job() {
    let world = World::new();
    let more = ["--json", "--wait-for-job", "--until", "finished"];
    let mut watching = Watching::start(&world, &more);
    until_open(&world, &mut watching.child);
    for partition in ["0", "1", "2", "3"] {
        set(&world, "import", partition, "ingest", &["--finished"]);
    }
    let (told, _) = watching.end(0);
    let told = told.iter().map(|line| serde_json::from_str(line));
    let told: Vec<Value> = told.collect::<Result<_, _>>().expect("JSON");
    let states = told.iter().filter(|event| event["event"] == "state");
    let mut partitions: Vec<u64> = states
        .filter_map(|event| event["state"]["partition"].as_u64())
        .collect();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3]);
}

#[test]
fn everything_is_told_before_a_long_watch_ends() {
    let world = World::new();
    let states = 400;
    let writing = || {
        world.act(async |engine| {
            let manager = engine.jobs().join("import", 0, 1).await?;
            for number in 1..states {
                let state = plimsoll::jobs::NewState::new("ingest", number)?;
                manager.set_state(state).await?;
            }
            let state = plimsoll::jobs::NewState::of("ingest")?;
            manager.set_finished(state).await
        })
    };
    world.act(async |engine| engine.jobs().join("import", 0, 1).await);
    let more = ["--json", "--tag", "ingest", "--until", "finished"];
    let mut watching = Watching::start(&world, &more);
    assert_eq!(watching.event()["event"], "replay_complete");
    writing();
    let (rest, _) = watching.end(0);
    let versions = rest.iter().map(|line| {
        let event: Value = serde_json::from_str(line).expect("JSON");
        event["state"]["version"].as_u64().expect("a version")
    });
    let versions: Vec<u64> = versions.collect();
    assert_eq!(versions.len(), 400);
    assert!(
        versions.windows(2).all(|two| two[0] + 1 == two[1]),
        "{versions:?}"
    );
}

#[test]
fn people_read_one_line_for_each_change() {
    let world = World::new();
    set(
        &world,
        "import",
        "0",
        "ingest",
        &["--status", "40", "--message", "two\nlines"],
    );
    let mut watching = Watching::start(&world, &[]);
    let replay = watching.line();
    let words: Vec<&str> = replay.trim_end().split("  ").collect();
    assert_eq!(words[0], "replay");
    assert_eq!(words[2..], ["0", "ingest", "running 40", "two lines"]);
    let marker = watching.line();
    assert!(marker.ends_with("@import  replay complete\n"), "{marker}");
    set(&world, "import", "1", "ingest", &["--finished"]);
    let live = watching.line();
    assert!(live.contains("@import  20"), "{live}");
    assert!(
        live.ends_with("  1  ingest  finished  ⚫ Finished\n"),
        "{live}"
    );
    world.run(&["job", "delete", "import", "--yes"]).ended(0);
    let (rest, said) = watching.end(31);
    assert_eq!(rest, [""; 0]);
    assert!(
        said.err.starts_with("plimsoll: job import was deleted\n"),
        "{said:?}"
    );
    world.run(&["job", "watch", "import"]).ended(31);
}

#[test]
fn an_interrupt_and_a_request_to_end_end_a_watch_well() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--started"]);
    for signal in [Signal::INT, Signal::TERM] {
        let mut watching = Watching::start(&world, &["--json"]);
        watching.event();
        let pid = Pid::from_raw(watching.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it is there");
        let (_, said) = watching.end(0);
        assert_eq!(said.err, "");
    }
}

/// What it said last may be long ago, so that what followed is not kept any more.
#[test]
fn an_interrupted_watch_says_where_to_go_on() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--started"]);
    let mut marking = Watching::start(&world, &["--tag", "export"]);
    let marker = marking.line();
    let marker = marker.split("  ").next().expect("a cursor");
    marking.kill();
    set(&world, "import", "1", "export", &["--started"]);
    set(&world, "import", "0", "ingest", &["--finished"]);

    let go_on = |cursor| Watching::start(&world, &["--tag", "export", "--after", cursor]);
    let mut watching = go_on(marker);
    let line = watching.line();
    assert!(line.contains("  1  export  "), "{line}");
    let pid = Pid::from_raw(watching.child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::INT).expect("it is there");
    let (_, said) = watching.end(0);
    let cursor = (said.err.trim_end()).strip_prefix("To go on from here: --after ");
    let cursor = cursor.unwrap_or_else(|| panic!("{said:?}"));
    forget_history(&world);
    set(&world, "import", "2", "export", &["--finished"]);
    let mut on = go_on(cursor);
    let line = on.line();
    assert!(
        line.ends_with("  2  export  finished  ⚫ Finished\n"),
        "{line}"
    );
    on.kill();
}

/// A terminal of 80 columns: our end, and that of a program.
fn terminal() -> (File, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let path = ptsname(&ours, Vec::new()).expect("a name");
    let path = path.to_str().expect("text");
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("its other end");
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&theirs, size).expect("a size");
    (ours.into(), theirs.into())
}

/// A command on a terminal, and what it has drawn.
struct OnTerminal {
    child: Child,
    ours: BufReader<File>,
    drawn: String,
}

impl OnTerminal {
    fn start(mut command: Command) -> Self {
        let (ours, theirs) = terminal();
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        command
            .stdout(theirs.try_clone().expect("a terminal"))
            .stderr(theirs);
        // The command is dropped after that: else it would hold the other end open.
        let child = command.spawn().expect("it starts");
        Self {
            child,
            ours: BufReader::new(ours),
            drawn: String::new(),
        }
    }

    /// Waits until these words are drawn.
    fn upto(&mut self, words: &str) {
        let (mut byte, mut text) = ([0], Vec::new());
        while !String::from_utf8_lossy(&text).contains(words) {
            let read = self.ours.read(&mut byte).expect("it goes on");
            assert_eq!(read, 1, "{}", self.drawn);
            text.push(byte[0]);
        }
        self.drawn += &String::from_utf8_lossy(&text);
    }

    fn ends_well(mut self) {
        let status = self.child.wait().expect("it ends");
        assert_eq!((status.code(), status.signal()), (Some(0), None));
    }
}

#[test]
fn a_terminal_shows_a_picture_that_changes() {
    let world = World::new();
    set(&world, "import", "1", "ingest", &["--error", "no route"]);
    let command = world.command(&["job", "watch", "import", "--until", "finished"]);
    let mut watching = OnTerminal::start(command);
    // In red, with its message.
    watching.upto("\u{1b}[31merror\u{1b}[0m");
    watching.upto("1 failed, 3 not started");
    watching.upto("\u{1b}[31m🔴 no route\u{1b}[0m");
    for partition in ["0", "1", "2", "3"] {
        set(&world, "import", partition, "ingest", &["--finished"]);
    }
    watching.upto("4 finished");
    watching.ends_well();
}

fn barrier(world: &World, more: &[&str]) -> Said {
    world.run(&[&["job", "barrier", "import"], more].concat())
}

/// A barrier that is not reached in time. On a busy machine the job may not even be read by then, which says nothing of
/// who is behind.
fn late(world: &World, more: &[&str]) -> Said {
    let unread = ["was not read within", "were not read in time"];
    let is_read = |said: &Said| !unread.iter().any(|words| said.err.contains(words));
    let mut tries = (0..20).map(|_| barrier(world, more));
    let late = tries.find(is_read).expect("the job can be read");
    late.ended(6)
}

#[test]
fn the_exit_code_of_a_barrier_tells_how_it_ended() {
    let world = World::new();
    // No store, no job.
    barrier(&world, &["ingest"]).ended(5);
    set(&world, "other", "0", "ingest", &["--started"]);
    barrier(&world, &["ingest"]).ended(3);
    for partition in ["0", "1", "2"] {
        set(&world, "import", partition, "ingest", &["--status", "40"]);
    }
    let told = late(&world, &["ingest", "--timeout", "500ms"]);
    let expected = "plimsoll: job import: after 500ms, 4 of its partitions have not reached ingest finished; \
        the last is partition 3: not started\n";
    assert_eq!(told.err, expected);
    let told = late(&world, &["ingest", "40", "--timeout", "100ms", "--json"]);
    assert_eq!(told.error()["code"], "timeout");
    set(&world, "import", "3", "ingest", &["--status", "41"]);
    let there = barrier(&world, &["ingest", "40", "--json"]).ended(0);
    assert_eq!(there.object()["status"], 40);
    let there = barrier(&world, &["ingest", "started"]).ended(0);
    assert_eq!(
        (there.out.as_str(), there.err.as_str()),
        ("", "4 partitions: ingest running 1.\n")
    );
    set(&world, "import", "2", "ingest", &["--error", "no route"]);
    let failed = barrier(&world, &["ingest", "--timeout", "10m"]).ended(30);
    let expected = "plimsoll: job import: partition 2 has status -1 at ingest: 🔴 no route\n";
    assert_eq!(failed.err, expected);
    let failed = barrier(&world, &["ingest", "--json"]).ended(30);
    assert_eq!(failed.error()["code"], "partition_failed");
    for status in ["0", "-1", "soon"] {
        barrier(&world, &["--", "ingest", status]).ended(2);
    }
    world.run(&["job", "delete", "import", "--yes"]).ended(0);
    barrier(&world, &["ingest"]).ended(31);
    // One that was deleted is not there either.
    let more = ["ingest", "--wait-for-job", "--timeout", "10ms"];
    let none = barrier(&world, &more).ended(6);
    assert_eq!(
        none.err,
        "plimsoll: there is no job import after 10ms, or it could not be read\n"
    );
}

#[test]
fn a_barrier_waits_for_a_job_and_its_partitions() {
    let world = World::new();
    // There is not even a file.
    let command = [
        "job",
        "barrier",
        "import",
        "ingest",
        "--wait-for-job",
        "--json",
    ];
    let mut waiting = world.start(&mut world.command(&command));
    until_open(&world, &mut waiting);
    for partition in ["0", "1", "2", "3"] {
        set(&world, "import", partition, "ingest", &["--finished"]);
    }
    let said = Said::from(waiting.wait_with_output().expect("it ends")).ended(0);
    assert_eq!(said.object()["status"], i32::MAX);
}

#[test]
fn a_barrier_that_was_reached_ends_well_although_the_job_is_deleted_at_once() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--status", "7"]);
    for partition in ["1", "2", "3"] {
        set(&world, "import", partition, "ingest", &["--finished"]);
    }
    let mut waiting = OnTerminal::start(world.command(&["job", "barrier", "import", "ingest"]));
    waiting.upto("running 7");
    // Whoever waits is told of both in one look at the file.
    world.act(async |engine| {
        let zero = engine.jobs().join("import", 0, 4).await?;
        zero.set_finished(NewState::of("ingest")?).await?;
        zero.delete_job().await
    });
    waiting.upto("partitions: ingest finished.");
    waiting.ends_well();
}
