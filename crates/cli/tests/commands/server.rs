//! What is different where the store is a PostgreSQL server.

use serde_json::Value;

use crate::doctor::verdicts;
use crate::world::{Said, Schema, World, accepting, with};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name}, which scripts/test sets"))
}

fn schema(world: &World) -> Schema {
    Schema::new(variable("PLIMSOLL_TEST_POSTGRES_URL"), world)
}

#[test]
fn who_only_looks_makes_no_schema_and_who_submits_does() {
    let world = World::on_file();
    let schema = schema(&world);
    let store = ["--store", &schema.url()];
    let run = |words: &[&str]| world.run(&[words, &store].concat());
    for command in ["task list", "queue list", "sweep --once", "task show key:x"] {
        let words: Vec<_> = command.split(' ').collect();
        let said = run(&words).ended(5);
        assert!(said.err.contains("run `plimsoll migrate`"), "{said:?}");
    }
    let said = run(&["doctor", "--json"]).ended(1);
    assert_eq!(verdicts(&said)["schema"], "problem");
    let there = with(&schema.url(), "migrate=off");
    let submit = ["task", "submit", "mail", "send", "x", "--store"];
    world.run(&[&submit[..], &[&there]].concat()).ended(5);
    world
        .run(&[&submit[..], &[&schema.url()]].concat())
        .ended(0);
    assert_eq!(run(&["task", "list", "--json"]).ended(0).objects().len(), 1);
}

#[test]
fn migrating_twice_is_as_good_as_once_and_printing_does_nothing() {
    let world = World::on_file();
    let schema = schema(&world);
    let store = ["--store", &schema.url()];
    let migrate = |more: &[&str]| world.run(&[&["migrate"], more, &store].concat());
    let printed = migrate(&["--print"]).ended(0).out;
    let table = format!("\"{}\".migrations", schema.name);
    assert!(printed.contains(&table), "{printed}");
    let versions = |said: Value| [said["before"].clone(), said["version"].clone()];
    let [before, version] = versions(migrate(&["--json"]).ended(0).object());
    assert_eq!(before, 0);
    assert_eq!(
        versions(migrate(&["--json"]).ended(0).object()),
        [version.clone(), version]
    );
    let said = world.run(&["migrate", "--store", "sqlite:a.db"]).ended(2);
    assert!(said.err.contains("postgres://"), "{said:?}");
}

#[test]
fn a_runtime_role_can_work_and_not_drop() {
    let world = World::on_file();
    let schema = schema(&world);
    let role = format!("{}_worker", schema.name);
    schema.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw'"));
    let url = schema.url();
    let migrate = ["migrate", "--runtime-role", &role, "--store", &url];
    world.run(&migrate).ended(0);
    let (_, address) = url.split_once('@').expect("somebody who connects");
    let theirs = format!("postgres://{role}:pw@{address}");
    let submit = ["task", "submit", "q", "k", "x", "--store", &theirs];
    world.run(&submit).ended(0);
    let work = ["work", "--queue", "q", "--until-empty", "--store", &theirs];
    world.run(&[&work[..], &["--", "true"]].concat()).ended(0);
    let looked = world.run(&["doctor", "--json", "--store", &theirs]);
    assert_eq!(verdicts(&looked)["schema"], "ok", "{looked:?}");
    schema.sql(&format!(
        "DROP SCHEMA {} CASCADE; DROP ROLE {role}",
        schema.name
    ));
}

#[test]
fn the_doctor_looks_at_the_server() {
    let world = World::on_file();
    let url = accepting(&variable("PLIMSOLL_TEST_POSTGRES_URL"));
    world.run(&["migrate", "--store", &url]).ended(0);
    let doctor = |url: &str| world.run(&["doctor", "--json", "--store", url]);
    let found = verdicts(&doctor(&url));
    for check in ["schema", "server", "pooler", "vacuum", "clock", "tasks"] {
        assert_eq!(found[check], "ok", "{check} of {found:?}");
    }
    for check in ["store", "durability", "sessions", "open", "disk", "commit"] {
        assert!(found.contains_key(check), "{check} of {found:?}");
    }
    let weak = with(&url, "options=-c%20synchronous_commit%3Doff");
    let said = doctor(&weak);
    assert_eq!(verdicts(&said)["durability"], "warning");
    let named = |said: &Said| said.out.contains("synchronous_commit");
    assert!(named(&said) && !named(&doctor(&url)), "{}", said.out);
}

#[test]
fn the_doctor_finds_out_that_transactions_are_pooled() {
    let world = World::on_file();
    let server = accepting(&variable("PLIMSOLL_TEST_POSTGRES_URL"));
    world.run(&["migrate", "--store", &server]).ended(0);
    let url = accepting(&variable("PLIMSOLL_TEST_PGBOUNCER_URL"));
    let pooler = |url: &str| {
        let said = world.run(&["doctor", "--json", "--no-write", "--store", url]);
        verdicts(&said)["pooler"].clone()
    };
    assert_eq!(pooler(&url), "problem");
    assert_eq!(pooler(&with(&url, "listen=off&prepare=off")), "ok");
}

#[test]
fn a_server_that_cannot_be_had_is_told_without_its_password() {
    let world = World::on_file();
    let server = variable("PLIMSOLL_TEST_POSTGRES_URL");
    let (_, address) = server.split_once('@').expect("somebody who connects");
    let wrong = format!("postgres://plimsoll:not-it@{address}");
    let nobody = "postgres://plimsoll:not-it@127.0.0.1:1/postgres";
    for (url, why) in [
        (wrong.as_str(), "user or password"),
        (nobody, "cannot be reached"),
    ] {
        for command in [
            "task list",
            "doctor",
            "demo",
            "bench --workload cycle",
            "migrate",
        ] {
            let words: Vec<_> = command.split(' ').chain(["--store", url]).collect();
            let said = world.run(&words);
            assert_ne!(said.code, Some(0), "{said:?}");
            let all = said.out + &said.err;
            assert!(all.contains(why), "{command}: {all}");
            assert!(!all.contains("not-it"), "{command}: {all}");
        }
    }
    let typo = with(&server, "conections=3");
    let said = world.run(&["task", "list", "--store", &typo]).ended(2);
    assert!(said.err.contains("unknown option `conections`"), "{said:?}");
}
