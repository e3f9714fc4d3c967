//! What is known of a worker, and how its record spells it.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_core::record::{Fields, Record};
use plimsoll_core::task::{Lane, WorkerId};
use plimsoll_core::{Error, Incarnation, Invalid, Name, Revision, Timestamp, record};
use serde::Serialize;

use crate::fields::Reader;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Whether a worker works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerStatus {
    /// It takes tasks.
    Active,
    /// It takes no more tasks, and ends with its last handler.
    Draining,
    /// It has ended, or nobody has heard of it for too long.
    Offline,
}

impl WorkerStatus {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Draining, Self::Offline];

    /// How long a record stays after the last heartbeat. Of one that says that it ends, nobody will
    /// want to know for long; of one that falls silent, somebody may ask tomorrow.
    pub(super) fn kept(self) -> Duration {
        match self {
            Self::Active | Self::Draining => 24 * HOUR,
            Self::Offline => HOUR,
        }
    }

    /// Its name in records.
    ///
    /// ```
    /// use plimsoll_engine::registry::WorkerStatus;
    /// assert_eq!(WorkerStatus::Draining.as_str(), "draining");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Offline => "offline",
        }
    }
}

/// What a worker says of itself once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// The machine it runs on.
    pub hostname: String,
    /// Which program it is, and which version of that.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The queues it works on.
    pub queues: BTreeSet<Name>,
    /// The kinds it has handlers for.
    pub kinds: BTreeSet<Name>,
    /// How many handlers it runs at the same time.
    pub max_concurrent: u64,
    /// How long nobody may hear of it before it counts as offline.
    pub stale_after: Duration,
}

/// What changes while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Handlers that run.
    pub current_load: u64,
    /// Tasks that it brought to an end.
    pub total_jobs: u64,
    /// Of these, failed for good.
    pub failed_jobs: u64,
}

/// One life of a worker, as the registry knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerInfo {
    /// Its name and this life of it.
    pub id: WorkerId,
    /// What it said of itself.
    pub profile: Profile,
    /// What it did until its last heartbeat.
    pub load: Load,
    /// What it was when it was read, by the store's clock.
    pub status: WorkerStatus,
    /// When it was registered.
    pub started_at: Timestamp,
    /// When it was heard of last.
    pub last_heartbeat: Timestamp,
    /// What its record says, whether it was heard of since or not.
    #[serde(skip)]
    pub(super) said: WorkerStatus,
    #[serde(skip)]
    pub(super) revision: Revision,
}

impl WorkerInfo {
    /// What it is at this moment, if nothing is heard of it until then.
    pub fn status_at(&self, now: Timestamp) -> WorkerStatus {
        match self.is_stale(now) {
            true => WorkerStatus::Offline,
            false => self.said,
        }
    }

    /// Whether it should have been heard of by then, and never said that it ends.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.said != WorkerStatus::Offline
            && now.since(self.last_heartbeat) >= self.profile.stale_after
    }

    /// Reads a record. What it cannot be read from is `Corrupt`, and names what is wrong.
    pub(super) fn read(record: &Record, now: Timestamp) -> Result<Self, Error> {
        let read = Reader(record);
        let id = read.text("worker_id")?;
        let (name, incarnation) = id.rsplit_once('#').ok_or_else(|| read.bad("worker_id"))?;
        let said = read.text("status")?;
        let said = (WorkerStatus::ALL.into_iter()).find(|status| status.as_str() == said);
        let kept = Duration::from_millis(read.number("ttl_ms")?);
        let expires_at = record.expires_at.ok_or_else(|| read.bad("ttl"))?;
        let mut info = Self {
            id: WorkerId {
                name: Name::new(name).map_err(|_| read.bad("worker_id"))?,
                incarnation: Incarnation::parse(incarnation).map_err(|_| read.bad("worker_id"))?,
            },
            profile: Profile {
                hostname: read.text("hostname")?.to_owned(),
                version: read.text("version")?.to_owned(),
                pid: read.number("pid")?,
                queues: read.json("queues")?,
                kinds: read.json("kinds")?,
                max_concurrent: read.number("max_concurrent")?,
                stale_after: Duration::from_millis(read.number("stale_after_ms")?),
            },
            load: Load {
                current_load: read.number("current_load")?,
                total_jobs: read.number("total_jobs")?,
                failed_jobs: read.number("failed_jobs")?,
            },
            status: WorkerStatus::Offline,
            started_at: Timestamp::from_micros(read.number("started_at")?)
                .map_err(|_| read.bad("started_at"))?,
            last_heartbeat: expires_at.saturating_minus(kept),
            said: said.ok_or_else(|| read.bad("status"))?,
            revision: record.revision,
        };
        info.status = info.status_at(now);
        Ok(info)
    }
}

impl Profile {
    /// Of a worker of this process.
    pub(crate) fn of_this_process(
        version: String,
        lanes: &[Lane],
        max_concurrent: usize,
        stale_after: Duration,
    ) -> Self {
        Self {
            hostname: crate::process::host(),
            version,
            pid: std::process::id(),
            queues: lanes.iter().map(|lane| lane.queue.clone()).collect(),
            kinds: lanes.iter().map(|lane| lane.kind.clone()).collect(),
            max_concurrent: max_concurrent as u64,
            stale_after,
        }
    }

    /// The fields of a worker's record.
    pub(super) fn fields(
        &self,
        id: &WorkerId,
        started_at: Timestamp,
        status: WorkerStatus,
        load: &Load,
    ) -> Result<Fields, Invalid> {
        let json = |names: &BTreeSet<Name>| serde_json::json!(names).to_string();
        let mut fields = record::fields([
            ("worker_id", id.to_string()),
            ("hostname", self.hostname.clone()),
            ("version", self.version.clone()),
            ("pid", self.pid.to_string()),
            ("queues", json(&self.queues)),
            ("kinds", json(&self.kinds)),
            ("max_concurrent", self.max_concurrent.to_string()),
            ("stale_after_ms", self.stale_after.as_millis().to_string()),
            ("ttl_ms", status.kept().as_millis().to_string()),
            ("started_at", started_at.as_micros().to_string()),
        ])?;
        fields.extend(status_field(status)?);
        fields.extend(load.fields()?);
        Ok(fields)
    }
}

impl Load {
    pub(super) fn fields(&self) -> Result<Fields, Invalid> {
        record::fields([
            ("current_load", self.current_load.to_string()),
            ("total_jobs", self.total_jobs.to_string()),
            ("failed_jobs", self.failed_jobs.to_string()),
        ])
    }
}

pub(super) fn status_field(status: WorkerStatus) -> Result<Fields, Invalid> {
    record::fields([("status", status.as_str())])
}
