//! `plimsoll record get`, `put`, `set`, `delete` and `touch`.

use std::time::Duration;

use serde_json::json;

use crate::world::World;

#[test]
fn a_record_is_put_and_shown() {
    let world = World::new();
    let put = [
        "record",
        "put",
        "job.7",
        "state=pending",
        "note=a=b c",
        "n=-7",
    ];
    let revision = world.run(&put).ended(0).line().to_owned();
    let shown = world.run(&["record", "get", "job.7"]).ended(0).out;
    let expected = "  n      -7\n  note   a=b c\n  state  pending\n";
    let (head, fields) = shown.split_once('\n').expect("lines");
    assert_eq!(fields, expected);
    let begin = format!("job.7  revision {revision}, written ");
    assert!(
        head.starts_with(&begin) && !head.contains("expires"),
        "{head}"
    );
    let told = world.run(&["record", "get", "job.7", "--json"]).ended(0);
    let told = told.object();
    let fields =
        json!({"n": {"text": "-7"}, "note": {"text": "a=b c"}, "state": {"text": "pending"}});
    assert_eq!(told["fields"], fields);
    assert_eq!(told["key"], "job.7");
    assert_eq!(told["revision"].to_string(), revision);
    assert!(told["expires_at"].is_null());
    // What is put replaces what was there.
    let again = world
        .run(&["record", "put", "job.7", "a=1", "--json"])
        .ended(0)
        .object();
    assert_eq!(again["key"], "job.7");
    let told = world
        .run(&["record", "get", "job.7", "--json"])
        .ended(0)
        .object();
    assert_eq!(told["fields"], json!({"a": {"text": "1"}}));
    assert_eq!(told["revision"], again["revision"]);
}

#[test]
fn a_field_is_shown_as_it_is_stored() {
    let world = World::new();
    let bytes = b"a\n\xff\x00\x1b[1m";
    world
        .run_with(&["record", "put", "job.7", "blob=@-", "b="], bytes)
        .ended(0);
    let get = ["record", "get", "job.7", "--field", "blob"];
    let output = world.command(&get).output().expect("it runs");
    assert_eq!(output.stdout, bytes);
    let told = world
        .run(&[&get[..], &["--json"]].concat())
        .ended(0)
        .object();
    let expected = json!({"key": "job.7", "field": "blob", "value": {"hex": "610aff001b5b316d"}});
    assert_eq!(told, expected);
    let shown = world.run(&["record", "get", "job.7"]).ended(0).out;
    assert!(
        shown.contains("\n  blob  a\\n\\xff\\u{0}\\u{1b}[1m\n"),
        "{shown}"
    );
    assert_eq!(
        world
            .run(&["record", "get", "job.7", "--field", "b"])
            .ended(0)
            .out,
        ""
    );
}

#[test]
fn values_come_from_files_and_standard_input_and_may_begin_with_at() {
    let world = World::new();
    std::fs::write(world.path().join("value"), b"\xfe").expect("a file");
    let put = ["record", "put", "job.7", "a=@value", "b=@-", "c=@@-", "d=-"];
    world.run_with(&put, b"in").ended(0);
    let told = world
        .run(&["record", "get", "job.7", "--json"])
        .ended(0)
        .object();
    let expected = json!({
        "a": {"hex": "fe"}, "b": {"text": "in"}, "c": {"text": "@-"}, "d": {"text": "-"},
    });
    assert_eq!(told["fields"], expected);
    let twice = world
        .run_with(&["record", "put", "job.7", "a=@-", "b=@-"], b"in")
        .ended(2);
    assert!(twice.err.contains("only once"), "{twice:?}");
    let missing = world
        .run(&["record", "put", "job.7", "a=@nowhere"])
        .ended(1);
    assert!(
        missing.err.contains("nowhere cannot be read"),
        "{missing:?}"
    );
    // No more of it is read than is needed to see that it is too long.
    let endless = world
        .run(&["record", "put", "job.7", "a=@/dev/zero"])
        .ended(2);
    assert!(endless.err.contains("fields.a: "), "{endless:?}");
}

