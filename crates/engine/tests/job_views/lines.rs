//! What is logged about listeners.

use std::io;
use std::sync::{Arc, Mutex};

use plimsoll_core::Key;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_engine::jobs::{NewState, Scope};
use plimsoll_engine::{Retention, Sweeper};
use tracing_subscriber::fmt::MakeWriter;

use crate::world::{World, seconds, spawn, tag};

/// Keeps what is written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What a story logs, line by line.
fn lines(story: impl Future<Output = ()>) -> Vec<String> {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    tracing::subscriber::with_default(subscriber, || runtime.block_on(story));
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_disconnection_is_a_warning_and_the_end_of_patience_an_error() {
    let lines = lines(async {
        let world = World::with(1).await;
        let process = world.process();
        let mut all = process.subscribe(Scope::all()).await;
        process.disconnect(6);
        world.set(0, "a", 1).await;
        world.pass(seconds(31)).await;
        assert_eq!(world.told(&mut all).await, ["marker", "unavailable"]);
    });
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for (line, attempt) in lines.iter().zip(1..) {
        let (level, what) = match attempt {
            6 => ("ERROR", "🔴 listener gave up, subscriptions end"),
            _ => ("WARN", "🟡 listener disconnected"),
        };
        assert!(
            line.starts_with(&format!("{level} {what} jobID=import")),
            "{line}"
        );
        assert!(line.ends_with(&format!("attempt={attempt}")), "{line}");
        assert!(line.contains("error="), "{line}");
        assert!(line.contains("injected fault in changes"), "{line}");
    }
}

#[test]
fn drift_and_what_cannot_be_read_are_logged_with_what_they_are_about() {
    let lines = lines(async {
        let world = World::with(1).await;
        let process = world.process();
        let monitor = process.monitor().await;
        let nonsense = Put::new(World::key(0, "bad"), fields([("status", "x")]).unwrap());
        world.commit(Write::Put(nonsense)).await;
        process.history.omits("-c");
        world.set(0, "c", 1).await;
        world.settle().await;
        process.history.tells_all();
        process.disconnect(1);
        world.set(0, "d", 1).await;
        world.pass(seconds(1)).await;
        assert_eq!(monitor.get_state(&tag("c")).await.unwrap().status, 1);
    });
    let unreadable = "ERROR 🔴 state cannot be read jobID=import taskID=0 tag=\"bad\" \
         key=plimsoll.states.import.0-bad \
         error=stored value cannot be read: \
         record plimsoll.states.import.0-bad: bad or missing status";
    assert_eq!(lines[0], unreadable);
    let drift =
        r#"WARN 🟡 state was missed jobID=import taskID=0 tag="c" version=1 eventID="event-1""#;
    assert_eq!(lines[2..], [drift]);
}

#[test]
fn an_end_that_was_missed_is_logged_with_what_it_is_about() {
    let lines = lines(async {
        let world = World::with(1).await;
        world.set(0, "c", 1).await;
        let process = world.process();
        let monitor = process.monitor().await;
        assert_eq!(monitor.get_state(&tag("c")).await.unwrap().status, 1);
        process.history.omits("-c");
        world.commit(Write::Delete(World::key(0, "c"))).await;
        world.settle().await;
        process.history.tells_all();
        process.disconnect(1);
        world.set(0, "d", 1).await;
        world.pass(seconds(1)).await;
        assert_eq!(monitor.get_state(&tag("c")).await.unwrap().status, 0);
    });
    let missed = r#"WARN 🟡 end of a state was missed jobID=import taskID=0 tag="c""#;
    assert_eq!(lines[1..], [missed]);
}

#[test]
fn a_listener_that_is_overtaken_by_compaction_says_so_and_goes_on() {
    let lines = lines(async {
        let world = World::with(1).await;
        world.set(0, "a", 1).await;
        let process = world.process();
        let monitor = process.monitor().await;
        assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 1);
        process.disconnect(1);
        world.set(0, "a", 2).await;
        world.settle().await;
        world.compact().await;
        world.pass(seconds(1)).await;
        assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 2);
    });
    let behind = "WARN 🟡 listener fell behind the history that is kept jobID=import";
    assert_eq!(lines[1..], [behind]);
}

#[test]
fn a_job_that_goes_is_told_of_with_the_rule_that_ended_it() {
    let lines = lines(async {
        let world = World::empty();
        let engine = world.process().engine;
        let jobs = engine.jobs();
        let done = jobs.join("done", 0, 1).await.unwrap();
        done.set_finished(NewState::of("a").unwrap()).await.unwrap();
        jobs.join("left", 0, 1).await.unwrap();
        world.clock.advance(seconds(60));
        let age = Some(seconds(60));
        let retention = Retention {
            jobs: age,
            silent_jobs: age,
            ..Retention::forever()
        };
        let pass = Sweeper::new(engine).retention(retention).pass_all().await;
        assert_eq!(pass.jobs, 2);
    });
    let gone = |job: &str, rule: &str| {
        format!(r#"INFO job is over, and deleted jobID={job} rule="{rule}""#)
    };
    for line in [gone("done", "finished"), gone("left", "silent")] {
        assert!(lines.contains(&line), "{line}: {lines:#?}");
    }
}

#[test]
fn a_job_that_a_sweeper_cannot_read_is_a_warning_that_names_it() {
    let lines = lines(async {
        let world = World::empty();
        let engine = world.process().engine;
        engine.jobs().join("import", 0, 1).await.unwrap();
        let job = Key::new("plimsoll.jobs.import").unwrap();
        let states = Key::new("plimsoll.states.import.0-a").unwrap();
        for key in [job, states] {
            let nonsense = Put::new(key, fields([("status", "x")]).unwrap());
            world.commit(Write::Put(nonsense)).await;
        }
        let retention = Retention {
            jobs: Some(seconds(60)),
            ..Retention::forever()
        };
        let sweeper = Sweeper::new(engine.clone()).retention(retention);
        let clock = engine.clock().clone();
        let stop = async move { clock.sleep(seconds(600)).await };
        let swept = spawn(async move { sweeper.run_until(stop).await });
        world.pass(seconds(600)).await;
        world.soon(swept).await;
    });
    let left = "WARN 🟡 job is left by a sweep jobID=import error=stored value";
    assert!(
        lines.iter().any(|line| line.starts_with(left)),
        "{lines:#?}"
    );
}

#[test]
fn a_sweeper_that_cannot_look_at_jobs_at_all_says_which_part_is_left() {
    let lines = lines(async {
        let world = World::empty();
        let process = world.process();
        let engine = process.engine.clone();
        engine.jobs().join("import", 0, 1).await.unwrap();
        let retention = Put::new(
            Key::new("plimsoll.retention").unwrap(),
            fields([("jobs_ms", "x")]).unwrap(),
        );
        world.commit(Write::Put(retention)).await;
        let sweeper = Sweeper::new(engine.clone());
        let clock = engine.clock().clone();
        let stop = async move { clock.sleep(seconds(600)).await };
        let swept = spawn(async move { sweeper.run_until(stop).await });
        world.pass(seconds(600)).await;
        world.soon(swept).await;
    });
    let left = r#"WARN a part of a sweep is left trouble=jobs: stored value cannot be read"#;
    assert!(
        lines.iter().any(|line| line.starts_with(left)),
        "{lines:#?}"
    );
    assert!(!lines.iter().any(|line| line.contains("job is left")));
}
