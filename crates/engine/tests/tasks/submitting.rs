//! Making and submitting tasks.

use std::time::Duration;

use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::{Applied, Invalid, Problem, Unavailable};
use plimsoll_core::store::SubmitOutcome;
use plimsoll_core::task::{Backoff, KeyLifetime, OnConflict, Priority, RetryPolicy, Status};
use plimsoll_core::{Error, IdempotencyKey, Limits, Name, Result};
use plimsoll_engine::tasks;
use serde::{Deserialize, Serialize, Serializer};

use crate::world::{World, code};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    items: Vec<String>,
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

#[tokio::test]
async fn everything_about_a_task_can_be_said_when_it_is_made() -> Result<()> {
    let w = World::new();
    let name = |text| Name::new(text);
    let policy = RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_secs(7)),
        ..RetryPolicy::default()
    };
    let alert = w.tasks.task("alerts", "page", "")?;
    let new = (w.task("p"))
        .priority(Priority::LOWEST)
        .at(w.now().saturating_plus(Duration::from_secs(5)))
        .key_with(key("k"), KeyLifetime::WhileActive, OnConflict::Reject)
        .retry(policy.clone())
        .max_attempts(2)
        .owner(name("ada")?)
        .label(name("show")?, name("news")?)
        .attempt_timeout(Duration::from_secs(60))
        .first_stage(name("validating")?)
        .trace("00-trace")
        .on_failure(alert.clone());
    let id = w.tasks.submit(new).await?.id;
    let task = w.tasks.get(id).await?;
    let spec = &task.spec;
    assert_eq!(
        (task.status, task.priority.get()),
        (Status::Scheduled, 0),
        "due in five seconds"
    );
    assert_eq!(spec.key, Some((key("k"), KeyLifetime::WhileActive)));
    assert_eq!(
        (spec.retry.max_attempts, &spec.retry.backoff),
        (2, &policy.backoff)
    );
    assert_eq!(spec.owner, Some(name("ada")?));
    assert_eq!(spec.labels[&name("show")?], name("news")?);
    assert_eq!(spec.attempt_timeout, Some(Duration::from_secs(60)));
    assert_eq!(spec.first_stage, Some(name("validating")?));
    assert_eq!(spec.trace.as_deref(), Some("00-trace"));
    assert_eq!(spec.on_failure.as_ref().map(|task| task.id), Some(alert.id));
    Ok(())
}

#[tokio::test]
async fn typed_payloads_and_results_are_read_back_and_others_are_corrupt() -> Result<()> {
    let w = World::new();
    let order = Order {
        id: 7,
        items: vec!["tea".into()],
    };
    let held = w.hold(w.tasks.json("q", "k", &order)?).await?;
    assert_eq!(held.payload::<Order>()?, order);
    assert_eq!(code(held.payload::<u32>()), "corrupt");
    assert_eq!(tasks::result::<Order>(held.task())?, None);
    held.complete_json(&order).await?;
    let task = w.tasks.get(held.task().id()).await?;
    assert_eq!(tasks::result::<Order>(&task)?, Some(order));
    assert_eq!(code(tasks::result::<u32>(&task)), "corrupt");
    Ok(())
}

#[tokio::test]
async fn a_value_that_json_cannot_hold_is_invalid() {
    struct Broken;
    impl Serialize for Broken {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("broken"))
        }
    }
    let w = World::new();
    let error = w.tasks.json("q", "k", &Broken).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid input: task.payload: expected a value that JSON can hold: broken"
    );
}

#[tokio::test]
async fn a_number_that_is_not_finite_is_invalid() -> Result<()> {
    let w = World::new();
    let samples = vec![Some(1.5), Some(f64::NAN)];
    let expected = "expected a value that JSON can hold: a number must be finite";
    let error = w.tasks.json("q", "k", &samples).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("invalid input: task.payload: {expected}")
    );
    let held = w.hold(w.task("x")).await?;
    let error = held.complete_json(&samples).await.unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().contains(expected)),
        ("invalid", true)
    );
    assert_eq!(
        w.tasks.get(held.task().id()).await?.status,
        Status::Claimed,
        "nothing is written"
    );
    Ok(())
}

#[tokio::test]
async fn each_outcome_of_a_submit_is_told() -> Result<()> {
    let w = World::new();
    let keyed = |payload| w.task(payload).key(key("k"));
    let first = w.tasks.submit(keyed("a")).await?;
    assert_eq!(first.outcome, SubmitOutcome::Created);
    let mut outcomes = vec![w.tasks.submit(keyed("a")).await?];
    outcomes.push(w.tasks.submit(keyed("b")).await?);
    w.tasks.cancel(first.id, None).await?;
    outcomes.push(w.tasks.submit(keyed("a")).await?);
    assert!(outcomes.iter().all(|outcome| outcome.id == first.id));
    let told: Vec<_> = outcomes.iter().map(|outcome| outcome.outcome).collect();
    let expected = [
        SubmitOutcome::Existing,
        SubmitOutcome::ExistingOtherPayload,
        SubmitOutcome::ExistingFinished(Status::Cancelled),
    ];
    assert_eq!(told, expected);
    let reject = w
        .task("a")
        .key_with(key("k"), KeyLifetime::Forever, OnConflict::Reject);
    assert_eq!(code(w.tasks.submit(reject).await), "key_taken");
    Ok(())
}

