//! The record of a job.
//!
//! One of three fields holds its generation, and thereby says what may be done: `generation` while it may
//! be written, `closing` while a sweeper makes sure that it has ended, `deleted` once it is deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::record::{Fields, Record, fields};
use plimsoll_core::store::{Commit, Guard, Merge, Put, Write};
use plimsoll_core::{CommitId, Error, Invalid, Name, Result, Revision, Timestamp};

use super::join::PARTITIONS_MAX;
use super::stored::{Keys, job_of};
use crate::fields::Reader;

pub(crate) const FLOOR: &str = "floor";
const PARTITIONS: &str = "partitions";
const CREATED_AT: &str = "created_at";
const DELETED_AT: &str = "deleted_at";
pub(super) const RETAIN: &str = "retain_ms";
/// What the names of fields begin with that say something about the job.
pub(super) const ABOUT: &str = "about.";

/// What is known of a job as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// Its name.
    pub name: Name,
    /// How many partitions it has.
    pub partitions: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// Grows by one when it is created again after it was deleted.
    pub generation: u64,
    /// When it was deleted, if it was.
    pub deleted_at: Option<Timestamp>,
    /// How long it is kept after all its partitions have finished; `None`: as the
    /// [retention](crate::Retention) of its namespace says.
    pub retain: Option<Duration>,
    /// What else is said about it.
    pub about: BTreeMap<Name, String>,
}

/// What may be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Everything.
    Open,
    /// A sweeper makes sure that it has ended. Whoever wants to write opens it again.
    Closing,
    /// Nothing: it was deleted.
    Deleted,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Open, Self::Closing, Self::Deleted];

    /// The field that holds the generation.
    fn field(self) -> &'static str {
        match self {
            Self::Open => "generation",
            Self::Closing => "closing",
            Self::Deleted => "deleted",
        }
    }
}

/// Tells the lives of a job apart, also when nothing is left of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) generation: u64,
    pub(crate) created_at: Timestamp,
}

/// Which guards of a commit say that the job may be written: the first ones. The others say that the states are as
/// they were known.
pub(crate) const JOB_GUARDS: usize = 2;

impl Life {
    pub(crate) fn of(info: &JobInfo) -> Self {
        Self {
            generation: info.generation,
            created_at: info.created_at,
        }
    }

    /// What the record of a job says of it, and in which phase it is.
    pub(crate) fn read(read: &Reader<'_>) -> Result<(Phase, Self)> {
        let phase = (Phase::ALL.into_iter())
            .find(|phase| read.0.field(phase.field()).is_some())
            .ok_or_else(|| read.bad(Phase::Open.field()))?;
        let life = Self {
            generation: read.number(phase.field())?,
            created_at: time(read, CREATED_AT)?,
        };
        Ok((phase, life))
    }

    /// That of a job of which nothing is known.
    pub(crate) fn first(now: Timestamp) -> Self {
        Self {
            generation: 1,
            created_at: now,
        }
    }

    /// The one that begins after it, also if the clock was set back.
    pub(crate) fn next(&self, now: Timestamp) -> Self {
        Self {
            generation: self.generation.saturating_add(1),
            created_at: now.max(self.created_at.saturating_plus(Duration::from_micros(1))),
        }
    }

    /// Whether it was over before another one began.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (self.created_at, self.generation) < (other.created_at, other.generation)
    }

    /// The job is in this phase of this life.
    pub(crate) fn guards(&self, keys: &Keys, phase: Phase) -> Result<[Guard; JOB_GUARDS], Invalid> {
        let guard = |field, value: String| {
            let name = Name::new(field)?;
            Ok(Guard::Field(keys.job.clone(), name, Some(value.into())))
        };
        Ok([
            guard(phase.field(), self.generation.to_string())?,
            guard(CREATED_AT, self.created_at.as_micros().to_string())?,
        ])
    }
}

/// What the record of a job says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) info: JobInfo,
    pub(crate) phase: Phase,
    /// Versions begin after this.
    pub(crate) floor: u64,
    pub(crate) revision: Revision,
    /// Whether it expires: nothing is left of it but this record.
    pub(crate) expires: bool,
}

impl Job {
    pub(crate) fn read(record: &Record) -> Result<Self> {
        let read = Reader(record);
        let name = job_of(&record.key).ok_or_else(|| {
            Error::Corrupt(format!("record {}: not the key of a job", record.key).into())
        })?;
        let (phase, life) = Life::read(&read)?;
        let about = record.fields.iter().filter_map(|(field, value)| {
            let name = Name::new(field.as_str().strip_prefix(ABOUT)?).ok()?;
            Some((name, String::from_utf8_lossy(value).into_owned()))
        });
        let retain = read.optional(RETAIN, Reader::number)?;
        Ok(Self {
            info: JobInfo {
                name,
                partitions: partitions(&read)?,
                created_at: life.created_at,
                generation: life.generation,
                deleted_at: read.optional(DELETED_AT, time)?,
                retain: retain.map(Duration::from_millis),
                about: about.collect(),
            },
            phase,
            floor: read.number(FLOOR)?,
            revision: record.revision,
            expires: record.expires_at.is_some(),
        })
    }

