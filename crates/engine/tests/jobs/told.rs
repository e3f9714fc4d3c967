//! What is logged of a write that failed.

use std::io::Write;
use std::sync::{Arc, Mutex};

use plimsoll_core::decorate::{Fault, Method};
use tracing_subscriber::fmt::MakeWriter;

use crate::world::{at, in_memory};

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
async fn a_write_that_fails_is_logged_with_the_documented_fields() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 3, 4).await.unwrap();
    manager.set_state(at("ingest", 1)).await.unwrap();
    for _ in 0..5 {
        process.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let state = at("ingest", 2).event_id("e-1").unwrap();
    let error = manager.set_state(state).await.unwrap_err();
    let told = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line = told
        .lines()
        .find(|line| line.contains("failed to write state"));
    let line = line.unwrap_or_else(|| panic!("not in {told}"));
    let fields = format!(
        "🔴 failed to write state jobID=import tag=ingest taskID=3 version=2 eventID=e-1 error={error}"
    );
    assert!(line.contains("ERROR") && line.contains(&fields), "{line}");
}
