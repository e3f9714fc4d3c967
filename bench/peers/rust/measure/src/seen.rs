//! Which jobs were handled, how long after their submission, and whether any of them twice.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::job::{Job, now};

/// What handlers have seen.
#[derive(Debug, Default)]
pub struct Seen {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    expected: Option<u64>,
    /// One flag for each job, by its number.
    numbers: Vec<bool>,
    handled: u64,
    repeated: u64,
    last: u64,
    /// From submit to start, in nanoseconds.
    waited: Vec<u64>,
}

impl State {
    fn is_over(&self) -> bool {
        self.expected == Some(self.handled)
    }
}

impl Seen {
    /// To be called when the handler of a job starts. It is all that handlers do.
    pub fn handle(&self, job: &Job) {
        let mut state = self.lock();
        let index = job.n as usize;
        if state.numbers.len() <= index {
            state.numbers.resize((index + 1) * 2, false);
        }
        if std::mem::replace(&mut state.numbers[index], true) {
            state.repeated += 1;
            return;
        }
        state.last = now();
        let waited = state.last.saturating_sub(job.at);
        state.waited.push(waited);
        state.handled += 1;
        if state.is_over() {
            self.changed.notify_one();
        }
    }

    pub(crate) fn expect(&self, jobs: u64) {
        self.lock().expected = Some(jobs);
        self.changed.notify_one();
    }

    pub(crate) async fn all(&self) {
        while !self.lock().is_over() {
            self.changed.notified().await;
        }
    }

    pub(crate) fn answer(&self) -> Value {
        let mut state = self.lock();
        state.waited.sort_unstable();
        json!({
            "jobs": state.handled,
            "repeated": state.repeated,
            "ended": state.last,
            "p50_ms": quantile_ms(&state.waited, 0.50),
            "p99_ms": quantile_ms(&state.waited, 0.99),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value below which this part of the sorted `nanos` lies.
pub(crate) fn quantile_ms(nanos: &[u64], part: f64) -> Option<f64> {
    let rank = (nanos.len() as f64 * part).ceil() as usize;
    let nanos = nanos.get(rank.saturating_sub(1))?;
    Some(*nanos as f64 / 1e6)
}
