//! Logs and the history.

use bytes::Bytes;
use plimsoll_core::change::{Change, Entry};
use plimsoll_core::error::NotFound;
use plimsoll_core::limits::{PAGE_BYTES_MAX, ROWS_EXAMINED_MAX};
use plimsoll_core::log::{Level, Line, NewLine};
use plimsoll_core::store::{ChangePage, Changes, Cursor, LogPage, Logs, Start};
use plimsoll_core::{Error, Fence, LineId, Name, Position};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::page::Chunk;
use crate::call::{Call, Sql, params};
use crate::codec::{At, Id, Json, column, decode, signed, unsigned};
use crate::error::{Answer, Fault};
use crate::session::Session;
use crate::statement::sql_file;

/// Lines of a log.
pub(crate) static LINES: Sql = Sql {
    text: sql_file!("read/lines"),
    types: &[Type::INT4, Type::UUID, Type::INT8, Type::INT8],
};
pub(crate) static HORIZON: Sql = Sql {
    text: "SELECT upto, newest FROM plimsoll.horizon($1)",
    types: &[Type::INT4],
};
/// The position of the newest entry that has committed.
pub(crate) static NEWEST: Sql = Sql {
    text: "SELECT position FROM plimsoll.changes WHERE ns = $1 ORDER BY position DESC LIMIT 1",
    types: &[Type::INT4],
};
/// Entries after a position, and up to where the history is gone.
pub(crate) static ENTRIES: Sql = Sql {
    text: sql_file!("read/entries"),
    types: &[Type::INT4, Type::INT8, Type::INT8],
};

pub(crate) async fn logs(session: &mut Session, ns: i32, logs: &Logs) -> Answer<LogPage> {
    let read = |text: &str| text.parse::<i64>().ok();
    let last = Cursor::place(logs.cursor.as_ref(), &logs.scope(), read).map_err(Error::from)?;
    let mut last = last.unwrap_or(0);
    let page = |lines, last, more| LogPage {
        lines,
        next: Cursor::new(&logs.scope(), last),
        more,
    };
    let (mut lines, mut bytes, mut examined) = (Vec::new(), 0, 0);
    let mut chunk = Chunk::first(logs.limit);
    loop {
        let params = params![ns, Id::from(logs.task), last, chunk.rows as i64];
        let found = session.run(&[Call::new(&LINES, params)]).await?.remove(0);
        for row in &found {
            if lines.len() >= logs.limit || bytes >= PAGE_BYTES_MAX || examined >= ROWS_EXAMINED_MAX
            {
                return Ok(page(lines, last, true));
            }
            last = column(row, 0)?;
            examined += 1;
            let line = line_from(row, logs)?;
            let size = line.line.size();
            chunk.count(size);
            if line.line.level >= logs.level {
                bytes += size;
                lines.push(line);
            }
        }
        if found.len() < chunk.rows {
            return Ok(page(lines, last, false));
        }
        chunk.grow();
    }
}

fn line_from(row: &Row, logs: &Logs) -> Answer<Line> {
    let what = format!("log of task {}", logs.task);
    let corrupt = |problem: String| Fault::Corrupt(format!("{what}: {problem}"));
    let level: i16 = column(row, 2)?;
    let known = usize::try_from(level)
        .ok()
        .and_then(|level| Level::ALL.get(level));
    let stage = column::<Option<&str>>(row, 5)?.map(Name::new).transpose();
    let step: Option<Json> = column(row, 8)?;
    Ok(Line {
        line: NewLine {
            id: LineId::from_u128(column::<Id>(row, 1)?.0),
            level: *known.ok_or_else(|| corrupt(format!("level {level} is unknown")))?,
            stage: stage.map_err(|error| corrupt(error.to_string()))?,
            message: column(row, 6)?,
            metadata: column::<Option<&[u8]>>(row, 7)?.map(Bytes::copy_from_slice),
            step: step.map(|step| step.read(&what)).transpose()?,
        },
        fence: Fence::new(unsigned(column(row, 3)?)?),
        at: column::<At>(row, 4)?.0,
    })
}

