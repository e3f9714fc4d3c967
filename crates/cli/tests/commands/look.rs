//! `plimsoll task list` and `show`, `plimsoll queue`, and what all of them understand.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use crate::world::World;

/// Tasks whose payloads are the letters that filters are told by.
fn letters() -> World {
    let world = World::new();
    let submit = |lane, payload: &str, more: &[&str]| world.submit(lane, payload, more);
    submit(["mail", "send"], "a", &["--owner", "ada", "--key", "k-a"]);
    let b = submit(["mail", "send"], "b", &["--owner", "bob", "--label", "x=1"]);
    let c = submit(["mail", "check"], "c", &["--owner", "ada", "--key", "k-c"]);
    let d = submit(
        ["media", "send"],
        "d",
        &["--label", "x=1", "--label", "y=2"],
    );
    submit(["media", "send"], "e", &["--in", "1h", "--key", "other"]);
    world.work(&b, async |held| held.fail_fatal("no route").await);
    world.work(&c, async |held| held.complete("done").await);
    world.work(&d, async |held| held.stage("encoding".try_into()?).await);
    world
}

fn listed(world: &World, filters: &[&str]) -> String {
    let arguments = [&["task", "list", "--json"], filters].concat();
    let tasks = world.run(&arguments).ended(0).objects();
    let payload = |task: &Value| task["payload"]["text"].as_str().map(String::from);
    tasks.iter().filter_map(payload).collect()
}

#[test]
fn a_list_has_what_matches_with_what_is_alive_first() {
    let world = letters();
    for (filters, expected) in [
        (&[][..], "daebc"),
        (&["--queue", "mail"], "abc"),
        (&["--kind", "send"], "daeb"),
        (&["--queue", "mail", "--kind", "check"], "c"),
        (&["--status", "failed,scheduled"], "eb"),
        (&["--owner", "ada"], "ac"),
        (&["--owner", "ada", "--kind", "send"], "a"),
        (&["--owner", "ada", "--status", "completed"], "c"),
        (&["--key-prefix", "k-"], "ac"),
        (&["--key-prefix", "k-", "--queue", "media"], ""),
        (&["--label", "x=1"], "db"),
        (&["--label", "x=1", "--label", "y=2"], "d"),
        (&["--worker", "worker-1"], "d"),
        (&["--worker", "worker-2"], ""),
        (&["--stage", "encoding"], "d"),
        (&["--created-after", "1h"], "daebc"),
        (&["--created-before", "1h"], ""),
        (&["--finished-after", "1h"], "bc"),
        (&["--finished-before", "1h"], ""),
        (&["--queue", "nothing"], ""),
        (&["--limit", "2"], "da"),
    ] {
        assert_eq!(listed(&world, filters), expected, "{filters:?}");
    }
}

#[test]
fn a_list_says_when_there_is_more_or_nothing() {
    let world = letters();
    let cut = world.run(&["task", "list", "--limit", "3"]).ended(0);
    assert_eq!(cut.out.lines().count(), 4);
    assert_eq!(cut.err, "The first 3; for more, --limit COUNT or --all.\n");
    let all = world.run(&["task", "list", "--limit", "5"]).ended(0);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (6, ""));
    let none = world.run(&["task", "list", "--queue", "nothing"]).ended(0);
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "No tasks match.\n")
    );
}

#[test]
fn a_list_of_more_than_a_page_is_complete() {
    let world = World::new();
    let lines: String = (0..1_100)
        .map(|n| format!("{{\"payload\":{n}}}\n"))
        .collect();
    let submit = ["task", "submit", "mail", "send", "--lines", "-"];
    world.run_with(&submit, lines.as_bytes()).ended(0);
    let all = world.run(&["task", "list", "--all"]).ended(0);
    assert_eq!(all.out.lines().count(), 1_101);
    assert_eq!(all.out.matches("STATUS").count(), 1);
    assert_eq!(
        world
            .run(&["task", "list", "--all", "--json"])
            .objects()
            .len(),
        1_100
    );
}

