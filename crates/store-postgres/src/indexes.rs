//! Declared indexes: kept in the transaction that writes a record, filled in steps.
//!
//! Whoever writes records shares a lock of the namespace, and looks which indexes there are once
//! it has it. Who declares or drops an index has that lock alone for a moment: when it is through,
//! no writer is left that knows otherwise, and all that follow know. So every write keeps an index
//! from the moment it is declared, and no entry comes to one that was dropped.
//!
//! The fill adds what was there before. It locks the records that it reads until their entries are
//! in: whoever changes one of them comes before, and its record is read as it leaves it, or after,
//! and finds the entry that it has to remove. A record that the fill does not see yet is new: its
//! writer knows the index.

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::limits::INDEXES_MAX;
use plimsoll_core::record::{Index, Record, integer};
use plimsoll_core::store::{DeclareIndex, Declared, Dropped};
use plimsoll_core::{Error, Key, Name, Prefix};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{BEGIN, COMMIT, Call, Param, Sql, params};
use crate::codec::column;
use crate::error::{Answer, Fault};
use crate::read::{after, end_of};
use crate::session::Session;
use crate::statement::sql_file;

/// How many entries of dropped indexes go in one transaction.
const ENTRIES_REMOVED_MAX: i64 = 10_000;
/// How many records a step of the fill looks at, at most: their writers wait for it.
const STEP_MAX: usize = 1_000;
/// How often a step that met a writer is tried again.
const TRIES: usize = 8;
/// Longer than any integer. What is longer need not be sent.
const INTEGER_MAX: i32 = 24;

const ENTRIES: &[Type] = &[Type::INT4_ARRAY, Type::INT8_ARRAY, Type::TEXT_ARRAY];
const INDEX: &[Type] = &[Type::INT4, Type::TEXT, Type::TEXT];

static SHARE: Sql = Sql {
    text: "SELECT pg_advisory_xact_lock_shared(hashtext('plimsoll.indexes'), $1)",
    types: &[Type::INT4],
};
static EXCLUDE: Sql = Sql {
    text: "SELECT pg_advisory_xact_lock(hashtext('plimsoll.indexes'), $1)",
    types: &[Type::INT4],
};
pub(crate) static KNOWN: Sql = Sql {
    text: "SELECT idx, prefix, field, filled FROM plimsoll.indexes \
           WHERE ns = $1 AND prefix IS NOT NULL ORDER BY prefix, field",
    types: &[Type::INT4],
};
static INSERT: Sql = Sql {
    text: "INSERT INTO plimsoll.indexes (ns, prefix, field, filled) VALUES ($1, $2, $3, '')",
    types: INDEX,
};
/// One step at a time: each goes on where the one before ended.
static FIND: Sql = Sql {
    text: "SELECT idx, filled FROM plimsoll.indexes \
           WHERE ns = $1 AND prefix = $2 AND field = $3 FOR UPDATE",
    types: INDEX,
};
/// The next records.
pub(crate) static STEP: Sql = Sql {
    text: sql_file!("indexes/step"),
    types: &[
        Type::INT4,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT8,
    ],
};
static FILLED: Sql = Sql {
    text: "UPDATE plimsoll.indexes SET filled = $2 WHERE idx = $1",
    types: &[Type::INT4, Type::TEXT],
};
pub(crate) static ADD: Sql = Sql {
    text: "INSERT INTO plimsoll.index_entries SELECT * FROM unnest($1, $2, $3) \
           ON CONFLICT DO NOTHING",
    types: ENTRIES,
};
pub(crate) static REMOVE: Sql = Sql {
    text: "DELETE FROM plimsoll.index_entries e USING unnest($1, $2, $3) u(idx, value, key) \
           WHERE e.idx = u.idx AND e.value = u.value AND e.key = u.key",
    types: ENTRIES,
};
/// Nobody sees the index any more. It keeps its number while it has entries, so that no other
/// index has them.
static DROP: Sql = Sql {
    text: "UPDATE plimsoll.indexes SET prefix = NULL, field = NULL \
           WHERE ns = $1 AND prefix = $2 AND field = $3 RETURNING idx",
    types: INDEX,
};
/// Removes entries of dropped indexes.
pub(crate) static REMOVE_DROPPED: Sql = Sql {
    text: sql_file!("indexes/remove_dropped"),
    types: &[Type::INT4, Type::INT8],
};
pub(crate) static FORGET_DROPPED: Sql = Sql {
    text: "DELETE FROM plimsoll.indexes i WHERE i.ns = $1 AND i.prefix IS NULL \
           AND (SELECT e.idx FROM plimsoll.index_entries e WHERE e.idx = i.idx LIMIT 1) IS NULL",
    types: &[Type::INT4],
};
pub(crate) static ANY_DROPPED: Sql = Sql {
    text: "SELECT EXISTS (SELECT FROM plimsoll.indexes WHERE ns = $1 AND prefix IS NULL)",
    types: &[Type::INT4],
};

