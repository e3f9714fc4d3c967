//! `plimsoll record`: what is true now, by key and field.

mod cas;
mod get;
mod given;
mod index;
mod scan;
mod show;
mod watch;
mod write;

use clap::{Args, Subcommand};

use crate::client::{IfMissing, Options};
use crate::exit::Outcome;

/// Reads and writes records, finds them, and hears of their changes.
#[derive(Debug, Args)]
pub(crate) struct RecordCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Get(get::Get),
    Put(write::Put),
    Set(write::Set),
    Delete(write::Delete),
    Touch(write::Touch),
    Cas(cas::Cas),
    Scan(scan::Scan),
    Watch(watch::Watch),
    /// Declares, drops and lists indexes, by which `scan --range` finds records.
    #[command(subcommand)]
    Index(index::Index),
}

impl Verb {
    /// Who writes the first record, or says how they will be found, begins somewhere.
    fn if_missing(&self) -> IfMissing {
        match self {
            Self::Put(_) | Self::Set(_) | Self::Cas(_) => IfMissing::Create,
            Self::Index(index::Index::Declare { .. }) => IfMissing::Create,
            Self::Get(_) | Self::Delete(_) | Self::Touch(_) => IfMissing::Refuse,
            Self::Scan(_) | Self::Watch(_) | Self::Index(_) => IfMissing::Refuse,
        }
    }
}

impl RecordCommand {
    pub(crate) async fn run(self) -> Outcome {
        let client = self.options.open(self.verb.if_missing()).await?;
        match self.verb {
            Verb::Get(get) => get.run(&client).await,
            Verb::Put(put) => put.run(&client).await,
            Verb::Set(set) => set.run(&client).await,
            Verb::Delete(delete) => delete.run(&client).await,
            Verb::Touch(touch) => touch.run(&client).await,
            Verb::Cas(cas) => cas.run(&client).await,
            Verb::Scan(scan) => scan.run(&client).await,
            Verb::Watch(watch) => watch.run(&client).await,
            Verb::Index(index) => index.run(&client).await,
        }
    }
}
