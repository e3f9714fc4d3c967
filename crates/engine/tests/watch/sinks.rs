//! Sinks: at least once, and then deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::store::{Ending, Log, Logs, Write};
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{StoreExt, TaskId};
use plimsoll_engine::Engine;
use plimsoll_engine::archive::{JsonLines, Sink, SinkError};
use plimsoll_engine::sweeper::{Part, Reason};
use serde_json::{Value, json};

use crate::world::{DAY, World, after_a_day, in_memory, secs, spawn, worlds};

/// Keeps what it is given, but for what it does not like.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    kept: Mutex<Vec<TaskId>>,
    refused: Mutex<BTreeSet<TaskId>>,
}

impl Shelf {
    /// How often it was given this task.
    pub(crate) fn count(&self, id: TaskId) -> usize {
        let kept = self.kept.lock().unwrap();
        kept.iter().filter(|kept| **kept == id).count()
    }
}

#[async_trait]
impl Sink for Shelf {
    async fn keep(&self, tasks: &[Task], _: &Engine) -> Vec<Result<(), SinkError>> {
        let refused = self.refused.lock().unwrap();
        let keep = |task: &Task| match refused.contains(&task.id()) {
            true => Err("not this one".into()),
            false => {
                self.kept.lock().unwrap().push(task.id());
                Ok(())
            }
        };
        tasks.iter().map(keep).collect()
    }
}

async fn old_tasks(world: &World, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(world.ended("{\"n\": 1}", Status::Completed).await);
        world.clock.advance(std::time::Duration::from_secs(1));
    }
    world.clock.advance(DAY);
    ids
}

#[tokio::test]
async fn a_task_that_a_sink_refuses_stays_and_keeps_no_other_from_it() {
    for world in worlds().await {
        let ids = old_tasks(&world, 30).await;
        let shelf = Arc::new(Shelf::default());
        // More than two pages of the oldest, and one in the middle.
        let refused: BTreeSet<TaskId> = ids[..12].iter().chain([&ids[20]]).copied().collect();
        *shelf.refused.lock().unwrap() = refused.clone();
        let sweeper = world.sweeper().retention(after_a_day());
        let sweeper = sweeper.archive_to(shelf.clone()).limit(5);
        let pass = sweeper.pass_all().await;
        assert!(
            pass.troubles
                .iter()
                .all(|trouble| trouble.part == Part::Archive)
        );
        assert!(
            pass.troubles
                .iter()
                .any(|one| one.to_string().contains("not this one"))
        );
        // What is stuck keeps nothing from being moved, and ten of it are told.
        assert_eq!((pass.archived, pass.more), (17, false));
        assert_eq!((pass.troubles.len(), pass.untold), (10, 3));
        for id in &ids {
            assert_eq!(world.exists(*id).await, refused.contains(id));
            assert!(!world.archived(*id).await);
        }
        shelf.refused.lock().unwrap().clear();
        assert_eq!(sweeper.pass_all().await.archived, 13);
        let kept: BTreeSet<TaskId> = shelf.kept.lock().unwrap().iter().copied().collect();
        assert_eq!(kept, ids.into_iter().collect());
    }
}

/// Answers for fewer tasks than it was given.
#[derive(Debug)]
struct Mute;

#[async_trait]
impl Sink for Mute {
    async fn keep(&self, _: &[Task], _: &Engine) -> Vec<Result<(), SinkError>> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_task_without_an_answer_is_not_deleted() {
    for world in worlds().await {
        let ids = old_tasks(&world, 2).await;
        let sweeper = world.sweeper().retention(after_a_day());
        let pass = sweeper.archive_to(Arc::new(Mute)).pass().await;
        assert_eq!((pass.archived, pass.troubles.len()), (0, 2));
        assert!(world.exists(ids[0]).await && world.exists(ids[1]).await);
    }
}

fn lines(path: &std::path::Path) -> Vec<Option<Value>> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    let read = |line: &str| serde_json::from_str(line).ok();
    text.lines().map(read).collect()
}

#[tokio::test]
async fn lines_of_json_say_what_is_known_of_a_task() {
    for world in worlds().await {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive.jsonl");
        // A crash has cut the last line off.
        std::fs::write(&path, "{\"job_id\": \"half").unwrap();
        let sweeper = world.sweeper().retention(after_a_day());
        let sweeper = sweeper.archive_to(Arc::new(JsonLines::new(&path)));
        for count in [3, 2] {
            let ids = old_tasks(&world, count).await;
            let task = world.store.task(ids[0]).await.unwrap().unwrap();
            assert_eq!(sweeper.pass().await.archived, count as u64);
            assert!(!world.exists(ids[0]).await);
            let lines = lines(&path);
            let line = lines[lines.len() - count].as_ref().unwrap();
            assert_eq!(line["job_id"], ids[0].to_string());
            assert_eq!(line["status"], "completed");
            assert_eq!(line["spec"], json!({"json": {"n": 1}}));
            assert_eq!(line["priority"], 5);
            assert_eq!(line["created_at"], task.spec.created_at.as_micros());
        }
        let lines = lines(&path);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines.iter().filter(|line| line.is_none()).count(), 1);
    }
}

