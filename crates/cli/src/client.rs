//! What every command about tasks, queues and so on needs: a store, and somebody to answer.

use clap::Args;
use plimsoll::{Engine, PostgresUrl, StoreUrl, Tasks, Timestamp};

use crate::exit::{CliError, Outcome};
use crate::screen::{Colour, Screen};

/// What every one of these commands understands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The store: `sqlite:PATH` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PLIMSOLL_STORE",
        default_value = "sqlite:plimsoll.db",
        hide_env_values = true,
        help_heading = "Everywhere"
    )]
    pub(crate) store: String,
    /// The namespace in it.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PLIMSOLL_NAMESPACE",
        default_value = "default",
        hide_env_values = true,
        help_heading = "Everywhere"
    )]
    pub(crate) namespace: String,
    /// Answers for programs: one JSON object a line.
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// Nothing but the answer: no bars, no notes.
    #[arg(
        long,
        short,
        global = true,
        visible_alias = "no-progress",
        help_heading = "Everywhere"
    )]
    pub(crate) quiet: bool,
    /// Whether answers are coloured.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = "Everywhere"
    )]
    color: Colour,
}

/// Whether a store that is not there is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// It is: who submits begins somewhere.
    Create,
    /// It is not: who looks for something in a new file has mistyped its name.
    Refuse,
}

impl Options {
    pub(crate) fn screen(&self) -> Screen {
        Screen::new(self.json, self.quiet, self.color)
    }

    /// Which store is meant. Memory is refused: it ends with the command.
    pub(crate) fn url(&self) -> Outcome<StoreUrl> {
        match StoreUrl::parse(&self.store)? {
            StoreUrl::Memory => Err(CliError::Usage(
                "--store memory: would end with this command: name a file, as in sqlite:plimsoll.db, \
                 or a server, as in postgres://USER:PASSWORD@HOST/DATABASE"
                    .into(),
            )),
            url => Ok(url),
        }
    }

    /// Which store is meant, if its file is there. In a database, nothing is made or brought up to
    /// date by who only looks.
    pub(crate) fn existing(&self) -> Outcome<StoreUrl> {
        match self.url()? {
            StoreUrl::Sqlite { path, .. } if !path.exists() => Err(CliError::NoStore(format!(
                "there is no file {}: name another with --store sqlite:PATH or PLIMSOLL_STORE, \
                 or submit a task to make it",
                path.display()
            ))),
            StoreUrl::Postgres(url) => Ok(StoreUrl::Postgres(PostgresUrl {
                migrate: false,
                ..url
            })),
            url => Ok(url),
        }
    }

    pub(crate) async fn open(&self, missing: IfMissing) -> Outcome<Client> {
        let url = match missing {
            IfMissing::Create => self.url()?,
            IfMissing::Refuse => self.existing()?,
        };
        let engine = url.open()?.engine(&self.namespace).await?;
        Ok(Client {
            tasks: engine.tasks(),
            engine,
            screen: self.screen(),
        })
    }
}

/// An open store, and who reads the answers.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) tasks: Tasks,
    pub(crate) screen: Screen,
}

impl Client {
    /// What ages are counted from.
    pub(crate) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }
}
