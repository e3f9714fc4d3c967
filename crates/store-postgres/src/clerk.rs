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
pub(crate) const SOON: Duration = Duration::from_millis(5);
/// How long while somebody else takes them, and will hardly leave any, or has rows locked that they
/// need.
pub(crate) const LATER: Duration = Duration::from_millis(50);

/// Whose inboxes are emptied.
pub(crate) trait Inboxes: Send + Sync + 'static {
    /// Takes some tasks. Answers when to come back, if at all.
    fn take_some(&self, ns: i32) -> impl Future<Output = Result<Option<Duration>>> + Send;
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
        self.desk.ask(ns);
    }
}

impl Drop for Clerk {
    /// Whoever is gone has no inboxes: the work ends.
    fn drop(&mut self) {
        self.desk.bell.notify_one();
    }
}

impl Desk {
    fn ask(&self, ns: i32) {
        self.asked().insert(ns);
        self.bell.notify_one();
    }

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
        let mut pause = SOON;
        for ns in asked {
            match inboxes.take_some(ns).await {
                Ok(None) => {}
                Ok(Some(again)) => {
                    pause = pause.max(again);
                    desk.ask(ns);
                }
                // Whoever claims or sweeps looks, too.
                Err(error) => {
                    tracing::warn!(ns, %error, "an inbox could not be emptied for now");
                }
            }
        }
        drop(inboxes);
        timer.sleep(pause).await;
    }
}
