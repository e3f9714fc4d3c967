//! What is said of a job as a whole: how long it is kept, and what it is about.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::record::Fields;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Guard, Merge, Write};
use plimsoll_core::{Invalid, Limits, Name, Result};

use super::Jobs;
use super::info::{self, ABOUT, Job, Life, RETAIN};
use super::stored::Keys;
use crate::answer::refused_by;

/// What is left free in the record of a job: when it was deleted, and versions with more digits. A job that could not
/// be deleted would be there for ever.
const FREE_FIELDS: usize = 1;
const FREE_BYTES: usize = 64;

impl Jobs {
    /// Says something of a job, unless it is said already. Answers whether the job was as it was read.
    pub(super) async fn describe(&self, keys: &Keys, job: &Job, mut said: Fields) -> Result<bool> {
        let stored = self::said(job.info.retain, &job.info.about)?;
        said.retain(|name, value| stored.get(name) != Some(value));
        if said.is_empty() {
            return Ok(true);
        }
        let mut all = all(job)?;
        all.extend(said.clone());
        fits(&all, self.engine.store().limits())?;
        let merge = Merge::new(keys.job.clone()).set(said);
        // Nobody else has said so much meanwhile that there is no room left.
        let commit = Commit::of(Write::Merge(merge))
            .guard(Guard::RecordAt(keys.job.clone(), job.revision))
            .id(self.engine.ids().commit());
        match self.commit(commit).await {
            Ok(_) => Ok(true),
            Err(error) if refused_by(&error).is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The fields of a job, as they may be written.
pub(super) fn all(job: &Job) -> Result<Fields, Invalid> {
    let mut all = info::created(job.info.partitions, &Life::of(&job.info), job.floor)?;
    all.extend(said(job.info.retain, &job.info.about)?);
    Ok(all)
}

/// Whether the record of a job may have these fields.
pub(super) fn fits(fields: &Fields, limits: &Limits) -> Result<(), Invalid> {
    let most = Limits {
        fields_max: limits.fields_max.saturating_sub(FREE_FIELDS),
        record_bytes_max: limits.record_bytes_max.saturating_sub(FREE_BYTES),
        ..limits.clone()
    };
    fields.check(&most)
}

/// How long a job is kept and what is said about it, as fields of its record.
pub(super) fn said(
    retain: Option<Duration>,
    about: &BTreeMap<Name, String>,
) -> Result<Fields, Invalid> {
    let mut fields = self::about(about)?;
    if let Some(retain) = retain {
        let millis = u64::try_from(retain.as_millis()).unwrap_or(u64::MAX);
        fields.insert(Name::new(RETAIN)?, millis.to_string().into());
    }
    Ok(fields)
}

/// What is said about a job, as fields of its record.
pub(super) fn about(about: &BTreeMap<Name, String>) -> Result<Fields, Invalid> {
    let fields = about.iter().map(|(name, value)| {
        let field = Name::for_field("about", format!("{ABOUT}{name}"))?;
        Ok((field, value.clone().into()))
    });
    fields.collect()
}
