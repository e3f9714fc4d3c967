//! What the handles of a job read with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use plimsoll_core::error::{Conflict, NotFound};
use plimsoll_core::{Error, Name, Result};

use super::aggregate::Progress;
use super::barrier::Barrier;
use super::cache::{Cache, Inner};
use crate::Engine;
use crate::history::Following;
use crate::jobs::info::Life;
use crate::jobs::stored::{Keys, Own};
use crate::jobs::{Scope, State, SubscribeOptions, Subscription};

/// Who reads the states of which job in this process. As long as somebody does, they are kept warm.
#[derive(Debug, Default)]
pub(crate) struct Views {
    open: Mutex<BTreeMap<Name, Weak<Kept>>>,
    /// How many events of a job are kept for those who are slow, if that was said.
    pub(crate) events_kept: Option<usize>,
}

/// States that are kept warm as long as somebody has this.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) cache: Arc<Cache>,
    /// Dropping it ends that.
    _following: Following,
}

/// How often a reader begins anew because somebody else began to read before its job was there.
const TRIES: u32 = 2;

impl Views {
    /// With so many events of a job kept for those who are slow.
    pub(crate) fn keeping(events: usize) -> Self {
        Self {
            events_kept: Some(events),
            ..Self::default()
        }
    }

    /// The same, with nothing open.
    pub(crate) fn anew(&self) -> Self {
        Self {
            open: Mutex::default(),
            events_kept: self.events_kept,
        }
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<Name, Weak<Kept>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// States were written in this process: reads show them at once, subscribers when they are told.
    pub(crate) fn wrote(&self, job: &Name, life: &Life, owns: Vec<Own>) {
        if owns.is_empty() {
            return;
        }
        let kept = self.views().get(job).and_then(Weak::upgrade);
        if let Some(kept) = kept {
            kept.cache.wrote(life, owns);
        }
    }

    /// What is read of a job, opened if nobody reads it. What belongs to a life before this one is left to
    /// those who have it: they have yet to be told of its end.
    fn find_or_open(&self, engine: &Engine, keys: &Arc<Keys>, life: Option<&Life>) -> Arc<Kept> {
        // Outlives the lock: whoever drops the last one takes that too.
        let ended;
        let mut views = self.views();
        match views.get(&keys.name).and_then(Weak::upgrade) {
            Some(kept) if kept.cache.serves_life(life) => return kept,
            closed => ended = closed,
        }
        let cache = Cache::new(engine.clone(), keys.clone());
        let follower = cache.clone();
        let kept = Arc::new(Kept {
            cache,
            _following: engine.tail().follow(engine, follower),
        });
        views.insert(keys.name.clone(), Arc::downgrade(&kept));
        drop(views);
        drop(ended);
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.cache.abandon();
        let views = self.cache.engine.views();
        let mut views = views.views();
        let name = &self.cache.keys.name;
        if views.get(name).is_some_and(|kept| kept.strong_count() == 0) {
            views.remove(name);
        }
    }
}

/// The states of a job, read from memory. All handles of a job in a process share them; the first read
/// loads them, the last handle lets them go.
#[derive(Debug)]
pub(crate) struct View {
    engine: Engine,
    keys: Arc<Keys>,
    /// Only this life of the job; `None`: whichever there is.
    life: Option<Life>,
    kept: Mutex<Option<Arc<Kept>>>,
}

impl View {
    pub(crate) fn new(engine: Engine, keys: Keys, life: Option<Life>) -> Self {
        Self {
            engine,
            keys: Arc::new(keys),
            life,
            kept: Mutex::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn job(&self) -> &Name {
        &self.keys.name
    }

    /// What it reads. After that has ended with an error, this begins anew.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        let life = self.life.as_ref();
        let mut held = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = held.as_ref().filter(|kept| kept.cache.serves_life(life)) {
            return kept.clone();
        }
        let kept = (self.engine.views()).find_or_open(&self.engine, &self.keys, life);
        let ended = held.replace(kept.clone());
        drop(held);
        drop(ended);
        kept
    }

    /// What it reads, as soon as that is loaded and if it is of its life of the job.
    pub(crate) async fn ready(&self) -> Result<Arc<Kept>> {
        let mut tries = 0;
        loop {
            let kept = self.kept();
            let read = kept.cache.ask(|inner| Some(Ok(Cache::life(inner)))).await;
            match (read, &self.life) {
                (Ok(_), None) => return Ok(kept),
                (Ok(read), Some(life)) if read.as_ref() == Some(life) => return Ok(kept),
                // Somebody else began to read before this life did; the next is of this one.
                (Ok(Some(read)), Some(life)) if read.is_before(life) && tries < TRIES => {}
                (Ok(_), Some(_)) => {
                    let job = self.job().clone();
                    return Err(Conflict::JobDeleted { job }.into());
                }
                (Err(error), Some(_)) if is_gone(&error) && tries < TRIES => {}
                (Err(error), _) => return Err(error),
            }
            tries += 1;
        }
    }

    /// Asks as soon as the states are loaded.
    async fn ask<T>(&self, question: impl Fn(&Inner) -> Result<T>) -> Result<T> {
        self.engine
            .telemetry()
            .states
            .looked(self.kept().cache.serves());
        let kept = self.ready().await?;
        kept.cache.ask(|inner| Some(question(inner))).await
    }

    /// The state that speaks for a scope: the one with the lowest status.
    pub(crate) async fn get_state(&self, scope: &Scope) -> Result<State> {
        self.ask(|inner| inner.fold.get(scope)).await
    }

    /// The states of a scope that exist, in the order of partitions and tags.
    pub(crate) async fn states(&self, scope: &Scope) -> Result<Vec<Arc<State>>> {
        self.ask(|inner| inner.fold.states(scope)).await
    }

    /// How many partitions the job has.
    pub(crate) async fn partitions(&self) -> Result<u32> {
        self.ask(|inner| Ok(inner.fold.aggregate().partitions()))
            .await
    }

    /// How far each tag is.
    pub(crate) async fn progress(&self) -> Result<Vec<Progress>> {
        self.ask(|inner| {
            inner.fold.check(&Scope::all())?;
            Ok(inner.fold.aggregate().progress())
        })
        .await
    }

    /// Waits until reads show everything that was acknowledged before this call.
    pub(crate) async fn refresh(&self) -> Result<()> {
        self.ready().await?.cache.refresh().await
    }

    /// Every change from now on, after what there is.
    pub(crate) async fn subscribe(
        &self,
        scope: Scope,
        options: SubscribeOptions,
    ) -> Result<Subscription> {
        Subscription::open(self.ready().await?, scope, options).await
    }

    /// Waits for all partitions.
    pub(crate) fn barrier(self: &Arc<Self>, tag: impl AsRef<str>, status: i32) -> Result<Barrier> {
        Barrier::new(self.clone(), tag, status)
    }
}

/// Whether somebody who takes part in the job knows better.
fn is_gone(error: &Error) -> bool {
    match error {
        Error::NotFound(NotFound::Job(_)) => true,
        Error::Conflict(conflict) => matches!(**conflict, Conflict::JobDeleted { .. }),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