#[tokio::test]
async fn what_a_file_cannot_take_stays() {
    for world in worlds().await {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing").join("archive.jsonl");
        let ids = old_tasks(&world, 2).await;
        let sweeper = world.sweeper().retention(after_a_day());
        let sweeper = sweeper.archive_to(Arc::new(JsonLines::new(&path)));
        let pass = sweeper.pass().await;
        assert_eq!((pass.archived, pass.troubles.len()), (0, 2));
        assert!(pass.troubles[0].to_string().contains("cannot append"));
        assert!(world.exists(ids[0]).await && world.exists(ids[1]).await);
        // It is tried again.
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        assert_eq!(sweeper.pass().await.archived, 2);
        assert_eq!(lines(&path).len(), 2);
    }
}

/// Answers never.
#[derive(Debug)]
struct Hang;

#[async_trait]
impl Sink for Hang {
    async fn keep(&self, _: &[Task], _: &Engine) -> Vec<Result<(), SinkError>> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_sink_that_hangs_keeps_nothing_from_being_removed() {
    let world = in_memory().await;
    let kept = world.ended("", Status::Completed).await;
    let removed = world.ended("", Status::Cancelled).await;
    world.clock.advance(DAY);
    let sweeper = world.sweeper().retention(after_a_day());
    let sweeper = spawn(sweeper.archive_to(Arc::new(Hang)).run());
    world.pass(secs(60)).await;
    assert!(!world.exists(removed).await);
    assert!(world.exists(kept).await);
    sweeper.abort();
}

#[tokio::test]
async fn a_sink_that_hangs_is_waited_for_a_minute_and_told() {
    let world = in_memory().await;
    let kept = world.ended("", Status::Completed).await;
    world.clock.advance(DAY);
    let sweeper = world.sweeper().retention(after_a_day());
    let pass = spawn(async move { sweeper.archive_to(Arc::new(Hang)).pass().await });
    world.pass(secs(59)).await;
    assert!(!pass.is_finished());
    world.pass(secs(2)).await;
    assert!(pass.is_finished());
    let pass = pass.await.unwrap();
    let errors: Vec<&Reason> = pass.troubles.iter().map(|one| &one.error).collect();
    assert_eq!(errors, [&Reason::Sink("no answer within 60s".into())]);
    assert!(world.exists(kept).await);
}

#[tokio::test]
async fn more_than_a_step_that_is_stuck_hides_nothing_behind_it() {
    let world = in_memory().await;
    // With this limit a step looks at twenty tasks.
    let ids = old_tasks(&world, 50).await;
    let shelf = Arc::new(Shelf::default());
    *shelf.refused.lock().unwrap() = ids[..45].iter().copied().collect();
    let sweeper = world.sweeper().retention(after_a_day());
    let sweeper = sweeper.archive_to(shelf.clone()).limit(1);
    let running = spawn(sweeper.run());
    world.pass(secs(240)).await;
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(world.exists(*id).await, n < 45, "{n}");
    }
    running.abort();
}

#[tokio::test]
async fn one_task_that_is_stuck_does_not_slow_the_others_down() {
    let world = in_memory().await;
    let ids = old_tasks(&world, 100).await;
    let shelf = Arc::new(Shelf::default());
    *shelf.refused.lock().unwrap() = BTreeSet::from([ids[0]]);
    let sweeper = world.sweeper().retention(after_a_day());
    let running = spawn(sweeper.archive_to(shelf.clone()).limit(5).run());
    world.pass(secs(60)).await;
    for id in &ids[1..] {
        assert!(!world.exists(*id).await);
    }
    assert!(world.exists(ids[0]).await);
    running.abort();
}

/// Keeps the first line of each log.
#[derive(Debug, Default)]
struct Reader(Mutex<Vec<String>>);

#[async_trait]
impl Sink for Reader {
    async fn keep(&self, tasks: &[Task], engine: &Engine) -> Vec<Result<(), SinkError>> {
        let mut answers: Vec<Result<(), SinkError>> = Vec::new();
        let client = engine.tasks();
        for task in tasks {
            let page = client.logs(Logs {
                task: task.id(),
                level: Level::Debug,
                cursor: None,
                limit: 1,
            });
            answers.push(page.await.map_err(Into::into).map(|page| {
                let lines = page.lines.into_iter().map(|line| line.line.message);
                self.0.lock().unwrap().extend(lines);
            }));
        }
        answers
    }
}

#[tokio::test]
async fn a_sink_can_read_the_log_of_a_task() {
    for world in worlds().await {
        let id = world.submit(world.task("")).await;
        let holder = world.claim(id, secs(30)).await.holder().unwrap();
        let line = NewLine::new(world.engine.ids().line(), Level::Info, "said");
        let lines = Log {
            holder: holder.clone(),
            lines: vec![line],
        };
        world.store.write(Write::Log(lines)).await.unwrap();
        let done = Ending::Complete { result: None };
        world.store.settle(holder, done).await.unwrap();
        world.clock.advance(DAY);
        let reader = Arc::new(Reader::default());
        let sweeper = world.sweeper().retention(after_a_day());
        assert_eq!(sweeper.archive_to(reader.clone()).pass().await.archived, 1);
        assert_eq!(*reader.0.lock().unwrap(), ["said"]);
    }
}
