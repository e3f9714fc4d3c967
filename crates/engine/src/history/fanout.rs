//! One who tells events, many who read them, each at its own pace.
//!
//! The last events are kept, bounded by number and by bytes. A reader takes them when it wants to; one
//! that is so slow that they are gone is told so, and reads them elsewhere. So nobody is held up by a
//! slow reader, and a slow reader costs no memory.
//!
//! Events are kept in batches, and a reader takes its share of one: a thousand readers have the same batch,
//! not a thousand copies.
//!
//! Locks and nothing else: `tests/fanout.rs` tries all the ways in which threads can meet in here.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::task::{Context, Poll, Waker};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which part of what is kept a batch has at most, in events and in bytes. A reader takes from one batch at once: where
/// a thousand take hundreds every few milliseconds, larger ones cost less. Who holds an event holds its batch.
const BATCH_PART: usize = 8;
/// As many as most readers take at once are in a batch, if so many are kept.
const BATCH_EVENTS_MIN: usize = 64;

/// The last events of type `T`, each at a place `P`, until an end `E`.
pub(crate) struct Fanout<P, T, E> {
    kept: Mutex<Kept<P, T, E>>,
    events_max: usize,
    bytes_max: usize,
}

struct Kept<P, T, E> {
    /// Without a gap from `first` to `next`. The first one may begin before that.
    batches: VecDeque<Arc<Batch<P, T>>>,
    batch_events_max: usize,
    batch_bytes_max: usize,
    bytes: usize,
    /// The number of the first event that is kept. Numbers only grow.
    first: u64,
    /// The number of the next event.
    next: u64,
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

/// Events one after the other.
struct Batch<P, T> {
    /// The number of the first one.
    first: u64,
    events: Vec<Told<P, T>>,
    bytes: usize,
}

/// An event, where it is, and about how many bytes it takes.
pub(crate) struct Told<P, T> {
    pub(crate) place: P,
    pub(crate) bytes: usize,
    pub(crate) event: T,
}

/// Some events of a batch, for one who reads them.
pub(crate) struct Share<P, T> {
    /// `None`: nothing is left, and nothing is held.
    batch: Option<Arc<Batch<P, T>>>,
    left: Range<usize>,
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

impl<P: Ord + Copy, T, E: Clone> Fanout<P, T, E> {
    /// Events come from after this place. At least one is kept.
    pub(crate) fn new(after: P, events_max: usize, bytes_max: usize) -> Self {
        let kept = Kept {
            batches: VecDeque::new(),
            batch_events_max: (events_max / BATCH_PART).max(BATCH_EVENTS_MIN.min(events_max)),
            batch_bytes_max: bytes_max / BATCH_PART,
            bytes: 0,
            first: 0,
            next: 0,
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
        events.into_iter().for_each(|told| kept.push(told));
        kept.upto = kept.upto.max(upto);
        while kept.len() > self.events_max as u64 || (kept.bytes > self.bytes_max && kept.len() > 1)
        {
            kept.forget();
        }
    }

    /// Wakes the readers that wait for what is there. Answers how many.
    pub(crate) fn wake(&self) -> usize {
        let kept = self.kept();
        let next = kept.next;
        wake(kept, |event| event < next).0.len()
    }

    /// How many readers wait for what is there, and how many events that is for all of them together.
    pub(crate) fn awaited(&self) -> (usize, u64) {
        let kept = self.kept();
        let waiting = kept.waiting.iter().flatten();
        let awaited = waiting.map(|(event, _)| kept.next.saturating_sub(*event));
        (awaited.filter(|events| *events > 0))
            .fold((0, 0), |(readers, all), events| (readers + 1, all + events))
    }

    /// Wakes up to `max` of these readers, beginning with this slot. Answers the slot to go on with; `None`: there
    /// are no more.
    pub(crate) fn wake_some(&self, from: usize, max: usize) -> Option<usize> {
        let mut kept = self.kept();
        let next = kept.next;
        let mut woken = Vec::new();
        let mut slots = kept.waiting.iter_mut().enumerate().skip(from);
        let left = slots.find_map(|(slot, waits)| {
            if woken.len() == max {
                return Some(slot);
            }
            woken.extend(waits.take_if(|(event, _)| *event < next));
            None
        });
        drop(kept);
        woken.into_iter().for_each(|(_, waker)| waker.wake());
        left
    }

    /// Forgets everything: what comes next is from after this place, and something may be missing in
    /// between. Answers whom that wakes.
    pub(crate) fn restart(&self, after: P) -> Woken {
        let mut kept = self.kept();
        // A reader that has read everything misses this one, and so it notices.
        kept.next += 1;
        kept.first = kept.next;
        kept.batches.clear();
        kept.bytes = 0;
        kept.after = after;
        kept.upto = after;
        wake(kept, |_| true)
    }

    /// Nothing more will come. Answers whom that wakes.
    pub(crate) fn end(&self, how: E) -> Woken {
        let mut kept = self.kept();
        kept.over.get_or_insert(how);
        wake(kept, |_| true)
    }

    /// A reader of what comes from now on.
    pub(crate) fn reader(self: &Arc<Self>) -> Reader<P, T, E> {
        let mut kept = self.kept();
        let slot = kept.free.pop().unwrap_or_else(|| {
            kept.waiting.push(None);
            kept.waiting.len() - 1
        });
        Reader {
            next: kept.next,
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

impl<P: Copy, T, E> Kept<P, T, E> {
    fn len(&self) -> u64 {
        self.next - self.first
    }

    fn push(&mut self, told: Told<P, T>) {
        self.bytes += told.bytes;
        // What nobody is reading can grow.
        let last = self.batches.back_mut().and_then(Arc::get_mut);
        let has_room = |batch: &&mut Batch<P, T>| {
            batch.events.len() < self.batch_events_max && batch.bytes < self.batch_bytes_max
        };
        match last.filter(has_room) {
            Some(batch) => {
                batch.bytes += told.bytes;
                batch.events.push(told);
            }
            None => self.batches.push_back(Arc::new(Batch {
                first: self.next,
                bytes: told.bytes,
                events: vec![told],
            })),
        }
        self.next += 1;
    }

    /// Forgets the first event.
    fn forget(&mut self) {
        let Some(batch) = self.batches.front() else {
            return;
        };
        if let Some(gone) = batch.events.get(batch.index(self.first)) {
            self.bytes -= gone.bytes;
            self.after = gone.place;
        }
        self.first += 1;
        if batch.index(self.first) >= batch.events.len() {
            self.batches.pop_front();
        }
    }

    /// Up to `max` events from this number on, if there are any.
    fn share(&self, from: u64, max: usize) -> Option<Share<P, T>> {
        let later = self.batches.partition_point(|batch| batch.first <= from);
        let batch = self.batches.get(later.checked_sub(1)?)?;
        let start = batch.index(from);
        let end = batch.events.len().min(start.saturating_add(max.max(1)));
        (start < end).then(|| Share {
            batch: Some(batch.clone()),
            left: start..end,
        })
    }
}

impl<P: Ord, T, E> Kept<P, T, E> {
    /// The number of the first event after this place.
    fn first_after(&self, after: P) -> u64 {
        let is_read = |told: &Told<P, T>| told.place <= after;
        let read = |batch: &Arc<Batch<P, T>>| batch.events.last().is_some_and(is_read);
        let batch = self.batches.get(self.batches.partition_point(read));
        batch.map_or(self.next, |batch| {
            let read = batch.events.partition_point(is_read) as u64;
            self.first.max(batch.first + read)
        })
    }
}

impl<P, T> Batch<P, T> {
    fn index(&self, number: u64) -> usize {
        usize::try_from(number - self.first).unwrap_or(usize::MAX)
    }
}

impl<P, T> Share<P, T> {
    /// Events that somebody has from elsewhere.
    pub(crate) fn of(events: Vec<Told<P, T>>) -> Self {
        let left = 0..events.len();
        let (first, bytes) = (0, 0);
        let batch = Some(Arc::new(Batch {
            first,
            events,
            bytes,
        }));
        Self { batch, left }
    }

    /// Some of the events.
    pub(crate) fn part(&self, some: Range<usize>) -> Self {
        let end = self.left.end.min(self.left.start + some.end);
        Self {
            batch: self.batch.clone(),
            left: end.min(self.left.start + some.start)..end,
        }
    }

    /// The events.
    #[inline]
    pub(crate) fn left(&self) -> &[Told<P, T>] {
        let events = self.batch.as_ref().map(|batch| &batch.events[..]);
        events
            .and_then(|events| events.get(self.left.clone()))
            .unwrap_or_default()
    }
}

impl<P, T> fmt::Debug for Share<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = &mut f.debug_struct("Share");
        share.field("left", &self.left).finish_non_exhaustive()
    }
}

impl<P, T> Default for Share<P, T> {
    fn default() -> Self {
        let (batch, left) = (None, 0..0);
        Self { batch, left }
    }
}

/// Readers that are woken when this is dropped: not under a lock, since a waker may run anything.
#[derive(Debug, Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Drop for Woken {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}

/// Wakes those who wait for such an event, after the lock is free again.
fn wake<P, T, E>(mut kept: MutexGuard<'_, Kept<P, T, E>>, which: impl Fn(u64) -> bool) -> Woken {
    let waiting = kept.waiting.iter_mut();
    let woken = waiting.filter_map(|waits| waits.take_if(|(event, _)| which(*event)));
    Woken(woken.map(|(_, waker)| waker).collect())
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

impl<P: Ord + Copy, T, E: Clone> Reader<P, T, E> {
    /// Takes up to `max` of the events that come next, as soon as there is one.
    pub(crate) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        max: usize,
        into: &mut Share<P, T>,
    ) -> Poll<Taken<E>> {
        let mut kept = self.fanout.kept();
        if self.next < kept.first {
            return Poll::Ready(Taken::Gone);
        }
        while let Some(mut share) = kept.share(self.next, max) {
            let taken = share.left();
            self.next += taken.len() as u64;
            self.passed = taken.last().map_or(self.passed, |told| told.place);
            if let Some(after) = self.after {
                let known = taken.partition_point(|told| told.place <= after);
                share.left.start += known;
            }
            if !share.left.is_empty() {
                *into = share;
                return Poll::Ready(Taken::Events);
            }
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

    /// It has taken everything up to here.
    pub(crate) fn passed(&self) -> P {
        self.passed
    }

    /// Up to here there is nothing that it has not taken, also of what was told since it looked.
    pub(crate) fn reached(&self) -> P {
        let kept = self.fanout.kept();
        match self.next == kept.next {
            true => kept.upto,
            false => self.passed,
        }
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
        self.next = kept.first_after(after);
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
