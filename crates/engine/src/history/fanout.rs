//! One who tells events, many who read them, each at its own pace.
//!
//! The last events are kept, bounded by number and by bytes. A reader takes them when it wants to; one
//! that is so slow that they are gone is told so, and reads them elsewhere. So nobody is held up by a
//! slow reader, and a slow reader costs no memory.
//!
//! Locks and nothing else: `tests/fanout.rs` tries all the ways in which threads can meet in here.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::task::{Context, Poll, Waker};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last events of type `T`, each at a place `P`, until an end `E`.
pub(crate) struct Fanout<P, T, E> {
    kept: Mutex<Kept<P, T, E>>,
    events_max: usize,
    bytes_max: usize,
}

struct Kept<P, T, E> {
    events: VecDeque<Told<P, T>>,
    bytes: usize,
    /// The number of the first event that is kept. Numbers only grow.
    first: u64,
    /// Everything after this place is kept.
    after: P,
    over: Option<E>,
    waiting: BTreeMap<u64, Waker>,
    readers: u64,
}

/// An event, where it is, and about how many bytes it takes.
pub(crate) struct Told<P, T> {
    pub(crate) place: P,
    pub(crate) bytes: usize,
    pub(crate) event: T,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<E> {
    /// Some events.
    Events,
    /// What it was to read next is not kept any more.
    Gone,
    /// It has read everything, and nothing more will come.
    Over(E),
}

impl<P: Ord + Copy, T: Clone, E: Clone> Fanout<P, T, E> {
    /// Events come from after this place. At least one is kept.
    pub(crate) fn new(after: P, events_max: usize, bytes_max: usize) -> Self {
        let kept = Kept {
            events: VecDeque::new(),
            bytes: 0,
            first: 0,
            after,
            over: None,
            waiting: BTreeMap::new(),
            readers: 0,
        };
        Self {
            kept: Mutex::new(kept),
            events_max: events_max.max(1),
            bytes_max,
        }
    }

    /// Tells events, in the order of their places.
    pub(crate) fn tell(&self, events: impl IntoIterator<Item = Told<P, T>>) {
        let mut kept = self.kept();
        let next = kept.next();
        for told in events {
            kept.bytes += told.bytes;
            kept.events.push_back(told);
        }
        if kept.next() == next {
            return;
        }
        while kept.events.len() > self.events_max
            || (kept.bytes > self.bytes_max && kept.events.len() > 1)
        {
            if let Some(gone) = kept.events.pop_front() {
                kept.bytes -= gone.bytes;
                kept.after = gone.place;
                kept.first += 1;
            }
        }
        wake(kept);
    }

    /// Forgets everything: what comes next is from after this place, and something may be missing in
    /// between.
    pub(crate) fn restart(&self, after: P) {
        let mut kept = self.kept();
        kept.first = kept.next() + 1;
        kept.events.clear();
        kept.bytes = 0;
        kept.after = after;
        wake(kept);
    }

    /// Nothing more will come.
    pub(crate) fn end(&self, how: E) {
        let mut kept = self.kept();
        kept.over.get_or_insert(how);
        wake(kept);
    }

    /// A reader of what comes from now on.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader<P, T, E> {
        let mut kept = self.kept();
        let number = kept.readers;
        kept.readers += 1;
        Reader {
            next: kept.next(),
            fanout: self.clone(),
            number,
            after: None,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept<P, T, E>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P, T, E> Kept<P, T, E> {
    /// The number of the next event.
    fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

/// Wakes all who wait, after the lock is free again.
fn wake<P, T, E>(mut kept: MutexGuard<'_, Kept<P, T, E>>) {
    let waiting = std::mem::take(&mut kept.waiting);
    drop(kept);
    waiting.into_values().for_each(Waker::wake);
}

/// Reads events at its own pace.
pub(crate) struct Reader<P, T, E> {
    fanout: Arc<Fanout<P, T, E>>,
    number: u64,
    next: u64,
    /// What is not after this place it knows already, from elsewhere.
    after: Option<P>,
}

impl<P: Ord + Copy, T: Clone, E: Clone> Reader<P, T, E> {
    /// Takes up to `max` events, as soon as there is one.
    pub(crate) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
        into: &mut VecDeque<(P, T)>,
    ) -> Poll<Taken<E>> {
        let mut kept = self.fanout.kept();
        let Some(skip) = self.next.checked_sub(kept.first) else {
            return Poll::Ready(Taken::Gone);
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let before = into.len();
        for told in kept.events.range(skip.min(kept.events.len())..) {
            if into.len() - before == max.max(1) {
                break;
            }
            self.next += 1;
            if self.after.is_none_or(|after| told.place > after) {
                into.push_back((told.place, told.event.clone()));
            }
        }
        if into.len() > before {
            return Poll::Ready(Taken::Events);
        }
        if let Some(over) = &kept.over {
            return Poll::Ready(Taken::Over(over.clone()));
        }
        match kept.waiting.get_mut(&self.number) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                kept.waiting.insert(self.number, context.waker().clone());
            }
        }
        Poll::Pending
    }

    /// Goes on after this place, if everything from there on is kept or has yet to be told.
    pub(crate) fn seek(&mut self, after: P) -> bool {
        let kept = self.fanout.kept();
        if after < kept.after {
            return false;
        }
        self.after = Some(after);
        let read = kept.events.partition_point(|told| told.place <= after);
        self.next = kept.first + read as u64;
        true
    }
}

impl<P, T, E> Drop for Reader<P, T, E> {
    fn drop(&mut self) {
        let kept = &self.fanout.kept;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = kept.waiting.remove(&self.number);
        // A waker may run anything when it is dropped.
        drop(kept);
        drop(waker);
    }
}

impl<P, T, E> fmt::Debug for Fanout<P, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fanout").finish_non_exhaustive()
    }
}

impl<P, T, E> fmt::Debug for Reader<P, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reader = &mut f.debug_struct("Reader");
        reader.field("next", &self.next).finish_non_exhaustive()
    }
}
