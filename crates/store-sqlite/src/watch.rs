//! Watches what other processes write, and moves the write-ahead log into the file.

use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_core::{Result, Revision};
use rusqlite::{Connection, OptionalExtension};

use crate::codec::unsigned;
use crate::config::Config;
use crate::error::Answer;
use crate::hints::Hints;
use crate::threads::Patience;
use crate::turnstile::Turnstile;
use crate::{schema, threads};

/// Past so many pages in the log, the watcher moves them into the file.
const LOG_PAGES: i64 = 4_000;
/// Past so many, it makes writers wait while it moves the last of them, so that the log begins anew:
/// it must not grow for ever.
const LOG_PAGES_MAX: i64 = 20_000;
/// How long writers may have to wait for that.
const BEGIN_ANEW_MAX: Duration = Duration::from_millis(20);
/// How many looks are left out at most after readers were in the way.
const LEAVE_OUT_MAX: u32 = 63;

/// Keeps the watcher alive as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Watching(#[allow(dead_code)] Arc<()>);

impl Watching {
    pub(crate) fn start(config: &Config, hints: Arc<Hints>) -> Result<Self> {
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let connection = schema::open_watcher(config)?;
        // Who moves the log waits by itself.
        let mover = schema::open_watcher(config)?;
        mover.busy_timeout(Duration::ZERO).map_err(schema::failed)?;
        let mut mover = Mover {
            connection: mover,
            turnstile: Turnstile::open(config)?,
            leave_out: 0,
            left_out: 0,
        };
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
                        if let Err(error) = mover.look() {
                            tracing::warn!(%error, "the write-ahead log cannot be moved");
                        }
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

/// Moves the write-ahead log into the file.
struct Mover {
    connection: Connection,
    turnstile: Turnstile,
    /// How many looks to leave out, because somebody who reads for long kept the log from
    /// beginning anew: writers must not wait for that again and again.
    leave_out: u32,
    left_out: u32,
}

impl Mover {
    /// Readers and writers go on while most of the log is moved.
    fn look(&mut self) -> rusqlite::Result<()> {
        if self.check_point("NOOP")?.pages < LOG_PAGES {
            return Ok(());
        }
        let moved = self.check_point("PASSIVE")?;
        if moved.pages <= LOG_PAGES_MAX {
            return Ok(());
        }
        if self.left_out < self.leave_out {
            self.left_out += 1;
            return Ok(());
        }
        let begun_anew = self.begin_anew()?;
        self.left_out = 0;
        self.leave_out = match begun_anew {
            true => 0,
            false => (self.leave_out * 2 + 1).min(LEAVE_OUT_MAX),
        };
        Ok(())
    }

    /// Nobody begins to write while this moves the last pages. Whether nobody still read old ones.
    fn begin_anew(&self) -> rusqlite::Result<bool> {
        let mut patience = Patience::new(BEGIN_ANEW_MAX);
        self.turnstile.through(|| {
            loop {
                if !self.check_point("RESTART")?.busy {
                    return Ok(true);
                }
                if !patience.wait() {
                    return Ok(false);
                }
            }
        })
    }

    fn check_point(&self, mode: &str) -> rusqlite::Result<CheckPoint> {
        let statement = format!("PRAGMA wal_checkpoint({mode})");
        self.connection.query_row(&statement, [], |row| {
            Ok(CheckPoint {
                busy: row.get(0)?,
                pages: row.get(1)?,
            })
        })
    }
}

struct CheckPoint {
    /// Somebody was in the way.
    busy: bool,
    /// How many pages are in the log.
    pages: i64,
}
