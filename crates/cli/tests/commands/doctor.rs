//! `plimsoll doctor`.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll::sqlite::SCHEMA_VERSION;
use serde_json::Value;

use crate::world::{Said, World};

pub(crate) fn verdicts(said: &Said) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = said.objects();
    let verdict = |check: &Value| (text(&check["check"]), text(&check["verdict"]));
    checks.iter().map(verdict).collect()
}

#[test]
fn a_healthy_store_is_ok() {
    let world = World::on_file();
    world.submit(["mail", "send"], "x", &[]);
    let said = world.run(&["doctor", "--json"]);
    let verdicts = verdicts(&said);
    // The machine that tests run on may be slow or full.
    let ill = verdicts.values().any(|verdict| verdict == "problem");
    assert_eq!(said.code, Some(i32::from(ill)), "{said:?}");
    for check in [
        "schema",
        "clock",
        "scheduled",
        "leases",
        "workers",
        "finished",
        "tasks",
        "history",
    ] {
        assert_eq!(
            verdicts.get(check).map(String::as_str),
            Some("ok"),
            "{check}"
        );
    }
    for check in ["store", "durability", "commit", "disk", "log"] {
        assert!(verdicts.contains_key(check), "{check}");
    }
    let people = world.run(&["doctor"]);
    assert!(
        people.out.starts_with("CHECK       VERDICT  FOUND\nstore "),
        "{people:?}"
    );
    let quiet = world.run(&["doctor", "--no-write", "--json"]);
    assert!(!quiet.out.contains("\"commit\""), "{quiet:?}");
}

#[test]
fn the_doctor_leaves_nothing_behind() {
    let world = World::new();
    world.submit(["mail", "send"], "x", &[]);
    world.run(&["doctor"]);
    let left = world.act(async |engine| {
        let scan = plimsoll::store::Scan::new(plimsoll::Prefix::any(), 10);
        engine.store().scan(scan).await
    });
    assert_eq!(left.rows, []);
}

#[test]
fn what_nobody_sweeps_is_found() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.act(async |engine| {
        let tasks = engine.tasks();
        let worker = tasks.worker("gone")?;
        let id = plimsoll::TaskId::parse(&id)?;
        tasks.claim(id, &worker, Duration::from_millis(1)).await?;
        while engine
            .store()
            .due(plimsoll::store::Due { limit: 1 })
            .await?
            .is_empty()
        {}
        Ok(())
    });
    let checks = world.run(&["doctor", "--json"]).objects();
    let lease = checks.iter().find(|check| check["check"] == "leases");
    let found = lease
        .and_then(|check| check["found"].as_str())
        .expect("a check");
    assert!(
        found.starts_with("1 lease over time, the first for "),
        "{found}"
    );
}

#[test]
fn a_store_that_may_lose_writes_is_a_warning() {
    let world = World::on_file();
    world.submit(["mail", "send"], "x", &[]);
    let weak = [
        "doctor",
        "--json",
        "--store",
        "sqlite:plimsoll.db?durability=system",
    ];
    let said = world.run(&weak);
    assert_eq!(verdicts(&said)["durability"], "warning");
    world.run(&[&weak[..], &["--strict"]].concat()).ended(1);
}

#[test]
fn a_store_that_cannot_be_opened_is_a_problem() {
    let world = World::on_file();
    std::fs::write(world.path().join("plimsoll.db"), [b'x'; 4_096]).expect("a file");
    let said = world.run(&["doctor", "--json"]).ended(1);
    assert_eq!(verdicts(&said)["store"], "problem");
    std::fs::create_dir(world.path().join("folder")).expect("a folder");
    let said = world
        .run(&["doctor", "--json", "--store", "sqlite:folder"])
        .ended(5);
    assert_eq!(verdicts(&said)["store"], "problem");
}

/// The check of this name.
#[track_caller]
fn check(said: &Said, name: &str) -> Value {
    let checks = said.objects();
    let mut found = checks.into_iter().filter(|check| check["check"] == name);
    found.next().unwrap_or_else(|| panic!("{name}: {said:?}"))
}

fn version(world: &World) -> i64 {
    let file = world.file();
    let version = file.pragma_query_value(None, "user_version", |row| row.get(0));
    version.expect("a version")
}

#[test]
fn a_file_of_a_newer_program_is_a_problem_with_advice() {
    let world = World::on_file();
    world.submit(["mail", "send"], "x", &[]);
    let written = world.file().pragma_update(None, "user_version", 99);
    written.expect("a version");
    for arguments in [
        &["doctor", "--json"][..],
        &["doctor", "--no-write", "--json"],
    ] {
        let said = world.run(arguments).ended(1);
        let schema = check(&said, "schema");
        assert_eq!(schema["verdict"], "problem");
        let expected = format!("version 99, this program knows up to {SCHEMA_VERSION}");
        assert_eq!(schema["found"], expected);
        assert_eq!(schema["advice"], "Use a newer program.");
    }
    assert_eq!(version(&world), 99);
}

#[test]
fn a_file_of_an_older_program_is_changed_only_by_who_may_write() {
    let world = World::on_file();
    let older = include_str!("../../../store-sqlite/tests/golden/version-1.sql");
    world.file().execute_batch(older).expect("an older file");
    assert_eq!(version(&world), 1);
    let said = world.run(&["doctor", "--no-write", "--json"]).ended(1);
    let schema = check(&said, "schema");
    let expected = format!("version 1, this program writes {SCHEMA_VERSION}: not opened");
    assert_eq!(schema["found"], expected);
    let advice = schema["advice"].as_str().expect("advice");
    assert!(advice.starts_with("Look without --no-write"), "{advice}");
    assert_eq!(version(&world), 1);
    let said = world.run(&["doctor", "--json"]);
    let schema = check(&said, "schema");
    assert_eq!(schema["verdict"], "warning");
    let expected = format!("version {SCHEMA_VERSION}, brought up from 1 just now");
    assert_eq!(schema["found"], expected);
    assert_eq!(check(&said, "history")["verdict"], "ok");
    assert_eq!(version(&world), SCHEMA_VERSION);
}

#[test]
fn what_cannot_be_read_does_not_keep_the_rest_from_being_looked_at() {
    let world = World::on_file();
    world.submit(["mail", "send"], "x", &[]);
    world.spoil("send");
    let said = world.run(&["doctor", "--json"]).ended(1);
    let tasks = check(&said, "tasks");
    assert_eq!(tasks["verdict"], "problem");
    // Who asks the doctor is not sent to the doctor.
    let advice = tasks["advice"].as_str().expect("advice");
    assert!(advice.starts_with("Keep a copy of the file"), "{advice}");
    assert!(!said.out.contains("plimsoll doctor"), "{said:?}");
    for name in ["store", "schema", "clock", "commit", "finished", "history"] {
        assert_ne!(check(&said, name)["found"], tasks["found"], "{name}");
    }
}