/// Reads history. First it is asked how far that can be read: all up to there has committed, or
/// never will. A later snapshot therefore has all of it, and what it has beyond is left alone: an
/// entry before it may still be in flight.
pub(crate) async fn changes(
    session: &mut Session,
    ns: i32,
    changes: &Changes,
) -> Answer<ChangePage> {
    let after = match changes.start {
        Start::Oldest | Start::Newest => 0,
        Start::After(position) => signed(position.get()),
    };
    let mut chunk = Chunk::first(changes.limit);
    let horizon = Call::new(&HORIZON, params![ns]);
    let newest = Call::new(&NEWEST, params![ns]);
    let answers = session
        .run(&[horizon, newest, entries(ns, after, &chunk)])
        .await?;
    let upto: i64 = column(&answers[0][0], 0)?;
    let newest: i64 = (answers[1].first()).map_or(Ok(0), |row| column(row, 0))?;
    let mut found = answers.into_iter().nth(2).unwrap_or_default();
    let compacted = compacted(&found)?;
    let newest = newest.max(compacted);
    let start = match changes.start {
        Start::Oldest => compacted,
        Start::Newest => {
            let upto = newest.min(upto.max(compacted));
            return Ok(Reading::new(changes, upto, newest)?.page);
        }
        Start::After(_) if !(compacted..=newest).contains(&after) => {
            let oldest = Position::new(unsigned(compacted)?);
            return Err(Error::from(NotFound::History { oldest }).into());
        }
        Start::After(_) => after,
    };
    let mut reading = Reading::new(changes, start, newest)?;
    loop {
        for row in &found {
            match column::<Option<i64>>(row, 1)? {
                Some(position) if position <= upto => {
                    if !reading.take(row, position, &mut chunk)? {
                        return Ok(reading.page);
                    }
                }
                Some(_) | None => return Ok(reading.page),
            }
        }
        if found.len() < chunk.rows {
            return Ok(reading.page);
        }
        chunk.grow();
        let last = signed(reading.page.next.get());
        found = session.run(&[entries(ns, last, &chunk)]).await?.remove(0);
        if self::compacted(&found)? > last {
            // What came next is gone. The next call says so.
            reading.page.more = true;
            return Ok(reading.page);
        }
    }
}

fn entries(ns: i32, after: i64, chunk: &Chunk) -> Call {
    Call::new(&ENTRIES, params![ns, after, chunk.rows as i64])
}

/// Up to where the history was gone when these entries were read.
fn compacted(found: &[Row]) -> Answer<i64> {
    match found.first() {
        Some(row) => column(row, 0),
        None => Err(Fault::Corrupt("the namespace is gone".into())),
    }
}

/// A page of history in the making.
struct Reading<'s> {
    changes: &'s Changes,
    page: ChangePage,
    shown: usize,
    examined: usize,
    bytes: usize,
}

impl<'s> Reading<'s> {
    fn new(changes: &'s Changes, start: i64, newest: i64) -> Answer<Self> {
        let page = ChangePage {
            entries: Vec::new(),
            next: Position::new(unsigned(start)?),
            more: false,
            newest: Position::new(unsigned(newest)?),
        };
        Ok(Self {
            changes,
            page,
            shown: 0,
            examined: 0,
            bytes: 0,
        })
    }

    /// Takes an entry, unless the page is full.
    fn take(&mut self, row: &Row, position: i64, chunk: &mut Chunk) -> Answer<bool> {
        if self.shown >= self.changes.limit
            || self.examined >= ROWS_EXAMINED_MAX
            || self.bytes >= PAGE_BYTES_MAX
        {
            self.page.more = true;
            return Ok(false);
        }
        let body: &[u8] = column(row, 3)?;
        chunk.count(body.len());
        self.page.next = Position::new(unsigned(position)?);
        let mut all: Vec<Change> = decode(&format!("history at {}", self.page.next), body)?;
        self.examined += all.len();
        all.retain(|change| self.changes.shows(change));
        self.shown += all.len();
        self.bytes += all.iter().map(Change::size).sum::<usize>();
        if !all.is_empty() {
            self.page.entries.push(Entry {
                position: self.page.next,
                at: column::<At>(row, 2)?.0,
                changes: all,
            });
        }
        Ok(true)
    }
}
