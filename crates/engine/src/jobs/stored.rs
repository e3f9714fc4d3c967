//! How jobs and their states are stored: which records, and what is in them.
//!
//! | record | there while | fields |
//! |---|---|---|
//! | `plimsoll.jobs.{job}` | the job exists, and for a while after it was deleted | `partitions`, `created_at`, `floor`; its generation as `generation`, `closing` or `deleted`; `deleted_at`, `retain_ms` if known; `about.…` |
//! | `plimsoll.states.{job}.{partition}-{tag}` | this partition has said something of this tag | `status`, `message`, `version`, `event_id`, `schema_version`, `events`, `nonce`; `payload` if given |
//!
//! A dot in the name of a job is written as `%2E`, and `%` as `%25`: so the states of one job have a
//! prefix that no other job has. Every write of a state is guarded by the `generation` of its job: who
//! deletes a job takes that field away first, and nothing can be written any more from then on. When the
//! states go, `floor` rises to their highest version, so that versions go on in the next generation.

use std::sync::Arc;

use plimsoll_core::error::Problem;
use plimsoll_core::limits::KEY_BYTES_MAX;
use plimsoll_core::record::{Fields, Record, fields};
use plimsoll_core::{Error, Invalid, Key, Name, Prefix, Result, Revision, Timestamp};
use serde::{Deserialize, Serialize};

use super::State;
use super::write::draft::Draft;
use crate::fields::Reader;

/// What the keys of all jobs begin with.
pub(crate) const JOBS: &str = "plimsoll.jobs.";
const STATES: &str = "plimsoll.states.";

/// How many events of a partition and tag are remembered.
pub(crate) const EVENTS_KEPT: usize = 16;

pub(crate) const STATUS: &str = "status";
pub(crate) const MESSAGE: &str = "message";
pub(crate) const VERSION: &str = "version";
pub(crate) const EVENT_ID: &str = "event_id";
pub(crate) const SCHEMA_VERSION: &str = "schema_version";
pub(crate) const EVENTS: &str = "events";
/// Another one with each write, whoever makes it: two managers of a partition may write the same event.
pub(crate) const NONCE: &str = "nonce";
pub(crate) const PAYLOAD: &str = "payload";

/// The keys of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) name: Name,
    pub(crate) job: Key,
    /// What the keys of all its states begin with.
    pub(crate) states: Prefix,
}

impl Keys {
    pub(crate) fn of(job: Name) -> Result<Self, Invalid> {
        let escaped = escape(job.as_str());
        let too_long = |_| {
            let bytes = escaped.len();
            let max = KEY_BYTES_MAX - STATES.len() - 1;
            Invalid::new("job", Problem::TooLong { bytes, max })
        };
        Ok(Self {
            job: Key::new(format!("{JOBS}{escaped}")).map_err(too_long)?,
            states: Prefix::new(format!("{STATES}{escaped}.")).map_err(too_long)?,
            name: job,
        })
    }

    /// What the keys of all states of a partition begin with.
    pub(crate) fn partition(&self, partition: u32) -> Result<Prefix, Invalid> {
        Prefix::new(format!("{}{partition}-", self.states))
    }

    /// The key of a state.
    pub(crate) fn state(&self, partition: u32, tag: &Name) -> Result<Key, Invalid> {
        Key::for_field("tag", format!("{}{partition}-{tag}", self.states))
    }

    /// The partition and tag of a key that [`state`](Self::state) has made.
    pub(crate) fn parse(&self, key: &Key) -> Option<(u32, Name)> {
        let rest = key.as_str().strip_prefix(self.states.as_str())?;
        let (partition, tag) = rest.split_once('-')?;
        Some((partition.parse().ok()?, Name::new(tag).ok()?))
    }
}

/// The name of a job as a part of keys.
pub(crate) fn escape(job: &str) -> String {
    job.replace('%', "%25").replace('.', "%2E")
}

