//! `plimsoll record cas`: writes only what is still so.

use std::time::Duration;

use clap::Args;
use plimsoll::records::{Swap, Swapped};
use plimsoll::store::Guard;
use plimsoll::{Key, Name, Revision};
use serde::Serialize;

use super::given::{Changes, Given, given, key};
use super::write::values;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::input;
use crate::output::say;
use crate::text::{clean, cut, escaped};

/// Writes to a record only if it is as expected: all of it or nothing. Shows its revision.
///
/// `cas KEY FIELD EXPECTED NEW` sets a field if it has this value; options expect and write anything
/// else. If an expectation does not hold, the exit code is 40. Values are read as by `record put`.
#[derive(Debug, Args)]
pub(super) struct Cas {
    /// Which record.
    #[arg(value_parser = key)]
    key: Key,
    /// The field to set,
    #[arg(
        requires = "new",
        required_unless_present_any = ["when", "unset_when", "absent", "present", "revision"]
    )]
    field: Option<Name>,
    /// the value it must have,
    #[arg(allow_negative_numbers = true)]
    expected: Option<String>,
    /// and the value it gets.
    #[arg(allow_negative_numbers = true)]
    new: Option<String>,
    /// Only if the field has this value.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given, help_heading = "Expects")]
    when: Vec<Given>,
    /// Only if there is no such field.
    #[arg(long, value_name = "FIELD", help_heading = "Expects")]
    unset_when: Vec<Name>,
    /// Only if there is no such record.
    #[arg(long, conflicts_with_all = ["present", "revision"], help_heading = "Expects")]
    absent: bool,
    /// Only if there is such a record.
    #[arg(long, help_heading = "Expects")]
    present: bool,
    /// Only if the record is still at this revision.
    #[arg(long, value_name = "NUMBER", help_heading = "Expects")]
    revision: Option<u64>,
    /// Sets a field.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = given)]
    set: Vec<Given>,
    #[command(flatten)]
    changes: Changes,
    /// Lets the record live for so long from now.
    #[arg(long, value_name = "TIME", value_parser = input::duration, conflicts_with = "persist")]
    ttl: Option<Duration>,
    /// Lets the record live for ever.
    #[arg(long)]
    persist: bool,
    /// Removes the record.
    #[arg(
        long,
        conflicts_with_all = ["field", "set", "unset", "add", "raise", "ttl", "persist"]
    )]
    delete: bool,
}

#[derive(Serialize)]
struct WireSwapped<'a> {
    key: &'a Key,
    revision: Option<u64>,
}

impl Cas {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let (key, deletes) = (self.key.clone(), self.delete);
        match client.engine.records().swap(self.swap(client)?).await? {
            Swapped::Refused(guard) => Err(CliError::NotSwapped(otherwise(&guard))),
            Swapped::Done(revision) => {
                let revision = revision.map(Revision::get);
                match (client.screen.json, revision) {
                    (true, _) => {
                        let key = &key;
                        client.screen.object(&WireSwapped { key, revision })?
                    }
                    (false, Some(revision)) => say(&format!("{revision}\n"))?,
                    (false, None) if deletes => {
                        let deleted = format!("Deleted {}.", clean(key.as_str()));
                        client.screen.note(&deleted);
                        true
                    }
                    // Nothing was to be written: what was expected holds.
                    (false, None) => true,
                };
                Ok(OK)
            }
        }
    }

    fn swap(self, client: &Client) -> Outcome<Swap> {
        let mut values = values(client);
        let (mut expected, mut set) = (values.all(&self.when)?, values.all(&self.set)?);
        if let (Some(field), Some(before), Some(after)) = (self.field, self.expected, self.new) {
            expected.push((field.clone(), values.read(&before)?));
            set.push((field, values.read(&after)?));
        }
        self.changes.check(&set)?;
        let mut swap = Swap::new(&self.key);
        for (name, value) in expected {
            swap = swap.when(name, value);
        }
        for name in self.unset_when {
            swap = swap.when_unset(name);
        }
        if self.absent {
            swap = swap.when_absent();
        }
        if self.present {
            swap = swap.when_present();
        }
        if let Some(revision) = self.revision {
            swap = swap.when_at(Revision::new(revision));
        }
        for (name, value) in set {
            swap = swap.set(name, value);
        }
        for name in self.changes.unset {
            swap = swap.unset(name);
        }
        for (name, number) in self.changes.add {
            swap = swap.add(name, number);
        }
        for (name, number) in self.changes.raise {
            swap = swap.raise(name, number);
        }
        // At last: what is written may create the record.
        if self.persist || self.ttl.is_some() {
            swap = swap.touch(self.ttl);
        }
        if self.delete {
            swap = swap.delete();
        }
        Ok(swap)
    }
}

/// How wide a value is shown in an error.
const VALUE: usize = 60;

/// What is so instead of what was expected.
fn otherwise(expected: &Guard) -> String {
    match expected {
        Guard::RecordAbsent(key) => format!("record {key} is there"),
        Guard::RecordPresent(key) => format!("there is no record {key}"),
        Guard::RecordAt(key, revision) => format!("record {key} is not at revision {revision}"),
        Guard::Field(key, field, None) => format!("record {key} has a field {field}"),
        Guard::Field(key, field, Some(value)) => {
            let value = cut(&escaped(value), VALUE);
            format!("field {field} of record {key} is not \"{value}\"")
        }
        Guard::Held(_) | Guard::TaskAt(..) | Guard::GroupOpen(_) => {
            format!("it does not hold that {expected}")
        }
    }
}