/// A declared index, with its number.
#[derive(Debug)]
pub(crate) struct Known {
    number: i32,
    index: Index,
    filled: bool,
}

/// What a transaction that writes records asks first: it shares the lock, and then looks.
pub(crate) fn calls(ns: i32) -> [Call; 2] {
    [
        Call::new(&SHARE, params![ns]),
        Call::new(&KNOWN, params![ns]),
    ]
}

/// The indexes that were found.
pub(crate) fn known_from(rows: &[Row]) -> Answer<Vec<Known>> {
    let corrupt = |error: Invalid| Fault::Corrupt(error.to_string());
    let known = rows.iter().map(|row| {
        let index = Index {
            prefix: Prefix::new(column::<&str>(row, 1)?).map_err(corrupt)?,
            field: Name::new(column::<&str>(row, 2)?).map_err(corrupt)?,
        };
        Ok(Known {
            number: column(row, 0)?,
            index,
            filled: column::<Option<&str>>(row, 3)?.is_none(),
        })
    });
    known.collect()
}

/// Entries that records leave, and entries that they take.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    gone: Entries,
    new: Entries,
}

#[derive(Debug, Default)]
struct Entries {
    numbers: Vec<i32>,
    values: Vec<i64>,
    keys: Vec<String>,
}

impl Entries {
    fn push(&mut self, number: i32, value: Option<i64>, key: &str) {
        if let Some(value) = value {
            self.numbers.push(number);
            self.values.push(value);
            self.keys.push(key.to_owned());
        }
    }

    fn call(self, sql: &'static Sql) -> Option<Call> {
        let Self {
            numbers,
            values,
            keys,
        } = self;
        (!keys.is_empty()).then(|| Call::new(sql, params![numbers, values, keys]))
    }
}

impl Moves {
    /// Moves a record that is written to its new place in every index. Each key is moved once.
    pub(crate) fn add(
        &mut self,
        known: &[Known],
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
    ) {
        for Known { number, index, .. } in known {
            let value = |record: &Record| index.value(key, &record.fields);
            let (was, is) = (before.and_then(value), after.and_then(value));
            if was != is {
                self.gone.push(*number, was, key.as_str());
                self.new.push(*number, is, key.as_str());
            }
        }
    }

    /// The statements that move them.
    pub(crate) fn calls(self) -> Vec<Call> {
        let calls = [self.gone.call(&REMOVE), self.new.call(&ADD)];
        calls.into_iter().flatten().collect()
    }
}

pub(crate) async fn declared(session: &mut Session, ns: i32) -> Answer<Vec<Declared>> {
    let found = session.run(&[Call::new(&KNOWN, params![ns])]).await?;
    let declared = |known: Known| Declared {
        index: known.index,
        ready: known.filled,
    };
    Ok(known_from(&found[0])?.into_iter().map(declared).collect())
}

pub(crate) async fn declare(
    session: &mut Session,
    ns: i32,
    declare: &DeclareIndex,
) -> Answer<Declared> {
    let mut tries = 0;
    loop {
        let answer = declare_and_fill(session, ns, declare).await;
        if answer.is_err() {
            session.roll_back().await;
        }
        match answer {
            // A writer locked the same records in another order.
            Err(Fault::Moved) if tries < TRIES => tries += 1,
            answer => return answer,
        }
    }
}

