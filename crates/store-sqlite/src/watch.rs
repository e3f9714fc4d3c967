//! Watches what other processes write, and moves the write-ahead log into the file.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::wake::Wake;
use rusqlite::Connection;

use crate::config::Config;
use crate::schema;
use crate::turnstile::Turnstile;
use crate::writer::Hubs;

/// Past so many pages in the log, the watcher moves them into the file.
const LOG_PAGES: i64 = 4_000;
/// Past so many, it makes writers wait while it moves the last of them, so that the log begins anew:
/// it must not grow for ever.
const LOG_PAGES_MAX: i64 = 20_000;

/// Keeps the watcher alive as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Watching(#[allow(dead_code)] Arc<()>);

impl Watching {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start(config: &Config, hubs: Hubs) -> Result<Self> {
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let connection = schema::open_watcher(config)?;
        let turnstile = Turnstile::open(config)?;
        let poll = config.poll;
        std::thread::spawn(move || {
            let mut version = 0;
            while Weak::strong_count(&watched) > 0 {
                match look(&connection) {
                    Ok(now) if now != version => {
                        version = now;
                        tell_all(&hubs);
                        check_point(&connection, &turnstile);
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "cannot look for what others wrote"),
                }
                std::thread::sleep(poll);
            }
        });
        Ok(Self(alive))
    }
}

/// Changes whenever another connection, of this process or another, has written.
fn look(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn tell_all(hubs: &Hubs) {
    let wake = Wake {
        any_lane: true,
        history: true,
        leases: true,
        ..Wake::default()
    };
    let hubs = hubs.lock().unwrap_or_else(PoisonError::into_inner);
    hubs.values().for_each(|hub| hub.notify(&wake));
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
