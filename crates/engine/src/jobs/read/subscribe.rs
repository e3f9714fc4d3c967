//! Every change of the states of a job, after what there is.

mod telling;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use metrics::Histogram;
use plimsoll_core::change::Change;
use plimsoll_core::error::NotFound;
use plimsoll_core::{Error, Name, Position, Result};

pub use self::telling::{Batches, Next};
use super::cache::{Events, Snapshot};
use super::event::{Cursor, Point, SubscribeOptions};
use super::portion::Portion;
use super::replay::Replay;
use super::versions::Versions;
use super::view::Kept;
use crate::history::{Part, Place, Seen, Share, Taken, Told, read};
use crate::jobs::over::Over;
use crate::jobs::stored::Stored;
use crate::jobs::{Scope, State};

/// The smallest buffer.
const DEPTH_MIN: usize = 4;
/// How many changes are read at once, at least, by one who was too slow.
const READ_MIN: usize = 64;

/// The states of a scope that exist, the oldest first, then a marker, then every change in the order of
/// the history, none twice.
///
/// It is a `Stream`. Dropping it ends it, and closing its manager. It ends with an error when the job is deleted
/// (`Conflict::JobDeleted`) and when the store was out of reach for too long
/// ([`Reconnect`](crate::history::Reconnect)).
pub struct Subscription {
    kept: Arc<Kept>,
    depth: usize,
    /// When the replay began.
    began: Duration,
    /// It has yet to be told that the replay begins again.
    restarted: bool,
    replay: Option<Replay>,
    /// What was taken last.
    portion: Arc<Portion>,
    /// What of it is not told yet.
    left: Range<usize>,
    deliveries: Histogram,
    /// Everything up to here is in the buffer, or was.
    after: Place,
    /// No replay is under way, and none is about to begin.
    is_live: bool,
    /// Of what it has read by itself and told.
    versions: Versions,
    step: Step,
    /// It was polled, and had nothing to tell.
    waiting: bool,
    /// Of a manager: its end.
    closing: Option<Closing>,
}

struct Closing {
    over: Arc<Over>,
    wait: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

enum Step {
    Replaying(Events),
    Live(Events),
    /// Too slow: reads the history by itself until it gets to what is kept.
    Reading(Events, Work<Part>),
    /// What there is, once more.
    Restarting(Work<Snapshot>),
    Over,
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl Subscription {
    pub(crate) async fn open(
        kept: Arc<Kept>,
        scope: Scope,
        options: SubscribeOptions,
    ) -> Result<Self> {
        // Its own: to count the holders of a shared one is felt where there are a thousand.
        let job = Name::for_field("job", kept.cache.keys.name.as_str())?;
        let clock = kept.cache.engine.clock();
        let began = clock.monotonic();
        let life = kept.cache.which_life().await?;
        let after = options.after.map(|after| after.of(&job, life));
        let after = after.transpose()?;
        // Who goes on from somewhere needs nothing of what there is.
        let (snapshot, place) = match after {
            Some(Some(place)) => (None, place),
            Some(None) | None => {
                let snapshot = kept.cache.snapshot(&scope).await?;
                (Some(snapshot), Place::after(Position::ZERO))
            }
        };
        let mut subscription = Self {
            deliveries: kept.cache.engine.telemetry().states.deliveries(),
            kept,
            depth: options.depth.max(DEPTH_MIN),
            began,
            restarted: after == Some(None),
            replay: None,
            portion: Arc::new(Portion::new(job, life, scope)),
            left: 0..0,
            after: place,
            is_live: true,
            versions: Versions::default(),
            step: Step::Over,
            waiting: false,
            closing: None,
        };
        match snapshot {
            Some(snapshot) => subscription.begin(snapshot),
            None => subscription.resume().await?,
        }
        Ok(subscription)
    }

    /// Goes on from where it is.
    async fn resume(&mut self) -> Result<()> {
        let cache = self.kept.cache.clone();
        let (mut events, upto) = cache.reader(self.portion.scope()).await?;
        // A place that nobody was told of yet may be one that this history never had.
        self.step = match self.after <= upto && events.seek(self.after) {
            true => Step::Live(events),
            false => Step::Reading(events, self.read()),
        };
        Ok(())
    }

    /// Ends, without an error, as soon as this says so.
    pub(crate) fn until(mut self, over: Arc<Over>) -> Self {
        let waits = over.clone();
        let wait = Box::pin(async move { waits.wait().await });
        self.closing = Some(Closing { over, wait });
        self
    }

    /// Goes on from here: everything up to it was told, or is of other scopes. `None` during a replay, which can only begin
    /// again.
    ///
    /// Where others write and nothing of the scope changes for longer than the history is kept, the cursor of the last
    /// event is too old to go on from. This one is not, if it is asked for now and then.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::jobs::{NewState, Scope, StateEvent, SubscribeOptions};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("imports")?));
    /// # let jobs = Engine::new(store).jobs();
    /// let manager = jobs.join("import-7", 0, 4).await?;
    /// let mut events = manager.subscribe(Scope::all(), SubscribeOptions::default()).await?;
    /// assert_eq!(events.cursor(), None);
    /// events.next().await.unwrap()?; // the marker
    /// let after = events.cursor();
    /// drop(events);
    ///
    /// manager.set_state(NewState::new("ingest", 40)?).await?;
    /// let options = SubscribeOptions { after, ..SubscribeOptions::default() };
    /// let mut events = manager.subscribe(Scope::all(), options).await?;
    /// let StateEvent::State(state) = events.next().await.unwrap()? else {
    ///     panic!("there is a state");
    /// };
    /// assert_eq!((state.status, state.is_replay()), (40, false));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn cursor(&self) -> Option<Cursor> {
        let place = self.is_live.then(|| self.reached())??;
        Some(self.portion.cursor(place))
    }

