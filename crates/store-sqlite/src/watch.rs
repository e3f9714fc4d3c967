//! Watches the file: tells listeners what other processes wrote, and lets the log be moved.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use plimsoll_core::{Result, Revision};
use rusqlite::{Connection, OptionalExtension};

use crate::cache::data_version;
use crate::codec::unsigned;
use crate::config::Config;
use crate::error::Answer;
use crate::hints::Hints;
use crate::mover::Mover;
use crate::turnstile::Turnstile;
use crate::{schema, threads};

/// Watches until it is dropped. Moving the log may take a while, so that it has a thread of its own.
#[derive(Debug)]
pub(crate) struct Watching {
    _ends: [mpsc::Sender<Infallible>; 2],
}

impl Watching {
    pub(crate) fn start(config: &Config, hints: Arc<Hints>) -> Result<Self> {
        let connection = schema::open_watcher(config)?;
        let watcher = after_writes("watcher", config.poll, connection, move |connection| {
            look(connection, &hints)
        })?;
        let connection = schema::open_watcher(config)?;
        // The mover waits by itself.
        (connection.busy_timeout(Duration::ZERO)).map_err(schema::failed)?;
        let mut mover = Mover::new(Turnstile::open(config)?);
        let mover = after_writes("mover", config.poll, connection, move |connection| {
            Ok(mover.look(connection)?)
        })?;
        Ok(Self {
            _ends: [watcher, mover],
        })
    }
}

/// Acts whenever another connection, of this process or another, has written since the last look.
/// A look that fails is repeated.
fn after_writes(
    name: &'static str,
    poll: Duration,
    connection: Connection,
    mut act: impl FnMut(&Connection) -> Answer<()> + Send + 'static,
) -> Result<mpsc::Sender<Infallible>> {
    let (end, ended) = mpsc::channel();
    threads::start(name, move || {
        let mut seen = None;
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(poll) {
            let looked = data_version(&connection).and_then(|now| {
                if seen != Some(now) {
                    act(&connection)?;
                    seen = Some(now);
                }
                Ok(())
            });
            if let Err(fault) = looked {
                tracing::warn!(?fault, name, "cannot look at the file");
            }
        }
    })?;
    Ok(end)
}

fn look(connection: &Connection, hints: &Hints) -> Answer<()> {
    for ns in hints.namespaces() {
        let revision: Option<i64> = connection
            .prepare_cached("SELECT revision FROM namespaces WHERE ns = ?")?
            .query_row([ns], |row| row.get(0))
            .optional()?;
        if let Some(revision) = revision {
            hints.saw(ns, Revision::new(unsigned(revision)?));
        }
    }
    Ok(())
}
