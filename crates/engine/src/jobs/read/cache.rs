//! The states of one job in this process, kept warm by the history: one for all who read them.
//!
//! From when it serves, what it holds is exactly what the history says up to a place. It folds what it is
//! told and passes it on to subscribers under one lock, so that whoever takes a snapshot together with a
//! reader misses nothing and gets nothing twice.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use plimsoll_core::change::{Change, Entry, Interest};
use plimsoll_core::error::{Applied, Conflict, NotFound, Unavailable};
use plimsoll_core::record::Record;
use plimsoll_core::{Error, Key, Name, Position, Prefix, Result, Revision};
use tokio::sync::Notify;
use tracing::{error, warn};

use super::aims::{Aim, Aims, Decided, Goal};
use super::fold::{Fold, News};
use super::load;
use super::replay::{Moment, Replay, Replays};
use super::wake::Wakes;
use crate::Engine;
use crate::history::{Bears, Fanout, Follower, POLL, Patience, Place, Reader, Told, Woken, places};
use crate::jobs::info::{self, Job, Life};
use crate::jobs::stored::{Keys, Own};
use crate::jobs::{Scope, State};
use crate::spawn::Spawner;

/// How many events are kept for those who are slow, unless the engine says so, and about how many bytes of them.
const EVENTS_KEPT: usize = 4_096;
const BYTES_KEPT: usize = 4 << 20;

/// Reads what subscribers are told.
pub(crate) type Events = Reader<Place, Arc<State>, Error>;

/// What was told, a reader of what is told from then on, and up to where it was.
pub(crate) type Snapshot = (Replay, Events, Place);

/// The states of one job.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) engine: Engine,
    pub(crate) keys: Arc<Keys>,
    pub(crate) me: Weak<Self>,
    /// Which changes have places.
    pub(crate) states: Interest,
    inner: Mutex<Inner>,
    pub(crate) events: Arc<Fanout<Place, Arc<State>, Error>>,
    pub(super) wakes: Mutex<Wakes>,
    changed: Arc<Notify>,
}

/// What the cache holds, under its lock. Whoever is woken by what happens meanwhile is woken as soon as that is free
/// again: a waker may run anything, also a look at the states.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    inner: MutexGuard<'a, Inner>,
    // Dropped after the lock, in the order of fields.
    later: Later,
}

/// Those who are woken when this is dropped, and what goes with it.
#[derive(Debug, Default)]
struct Later {
    readers: Vec<Woken>,
    decided: Decided,
    past: Replays,
    /// Those who ask until there is an answer.
    asking: Option<Arc<Notify>>,
}

impl Deref for Held<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.later = std::mem::take(&mut self.inner.later);
        self.later.decided = self.inner.aims.decided();
        let now = self.inner.moment();
        self.later.past = self.inner.replays.past(now);
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if let Some(asking) = &self.asking {
            asking.notify_waiters();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    phase: Phase,
    /// Which load or refresh is the one that counts.
    pub(crate) epoch: u64,
    /// Told up to here.
    pub(crate) upto: Place,
    job: Option<Job>,
    /// A record of the job below this revision is out of date, as the history says.
    job_from: Revision,
    /// The history says that there is one.
    job_there: bool,
    pub(crate) fold: Fold,
    pub(super) replays: Replays,
    /// What barriers wait for.
    aims: Aims,
    /// What was written in this process before it was known which life of the job is read.
    early: BTreeMap<Key, (Life, Own)>,
    patience: Patience,
    /// Who is woken as soon as the lock is free.
    later: Later,
}

impl Inner {
    fn moment(&self) -> Moment {
        (self.epoch, self.fold.turn())
    }
}

#[derive(Debug)]
enum Phase {
    Loading,
    Serving,
    Closed(Error),
}

