//! `plimsoll worker list`.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::World;

#[test]
fn a_worker_is_listed_with_what_it_did() {
    // The handler blocks the worker while it looks, which only a file with threads of its own bears.
    let world = World::on_file();
    for payload in ["a", "b"] {
        world.submit(["mail", "send"], payload, &[]);
    }
    let none = world.run(&["worker", "list"]).ended(0);
    assert_eq!(none.err, "No worker was heard of within a day.\n");
    let during = Arc::new(Mutex::new(Vec::new()));
    world.act(async |engine| {
        let list = Arc::new(Mutex::new(world.command(&["worker", "list", "--json"])));
        let said = during.clone();
        let look = move || {
            let output = list.lock().expect("nobody panicked").output();
            *said.lock().expect("nobody panicked") = output.expect("it runs").stdout;
            async {}
        };
        let worker = engine.worker("mailer").queue("mail").concurrency(4);
        let worker = worker.handle("send", look).build()?;
        worker.run_until_empty().await
    });
    let during = during.lock().expect("nobody panicked").clone();
    let during: Value = serde_json::from_slice(&during).expect("JSON");
    assert_eq!(during["worker"], "mailer");
    assert_eq!(during["status"], "active");
    assert_eq!(during["max_concurrent"], 4);
    assert_eq!(
        (&during["queues"], &during["kinds"]),
        (&json!(["mail"]), &json!(["send"]))
    );
    assert_eq!(during["pid"], std::process::id());
    // It has ended since.
    assert_eq!(world.run(&["worker", "list", "--json"]).ended(0).out, "");
    let hidden = world.run(&["worker", "list"]).ended(0);
    assert_eq!(hidden.err, "No worker runs; --all shows 1 that did.\n");
    let after = world
        .run(&["worker", "list", "--all", "--json"])
        .ended(0)
        .object();
    assert_eq!(
        (&after["status"], &after["total_jobs"]),
        (&json!("offline"), &json!(2))
    );
    let people = world.run(&["worker", "list", "--all"]).ended(0);
    let header = "WORKER  STATUS   LOAD  DONE  FAILED  HEARD ";
    assert!(people.out.starts_with(header), "{people:?}");
    assert!(
        people
            .out
            .contains("\nmailer  offline   0/4     2       0  "),
        "{people:?}"
    );
}