    /// Up to here nothing is left to be told, of what was written by now. `None`: nothing of the portion was told yet.
    fn reached(&self) -> Option<Place> {
        let all = self.portion.all();
        if self.left.start < self.left.end.min(all.len()) {
            let last = self.left.start.checked_sub(1)?;
            return all.get(last).map(|told| told.place);
        }
        Some(match &self.step {
            Step::Live(events) => self.after.max(events.reached()),
            _ => self.after,
        })
    }

    /// Whether it had nothing left to tell when it was polled last: whatever reads showed before that has
    /// been told. It never is during a replay, and not while it reads what it was too slow for.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Begins to tell what there is.
    fn begin(&mut self, (replay, events, upto): Snapshot) {
        self.replay = Some(replay);
        self.after = upto;
        self.is_live = false;
        self.versions = Versions::default();
        self.step = Step::Replaying(events);
    }

    /// Reads what comes next in the history.
    fn read(&self) -> Work<Part> {
        let (cache, after) = (self.kept.cache.clone(), self.after);
        let limit = self.depth.max(READ_MIN);
        Box::pin(async move {
            let engine = &cache.engine;
            let call = || read(engine.store().as_ref(), &cache.states, after, limit);
            let clock = engine.clock().as_ref();
            engine.reconnect().patiently(clock, call).await
        })
    }

    fn restart(&self) -> Work<Snapshot> {
        let (cache, scope) = (self.kept.cache.clone(), self.portion.scope().clone());
        Box::pin(async move { cache.snapshot(&scope).await })
    }

    /// Holds what was taken, and nothing of what was taken before.
    fn hold(&mut self, share: Share<Place, Arc<State>>, is_replay: bool) {
        self.left = 0..share.left().len();
        Portion::replace(&mut self.portion, share, is_replay);
    }

    /// Goes on with the replay, after all of the portion was told. Answers whether there was something left of it.
    fn refill(&mut self) -> bool {
        let replay = self.replay.as_mut();
        match replay.and_then(|replay| replay.take(self.depth)) {
            Some(part) => {
                self.hold(part, true);
                true
            }
            None => {
                self.replay = None;
                if !self.portion.all().is_empty() {
                    self.hold(Share::default(), false);
                }
                false
            }
        }
    }

    /// Takes what subscribers are told.
    fn poll_live(&mut self, events: &mut Events, context: &mut Context<'_>) -> Poll<Taken<Error>> {
        let mut share = Share::default();
        let taken = events.poll_take(context, self.depth, &mut share);
        self.after = self.after.max(events.passed());
        match taken {
            Poll::Ready(Taken::Events) => {
                let share = self.unseen(share);
                self.took(share);
            }
            Poll::Pending if !self.versions.is_empty() => {
                self.versions.caught_up(&self.kept.cache.inner().fold);
            }
            Poll::Ready(Taken::Gone | Taken::Over(_)) | Poll::Pending => {}
        }
        taken
    }

    /// What of this it has not told yet: a refresh may have found what it has read by itself.
    fn unseen(&mut self, share: Share<Place, Arc<State>>) -> Share<Place, Arc<State>> {
        if self.versions.is_empty() {
            return share;
        }
        let scope = self.portion.scope();
        let covered = (share.left().iter()).filter(|told| scope.covers(&told.event));
        let news = covered.filter(|told| self.versions.admits(&told.event));
        let news = news.map(|told| Told {
            place: told.place,
            bytes: 0,
            event: told.event.clone(),
        });
        Share::of(news.collect())
    }

    /// Something was taken: one look at the clock and at the oldest for all of it, since a thousand subscribers take
    /// each event.
    fn took(&mut self, share: Share<Place, Arc<State>>) {
        self.hold(share, false);
        let oldest = self.portion.covered(self.left.clone()).next();
        if let Some(written) = oldest.and_then(|(_, state)| state.timestamp) {
            let now = self.kept.cache.engine.clock().now();
            self.deliveries.record(now.since(written));
        }
    }

