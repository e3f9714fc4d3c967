//! `plimsoll record scan` and `index`.

use plimsoll::records::Swap;
use serde_json::json;

use crate::world::World;

/// Four jobs, of which one was updated at no number, and something else.
fn jobs() -> World {
    let world = World::new();
    for (id, state, updated_at) in [
        ("1", "claimed", "900"),
        ("2", "failed", "1000"),
        ("3", "claimed", "7000"),
        ("4", "pending", "soon"),
    ] {
        let (state, updated_at) = (format!("state={state}"), format!("updated_at={updated_at}"));
        let key = format!("job.{id}");
        world
            .run(&["record", "put", &key, &state, &updated_at])
            .ended(0);
    }
    world
        .run(&["record", "put", "other", "state=claimed"])
        .ended(0);
    world
}

/// The keys that are found.
#[track_caller]
fn found(world: &World, more: &[&str]) -> Vec<String> {
    let scan = world
        .run(&[&["record", "scan", "--json"], more].concat())
        .ended(0);
    let key = |record: serde_json::Value| record["key"].as_str().expect("a key").to_owned();
    scan.objects().into_iter().map(key).collect()
}

#[test]
fn records_are_found_by_prefix_and_by_what_they_hold() {
    let world = jobs();
    assert_eq!(
        found(&world, &["job."]),
        ["job.1", "job.2", "job.3", "job.4"]
    );
    assert_eq!(
        found(&world, &["", "--eq", "state=claimed"]),
        ["job.1", "job.3", "other"]
    );
    assert_eq!(
        found(&world, &["job.", "--ne", "state=claimed"]),
        ["job.2", "job.4"]
    );
    assert_eq!(found(&world, &["job.", "--max", "2"]), ["job.1", "job.2"]);
    // Integers are compared as such, also when they are not equally long; text is no integer.
    assert_eq!(
        found(&world, &["job.", "--lt", "updated_at=1000"]),
        ["job.1"]
    );
    assert_eq!(
        found(&world, &["job.", "--gt", "updated_at=900"]),
        ["job.2", "job.3"]
    );
    let text = ["job.", "--gt", "updated_at=900", "--text"];
    assert_eq!(found(&world, &text), ["job.4"]);
    let stuck = ["job.", "--lt", "updated_at=5000", "--ne", "state=failed"];
    assert_eq!(found(&world, &stuck), ["job.1"]);
    assert_eq!(found(&world, &["nothing."]), Vec::<String>::new());
    let none = world.run(&["record", "scan", "nothing."]).ended(0);
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "No records match.\n")
    );
    world
        .run(&["record", "scan", "job.", "--max", "0"])
        .ended(2);
    world
        .run(&["record", "scan", "job.", "--eq", "state"])
        .ended(2);
}

#[test]
fn a_scan_is_a_table_that_fits() {
    let world = World::new();
    world
        .run(&[
            "record",
            "put",
            "job.1",
            "state=on",
            "note=two words",
            "--ttl",
            "150m",
        ])
        .ended(0);
    let long = format!("long={}", "x".repeat(500));
    world.run(&["record", "put", "job.2", &long]).ended(0);
    let whole = world.run(&["record", "scan", "job."]).ended(0).out;
    assert!(whole.contains("in 2h") && whole.contains(&long), "{whole}");
    assert!(whole.contains("  note=\"two words\" state=on\n"), "{whole}");
    let mut narrow = world.command(&["record", "scan", "job."]);
    let narrow = narrow.env("COLUMNS", "60").output().expect("it runs");
    let narrow = String::from_utf8(narrow.stdout).expect("text");
    assert_eq!(narrow.lines().count(), 3, "{narrow}");
    assert!(
        narrow.lines().all(|line| line.chars().count() <= 60),
        "{narrow}"
    );
    assert!(narrow.contains("xxx…\n"), "{narrow}");
}

/// More than one page and more than one block; nobody waits for all of it.
#[test]
fn many_records_are_shown_page_by_page() {
    const MANY: usize = 1_100;
    let world = World::new();
    world.run(&["record", "put", "a", "n=0"]).ended(0);
    world.act(async |engine| {
        let swap = |n| Swap::new(format!("job.{n:05}")).set("n", n);
        for n in (0..MANY as i64).step_by(100) {
            engine.records().commit((n..n + 100).map(swap)).await?;
        }
        Ok(())
    });
    let expected: Vec<String> = (0..MANY).map(|n| format!("job.{n:05}")).collect();
    assert_eq!(found(&world, &["job."]), expected);
    let table = world.run(&["record", "scan", "job."]).ended(0).out;
    let keys: Vec<&str> = table
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(keys[0], "KEY", "one header, and only one");
    assert_eq!(keys[1..], expected);
    world.run_unheard(&["record", "scan", "job."], b"").ended(0);
    world
        .run_unheard(&["record", "scan", "job.", "--json"], b"")
        .ended(0);
}

#[test]
fn a_range_is_found_through_an_index() {
    let world = jobs();
    let range = ["record", "scan", "job.", "--range", "updated_at=..1000"];
    let refused = world.run(&range).ended(3);
    assert!(
        refused.err.contains("plimsoll record index declare"),
        "{refused:?}"
    );
    let none = world.run(&["record", "index", "list"]).ended(0);
    assert_eq!(none.err, "No index is declared.\n");
    let declared = world
        .run(&["record", "index", "declare", "job.", "updated_at"])
        .ended(0);
    assert_eq!(
        declared.err,
        "Every record is in the index on updated_at of job.*.\n"
    );
    for (range, expected) in [
        ("updated_at=..1000", &["job.1"][..]),
        ("updated_at=..=1000", &["job.1", "job.2"]),
        ("updated_at=1000..", &["job.2", "job.3"]),
        ("updated_at=901..7000", &["job.2"]),
        ("updated_at=..", &["job.1", "job.2", "job.3"]),
    ] {
        assert_eq!(
            found(&world, &["job.", "--range", range]),
            expected,
            "{range}"
        );
    }
    let stuck = [
        "job.",
        "--range",
        "updated_at=..",
        "--eq",
        "state=claimed",
        "--max",
        "1",
    ];
    assert_eq!(found(&world, &stuck), ["job.1"]);
    world
        .run(&["record", "scan", "job.", "--range", "updated_at=7"])
        .ended(2);
    let listed = world.run(&["record", "index", "list"]).ended(0);
    assert_eq!(
        listed.out,
        "RECORDS  FIELD       READY\njob.*    updated_at  yes\n"
    );
    let listed = world
        .run(&["record", "index", "list", "--json"])
        .ended(0)
        .object();
    assert_eq!(
        listed,
        json!({"prefix": "job.", "field": "updated_at", "ready": true})
    );
    let drop = ["record", "index", "drop", "job.", "updated_at"];
    world.run(&drop).ended(0);
    let again = world.run(&drop).ended(3);
    assert_eq!(
        again.err,
        "plimsoll: there is no index on updated_at of job.*\n"
    );
    world.run(&range).ended(3);
}
