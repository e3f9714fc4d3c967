//! `plimsoll sweep`.

use std::io::{BufRead, BufReader};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::World;

/// Claims a task for the shortest time there is, and never settles it.
fn abandoned(world: &World) {
    let id = world.submit(["mail", "send"], "a", &[]);
    world.act(async |engine| {
        let (tasks, lease) = (engine.tasks(), plimsoll::limits::LEASE_MIN);
        let worker = tasks.worker("worker-1")?;
        let held = tasks.claim(plimsoll::TaskId::parse(&id)?, &worker, lease);
        held.await.map(drop)
    });
}

#[test]
fn one_sweep_does_what_is_due_and_says_so() {
    let world = World::new();
    world.run(&["sweep", "--once"]).ended(5);
    world.submit(["mail", "send"], "a", &["--in", "1ms"]);
    let swept = world.run(&["sweep", "--once", "--json"]).ended(0).object();
    let fields = ["promoted", "expired", "offline", "archived"].map(|name| swept[name].as_u64());
    assert_eq!(fields, [Some(1), Some(0), Some(0), Some(0)], "{swept}");
    let again = world.run(&["sweep", "--once"]).ended(0);
    assert!(again.line().ends_with("  nothing to do"), "{again:?}");
}

#[test]
fn states_of_a_job_that_was_marked_as_deleted_are_removed_and_told() {
    let world = World::new();
    world.act(async |engine| {
        let manager = engine.jobs().join("import", 0, 1).await?;
        for tag in ["ingest", "index"] {
            let state = plimsoll::jobs::NewState::new(tag, 40)?;
            manager.set_state(state).await?;
        }
        manager.mark_job_deleted().await
    });
    let swept = world.run(&["sweep", "--once"]).ended(0);
    assert!(swept.line().ends_with("  2 states removed"), "{swept:?}");
    let again = world.run(&["sweep", "--once", "--json"]).ended(0).object();
    let fields = ["jobs", "states", "untold"].map(|name| again[name].as_u64());
    assert_eq!(fields, [Some(0); 3], "{again}");
}

#[test]
fn a_sweeper_tells_what_each_pass_did_until_it_is_told_to_end() {
    let world = World::new();
    abandoned(&world);
    let mut sweeper = world.start(&mut world.command(&["sweep", "--json", "--interval", "100ms"]));
    let out = BufReader::new(sweeper.stdout.take().expect("a pipe"));
    let passes = out.lines().map_while(Result::ok);
    let mut passes =
        passes.map(|line| serde_json::from_str::<Value>(&line).expect("one object a line"));
    let expired = passes.find(|pass| pass["expired"] == 1);
    assert!(expired.is_some(), "it ended before the lease");
    let id = Pid::from_raw(sweeper.id().cast_signed()).expect("a process");
    kill_process(id, Signal::TERM).expect("it is there");
    assert_eq!(sweeper.wait().expect("it ends").code(), Some(0));
    let left = world.act(async |engine| engine.store().due(due()).await);
    assert!(left.expired.is_empty(), "{left:?}");
    // It led, and another may do so at once.
    let leader = world.act(async |engine| engine.locks().get("plimsoll.sweeper").await);
    assert_eq!(leader, None);
}

fn due() -> plimsoll::store::Due {
    plimsoll::store::Due { limit: 10 }
}
