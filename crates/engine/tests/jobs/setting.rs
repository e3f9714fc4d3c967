//! What the setters write, and what they refuse.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::Limits;
use plimsoll_core::decorate::Method;
use plimsoll_engine::jobs::{Coded, FINISHED, NewState, Scope};
use serde_json::json;

use crate::world::{at, code, in_memory, in_memory_with, message, number, of, text, worlds};

#[tokio::test]
async fn a_state_is_stored_with_all_its_fields() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 3, 4).await.unwrap();
        let state = at("ingest", 40)
            .message("40 of 100")
            .payload(json!({"file": "a.csv"}))
            .unwrap()
            .event_id("e-1")
            .unwrap()
            .schema_version(7);
        let written = manager.set_state(state).await.unwrap();
        assert_eq!((written.version, written.repeated), (1, false));
        let state = world.state("import", 3, "ingest").await.unwrap();
        assert_eq!(number(&state, "status"), 40);
        assert_eq!(number(&state, "version"), 1);
        assert_eq!(number(&state, "schema_version"), 7);
        assert_eq!(text(&state, "message").unwrap(), "40 of 100");
        assert_eq!(text(&state, "event_id").unwrap(), "e-1");
        assert_eq!(text(&state, "payload").unwrap(), r#"{"file":"a.csv"}"#);

        // What the next write does not have is gone.
        manager.set_state(at("ingest", 41)).await.unwrap();
        let state = world.state("import", 3, "ingest").await.unwrap();
        assert_eq!(number(&state, "version"), 2);
        assert_eq!(number(&state, "schema_version"), 1);
        assert_eq!(text(&state, "payload"), None);
        assert_eq!(text(&state, "message").unwrap(), "");
        assert_ne!(text(&state, "event_id").unwrap(), "e-1");
    }
}

#[derive(Debug)]
struct Outer(Coded);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ingest failed: {}", self.0)
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn coded(status: i32) -> Coded {
    let source = "connection timeout".into();
    Coded { status, source }
}

#[tokio::test]
async fn setters_write_the_documented_codes_and_messages() {
    let world = in_memory();
    let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
    let wrote = async || {
        let state = world.state("import", 0, "ingest").await.unwrap();
        let status = i32::try_from(number(&state, "status")).unwrap();
        (status, text(&state, "message").unwrap())
    };
    let is = |status, message: &str| (status, message.to_owned());
    let own = || of("ingest").message("mine");

    manager.set_started(of("ingest")).await.unwrap();
    assert_eq!(wrote().await, is(1, "🟢 Started"));
    manager.set_started(own()).await.unwrap();
    assert_eq!(wrote().await, is(1, "mine"));
    manager.set_finished(of("ingest")).await.unwrap();
    assert_eq!(wrote().await, is(FINISHED, "⚫ Finished"));
    manager.set_finished(own()).await.unwrap();
    assert_eq!(wrote().await, is(i32::MAX, "mine"));
    manager
        .set_warning("retrying connection", own())
        .await
        .unwrap();
    assert_eq!(wrote().await, is(-2, "🟡 retrying connection"));
    manager.set_error(&fmt::Error, own()).await.unwrap();
    assert_eq!(wrote().await, is(-1, &format!("🔴 {}", fmt::Error)));
    manager.set_error(&coded(-40), of("ingest")).await.unwrap();
    assert_eq!(wrote().await, is(-40, "🔴 connection timeout"));
    manager
        .set_error(&Outer(coded(-41)), of("ingest"))
        .await
        .unwrap();
    assert_eq!(
        wrote().await,
        is(-41, "🔴 ingest failed: connection timeout")
    );
}

#[tokio::test]
async fn an_error_cannot_carry_a_status_that_is_none() {
    let world = in_memory();
    let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
    for status in [0, 1, FINISHED] {
        let refused = manager.set_error(&coded(status), of("ingest")).await;
        assert_eq!(
            message(refused),
            format!("invalid input: status: {status} is not between -2147483648 and -1")
        );
    }
    assert!(world.state("import", 0, "ingest").await.is_none());
}

#[tokio::test]
async fn a_state_of_another_partition_or_job_is_refused_before_anything_is_written() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 1, 4).await.unwrap();
    let commits = process.spy.calls(Method::Commit);
    let elsewhere = manager.set_state(at("ingest", 1).partition(2)).await;
    assert_eq!(
        message(elsewhere),
        "invalid input: partition: is 2, but the manager's is 1"
    );
    let elsewhere = at("ingest", 1).job("export").unwrap();
    assert_eq!(
        message(manager.set_finished(elsewhere).await),
        "invalid input: job: is export, but the manager's is import"
    );
    assert_eq!(process.spy.calls(Method::Commit), commits);
    let here = at("ingest", 1).partition(1).job("import").unwrap();
    manager.set_state(here).await.unwrap();
}

