//! What is logged of a state that could not be written.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::{Error, Ids, Memory, Namespace};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::NewState;
use plimsoll_engine::tasks::Retries;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Lines {
    fn told(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Keeps what is logged until the second is dropped.
fn watched() -> (Lines, DefaultGuard) {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn a_state_that_cannot_be_written_is_logged_with_the_documented_fields() {
    let (lines, _watched) = watched();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let plan = FaultPlan::none();
    let store = Arc::new(Memory::new().open(Namespace::new("test").unwrap()));
    let faults = Faults::new(plan.clone(), clock);
    let engine = Engine::new(Arc::new(Decorated::new(store, faults)));
    let jobs = engine.jobs().with_retries(Retries::none());
    let manager = jobs.join("import", 3, 4).await.unwrap();
    let state = |status| NewState::new("ingest", status).unwrap();
    manager.set_state(state(1)).await.unwrap();
    plan.next(Method::Commit, Fault::ErrorBefore);
    let failing = manager.set_state(state(2).event_id("e-1").unwrap());
    let error = failing.await.unwrap_err();
    let told = lines.told();
    let fields = format!(
        "🔴 failed to write state jobID=import tag=ingest taskID=3 version=2 eventID=e-1 error={error}"
    );
    let line = told.lines().find(|line| line.contains(&fields));
    assert!(line.is_some_and(|line| line.contains("ERROR")), "{told}");
}

#[tokio::test]
async fn states_that_are_refused_at_once_are_logged_ten_a_second_at_most() {
    let (lines, _watched) = watched();
    let store = Arc::new(Memory::new().open(Namespace::new("test").unwrap()));
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let engine = Engine::with(store, shared.clone(), Ids::seeded(1, shared));
    let manager = engine.jobs().join("import", 3, 4).await.unwrap();
    let state = || NewState::new("ingest", 1).unwrap();
    let line = |fields: &str, error: &Error, untold: u64| {
        format!(
            "🔴 failed to write state jobID=import tag=ingest taskID=3{fields} error={error} untold={untold}"
        )
    };
    let elsewhere = || state().partition(2).event_id("e-1").unwrap();
    let error = manager.set_state(elsewhere()).await.unwrap_err();
    for _ in 0..12 {
        // Nobody looks at the answer.
        drop(manager.set_state(elsewhere()));
    }
    let invalid = line(" eventID=e-1", &error, 0);
    let told = lines.told();
    assert_eq!(told.matches(&invalid).count(), 10, "{told}");
    assert_eq!(told.lines().count(), 10, "{told}");

    clock.advance(Duration::from_secs(1));
    manager.close().await;
    let error = manager.set_state(state()).await.unwrap_err();
    let told = lines.told();
    assert!(told.contains(&line("", &error, 3)), "{told}");
}
