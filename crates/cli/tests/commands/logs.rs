//! `plimsoll task logs`.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use plimsoll::TaskId;
use plimsoll::log::{Level, NewLine};

use crate::world::World;

#[test]
fn a_log_is_shown_by_level_and_to_its_end() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.work(&id, async |held| {
        held.log(Level::Debug, "looking").await?;
        held.log(Level::Warn, "slow\nvery \u{1b}[31mslow").await?;
        held.complete("").await
    });
    let all = world.run(&["task", "logs", &id]).ended(0);
    let lines: Vec<&str> = all.out.lines().map(|line| &line[25..]).take(2).collect();
    assert_eq!(lines, ["debug looking", "warn  slow"]);
    assert!(
        all.out.ends_with("\n    very \u{fffd}[31mslow\n"),
        "{all:?}"
    );
    let warnings = world.run(&["task", "logs", &id, "--level", "warn", "--json"]);
    let warning = warnings.ended(0).object();
    assert_eq!(warning["level"], "warn");
    assert_eq!(warning["message"], "slow\nvery \u{1b}[31mslow");
    assert_eq!(warning["fence"], 1);
    let one = world.run(&["task", "logs", &id, "--limit", "1"]).ended(0);
    assert_eq!(one.out.lines().count(), 1);
    world.run(&["task", "logs", "key:nothing"]).ended(3);
}

#[test]
fn a_log_of_more_than_a_page_is_complete() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.act(async |engine| {
        let tasks = engine.tasks();
        let lease = Duration::from_secs(600);
        let held = tasks
            .claim(TaskId::parse(&id)?, &tasks.worker("w1")?, lease)
            .await?;
        for hundred in 0..11 {
            let line = |n| format!("{}", hundred * 100 + n);
            let lines = (0..100).map(|n| NewLine::new(engine.ids().line(), Level::Info, line(n)));
            held.log_lines(lines.collect()).await?;
        }
        Ok(())
    });
    let lines = world
        .run(&["task", "logs", &id, "--json"])
        .ended(0)
        .objects();
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str()).collect();
    let expected: Vec<_> = (0..1_100).map(|n| n.to_string()).collect();
    let expected: Vec<_> = expected.iter().map(|n| Some(n.as_str())).collect();
    assert_eq!(messages, expected);
    let limited = world.run(&["task", "logs", &id, "--limit", "501"]).ended(0);
    assert_eq!(limited.out.lines().count(), 501);
    let newest = world.run(&["task", "logs", &id, "--tail", "3", "--json"]);
    let newest = newest.ended(0).objects();
    let messages: Vec<_> = newest.iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["1097", "1098", "1099"]);
}

#[test]
fn a_log_is_followed_from_its_newest_lines() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.work(&id, async |held| {
        for line in ["one", "two"] {
            held.log(Level::Info, line).await?;
        }
        let follow = ["task", "logs", "--follow", "--tail", "1", &id];
        let mut child = world.start(&mut world.command(&follow));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert!(line.ends_with("info  two\n"), "{line}");
        held.log(Level::Info, "three").await.expect("it is held");
        held.complete("").await.expect("it is held");
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("it ends");
        assert!(rest.ends_with("info  three\n"), "{rest}");
        assert_eq!(rest.lines().count(), 1, "nothing is shown twice: {rest}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        Ok(())
    });
}

#[test]
fn a_log_is_followed_until_its_task_has_ended() {
    let world = World::new();
    let id = world.submit(["mail", "send"], "x", &[]);
    world.work(&id, async |held| {
        held.log(Level::Info, "one").await?;
        let mut child = world.start(&mut world.command(&["task", "logs", "--follow", &id]));
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert!(line.ends_with("info  one\n"), "{line}");
        held.log(Level::Info, "two").await.expect("it is held");
        held.complete("").await.expect("it is held");
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("it ends");
        assert!(rest.ends_with("info  two\n"), "{rest}");
        assert_eq!(rest.lines().count(), 1, "nothing is shown twice: {rest}");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        Ok(())
    });
}
