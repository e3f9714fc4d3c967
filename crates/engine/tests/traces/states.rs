//! What is logged of a state that could not be written.

use std::io::Write;
use std::sync::{Arc, Mutex};

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::{Memory, Namespace};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::NewState;
use plimsoll_engine::tasks::Retries;
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

#[tokio::test]
async fn a_state_that_cannot_be_written_is_logged_with_the_documented_fields() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    let _watched = tracing::subscriber::set_default(subscriber);
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
    let told = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let fields = format!(
        "🔴 failed to write state jobID=import tag=ingest taskID=3 version=2 eventID=e-1 error={error}"
    );
    let line = told.lines().find(|line| line.contains(&fields));
    assert!(line.is_some_and(|line| line.contains("ERROR")), "{told}");
}
