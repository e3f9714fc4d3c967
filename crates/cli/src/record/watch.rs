//! `plimsoll record watch`.

use clap::Args;
use plimsoll::change::Removal;
use plimsoll::history::Place;
use plimsoll::records::WatchEvent;
use plimsoll::{Error, Key, Prefix, records};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::show::{WireRecord, in_line};
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{clean, cut};

/// Shows records that are there, then what changes, one line for each, until an interrupt or SIGTERM.
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// What the keys begin with; '': all, those of the engine among them.
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    prefix: Option<Prefix>,
    /// Only this record.
    #[arg(long, value_name = "KEY")]
    key: Option<Key>,
    /// Goes on with what changed after this cursor, which a watch of the same records has shown.
    #[arg(long, value_name = "CURSOR", conflicts_with = "changes_only")]
    after: Option<Place>,
    /// Does not show what is there already.
    #[arg(long)]
    changes_only: bool,
    /// Ends after so many lines.
    #[arg(long, value_name = "LINES", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl Watch {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let failed = |error| CliError::System {
            what: "listen for signals",
            error,
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut watch = self.watch(client)?;
        let screen = &client.screen;
        let (mut told_last, mut ended) = (self.after.as_ref().map(Place::to_string), Ok(OK));
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            let event = tokio::select! {
                biased;
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                event = watch.next() => event,
            };
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    ended = Err(error.into());
                    break;
                }
            };
            let told = WireEvent::from(&event);
            let heard = match screen.json {
                true => screen.object(&told)?,
                false => say(&line(&event, screen))?,
            };
            told_last = told.cursor.or(told_last);
            if !heard {
                return Ok(OK);
            }
        }
        // What it told last may be long ago, so that what followed is not kept any more.
        let cursor = watch.cursor().map(|place| place.to_string()).or(told_last);
        let refused = matches!(ended, Err(CliError::Plimsoll(Error::Invalid(_))));
        match cursor {
            Some(cursor) if !screen.json && !refused => {
                screen.note(&format!("To go on from here: --after {cursor}"));
            }
            _ => {}
        }
        ended
    }

    fn watch(&self, client: &Client) -> Outcome<records::Watch> {
        let records = client.engine.records();
        let watch = match (&self.key, &self.prefix) {
            (Some(key), _) => records.watch_key(key)?,
            (None, Some(prefix)) => records.watch(prefix)?,
            (None, None) => records.watch("")?,
        };
        Ok(match self.after {
            Some(cursor) => watch.after(cursor),
            None if self.changes_only => watch.changes_only(),
            None => watch,
        })
    }
}

/// What programs read. What an event does not have is `null`.
#[derive(Serialize)]
struct WireEvent<'a> {
    event: &'static str,
    key: Option<&'a Key>,
    record: Option<WireRecord<'a>>,
    revision: Option<u64>,
    how: Option<Removal>,
    cursor: Option<String>,
}

impl<'a> From<&'a WatchEvent> for WireEvent<'a> {
    fn from(event: &'a WatchEvent) -> Self {
        let bare = |event| Self {
            event,
            key: None,
            record: None,
            revision: None,
            how: None,
            cursor: None,
        };
        match event {
            WatchEvent::Snapshot(record) => Self {
                key: Some(&record.key),
                record: Some(record.into()),
                revision: Some(record.revision.get()),
                ..bare("snapshot")
            },
            WatchEvent::ReplayComplete { cursor } => Self {
                cursor: Some(cursor.to_string()),
                ..bare("replay_complete")
            },
            WatchEvent::Put { record, cursor } => Self {
                key: Some(&record.key),
                record: Some(record.into()),
                revision: Some(record.revision.get()),
                cursor: Some(cursor.to_string()),
                ..bare("put")
            },
            WatchEvent::Removed {
                key,
                revision,
                how,
                cursor,
            } => Self {
                key: Some(key),
                revision: Some(revision.get()),
                how: Some(*how),
                cursor: Some(cursor.to_string()),
                ..bare("removed")
            },
            WatchEvent::Restarted => bare("restarted"),
        }
    }
}

/// What people read.
fn line(event: &WatchEvent, screen: &Screen) -> String {
    let (word, tint, rest) = match event {
        WatchEvent::Snapshot(record) => ("there", Tint::Plain, fields(record)),
        WatchEvent::Put { record, .. } => ("put", Tint::Good, fields(record)),
        WatchEvent::ReplayComplete { .. } => {
            ("live", Tint::Faint, "all that was there is shown".into())
        }
        WatchEvent::Removed { key, how, .. } => {
            let (word, tint) = match how {
                Removal::Deleted => ("deleted", Tint::Bad),
                Removal::Expired => ("expired", Tint::Waiting),
            };
            (word, tint, clean(key.as_str()))
        }
        WatchEvent::Restarted => {
            let why = "what happened next is not kept any more: what is there follows";
            ("restart", Tint::Warning, why.into())
        }
    };
    let room = screen.width.unwrap_or(usize::MAX);
    let word = screen.paint(tint, &format!("{word:7}"));
    format!("{word}  {}\n", cut(&rest, room.saturating_sub(9)))
}

fn fields(record: &plimsoll::record::Record) -> String {
    format!(
        "{}  {}",
        clean(record.key.as_str()),
        in_line(&record.fields)
    )
}
