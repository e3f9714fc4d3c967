//! What the handles of a job read with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use plimsoll_core::record::Record;
use plimsoll_core::{Name, Result};

use super::aggregate::Progress;
use super::barrier::Barrier;
use super::cache::{Cache, Inner};
use crate::Engine;
use crate::history::Following;
use crate::jobs::info::Life;
use crate::jobs::stored::Keys;
use crate::jobs::{Scope, State, SubscribeOptions, Subscription};

/// Who reads the states of which job in this process. As long as somebody does, they are kept warm.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<BTreeMap<Name, Weak<Kept>>>);

/// States that are kept warm as long as somebody has this.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) cache: Arc<Cache>,
    /// Dropping it ends that.
    _following: Following,
}

impl Views {
    fn views(&self) -> MutexGuard<'_, BTreeMap<Name, Weak<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record of a state was written in this process: reads show it at once, subscribers when it is told.
    pub(crate) fn wrote(&self, job: &Name, life: &Life, record: &Record) {
        let kept = self.views().get(job).and_then(Weak::upgrade);
        if let Some(kept) = kept {
            kept.cache.wrote(life, record);
        }
    }

    fn find_or_open(&self, engine: &Engine, keys: &Arc<Keys>) -> Arc<Kept> {
        // Outlives the lock: whoever drops the last one takes that too.
        let ended;
        let mut views = self.views();
        match views.get(&keys.name).and_then(Weak::upgrade) {
            Some(kept) if !kept.cache.is_closed() => return kept,
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

    /// Whether this is the life of the job that it reads.
    pub(crate) fn check(&self, cache: &Cache, inner: &Inner) -> Result<()> {
        self.life
            .as_ref()
            .map_or(Ok(()), |life| cache.is_in(inner, life))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn job(&self) -> &Name {
        &self.keys.name
    }

    /// What it reads. After that has ended with an error, this begins anew.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        let mut held = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = held.as_ref().filter(|kept| !kept.cache.is_closed()) {
            return kept.clone();
        }
        let kept = self.engine.views().find_or_open(&self.engine, &self.keys);
        let ended = held.replace(kept.clone());
        drop(held);
        drop(ended);
        kept
    }

    /// Asks as soon as the states are loaded.
    async fn ask<T>(&self, question: impl Fn(&Inner) -> Result<T>) -> Result<T> {
        let kept = self.kept();
        self.engine.telemetry().states.looked(kept.cache.serves());
        let ask = |inner: &Inner| {
            self.check(&kept.cache, inner)?;
            question(inner)
        };
        kept.cache.ask(|inner| Some(ask(inner))).await
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
        self.kept().cache.refresh().await
    }

    /// Every change from now on, after what there is.
    pub(crate) async fn subscribe(
        &self,
        scope: Scope,
        options: SubscribeOptions,
    ) -> Result<Subscription> {
        let kept = self.kept();
        let check = |inner: &Inner| self.check(&kept.cache, inner);
        // Whatever is read with this from now on is of the same life.
        kept.cache.ask(|inner| Some(check(inner))).await?;
        Subscription::open(kept, scope, options).await
    }

    /// Waits for all partitions.
    pub(crate) fn barrier(self: &Arc<Self>, tag: impl AsRef<str>, status: i32) -> Result<Barrier> {
        Barrier::new(self.clone(), tag, status)
    }
}

#[cfg(test)]
mod tests;
