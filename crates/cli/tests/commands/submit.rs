//! `plimsoll task submit`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::json;

use crate::world::World;

#[test]
fn a_task_is_submitted_with_all_that_is_said_of_it() {
    let world = World::new();
    let more = [
        "--key",
        "clip-7",
        "--priority",
        "9",
        "--owner",
        "ada",
        "--label",
        "show=news",
        "--max-attempts",
        "2",
        "--attempt-timeout",
        "90s",
        "--at",
        "2100-01-01T00:00:00Z",
    ];
    let id = world.submit(["media", "transcode"], r#"{"clip": 7}"#, &more);
    let task = world.task(&id);
    for (field, expected) in [
        ("id", json!(id)),
        ("queue", json!("media")),
        ("kind", json!("transcode")),
        ("status", json!("scheduled")),
        ("payload", json!({"json": {"clip": 7}})),
        ("key", json!("clip-7")),
        ("priority", json!(9)),
        ("owner", json!("ada")),
        ("labels", json!({"show": "news"})),
        ("max_attempts", json!(2)),
        ("attempt_timeout_ms", json!(90_000)),
        ("runnable_at", json!("2100-01-01T00:00:00Z")),
        ("attempts", json!(0)),
        ("lease", json!(null)),
    ] {
        assert_eq!(task[field], expected, "{field}");
    }
}

#[test]
fn a_payload_comes_from_an_argument_a_file_or_standard_input() {
    let world = World::new();
    std::fs::write(world.path().join("order.txt"), "from a file").expect("a file");
    let lane = ["orders", "process"];
    let payload = |id: &str| world.task(id)["payload"].clone();
    assert_eq!(payload(&world.submit(lane, "", &[])), json!({"text": ""}));
    assert_eq!(
        payload(&world.submit(lane, "@order.txt", &[])),
        json!({"text": "from a file"})
    );
    let said = world.run_with(&["task", "submit", "orders", "process", "-"], b"\xff\x01");
    assert_eq!(payload(said.ended(0).line()), json!({"hex": "ff01"}));
    let missing = world.run(&["task", "submit", "orders", "process", "@nothing"]);
    let missing = missing.ended(1);
    assert!(
        missing.err.contains("nothing cannot be read: "),
        "{missing:?}"
    );
    world.run(&["task", "submit", "orders", "process"]).ended(2);
}

#[test]
fn a_payload_that_is_wrong_is_refused_before_it_is_stored() {
    let world = World::new();
    let submit = ["task", "submit", "orders", "process"];
    let not_json = world.run(&[&submit[..], &["{", "--json-payload"]].concat());
    let not_json = not_json.ended(2);
    let expected = "plimsoll: invalid input: payload: expected JSON, as --json-payload asks\n";
    assert_eq!(not_json.err, expected);
    let long = world.run_with(&[&submit[..], &["-"]].concat(), &[b'x'; 300_000]);
    assert!(long.ended(2).err.contains("at most 262144 are allowed"));
    assert_eq!(world.run(&["task", "list", "--json"]).ended(0).out, "");
}

#[test]
fn a_key_stands_for_one_task() {
    let world = World::new();
    let submit = |more: &[&str]| {
        let usual = [
            "task", "submit", "orders", "charge", "7", "--key", "order-7",
        ];
        world.run(&[&usual[..], more].concat())
    };
    let first = submit(&[]).ended(0);
    assert_eq!(first.err, "");
    let second = submit(&[]).ended(0);
    assert_eq!(second.out, first.out);
    assert_eq!(
        second.err,
        "Nothing new: key order-7 stands for this task already.\n"
    );
    assert_eq!(submit(&["--quiet"]).ended(0).err, "");
    let outcome = submit(&["--json"]).ended(0).object();
    assert_eq!(outcome, json!({"id": first.line(), "outcome": "existing"}));
    let rejected = submit(&["--on-conflict", "reject", "--json"]).ended(4);
    assert_eq!(rejected.out, "");
    assert_eq!(rejected.error()["code"], "key_taken");
    assert_eq!(rejected.error()["exit_code"], 4);
    let replaced = submit(&["--on-conflict", "replace-pending"]).ended(0);
    assert_ne!(replaced.out, first.out);
    assert_eq!(world.task(first.line())["status"], "cancelled");
    // Without a key, there is nothing that these could be about.
    let lone = world.run(&["task", "submit", "a", "b", "c", "--key-lifetime", "1h"]);
    assert!(lone.ended(2).err.contains("key: is missing"));
}

#[test]
fn the_same_id_is_the_same_submission() {
    let world = World::new();
    let id = "018f0000-0000-7000-8000-000000000001";
    for _ in 0..2 {
        let said = world.submit(["a", "b"], "c", &["--id", id]);
        assert_eq!(said, id);
    }
    assert_eq!(world.run(&["task", "list", "--json"]).objects().len(), 1);
    let other = world.run(&["task", "submit", "a", "b", "other", "--id", id]);
    assert!(other.ended(4).err.contains("is taken by another task"));
}

#[test]
fn every_line_is_a_task_and_has_an_answer() {
    let world = World::new();
    let lines = r#"{"payload": {"n": 1}, "key": "one", "labels": {"b": "line"}}

{"text": "two", "queue": "other", "priority": 3, "in": "1h"}
{"payload": 3, "priority": 11}
{"payload": 4, "in": "soon"}
{"payload": 5, "colour": "red"}
{"queue": "no payload"}
{"payload": {"n": 1}, "key": "one"}
"#;
    let submit = ["task", "submit", "--lines", "-", "mail", "send", "--json"];
    let defaults = ["--label", "a=every", "--label", "b=every", "--owner", "ada"];
    let said = world.run_with(&[&submit[..], &defaults].concat(), lines.as_bytes());
    let answers = said.ended(2).objects();
    let numbers: Vec<_> = answers
        .iter()
        .map(|answer| answer["line"].as_u64())
        .collect();
    assert_eq!(numbers, [1, 3, 4, 5, 6, 7, 8].map(Some));
    let outcomes: Vec<_> = answers
        .iter()
        .map(|answer| answer["outcome"].as_str())
        .collect();
    assert_eq!(outcomes[..2], [Some("created"), Some("created")]);
    assert_eq!(outcomes[2..6], [None; 4]);
    assert_eq!(outcomes[6], Some("existing"));
    for (answer, expected) in answers[2..6].iter().zip([
        "priority: 11 is not between 0 and 10",
        "in: expected a time like",
        "unknown field `colour`",
        "payload: is missing",
    ]) {
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(expected), "{message}");
    }
    let first = world.task("key:one");
    assert_eq!(first["payload"], json!({"json": {"n": 1}}));
    assert_eq!(first["labels"], json!({"a": "every", "b": "line"}));
    assert_eq!(first["owner"], "ada");
    let second = world.task(answers[1]["id"].as_str().expect("an id"));
    assert_eq!(second["queue"], "other");
    assert_eq!(second["kind"], "send");
    assert_eq!(second["priority"], 3);
    assert_eq!(second["status"], "scheduled");
}

