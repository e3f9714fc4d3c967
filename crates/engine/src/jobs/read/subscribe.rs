//! Every change of the states of a job, after what there is.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{FutureExt, Stream};
use metrics::Histogram;
use plimsoll_core::change::Change;
use plimsoll_core::error::NotFound;
use plimsoll_core::{Error, Name, Result};

use super::batch::{StateBatch, States};
use super::cache::Events;
use super::event::{Point, StateEvent, SubscribeOptions};
use super::portion::{Portion, ToldState};
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
    replay: VecDeque<Arc<State>>,
    /// What was taken last.
    portion: Arc<Portion>,
    /// What of it is not told yet.
    left: Range<usize>,
    deliveries: Histogram,
    /// Everything up to here is in the buffer, or was.
    after: Place,
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
type Snapshot = (Vec<Arc<State>>, Events, Place);

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
        let (states, mut events, upto) = kept.cache.snapshot(&scope).await?;
        let generation = kept.cache.generation();
        let after = options.after.map(|after| after.of(&job, generation));
        let after = after.transpose()?;
        let mut subscription = Self {
            deliveries: kept.cache.engine.telemetry().states.deliveries(),
            kept,
            depth: options.depth.max(DEPTH_MIN),
            began,
            restarted: false,
            replay: VecDeque::new(),
            portion: Arc::new(Portion::new(job, generation, scope)),
            left: 0..0,
            after: upto,
            versions: Versions::default(),
            step: Step::Over,
            waiting: false,
            closing: None,
        };
        match after {
            None => subscription.begin((states, events, upto)),
            Some(None) => {
                subscription.restarted = true;
                subscription.begin((states, events, upto));
            }
            Some(Some(after)) => {
                subscription.after = after;
                // A place that nobody was told of yet may be one that this history never had.
                subscription.step = match after <= upto && events.seek(after) {
                    true => Step::Live(events),
                    false => Step::Reading(events, subscription.read()),
                };
            }
        }
        Ok(subscription)
    }

    /// Ends, without an error, as soon as this says so.
    pub(crate) fn until(mut self, over: Arc<Over>) -> Self {
        let waits = over.clone();
        let wait = Box::pin(async move { waits.wait().await });
        self.closing = Some(Closing { over, wait });
        self
    }

    /// The next event; `None` after the end.
    #[inline]
    pub async fn next(&mut self) -> Option<Result<StateEvent>> {
        poll_fn(
            #[inline]
            |context| Pin::new(&mut *self).poll_next(context),
        )
        .await
    }

    /// The next events together: the states that are ready, as many as are buffered at most, or what comes between states; `None` after the end.
    ///
    /// Subscribers share the states of a batch, and none is counted or copied for who looks at it. That is felt
    /// where there are hundreds of subscribers. Both ways may be used on the same subscription.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::jobs::{NewState, Scope, StateBatch, SubscribeOptions};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("imports")?));
    /// # let jobs = Engine::new(store).jobs();
    /// let manager = jobs.join("import-7", 0, 4).await?;
    /// for tag in ["ingest", "index"] {
    ///     manager.set_state(NewState::new(tag, 40)?).await?;
    /// }
    ///
    /// let monitor = jobs.monitor("import-7").await?;
    /// let mut events = monitor.subscribe(Scope::all(), SubscribeOptions::default()).await?;
    /// let Some(StateBatch::States(states)) = events.next_batch().await.transpose()? else {
    ///     panic!("there are states");
    /// };
    /// assert!(states.is_replay());
    /// assert!(states.iter().all(|state| state.status == 40));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn next_batch(&mut self) -> Option<Result<StateBatch>> {
        poll_fn(|context| self.poll_told(context, Self::batch)).await
    }

    /// Whether it had nothing left to tell when it was polled last: whatever reads showed before that has
    /// been told. It never is during a replay, and not while it reads what it was too slow for.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Begins to tell what there is.
    fn begin(&mut self, (mut states, events, upto): Snapshot) {
        states.sort_unstable_by(|one, other| {
            let order = |state: &State| (state.timestamp, state.version, state.partition);
            (order(one).cmp(&order(other))).then_with(|| one.tag.cmp(&other.tag))
        });
        self.replay = states.into();
        self.after = upto;
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
        let part = self.replay.len().min(self.depth);
        if part > 0 {
            let place = self.after;
            let told = |event| Told {
                place,
                bytes: 0,
                event,
            };
            let part = self.replay.drain(..part).map(told).collect();
            self.hold(Share::of(part), true);
        } else if !self.portion.all().is_empty() {
            self.hold(Share::default(), false);
        }
        part > 0
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
        let abandoned = self.replay.len() + self.portion.covered(self.left.clone()).count();
        self.replay.clear();
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

impl Stream for Subscription {
    type Item = Result<StateEvent>;

    // What is ready is answered in the caller's own code: to move an event, in a result that has room for any
    // error, takes longer than all the rest.
    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.at_hand() {
            Some(state) => Poll::Ready(Some(Ok(StateEvent::State(state)))),
            None => self.poll_event(context),
        }
    }
}

impl Subscription {
    /// The next state that was taken already.
    #[inline]
    fn at_hand(&mut self) -> Option<ToldState> {
        let closed = |closing: &Closing| closing.over.is();
        if self.restarted || self.closing.as_ref().is_some_and(closed) {
            return None;
        }
        self.left.next().and_then(|index| self.tell(index))
    }

    /// Answers the next event as soon as there is one.
    #[inline(never)]
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<StateEvent>>> {
        self.poll_told(context, Self::event)
    }

    /// Answers what is ready, or what comes next as soon as there is something.
    fn poll_told<T: From<Point>>(
        &mut self,
        context: &mut Context<'_>,
        ready: impl Fn(&mut Self) -> Option<T>,
    ) -> Poll<Option<Result<T>>> {
        self.waiting = false;
        if let Some(closing) = &mut self.closing
            && closing.wait.poll_unpin(context).is_ready()
        {
            self.closing = None;
            self.abandon();
            self.step = Step::Over;
        }
        if std::mem::take(&mut self.restarted) {
            return Poll::Ready(Some(Ok(Point::Restarted.into())));
        }
        loop {
            if let Some(told) = ready(self) {
                return Poll::Ready(Some(Ok(told)));
            }
            if let Some(answer) = self.go_on(context) {
                return answer.map(|told| told.map(|point| point.map(Into::into)));
            }
        }
    }

    /// The next state that is ready.
    fn event(&mut self) -> Option<StateEvent> {
        loop {
            while let Some(index) = self.left.next() {
                if let Some(state) = self.tell(index) {
                    return Some(StateEvent::State(state));
                }
            }
            if !self.refill() {
                return None;
            }
        }
    }

    /// A state of the portion, if it is of the scope.
    #[inline]
    fn tell(&self, index: usize) -> Option<ToldState> {
        let state = &self.portion.all().get(index)?.event;
        let covers = self.portion.scope().covers(state);
        covers.then(|| ToldState::new(self.portion.clone(), index))
    }

    /// All states that are ready.
    fn batch(&mut self) -> Option<StateBatch> {
        loop {
            let some = std::mem::take(&mut self.left);
            if self.portion.covered(some.clone()).next().is_some() {
                let states = States::new(self.portion.clone(), some);
                return Some(StateBatch::States(states));
            }
            if !self.refill() {
                return None;
            }
        }
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
