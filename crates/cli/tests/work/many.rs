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

#[tokio::test]
async fn several_workers_share_a_queue_and_nothing_runs_twice() {
    let world = World::new().await;
    let tasks: Vec<_> = (0..200).map(|n| world.task(n.to_string())).collect();
    for submitted in world.tasks.submit_all(tasks).await {
        submitted.unwrap();
    }
    let script = "read n; echo $n $PLIMSOLL_WORKER >> done";
    let workers = ["a", "b", "c"].map(|name| {
        let work = ["--until-empty", "--concurrency", "2", "--name", name];
        world.work(&work, &["sh", "-c", script]).spawn().unwrap()
    });
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let done = std::fs::read_to_string(world.path().join("done")).unwrap();
    let lines = done.lines().map(|line| line.split_once(' ').unwrap());
    let (mut numbers, workers): (Vec<u32>, std::collections::BTreeSet<&str>) = lines
        .map(|(n, worker)| (n.parse::<u32>().unwrap(), worker))
        .unzip();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    assert!(workers.len() > 1, "{workers:?}");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_made_only_if_asked_for() {
    let world = World::on_file().await;
    let elsewhere = |more: &[&str]| {
        let options = [&["--store", "sqlite:other.db", "--until-empty"], more].concat();
        let mut work = world.work(&[], &["true"]);
        work = std::process::Command::new(work.get_program());
        work.args(["work", "--queue", "q"]).args(options);
        work.args(["--", "true"]).current_dir(world.path());
        work.output().unwrap().status.code()
    };
    let there = || world.path().join("other.db").exists();
    assert_eq!((elsewhere(&[]), there()), (Some(5), false));
    assert_eq!((elsewhere(&["--create"]), there()), (Some(0), true));
}

#[tokio::test]
async fn who_does_not_read_stops_nobody_and_is_told_what_was_missed() {
    use std::io::Read;
    let world = World::new().await;
    // More events than fit into the pipe and before it.
    let tasks: Vec<_> = (0..400).map(|n| world.task(n.to_string())).collect();
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    for submitted in world.tasks.submit_all(tasks).await {
        submitted.unwrap();
    }
    let work = ["--json", "--concurrency", "8"];
    let mut work = world.work(&work, &["true"]);
    let mut worker = work.stdout(std::process::Stdio::piped()).spawn().unwrap();
    for id in ids {
        let task = world.tasks.wait(id).await.unwrap();
        assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    }
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut said = String::new();
    worker
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(worker.wait().unwrap().code(), Some(0));
    let events: Vec<serde_json::Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    let dropped = events
        .iter()
        .filter_map(|event| event["count"].as_u64())
        .sum::<u64>();
    assert!(dropped > 0, "{said}");
    assert_eq!(count("summary"), 1);
    let heard = count("started") + count("ended") + count("note");
    assert_eq!(heard as u64 + dropped, 801);
}
