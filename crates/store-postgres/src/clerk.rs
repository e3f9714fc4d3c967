//! Empties inboxes in the background, when somebody says that there is something in them.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::clock::{Clock, SystemClock};
use tokio::sync::Notify;

use crate::spawn::spawn;

/// How long to rest in between: what arrives until then is taken together.
const PAUSE: Duration = Duration::from_millis(5);

/// Whose inboxes are emptied.
pub(crate) trait Inboxes: Send + Sync + 'static {
    /// Takes everything there is.
    fn empty(&self, ns: i32) -> impl Future<Output = Result<()>> + Send;
}

/// Does so as long as it is there.
#[derive(Debug)]
pub(crate) struct Clerk {
    desk: Arc<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    /// The namespaces in question.
    asked: Mutex<BTreeSet<i32>>,
    bell: Notify,
}

impl Clerk {
    pub(crate) fn new<I: Inboxes>(inboxes: Weak<I>) -> Self {
        let desk = Arc::<Desk>::default();
        spawn(work(desk.clone(), inboxes));
        Self { desk }
    }

    /// Asks to empty the inbox of a namespace, soon.
    pub(crate) fn ring(&self, ns: i32) {
        self.desk.asked().insert(ns);
        self.desk.bell.notify_one();
    }
}

impl Drop for Clerk {
    /// Whoever is gone has no inboxes: the work ends.
    fn drop(&mut self) {
        self.desk.bell.notify_one();
    }
}

impl Desk {
    fn asked(&self) -> std::sync::MutexGuard<'_, BTreeSet<i32>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn work<I: Inboxes>(desk: Arc<Desk>, inboxes: Weak<I>) {
    let timer = SystemClock::new();
    loop {
        desk.bell.notified().await;
        let Some(inboxes) = inboxes.upgrade() else {
            return;
        };
        let asked = std::mem::take(&mut *desk.asked());
        for ns in asked {
            // Whoever claims or sweeps looks, too.
            if let Err(error) = inboxes.empty(ns).await {
                tracing::warn!(ns, %error, "an inbox could not be emptied for now");
            }
        }
        drop(inboxes);
        timer.sleep(PAUSE).await;
    }
}
