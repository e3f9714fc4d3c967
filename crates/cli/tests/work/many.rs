//! Many tasks, several kinds, several queues.

use plimsoll::store::Counts;
use plimsoll::task::Status;

use crate::setup::World;

#[tokio::test]
async fn a_thousand_tasks_run_once_each() {
    let world = World::new().await;
    let tasks: Vec<_> = (0..1_000).map(|n| world.task(n.to_string())).collect();
    for submitted in world.tasks.submit_all(tasks).await {
        submitted.unwrap();
    }
    let work = ["--until-empty", "--concurrency", "8"];
    let command = ["sh", "-c", "read n; echo $n >> done"];
    let output = world.work(&work, &command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let done = std::fs::read_to_string(world.path().join("done")).unwrap();
    let mut done: Vec<u32> = done.lines().map(|line| line.parse().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (0..1_000).collect::<Vec<_>>());
    let counts = world.tasks.counts(Counts::default()).await.unwrap();
    assert_eq!(counts.len(), 1);
    let completed: Vec<_> = counts[0].by_status.iter().collect();
    assert_eq!(completed, [(&Status::Completed, &1_000)]);
    world.assert_tidy();
}

#[tokio::test]
async fn kinds_and_queues_are_all_or_as_told() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for (queue, kind) in [("q", "a"), ("q", "b"), ("r", "a"), ("s", "a")] {
        let task = world.tasks.task(queue, kind, "").unwrap();
        ids.push(world.add(task).await);
    }
    let statuses = async || {
        let mut done = Vec::new();
        for id in &ids {
            done.push(world.get(*id).await.status == Status::Completed);
        }
        done
    };
    let some = ["--until-empty", "--kind", "b", "--kind", "c"];
    assert!(world.work(&some, &["true"]).status().unwrap().success());
    assert_eq!(statuses().await, [false, true, false, false]);
    let all = ["--until-empty", "--queue", "r"];
    assert!(world.work(&all, &["true"]).status().unwrap().success());
    assert_eq!(statuses().await, [true, true, true, false]);
}
