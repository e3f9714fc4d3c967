//! What a partition says of a tag.

use std::borrow::Cow;

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::{Name, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json;

/// The status of a tag that nobody has written anything for.
pub const NOT_STARTED: i32 = 0;
/// The status that `set_started` writes.
pub const STARTED: i32 = 1;
/// The status of what is done.
pub const FINISHED: i32 = i32::MAX;
/// The status that `set_error` writes, unless the error carries another. Every negative status is an
/// error.
pub const ERROR: i32 = -1;
/// The status that `set_warning` writes. It is lower than that of an error, and so wins over it.
pub const WARNING: i32 = -2;

/// What data a state carries, by name.
pub type Payload = Map<String, Value>;

/// What one partition of a job said last of one tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The job.
    pub job: Name,
    /// The partition, counted from 0.
    pub partition: u32,
    /// The work stream or step that this is about; `None` in an aggregate of a partition without
    /// any state.
    pub tag: Option<Name>,
    /// How far it is: 0 is not started, [`FINISHED`] is done, less than 0 is an error, everything else
    /// is the application's.
    pub status: i32,
    /// What people read.
    pub message: String,
    /// When the store wrote it; `None`: it was never written.
    pub timestamp: Option<Timestamp>,
    /// Grows by one with every write of this partition and tag, also when the job was deleted and
    /// created again; 0: it was never written.
    pub version: u64,
    /// Names the write. The same again is the same write.
    pub event_id: Option<Name>,
    /// More about it.
    pub payload: Option<Payload>,
    /// The version of what the payload looks like.
    pub schema_version: u32,
}

impl State {
    /// The state of what nobody has written anything for.
    pub fn not_started(job: Name, partition: u32, tag: Option<Name>) -> Self {
        Self {
            job,
            partition,
            tag,
            status: NOT_STARTED,
            message: String::new(),
            timestamp: None,
            version: 0,
            event_id: None,
            payload: None,
            schema_version: 1,
        }
    }

    /// Whether somebody wrote it.
    pub fn exists(&self) -> bool {
        self.version > 0
    }

    /// Whether it is done.
    pub fn is_finished(&self) -> bool {
        self.status == FINISHED
    }

    /// Whether it is an error or a warning.
    pub fn is_error(&self) -> bool {
        self.status < 0
    }
}

/// A state to write. Its partition is that of the manager that writes it.
///
/// ```
/// use plimsoll_engine::jobs::NewState;
/// let state = NewState::new("ingest", 40)?.message("40 of 100 files");
/// assert_eq!(state.status, 40);
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NewState {
    /// The work stream or step.
    pub tag: Name,
    /// How far it is.
    pub status: i32,
    /// What people read.
    pub message: String,
    /// Names the write; `None`: a new name is made. Repeating a write with the same name does
    /// nothing, as long as it is among the last 16 of this partition and tag.
    pub event_id: Option<Name>,
    /// More about it.
    pub payload: Option<Payload>,
    /// The version of what the payload looks like.
    pub schema_version: u32,
    /// The job it is meant for; another than the manager's is refused.
    pub job: Option<Name>,
    /// The partition it is meant for; another than the manager's is refused.
    pub partition: Option<u32>,
}

impl NewState {
    /// A state of this tag with this status.
    pub fn new(tag: impl AsRef<str>, status: i32) -> Result<Self, Invalid> {
        Ok(Self {
            tag: Name::for_field("tag", tag)?,
            status,
            message: String::new(),
            event_id: None,
            payload: None,
            schema_version: 1,
            job: None,
            partition: None,
        })
    }

    /// A state of this tag, for those who choose the status themselves:
    /// [`set_started`](super::Manager::set_started) and its like.
    pub fn of(tag: impl AsRef<str>) -> Result<Self, Invalid> {
        Self::new(tag, NOT_STARTED)
    }

    /// With a message.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// With a name for the write.
    pub fn event_id(mut self, id: impl AsRef<str>) -> Result<Self, Invalid> {
        self.event_id = Some(Name::for_field("event_id", id)?);
        Ok(self)
    }

    /// With more about it: anything that is an object in JSON.
    pub fn payload(mut self, payload: impl Serialize) -> Result<Self, Invalid> {
        match json::value(payload).map_err(|expected| malformed("payload", expected))? {
            Value::Object(payload) => self.payload = Some(payload),
            _ => return Err(malformed("payload", "a map of names and values")),
        }
        Ok(self)
    }

    /// With the version of what the payload looks like.
    pub fn schema_version(mut self, version: u32) -> Self {
        self.schema_version = version;
        self
    }

    /// Meant for this partition.
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Meant for this job.
    pub fn job(mut self, job: impl AsRef<str>) -> Result<Self, Invalid> {
        self.job = Some(Name::for_field("job", job)?);
        Ok(self)
    }
}

fn malformed(field: &str, expected: impl Into<Cow<'static, str>>) -> Invalid {
    let expected = expected.into();
    Invalid::new(field, Problem::Malformed { expected })
}

/// Which states of a job: all, those of a partition, those of a tag, or the one of both.
///
/// ```
/// use plimsoll_engine::jobs::Scope;
/// let one = Scope::all().partition(3).tag("ingest")?;
/// assert_eq!(one.partition, Some(3));
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only of this partition.
    pub partition: Option<u32>,
    /// Only of this tag.
    pub tag: Option<Name>,
}

impl Scope {
    /// Every state of the job.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only of this partition.
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Only of this tag.
    pub fn tag(mut self, tag: impl AsRef<str>) -> Result<Self, Invalid> {
        self.tag = Some(Name::for_field("tag", tag)?);
        Ok(self)
    }

    /// Whether this state is one of them.
    #[inline]
    pub fn covers(&self, state: &State) -> bool {
        self.partition
            .is_none_or(|partition| partition == state.partition)
            && (self.tag.is_none() || self.tag == state.tag)
    }
}
