//! `plimsoll record cas`.

use serde_json::json;

use crate::world::{Said, World};

fn cas(world: &World, more: &[&str]) -> Said {
    world.run(&[&["record", "cas", "job.7"], more].concat())
}

#[test]
fn a_field_is_swapped_once() {
    let world = World::new();
    world
        .run(&["record", "put", "job.7", "state=pending"])
        .ended(0);
    let claim = ["state", "pending", "claimed"];
    let revision = cas(&world, &claim).ended(0).line().to_owned();
    let refused = cas(&world, &claim).ended(40);
    let why = "plimsoll: nothing was written: field state of record job.7 is not \"pending\"\n";
    assert_eq!((refused.out.as_str(), refused.err.as_str()), ("", why));
    let error = cas(&world, &[&claim[..], &["--json"]].concat())
        .ended(40)
        .error();
    assert_eq!(
        (&error["code"], &error["exit_code"]),
        (&json!("guard"), &json!(40))
    );
    let told = world
        .run(&["record", "get", "job.7", "--json"])
        .ended(0)
        .object();
    assert_eq!(told["fields"], json!({"state": {"text": "claimed"}}));
    assert_eq!(told["revision"].to_string(), revision);
}

/// Of several processes that claim the same job, one wins.
#[test]
fn of_many_processes_one_swaps() {
    let world = World::new();
    world
        .run(&["record", "put", "job.7", "state=pending"])
        .ended(0);
    let workers = ["w1", "w2", "w3", "w4"].map(|worker| {
        let set = format!("worker={worker}");
        let claim = [
            "record", "cas", "job.7", "state", "pending", "claimed", "--set", &set,
        ];
        (worker, world.start(&mut world.command(&claim)))
    });
    let ended = workers.map(|(worker, child)| {
        let said = Said::from(child.wait_with_output().expect("it ends"));
        (worker, said.code)
    });
    let won: Vec<_> = ended.iter().filter(|(_, code)| *code == Some(0)).collect();
    let lost = ended.iter().filter(|(_, code)| *code == Some(40)).count();
    assert_eq!((won.len(), lost), (1, 3), "{ended:?}");
    let worker = world
        .run(&["record", "get", "job.7", "--field", "worker"])
        .ended(0);
    assert_eq!(worker.out, won[0].0);
}

#[test]
fn every_expectation_is_kept_and_named_when_it_does_not_hold() {
    let world = World::new();
    cas(&world, &["--present", "--set", "n=1"]).ended(40);
    let created = cas(
        &world,
        &["--absent", "--unset-when", "n", "--set", "n=1", "--json"],
    );
    let created = created.ended(0).object();
    assert_eq!(created["key"], "job.7");
    let revision = created["revision"].to_string();
    for (expects, why) in [
        (&["--absent"][..], "record job.7 is there"),
        (&["--unset-when", "n"], "record job.7 has a field n"),
        (&["--when", "n=2"], "field n of record job.7 is not \"2\""),
        (&["--when", "m=1"], "field m of record job.7 is not \"1\""),
        (
            &["--when", "n=1", "--when", "n=2"],
            "field n of record job.7 is not \"2\"",
        ),
        (
            &["--revision", "999999"],
            "record job.7 is not at revision 999999",
        ),
    ] {
        let refused = cas(&world, &[expects, &["--set", "n=9"]].concat()).ended(40);
        assert_eq!(
            refused.err,
            format!("plimsoll: nothing was written: {why}\n")
        );
    }
    let holds = [
        "--when",
        "n=1",
        "--unset-when",
        "m",
        "--present",
        "--revision",
        &revision,
    ];
    // To expect and write nothing is to look.
    assert_eq!(cas(&world, &holds).ended(0).out, "");
    let writes = [
        "--set", "state=on", "--add", "n=4", "--raise", "top=3", "--unset", "gone",
    ];
    cas(&world, &[&holds[..], &writes].concat()).ended(0);
    let told = world
        .run(&["record", "get", "job.7", "--json"])
        .ended(0)
        .object();
    let expected = json!({"n": {"text": "5"}, "state": {"text": "on"}, "top": {"text": "3"}});
    assert_eq!(told["fields"], expected);
}