#[test]
fn a_table_is_as_wide_as_it_may_be_and_coloured_as_asked() {
    let world = letters();
    let mut narrow = world.command(&["task", "list"]);
    let narrow = narrow.env("COLUMNS", "80").output().expect("it runs");
    let narrow = String::from_utf8(narrow.stdout).expect("text");
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 80),
        "{narrow}"
    );
    assert!(!narrow.contains('\u{1b}'));
    let coloured = world.run(&["task", "list", "--color", "always"]).ended(0);
    assert!(
        coloured.out.contains("\u{1b}[31mfailed\u{1b}[0m"),
        "{coloured:?}"
    );
}

#[test]
fn whoever_stops_listening_ends_it_quietly() {
    let world = World::new();
    // More than fits into a pipe.
    let long = "x".repeat(100);
    let lines: String = (0..1_000)
        .map(|_| format!("{{\"text\":\"{long}\"}}\n"))
        .collect();
    let submit = ["task", "submit", "mail", "send", "--lines", "-"];
    world.run_with(&submit, lines.as_bytes()).ended(0);
    for format in [&["--json"][..], &["--color", "always"]] {
        let all = ["task", "list", "--all"];
        let mut child = world.start(&mut world.command(&[&all[..], format].concat()));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut String::new()).expect("a line");
        drop(out);
        let ended = child.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(0));
        assert_eq!(ended.stderr, b"");
    }
}

#[test]
fn a_task_is_shown_to_people_by_id_or_key() {
    let world = letters();
    let shown = world.run(&["task", "show", "key:k-c"]).ended(0);
    assert!(shown.out.contains("  completed\n"), "{shown:?}");
    assert!(
        shown
            .out
            .ends_with("\nPayload, 1 B\n  c\n\nResult, 4 B\n  done\n"),
        "{shown:?}"
    );
    let missing = world.run(&["task", "show", "018f0000-0000-7000-8000-000000000001"]);
    let missing = missing.ended(3);
    let expected = "plimsoll: no task 018f0000-0000-7000-8000-000000000001\n";
    assert!(missing.err.starts_with(expected), "{missing:?}");
    world.run(&["task", "show", "7"]).ended(2);
}

#[test]
fn what_went_wrong_is_told_to_programs() {
    let world = letters();
    let missing = world
        .run(&["task", "show", "key:nothing", "--json"])
        .ended(3);
    assert_eq!(missing.error()["code"], "task_not_found");
    assert_eq!(missing.error()["message"], "no task with key nothing");
    let tasks = world.run(&["task", "list", "--status", "failed", "--json"]);
    let task = tasks.ended(0).object();
    assert_eq!(task["reason"], "no route");
    assert_eq!(task["errors"][0]["kind"], "fatal");
    assert_eq!(task["errors"][0]["worker"], "worker-1");
    assert_eq!(task["errors"][0]["message"], "no route");
}

