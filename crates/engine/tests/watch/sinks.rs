//! Sinks: at least once, and then deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use plimsoll_core::task::{Status, Task};
use plimsoll_core::{StoreExt, TaskId};
use plimsoll_engine::archive::{JsonLines, Sink, SinkError};
use plimsoll_engine::sweeper::Part;
use serde_json::{Value, json};

use crate::world::{DAY, World, after_a_day, worlds};

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
    async fn keep(&self, tasks: &[Task]) -> Vec<Result<(), SinkError>> {
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
        // A pass with troubles is not followed by another at once.
        while sweeper.pass().await.archived > 0 {}
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
    async fn keep(&self, _: &[Task]) -> Vec<Result<(), SinkError>> {
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
