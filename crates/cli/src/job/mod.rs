//! `plimsoll job`: partitioned jobs, how far they are, and shell scripts as their partitions.

mod barrier;
mod delete;
mod line;
mod list;
mod live;
mod picture;
mod set;
mod show;
mod standing;
mod watch;
mod wire;

use clap::{Args, Subcommand};

use crate::client::{IfMissing, Options};
use crate::exit::Outcome;

/// Shows how far partitioned jobs are, waits for them, and sets their states.
#[derive(Debug, Args)]
pub(crate) struct JobCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists jobs, with how far each is.
    List(list::ListJobs),
    /// Shows a job: how far each tag is, who is last, and its states.
    Show(show::Show),
    /// Shows every change of a job: as a picture on a terminal, elsewhere as lines.
    Watch(watch::Watch),
    /// Waits until all partitions of a job have got somewhere. The exit code tells whether they have.
    Barrier(barrier::WaitForAll),
    /// Says how far a partition is; the first to do so creates the job.
    Set(set::Set),
    /// Deletes a job and its states, also while others write them.
    Delete(delete::Delete),
}

impl JobCommand {
    pub(crate) async fn run(self) -> Outcome {
        let missing = match &self.verb {
            Verb::Set(set) if set.creates() => IfMissing::Create,
            Verb::Barrier(barrier) if barrier.waits_for_job() => IfMissing::Create,
            Verb::Watch(watch) if watch.waits_for_job() => IfMissing::Create,
            _ => IfMissing::Refuse,
        };
        let client = self.options.open(missing).await?;
        match self.verb {
            Verb::List(list) => list.run(&client).await,
            Verb::Show(show) => show.run(&client).await,
            Verb::Watch(watch) => watch.run(&client).await,
            Verb::Barrier(barrier) => barrier.run(&client).await,
            Verb::Set(set) => set.run(&client).await,
            Verb::Delete(delete) => delete.run(&client).await,
        }
    }
}
