//! Threads with connections that only read.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use plimsoll_core::error::Applied;
use plimsoll_core::{Error, Result};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::error::Answer;
use crate::schema;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A few threads, each with a connection of its own. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    jobs: mpsc::Sender<Job>,
}

impl Readers {
    /// Spawning is this store's own: the threads block on SQLite, not on a runtime.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start(config: &Config) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..config.readers.max(1) {
            let mut connection = schema::open_reader(config)?;
            let queue = queue.clone();
            std::thread::spawn(move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match job {
                        Ok(job) => job(&mut connection),
                        Err(_) => break,
                    }
                }
            });
        }
        Ok(Self { jobs })
    }

    /// Reads in one snapshot, which shows everything acknowledged before.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Answer<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &mut Connection| {
            let result = connection
                .transaction_with_behavior(TransactionBehavior::Deferred)
                .map_err(Into::into)
                .and_then(|snapshot| read(&snapshot));
            // A caller that went away does not want to know.
            reply
                .send(result.map_err(|fault| fault.into_error(Applied::No)))
                .ok();
        };
        self.jobs.send(Box::new(job)).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}
