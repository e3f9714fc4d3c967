//! `plimsoll record put`, `set`, `delete` and `touch`.

use std::time::Duration;

use clap::Args;
use plimsoll::error::NotFound;
use plimsoll::store::Merge;
use plimsoll::{Error, Key, Revision};
use serde::Serialize;

use super::given::{Changes, Given, Values, given, key, once};
use super::show::{WireWritten, show};
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::input;
use crate::output::say;
use crate::text::clean;

/// Replaces a record, or creates it: it has these fields and no others. Shows its revision.
#[derive(Debug, Args)]
pub(super) struct Put {
    /// Which record.
    #[arg(value_parser = key)]
    key: Key,
    /// Its fields. A value is text, `@FILE`, `@-` for standard input, or `@@` for text that begins with
    /// one `@`.
    #[arg(value_name = "FIELD=VALUE", value_parser = given, required = true)]
    fields: Vec<Given>,
    /// How long it lives; otherwise for ever.
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    ttl: Option<Duration>,
}

impl Put {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let fields = values(client).all(&self.fields)?;
        once(fields.iter().map(|(name, _)| name))?;
        let records = client.engine.records();
        let revision = records.put(&self.key, fields, self.ttl).await?;
        written(&self.key, revision, client)
    }
}

/// Changes fields of a record, all at once, or creates it. Shows the record afterwards.
///
/// The other fields and the time to live stay as they are.
#[derive(Debug, Args)]
pub(super) struct Set {
    /// Which record.
    #[arg(value_parser = key)]
    key: Key,
    /// Fields to set. A value is text, `@FILE`, `@-` for standard input, or `@@` for text that begins
    /// with one `@`.
    #[arg(value_name = "FIELD=VALUE", value_parser = given)]
    fields: Vec<Given>,
    #[command(flatten)]
    changes: Changes,
}

impl Set {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let fields = values(client).all(&self.fields)?;
        self.changes.check(&fields)?;
        let mut merge = Merge::new(self.key).set(fields.into_iter().collect());
        for name in self.changes.unset {
            merge = merge.unset(name);
        }
        for (name, number) in self.changes.add {
            merge = merge.add(name, number);
        }
        for (name, number) in self.changes.raise {
            merge = merge.raise(name, number);
        }
        show(&client.engine.records().merge(merge).await?, client)?;
        Ok(OK)
    }
}

/// Removes a record. If it is not there, the exit code is 3.
#[derive(Debug, Args)]
pub(super) struct Delete {
    /// Which record.
    #[arg(value_parser = key)]
    key: Key,
}

#[derive(Serialize)]
struct WireDeleted<'a> {
    key: &'a Key,
    deleted: bool,
}

impl Delete {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let key = &self.key;
        if !client.engine.records().delete(key).await? {
            return Err(Error::from(NotFound::Record(key.clone())).into());
        }
        match client.screen.json {
            true => drop(client.screen.object(&WireDeleted { key, deleted: true })?),
            false => client
                .screen
                .note(&format!("Deleted {}.", clean(key.as_str()))),
        }
        Ok(OK)
    }
}

/// Changes how long a record lives, and nothing else. Shows its revision.
#[derive(Debug, Args)]
pub(super) struct Touch {
    /// Which record.
    #[arg(value_parser = key)]
    key: Key,
    /// It lives for so long from now.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = input::duration,
        required_unless_present = "persist",
        conflicts_with = "persist"
    )]
    ttl: Option<Duration>,
    /// It lives for ever.
    #[arg(long)]
    persist: bool,
}

impl Touch {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let records = client.engine.records();
        let revision = match self.ttl {
            Some(ttl) => records.touch(&self.key, ttl).await?,
            None => records.persist(&self.key).await?,
        };
        written(&self.key, revision, client)
    }
}

/// What is read for values stays within what the store takes.
pub(super) fn values(client: &Client) -> Values {
    Values::new(client.engine.store().limits().value_bytes_max)
}

fn written(key: &Key, revision: Revision, client: &Client) -> Outcome {
    let revision = revision.get();
    match client.screen.json {
        true => client.screen.object(&WireWritten { key, revision })?,
        false => say(&format!("{revision}\n"))?,
    };
    Ok(OK)
}