impl Cache {
    pub(crate) fn new(engine: Engine, keys: Arc<Keys>) -> Arc<Self> {
        let place = Place::after(Position::ZERO);
        let events_kept = engine.views().events_kept.unwrap_or(EVENTS_KEPT);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            states: Interest::Records(keys.states.clone()),
            inner: Mutex::new(Inner {
                phase: Phase::Loading,
                epoch: 0,
                upto: place,
                job: None,
                job_from: Revision::default(),
                job_there: false,
                fold: Fold::new(keys.clone()),
                replays: Replays::default(),
                aims: Aims::default(),
                early: BTreeMap::new(),
                patience: Patience::default(),
                later: Later::default(),
            }),
            events: Arc::new(Fanout::new(place, events_kept, BYTES_KEPT)),
            wakes: Mutex::default(),
            changed: Arc::default(),
            engine,
            keys,
        })
    }

    pub(crate) fn inner(&self) -> Held<'_> {
        Held {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            later: Later::default(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.inner().phase, Phase::Closed(_))
    }

    /// Which life of the job is read, as soon as that is known.
    pub(crate) async fn which_life(&self) -> Result<Life> {
        self.ask(|inner| Self::life(inner).map(Ok)).await
    }

    /// Whether it is of use to one who reads this life of the job: it goes on, and is not of one before.
    pub(crate) fn serves_life(&self, life: Option<&Life>) -> bool {
        let inner = self.inner();
        let before = |life| Self::life(&inner).is_some_and(|read| read.is_before(life));
        !matches!(inner.phase, Phase::Closed(_)) && !life.is_some_and(before)
    }

    /// Which life of the job is read.
    pub(crate) fn life(inner: &Inner) -> Option<Life> {
        inner.job.as_ref().map(|job| Life::of(&job.info))
    }

    /// Whether reads are answered at once.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.inner().phase, Phase::Serving)
    }

    /// Asks at once; `None`: it does not serve yet.
    pub(crate) fn now<T>(&self, question: impl FnOnce(&Inner) -> Result<T>) -> Option<Result<T>> {
        let inner = self.inner();
        match &inner.phase {
            Phase::Loading => None,
            Phase::Serving => Some(question(&inner)),
            Phase::Closed(error) => Some(Err(error.clone())),
        }
    }

    /// Waits until there is an answer.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Whatever changes from here on is not missed.
            changed.as_mut().enable();
            if let Some(answer) = look(&mut self.inner()) {
                return answer;
            }
            changed.await;
        }
    }

    /// Asks as soon as it serves, and until there is an answer.
    pub(crate) async fn ask<T>(
        &self,
        mut question: impl FnMut(&Inner) -> Option<Result<T>>,
    ) -> Result<T> {
        self.until(|inner| match &inner.phase {
            Phase::Loading => None,
            Phase::Serving => question(inner),
            Phase::Closed(error) => Some(Err(error.clone())),
        })
        .await
    }

    /// What was told of a scope, and a reader of what is told from then on.
    pub(crate) async fn snapshot(&self, scope: &Scope) -> Result<Snapshot> {
        let read = |inner: &mut Inner| {
            inner.fold.in_range(scope)?;
            let as_of = inner.moment();
            let told = match inner.replays.find(as_of, scope) {
                Some(replay) => Ok(replay),
                None => Err(inner.fold.told(scope)),
            };
            Ok((as_of, told, self.events.reader(), inner.upto))
        };
        let snapshot = self.until(|inner| match &inner.phase {
            Phase::Loading => None,
            Phase::Serving => Some(read(inner)),
            Phase::Closed(error) => Some(Err(error.clone())),
        });
        let (as_of, told, events, upto) = snapshot.await?;
        let replay = match told {
            Ok(replay) => replay,
            // Nobody waits while it is put in order.
            Err(told) => self.hand_on(as_of, scope, Replay::of(told, upto)),
        };
        Ok((replay, events, upto))
    }

    /// Lets whoever begins at this moment, if it is not over, have the same; or has what somebody else was faster with.
    fn hand_on(&self, as_of: Moment, scope: &Scope, replay: Replay) -> Replay {
        let mut inner = self.inner();
        if inner.moment() != as_of {
            return replay;
        }
        let (replay, past) = match inner.replays.find(as_of, scope) {
            Some(faster) => (faster, None),
            None => {
                let past = inner.replays.keep(as_of, scope, &replay);
                (replay, Some(past))
            }
        };
        drop(inner);
        drop(past);
        replay
    }

    /// A reader of what is told of a scope from now on, and up to where it was told.
    pub(crate) async fn reader(&self, scope: &Scope) -> Result<(Events, Place)> {
        self.ask(|inner| {
            let in_range = inner.fold.in_range(scope).map_err(Error::from);
            Some(in_range.map(|()| (self.events.reader(), inner.upto)))
        })
        .await
    }

    /// What a barrier waits for, from when it serves.
    pub(crate) async fn aim(&self, tag: &Name, goal: Goal) -> Result<Arc<Aim>> {
        self.until(|inner| match &inner.phase {
            Phase::Loading => None,
            Phase::Serving => Some(Ok(inner.aims.begin(&inner.fold, tag, goal))),
            Phase::Closed(error) => Some(Err(error.clone())),
        })
        .await
    }

    /// Waits until everything is told that the store has acknowledged.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let newest = load::newest(self).await?;
        self.engine.tail().look();
        self.ask(|inner| (inner.upto >= newest).then_some(Ok(())))
            .await
    }

    /// States were written in this process, in this life of the job.
    pub(crate) fn wrote(&self, life: &Life, owns: Vec<Own>) {
        let mut inner = self.inner();
        match &inner.job {
            Some(job) if Life::of(&job.info) == *life => {
                for own in owns {
                    let key = own.key.clone();
                    inner.fold.wrote(own);
                    self.aim_at(&mut inner, &key);
                }
            }
            Some(_) => {}
            None => {
                let early = |own: Own| (own.key.clone(), (*life, own));
                inner.early.extend(owns.into_iter().map(early));
            }
        }
    }

    /// Serves from now on what it holds: it has been told everything up to its place.
    pub(crate) fn serve(&self, inner: &mut Inner) {
        if let (Phase::Loading, Some(job)) = (&inner.phase, &inner.job) {
            let life = Life::of(&job.info);
            for (written_in, own) in std::mem::take(&mut inner.early).into_values() {
                if written_in == life {
                    inner.fold.wrote(own);
                }
            }
            inner.fold.ready(job.info.partitions);
            inner.phase = Phase::Serving;
            inner.aims.all_changed(&inner.fold);
            let woken = self.events.restart(inner.upto);
            inner.later.readers.push(woken);
            inner.later.asking = Some(self.changed.clone());
        }
    }

    /// Nobody is told anything any more. Whoever reads next begins anew.
    pub(crate) fn close(&self, inner: &mut Inner, error: Error) {
        if !matches!(inner.phase, Phase::Closed(_)) {
            inner.phase = Phase::Closed(error.clone());
            inner.epoch += 1;
            inner.aims.end(&error);
            inner.later.readers.push(self.events.end(error));
            inner.later.asking = Some(self.changed.clone());
        }
    }

    /// Nobody reads any more: nothing is loaded, and whoever tells it something is not heard.
    pub(crate) fn abandon(&self) {
        self.close(&mut self.inner(), Error::Closed);
    }

    /// A state has changed: barriers go by that.
    fn aim_at(&self, inner: &mut Inner, key: &Key) {
        if !matches!(inner.phase, Phase::Serving) || inner.aims.is_empty() {
            return;
        }
        if let Some((partition, tag)) = self.keys.parse(key) {
            inner.aims.changed(&inner.fold, partition, &tag);
        }
    }

    /// Folds a record that a scan or the history shows.
    pub(crate) fn put(&self, inner: &mut Inner, record: &Record) -> Option<Arc<State>> {
        match inner.fold.put(record) {
            News::Known => None,
            News::State(state) => Some(state),
            News::Unreadable(error) => {
                self.engine.telemetry().states.unreadable();
                let (partition, tag) = self.keys.parse(&record.key).unzip();
                error!(
                    jobID = %self.keys.name,
                    taskID = partition,
                    tag = tag.as_ref().map(|tag| tag.as_str()),
                    key = %record.key,
                    %error,
                    "🔴 state cannot be read"
                );
                None
            }
        }
    }

    /// Passes states on to subscribers, who have yet to be [woken](Self::wake).
    pub(crate) fn tell(&self, inner: &Inner, events: Vec<Told<Place, Arc<State>>>) {
        self.events.keep(events, inner.upto);
    }

    /// Whether this record of the job, as it was read, is what the history has told or newer.
    pub(crate) fn is_fresh(&self, inner: &Inner, record: Option<&Record>) -> bool {
        match record {
            Some(record) => record.revision >= inner.job_from,
            None => !inner.job_there,
        }
    }

    /// The job's own record, as the store shows it.
    pub(crate) fn job(&self, inner: &mut Inner, record: Option<&Record>) -> Result<()> {
        let name = || self.keys.name.clone();
        let record = match record {
            Some(record) => record,
            None if inner.job.is_some() => return Err(Conflict::JobDeleted { job: name() }.into()),
            None => return Err(NotFound::Job(name()).into()),
        };
        let known = inner.job.as_ref();
        if known.is_some_and(|known| record.revision < known.revision) {
            return Ok(());
        }
        let job = match Job::read(record) {
            Ok(job) => job,
            // Somebody else wrote this. Unless it is plainly another job, it is the one that was known.
            Err(error) if known.is_some_and(|known| known.may_be(record)) => {
                let key = &record.key;
                error!(jobID = %self.keys.name, %key, %error, "🔴 job cannot be read");
                return Ok(());
            }
            Err(_) if known.is_some() => {
                return Err(Conflict::JobDeleted { job: name() }.into());
            }
            Err(error) => return Err(error),
        };
        // Another life is another job.
        let same = known.is_none_or(|known| Life::of(&known.info) == Life::of(&job.info));
        if !same || job.phase == info::Phase::Deleted {
            return Err(Conflict::JobDeleted { job: name() }.into());
        }
        inner.job = Some(job);
        Ok(())
    }

    /// What the history says of the job's own record. Before that was read, only which one not to rely on.
    fn job_told(&self, inner: &mut Inner, change: &Change) -> Result<()> {
        let from = match change {
            Change::Put(record) if record.key == self.keys.job => record.revision,
            Change::Removed { key, revision, .. } if *key == self.keys.job => {
                Revision::new(revision.get().saturating_add(1))
            }
            _ => return Ok(()),
        };
        inner.job_from = inner.job_from.max(from);
        inner.job_there = matches!(change, Change::Put(_));
        let Some(known) = inner.job.as_ref().map(|job| job.revision) else {
            return Ok(());
        };
        match change {
            Change::Put(record) if record.key == self.keys.job => self.job(inner, Some(record)),
            Change::Removed { key, revision, .. }
                if *key == self.keys.job && *revision >= known =>
            {
                self.job(inner, None)
            }
            _ => Ok(()),
        }
    }

    fn state_told(
        &self,
        inner: &mut Inner,
        (place, change): (Place, &Change),
    ) -> Option<Told<Place, Arc<State>>> {
        let (key, event) = match change {
            Change::Put(record) => (&record.key, self.put(inner, record)),
            Change::Removed { key, revision, .. } => {
                inner.fold.remove(key, *revision);
                (key, None)
            }
            Change::Task(_) | Change::Group { .. } => return None,
        };
        // Also what was known: something that this process has written may be told now.
        self.aim_at(inner, key);
        event.map(|event| Told {
            place,
            bytes: change.size(),
            event,
        })
    }

    /// What the history should have told and has not was adopted, in no order: barriers go by what is there after all
    /// of it.
    pub(crate) fn adopted(&self, inner: &mut Inner) {
        inner.aims.all_changed(&inner.fold);
    }

    fn spawn_load(&self, refresh: bool, epoch: u64) {
        if let Some(me) = self.me.upgrade() {
            Spawner::current().spawn(load::run(me, refresh, epoch));
        }
    }
}

