//! Records as they change: what is there first, then what happens to it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::stream::{self, Stream};
use plimsoll_core::change::{Change, Interest, Removal};
use plimsoll_core::error::NotFound;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Cursor, Scan};
use plimsoll_core::{Error, Invalid, Key, Prefix, Result, Revision};

use super::Records;
use crate::history::{self, End, Mark, Place, Seen, end, read};

/// How many records are read at once.
const PAGE: usize = 100;
/// How long what is in flight is given before the history is read again.
const IN_FLIGHT: Duration = Duration::from_millis(5);

impl Records {
    /// Watches all records with this prefix: tells those that are there, then what changes.
    ///
    /// Until [`ReplayComplete`](WatchEvent::ReplayComplete), it holds the key and the revision of every
    /// record that it has told; after that, nothing.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, records::WatchEvent};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// records.set_field("config.mail", "host", "a").await?;
    /// let mut watch = records.watch("config.")?;
    /// assert!(matches!(watch.next().await?, WatchEvent::Snapshot(record) if record.field("host").unwrap() == "a"));
    /// assert!(matches!(watch.next().await?, WatchEvent::ReplayComplete { .. }));
    /// records.set_field("config.mail", "host", "b").await?;
    /// assert!(matches!(watch.next().await?, WatchEvent::Put { record, .. } if record.field("host").unwrap() == "b"));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn watch(&self, prefix: impl AsRef<str>) -> Result<Watch, Invalid> {
        Ok(Watch::new(self.clone(), Prefix::new(prefix)?, None))
    }

    /// Watches one record in the same way.
    pub fn watch_key(&self, key: impl AsRef<str>) -> Result<Watch, Invalid> {
        let key = Key::new(key)?;
        Ok(Watch::new(
            self.clone(),
            Prefix::new(key.as_str())?,
            Some(key),
        ))
    }

    async fn end(&self) -> Result<End> {
        let store = self.store().as_ref();
        self.patiently(|| end(store)).await
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// A record that was there when the watch began.
    Snapshot(Record),
    /// Everything up to here was told. It comes once after each snapshot.
    ReplayComplete {
        /// Where to go on.
        cursor: Place,
    },
    /// A record was written.
    Put {
        /// What it holds now.
        record: Record,
        /// Where to go on.
        cursor: Place,
    },
    /// A record ended.
    Removed {
        /// Its key.
        key: Key,
        /// The revision that ended.
        revision: Revision,
        /// Whether it was deleted, or expired.
        how: Removal,
        /// Where to go on.
        cursor: Place,
    },
    /// What happened next is not kept any more. Forget what you know: what is there is told again.
    Restarted,
}

/// Tells of records. Whoever reads slowly lags, and misses nothing. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    records: Records,
    prefix: Prefix,
    /// Only this one of those with the prefix.
    key: Option<Key>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// What is there is told next.
    Begin,
    /// Only what comes from now on.
    Now,
    /// What is there is read page by page.
    Replay {
        /// Where the history was before.
        began: Place,
        told: BTreeMap<Key, Revision>,
        page: VecDeque<Record>,
        next: Option<Cursor>,
        more: bool,
    },
    /// What changed while that was read, up to this place. What was told is not told again.
    CatchUp {
        after: Place,
        upto: Place,
        told: BTreeMap<Key, Revision>,
        changes: VecDeque<Seen>,
    },
    Live(Box<history::Watch>),
}

impl Watch {
    fn new(records: Records, prefix: Prefix, key: Option<Key>) -> Self {
        Self {
            records,
            prefix,
            key,
            stage: Stage::Begin,
        }
    }

    /// Tells only what changes from the first call of [`next`](Self::next) on; where commits overlap, perhaps also
    /// what changed in the moment before.
    pub fn changes_only(mut self) -> Self {
        self.stage = Stage::Now;
        self
    }

    /// Goes on after this cursor, which a watch of the same records has told, with what changed since.
    /// If that is not kept any more, or never was, it begins with [`WatchEvent::Restarted`]. One that a watch
    /// of other records has told within a commit is answered with `Invalid`.
    pub fn after(mut self, cursor: Place) -> Self {
        let history = self.records.engine.history();
        let changes = history.watch_after(self.interest(), cursor);
        self.stage = Stage::Live(Box::new(changes));
        self
    }

