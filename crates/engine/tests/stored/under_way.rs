//! Calls that a store has not answered yet: a real one answers when it likes, and not when everybody has had a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Those of all who share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay {
    begun: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
}

impl UnderWay {
    pub(crate) fn begin(&self) -> Call {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Call(self.ended.clone())
    }

    /// How many there ever were.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.begun() == self.ended.load(Ordering::Relaxed)
    }
}

/// One of them. It ends when it is dropped, so also if nobody waits for its answer any more.
pub(crate) struct Call(Arc<AtomicU64>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
