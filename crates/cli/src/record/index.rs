//! `plimsoll record index`.

use clap::{Args, Subcommand};
use plimsoll::{Name, Prefix, record};
use serde::Serialize;

use super::given::prefix;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::grid::{Blocks, Column};

#[derive(Debug, Subcommand)]
pub(super) enum Index {
    /// Declares an index, and waits until every record is in it. From then on every process keeps it.
    Declare {
        /// What the keys of the records begin with; '': all.
        #[arg(value_parser = prefix)]
        prefix: Prefix,
        /// The field, in which there are integers.
        field: Name,
    },
    /// Drops an index. If it was not declared, the exit code is 3.
    Drop(Which),
    /// Lists all indexes, and whether they can be used yet.
    List,
}

/// Which index.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// What the keys of the records begin with; '': all.
    prefix: Prefix,
    /// The field, in which there are integers.
    field: Name,
}

#[derive(Serialize)]
struct WireIndex<'a> {
    prefix: &'a str,
    field: &'a Name,
    /// Whether it can be used; `None`: it is not there any more.
    ready: Option<bool>,
}

impl Index {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        match self {
            Self::Declare { prefix, field } => Which { prefix, field }.declare(client).await,
            Self::Drop(index) => index.drop(client).await,
            Self::List => list(client).await,
        }
    }
}

impl Which {
    async fn declare(self, client: &Client) -> Outcome {
        let records = client.engine.records();
        records.declare_index(&self.prefix, &self.field).await?;
        self.tell(client, "Every record is in the index", Some(true))
    }

    async fn drop(self, client: &Client) -> Outcome {
        let records = client.engine.records();
        if !records.drop_index(&self.prefix, &self.field).await? {
            let none = format!("there is no index on {}", self.index());
            return Err(CliError::NoSuch(none));
        }
        self.tell(client, "Dropped the index", None)
    }

    fn index(&self) -> record::Index {
        record::Index {
            prefix: self.prefix.clone(),
            field: self.field.clone(),
        }
    }

    fn tell(&self, client: &Client, done: &str, ready: Option<bool>) -> Outcome {
        match client.screen.json {
            true => drop(client.screen.object(&WireIndex {
                prefix: self.prefix.as_str(),
                field: &self.field,
                ready,
            })?),
            false => {
                let index = crate::text::clean(&self.index().to_string());
                client.screen.note(&format!("{done} on {index}."));
            }
        }
        Ok(OK)
    }
}

async fn list(client: &Client) -> Outcome {
    const COLUMNS: [Column; 3] = [
        Column::new("RECORDS").cut_to(12),
        Column::new("FIELD").cut_to(12),
        Column::new("READY"),
    ];
    let screen = &client.screen;
    let indexes = client.engine.records().indexes().await?;
    let mut table = Blocks::new(&COLUMNS);
    for declared in &indexes {
        let index = &declared.index;
        let heard = match screen.json {
            true => screen.object(&WireIndex {
                prefix: index.prefix.as_str(),
                field: &index.field,
                ready: Some(declared.ready),
            })?,
            false => {
                let ready = if declared.ready { "yes" } else { "not yet" };
                let records = format!("{}*", index.prefix);
                let row = vec![records.into(), index.field.as_str().into(), ready.into()];
                table.push(row, screen)?
            }
        };
        if !heard {
            return Ok(OK);
        }
    }
    table.flush(screen)?;
    if indexes.is_empty() && !screen.json {
        screen.note("No index is declared.");
    }
    Ok(OK)
}
