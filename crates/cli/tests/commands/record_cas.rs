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
