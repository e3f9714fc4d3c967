//! How a subscription tells what it has taken: one state after the other, as a `Stream`, or many together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{FutureExt, Stream};
use plimsoll_core::{Error, Result};

use super::{Closing, Step, Subscription};
use crate::jobs::read::batch::{StateBatch, States};
use crate::jobs::read::event::{Cursor, Point, StateEvent};
use crate::jobs::read::portion::LentState;

impl Subscription {
    /// The next event; `None` after the end. It is lent until the next one: [`keep`](StateEvent::keep) makes it one's
    /// own, and so does the `Stream`.
    // What an iterator tells does not borrow it.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Next<'_> {
        Next(Some(self))
    }

    /// The next events together: the states that are ready, as many as are buffered at most, or what comes between states; `None` after the end.
    ///
    /// Subscribers share the states of a batch, and none is counted or copied for who looks at it. All ways may be used
    /// on the same subscription.
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

    /// The same as a `Stream`, which costs those who write much less than the one of single events where many subscribe.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// use plimsoll_engine::jobs::{NewState, Scope, StateBatch, SubscribeOptions};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("imports")?));
    /// # let jobs = Engine::new(store).jobs();
    /// let manager = jobs.join("import-7", 0, 4).await?;
    /// let events = manager.subscribe(Scope::all(), SubscribeOptions::default()).await?;
    /// manager.set_state(NewState::new("ingest", 40)?).await?;
    ///
    /// let mut batches = events.batches();
    /// while let Some(batch) = batches.try_next().await? {
    ///     let StateBatch::States(states) = batch else { continue };
    ///     assert!(states.iter().all(|state| state.status == 40));
    ///     break;
    /// }
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn batches(self) -> Batches {
        Batches(self)
    }
}

/// A subscription as a `Stream` of batches: see [`Subscription::batches`]. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Batches(Subscription);

impl Batches {
    /// Goes on from here, as [`Subscription::cursor`].
    pub fn cursor(&self) -> Option<Cursor> {
        self.0.cursor()
    }
}

impl Stream for Batches {
    type Item = Result<StateBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_told(context, Subscription::batch)
    }
}

/// What [`Subscription::next`] waits for. To drop it before it is ready loses nothing. Once it was, it is
/// [`Unsupported`](Error::Unsupported) to ask it again.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Next<'a>(Option<&'a mut Subscription>);

impl<'a> Future for Next<'a> {
    type Output = Option<Result<StateEvent<LentState<'a>>>>;

    // What is ready is answered in the caller's own code: to move an event, in a result that has room for any
    // error, takes longer than all the rest.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(subscription) = self.0.take() else {
            return Poll::Ready(Some(Err(asked_again())));
        };
        let coming = match subscription.at_hand() {
            Some(index) => Coming::State(index),
            None => match subscription.poll_coming(context) {
                Poll::Ready(Some(Ok(coming))) => coming,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.0 = Some(subscription);
                    return Poll::Pending;
                }
            },
        };
        Poll::Ready(Some(Ok(subscription.tell(coming))))
    }
}

/// Not the end: somebody would believe it.
#[cold]
fn asked_again() -> Error {
    Error::Unsupported("this future has answered: call next() for the next event".into())
}

impl Stream for Subscription {
    type Item = Result<StateEvent>;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.at_hand() {
            Some(index) => Poll::Ready(Some(Ok(self.tell(Coming::State(index)).keep()))),
            None => self
                .poll_coming(context)
                .map_ok(|coming| self.tell(coming).keep()),
        }
    }
}

/// What comes next: a state of the portion, or what is told between states.
enum Coming {
    State(usize),
    Point(Point),
}

impl From<Point> for Coming {
    fn from(point: Point) -> Self {
        Self::Point(point)
    }
}

impl Subscription {
    #[inline]
    fn tell(&self, coming: Coming) -> StateEvent<LentState<'_>> {
        match coming {
            Coming::State(index) => StateEvent::State(LentState::new(&self.portion, index)),
            Coming::Point(point) => point.into(),
        }
    }

    /// The next state that was taken already, unless it is of another scope.
    #[inline(always)]
    fn at_hand(&mut self) -> Option<usize> {
        let closed = |closing: &Closing| closing.over.is();
        if self.restarted || self.closing.as_ref().is_some_and(closed) {
            return None;
        }
        self.left.next().filter(|index| self.covers(*index))
    }

    /// Answers what comes next as soon as it is there.
    #[inline(never)]
    fn poll_coming(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Coming>>> {
        self.poll_told(context, Self::coming)
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
    fn coming(&mut self) -> Option<Coming> {
        loop {
            while let Some(index) = self.left.next() {
                if self.covers(index) {
                    return Some(Coming::State(index));
                }
            }
            if !self.refill() {
                return None;
            }
        }
    }

    /// Whether a state of the portion is of the scope.
    #[inline]
    fn covers(&self, index: usize) -> bool {
        let told = self.portion.all().get(index);
        told.is_some_and(|told| self.portion.scope().covers(&told.event))
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
