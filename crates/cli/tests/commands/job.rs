//! `plimsoll job set`, `list`, `show` and `delete`.

use plimsoll::record::fields;
use plimsoll::store::{Commit, Merge, Receipt, Write};
use plimsoll::{Engine, Key, StoreExt};
use serde_json::{Value, json};

use crate::world::{Said, World};

/// Sets a state of a job with four partitions.
pub(crate) fn set(world: &World, job: &str, partition: &str, tag: &str, how: &[&str]) -> Said {
    let partition = ["--partition", partition, "--partitions", "4"];
    let command = [&["job", "set", job, "--tag", tag], &partition[..], how];
    world.run(&command.concat()).ended(0)
}

/// Makes a record of the engine unreadable, as nobody does by the client of records.
async fn spoil(engine: &Engine, key: &str, field: &'static str) -> plimsoll::Result<Receipt> {
    let merge = Merge::new(Key::new(key)?).set(fields([(field, "x")])?);
    let commit = Commit::of(Write::Merge(merge)).id(engine.ids().commit());
    engine.store().commit_one(commit).await
}

/// What the command shows of this job.
fn shown(world: &World, job: &str, more: &[&str]) -> Value {
    let command = [&["job", "show", job, "--json"], more].concat();
    world.run(&command).ended(0).object()
}

#[test]
fn a_script_is_a_partition() {
    let world = World::new();
    let first = set(&world, "import", "0", "ingest", &["--started", "--json"]);
    let expected = json!({
        "job": "import", "partition": 0, "partitions": 4, "tag": "ingest",
        "version": 1, "repeated": false, "created": true,
    });
    assert_eq!(first.object(), expected);
    let files = [
        "--status",
        "40",
        "--message",
        "40 of 100",
        "--payload",
        "{\"n\":4}",
    ];
    let files = [&files[..], &["--event-id", "forty"]].concat();
    assert_eq!(
        set(&world, "import", "0", "ingest", &files).out,
        "version 2\n"
    );
    let again = set(&world, "import", "0", "ingest", &files);
    assert_eq!(again.out, "version 2, repeated\n");
    let state = shown(&world, "import", &[])["states"][0].clone();
    assert_eq!(
        (&state["status"], &state["version"]),
        (&json!(40), &json!(2))
    );
    assert_eq!(state["message"], "40 of 100");
    assert_eq!(state["payload"], json!({"n": 4}));
    assert_eq!(state["event_id"], "forty");
    // Whatever else somebody says, the number that is stored holds.
    let other = [
        "job",
        "set",
        "import",
        "--partition",
        "3",
        "--partitions",
        "9",
    ];
    let other = [&other[..], &["--tag", "ingest", "--finished"]].concat();
    let other = world.run(&other).ended(0);
    assert_eq!(other.err, "Job import has 4 partitions, not 9.\n");
}

#[test]
fn each_way_to_say_how_far_it_is_has_its_status_and_message() {
    let world = World::new();
    for (how, status, message) in [
        (&["--started"][..], 1, "🟢 Started"),
        (&["--started", "--message", "off"], 1, "off"),
        (&["--finished"], i32::MAX, "⚫ Finished"),
        (&["--error", "no route"], -1, "🔴 no route"),
        (&["--warning", "slow"], -2, "🟡 slow"),
        (&["--status", "-40"], -40, ""),
        (&["--status", "0"], 0, ""),
    ] {
        set(&world, "import", "1", "ingest", how);
        let state = shown(&world, "import", &["--partition", "1"])["states"][0].clone();
        assert_eq!(state["status"], status, "{how:?}");
        assert_eq!(state["message"], message, "{how:?}");
    }
}

#[test]
fn partition_0_says_how_long_a_job_is_kept_and_what_it_is_about() {
    let world = World::new();
    let other = ["--started", "--retain", "1h", "--about", "source=mail"];
    let told = set(&world, "import", "1", "ingest", &other);
    assert!(told.err.contains("Only partition 0 says"), "{}", told.err);
    assert_eq!(shown(&world, "import", &[])["about"], json!({}));
    let about = ["--about", "source=ftp", "--about", "query=a=b"];
    let first = [&["--started", "--retain", "2d"], &about[..]].concat();
    let told = set(&world, "import", "0", "ingest", &first);
    assert_eq!(told.err, "");
    let job = shown(&world, "import", &[]);
    assert_eq!(job["retain_ms"], 2 * 86_400_000);
    assert_eq!(job["about"], json!({"query": "a=b", "source": "ftp"}));
    let told = world.run(&["job", "show", "import"]).ended(0).out;
    assert!(told.contains("2d after it has finished"), "{told}");
    assert!(told.contains("ftp"), "{told}");
    // Also later, when the job is there.
    let set = [
        "job",
        "set",
        "import",
        "--partition",
        "0",
        "--tag",
        "ingest",
    ];
    let more = ["--finished", "--retain", "3d", "--about", "owner=ana"];
    world.run(&[&set[..], &more].concat()).ended(0);
    let job = shown(&world, "import", &[]);
    assert_eq!(job["retain_ms"], 3 * 86_400_000);
    assert_eq!(job["about"]["owner"], "ana");
}