impl Follower for Cache {
    fn interests(&self) -> Vec<Interest> {
        // Whatever else begins with the key of the job is not looked at.
        let job = Prefix::new(self.keys.job.as_str()).map(Interest::Records);
        match self.is_closed() {
            true => Vec::new(),
            false => job.into_iter().chain([self.states.clone()]).collect(),
        }
    }

    fn poll(&self) -> Duration {
        POLL
    }

    fn rest(&self) -> Duration {
        let now = self.engine.clock().monotonic();
        self.wakes().rest(now)
    }

    fn gives_way(&self) -> bool {
        self.wakes().has_told_much()
    }

    fn begins(&self, after: Position) {
        let mut inner = self.inner();
        if matches!(inner.phase, Phase::Closed(_)) {
            return;
        }
        inner.phase = Phase::Loading;
        inner.job_from = Revision::default();
        inner.job_there = false;
        inner.fold = Fold::new(self.keys.clone());
        inner.upto = Place::after(after);
        inner.epoch += 1;
        self.spawn_load(false, inner.epoch);
    }

    fn told(&self, entries: &[Entry], upto: Position) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        if matches!(inner.phase, Phase::Closed(_)) {
            return;
        }
        let mut events = Vec::new();
        let (mut upto, mut end) = (upto, Ok(()));
        for entry in entries {
            // What was told before is recognised by its revision, wherever it is told again.
            let states = places(entry, &self.states);
            events.extend(states.filter_map(|one| self.state_told(inner, one)));
            end = (entry.changes.iter()).try_for_each(|change| self.job_told(inner, change));
            if end.is_err() {
                upto = entry.position;
                break;
            }
        }
        inner.upto = inner.upto.max(Place::after(upto));
        if matches!(inner.phase, Phase::Serving) {
            self.tell(inner, events);
        }
        if let Err(error) = end {
            self.close(inner, error);
        }
        // Whoever reads or writes does not wait until all are woken.
        drop(guard);
        self.changed.notify_waiters();
        self.wakes()
            .told(entries.iter().map(|entry| entry.changes.len()).sum());
        self.wake();
    }

    fn gone(&self) {
        // It begins again at once, and reads everything anew.
        warn!(jobID = %self.keys.name, "🟡 listener fell behind the history that is kept");
    }

    fn failing(&self, _: u32, error: &Error) -> Option<Duration> {
        let mut inner = self.inner();
        let now = self.engine.clock().monotonic();
        if matches!(inner.phase, Phase::Closed(_)) {
            return None;
        }
        let bears = inner.patience.failed(&self.engine.reconnect(), now);
        let job = &self.keys.name;
        match bears {
            Bears::Already(_) => {}
            Bears::Attempt(attempt, _) => {
                warn!(jobID = %job, %error, attempt, "🟡 listener disconnected");
            }
            Bears::No(attempt) => {
                error!(jobID = %job, %error, attempt, "🔴 listener gave up, subscriptions end");
                self.close(&mut inner, error.clone());
            }
        }
        bears.wait()
    }

    fn back(&self) {
        let mut inner = self.inner();
        if inner.patience.restore() {
            self.engine.telemetry().states.reconnected();
            if matches!(inner.phase, Phase::Serving) {
                inner.epoch += 1;
                self.spawn_load(true, inner.epoch);
            }
        }
    }

    fn over(&self, error: Option<&Error>) {
        let error = error.cloned().unwrap_or_else(|| {
            Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: "the runtime that followed the history has ended".into(),
            })
        });
        self.close(&mut self.inner(), error);
    }
}
