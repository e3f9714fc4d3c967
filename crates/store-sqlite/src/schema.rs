//! Opens connections, creates the schema and checks its version.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::log::Line;
use plimsoll_core::store::Durability;
use plimsoll_core::{Error, Result, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};

use crate::codec::decode;
use crate::config::Config;
use crate::error::{Answer, Fault, from_sqlite};
use crate::mover::{self, LOG_PAGES_MAX};

/// Marks a file as ours: "Plim".
const APPLICATION_ID: i64 = 0x506c_696d;
/// The version of the schema that this program writes.
pub const VERSION: i64 = 6;
/// Older versions have a race that can corrupt the write-ahead log.
const SQLITE_MIN: i32 = 3_051_003;
const SCHEMA: &str = include_str!("../sql/schema.sql");
const MIGRATE_2: &str = include_str!("../sql/migrate_2.sql");
const MIGRATE_3: &str = include_str!("../sql/migrate_3.sql");
const MIGRATE_4: &str = include_str!("../sql/migrate_4.sql");
const MIGRATE_5: &str = include_str!("../sql/migrate_5.sql");
const MIGRATE_6: &str = include_str!("../sql/migrate_6.sql");

/// The connection of the writer: creates the file and its schema if need be.
pub(crate) fn open_writer(config: &Config) -> Result<Connection> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(Error::Unsupported(
            format!(
                "SQLite {} is too old: 3.51.3 is needed",
                rusqlite::version()
            )
            .into(),
        ));
    }
    let synchronous = match config.durability {
        Durability::Disk => "FULL",
        Durability::System => "NORMAL",
        Durability::Process | Durability::Majority => {
            return Err(Error::Unsupported(
                "a file is durable on disk or with the system: ask for one of these".into(),
            ));
        }
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = open(config, flags)?;
    if connection.is_readonly("main").map_err(failed)? {
        return Err(Error::Unavailable(Unavailable {
            applied: Applied::No,
            cause: "cannot open: the file is read-only: make it writable".into(),
        }));
    }
    check(&connection)?;
    pragma(&connection, "journal_mode", "WAL")?;
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Unsupported(
            format!("the file cannot have a write-ahead log ({mode}): use a file on a local disk")
                .into(),
        ));
    }
    pragma(&connection, "synchronous", synchronous)?;
    // Where a plain fsync does not reach the disk, this does.
    pragma(&connection, "fullfsync", "1")?;
    pragma(&connection, "wal_autocheckpoint", "0")?;
    // A log that had to grow gives the room back once it begins anew.
    let log_bytes = LOG_PAGES_MAX * number(&connection, "page_size")?;
    pragma(&connection, "journal_size_limit", &log_bytes.to_string())?;
    pragma(&connection, "cache_size", "-16384")?;
    let migrated = migrate(&mut connection)?;
    // Only now: an index that is made for a filled table is sorted in files.
    pragma(&connection, "temp_store", "MEMORY")?;
    // The writer waits by itself, in shorter steps than SQLite's.
    connection.busy_timeout(Duration::ZERO).map_err(failed)?;
    if migrated && let Err(error) = mover::empty(&connection) {
        // The file is up to date all the same, and the mover tries again.
        tracing::warn!(%error, "the log could not be moved into the file");
    }
    Ok(connection)
}

/// The version of the schema that a file has; 0 if nothing was written yet. The file is only read.
/// To open it as a store brings it up to [`VERSION`].
///
/// ```
/// use plimsoll_store_sqlite::{Config, SCHEMA_VERSION, Sqlite, schema_version};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("plimsoll.db");
/// Sqlite::open(Config::new(&path))?;
/// assert_eq!(schema_version(&path)?, SCHEMA_VERSION);
/// # Ok::<(), plimsoll_core::Error>(())
/// ```
pub fn schema_version(path: impl Into<PathBuf>) -> Result<i64> {
    let connection = open_reader(&Config::new(path))?;
    check_owner(&connection)?;
    number(&connection, "user_version")
}

/// A connection that only reads.
pub(crate) fn open_reader(config: &Config) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(config, flags)?;
    pragma(&connection, "cache_size", "-16384")?;
    Ok(connection)
}

/// A connection that moves the write-ahead log into the file and watches what others write.
pub(crate) fn open_watcher(config: &Config) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(config, flags)?;
    pragma(&connection, "wal_autocheckpoint", "0")?;
    Ok(connection)
}

fn open(config: &Config, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(&config.path, flags).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Plans do not depend on what is bound. Otherwise SQLite prepares a statement anew whenever a
    // parameter might make a partial index usable: a third of all time.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(failed)?;
    connection
        .busy_timeout(config.busy_timeout)
        .map_err(failed)?;
    Ok(connection)
}