#[test]
fn a_payload_has_the_version_of_what_it_looks_like() {
    let world = World::new();
    let payload = ["--finished", "--payload", "{}"];
    for (more, version) in [(&[][..], 1), (&["--schema-version", "7"], 7)] {
        set(&world, "import", "0", "ingest", &[&payload, more].concat());
        let state = &shown(&world, "import", &[])["states"][0];
        assert_eq!(state["schema_version"], version);
    }
}

/// Scripts say what a command has written, however much that is.
#[test]
fn an_error_of_any_length_is_set() {
    let world = World::new();
    let much = "x".repeat(100_000);
    for how in ["--error", "--warning"] {
        set(&world, "import", "0", "ingest", &[how, &much]);
        let state = &shown(&world, "import", &[])["states"][0];
        let message = state["message"].as_str().expect("a text");
        assert_eq!(message.len(), 64 * 1_024, "{how}");
        assert!(message.ends_with("x…"), "{how}");
    }
    let ended = world.run(&["job", "barrier", "import", "ingest"]).ended(30);
    assert!(ended.err.contains("partition 0"), "{}", &ended.err[..200]);
}

#[test]
fn a_barrier_may_wait_for_partitions_that_warn() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--warning", "slow"]);
    let barrier = ["job", "barrier", "import", "ingest"];
    world.run(&barrier).ended(30);
    let patient = [&barrier[..], &["--despite-warnings"]].concat();
    let late = world.run(&[&patient[..], &["--timeout", "3s"]].concat());
    // Who warns is waited for, for as long as it takes.
    late.ended(6);
    set(&world, "import", "1", "ingest", &["--error", "no disk"]);
    let failed = world.run(&patient).ended(30);
    assert!(failed.err.contains("no disk"), "{}", failed.err);
}

#[test]
fn a_payload_comes_from_standard_input_too() {
    let world = World::new();
    let command = [
        "job",
        "set",
        "import",
        "--partition",
        "0",
        "--partitions",
        "1",
    ];
    let command = [
        &command[..],
        &["--tag", "t", "--finished", "--payload", "-"],
    ]
    .concat();
    world.run_with(&command, b"{\"rows\": 7}").ended(0);
    let payload = &shown(&world, "import", &[])["states"][0]["payload"];
    assert_eq!(payload["rows"], 7);
}

