//! `plimsoll record get`.

use std::io::IsTerminal;

use clap::Args;
use plimsoll::error::NotFound;
use plimsoll::{Error, Key, Name};
use serde::Serialize;

use super::show::{WireValue, show};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::output::{say, say_bytes};
use crate::text::{clean, escaped};

/// Shows a record, or one of its fields.
#[derive(Debug, Args)]
pub(super) struct Get {
    /// Which record.
    key: Key,
    /// Only the value of this field. Unless on a terminal, it is shown as it is stored, without the end
    /// of a line.
    #[arg(long, value_name = "FIELD")]
    field: Option<Name>,
}

#[derive(Serialize)]
struct WireField<'a> {
    key: &'a Key,
    field: &'a Name,
    value: WireValue<'a>,
}

impl Get {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let record = client.engine.records().get(&self.key).await?;
        let gone = || Error::from(NotFound::Record(self.key.clone()));
        let record = record.ok_or_else(gone)?;
        let Some(field) = &self.field else {
            show(&record, client)?;
            return Ok(OK);
        };
        let value = record.fields.get(field).ok_or_else(|| {
            let (key, field) = (clean(self.key.as_str()), clean(field.as_str()));
            CliError::NoSuch(format!("record {key} has no field {field}"))
        })?;
        match (client.screen.json, std::io::stdout().is_terminal()) {
            (true, _) => client.screen.object(&WireField {
                key: &self.key,
                field,
                value: value.as_ref().into(),
            })?,
            (false, true) => say(&(escaped(value) + "\n"))?,
            (false, false) => say_bytes(value)?,
        };
        Ok(OK)
    }
}
