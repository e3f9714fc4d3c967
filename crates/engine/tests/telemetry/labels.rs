//! Labels that users make up are opt-in, and bounded.

use plimsoll_engine::telemetry::Labels;
use plimsoll_engine::testing::Kit;

use crate::figures::Figures;

#[test]
fn owners_are_told_apart_if_asked_for_up_to_the_bound() {
    let figures = Figures::of(async |_| {
        let labels = Labels {
            user_id: true,
            distinct_max: 2,
            ..Labels::default()
        };
        let engine = Kit::new().engine().clone().labels(labels);
        let tasks = engine.tasks();
        for owner in ["ada", "bob", "eve", "joe", "ada"] {
            let task = tasks.task("q", "k", "").unwrap();
            let task = task.owner(owner.try_into().unwrap());
            tasks.submit(task).await.unwrap();
        }
        tasks
            .submit(tasks.task("q", "k", "").unwrap())
            .await
            .unwrap();
    });
    let expected = [("ada", 2.0), ("bob", 1.0), ("other", 2.0), ("", 1.0)];
    let expected =
        expected.map(|(owner, count)| (format!("jobs_created_total{{user_id={owner}}}"), count));
    assert_eq!(figures.by_label("jobs_created_total"), expected.into());
}

#[test]
fn workers_and_lanes_are_told_apart_up_to_the_bound() {
    let figures = Figures::of(async |look| {
        let kit = Kit::new();
        let labels = Labels {
            worker_id: true,
            distinct_max: 2,
            ..Labels::default()
        };
        let engine = kit.engine().clone().labels(labels);
        let tasks = engine.tasks();
        let mut workers = Vec::new();
        for name in ["a", "b", "c", "d"] {
            tasks
                .submit(tasks.task("q", name, "").unwrap())
                .await
                .unwrap();
            let worker = engine.worker(name).queue("q");
            let worker = worker.handle(name, std::future::pending::<()>);
            workers.push(kit.start(worker).await);
        }
        let loads = look.now().by_label("worker_load");
        let expected = [("a", 1.0), ("b", 1.0), ("other", 2.0)];
        let expected =
            expected.map(|(name, load)| (format!("worker_load{{worker_id={name}}}"), load));
        assert_eq!(loads, expected.into());
        for worker in workers {
            worker.stop().await;
        }
    });
    let lanes = figures.by_label("plimsoll_attempts_total");
    let lane = |lane: &str| format!("plimsoll_attempts_total{{{lane},outcome=cut}}");
    let expected = [
        (lane("queue=q,kind=a"), 1.0),
        (lane("queue=q,kind=b"), 1.0),
        (lane("queue=other,kind=other"), 2.0),
    ];
    assert_eq!(lanes, expected.into());
}
