//! The end of what a manager was asked for.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Whether the subscriptions and barriers of a manager are over.
#[derive(Debug)]
pub(crate) struct Over {
    /// The same, for those who ask with each of a million events.
    is: AtomicBool,
    told: watch::Sender<bool>,
}

impl Over {
    pub(super) fn not_yet() -> Self {
        Self {
            is: AtomicBool::new(false),
            told: watch::Sender::new(false),
        }
    }

    pub(super) fn end(&self) {
        self.is.store(true, Ordering::Release);
        self.told.send_replace(true);
    }

    #[inline]
    pub(super) fn is(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        // Who tells is here, so that it cannot be gone.
        self.told.subscribe().wait_for(|over| *over).await.ok();
    }
}