#[tokio::test]
async fn a_bad_task_is_refused_before_anything_is_sent() {
    let w = World::new();
    let max = Limits::default().payload_bytes_max;
    let large = w.task(&"x".repeat(max + 1));
    let problem = Problem::TooLong {
        bytes: max + 1,
        max,
    };
    let invalid = Invalid::new("task.payload", problem);
    assert_eq!(
        w.tasks.submit(large).await.unwrap_err(),
        Error::from(invalid)
    );
    assert_eq!(code(w.tasks.task("", "k", "")), "invalid_task");
    assert_eq!(w.spy.all_calls(), 0);
}

#[tokio::test]
async fn many_are_split_by_the_limits_of_the_store_and_answered_in_order() -> Result<()> {
    let limits = Limits {
        commits_max: 7,
        call_bytes_max: 1_000,
        ..Limits::default()
    };
    let w = World::with(1, limits);
    let by_count: Vec<_> = (0..100).map(|n| w.task(&n.to_string())).collect();
    let answers = w.tasks.submit_all(by_count.clone()).await;
    assert_eq!(answers.len(), 100);
    for (task, answer) in by_count.iter().zip(answers) {
        assert_eq!(answer?.id, task.id);
    }
    assert_eq!(w.spy.calls(Method::Commit), 15, "a hundred by seven");
    let by_bytes: Vec<_> = (0..10).map(|_| w.task(&"x".repeat(400))).collect();
    for answer in w.tasks.submit_all(by_bytes).await {
        assert_eq!(answer?.outcome, SubmitOutcome::Created);
    }
    assert_eq!(w.spy.calls(Method::Commit), 20, "two of 400 bytes a call");
    Ok(())
}

#[tokio::test]
async fn a_bad_one_among_many_does_not_touch_its_neighbours() -> Result<()> {
    let w = World::new();
    let taken = w.task("first");
    w.tasks.submit(taken.clone()).await?;
    let mut same_id = w.task("second");
    same_id.id = taken.id;
    let large = w.task(&"x".repeat(300_000));
    let (one, two) = (w.task("a"), w.task("b"));
    let all = [one.clone(), large, same_id, two.clone()];
    let answers = w.tasks.submit_all(all).await;
    assert_eq!(answers[0].as_ref().map(|told| told.id), Ok(one.id));
    assert_eq!(code(answers[1].clone()), "invalid_task");
    assert_eq!(code(answers[2].clone()), "id_taken");
    assert_eq!(answers[3].as_ref().map(|told| told.id), Ok(two.id));
    assert_eq!(w.tasks.submit_all([]).await.len(), 0);
    Ok(())
}

#[tokio::test]
async fn when_the_store_stays_away_the_rest_is_not_sent_and_can_be_submitted_again() -> Result<()> {
    let limits = Limits {
        commits_max: 10,
        ..Limits::default()
    };
    let w = World::with(1, limits).hasty();
    // The second of four calls is applied once, and never answered.
    let tasks: Vec<_> = (0..40).map(|n| w.task(&n.to_string())).collect();
    w.plan
        .next(Method::Commit, Fault::Delay(Duration::from_nanos(0)));
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    for _ in 0..4 {
        w.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let answers = w.drive(w.tasks.submit_all(tasks.clone())).await;
    let applied = |n: usize| match &answers[n] {
        Ok(_) => None,
        Err(Error::Unavailable(Unavailable { applied, .. })) => Some(*applied),
        Err(other) => panic!("{other}"),
    };
    assert!((0..10).all(|n| applied(n).is_none()));
    assert!((10..20).all(|n| applied(n) == Some(Applied::Unknown)));
    assert!((20..40).all(|n| applied(n) == Some(Applied::No)));
    assert_eq!(w.spy.calls(Method::Commit), 6, "one, and five tries");
    for answer in w.tasks.submit_all(tasks).await {
        assert_eq!(answer?.outcome, SubmitOutcome::Created);
    }
    let counts = w.tasks.counts(Default::default()).await?;
    assert_eq!(counts[0].by_status[&Status::Pending], 40);
    Ok(())
}

#[tokio::test]
async fn many_come_from_an_iterator_as_they_are_sent() {
    let w = World::new();
    let spy = w.spy.clone();
    let mut sent_when_made = Vec::new();
    let made = (0..2_500).map(|n| {
        sent_when_made.push(spy.calls(Method::Commit));
        w.task(&format!("{n}"))
    });
    let answers = w.tasks.submit_all(made).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(
        sent_when_made[2_499], 2,
        "two calls are done before the last is made"
    );
}
