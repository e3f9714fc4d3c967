//! One who tells events, many who read them, each at its own pace.
//!
//! The last events are kept, bounded by number and by bytes. A reader takes them when it wants to; one
//! that is so slow that they are gone is told so, and reads them elsewhere. So nobody is held up by a
//! slow reader, and a slow reader costs no memory.
//!
//! Locks and nothing else: `tests/fanout.rs` tries all the ways in which threads can meet in here.

use std::collections::VecDeque;
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
    /// Everything up to this place was told.
    upto: P,
    over: Option<E>,
    /// By the slot of each reader: which event it waits for, if it does. A place in a row, since a thousand
    /// readers wait anew for each event.
    waiting: Vec<Option<(u64, Waker)>>,
    /// Slots that nobody has.
    free: Vec<usize>,
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
            upto: after,
            over: None,
            waiting: Vec::new(),
            free: Vec::new(),
        };
        Self {
            kept: Mutex::new(kept),
            events_max: events_max.max(1),
            bytes_max,
        }
    }

    /// Tells events, in the order of their places, and that there are no others up to a place. Answers
    /// how many readers it woke.
    pub(crate) fn tell(&self, events: impl IntoIterator<Item = Told<P, T>>, upto: P) -> usize {
        self.keep(events, upto);
        self.wake()
    }

    /// Tells events to those who look. Somebody has to [wake](Self::wake) the others.
    pub(crate) fn keep(&self, events: impl IntoIterator<Item = Told<P, T>>, upto: P) {
        let mut kept = self.kept();
        for told in events {
            kept.bytes += told.bytes;
            kept.events.push_back(told);
        }
        kept.upto = kept.upto.max(upto);
        while kept.events.len() > self.events_max
            || (kept.bytes > self.bytes_max && kept.events.len() > 1)
        {
            if let Some(gone) = kept.events.pop_front() {
                kept.bytes -= gone.bytes;
                kept.after = gone.place;
                kept.first += 1;
            }
        }
    }

    /// Wakes the readers that wait for what is there. Answers how many.
    pub(crate) fn wake(&self) -> usize {
        let kept = self.kept();
        let next = kept.next();
        wake(kept, |event| event < next)
    }

    /// Forgets everything: what comes next is from after this place, and something may be missing in
    /// between.
    pub(crate) fn restart(&self, after: P) {
        let mut kept = self.kept();
        kept.first = kept.next() + 1;
        kept.events.clear();
        kept.bytes = 0;
        kept.after = after;
        kept.upto = after;
        wake(kept, |_| true);
    }

    /// Nothing more will come.
    pub(crate) fn end(&self, how: E) {
        let mut kept = self.kept();
        kept.over.get_or_insert(how);
        wake(kept, |_| true);
    }

    /// A reader of what comes from now on.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader<P, T, E> {
        let mut kept = self.kept();
        let slot = kept.free.pop().unwrap_or_else(|| {
            kept.waiting.push(None);
            kept.waiting.len() - 1
        });
        Reader {
            next: kept.next(),
            fanout: self.clone(),
            slot,
            after: None,
            passed: kept.upto,
        }
    }

    /// How far was told.
    pub(crate) fn upto(&self) -> P {
        self.kept().upto
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

/// Wakes those who wait for such an event, after the lock is free again. Answers how many.
fn wake<P, T, E>(mut kept: MutexGuard<'_, Kept<P, T, E>>, which: impl Fn(u64) -> bool) -> usize {
    let waiting = kept.waiting.iter_mut();
    let woken = waiting.filter_map(|waits| waits.take_if(|(event, _)| which(*event)));
    let woken: Vec<_> = woken.collect();
    drop(kept);
    let count = woken.len();
    woken.into_iter().for_each(|(_, waker)| waker.wake());
    count
}

/// Reads events at its own pace.
pub(crate) struct Reader<P, T, E> {
    fanout: Arc<Fanout<P, T, E>>,
    slot: usize,
    next: u64,
    /// What is not after this place it knows already, from elsewhere.
    after: Option<P>,
    passed: P,
}

impl<P: Ord + Copy, T: Clone, E: Clone> Reader<P, T, E> {
    /// Takes up to `max` of the events that it wants, as soon as there is one.
    pub(crate) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
        wants: impl Fn(&T) -> bool,
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
            self.passed = told.place;
            if self.after.is_none_or(|after| told.place > after) && wants(&told.event) {
                into.push_back((told.place, told.event.clone()));
            }
        }
        if into.len() > before {
            return Poll::Ready(Taken::Events);
        }
        self.passed = kept.upto;
        if let Some(over) = &kept.over {
            return Poll::Ready(Taken::Over(over.clone()));
        }
        match kept.waiting.get_mut(self.slot) {
            Some(Some((event, waker))) => {
                *event = self.next;
                waker.clone_from(context.waker());
            }
            Some(waits) => *waits = Some((self.next, context.waker().clone())),
            // It has its slot as long as it lives.
            None => {}
        }
        Poll::Pending
    }

    /// It has taken everything up to here that it wants.
    pub(crate) fn passed(&self) -> P {
        self.passed
    }

    /// Goes on after this place, if everything from there on is kept or has yet to be told.
    pub(crate) fn seek(&mut self, after: P) -> bool {
        let kept = self.fanout.kept();
        if after < kept.after {
            return false;
        }
        // What is told later and is not after that place it knows already.
        self.after = (after > kept.upto).then_some(after);
        self.passed = after;
        let read = kept.events.partition_point(|told| told.place <= after);
        self.next = kept.first + read as u64;
        true
    }
}

impl<P, T, E> Drop for Reader<P, T, E> {
    fn drop(&mut self) {
        let kept = &self.fanout.kept;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = kept.waiting.get_mut(self.slot).and_then(Option::take);
        kept.free.push(self.slot);
        // A waker may run anything when it is dropped.
        drop(kept);
        drop(waits);
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
