//! Watches what other processes write, and moves the write-ahead log into the file.

use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_core::{Result, Revision};
use rusqlite::{Connection, OptionalExtension};

use crate::codec::unsigned;
use crate::config::Config;
use crate::error::Answer;
use crate::hints::Hints;
use crate::turnstile::Turnstile;
use crate::{schema, threads};

/// Past so many pages in the log, the watcher moves them into the file.
const LOG_PAGES: i64 = 4_000;
/// Past so many, it makes writers wait while it moves the last of them, so that the log begins anew:
/// it must not grow for ever.
const LOG_PAGES_MAX: i64 = 20_000;

/// Keeps the watcher alive as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Watching(#[allow(dead_code)] Arc<()>);

impl Watching {
    pub(crate) fn start(config: &Config, hints: Arc<Hints>) -> Result<Self> {
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let connection = schema::open_watcher(config)?;
        let turnstile = Turnstile::open(config)?;
        let poll = config.poll;
        threads::start("watcher", move || {
            let mut version = 0;
            while Weak::strong_count(&watched) > 0 {
                match version_of(&connection) {
                    Ok(now) if now != version => {
                        version = now;
                        if let Err(fault) = look(&connection, &hints) {
                            tracing::warn!(?fault, "cannot look for what others wrote");
                        }
                        check_point(&connection, &turnstile);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "cannot look for what others wrote"),
                }
                threads::sleep(poll);
            }
        })?;
        Ok(Self(alive))
    }
}

/// Changes whenever another connection, of this process or another, has written.
fn version_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
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

/// Readers and writers go on while most of the log is moved.
fn check_point(connection: &Connection, turnstile: &Turnstile) {
    let run = |mode: &str| {
        connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            row.get::<_, i64>(1)
        })
    };
    let moved = match log_pages(connection) {
        Ok(pages) if pages < LOG_PAGES => return,
        Ok(_) => run("PASSIVE"),
        Err(error) => Err(error),
    };
    let moved = moved.and_then(|pages| match pages > LOG_PAGES_MAX {
        // Somebody who reads for long keeps the log from beginning anew: then writers must not
        // wait, and it is tried again after the next look.
        true => turnstile.through(|| {
            connection.busy_timeout(Duration::ZERO)?;
            run("RESTART")
        }),
        false => Ok(pages),
    });
    if let Err(error) = moved {
        tracing::warn!(%error, "the write-ahead log cannot be moved");
    }
}

/// How many pages are in the log, without moving any.
fn log_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1))
}