#[test]
fn many_lines_are_submitted_in_batches() {
    let world = World::new();
    let lines: String = (0..1_201)
        .map(|n| format!("{{\"payload\":{n}}}\n"))
        .collect();
    std::fs::write(world.path().join("tasks.jsonl"), lines).expect("a file");
    let said = world.run(&["task", "submit", "mail", "send", "--lines", "tasks.jsonl"]);
    assert_eq!(said.ended(0).out, "Submitted 1,201 tasks.\n");
    let counts = world.run(&["queue", "list", "--json"]).ended(0).object();
    assert_eq!(counts["counts"]["pending"], 1_201);
}

#[test]
fn all_lines_are_submitted_although_nobody_listens() {
    let world = World::new();
    let lines: String = (0..1_201)
        .map(|n| format!("{{\"payload\":{n}}}\n"))
        .collect();
    let submit = ["task", "submit", "mail", "send", "--lines", "-", "--json"];
    let said = world.run_unheard(&submit, lines.as_bytes());
    assert_eq!(said.ended(0).err, "");
    let counts = world.run(&["queue", "list", "--json"]).ended(0).object();
    assert_eq!(counts["counts"]["pending"], 1_201);
}

#[test]
fn lines_that_come_slowly_are_submitted_as_they_come() {
    let world = World::new();
    let submit = ["task", "submit", "mail", "send", "--lines", "-", "--json"];
    let mut child = world.start(world.command(&submit).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    // Of the second line, only the beginning has come.
    for (number, input) in [(1, "{\"payload\": 1}\n{\"pay"), (2, "load\": 2}\n")] {
        stdin.write_all(input.as_bytes()).expect("it listens");
        let mut line = String::new();
        out.read_line(&mut line).expect("an answer");
        let answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["line"], number);
        assert_eq!(answer["outcome"], "created");
    }
    drop(stdin);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_was_read_before_an_error_is_submitted() {
    let world = World::new();
    let long = "x".repeat(17 * 1024 * 1024);
    let lines = format!("{{\"payload\":1}}\n{{\"text\":\"{long}\"}}\n");
    std::fs::write(world.path().join("tasks.jsonl"), lines).expect("a file");
    let said = world.run(&["task", "submit", "mail", "send", "--lines", "tasks.jsonl"]);
    let said = said.ended(2);
    assert_eq!(said.out, "Submitted 1 task.\n");
    assert!(said.err.contains("is longer than"), "{said:?}");
}