    /// The next event, as soon as there is one. A call that is dropped misses nothing, and one that
    /// failed because the store did not answer may be repeated: it goes on where it was.
    pub async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            match self.step().await {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(Error::NotFound(NotFound::History { .. })) => {
                    self.stage = Stage::Begin;
                    return Ok(WatchEvent::Restarted);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Where to go on: everything up to here was told, or is of other records. So it goes on while others write and somebody
    /// waits for the [`next`](Self::next) event, although none comes.
    ///
    /// The cursor of the last event is as good while that is kept in the history. Whoever watches what seldom changes keeps this
    /// one now and then: it is not told [`Restarted`](WatchEvent::Restarted) for having heard nothing for long.
    ///
    /// `None` before [`ReplayComplete`](WatchEvent::ReplayComplete), and again after `Restarted`: not all of what is there was
    /// told, so that there is nothing to go on from. After [`changes_only`](Self::changes_only), as long as it has not begun.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, records::WatchEvent};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// let mut watch = records.watch("config.")?;
    /// assert_eq!(watch.cursor(), None);
    /// assert!(matches!(watch.next().await?, WatchEvent::ReplayComplete { .. }));
    /// let kept = watch.cursor().unwrap().to_string();
    /// records.set_field("config.mail", "host", "a").await?;
    /// let mut watch = records.watch("config.")?.after(kept.parse()?);
    /// assert!(matches!(watch.next().await?, WatchEvent::Put { .. }));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn cursor(&self) -> Option<Place> {
        match &self.stage {
            Stage::Live(changes) => Some(changes.reached()),
            Stage::Begin | Stage::Now | Stage::Replay { .. } | Stage::CatchUp { .. } => None,
        }
    }

    /// The events as a stream, which ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchEvent>> + Send {
        stream::unfold(Some(self), async |watch| {
            let mut watch = watch?;
            let event = watch.next().await;
            let rest = event.is_ok().then_some(watch);
            Some((event, rest))
        })
    }

    fn interest(&self) -> Interest {
        Interest::Records(self.prefix.clone())
    }

    /// Goes on from a place that the store has told.
    fn live(&self, after: Place) -> Stage {
        let history = self.records.engine.history();
        Stage::Live(Box::new(history.watch_known(self.interest(), after)))
    }

    /// One step further, which may have something to tell.
    async fn step(&mut self) -> Result<Option<WatchEvent>> {
        let store = self.records.store().as_ref();
        match &mut self.stage {
            Stage::Begin => {
                self.stage = Stage::Replay {
                    began: self.records.end().await?.readable,
                    told: BTreeMap::new(),
                    page: VecDeque::new(),
                    next: None,
                    more: true,
                };
                Ok(None)
            }
            Stage::Now => {
                let end = self.records.end().await?;
                self.stage = self.live(end.readable);
                Ok(None)
            }
            Stage::Replay {
                began,
                told,
                page,
                next,
                more,
            } => {
                if let Some(record) = page.pop_front() {
                    told.insert(record.key.clone(), record.revision);
                    return Ok(Some(WatchEvent::Snapshot(record)));
                }
                if *more {
                    let limit = PAGE.min(store.limits().page_max);
                    let mut scan = Scan::new(self.prefix.clone(), limit);
                    scan.cursor.clone_from(next);
                    let found = self.records.patiently(|| store.scan(scan.clone())).await?;
                    let rows = found.rows.into_iter();
                    page.extend(rows.filter(|record| is_wanted(&self.key, &record.key)));
                    *more = found.next.is_some() && self.key.is_none();
                    *next = found.next;
                } else {
                    self.stage = Stage::CatchUp {
                        upto: self.records.end().await?.newest,
                        after: *began,
                        told: std::mem::take(told),
                        changes: VecDeque::new(),
                    };
                }
                Ok(None)
            }
            Stage::CatchUp {
                after,
                upto,
                told,
                changes,
            } => {
                if let Some(placed) = changes.pop_front() {
                    let news = !is_told(told, &placed.change);
                    return Ok(news.then(|| event(&self.key, placed)).flatten());
                }
                if *after < *upto {
                    let interest = Interest::Records(self.prefix.clone());
                    let part = self
                        .records
                        .patiently(|| read(store, &interest, *after, PAGE))
                        .await?;
                    let mark = Mark::of(&interest);
                    if part.upto == *after {
                        // The snapshot may have shown what comes after something that is in flight.
                        self.records.engine.clock().sleep(IN_FLIGHT).await;
                    }
                    *after = part.upto;
                    changes.extend(part.changes.into_iter().map(|seen| Seen {
                        place: seen.place.marked(mark),
                        ..seen
                    }));
                    return Ok(None);
                }
                let cursor = *after;
                self.stage = self.live(cursor);
                Ok(Some(WatchEvent::ReplayComplete { cursor }))
            }
            Stage::Live(changes) => {
                let seen = changes.next().await?;
                Ok(event(&self.key, seen))
            }
        }
    }
}

fn is_wanted(only: &Option<Key>, key: &Key) -> bool {
    only.as_ref().is_none_or(|only| only == key)
}

/// Whether the snapshot has told this, or what came after it.
fn is_told(told: &BTreeMap<Key, Revision>, change: &Change) -> bool {
    match change {
        Change::Put(record) => told
            .get(&record.key)
            .is_some_and(|told| record.revision <= *told),
        // The revision that ended may be what was told.
        Change::Removed { key, revision, .. } => told.get(key).is_some_and(|told| revision < told),
        Change::Task(_) | Change::Group { .. } => true,
    }
}

/// What a change means for those who watch; nothing, if it is not about the one they watch.
fn event(only: &Option<Key>, seen: Seen) -> Option<WatchEvent> {
    let cursor = seen.place;
    match seen.change {
        Change::Put(record) if is_wanted(only, &record.key) => {
            Some(WatchEvent::Put { record, cursor })
        }
        Change::Removed { key, revision, how } if is_wanted(only, &key) => {
            Some(WatchEvent::Removed {
                key,
                revision,
                how,
                cursor,
            })
        }
        Change::Put(_) | Change::Removed { .. } | Change::Task(_) | Change::Group { .. } => None,
    }
}