async fn declare_and_fill(
    session: &mut Session,
    ns: i32,
    declare: &DeclareIndex,
) -> Answer<Declared> {
    let index = &declare.index;
    let found = session.run(&[Call::new(&KNOWN, params![ns])]).await?;
    let known = known_from(&found[0])?;
    let ready = match known.iter().find(|known| known.index == *index) {
        Some(known) if known.filled => true,
        Some(_) => fill(session, ns, declare).await?,
        None => {
            insert(session, ns, index).await?;
            fill(session, ns, declare).await?
        }
    };
    Ok(Declared {
        index: index.clone(),
        ready,
    })
}

/// Declares an index, unless somebody else just has.
async fn insert(session: &mut Session, ns: i32, index: &Index) -> Answer<()> {
    let calls = [
        (&BEGIN).into(),
        Call::new(&EXCLUDE, params![ns]),
        Call::new(&KNOWN, params![ns]),
    ];
    let found = session.run(&calls).await?;
    let known = known_from(&found[2])?;
    let mut calls = Vec::new();
    if !known.iter().any(|known| known.index == *index) {
        let (count, max) = (known.len() + 1, INDEXES_MAX);
        if count > max {
            let too_many = Invalid::new("index", Problem::TooMany { count, max });
            return Err(Error::from(too_many).into());
        }
        calls.push(Call::new(&INSERT, named(ns, index)));
    }
    calls.push((&COMMIT).into());
    session.run(&calls).await?;
    Ok(())
}

/// Takes some more existing records into the index. Answers whether all are in.
async fn fill(session: &mut Session, ns: i32, declare: &DeclareIndex) -> Answer<bool> {
    let index = &declare.index;
    let calls = [
        (&BEGIN).into(),
        Call::new(&SHARE, params![ns]),
        Call::new(&FIND, named(ns, index)),
    ];
    let found = session.run(&calls).await?;
    let Some(row) = found[2].first() else {
        // Somebody has dropped it meanwhile. Who still wants it, declares it again.
        session.roll_back().await;
        return Ok(false);
    };
    let number: i32 = column(row, 0)?;
    let Some(filled) = column::<Option<&str>>(row, 1)? else {
        session.roll_back().await;
        return Ok(true);
    };
    let prefix = index.prefix.as_str();
    let from = match filled {
        "" => prefix.to_owned(),
        last => after(last),
    };
    let rows = declare.limit.min(STEP_MAX);
    let field = index.field.to_string();
    let params = params![ns, from, end_of(prefix), field, INTEGER_MAX, rows as i64];
    let found = session.run(&[Call::new(&STEP, params)]).await?;
    let (mut entries, mut last) = (Entries::default(), None);
    for row in &found[0] {
        let key: &str = column(row, 0)?;
        let value: Option<&str> = column(row, 1)?;
        entries.push(number, value.and_then(|text| integer(text.as_bytes())), key);
        last = Some(key.to_owned());
    }
    let ready = found[0].len() < rows;
    let upto = last.filter(|_| !ready);
    let mut calls: Vec<Call> = entries.call(&ADD).into_iter().collect();
    calls.push(Call::new(&FILLED, params![number, upto]));
    calls.push((&COMMIT).into());
    session.run(&calls).await?;
    Ok(ready)
}

fn named(ns: i32, index: &Index) -> Vec<Param> {
    params![ns, index.prefix.to_string(), index.field.to_string()]
}

pub(crate) async fn drop(session: &mut Session, ns: i32, index: &Index) -> Answer<Dropped> {
    let calls = [
        (&BEGIN).into(),
        Call::new(&EXCLUDE, params![ns]),
        Call::new(&DROP, named(ns, index)),
        (&COMMIT).into(),
    ];
    let found = session.run(&calls).await?;
    let existed = !found[2].is_empty();
    // It has happened. What cannot be cleared away now goes with retention.
    if existed && let Err(fault) = remove_dropped(session, ns).await {
        tracing::debug!(?fault, "entries of a dropped index are left for later");
    }
    Ok(Dropped { existed })
}

/// Removes entries of indexes that were dropped, and says if there are more.
pub(crate) async fn remove_dropped(session: &mut Session, ns: i32) -> Answer<bool> {
    let calls = [
        Call::new(&REMOVE_DROPPED, params![ns, ENTRIES_REMOVED_MAX]),
        Call::new(&FORGET_DROPPED, params![ns]),
        Call::new(&ANY_DROPPED, params![ns]),
    ];
    let found = session.run(&calls).await?;
    column(&found[2][0], 0)
}