#[tokio::test]
async fn message_and_payload_have_limits_that_can_be_used_up() {
    let limits = Limits {
        text_bytes_max: 1_000,
        record_bytes_max: 20_000,
        ..Limits::default()
    };
    let world = in_memory_with(limits);
    let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
    let long = at("ingest", 1).message("x".repeat(1_001));
    assert_eq!(
        message(manager.set_state(long).await),
        "invalid input: message: 1001 bytes, at most 1000 are allowed"
    );
    let with = |bytes: usize| {
        let state = at("ingest", 1).message("x".repeat(1_000));
        state.payload(json!({"a": "x".repeat(bytes - 8)})).unwrap()
    };
    let max = 20_000 - 16 * 1_024 - 1_000;
    assert_eq!(
        message(manager.set_state(with(max + 1)).await),
        format!(
            "invalid input: payload: {} bytes, at most {max} are allowed",
            max + 1
        )
    );
    // Also with the longest event ids, and all of them remembered.
    for n in 10..30 {
        let id = format!("{n}{}", "\u{1}".repeat(126));
        let state = with(max).event_id(id).unwrap();
        manager.set_state(state).await.unwrap();
    }
    let tag = "x".repeat(128);
    assert!(manager.set_state(NewState::of(&tag).unwrap()).await.is_ok());
}

/// What is too deep to be read again would make the state, and all that is asked of its tag, unreadable.
#[tokio::test]
async fn a_payload_that_could_not_be_read_again_is_refused() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let nested = |levels: usize| {
            let inside = (2..levels).fold(json!([]), |inner, _| json!([inner]));
            at("ingest", 1).payload(json!({"a": inside})).unwrap()
        };
        let deep = manager.set_state(nested(128)).await;
        assert_eq!(
            message(deep),
            "invalid input: payload: expected lists and objects that are at most 127 deep in each other"
        );
        assert!(world.state("import", 0, "ingest").await.is_none());
        let deepest = nested(127);
        manager.set_state(deepest.clone()).await.unwrap();
        // Whoever has not written it, and has to read it.
        let other = world.process(2).jobs.monitor("import").await.unwrap();
        let read = other.get_state(&Scope::all()).await.unwrap();
        assert_eq!(read.payload, deepest.payload);
        let written = manager.set_state(at("ingest", 2)).await.unwrap();
        assert_eq!(written.version, 2);
    }
}

/// JSON has none: it would be read as nothing.
#[test]
fn a_number_that_is_not_finite_is_no_payload() {
    for number in [f64::NAN, f64::INFINITY] {
        let samples = BTreeMap::from([("samples", vec![1.0, number])]);
        let refused = at("ingest", 1).payload(samples).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "payload: expected a value that JSON can hold: a number must be finite"
        );
    }
}

/// Whoever waits for a partition must hear that it has failed, however much it has to say about that.
#[tokio::test]
async fn an_error_and_a_warning_of_any_length_are_written_and_fail_a_barrier() {
    for world in worlds().await {
        let jobs = world.process(1).jobs;
        let manager = jobs.join("import", 0, 2).await.unwrap();
        let other = jobs.join("import", 1, 2).await.unwrap();
        let much = "ä".repeat(512 * 1_024);
        let error = Coded {
            status: -40,
            source: much.as_str().into(),
        };
        for (sign, status) in [("🔴", -40), ("🟡", -2)] {
            manager.set_started(of("ingest")).await.unwrap();
            let barrier = other.barrier("ingest", FINISHED).unwrap();
            match status {
                -2 => manager.set_warning(&much, of("ingest")).await.unwrap(),
                _ => manager.set_error(&error, of("ingest")).await.unwrap(),
            };
            assert_eq!(code(barrier.await), "partition_failed");
            let state = world.state("import", 0, "ingest").await.unwrap();
            assert_eq!(number(&state, "status"), status);
            let told = text(&state, "message").unwrap();
            assert!(told.starts_with(&format!("{sign} ää")), "{:?}", &told[..20]);
            assert!(told.ends_with("ä…"));
            // As much as there is room for.
            assert!((64 * 1_024 - 1..=64 * 1_024).contains(&told.len()));
        }
        let refused = manager.set_state(at("ingest", -1).message(&much)).await;
        assert_eq!(code(refused), "invalid");
        // The payload is not cut, and what is said gives way to it.
        let most = json!({"a": "x".repeat(240 * 1_024 - 28)});
        let state = of("ingest").payload(most).unwrap();
        manager.set_warning(&much, state).await.unwrap();
        let state = world.state("import", 0, "ingest").await.unwrap();
        assert_eq!(text(&state, "message").unwrap(), "🟡 ääääää…");
    }
}
