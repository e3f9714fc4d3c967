//! What a manager knows of the states of its partition.

use std::collections::BTreeMap;

use plimsoll_core::record::Record;
use plimsoll_core::store::Scan;
use plimsoll_core::{Error, Key, Name, Result, StoreExt};

use super::draft::Draft;
use crate::jobs::Jobs;
use crate::jobs::stored::{EVENTS_KEPT, Event, Keys, Own, Stored};

/// What was written last of a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// `None`: nothing.
    pub(crate) version: Option<u64>,
    /// By which write.
    pub(crate) nonce: Option<String>,
    /// The newest last.
    pub(crate) events: Vec<Event>,
}

impl Last {
    /// It was written as this version.
    pub(crate) fn wrote(&mut self, event_id: Name, version: u64, nonce: String) {
        self.version = Some(version);
        self.nonce = Some(nonce);
        let surplus = (self.events.len() + 1).saturating_sub(EVENTS_KEPT);
        self.events.drain(..surplus);
        let id = event_id;
        self.events.push(Event { id, version });
    }
}

/// What was written last of each tag. What cannot be read keeps nothing from the others.
#[derive(Debug, Default)]
pub(crate) struct Known(BTreeMap<Name, Result<Last>>);

impl Known {
    pub(crate) fn last(&self, tag: &Name) -> Result<Last> {
        self.0
            .get(tag)
            .cloned()
            .unwrap_or_else(|| Ok(Last::default()))
    }

    /// A state was written as this version.
    pub(crate) fn wrote(&mut self, draft: &Draft, version: u64, nonce: String) {
        let last = self.0.entry(draft.tag.clone());
        if let Ok(last) = last.or_insert_with(|| Ok(Last::default())) {
            last.wrote(draft.event_id.clone(), version, nonce);
        }
    }

    /// Whether what is there could not be read.
    pub(crate) fn is_unreadable(&self, tag: &Name) -> bool {
        self.0.get(tag).is_some_and(Result::is_err)
    }

    /// Takes in a record that was read. Answers its state, if it can be read.
    pub(crate) fn learn(&mut self, keys: &Keys, record: &Record) -> Option<Own> {
        let (_, tag) = keys.parse(&record.key)?;
        let (last, own) = match Stored::read(keys, record) {
            Ok(Stored {
                state,
                events,
                nonce,
            }) => {
                let last = Last {
                    version: Some(state.version),
                    nonce,
                    events,
                };
                (Ok(last), Some(Own::read(record, state)))
            }
            Err(error) => (Err(error), None),
        };
        self.0.insert(tag, last);
        own
    }

    /// Reads a state anew, and answers it if that is possible.
    pub(crate) async fn look_at(
        &mut self,
        jobs: &Jobs,
        keys: &Keys,
        tag: &Name,
        key: &Key,
    ) -> Result<Option<Own>> {
        let store = jobs.engine.store();
        self.0.remove(tag);
        let record = jobs.patiently(|| store.record(key)).await?;
        Ok(record.and_then(|record| self.learn(keys, &record)))
    }

    /// Reads all states of a partition, and shows them.
    pub(crate) async fn read(
        jobs: &Jobs,
        keys: &Keys,
        partition: u32,
        show: impl Fn(Vec<Own>),
    ) -> Result<Self, Error> {
        let store = jobs.engine.store();
        let mut known = Self::default();
        let mut scan = Scan::new(keys.partition(partition)?, store.limits().page_max);
        loop {
            let page = jobs.patiently(|| store.scan(scan.clone())).await?;
            let learned = (page.rows.iter()).filter_map(|record| known.learn(keys, record));
            show(learned.collect());
            scan.cursor = page.next;
            if scan.cursor.is_none() {
                return Ok(known);
            }
        }
    }
}