    /// Whether a record that cannot be read may be this job's, in this life.
    pub(crate) fn may_be(&self, record: &Record) -> bool {
        let read = Life::read(&Reader(record));
        read.map_or(true, |(_, life)| life == Life::of(&self.info))
    }

    /// Brings it into another phase, if it is as it was read.
    pub(crate) fn moved(
        &self,
        keys: &Keys,
        to: Phase,
        now: Timestamp,
        id: CommitId,
    ) -> Result<Commit, Invalid> {
        let generation = self.info.generation.to_string();
        let mut merge = Merge::new(keys.job.clone())
            .unset(Name::new(self.phase.field())?)
            .set(fields([(to.field(), generation)])?);
        if to == Phase::Deleted {
            merge = merge.set(fields([(DELETED_AT, now.as_micros().to_string())])?);
        }
        Ok(Commit::of(Write::Merge(merge))
            .guard(Guard::RecordAt(keys.job.clone(), self.revision))
            .id(id))
    }

    /// Marks it as deleted, if it is as it was read, and leaves out what is said of it.
    pub(crate) fn bare_deleted(
        &self,
        keys: &Keys,
        now: Timestamp,
        id: CommitId,
    ) -> Result<Commit, Invalid> {
        let life = Life::of(&self.info);
        let fields = deleted(self.info.partitions, &life, self.floor, now)?;
        Ok(Commit::of(Write::Put(Put::new(keys.job.clone(), fields)))
            .guard(Guard::RecordAt(keys.job.clone(), self.revision))
            .id(id))
    }
}

fn time(read: &Reader<'_>, name: &str) -> Result<Timestamp> {
    let micros = read.number(name)?;
    Timestamp::from_micros(micros).map_err(|_| read.bad(name))
}

/// How many partitions a job has. Others than there may be would be counted, and room made for them.
fn partitions(read: &Reader<'_>) -> Result<u32> {
    let partitions = read.number(PARTITIONS)?;
    match (1..=PARTITIONS_MAX).contains(&partitions) {
        true => Ok(partitions),
        false => Err(read.bad(PARTITIONS)),
    }
}

/// Marks a job as deleted whose record cannot be read, if that is as it was seen. What can be read of it stays,
/// for whoever creates the job again.
pub(crate) fn unreadable_deleted(
    keys: &Keys,
    record: &Record,
    now: Timestamp,
    id: CommitId,
) -> Result<Commit, Invalid> {
    let read = Reader(record);
    let number = |field| read.number::<u64>(field).ok();
    // If it cannot be read, one that no life before can have had: each has written the record.
    let generations = Phase::ALL.iter().filter_map(|phase| number(phase.field()));
    let generation = generations.max().unwrap_or(record.revision.get());
    let created_at = read.number(CREATED_AT).ok();
    let created_at = created_at.and_then(|micros| Timestamp::from_micros(micros).ok());
    let life = Life {
        generation,
        created_at: created_at.unwrap_or(now),
    };
    let floor = number(FLOOR).unwrap_or(0);
    let fields = deleted(partitions(&read).unwrap_or(1), &life, floor, now)?;
    Ok(Commit::of(Write::Put(Put::new(keys.job.clone(), fields)))
        .guard(Guard::RecordAt(keys.job.clone(), record.revision))
        .id(id))
}

/// The fields of a job that was deleted, of which nothing else is said.
fn deleted(partitions: u32, life: &Life, floor: u64, now: Timestamp) -> Result<Fields, Invalid> {
    fields([
        (PARTITIONS, partitions.to_string()),
        (CREATED_AT, life.created_at.as_micros().to_string()),
        (Phase::Deleted.field(), life.generation.to_string()),
        (FLOOR, floor.to_string()),
        (DELETED_AT, now.as_micros().to_string()),
    ])
}

/// The fields of a new job of which nothing is said yet.
pub(crate) fn created(partitions: u32, life: &Life, floor: u64) -> Result<Fields, Invalid> {
    fields([
        (PARTITIONS, partitions.to_string()),
        (CREATED_AT, life.created_at.as_micros().to_string()),
        (Phase::Open.field(), life.generation.to_string()),
        (FLOOR, floor.to_string()),
    ])
}
