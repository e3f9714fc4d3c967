//! The same event is written once.

use futures::future::join_all;
use plimsoll_engine::jobs::{NewState, Written};

use crate::world::{at, code, number, text, worlds};

fn event(id: &str, status: i32) -> NewState {
    at("ingest", status).event_id(id).unwrap()
}

const fn first(version: u64) -> Written {
    let repeated = false;
    Written { version, repeated }
}

const fn again(version: u64) -> Written {
    let repeated = true;
    Written { version, repeated }
}

#[tokio::test]
async fn an_event_that_is_repeated_changes_nothing_and_answers_the_first_version() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(manager.set_state(event("a", 1)).await.unwrap(), first(1));
        assert_eq!(manager.set_state(event("b", 2)).await.unwrap(), first(2));
        assert_eq!(manager.set_state(event("a", 3)).await.unwrap(), again(1));
        let state = world.state("import", 0, "ingest").await.unwrap();
        assert_eq!(
            (number(&state, "status"), number(&state, "version")),
            (2, 2)
        );
        // It is another event with another tag.
        let other = at("export", 1).event_id("a").unwrap();
        assert_eq!(manager.set_state(other).await.unwrap(), first(1));
    }
}

#[tokio::test]
async fn an_event_that_is_repeated_in_the_same_call_is_written_once() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let calls = [event("a", 1), event("a", 2), event("b", 3), event("a", 4)];
        let answers = join_all(calls.map(|state| manager.set_state(state))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [first(1), again(1), first(2), again(1)]);
        let state = world.state("import", 0, "ingest").await.unwrap();
        assert_eq!(number(&state, "status"), 3);
    }
}

#[tokio::test]
async fn another_process_and_a_restarted_one_know_the_events() {
    for world in worlds().await {
        let a = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let b = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        b.set_state(event("z", 0)).await.unwrap();
        a.set_state(event("a", 1)).await.unwrap();
        // It knows nothing of it before it is refused.
        assert_eq!(b.set_state(event("a", 2)).await.unwrap(), again(2));
        let restarted = world.process(3).jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(restarted.set_state(event("a", 3)).await.unwrap(), again(2));
        assert_eq!(restarted.set_state(event("z", 3)).await.unwrap(), again(1));
        let state = world.state("import", 0, "ingest").await.unwrap();
        assert_eq!(number(&state, "status"), 1);
    }
}

#[tokio::test]
async fn the_last_sixteen_events_are_remembered() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        for n in 0..17 {
            manager.set_state(event(&n.to_string(), n)).await.unwrap();
        }
        assert_eq!(manager.set_state(event("1", 1)).await.unwrap(), again(2));
        assert_eq!(manager.set_state(event("0", 1)).await.unwrap(), first(18));
        let state = world.state("import", 0, "ingest").await.unwrap();
        assert_eq!(
            text(&state, "events").unwrap().matches("version").count(),
            16
        );
    }
}

#[tokio::test]
async fn an_event_that_others_kept_from_being_written_is_not_remembered_as_written() {
    for world in worlds().await {
        let one = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let other = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        let export = |id: &str, status| at("export", status).event_id(id).unwrap();
        assert_eq!(one.set_state(event("a", 1)).await.unwrap(), first(1));
        // The other is where the first does not expect it, and has said the same once.
        assert_eq!(other.set_state(event("b", 2)).await.unwrap(), first(2));
        assert_eq!(other.set_state(export("y", 3)).await.unwrap(), first(1));
        let calls = [event("x", 4), export("y", 3), event("z", 5)];
        let answers = join_all(calls.map(|state| one.set_state(state))).await;
        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers[..2], [first(3), again(1)]);
        assert_eq!(answers[2].version, 4);
        assert_eq!(other.set_state(event("b", 9)).await.unwrap(), again(2));
    }
}

#[tokio::test]
async fn an_event_that_is_repeated_after_its_job_was_deleted_is_refused() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let old = jobs.join("import", 0, 1).await.unwrap();
        // This one reads what it did not write.
        let idle = jobs.join("import", 0, 1).await.unwrap();
        old.set_state(event("a", 1)).await.unwrap();
        jobs.mark_deleted("import").await.unwrap();
        assert_eq!(code(idle.set_state(event("a", 1)).await), "job_deleted");
        assert_eq!(code(old.set_state(event("a", 1)).await), "job_deleted");
        // Also before others of the same call.
        let both = join_all([event("a", 1), event("b", 2)].map(|state| old.set_state(state)));
        for answer in both.await {
            assert_eq!(code(answer), "job_deleted");
        }

        jobs.delete("import").await.unwrap();
        let new = world.process(2).jobs.join("import", 0, 1).await.unwrap();
        assert_eq!(code(old.set_state(event("a", 1)).await), "job_deleted");
        assert_eq!(new.set_state(event("a", 1)).await.unwrap(), first(2));
        // What it finds there is not its own.
        for late in [&old, &idle] {
            assert_eq!(code(late.set_state(event("a", 1)).await), "job_deleted");
        }
        assert_eq!(new.set_state(event("a", 1)).await.unwrap(), again(2));
    }
}
