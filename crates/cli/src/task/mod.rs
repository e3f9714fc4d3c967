//! `plimsoll task`: submits tasks, looks at them, waits for them and operates on them.

mod details;
mod lines;
mod list;
mod logs;
mod operate;
mod select;
mod steps;
mod submit;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use list::Table;

use clap::{Args, Subcommand};

use crate::client::{IfMissing, Options};
use crate::exit::Outcome;

/// Submits tasks, looks at them, waits for them and operates on them.
#[derive(Debug, Args)]
pub(crate) struct TaskCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submits a task, or one for each line of JSON.
    Submit(submit::Submit),
    /// Lists tasks: those that are alive first.
    List(list::ListTasks),
    /// Shows everything about a task.
    Show(details::Show),
    /// Shows what a task said while it ran.
    Logs(logs::ShowLogs),
    /// Shows the commands that a task ran, over all its attempts.
    Steps(steps::ShowSteps),
    /// Makes tasks run again at once: those named, or all that match.
    Retry(operate::Retry),
    /// Cancels tasks: those named, or all that match.
    Cancel(operate::Cancel),
    /// Waits until tasks have ended. The exit code tells how.
    Wait(wait::Wait),
    /// Removes tasks that have ended: those named, or all that match.
    Delete(operate::Delete),
}

impl TaskCommand {
    pub(crate) async fn run(self) -> Outcome {
        let missing = match self.verb {
            Verb::Submit(_) => IfMissing::Create,
            _ => IfMissing::Refuse,
        };
        if let Verb::Submit(submit) = &self.verb {
            submit.check()?;
        }
        let client = self.options.open(missing).await?;
        match self.verb {
            Verb::Submit(submit) => submit.run(&client).await,
            Verb::List(list) => list.run(&client).await,
            Verb::Show(show) => show.run(&client).await,
            Verb::Logs(logs) => logs.run(&client).await,
            Verb::Steps(steps) => steps.run(&client).await,
            Verb::Retry(retry) => retry.run(&client).await,
            Verb::Cancel(cancel) => cancel.run(&client).await,
            Verb::Wait(wait) => wait.run(&client).await,
            Verb::Delete(delete) => delete.run(&client).await,
        }
    }
}
