//! Changes as they come, from any place that is still kept.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use futures::stream::{self, Stream};
use plimsoll_core::change::Interest;
use plimsoll_core::{Error, Result};

use super::feed::{Begun, Followed};
use super::{Place, Reader, Reconnect, Seen, Taken, newest, read};
use crate::Engine;

/// How many changes are taken at once.
const TAKEN_MAX: usize = 64;

/// The client of the history: what changes, in order, as it comes.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace, change::{Change, Interest, TaskEvent}};
/// # use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let mut watch = engine.history().watch(Interest::tasks()).await?;
/// let tasks = engine.tasks();
/// let id = tasks.submit(tasks.task("mail", "send", "hello")?).await?.id;
/// let seen = watch.next().await?;
/// assert!(matches!(&seen.change, Change::Task(task) if task.id == id && task.event == TaskEvent::Submitted));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct History {
    engine: Engine,
    reconnect: Reconnect,
}

impl History {
    pub(crate) fn new(engine: Engine) -> Self {
        let reconnect = engine.reconnect();
        Self { engine, reconnect }
    }

    /// With this patience for a store that does not answer.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Watches what changes from now on.
    pub async fn watch(&self, interest: Interest) -> Result<Watch> {
        let place = newest(self.engine.store().as_ref()).await?;
        Ok(self.watch_after(interest, place))
    }

    /// Watches what has changed after this place, and goes on. If that is not kept any more, the first
    /// answer is `NotFound::History`.
    pub fn watch_after(&self, interest: Interest, place: Place) -> Watch {
        let (engine, reconnect) = (self.engine.clone(), self.reconnect);
        let followed = engine.feeds().follow(&engine, &interest, reconnect);
        Watch {
            engine,
            interest,
            reconnect,
            followed,
            reader: None,
            place,
            upto: place,
            taken: VecDeque::new(),
            failures: 0,
        }
    }
}

/// Changes as they come. Whoever reads slowly lags, and misses nothing; nothing is done while nobody
/// reads. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    engine: Engine,
    interest: Interest,
    reconnect: Reconnect,
    followed: Arc<Followed>,
    /// Reads what is told in this process; `None`: it reads the store by itself.
    reader: Option<Reader<Place, Arc<Seen>, Error>>,
    /// Of the last change that was answered.
    place: Place,
    /// Everything up to here was taken.
    upto: Place,
    taken: VecDeque<(Place, Arc<Seen>)>,
    failures: u32,
}

impl Watch {
    /// The next change, as soon as there is one. A call that is dropped misses nothing.
    ///
    /// `NotFound::History`: what comes next is not kept any more. Take a fresh snapshot of what you want
    /// to know, and watch on from where that was taken.
    pub async fn next(&mut self) -> Result<Seen> {
        loop {
            if let Some((place, seen)) = self.taken.pop_front() {
                self.place = place;
                return Ok(Arc::unwrap_or_clone(seen));
            }
            match &mut self.reader {
                None => self.read().await?,
                Some(reader) => {
                    let taken = &mut self.taken;
                    match poll_fn(|cx| reader.poll_take(cx, TAKEN_MAX, taken)).await {
                        Taken::Events => {}
                        Taken::Gone => {
                            self.reader = None;
                            self.upto = self.upto.max(self.place);
                        }
                        Taken::Over(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// The place of the last change that was answered, or where it began.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The changes as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Seen>> + Send {
        stream::unfold(Some(self), async |watch| {
            let mut watch = watch?;
            let seen = watch.next().await;
            let rest = seen.is_ok().then_some(watch);
            Some((seen, rest))
        })
    }

    /// Reads the store by itself until it has caught up with what is told in this process.
    async fn read(&mut self) -> Result<()> {
        let changes = match self.followed.feed.begun().await {
            Begun::Told(changes) => changes,
            Begun::Over(error) => return Err(error),
        };
        let mut reader = changes.reader();
        if reader.seek(self.upto) {
            self.reader = Some(reader);
            return Ok(());
        }
        let store = self.engine.store();
        match read(store.as_ref(), &self.interest, self.upto, TAKEN_MAX).await {
            Ok(part) => {
                self.failures = 0;
                self.upto = part.upto;
                let seen = part.changes.into_iter();
                (self.taken).extend(seen.map(|seen| (seen.place, Arc::new(seen))));
                Ok(())
            }
            Err(error) if error.is_transient() => {
                self.failures += 1;
                let wait = self.reconnect.wait(self.failures).ok_or(error)?;
                self.engine.clock().sleep(wait).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
