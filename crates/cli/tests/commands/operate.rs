//! `plimsoll task retry`, `cancel` and `delete`.

use serde_json::json;

use crate::world::World;

fn statuses(world: &World) -> Vec<String> {
    let tasks = world
        .run(&["task", "list", "--json", "--all"])
        .ended(0)
        .objects();
    let status = |task: &serde_json::Value| task["status"].as_str().map(String::from);
    let mut statuses: Vec<String> = tasks.iter().filter_map(status).collect();
    statuses.sort();
    statuses
}

#[test]
fn a_named_task_is_cancelled_retried_and_deleted() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &["--key", "k"]);
    let run = |words: &[&str]| world.run(&[&["task"], words].concat());
    let active = run(&["delete", &id]).ended(4);
    let expected = format!(
        "plimsoll: task {id} is pending: only a finished task can be deleted\n          \
         Cancel it first: plimsoll task cancel ID.\n"
    );
    assert_eq!(active.err, expected);
    let cancelled = run(&["cancel", "key:k", "--reason", "typo"]).ended(0);
    assert_eq!(cancelled.out, "key:k  cancelled\n");
    assert_eq!(world.task(&id)["reason"], "typo");
    let again = run(&["cancel", &id, "--json"]).ended(0).object();
    assert_eq!(
        again,
        json!({"task": id, "changed": false, "status": "cancelled"})
    );
    assert_eq!(
        run(&["retry", &id]).ended(0).out,
        format!("{id}  pending\n")
    );
    run(&["cancel", &id]).ended(0);
    assert_eq!(
        run(&["delete", &id]).ended(0).out,
        format!("{id}  deleted\n")
    );
    run(&["retry", &id]).ended(3);
}

#[test]
fn one_that_is_refused_does_not_keep_the_others_from_it() {
    let world = World::new();
    let ids = ["a", "b"].map(|payload| world.submit(["mail", "send"], payload, &[]));
    let said = world.run(&["task", "cancel", &ids[0], "key:nothing", &ids[1], "--json"]);
    let answers = said.ended(3).objects();
    assert_eq!(answers[0]["status"], "cancelled");
    assert_eq!(answers[1]["error"]["code"], "task_not_found");
    assert_eq!(answers[2]["status"], "cancelled");
}

#[test]
fn the_holder_of_a_claimed_task_is_asked_to_stop() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.work(&id, async |held| held.still_mine().await);
    let said = world.run(&["task", "cancel", &id]).ended(0);
    assert_eq!(said.out, format!("{id}  asked to stop\n"));
    let task = world.task(&id);
    assert_eq!(task["status"], "claimed");
    assert!(task["cancel_requested"]["at"].is_string());
}

#[test]
fn a_task_that_failed_as_often_as_it_may_is_retried_only_by_force() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &["--max-attempts", "1"]);
    world.work(&id, async |held| held.fail("no route").await);
    let refused = world.run(&["task", "retry", &id]).ended(4);
    assert!(
        refused.err.contains("--force grants one more attempt"),
        "{refused:?}"
    );
    world.run(&["task", "retry", &id, "--force"]).ended(0);
    assert_eq!(world.task(&id)["status"], "pending");
}

#[test]
fn all_that_match_are_acted_on_only_when_that_is_confirmed() {
    let world = World::new();
    for payload in ["a", "b", "c"] {
        world.submit(["mail", "send"], payload, &[]);
    }
    world.submit(["media", "send"], "d", &[]);
    let run = |words: &[&str]| world.run(&[&["task"], words].concat());
    let dry = run(&["cancel", "--queue", "mail", "--dry-run"]).ended(0);
    assert_eq!(dry.out, "3 tasks match.\n");
    let unconfirmed = run(&["cancel", "--queue", "mail"]).ended(2);
    assert!(
        unconfirmed.err.contains("3 tasks would be acted on"),
        "{unconfirmed:?}"
    );
    assert_eq!(statuses(&world), ["pending"; 4]);
    let done = run(&["cancel", "--queue", "mail", "--yes"]).ended(0);
    assert_eq!(done.out, "Cancelled 3 tasks.\n");
    assert_eq!(
        statuses(&world),
        ["cancelled", "cancelled", "cancelled", "pending"]
    );
    let retried = run(&[
        "retry",
        "--queue",
        "mail",
        "--status",
        "cancelled",
        "--yes",
        "--json",
    ]);
    let expected = json!({"matched": 3, "changed": 3, "already": 0, "refused": 0, "refusals": []});
    assert_eq!(retried.ended(0).object(), expected);
    // What is alive is not deleted, whoever asks for a whole queue.
    let deleted = run(&["delete", "--queue", "mail", "--yes"]).ended(0);
    assert_eq!(deleted.out, "Deleted 0 tasks.\n");
    assert_eq!(statuses(&world), ["pending"; 4]);
}

#[test]
fn retrying_a_queue_takes_nothing_away_from_a_worker() {
    let world = World::new();
    let failing = world.submit(["mail", "send"], "a", &["--max-attempts", "1"]);
    let held = world.submit(["mail", "send"], "b", &[]);
    world.work(&failing, async |held| held.fail("no route").await);
    world.work(&held, async |held| held.still_mine().await);
    let refused = world.run(&["task", "retry", "--queue", "mail", "--yes", "--json"]);
    let report = refused.ended(4).object();
    assert_eq!(report["matched"], 1);
    assert_eq!(
        report["refusals"][0]["error"]["code"],
        "max_attempts_reached"
    );
    world
        .run(&["task", "retry", "--queue", "mail", "--yes", "--force"])
        .ended(0);
    assert_eq!(world.task(&failing)["status"], "pending");
    assert_eq!(world.task(&held)["status"], "claimed");
}

#[test]
fn tasks_are_cancelled_although_nobody_listens() {
    let world = World::new();
    let ids = ["a", "b", "c"].map(|payload| world.submit(["mail", "send"], payload, &[]));
    for format in [&[][..], &["--json"]] {
        let words = ["task", "retry", &ids[0], &ids[1], &ids[2]];
        world
            .run(&[&["task", "cancel"], &words[2..]].concat())
            .ended(0);
        let said = world.run_unheard(&[&words[..], format].concat(), b"");
        assert_eq!(said.ended(0).err, "");
        assert_eq!(statuses(&world), ["pending"; 3]);
    }
}

#[test]
fn what_was_done_before_it_broke_off_is_shown() {
    let world = World::on_file();
    for kind in ["a", "b"] {
        world.submit(["mail", kind], "x", &[]);
    }
    world.spoil("b");
    let cancel = ["task", "cancel", "--queue", "mail", "--yes"];
    let said = world.run(&cancel).ended(1);
    assert_eq!(said.out, "Cancelled 1 task.\n");
    assert!(said.err.starts_with("plimsoll: "), "{said:?}");
    let said = world.run(&[&cancel[..], &["--json"]].concat()).ended(1);
    assert_eq!(said.object()["matched"], 0);
    assert_eq!(said.error()["code"], "corrupt");
}

#[test]
fn it_must_be_clear_which_tasks_are_meant() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "a", &[]);
    let run = |words: &[&str]| world.run(&[&["task", "cancel"], words].concat());
    run(&[]).ended(2);
    run(&["--yes"]).ended(2);
    run(&[&id, "--queue", "mail"]).ended(2);
    let both = run(&["--queue", "mail", "--owner", "ada", "--yes"]).ended(2);
    assert!(both.err.contains("only one of"), "{both:?}");
    assert_eq!(statuses(&world), ["pending"]);
}
