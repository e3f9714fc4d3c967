//! `plimsoll doctor`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::world::{Said, World};

fn verdicts(said: &Said) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = said.objects();
    let verdict = |check: &Value| (text(&check["check"]), text(&check["verdict"]));
    checks.iter().map(verdict).collect()
}

#[test]
fn a_healthy_store_is_ok() {
    let world = World::new();
    world.submit(["mail", "send"], "x", &[]);
    // The machine that tests run on may be slow or full.
    let said = world.run(&["doctor", "--json"]);
    assert!(said.code == Some(0) || said.code == Some(1), "{said:?}");
    let verdicts = verdicts(&said);
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
    let world = World::new();
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
    let world = World::new();
    std::fs::write(world.path().join("plimsoll.db"), [b'x'; 4_096]).expect("a file");
    let said = world.run(&["doctor", "--json"]).ended(1);
    assert_eq!(verdicts(&said)["store"], "problem");
    std::fs::create_dir(world.path().join("folder")).expect("a folder");
    let said = world
        .run(&["doctor", "--json", "--store", "sqlite:folder"])
        .ended(5);
    assert_eq!(verdicts(&said)["store"], "problem");
}
