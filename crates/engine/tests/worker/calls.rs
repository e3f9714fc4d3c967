//! Counts the calls that reach a store, and holds up its answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use plimsoll_core::Result;
use plimsoll_core::decorate::{Around, Method};
use plimsoll_core::store::Receipt;
use tokio::sync::Semaphore;

/// Counts the calls that reach the store, and holds up answers on demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    made: Arc<Mutex<BTreeMap<Method, usize>>>,
    held: Arc<Mutex<BTreeMap<Method, Arc<Semaphore>>>>,
    forgotten: Arc<Mutex<Vec<Arc<Semaphore>>>>,
}

impl Calls {
    pub(crate) fn of(&self, method: Method) -> usize {
        self.made.lock().unwrap().get(&method).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> usize {
        self.made.lock().unwrap().values().sum()
    }

    pub(crate) fn reset(&self) {
        self.made.lock().unwrap().clear();
    }

    /// The store does what it is asked, but its answers do not come.
    pub(crate) fn hold(&self, method: Method) {
        let none = Arc::new(Semaphore::new(0));
        self.held.lock().unwrap().insert(method, none);
    }

    /// Answers come again, also those that were held.
    pub(crate) fn let_go(&self, method: Method) {
        if let Some(held) = self.held.lock().unwrap().remove(&method) {
            held.close();
        }
    }

    /// Answers come again, but not those that are held.
    pub(crate) fn forget(&self, method: Method) {
        let held = self.held.lock().unwrap().remove(&method);
        self.forgotten.lock().unwrap().extend(held);
    }
}

impl Around for Calls {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        *self.made.lock().unwrap().entry(method).or_default() += 1;
        let answer = call().await;
        let held = self.held.lock().unwrap().get(&method).cloned();
        if let Some(held) = held {
            // Closing it is what lets everybody go.
            drop(held.acquire().await);
        }
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}