/// The name of the job that a key of [`JOBS`] is about.
pub(crate) fn job_of(key: &Key) -> Option<Name> {
    let escaped = key.as_str().strip_prefix(JOBS)?;
    Name::new(escaped.replace("%2E", ".").replace("%25", "%")).ok()
}

/// A write that is remembered, so that its repetition is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) id: Name,
    pub(crate) version: u64,
}

/// What a record of a state says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) state: State,
    /// The last writes, the newest last.
    pub(crate) events: Vec<Event>,
    /// `None`: who wrote it did not know of that.
    pub(crate) nonce: Option<String>,
}

/// A state as this process has written or read it.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) state: Arc<State>,
}

impl Own {
    /// What was read.
    pub(crate) fn read(record: &Record, state: State) -> Self {
        Self {
            key: record.key.clone(),
            revision: record.revision,
            state: Arc::new(state),
        }
    }

    /// What was written: a reader of the record finds the same. `None` if it is not known when that was, as from a
    /// receipt of a former program.
    pub(crate) fn written(
        keys: &Keys,
        partition: u32,
        draft: &Draft,
        version: u64,
        (revision, at): (Revision, Timestamp),
    ) -> Option<Self> {
        if at == Timestamp::MIN {
            return None;
        }
        let payload = draft.payload.as_deref().map(serde_json::from_slice);
        let state = State {
            job: keys.name.clone(),
            partition,
            tag: Some(draft.tag.clone()),
            status: draft.status,
            message: draft.message.clone(),
            timestamp: Some(at),
            version,
            event_id: Some(draft.event_id.clone()),
            payload: payload.transpose().ok()?,
            schema_version: draft.schema_version,
        };
        Some(Self {
            key: draft.key.clone(),
            revision,
            state: Arc::new(state),
        })
    }
}

impl Stored {
    /// What a record of a state of this job says.
    pub(crate) fn read(keys: &Keys, record: &Record) -> Result<Self> {
        let (partition, tag) = keys
            .parse(&record.key)
            .ok_or_else(|| unreadable(&record.key))?;
        let read = Reader(record);
        let event_id = read.optional(EVENT_ID, Reader::text)?;
        Ok(Self {
            state: State {
                job: keys.name.clone(),
                partition,
                tag: Some(tag),
                status: read.number(STATUS)?,
                message: read.text(MESSAGE)?.to_owned(),
                timestamp: Some(record.modified_at),
                version: read.number(VERSION)?,
                event_id: event_id
                    .map(Name::new)
                    .transpose()
                    .map_err(|_| read.bad(EVENT_ID))?,
                payload: read.optional(PAYLOAD, Reader::json)?,
                schema_version: read.number(SCHEMA_VERSION)?,
            },
            events: read.json(EVENTS)?,
            nonce: read.optional(NONCE, Reader::text)?.map(str::to_owned),
        })
    }

    /// The fields that a write leaves, as this version, the last of these events.
    pub(crate) fn fields(
        draft: &Draft,
        version: u64,
        events: &[Event],
        nonce: &str,
    ) -> Result<Fields, Invalid> {
        let remembered = serde_json::to_string(events).map_err(|_| {
            let expected = "ids of events that can be written as JSON".into();
            Invalid::new("event_id", Problem::Malformed { expected })
        })?;
        let mut fields = fields([
            (STATUS, draft.status.to_string()),
            (MESSAGE, draft.message.clone()),
            (VERSION, version.to_string()),
            (EVENT_ID, draft.event_id.to_string()),
            (SCHEMA_VERSION, draft.schema_version.to_string()),
            (EVENTS, remembered),
            (NONCE, nonce.to_owned()),
        ])?;
        if let Some(payload) = &draft.payload {
            fields.insert(Name::new(PAYLOAD)?, payload.clone());
        }
        Ok(fields)
    }
}

fn unreadable(key: &Key) -> Error {
    Error::Corrupt(format!("record {key}: not the key of a state").into())
}