#[test]
fn how_long_a_record_lives_is_changed_only_if_it_is_as_expected() {
    let world = World::new();
    let lives = || {
        let got = world.run(&["record", "get", "job.7", "--json"]);
        got.ended(0).object()["expires_at"].clone()
    };
    // What is created by the same swap, too.
    let created = ["--absent", "--set", "n=1", "--ttl", "1h", "--json"];
    let created = cas(&world, &created).ended(0).object();
    assert!(lives().is_string());
    cas(&world, &["n", "2", "3", "--persist"]).ended(40);
    cas(&world, &["--when", "n=2", "--persist"]).ended(40);
    assert!(lives().is_string());
    let revision = created["revision"].to_string();
    let touched = ["--revision", &revision, "--persist"];
    let touched = cas(&world, &touched).ended(0).line().to_owned();
    assert_ne!(touched, revision);
    assert!(lives().is_null());
    // It is another revision now.
    cas(&world, &["--revision", &revision, "--ttl", "1h"]).ended(40);
    let swapped = cas(&world, &["n", "1", "2", "--ttl", "1h"]).ended(0);
    assert!(lives().is_string());
    let got = world.run(&["record", "get", "job.7", "--json"]).ended(0);
    assert_eq!(got.object()["revision"].to_string(), swapped.line());
    world.run(&["record", "delete", "job.7"]).ended(0);
    cas(&world, &["--absent", "--persist"]).ended(3);
}

#[test]
fn a_record_is_deleted_only_if_it_is_as_expected() {
    let world = World::new();
    world
        .run(&["record", "put", "job.7", "state=done"])
        .ended(0);
    cas(&world, &["--when", "state=failed", "--delete"]).ended(40);
    world.run(&["record", "get", "job.7"]).ended(0);
    let deleted = cas(&world, &["--when", "state=done", "--delete"]).ended(0);
    assert_eq!(
        (deleted.out.as_str(), deleted.err.as_str()),
        ("", "Deleted job.7.\n")
    );
    world.run(&["record", "get", "job.7"]).ended(3);
    cas(&world, &["--present", "--delete"]).ended(40);
    world
        .run(&["record", "put", "job.7", "state=done"])
        .ended(0);
    let deleted = cas(&world, &["--present", "--delete", "--json"]).ended(0);
    assert_eq!(deleted.object(), json!({"key": "job.7", "revision": null}));
    assert_eq!(deleted.err, "");
}

#[test]
fn a_swap_that_makes_no_sense_is_refused() {
    let world = World::new();
    for wrong in [
        &[][..],
        &["state"],
        &["state", "a"],
        &["state", "a", "b", "c"],
        &["state", "a", "b", "--set", "state=c"],
        &["--set", "a=1"],
        &["--absent", "--present", "--set", "a=1"],
        &["--delete"],
        &["--ttl", "1h"],
        &["state", "a", "b", "--delete"],
        &["--present", "--delete", "--set", "a=1"],
        &["--present", "--delete", "--unset", "a"],
        &["--present", "--delete", "--add", "a=1"],
        &["--present", "--delete", "--raise", "a=1"],
        &["--present", "--delete", "--ttl", "1h"],
        &["--present", "--delete", "--persist"],
        &["--present", "--persist", "--ttl", "1h"],
        &["--present", "--ttl", "long"],
    ] {
        cas(&world, wrong).ended(2);
    }
    // Numbers below zero are no options, and values may be bytes.
    world
        .run_with(&["record", "put", "job.7", "n=-1", "b=@-"], b"\xff")
        .ended(0);
    cas(&world, &["n", "-1", "-2"]).ended(0);
    let swap = ["record", "cas", "job.7", "b", "@-", "text"];
    world.run_with(&swap, b"\xff").ended(0);
    let refused = world.run_with(&swap, b"\xff").ended(40);
    assert!(refused.err.contains("is not \"\\xff\""), "{refused:?}");
}
