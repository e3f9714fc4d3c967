//! What programs hear of `plimsoll lock run` that could not run its command, or to its end.

use std::io::{BufRead, BufReader, Read};

use crate::world::{Said, World};

#[test]
fn a_lock_that_is_not_acquired_is_told_to_programs() {
    let world = World::new();
    world.submit(["mail", "send"], "x", &[]);
    let said = world.act(async |engine| {
        let lock = engine.locks().lock("nightly").owner("ada");
        let guard = lock.try_acquire().await?;
        let said = world.run(&["lock", "run", "nightly", "--json", "--", "true"]);
        guard.release().await?;
        Ok(said)
    });
    let error = said.ended(20).error();
    assert_eq!(error["code"], "lock_not_acquired");
    assert_eq!(error["exit_code"], 20);
}

#[test]
fn a_lock_that_is_lost_is_told_to_programs() {
    let world = World::new();
    let script = "echo running; exec sleep 600";
    let run = ["lock", "run", "nightly", "--ttl", "1s", "--json", "--"];
    let run = [&run[..], &["sh", "-c", script]].concat();
    let mut child = world.start(&mut world.command(&run));
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    out.read_line(&mut String::new()).expect("a line");
    world.act(async |engine| engine.locks().break_lock("nightly").await);
    out.read_to_string(&mut String::new()).expect("it ends");
    let said = Said::from(child.wait_with_output().expect("it ends"));
    let error = said.ended(21).error();
    assert_eq!(error["code"], "lock_lost");
    assert_eq!(error["exit_code"], 21);
    assert_eq!(
        error["message"],
        "lock nightly was lost: its command was ended"
    );
}
