//! Threads with connections that only read.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use plimsoll_core::error::Applied;
use plimsoll_core::{Error, Result};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{Semaphore, oneshot};

use crate::config::Config;
use crate::error::Answer;
use crate::{schema, threads};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A few threads, each with a connection of its own. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    jobs: mpsc::Sender<Job>,
    /// Room in the queue.
    room: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn start(config: &Config) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..config.readers.max(1) {
            let mut connection = schema::open_reader(config)?;
            let queue = queue.clone();
            threads::start("reader", move || {
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match job {
                        Ok(job) => job(&mut connection),
                        Err(_) => break,
                    }
                }
            })?;
        }
        let room = Arc::new(Semaphore::new(config.queue_max.max(1)));
        Ok(Self { jobs, room })
    }

    /// Reads in one snapshot, which shows everything acknowledged before.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Answer<T> + Send + 'static,
    {
        let room = self.room.clone().acquire_owned().await;
        let room = room.map_err(|_| Error::Closed)?;
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &mut Connection| {
            let _room = room;
            if reply.is_closed() {
                // Nobody waits for it any more.
                return;
            }
            let result = connection
                .transaction_with_behavior(TransactionBehavior::Deferred)
                .map_err(Into::into)
                .and_then(|snapshot| read(&snapshot));
            reply
                .send(result.map_err(|fault| fault.into_error(Applied::No)))
                .ok();
        };
        self.jobs.send(Box::new(job)).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}
