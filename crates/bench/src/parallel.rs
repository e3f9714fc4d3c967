//! Callers beside each other. A workload is its own engine.

use std::future::Future;

use plimsoll::{Error, Result};
use tokio::task::JoinSet;

/// Callers that run beside each other. They end when this is dropped.
pub(crate) struct Callers<T>(JoinSet<Result<T>>);

impl<T: Send + 'static> Callers<T> {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn spawn(
        futures: impl IntoIterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
    ) -> Self {
        let mut callers = JoinSet::new();
        for future in futures {
            callers.spawn(future);
        }
        Self(callers)
    }

    /// Whether one of them has ended; it is not waited for any more.
    pub(crate) fn has_one_ended(&mut self) -> bool {
        self.0.try_join_next().is_some()
    }

    /// Waits for all of them, or for the first that fails.
    pub(crate) async fn join(mut self) -> Result<Vec<T>> {
        let mut answers = Vec::with_capacity(self.0.len());
        while let Some(ended) = self.0.join_next().await {
            answers.push(ended.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Only a runtime that ends does this.
                Err(_) => Err(Error::Closed),
            })?);
        }
        Ok(answers)
    }
}
