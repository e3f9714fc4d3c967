//! `plimsoll retention`.

use serde_json::{Value, json};

use crate::world::World;

fn object(world: &World, words: &[&str]) -> Value {
    let words = [&["retention"], words, &["--json"]].concat();
    world.run(&words).ended(0).object()
}

const DAY: u64 = 86_400_000;

#[test]
fn what_is_said_applies_and_the_rest_stays_as_it_is() {
    let world = World::new();
    world.run(&["retention", "show"]).ended(5);
    let set = object(&world, &["set", "--jobs", "2d", "--failed", "forever"]);
    let shown = object(&world, &["show"]);
    assert_eq!(set, shown);
    assert_eq!(shown["stored"], true);
    let kept = ["completed_ms", "failed_ms", "jobs_ms", "silent_jobs_ms"].map(|name| &shown[name]);
    let wanted = [json!(30 * DAY), Value::Null, json!(2 * DAY), Value::Null];
    assert_eq!(kept, wanted.each_ref());
    assert_eq!(
        shown["archive"],
        json!(["completed", "failed", "cancelled"])
    );

    let set = object(
        &world,
        &[
            "set",
            "--jobs",
            "forever",
            "--silent-jobs",
            "90d",
            "--failed",
            "7d",
        ],
    );
    let kept = ["failed_ms", "jobs_ms", "silent_jobs_ms"].map(|name| &set[name]);
    assert_eq!(kept, [&json!(7 * DAY), &Value::Null, &json!(90 * DAY)]);
    let rest = [
        "completed",
        "cancelled",
        "archived",
        "groups",
        "history",
        "log-lines",
    ];
    let rest = rest
        .map(|what| [format!("--{what}"), "3d".to_owned()])
        .concat();
    let rest: Vec<_> = ["set"]
        .into_iter()
        .chain(rest.iter().map(String::as_str))
        .collect();
    let set = object(&world, &rest);
    let fields = [
        "completed",
        "cancelled",
        "archived",
        "groups",
        "history",
        "logs",
    ];
    for field in fields.map(|what| format!("{what}_ms")) {
        assert_eq!(set[&field], 3 * DAY, "{field}");
    }
    assert_eq!(set["failed_ms"], 7 * DAY);

    let told = world.run(&["retention", "show"]).ended(0);
    assert!(
        told.out.contains("a job that has not        90d"),
        "{}",
        told.out
    );
    assert_eq!(told.err, "");
    let told = world.run(&["retention", "reset"]).ended(0);
    assert!(told.err.contains("This is the default"), "{}", told.err);
    let default = object(&world, &["show"]);
    assert_eq!(
        (&default["stored"], &default["failed_ms"]),
        (&json!(false), &json!(30 * DAY))
    );
}

#[test]
fn a_job_goes_when_it_was_kept_as_long_as_was_said() {
    let world = World::new();
    let set = [
        "job",
        "set",
        "import",
        "--partition",
        "0",
        "--partitions",
        "1",
        "--tag",
        "a",
    ];
    world.run(&[&set[..], &["--finished"]].concat()).ended(0);
    world.run(&["retention", "set", "--jobs", "1h"]).ended(0);
    let swept = world.run(&["sweep", "--once", "--json"]).ended(0).object();
    assert_eq!(swept["jobs"], 0);
    world.run(&["retention", "set", "--jobs", "0s"]).ended(0);
    let swept = world.run(&["sweep", "--once", "--json"]).ended(0).object();
    assert_eq!(swept["jobs"], 1);
    let left = world.run(&["job", "list", "--json"]).ended(0);
    assert_eq!(left.out, "");
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let world = World::new();
    world.run(&["job", "list"]).ended(5);
    world.run(&["retention", "set"]).ended(2);
    let wrong = world.run(&["retention", "set", "--jobs", "soon"]).ended(2);
    assert!(wrong.err.contains("or forever"), "{}", wrong.err);
    let short = world.run(&["retention", "set", "--silent-jobs", "10ms"]);
    let short = short.ended(2);
    assert!(short.err.contains("silent_jobs"), "{}", short.err);
    let shown = object(&world, &["show"]);
    assert_eq!(shown["stored"], false);
}