#[test]
fn fields_are_set_removed_and_counted_at_once() {
    let world = World::new();
    world
        .run(&[
            "record",
            "put",
            "job.7",
            "state=new",
            "worker=w1",
            "--ttl",
            "1h",
        ])
        .ended(0);
    let set = [
        "record",
        "set",
        "job.7",
        "state=running",
        "--unset",
        "worker",
        "--add",
        "rows=5",
        "--add",
        "errors=-2",
        "--raise",
        "offset=9",
        "--json",
    ];
    let after = world.run(&set).ended(0).object();
    let expected = json!({
        "errors": {"text": "-2"}, "offset": {"text": "9"}, "rows": {"text": "5"},
        "state": {"text": "running"},
    });
    assert_eq!(after["fields"], expected);
    assert!(after["expires_at"].is_string(), "it still expires: {after}");
    let counted = [
        "record", "set", "job.7", "--add", "rows=2", "--raise", "offset=3",
    ];
    let counted = world.run(&counted).ended(0).out;
    assert!(
        counted.contains("\n  offset  9\n  rows    7\n"),
        "{counted}"
    );
    let refused = world
        .run(&["record", "set", "job.7", "--add", "state=1", "--json"])
        .ended(4);
    assert_eq!(refused.error()["code"], "not_integer");
    for wrong in [
        &["job.7"][..],
        &["job.7", "a=1", "a=2"],
        &["job.7", "a=1", "--unset", "a"],
        &["job.7", "--add", "a=1", "--raise", "a=2"],
        &["job.7", "--add", "a=1.5"],
        &["job.7", "a"],
        &["job.7", "=1"],
        &["plimsoll.locks.nightly", "a=1"],
    ] {
        world.run(&[&["record", "set"], wrong].concat()).ended(2);
    }
    let told = world
        .run(&["record", "get", "job.7", "--json"])
        .ended(0)
        .object();
    assert_eq!(
        told["fields"]["rows"],
        json!({"text": "7"}),
        "nothing of that was written"
    );
}

#[test]
fn a_time_to_live_is_given_changed_and_taken_away() {
    let world = World::new();
    world
        .run(&["record", "put", "job.7", "a=1", "--ttl", "5m"])
        .ended(0);
    let ttl = || world.act(async |engine| engine.records().ttl("job.7").await);
    let lives = |minutes: u64| {
        let (most, ttl) = (
            Duration::from_secs(minutes * 60),
            ttl().expect("it expires"),
        );
        assert!(
            most - Duration::from_secs(60) < ttl && ttl <= most,
            "{ttl:?}"
        );
    };
    lives(5);
    let shown = world.run(&["record", "get", "job.7"]).ended(0).out;
    assert!(
        shown
            .lines()
            .next()
            .is_some_and(|head| head.contains(", expires in ")),
        "{shown}"
    );
    let touched = world
        .run(&["record", "touch", "job.7", "--ttl", "2h"])
        .ended(0);
    touched.line().parse::<u64>().expect("a revision");
    lives(120);
    world
        .run(&["record", "touch", "job.7", "--persist"])
        .ended(0);
    assert_eq!(ttl(), None);
    world.run(&["record", "touch", "job.7"]).ended(2);
    world
        .run(&["record", "touch", "job.7", "--ttl", "1h", "--persist"])
        .ended(2);
    let gone = world
        .run(&["record", "touch", "job.8", "--persist", "--json"])
        .ended(3);
    assert_eq!(gone.error()["code"], "record_not_found");
}

#[test]
fn what_is_not_there_has_an_exit_code() {
    let world = World::new();
    for verb in ["get", "delete"] {
        world.run(&["record", verb, "job.7"]).ended(5);
    }
    world.run(&["record", "set", "job.7", "a=1"]).ended(0);
    let gone = world.run(&["record", "get", "job.8"]).ended(3);
    assert_eq!(gone.err, "plimsoll: no record job.8\n");
    let gone = world
        .run(&["record", "get", "job.7", "--field", "b"])
        .ended(3);
    assert_eq!(gone.err, "plimsoll: record job.7 has no field b\n");
    let deleted = world.run(&["record", "delete", "job.7"]).ended(0);
    assert_eq!(
        (deleted.out.as_str(), deleted.err.as_str()),
        ("", "Deleted job.7.\n")
    );
    let again = world.run(&["record", "delete", "job.7", "--json"]).ended(3);
    assert_eq!(again.error()["code"], "record_not_found");
    assert!(
        world
            .act(async |engine| engine.records().get("job.7").await)
            .is_none()
    );
}

#[test]
fn what_belongs_to_the_engine_is_read_and_not_written() {
    let world = World::new();
    world.act(async |engine| {
        let guard = engine.locks().lock("nightly").try_acquire().await?;
        let key = "plimsoll.locks.nightly";
        world.run(&["record", "get", key]).ended(0);
        for write in [
            &["put", key, "a=1"][..],
            &["set", key, "a=1"],
            &["delete", key],
            &["touch", key, "--persist"],
            &["cas", key, "--present", "--set", "a=1"],
            &["index", "declare", "plimsoll.locks.", "token"],
        ] {
            let refused = world.run(&[&["record"], write].concat()).ended(2);
            assert!(refused.err.contains("not yours to change"), "{refused:?}");
        }
        // One that was declared elsewhere is not needed by anybody.
        let drop = ["record", "index", "drop", "plimsoll.locks.", "token"];
        world.run(&drop).ended(3);
        guard.release().await
    });
}
