//! Moves the write-ahead log into the file.

use std::time::Duration;

use rusqlite::Connection;

use crate::threads::Patience;
use crate::turnstile::Turnstile;

/// Past so many pages in the log, they are moved into the file.
const LOG_PAGES: i64 = 4_000;
/// Past so many, writers wait while the last of them are moved, so that the log begins anew: it must
/// not grow for ever.
pub(crate) const LOG_PAGES_MAX: i64 = 20_000;
/// How long writers may have to wait for that.
const BEGIN_ANEW_MAX: Duration = Duration::from_millis(20);
/// How many looks are left out at most after readers were in the way.
const LEAVE_OUT_MAX: u32 = 63;

pub(crate) struct Mover {
    turnstile: Turnstile,
    pages: i64,
    pages_max: i64,
    /// How many looks to leave out, because somebody who reads for long kept the log from
    /// beginning anew: writers must not wait for that again and again.
    leave_out: u32,
    left_out: u32,
}

impl Mover {
    pub(crate) fn new(turnstile: Turnstile) -> Self {
        Self {
            turnstile,
            pages: LOG_PAGES,
            pages_max: LOG_PAGES_MAX,
            leave_out: 0,
            left_out: 0,
        }
    }

    /// Readers and writers go on while most of the log is moved.
    pub(crate) fn look(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if check_point(connection, "NOOP")?.pages < self.pages {
            self.leave_out = 0;
            return Ok(());
        }
        if check_point(connection, "PASSIVE")?.pages <= self.pages_max {
            return Ok(());
        }
        if self.left_out < self.leave_out {
            self.left_out += 1;
            return Ok(());
        }
        let begun_anew = self.begin_anew(connection)?;
        self.left_out = 0;
        self.leave_out = match begun_anew {
            true => 0,
            false => (self.leave_out * 2 + 1).min(LEAVE_OUT_MAX),
        };
        Ok(())
    }

    /// Nobody begins to write while this moves the last pages. Whether nobody still read old ones.
    fn begin_anew(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let mut patience = Patience::new(BEGIN_ANEW_MAX);
        self.turnstile.through(&mut patience, |patience| {
            loop {
                if !check_point(connection, "RESTART")?.busy {
                    return Ok(true);
                }
                if !patience.wait() {
                    return Ok(false);
                }
            }
        })
    }
}

/// Moves all of the log into the file and gives its room back, unless somebody who reads is in the way: that is not
/// waited for. A migration leaves a log as large as what it copied.
pub(crate) fn empty(connection: &Connection) -> rusqlite::Result<()> {
    // Others may write while most of it is moved.
    check_point(connection, "PASSIVE")?;
    check_point(connection, "TRUNCATE")?;
    Ok(())
}

struct CheckPoint {
    /// Somebody was in the way.
    busy: bool,
    /// How many pages are in the log.
    pages: i64,
}

fn check_point(connection: &Connection, mode: &str) -> rusqlite::Result<CheckPoint> {
    let statement = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&statement, [], |row| {
        Ok(CheckPoint {
            busy: row.get(0)?,
            pages: row.get(1)?,
        })
    })
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn write(connection: &Connection, pages: usize) {
        let many = format!("INSERT INTO t VALUES (zeroblob({}))", pages * 4_096);
        connection.execute_batch(&many).expect("a write");
    }

    #[test]
    fn a_long_reader_is_tried_ever_more_rarely_and_the_log_begins_anew_when_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.db");
        let open = || Connection::open(&path).expect("a connection");
        let (writer, reader, looker) = (open(), open(), open());
        looker.busy_timeout(Duration::ZERO).expect("no waiting");
        let setup = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x)";
        writer.execute_batch(setup).expect("a table");
        let mut mover = Mover {
            pages: 10,
            pages_max: 20,
            ..Mover::new(Turnstile::open(&Config::new(&path)).expect("a turnstile"))
        };
        let log = || check_point(&looker, "NOOP").expect("a look").pages;
        reader
            .execute_batch("BEGIN; SELECT * FROM t")
            .expect("a snapshot");
        let mut tried = Vec::new();
        for _ in 0..12 {
            write(&writer, 5);
            mover.look(&looker).expect("a look");
            tried.push(mover.leave_out);
        }
        assert_eq!(tried, [0, 0, 1, 1, 3, 3, 3, 3, 7, 7, 7, 7]);
        assert!(log() > 60);
        reader.execute_batch("COMMIT").expect("it ends");
        for _ in 0..9 {
            mover.look(&looker).expect("a look");
        }
        write(&writer, 1);
        assert!(log() < 10, "{} pages", log());
        mover.look(&looker).expect("a look");
        assert_eq!(mover.leave_out, 0);
    }
}