#[test]
fn what_makes_no_sense_is_refused_and_writes_nothing() {
    let world = World::new();
    let refused = |more: &[&str], code: i32| {
        let command = ["job", "set", "import", "--tag", "ingest"];
        world.run(&[&command[..], more].concat()).ended(code)
    };
    // Only who says how many there are makes a store, and a job.
    refused(&["--partition", "0", "--finished"], 5);
    set(&world, "other", "0", "ingest", &["--started"]);
    let none = refused(&["--partition", "0", "--finished"], 3);
    assert!(
        none.err.starts_with("plimsoll: no job import\n"),
        "{none:?}"
    );
    let of_four = |more: &[&str]| {
        let of_four = ["--partition", "1", "--partitions", "4"];
        refused(&[&of_four[..], more].concat(), 2)
    };
    of_four(&[]);
    of_four(&["--started", "--finished"]);
    of_four(&["--error", "x", "--message", "y"]);
    let text = of_four(&["--finished", "--payload", "seven"]);
    assert!(text.err.contains("--payload: no JSON"), "{text:?}");
    of_four(&["--finished", "--payload", "[1]"]);
    of_four(&["--finished", "--event-id", ""]);
    of_four(&["--finished", "--schema-version", "2"]);
    of_four(&["--finished", "--payload", "{}", "--schema-version", "-1"]);
    let long = "x".repeat(70_000);
    let text = of_four(&["--finished", "--message", &long]);
    assert!(text.err.contains("message"), "{text:?}");
    of_four(&[
        "--finished",
        "--payload",
        &format!(r#"{{"a": {}}}"#, "[".repeat(200) + &"]".repeat(200)),
    ]);
    of_four(&["--finished", "--retain", "long"]);
    of_four(&["--finished", "--about", "source"]);
    of_four(&["--finished", "--about", "=ftp"]);
    // Who does not say how many there are creates nothing.
    refused(&["--partition", "0", "--finished", "--retain", "1h"], 3);
    refused(&["--partition", "0", "--finished", "--about", "a=b"], 3);
    let many = ["--partition", "4", "--partitions", "4", "--finished"];
    let many = refused(&many, 2);
    assert!(many.err.contains("partition"), "{many:?}");
    assert_eq!(world.run(&["job", "show", "import"]).ended(3).out, "");
}

/// Jobs at each stage.
fn stages(world: &World) {
    for job in [
        "a-done", "b-fails", "c-goes", "d-waits", "e-warns", "f-gone",
    ] {
        for partition in ["0", "1", "2", "3"] {
            set(world, job, partition, "ingest", &["--finished"]);
        }
    }
    set(world, "b-fails", "2", "export", &["--error", "no route"]);
    set(world, "c-goes", "3", "export", &["--status", "7"]);
    set(world, "d-waits", "3", "export", &["--status", "0"]);
    set(world, "e-warns", "3", "export", &["--warning", "slow"]);
    world.run(&["job", "delete", "f-gone", "--yes"]).ended(0);
}

#[test]
fn a_list_says_how_far_each_job_is() {
    let world = World::new();
    stages(&world);
    let said = world.run(&["job", "list", "--deleted"]).ended(0);
    let rows: Vec<Vec<&str>> = (said.out.lines())
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(rows[0], ["JOB", "STATUS", "PARTITIONS", "AGE", "FINISHED"]);
    let rows = rows[1..].iter().map(|row| (row[0], row[1], row[2]));
    let expected = [
        ("a-done", "finished", "4"),
        ("b-fails", "error", "4"),
        ("c-goes", "running 7", "4"),
        ("d-waits", "not started", "4"),
        ("e-warns", "warning", "4"),
        ("f-gone", "deleted", "4"),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert!(said.out.contains("export 0, ingest 4"), "{said:?}");

    let jobs = world.run(&["job", "list", "--json"]).ended(0).objects();
    let words = jobs
        .iter()
        .map(|job| job["status"].as_str().expect("a word"));
    let expected = ["finished", "error", "running", "not_started", "warning"];
    assert_eq!(
        words.collect::<Vec<_>>(),
        expected,
        "nothing that was deleted"
    );
    assert_eq!(jobs[1]["lowest"]["partition"], 2);
    assert_eq!(jobs[1]["lowest"]["message"], "🔴 no route");
    let export =
        json!({"tag": "export", "not_started": 3, "running": 1, "finished": 0, "failed": 0});
    assert_eq!(jobs[2]["tags"][0], export);

    let one = world.run(&["job", "list", "b-"]).ended(0);
    assert_eq!(one.out.lines().count(), 2, "{one:?}");
    let none = world.run(&["job", "list", "x"]).ended(0);
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "There are no such jobs.\n")
    );
    let two = world.run(&["job", "list", "--limit", "2"]).ended(0);
    assert_eq!(two.out.lines().count(), 3, "{two:?}");
    assert_eq!(two.err, "The first 2 jobs; --limit and --all show more.\n");
    let five = world.run(&["job", "list", "--limit", "5"]).ended(0);
    assert_eq!(five.err, "");
}

#[test]
fn what_cannot_be_read_does_not_hide_the_others() {
    let world = World::new();
    for job in ["a", "b", "c"] {
        set(&world, job, "0", "ingest", &["--finished"]);
    }
    world.act(async |engine| {
        spoil(&engine, "plimsoll.jobs.a", "partitions").await?;
        spoil(&engine, "plimsoll.states.b.0-ingest", "status").await
    });
    let said = world.run(&["job", "list"]).ended(1);
    assert!(
        said.out.contains("unreadable") && said.out.contains("\nc "),
        "{said:?}"
    );
    assert!(said.err.contains("record plimsoll."), "{said:?}");
    let said = world.run(&["job", "list", "--json"]).ended(1);
    let words: Vec<Value> = said
        .objects()
        .iter()
        .map(|job| job["status"].clone())
        .collect();
    assert_eq!(words, ["unreadable", "not_started"]);
}

#[test]
fn what_cannot_be_read_can_be_deleted_and_begun_anew() {
    let world = World::new();
    for (job, mark) in [("a", &[][..]), ("b", &["--mark"])] {
        set(&world, job, "0", "ingest", &["--started"]);
        world.act(async |engine| {
            let key = format!("plimsoll.jobs.{job}");
            spoil(&engine, &key, "partitions").await
        });
        world.run(&["job", "show", job]).ended(1);
        let asked = world.run(&["job", "delete", job]).ended(2);
        let what = format!("job {job}, whose record cannot be read, and its states");
        assert!(asked.err.contains(&what), "{asked:?}");
        world.run(&["job", "show", job]).ended(1);
        let command = [&["job", "delete", job, "--yes"], mark].concat();
        world.run(&command).ended(0);
        let again = set(&world, job, "0", "ingest", &["--started", "--json"]).object();
        assert_eq!(
            (&again["version"], &again["created"]),
            (&json!(2), &json!(true))
        );
    }
}