    /// Takes what it has read by itself.
    fn take(&mut self, mut part: Part) {
        let cache = &self.kept.cache;
        // What nobody was told of yet will be told, unless the job has ended before it.
        let upto = {
            let inner = cache.inner();
            part.changes.retain(|seen| match &seen.change {
                Change::Put(record) => !inner.fold.passes_over(record),
                Change::Removed { .. } | Change::Task(_) | Change::Group { .. } => true,
            });
            inner.upto
        };
        let mut live = Vec::new();
        for Seen { place, change, .. } in part.changes {
            // An entry that is answered twice is told once.
            if place <= self.after || place > upto {
                continue;
            }
            self.after = place;
            match change {
                Change::Put(record) => match Stored::read(&cache.keys, &record) {
                    Ok(Stored { state, .. }) => {
                        if self.portion.scope().covers(&state) && self.versions.admits(&state) {
                            live.push(Told {
                                place,
                                bytes: 0,
                                event: Arc::new(state),
                            });
                        }
                    }
                    // Whoever keeps the states has already told of what cannot be read.
                    Err(_) => self.versions.forget(&cache.keys, &record.key),
                },
                Change::Removed { key, .. } => self.versions.forget(&cache.keys, &key),
                Change::Task(_) | Change::Group { .. } => {}
            }
        }
        self.after = self.after.max(part.upto.min(upto));
        self.took(Share::of(live));
    }

    /// Gives up what it has not told yet.
    fn abandon(&mut self) {
        self.after = self.reached().unwrap_or(self.after);
        let replay = self.replay.take().map_or(0, |replay| replay.left());
        let abandoned = replay + self.portion.covered(self.left.clone()).count();
        self.hold(Share::default(), false);
        let telemetry = self.kept.cache.engine.telemetry();
        telemetry.states.abandoned(abandoned);
    }

    /// Ends, with an error.
    fn end(&mut self, error: Error) -> Poll<Option<Result<Point>>> {
        self.step = Step::Over;
        Poll::Ready(Some(Err(error)))
    }
}

impl Subscription {
    /// Goes a step further. `None`: there may be a state now.
    fn go_on(&mut self, context: &mut Context<'_>) -> Option<Poll<Option<Result<Point>>>> {
        match std::mem::replace(&mut self.step, Step::Over) {
            Step::Replaying(events) => {
                let engine = &self.kept.cache.engine;
                let took = engine.clock().monotonic().saturating_sub(self.began);
                engine.telemetry().states.replayed(took);
                self.step = Step::Live(events);
                self.is_live = true;
                let cursor = self.portion.cursor(self.after);
                return Some(Poll::Ready(Some(Ok(Point::ReplayComplete(cursor)))));
            }
            Step::Live(mut events) => match self.poll_live(&mut events, context) {
                Poll::Ready(Taken::Events) => self.step = Step::Live(events),
                Poll::Ready(Taken::Gone) => self.step = Step::Reading(events, self.read()),
                Poll::Ready(Taken::Over(error)) => return Some(self.end(error)),
                Poll::Pending => {
                    self.waiting = true;
                    self.step = Step::Live(events);
                    return Some(Poll::Pending);
                }
            },
            Step::Reading(mut events, mut work) => match work.poll_unpin(context) {
                Poll::Ready(Ok(part)) => {
                    self.take(part);
                    self.step = match events.seek(self.after) {
                        true => Step::Live(events),
                        false => Step::Reading(events, self.read()),
                    };
                }
                Poll::Ready(Err(Error::NotFound(NotFound::History { .. }))) => {
                    self.began = self.kept.cache.engine.clock().monotonic();
                    self.step = Step::Restarting(self.restart());
                    self.is_live = false;
                    return Some(Poll::Ready(Some(Ok(Point::Restarted))));
                }
                Poll::Ready(Err(error)) => return Some(self.end(error)),
                Poll::Pending => {
                    self.step = Step::Reading(events, work);
                    return Some(Poll::Pending);
                }
            },
            Step::Restarting(mut work) => match work.poll_unpin(context) {
                Poll::Ready(Ok(snapshot)) => self.begin(snapshot),
                Poll::Ready(Err(error)) => return Some(self.end(error)),
                Poll::Pending => {
                    self.step = Step::Restarting(work);
                    return Some(Poll::Pending);
                }
            },
            Step::Over => return Some(Poll::Ready(None)),
        }
        None
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f.debug_struct("Subscription")
            .field("scope", self.portion.scope()))
        .field("after", &self.after)
        .field("step", &self.step)
        .finish_non_exhaustive()
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaying(_) => "Replaying",
            Self::Live(_) => "Live",
            Self::Reading(..) => "Reading",
            Self::Restarting(_) => "Restarting",
            Self::Over => "Over",
        })
    }
}
