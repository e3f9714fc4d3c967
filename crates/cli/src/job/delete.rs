//! `plimsoll job delete`.

use clap::Args;
use plimsoll::Name;
use plimsoll::error::NotFound;
use plimsoll::jobs::JobInfo;

use super::wire::WireJob;
use crate::ask;
use crate::client::Client;
use crate::exit::{OK, Outcome, REFUSED};
use crate::text::{age, clean, count};

/// Deletes a job and its states. Whoever still writes to it is refused from then on. The same job may be
/// begun anew.
#[derive(Debug, Args)]
pub(super) struct Delete {
    /// Which job.
    job: Name,
    /// Only marks it, and leaves its states to a sweeper.
    #[arg(long)]
    mark: bool,
    /// Does not ask.
    #[arg(long, short)]
    yes: bool,
}

impl Delete {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let (jobs, name) = (client.engine.jobs(), clean(self.job.as_str()));
        let none = || plimsoll::Error::from(NotFound::Job(self.job.clone()));
        let before = match jobs.get(&self.job).await {
            Ok(Some(job)) => Some(job),
            Ok(None) => return Err(none().into()),
            Err(plimsoll::Error::Corrupt(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let what = match &before {
            Some(job) => self.what(job, client),
            None => format!("job {name}, whose record cannot be read, and its states"),
        };
        let question = format!("Delete {what}?");
        let would = format!("this deletes {what}");
        if !self.yes && !ask::agreed(&question, &would, "add --yes")? {
            client.screen.note("Nothing was changed.");
            return Ok(REFUSED);
        }
        let deleted = match self.mark {
            true => jobs.mark_deleted(&self.job).await?,
            false => jobs.delete(&self.job).await?,
        };
        if client.screen.json {
            // Somebody may have begun it anew by now.
            let deleted = |job: &JobInfo| job.deleted_at.is_some();
            let now = Some(client.now());
            let before = before.map(|job| JobInfo {
                deleted_at: job.deleted_at.or(now),
                ..job
            });
            let after = jobs.get(&self.job).await?.filter(deleted);
            let info = after.or(before).ok_or_else(none)?;
            client.screen.object(&WireJob::new(&info, None))?;
            return Ok(OK);
        }
        client.screen.note(&match (deleted, self.mark) {
            (true, false) => format!("Deleted job {name} and its states."),
            (true, true) => format!("Deleted job {name}; a sweeper removes its states."),
            (false, false) => format!("Job {name} was deleted before; now its states are, too."),
            (false, true) => format!("Job {name} was deleted before."),
        });
        Ok(OK)
    }

    fn what(&self, job: &JobInfo, client: &Client) -> String {
        let name = clean(self.job.as_str());
        let partitions = count(job.partitions.into(), "partition");
        let created = age(client.now(), job.created_at);
        format!("job {name} ({partitions}, created {created}) and its states")
    }
}
