//! `plimsoll migrate`: makes the schema of a database, or brings it up to date.

use clap::Args;
use plimsoll::postgres::{SCHEMA_VERSION, grant, grants_sql, migrate, migration_sql};
use plimsoll::{PostgresUrl, StoreUrl};
use serde::Serialize;

use crate::client::Options;
use crate::exit::{CliError, OK, Outcome};
use crate::output::say;

/// Makes the schema of a PostgreSQL database, or brings it up to date.
///
/// Whoever submits the first task does so too, if their role may. Where workers have a role that may
/// not, run this as one that may, whenever a new version of Plimsoll is installed.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Only prints the SQL: for who runs it by themselves.
    #[arg(long)]
    print: bool,
    /// Grants this role what workers and clients need, and no more.
    #[arg(long, value_name = "NAME")]
    runtime_role: Option<String>,
}

impl Migrate {
    pub(crate) async fn run(self) -> Outcome {
        let StoreUrl::Postgres(url) = self.options.url()? else {
            return Err(CliError::Usage(
                "a file is brought up to date by whoever opens it: name a server with --store postgres://…"
                    .into(),
            ));
        };
        match self.print {
            true => self.show(&url),
            false => self.migrate(&url).await,
        }
    }

    fn show(&self, url: &PostgresUrl) -> Outcome {
        let schema = url.config()?.schema;
        let mut sql = migration_sql(&schema);
        if let Some(role) = &self.runtime_role {
            sql += &grants_sql(&schema, role);
        }
        say(&sql)?;
        Ok(OK)
    }

    async fn migrate(&self, url: &PostgresUrl) -> Outcome {
        let config = url.config()?;
        let before = migrate(&config).await?;
        if let Some(role) = &self.runtime_role {
            grant(&config, role).await?;
        }
        let screen = self.options.screen();
        let told = Told {
            schema: &config.schema,
            before,
            version: SCHEMA_VERSION,
            runtime_role: self.runtime_role.as_deref(),
        };
        match screen.json {
            true => drop(screen.object(&told)?),
            false => drop(say(&told.words())?),
        }
        Ok(OK)
    }
}

/// What was done.
#[derive(Serialize)]
struct Told<'a> {
    schema: &'a str,
    before: u32,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_role: Option<&'a str>,
}

impl Told<'_> {
    fn words(&self) -> String {
        let Self {
            schema,
            before,
            version,
            ..
        } = self;
        let mut words = match before {
            0 => format!("The schema {schema} is there now, in version {version}.\n"),
            _ if before == version => {
                format!("The schema {schema} has version {version} already.\n")
            }
            _ => format!("The schema {schema} has version {version} now; it had {before}.\n"),
        };
        if let Some(role) = self.runtime_role {
            words += &format!("The role {role} has what workers and clients need.\n");
        }
        words
    }
}
