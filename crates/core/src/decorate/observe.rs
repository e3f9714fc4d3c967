//! Metrics and traces of every call of a store.
//!
//! | metric | kind | labels |
//! |---|---|---|
//! | `plimsoll_store_calls_total` | counter | `store`, `method`, `outcome` |
//! | `plimsoll_store_call_seconds` | histogram | `store`, `method` |
//! | `plimsoll_store_commits_total` | counter | `store`, `outcome` |
//!
//! `outcome` is `ok` or the kind of the error. Each call has a span `store` at debug level with
//! the fields `store`, `namespace` and `method`; an unavailable or corrupt store is a warning.

use std::future::Future;
use std::sync::Arc;

use tracing::Instrument;

use crate::clock::Clock;
use crate::decorate::{Around, Method};
use crate::error::{Error, Result};
use crate::store::{Receipt, Store};

/// Measures and traces the calls of a store.
#[derive(Clone, Debug)]
pub struct Observe {
    store: String,
    namespace: String,
    clock: Arc<dyn Clock>,
}

impl Observe {
    /// Observes the calls of `store`, by this clock.
    pub fn new(store: &dyn Store, clock: Arc<dyn Clock>) -> Self {
        Self {
            store: store.capabilities().store,
            namespace: store.namespace().to_string(),
            clock,
        }
    }
}

fn outcome<T>(result: &Result<T>) -> &'static str {
    result.as_ref().err().map_or("ok", Error::kind)
}

impl Around for Observe {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let span = tracing::debug_span!(
            "store",
            store = %self.store,
            namespace = %self.namespace,
            method = method.as_str(),
        );
        let started = self.clock.monotonic();
        let result = call().instrument(span.clone()).await;
        let took = self.clock.monotonic().saturating_sub(started);
        if let Err(error @ (Error::Unavailable(_) | Error::Corrupt(_))) = &result {
            span.in_scope(|| tracing::warn!(%error, "the store did not answer as it should"));
        }
        metrics::counter!(
            "plimsoll_store_calls_total",
            "store" => self.store.clone(),
            "method" => method.as_str(),
            "outcome" => outcome(&result),
        )
        .increment(1);
        metrics::histogram!(
            "plimsoll_store_call_seconds",
            "store" => self.store.clone(),
            "method" => method.as_str(),
        )
        .record(took.as_secs_f64());
        result
    }

    fn committed(&self, results: &[Result<Receipt>]) {
        for result in results {
            metrics::counter!(
                "plimsoll_store_commits_total",
                "store" => self.store.clone(),
                "outcome" => outcome(result),
            )
            .increment(1);
        }
    }
}