#[test]
fn a_job_is_shown_with_bars_and_who_is_last() {
    let world = World::new();
    stages(&world);
    let said = world.run(&["job", "show", "b-fails"]).ended(0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[..2], ["b-fails  error", "  partitions  4"]);
    let expected = [
        "  lowest      partition 2 at export: error  🔴 no route",
        "",
        "Tags",
        "  export  ×××××···············  1 failed, 3 not started",
        "  ingest  ━━━━━━━━━━━━━━━━━━━━  4 finished",
        "",
        "States",
    ];
    assert_eq!(lines[3..10], expected);
    // The lowest first.
    assert!(
        lines[11].trim_start().starts_with("2  export  error"),
        "{said:?}"
    );
    assert!(
        lines[12].trim_start().starts_with("0  ingest  finished"),
        "{said:?}"
    );
    assert_eq!(lines.len(), 16, "{said:?}");
    world.run(&["job", "show", "nothing"]).ended(3);
}

#[test]
fn only_some_states_are_shown() {
    let world = World::new();
    stages(&world);
    let count = |more: &[&str]| {
        let job = shown(&world, "b-fails", more);
        let states = job["states"].as_array().expect("states").len();
        assert_eq!(job["status"], "error", "the job is the same: {more:?}");
        (states, job["states_total"].as_u64().expect("a number"))
    };
    assert_eq!(count(&[]), (5, 5));
    assert_eq!(count(&["--tag", "export"]), (1, 1));
    assert_eq!(count(&["--partition", "2"]), (2, 2));
    assert_eq!(count(&["--partition", "3", "--tag", "export"]), (0, 0));
    assert_eq!(count(&["--limit", "2"]), (2, 5));
    let said = world
        .run(&["job", "show", "b-fails", "--limit", "2"])
        .ended(0);
    let note = "2 of 5 states, the lowest first; --limit and --all show more.\n";
    assert_eq!(said.err, note);
    world
        .run(&["job", "show", "b-fails", "--partition", "4"])
        .ended(2);
}

#[test]
fn a_job_is_deleted_for_good_and_may_be_begun_anew() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--finished"]);
    let asked = world.run(&["job", "delete", "import"]).ended(2);
    assert!(
        asked.err.contains("nobody can be asked: add --yes"),
        "{asked:?}"
    );
    let deleted = world.run(&["job", "delete", "import", "--yes"]).ended(0);
    assert_eq!(deleted.err, "Deleted job import and its states.\n");
    let states = world.act(async |engine| {
        let states = engine.records().scan("plimsoll.states.");
        Ok(states.page(None).await?.rows.len())
    });
    assert_eq!(states, 0);
    let gone = shown(&world, "import", &[]);
    assert_eq!(gone["status"], "deleted");
    assert!(gone["deleted_at"].is_string(), "{gone}");
    let late = [
        "job",
        "set",
        "import",
        "--partition",
        "0",
        "--tag",
        "t",
        "--finished",
    ];
    world.run(&late).ended(3);
    world.run(&["job", "delete", "nothing", "--yes"]).ended(3);
    // It goes on where it was, as another one.
    let again = set(&world, "import", "0", "ingest", &["--started"]);
    assert_eq!(again.out, "version 2\n");
    assert_eq!(shown(&world, "import", &[])["generation"], 2);
}

#[test]
fn a_job_that_is_marked_leaves_its_states_to_others() {
    let world = World::new();
    set(&world, "import", "0", "ingest", &["--finished"]);
    let states = || {
        world.act(async |engine| {
            let states = engine.records().scan("plimsoll.states.");
            Ok(states.page(None).await?.rows.len())
        })
    };
    let mark = ["job", "delete", "import", "--mark", "--yes"];
    let marked = world.run(&[&mark[..], &["--json"]].concat()).ended(0);
    assert_eq!(marked.object()["status"], "deleted");
    assert_eq!(states(), 1);
    let again = world.run(&mark).ended(0);
    assert_eq!(again.err, "Job import was deleted before.\n");
    let rest = world.run(&["job", "delete", "import", "--yes"]).ended(0);
    assert_eq!(
        rest.err,
        "Job import was deleted before; now its states are, too.\n"
    );
    assert_eq!(states(), 0);
}
