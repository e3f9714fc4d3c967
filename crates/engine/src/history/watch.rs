//! Changes as they come, from any place that is still kept.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use futures::stream::{self, Stream};
use plimsoll_core::change::Interest;
use plimsoll_core::{Error, Result};

use super::feed::{Begun, Followed};
use super::{Mark, Place, Reader, Reconnect, Seen, Share, Taken, end, in_order, read};
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

    /// Watches what changes from now on: whatever a look afterwards does not show yet will be told. Where commits
    /// overlap, so may be what changed in the moment before. A store without an order of all changes is `Unsupported`.
    pub async fn watch(&self, interest: Interest) -> Result<Watch> {
        let (store, clock) = (self.engine.store().as_ref(), self.engine.clock().as_ref());
        let end = self.reconnect.patiently(clock, || end(store)).await?;
        Ok(self.watch_known(interest, end.readable))
    }

    /// Watches what has changed after this place, and goes on. The first answer is `NotFound::History` if
    /// that is not kept any more, or never was; and `Invalid`, if it is a place within a commit which a
    /// watch of something else has told.
    pub fn watch_after(&self, interest: Interest, place: Place) -> Watch {
        let mark = Mark::of(&interest);
        match in_order(self.engine.store().as_ref()).and_then(|()| Ok(place.unmarked(mark)?)) {
            Ok(place) => Watch {
                known: false,
                ..self.watch_known(interest, place)
            },
            Err(refusal) => self.begin(interest, place, Err(refusal)),
        }
    }

    /// Watches on from a place that the store has told just now.
    pub(crate) fn watch_known(&self, interest: Interest, place: Place) -> Watch {
        let followed = (self.engine.feeds()).follow(&self.engine, &interest, self.reconnect);
        self.begin(interest, place, Ok(followed))
    }

    fn begin(&self, interest: Interest, place: Place, followed: Result<Arc<Followed>>) -> Watch {
        Watch {
            engine: self.engine.clone(),
            mark: Mark::of(&interest),
            interest,
            reconnect: self.reconnect,
            followed,
            reader: None,
            place,
            upto: place,
            known: true,
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
    mark: Mark,
    reconnect: Reconnect,
    /// What is told in this process, or why it is not followed.
    followed: Result<Arc<Followed>>,
    /// Reads what is told in this process; `None`: it reads the store by itself.
    reader: Option<Reader<Place, Arc<Seen>, Error>>,
    /// Of the last change that was answered.
    place: Place,
    /// Everything up to here was taken.
    upto: Place,
    /// Whether the store has told that this is a place of its history.
    known: bool,
    taken: VecDeque<(Place, Arc<Seen>)>,
    /// Of its own reads, in a row, since it last answered or gave up.
    failures: u32,
}

impl Watch {
    /// The next change, as soon as there is one. A call that is dropped misses nothing, and one that failed
    /// because the store did not answer may be repeated.
    ///
    /// `NotFound::History`: what comes next is not kept any more. Take a fresh snapshot of what you want
    /// to know, and watch on from where that was taken.
    pub async fn next(&mut self) -> Result<Seen> {
        loop {
            if let Some((place, seen)) = self.taken.pop_front() {
                self.place = place;
                let place = self.place();
                let seen = Arc::unwrap_or_clone(seen);
                return Ok(Seen { place, ..seen });
            }
            match &mut self.reader {
                None => self.read().await?,
                Some(reader) => {
                    let mut share = Share::default();
                    match poll_fn(|cx| reader.poll_take(cx, TAKEN_MAX, &mut share)).await {
                        Taken::Events => {
                            let seen = share.left().iter();
                            (self.taken).extend(seen.map(|told| (told.place, told.event.clone())));
                        }
                        Taken::Gone => self.leave(),
                        Taken::Over(error) => return Err(self.over(error)),
                    }
                }
            }
        }
    }

    /// The place of the last change that was answered, or where it began.
    pub fn place(&self) -> Place {
        match self.followed {
            Ok(_) => self.place.marked(self.mark),
            Err(_) => self.place,
        }
    }

    /// Everything up to here was answered, or is nothing to answer. It goes on where others write, and nothing of what is
    /// watched changes.
    pub(crate) fn reached(&self) -> Place {
        if !self.taken.is_empty() || self.followed.is_err() {
            return self.place();
        }
        let reached = self.reader.as_ref().map(Reader::reached);
        let reached = self.upto.max(self.place).max(reached.unwrap_or(self.upto));
        reached.marked(self.mark)
    }

    /// Goes on by itself from where it is. What is told in this process may be another history by now.
    fn leave(&mut self) {
        // Everything that it has passed was answered, or was nothing to answer.
        let passed = self.reader.take().map(|reader| reader.passed());
        self.upto = self.upto.max(self.place).max(passed.unwrap_or(self.upto));
        self.known = false;
    }

    /// What it followed has ended. The next call follows anew, as patiently.
    fn over(&mut self, error: Error) -> Error {
        self.leave();
        self.failures = 0;
        let feeds = self.engine.feeds();
        self.followed = Ok(feeds.follow(&self.engine, &self.interest, self.reconnect));
        error
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
        let feed = match &self.followed {
            Ok(followed) => &followed.feed,
            Err(refusal) => return Err(refusal.clone()),
        };
        let changes = match feed.begun().await {
            Begun::Told(changes) => changes,
            Begun::Over(error) => return Err(self.over(error)),
        };
        let mut reader = changes.reader();
        // A place that nobody was told of yet may be one that this history never had.
        if (self.known || self.upto <= changes.upto()) && reader.seek(self.upto) {
            self.reader = Some(reader);
            return Ok(());
        }
        let store = self.engine.store();
        match read(store.as_ref(), &self.interest, self.upto, TAKEN_MAX).await {
            Ok(part) => {
                self.failures = 0;
                self.known = true;
                self.upto = part.upto;
                let seen = part.changes.into_iter();
                (self.taken).extend(seen.map(|seen| (seen.place, Arc::new(seen))));
                Ok(())
            }
            Err(error) if error.is_transient() => {
                self.failures += 1;
                let Some(wait) = self.reconnect.wait(self.failures) else {
                    self.failures = 0;
                    return Err(error);
                };
                self.engine.clock().sleep(wait).await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
