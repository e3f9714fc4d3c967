//! The archive: what is kept of tasks after they are gone.
//!
//! A finished task that was kept long enough moves here in one commit, which deletes the task and
//! writes its record, guarded by the task's revision: whatever crashes, it is in one of the two
//! places. [`Retention`](crate::Retention) says which tasks, and when. Its log does not come along.
//!
//! A [`Sink`] keeps tasks elsewhere instead: at least once, and then they are deleted.

mod mover;
mod row;
mod sink;

use plimsoll_core::names::Prefix;
use plimsoll_core::record::{Filter, Operator, Value};
use plimsoll_core::store::{Cursor, Get, Scan};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Name, Result, StoreExt, TaskId};

pub(crate) use mover::{Mover, Place};
pub use row::Archived;
pub use sink::{JsonLines, Sink, SinkError};

use crate::{Engine, Tasks};

/// The client of the archive.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace, task::Status};
/// # use plimsoll_engine::{Engine, Retention, Sweeper};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let id = engine.tasks().submit(engine.tasks().task("mail", "send", "hello")?).await?.id;
/// let worker = engine.worker("w1").queue("mail").handle("send", async || {}).build()?;
/// worker.run_until_empty().await?;
///
/// let mut at_once = Retention::default();
/// at_once.tasks.insert(Status::Completed, Duration::ZERO);
/// let pass = Sweeper::new(engine.clone()).retention(at_once).pass().await;
/// assert_eq!(pass.archived, 1);
/// let archived = engine.archive().get(id).await?.unwrap();
/// assert_eq!(archived.field("spec").unwrap(), "hello");
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Archive {
    engine: Engine,
}

/// Which archived tasks to list. Everything given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListArchived {
    /// Those that ended like this.
    pub status: Option<Status>,
    /// Whose they were.
    pub owner: Option<Name>,
    /// Of this queue.
    pub queue: Option<Name>,
    /// Of this kind.
    pub kind: Option<Name>,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
}

/// A part of the archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArchivedPage {
    /// What was found.
    pub rows: Vec<Archived>,
    /// Of each record that cannot be read, which it is and what is wrong with it.
    pub unreadable: Vec<Error>,
    /// Where to go on; `None`: this was the last page.
    pub next: Option<Cursor>,
}

impl Archive {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// A task that was archived, with all its fields. If a part of it is missing, that is `Corrupt`.
    pub async fn get(&self, id: TaskId) -> Result<Option<Archived>> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let key = row::head_key(id)?;
        let Some(head) = tasks.patiently(|| store.record(&key)).await? else {
            return Ok(None);
        };
        let parts = row::part_keys(&head)?;
        let mut found = Vec::new();
        for keys in parts.chunks(store.limits().page_max) {
            let get = Get {
                keys: keys.to_vec(),
            };
            found.extend(tasks.patiently(|| store.get(get.clone())).await?);
        }
        Archived::whole(&head, found.into_iter().flatten().collect()).map(Some)
    }

    /// A page of archived tasks, those submitted first first. It may be short or empty and still not
    /// be the last. What is too large for a list is left out of it: [`get`](Self::get) shows it. A
    /// record that cannot be read keeps no other from being shown.
    pub async fn list(&self, list: ListArchived, limit: usize) -> Result<ArchivedPage> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let status = list.status.map(|status| status.as_str().to_owned());
        let text = |name: Option<Name>| name.map(|name| name.as_str().to_owned());
        let wanted = [
            ("status", status),
            ("user_id", text(list.owner)),
            ("queue", text(list.queue)),
            ("kind", text(list.kind)),
        ];
        let mut scan = Scan::new(Prefix::new(row::HEADS)?, limit);
        scan.cursor = list.cursor;
        for (field, value) in wanted {
            let Some(value) = value else { continue };
            scan.filters.push(Filter {
                field: Name::new(field)?,
                operator: Operator::Equal,
                value: Value::Text(value),
            });
        }
        let page = tasks.patiently(|| store.scan(scan.clone())).await?;
        let mut archived = ArchivedPage {
            next: page.next,
            ..ArchivedPage::default()
        };
        for head in &page.rows {
            match Archived::listed(head) {
                Ok(row) => archived.rows.push(row),
                Err(error) => archived.unreadable.push(error),
            }
        }
        Ok(archived)
    }
}