fn pragma(connection: &Connection, name: &str, value: &str) -> Result<()> {
    connection
        .pragma_update_and_check(None, name, value, |_| Ok(()))
        .or_else(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => Ok(()),
            error => Err(failed(error)),
        })
}

fn number(connection: &Connection, name: &str) -> Result<i64> {
    connection
        .pragma_query_value(None, name, |row| row.get(0))
        .map_err(failed)
}

/// A file that is not empty must be ours, and not newer than we are.
fn check(connection: &Connection) -> Result<()> {
    check_owner(connection)?;
    check_version(connection).map_err(|fault| fault.into_error(Applied::No))
}

fn check_owner(connection: &Connection) -> Result<()> {
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    if tables > 0 && number(connection, "application_id")? != APPLICATION_ID {
        return Err(Error::Unsupported(
            "the file is a database of another program: choose another path".into(),
        ));
    }
    Ok(())
}

/// The file must not be newer than we are. It can become so while it is open.
pub(crate) fn check_version(connection: &Connection) -> Answer<()> {
    let version: i64 = connection
        .prepare_cached("PRAGMA user_version")?
        .query_row([], |row| row.get(0))?;
    if version > VERSION {
        return Err(Fault::Unsupported(format!(
            "the file has schema version {version}, this program knows up to {VERSION}: use a \
             newer program"
        )));
    }
    Ok(())
}

/// Brings the schema up to date. A table may be made anew meanwhile: what somebody has made, views and tables with
/// foreign keys, goes on naming the tables that it named, and does not keep the old one from being dropped. Whether
/// there was an older file.
fn migrate(connection: &mut Connection) -> Result<bool> {
    let (names, keys) = (
        DbConfig::SQLITE_DBCONFIG_LEGACY_ALTER_TABLE,
        DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY,
    );
    let before = [names, keys].map(|setting| connection.db_config(setting));
    connection.set_db_config(names, true).map_err(failed)?;
    connection.set_db_config(keys, false).map_err(failed)?;
    let migrated = bring_up_to_date(connection)?;
    for (setting, before) in [names, keys].into_iter().zip(before) {
        let before = before.map_err(failed)?;
        connection.set_db_config(setting, before).map_err(failed)?;
    }
    Ok(migrated)
}

/// In one transaction, once, however many processes start at once.
fn bring_up_to_date(connection: &mut Connection) -> Result<bool> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    check(&transaction)?;
    let version = number(&transaction, "user_version")?;
    match version {
        VERSION => return Ok(false),
        1..VERSION => {
            if version < 2 {
                migrate_2(&transaction).map_err(failed)?;
            }
            for (to, statements) in [
                (3, MIGRATE_3),
                (4, MIGRATE_4),
                (5, MIGRATE_5),
                (6, MIGRATE_6),
            ] {
                if version < to {
                    transaction.execute_batch(statements).map_err(failed)?;
                }
            }
        }
        _ => {
            transaction.execute_batch(SCHEMA).map_err(failed)?;
            pragma(&transaction, "application_id", &APPLICATION_ID.to_string())?;
        }
    }
    pragma(&transaction, "user_version", &VERSION.to_string())?;
    transaction.commit().map_err(failed)?;
    Ok(version > 0)
}

/// From version 1 to version 2.
fn migrate_2(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(MIGRATE_2)?;
    let mut old =
        connection.prepare("SELECT ns, task, seq, line FROM logs_1 ORDER BY ns, task, seq")?;
    let mut copy = connection.prepare(
        "INSERT INTO logs SELECT ns, task, seq, id, level, ?4, line FROM logs_1 \
         WHERE ns = ?1 AND task = ?2 AND seq = ?3",
    )?;
    let mut rows = old.query([])?;
    while let Some(row) = rows.next()? {
        let (ns, task, seq): (i64, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let line: Result<Line, _> = decode("a line", row.get_ref(3)?.as_blob()?);
        // A line that cannot be read stays as long as its task.
        let at = line.map_or(Timestamp::MAX, |line| line.at);
        copy.execute(params![ns, task, seq, at.as_micros()])?;
    }
    drop(rows);
    drop((old, copy));
    connection.execute_batch("DROP TABLE logs_1")
}

pub(crate) fn failed(error: rusqlite::Error) -> Error {
    match from_sqlite(&error, Applied::No) {
        Error::Unavailable(Unavailable { applied, cause }) => Error::Unavailable(Unavailable {
            applied,
            cause: format!("cannot open: {cause}"),
        }),
        other => other,
    }
}
