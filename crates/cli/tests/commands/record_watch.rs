//! `plimsoll record watch`, in one process, of what another one does.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout};
use std::time::Duration;

use plimsoll::records::Swap;
use plimsoll::store::Compact;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::{Said, World};

/// A watch that runs, and what it says.
struct Watching {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Watching {
    fn start(world: &World, more: &[&str]) -> Self {
        let watch = [&["record", "watch"], more].concat();
        let mut child = world.start(&mut world.command(&watch));
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line
    }

    #[track_caller]
    fn event(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("JSON: {line:?}"))
    }

    /// What it said besides what was read, after this signal.
    fn end(mut self, signal: Signal) -> Said {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("it is there");
        self.rest()
    }

    fn rest(&mut self) -> Said {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("it ends");
        let mut stderr = self.child.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut err).expect("it ends");
        let code = self.child.wait().expect("it ends").code();
        Said { code, out, err }
    }
}

/// A test that fails leaves no process behind.
impl Drop for Watching {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn put(world: &World, key: &str, field: &str) {
    world.run(&["record", "put", key, field]).ended(0);
}

/// Removes all that is in the history.
pub(crate) fn forget_history(world: &World) {
    let compact = Compact {
        history: Some(Duration::ZERO),
        limit: 100,
        ..Compact::default()
    };
    let compacted = world.act(async |engine| engine.store().compact(compact).await);
    assert_ne!(compacted.entries, 0);
}

#[test]
fn a_watch_tells_what_is_there_and_then_what_changes() {
    let world = World::new();
    put(&world, "config.mail", "host=a");
    put(&world, "other", "host=x");
    let mut watch = Watching::start(&world, &["config.", "--json"]);
    let there = watch.event();
    assert_eq!(there["event"], "snapshot");
    assert_eq!(there["record"]["fields"], json!({"host": {"text": "a"}}));
    let live = watch.event();
    assert_eq!(live["event"], "replay_complete");
    put(&world, "other", "host=y");
    put(&world, "config.mail", "host=b");
    let changed = watch.event();
    assert_eq!(
        (&changed["event"], &changed["key"]),
        (&json!("put"), &json!("config.mail"))
    );
    assert_eq!(changed["record"]["fields"], json!({"host": {"text": "b"}}));
    assert_eq!(changed["revision"], changed["record"]["revision"]);
    world.run(&["record", "delete", "config.mail"]).ended(0);
    let removed = watch.event();
    assert_eq!(
        (&removed["event"], &removed["how"]),
        (&json!("removed"), &json!("deleted"))
    );
    assert_eq!(removed["revision"], changed["revision"]);
    let ended = watch.end(Signal::INT).ended(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    // Whoever was away goes on where it was.
    let cursor = changed["cursor"].as_str().expect("a cursor");
    let mut resumed = Watching::start(&world, &["config.", "--json", "--after", cursor]);
    assert_eq!(resumed.event(), removed);
    resumed.end(Signal::TERM).ended(0);
}

#[test]
fn one_record_is_watched_for_people() {
    let world = World::new();
    put(&world, "config.mail", "host=a");
    put(&world, "config.mailbox", "host=x");
    let mut watch = Watching::start(&world, &["--key", "config.mail"]);
    assert_eq!(watch.line(), "there    config.mail  host=a\n");
    assert_eq!(watch.line(), "live     all that was there is shown\n");
    put(&world, "config.mailbox", "host=y");
    put(&world, "config.mail", "host=b");
    assert_eq!(watch.line(), "put      config.mail  host=b\n");
    let ttl = ["record", "put", "config.mail", "host=c", "--ttl", "1ms"];
    world.run(&ttl).ended(0);
    assert_eq!(watch.line(), "put      config.mail  host=c\n");
    world.run(&["sweep", "--once"]).ended(0);
    assert_eq!(watch.line(), "expired  config.mail\n");
    let ended = watch.end(Signal::INT).ended(0);
    assert!(
        ended.err.starts_with("To go on from here: --after "),
        "{ended:?}"
    );
}

#[test]
fn a_watch_of_one_record_goes_on_where_it_was() {
    let world = World::new();
    put(&world, "config.mail", "host=a");
    let key = ["--key", "config.mail", "--json"];
    let mut watch = Watching::start(&world, &key);
    assert_eq!(watch.event()["event"], "snapshot");
    let mut seen = vec![watch.event()];
    assert_eq!(seen[0]["event"], "replay_complete");
    for host in ["host=b", "host=c"] {
        // Both are written in one commit, the neighbour first.
        world.act(async |engine| {
            let (name, host) = host.split_once('=').expect("a field");
            let both = ["config.mailbox", "config.mail"];
            let both = both.map(|key| Swap::new(key).set(name, host));
            engine.records().commit(both).await
        });
        put(&world, "config.mailbox", "host=x");
        seen.push(watch.event());
    }
    world.run(&["record", "delete", "config.mail"]).ended(0);
    seen.push(watch.event());
    watch.end(Signal::INT).ended(0);
    for (at, event) in seen[..3].iter().enumerate() {
        let rest = &seen[at + 1..];
        let cursor = event["cursor"].as_str().expect("a cursor");
        let after = [&key[..], &["--after", cursor]].concat();
        let mut resumed = Watching::start(&world, &after);
        rest.iter()
            .for_each(|event| assert_eq!(resumed.event(), *event));
        let ended = resumed.end(Signal::TERM).ended(0);
        assert_eq!(ended.out, "", "nothing else");
    }
    // A cursor within a commit belongs to what was watched.
    let cursor = seen[1]["cursor"].as_str().expect("a cursor");
    let foreign = ["record", "watch", "--key", "config.web", "--after", cursor];
    let refused = world.run(&foreign).ended(2);
    assert!(refused.err.contains("cursor"), "{refused:?}");
    // It would be refused again.
    assert!(!refused.err.contains("To go on"), "{refused:?}");
}

/// What was told last may be long ago, so that what followed is not kept any more.
#[test]
fn a_watch_says_where_it_is_and_not_what_it_told_last() {
    let world = World::new();
    put(&world, "config.mail", "host=a");
    let watch = ["record", "watch", "config.", "--count"];
    let begun = world.run(&[&watch[..], &["2", "--json"]].concat()).ended(0);
    let marker = &begun.objects()[1]["cursor"];
    put(&world, "config.mail", "host=b");
    put(&world, "other", "host=x");
    let after = |cursor: &str| world.run(&[&watch[..], &["1", "--after", cursor]].concat());
    let told = after(marker.as_str().expect("a cursor")).ended(0);
    assert_eq!(told.out, "put      config.mail  host=b\n");
    let cursor = told.err.trim().strip_prefix("To go on from here: --after ");
    let cursor = cursor.expect("a cursor");
    forget_history(&world);
    put(&world, "config.mail", "host=c");
    let told = after(cursor).ended(0);
    assert_eq!(told.out, "put      config.mail  host=c\n");
}

#[test]
fn a_watch_that_fails_says_where_to_go_on() {
    let world = World::on_file();
    put(&world, "config.mail", "host=a");
    let mut watch = Watching::start(&world, &["config."]);
    assert!(watch.line().starts_with("there "));
    assert!(watch.line().starts_with("live "));
    let unreadable = "INSERT INTO history (ns, position, at, changes) \
         SELECT ns, max(position) + 1, max(at), x'c1' FROM history GROUP BY ns";
    let written = world.file().execute(unreadable, []);
    assert_eq!(written.expect("an entry"), 1);
    let failed = watch.rest().ended(1);
    assert!(failed.err.contains("cannot be read"), "{}", failed.err);
    let (_, cursor) = (failed.err.split_once("To go on from here: --after ")).expect("a cursor");
    let cursor = cursor.split_whitespace().next().expect("a cursor");
    // Also if it comes no further.
    let again = ["record", "watch", "config.", "--after", cursor];
    let failed = world.run(&again).ended(1);
    assert!(failed.err.contains(cursor), "{}", failed.err);
}

#[test]
fn a_watch_ends_after_so_many_lines() {
    let world = World::new();
    put(&world, "a", "n=1");
    put(&world, "b", "n=1");
    let two = world
        .run(&["record", "watch", "", "--count", "2", "--quiet"])
        .ended(0);
    assert_eq!(two.out, "there    a  n=1\nthere    b  n=1\n");
    assert_eq!(two.err, "");
    // What was there before is not told.
    let mut watch = Watching::start(&world, &["", "--changes-only", "--count", "1", "--json"]);
    while watch.child.try_wait().expect("a child").is_none() {
        put(&world, "b", "n=2");
    }
    let told = watch.rest().ended(0).object();
    assert_eq!((&told["event"], &told["key"]), (&json!("put"), &json!("b")));
    assert_eq!(told["record"]["fields"], json!({"n": {"text": "2"}}));
}

#[test]
fn a_watch_that_cannot_be_is_refused() {
    let world = World::new();
    world.run(&["record", "watch", "a"]).ended(5);
    put(&world, "a", "n=1");
    for wrong in [
        &[][..],
        &["a", "--key", "a"],
        &["a", "--after", "soon"],
        &["a", "--after", "1", "--changes-only"],
        &["a", "--count", "0"],
    ] {
        world.run(&[&["record", "watch"], wrong].concat()).ended(2);
    }
}

#[test]
fn a_watch_whose_history_is_gone_begins_anew_and_says_so() {
    let world = World::new();
    put(&world, "a", "n=1");
    put(&world, "a", "n=2");
    forget_history(&world);
    let watch = ["record", "watch", "a", "--after", "0", "--count", "3"];
    let told = world.run(&[&watch[..], &["--json"]].concat()).ended(0);
    let told = told.objects();
    let events: Vec<_> = told.iter().map(|event| event["event"].as_str()).collect();
    let expected = ["restarted", "snapshot", "replay_complete"].map(Some);
    assert_eq!(events, expected);
    let shown = world.run(&watch).ended(0).out;
    assert!(
        shown.starts_with("restart  what happened next is not kept"),
        "{shown}"
    );
}
