//! Gauges that need the store.

use std::time::Duration;

use plimsoll_core::task::Priority;
use plimsoll_engine::telemetry::{Labels, Sampler};
use plimsoll_engine::testing::Kit;

use crate::figures::Figures;

async fn submit(kit: &Kit, queue: &str, priority: Priority) {
    let task = kit.tasks().task(queue, "k", "").unwrap();
    kit.tasks().submit(task.priority(priority)).await.unwrap();
}

#[test]
fn a_starving_task_shows_although_others_are_next_in_line() {
    Figures::of(async |look| {
        let kit = Kit::new();
        submit(&kit, "mail", Priority::LOWEST).await;
        kit.clock().advance(Duration::from_secs(90));
        submit(&kit, "mail", Priority::HIGHEST).await;
        submit(&kit, "video", Priority::HIGHEST).await;
        kit.clock().advance(Duration::from_secs(10));
        let mut sampler = Sampler::new(kit.engine().clone());
        sampler.sample_once().await.unwrap();
        let figures = look.now();
        assert_eq!(figures.value("queue_size{namespace=test,queue=mail}"), 2.0);
        assert_eq!(figures.value("queue_size{namespace=test,queue=video}"), 1.0);
        let oldest = "plimsoll_oldest_runnable_seconds";
        assert_eq!(
            figures.value(&format!("{oldest}{{namespace=test,queue=mail}}")),
            100.0
        );
        assert_eq!(
            figures.value(&format!("{oldest}{{namespace=test,queue=video}}")),
            10.0
        );
    });
}

#[test]
fn a_queue_that_has_become_empty_says_so() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        submit(&kit, "mail", Priority::default()).await;
        kit.clock().advance(Duration::from_secs(10));
        let mut sampler = Sampler::new(kit.engine().clone());
        sampler.sample_once().await.unwrap();
        let worker = kit.worker("w").queue("mail").handle("k", async || {});
        kit.drain(worker).await;
        sampler.sample_once().await.unwrap();
    });
    for metric in ["queue_size", "plimsoll_oldest_runnable_seconds"] {
        let name = format!("{metric}{{namespace=test,queue=mail}}");
        assert_eq!(figures.value(&name), 0.0);
    }
}

#[test]
fn queues_beyond_the_bound_are_shown_together() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        for queue in ["a", "b", "c", "c"] {
            submit(&kit, queue, Priority::default()).await;
        }
        let labels = Labels {
            distinct_max: 1,
            ..Labels::default()
        };
        let engine = kit.engine().clone().labels(labels);
        Sampler::new(engine).sample_once().await.unwrap();
    });
    assert_eq!(figures.value("queue_size{namespace=test,queue=a}"), 1.0);
    assert_eq!(figures.value("queue_size{namespace=test,queue=other}"), 3.0);
}

#[tokio::test]
async fn it_looks_as_often_as_it_should_and_ends_with_the_store() {
    let kit = Kit::new();
    let figures = std::sync::Arc::new(metrics_util::debugging::DebuggingRecorder::new());
    let _local = metrics::set_default_local_recorder(figures.as_ref());
    let sampler = Sampler::new(kit.engine().clone()).every(Duration::from_secs(15));
    let mut run = std::pin::pin!(sampler.run());
    let time = async {
        kit.pass(Duration::from_secs(61)).await;
        kit.tasks().close().await.unwrap();
        kit.pass(Duration::from_secs(15)).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = &mut run => {}
        () = time => {}
    }
    let counted = figures.snapshotter().snapshot().into_vec();
    let samples = counted.iter().find_map(|(key, .., value)| {
        let ok = key.key().labels().any(|label| label.value() == "ok");
        (key.key().name() == "plimsoll_samples_total" && ok).then_some(value)
    });
    // At 0, 15, 30, 45 and 60 seconds.
    let expected = metrics_util::debugging::DebugValue::Counter(5);
    assert_eq!(samples, Some(&expected));
}
