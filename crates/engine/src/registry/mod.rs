//! The registry of workers: who works, where, on what, and how much.
//!
//! A worker that runs keeps a record of itself, `plimsoll.workers.{name}/{incarnation}`. A heartbeat
//! moves the time at which the record expires and nothing else, so that an idle worker leaves nothing
//! in the history; when it was heard of last follows from that time. All of it goes by the store's
//! clock. Nothing about tasks depends on these records: a lease ends whatever its worker's says.

mod info;
mod presence;

use plimsoll_core::error::Conflict;
use plimsoll_core::names::Prefix;
use plimsoll_core::record::{Filter, Operator, Value};
use plimsoll_core::store::{Commit, Cursor, Guard, Merge, Scan, Write};
use plimsoll_core::task::WorkerId;
use plimsoll_core::{Error, Invalid, Key, Name, Result, StoreExt};

pub use info::{Load, Profile, WorkerInfo, WorkerStatus};
pub(crate) use presence::Presence;

use crate::{Engine, Tasks};

const WORKERS: &str = "plimsoll.workers.";

/// The client of the registry.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// use plimsoll_engine::registry::WorkerStatus;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let worker = engine.worker("mailer").queue("mail").handle("send", async || {}).build()?;
/// worker.run_until_empty().await?;
/// let mailer = &engine.workers().get(&"mailer".try_into()?).await?[0];
/// assert_eq!((mailer.status, mailer.load.total_jobs), (WorkerStatus::Offline, 0));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Workers {
    engine: Engine,
}

/// A part of the registry: workers, records that cannot be read, and where to go on.
pub(crate) struct Roll {
    pub(crate) workers: Vec<WorkerInfo>,
    pub(crate) unreadable: Vec<Error>,
    pub(crate) next: Option<Cursor>,
}

impl Workers {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// All workers that were heard of within a day, and those that ended within an hour, by name, each
    /// life of its own. What cannot be read is left out.
    pub async fn list(&self) -> Result<Vec<WorkerInfo>> {
        self.all(Prefix::new(WORKERS)?, Vec::new()).await
    }

    /// The lives of one worker that are still known, the oldest first.
    pub async fn get(&self, name: &Name) -> Result<Vec<WorkerInfo>> {
        self.all(prefix_of(name)?, Vec::new()).await
    }

    /// Workers that should have been heard of, and never said that they end.
    pub async fn stale(&self) -> Result<Vec<WorkerInfo>> {
        let mut workers = self
            .all(Prefix::new(WORKERS)?, vec![not_offline()?])
            .await?;
        workers.retain(|worker| worker.status == WorkerStatus::Offline);
        Ok(workers)
    }

    /// Marks a worker as offline, unless it was heard of since it was read. Answers whether it was
    /// marked.
    pub async fn mark_offline(&self, worker: &WorkerInfo) -> Result<bool> {
        // With an id, a mark whose answer was lost is told from somebody else's.
        let commit = offline(worker)?.id(self.engine.ids().commit());
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let marked = tasks.patiently(|| store.commit_one(commit.clone())).await;
        was_marked(marked.map(drop))
    }

    async fn all(&self, prefix: Prefix, filters: Vec<Filter>) -> Result<Vec<WorkerInfo>> {
        let mut workers = Vec::new();
        let mut cursor = None;
        loop {
            let roll = self.page(&prefix, &filters, cursor).await?;
            for error in &roll.unreadable {
                tracing::warn!(%error, "a worker's record cannot be read");
            }
            workers.extend(roll.workers);
            match roll.next {
                Some(next) => cursor = Some(next),
                None => return Ok(workers),
            }
        }
    }

    /// A page of those who did not say that they end.
    pub(crate) async fn running(&self, cursor: Option<Cursor>) -> Result<Roll> {
        self.page(&Prefix::new(WORKERS)?, &[not_offline()?], cursor)
            .await
    }

    async fn page(
        &self,
        prefix: &Prefix,
        filters: &[Filter],
        cursor: Option<Cursor>,
    ) -> Result<Roll> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let scan = Scan {
            filters: filters.to_vec(),
            cursor,
            ..Scan::new(prefix.clone(), store.limits().page_max)
        };
        // Before the scan, so that nobody who is heard of meanwhile is taken for stale.
        let now = tasks.patiently(|| store.ping()).await?;
        let page = tasks.patiently(|| store.scan(scan.clone())).await?;
        let mut roll = Roll {
            workers: Vec::new(),
            unreadable: Vec::new(),
            next: page.next,
        };
        for record in &page.rows {
            match WorkerInfo::read(record, now) {
                Ok(worker) => roll.workers.push(worker),
                Err(error) => roll.unreadable.push(error),
            }
        }
        Ok(roll)
    }
}

/// Marks a worker as offline if its record is as it was read.
pub(crate) fn offline(worker: &WorkerInfo) -> Result<Commit, Invalid> {
    let key = key_of(&worker.id)?;
    let mark = Merge::new(key.clone()).set(info::status_field(WorkerStatus::Offline)?);
    Ok(Commit::new()
        .guard(Guard::RecordAt(key, worker.revision))
        .write(Write::Merge(mark)))
}

/// Whether a worker was marked, or has been heard of or marked by somebody else before.
pub(crate) fn was_marked(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Error::Conflict(conflict)) if matches!(*conflict, Conflict::Guard { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn not_offline() -> Result<Filter, Invalid> {
    Ok(Filter {
        field: Name::new("status")?,
        operator: Operator::NotEqual,
        value: Value::Text(WorkerStatus::Offline.as_str().into()),
    })
}

/// The beginning of the keys of all lives of a worker. No name spells a slash here, so no other
/// worker's keys begin like this.
fn prefix_of(name: &Name) -> Result<Prefix, Invalid> {
    let escaped = name.as_str().replace('%', "%25").replace('/', "%2F");
    Prefix::new(format!("{WORKERS}{escaped}/"))
}

fn key_of(worker: &WorkerId) -> Result<Key, Invalid> {
    Key::new(format!(
        "{}{}",
        prefix_of(&worker.name)?,
        worker.incarnation
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_the_beginning_of_another() {
        let names = [
            "a", "a.b", "a/", "a/b", "a%2Fb", "a%", "a%2F", "ä", "a b", "a#b",
        ];
        for one in names {
            for other in names {
                let [one_prefix, other_prefix] =
                    [one, other].map(|name| prefix_of(&Name::new(name).unwrap()).unwrap());
                let begins = other_prefix.as_str().starts_with(one_prefix.as_str());
                assert_eq!(begins, one == other, "{one} and {other}");
            }
        }
        let longest = Name::new("%".repeat(128)).unwrap();
        let worker = WorkerId {
            name: longest,
            incarnation: plimsoll_core::Incarnation::from_u128(u128::MAX),
        };
        assert!(key_of(&worker).is_ok());
    }
}