#[test]
fn steps_of_all_attempts_are_shown_with_how_they_ended() {
    let world = World::new();
    let submit = ["task", "submit", "q", "k", "hello", "--key", "one"];
    world.run(&submit).ended(0);
    assert!(
        world
            .run(&["task", "steps", "key:one"])
            .ended(0)
            .out
            .is_empty()
    );
    let script =
        "cat; echo retry-after 0s > $PLIMSOLL_CONTROL; [ $PLIMSOLL_ATTEMPT = 2 ] || exit 7";
    let work = [
        "work",
        "--queue",
        "q",
        "--until-empty",
        "--",
        "sh",
        "-c",
        script,
    ];
    world.run(&work).ended(0);
    let steps = world.run(&["task", "steps", "key:one", "--json"]);
    let steps = steps.ended(0).objects();
    let ends: Vec<_> = (steps.iter())
        .map(|step| {
            (
                step["step_id"].clone(),
                step["exit_code"].clone(),
                step["success"].clone(),
            )
        })
        .collect();
    let expected = [
        ("attempt-1".into(), 7.into(), false.into()),
        ("attempt-2".into(), 0.into(), true.into()),
    ];
    assert_eq!(ends, expected);
    assert_eq!(steps[1]["stdout"], "hello");
    let table = world.run(&["task", "steps", "key:one"]).ended(0).out;
    let states: Vec<_> = (table.lines())
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert_eq!(states, ["STATE", "failed", "done"]);
    world.run(&["task", "steps", "key:two"]).ended(3);
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_who_looks() {
    let world = World::on_file();
    for command in ["task list", "queue list", "doctor", "task show key:x"] {
        let words: Vec<&str> = command.split(' ').collect();
        let said = world.run(&words).ended(5);
        assert!(
            said.err.contains("there is no file plimsoll.db"),
            "{said:?}"
        );
    }
    assert_eq!(
        std::fs::read_dir(world.path()).expect("a folder").count(),
        0
    );
    world.run(&["task", "list", "--store", "memory:"]).ended(2);
    world.run(&["task", "list", "--store", "mysql:x"]).ended(2);
}

#[test]
fn store_and_namespace_come_from_arguments_or_the_environment() {
    let world = World::on_file();
    let there = ["--store", "sqlite:other.db", "--namespace", "night"];
    world.submit(["a", "b"], "c", &there);
    assert!(!world.path().join("plimsoll.db").exists());
    let mut list = world.command(&["task", "list", "--json"]);
    list.env("PLIMSOLL_STORE", "sqlite:other.db");
    let lines = |list: &mut std::process::Command| {
        let output = list.output().expect("it runs");
        String::from_utf8(output.stdout)
            .expect("text")
            .lines()
            .count()
    };
    assert_eq!(lines(&mut list), 0);
    list.env("PLIMSOLL_NAMESPACE", "night");
    assert_eq!(lines(&mut list), 1);
}

#[test]
fn a_queue_is_counted_and_shows_what_comes_next() {
    let world = letters();
    world.submit(["mail", "send"], "urgent", &["--priority", "10"]);
    let lanes = world.run(&["queue", "list", "--json"]).ended(0).objects();
    let name = |lane: &Value| format!("{}/{}", lane["queue"], lane["kind"]).replace('"', "");
    let names: Vec<_> = lanes.iter().map(name).collect();
    assert_eq!(names, ["mail/check", "mail/send", "media/send"]);
    let expected = json!({"scheduled": 0, "pending": 2, "claimed": 0, "completed": 0,
        "failed": 1, "cancelled": 0});
    assert_eq!(lanes[1]["counts"], expected);
    assert_eq!(lanes[0]["next"], json!(null));
    let mail = world
        .run(&["queue", "show", "mail", "--json"])
        .ended(0)
        .object();
    let next = mail["next"].as_array().expect("a list").iter();
    let next: Vec<_> = next.map(|task| &task["payload"]["text"]).collect();
    assert_eq!(next, ["urgent", "a"]);
    assert_eq!(lanes[1]["next"]["id"], mail["next"][0]["id"]);
    let people = world.run(&["queue", "show", "mail"]).ended(0);
    let header = "QUEUE  KIND   PENDING  COMPLETED  FAILED  NEXT WAITS\n";
    assert!(people.out.starts_with(header), "{people:?}");
    assert!(people.out.contains("\nNext in line\nID "), "{people:?}");
    world.run(&["queue", "show", "nothing"]).ended(3);
}

#[test]
fn a_queue_of_more_kinds_than_one_claim_may_name_is_shown() {
    let world = World::new();
    // The most urgent is in the last lane, by name.
    let line = |n: u32| {
        format!(
            "{{\"payload\":{n},\"kind\":\"k{n:03}\",\"priority\":{}}}\n",
            n / 10
        )
    };
    let lines: String = (0..100).map(line).collect();
    let submit = ["task", "submit", "mail", "--lines", "-"];
    world.run_with(&submit, lines.as_bytes()).ended(0);
    let show = ["queue", "show", "mail", "--next", "12", "--json"];
    let queue = world.run(&show).ended(0).object();
    assert_eq!(queue["lanes"].as_array().map(Vec::len), Some(100));
    let next = queue["next"].as_array().expect("a list").iter();
    let next: Vec<_> = next
        .filter_map(|task| task["payload"]["json"].as_u64())
        .collect();
    assert_eq!(next, (90..100).chain(80..82).collect::<Vec<_>>());
}

#[test]
fn everything_about_a_task_is_shown() {
    let world = World::new();
    let more = [
        "--key",
        "k",
        "--key-lifetime",
        "24h",
        "--retry-delay",
        "5s",
        "--retry-factor",
        "3",
        "--retry-cap",
        "1m",
        "--retry-within",
        "2h",
    ];
    let id = world.submit(["mail", "send"], "x", &more);
    world.work(&id, async |held| {
        held.checkpoint("page 7").await?;
        let set = [("files", &b"3"[..]), ("raw", b"\xff\x00")];
        let set = set.map(|(name, value)| {
            let name = plimsoll::Name::new(name).expect("a name");
            (name, value.into())
        });
        held.set_attributes(set.into()).await
    });
    let task = world.task(&id);
    assert_eq!(task["key_lifetime"], "86400000ms");
    let retry = json!({"delay_ms": 5_000, "factor": 3.0, "cap_ms": 60_000, "jitter_percent": 20,
        "within_ms": 7_200_000});
    assert_eq!(task["retry"], retry);
    assert_eq!(task["checkpoint"], json!({"text": "page 7"}));
    let attributes = json!({"files": {"json": 3}, "raw": {"hex": "ff00"}});
    assert_eq!(task["attributes"], attributes);
    let shown = world.run(&["task", "show", &id]).ended(0).out;
    for expected in [
        "\nAttributes\n  files  3\n  raw    ff00\n",
        "  key         k (for 1d or until it has ended)\n",
        "0 failed of at most 4; retried after 5s to 1m, for 2h\n",
        "\nCheckpoint, 6 B\n  page 7\n",
    ] {
        assert!(shown.contains(expected), "{shown}");
    }
}

/// What completes the options of `task list` in each shell: not only that a word occurs somewhere.
#[test]
fn completion_scripts_load_and_complete() {
    let world = World::new();
    let script = |shell| world.run(&["completion", shell]).ended(0).out;
    let check = "source /dev/stdin; COMP_WORDS=(plimsoll task list --created-a); COMP_CWORD=3; \
                 _plimsoll plimsoll --created-a list; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-c", check]);
    bash.stdin(std::process::Stdio::piped());
    let mut bash = world.start(&mut bash);
    let mut stdin = bash.stdin.take().expect("a pipe");
    stdin
        .write_all(script("bash").as_bytes())
        .expect("it reads");
    drop(stdin);
    let bash = bash.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&bash.stdout), "--created-after\n");
    let zsh = script("zsh");
    assert!(zsh.starts_with("#compdef plimsoll\n"), "{}", &zsh[..80]);
    assert!(zsh.contains("'--created-after=["), "the option");
    assert!(zsh.contains("'list:Lists tasks"), "the command");
    let fish = script("fish");
    let option = "-c plimsoll -n \"__fish_plimsoll_using_subcommand task; and \
                  __fish_seen_subcommand_from list\" -l created-after";
    assert!(fish.contains(option), "the option");
    // Where the shells are, they read it.
    for (shell, text) in [("zsh", zsh), ("fish", fish)] {
        std::fs::write(world.path().join(shell), text).expect("a file");
        let mut reader = std::process::Command::new(shell);
        let read = reader.arg("-n").arg(world.path().join(shell)).status();
        match read {
            Ok(status) => assert!(status.success(), "{shell}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    world.run(&["completion", "tcl"]).ended(2);
}
