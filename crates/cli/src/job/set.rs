//! `plimsoll job set`: a shell script as a partition.

use std::fmt;
use std::time::Duration;

use clap::Args;
use plimsoll::Name;
use plimsoll::jobs::{Manager, NewState, Written};
use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::input;
use crate::output::say;
use crate::text::{clean, count};

/// Says how far a partition is. The first who does creates the job, with as many partitions as he says;
/// for all others, the number that is stored is the one that holds.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Which job.
    job: Name,
    /// Which partition, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    partition: u32,
    /// How many there are; without it, there must be such a job.
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u32>,
    /// The work stream or step.
    #[arg(long)]
    tag: Name,
    #[command(flatten)]
    what: What,
    /// What people read.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["error", "warning"])]
    message: Option<String>,
    /// More about it: an object in JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The version of what the payload looks like; 1 if nothing is said.
    #[arg(long, value_name = "NUMBER", requires = "payload")]
    schema_version: Option<u32>,
    /// Names this write: the same again changes nothing.
    #[arg(long, value_name = "ID")]
    event_id: Option<Name>,
    /// Partition 0: how long the job is kept after all its partitions have finished.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    retain: Option<Duration>,
    /// Partition 0: something about the job that `job show` tells.
    #[arg(long, value_name = "NAME=VALUE", value_parser = about)]
    about: Vec<(Name, String)>,
}

/// How far it is.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// This far: more than 0 is running, less is an error.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    status: Option<i32>,
    /// It has begun: status 1.
    #[arg(long)]
    started: bool,
    /// It is done.
    #[arg(long)]
    finished: bool,
    /// It has failed: status -1.
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Something is not right: status -2.
    #[arg(long, value_name = "TEXT")]
    warning: Option<String>,
}

/// `NAME=VALUE`, of which the value is any text.
fn about(text: &str) -> Result<(Name, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let name = Name::for_field("name", name).map_err(|invalid| invalid.to_string())?;
    Ok((name, value.to_owned()))
}

#[derive(Serialize)]
struct WireSet<'a> {
    job: &'a Name,
    partition: u32,
    partitions: u32,
    tag: &'a Name,
    version: u64,
    repeated: bool,
    created: bool,
}

/// What went wrong in a script.
#[derive(Debug)]
struct Told(String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Told {}

impl Set {
    /// Whether there need not be such a job.
    pub(super) fn creates(&self) -> bool {
        self.partitions.is_some()
    }

    pub(super) async fn run(self, client: &Client) -> Outcome {
        let state = self.state(client)?;
        // Nobody creates a job for a state that is too large for it.
        state.check(client.engine.store().limits())?;
        let jobs = client.engine.jobs();
        let mut join = match self.partitions {
            Some(partitions) => jobs.join(self.job.as_str(), self.partition, partitions),
            None => jobs.join_existing(self.job.as_str(), self.partition),
        };
        if let Some(retain) = self.retain {
            join = join.retain(retain);
        }
        for (name, value) in &self.about {
            join = join.about(name, value)?;
        }
        let manager = join.await?;
        if self.partition != 0 && (self.retain.is_some() || !self.about.is_empty()) {
            let note = "Only partition 0 says how long a job is kept and what it is about: nothing changed.";
            client.screen.note(note);
        }
        if let Some(partitions) = self.partitions
            && manager.partitions() != partitions
        {
            let stored = count(manager.partitions().into(), "partition");
            let job = clean(self.job.as_str());
            client
                .screen
                .note(&format!("Job {job} has {stored}, not {partitions}."));
        }
        let written = self.what.write(&manager, state).await?;
        self.tell(client, &manager, written)
    }

    fn state(&self, client: &Client) -> Outcome<NewState> {
        let mut state = NewState::of(&self.tag)?;
        state.message = self.message.clone().unwrap_or_default();
        state.event_id = self.event_id.clone();
        if let Some(argument) = &self.payload {
            let most = client.engine.store().limits().record_bytes_max;
            let bytes = input::payload(argument, most)?;
            let payload: Value = serde_json::from_slice(&bytes)
                .map_err(|error| CliError::Usage(format!("--payload: no JSON: {error}")))?;
            state = state.payload(payload)?;
        }
        if let Some(version) = self.schema_version {
            state = state.schema_version(version);
        }
        Ok(state)
    }

    fn tell(&self, client: &Client, manager: &Manager, written: Written) -> Outcome {
        let Written { version, repeated } = written;
        match client.screen.json {
            true => client.screen.object(&WireSet {
                job: &self.job,
                partition: self.partition,
                partitions: manager.partitions(),
                tag: &self.tag,
                version,
                repeated,
                created: manager.created(),
            })?,
            false if repeated => say(&format!("version {version}, repeated\n"))?,
            false => say(&format!("version {version}\n"))?,
        };
        Ok(OK)
    }
}

impl What {
    async fn write(&self, manager: &Manager, mut state: NewState) -> plimsoll::Result<Written> {
        match self {
            Self {
                error: Some(error), ..
            } => manager.set_error(&Told(error.clone()), state).await,
            Self {
                warning: Some(warning),
                ..
            } => manager.set_warning(warning, state).await,
            Self {
                status: Some(status),
                ..
            } => {
                state.status = *status;
                manager.set_state(state).await
            }
            Self { started: true, .. } => manager.set_started(state).await,
            Self { .. } => manager.set_finished(state).await,
        }
    }
}
