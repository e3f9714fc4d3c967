//! Statements, and calls of them with what they are given.

use bytes::Bytes;
use tokio_postgres::types::{ToSql, Type};

/// A statement as it is [written](crate::statement), with the types of its parameters. It names the schema `plimsoll`,
/// whatever that is called.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

pub(crate) static BEGIN: Sql = Sql {
    text: "BEGIN ISOLATION LEVEL READ COMMITTED",
    types: &[],
};
pub(crate) static COMMIT: Sql = Sql {
    text: "COMMIT",
    types: &[],
};
pub(crate) static ROLLBACK: Sql = Sql {
    text: "ROLLBACK",
    types: &[],
};

/// A statement that writes or locks, and that can be part of a [joint](crate::joint) one. Of those that are, no two
/// write the same row, and none reads what another one writes.
#[derive(Debug)]
pub(crate) struct Part {
    /// As it is sent alone.
    pub(crate) sql: Sql,
    /// What it does, with a row for each that it finds or writes.
    pub(crate) writes: &'static str,
    /// How many that must be.
    pub(crate) expects: Option<&'static str>,
}

/// A [`Part`]: what it does, and the types of its parameters. Or what it does with a row for each that it finds, and
/// how many that must be.
macro_rules! part {
    ($does:expr, $types:expr) => {
        $crate::call::Part {
            sql: $crate::call::Sql {
                text: $does,
                types: $types,
            },
            writes: concat!($does, " RETURNING 1"),
            expects: None,
        }
    };
    ($does:expr, expects $count:literal, $types:expr) => {
        $crate::call::Part {
            sql: $crate::call::Sql {
                text: concat!(
                    "WITH done AS (\n",
                    $does,
                    ") SELECT plimsoll.expect((SELECT count(*) FROM done), ",
                    $count,
                    ")"
                ),
                types: $types,
            },
            writes: $does,
            expects: Some($count),
        }
    };
}
pub(crate) use part;

/// What a call can be in a [joint](crate::joint) one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// It is sent alone.
    Alone,
    Part(&'static Part),
    /// It selects values, from nothing, and ends what parts have begun.
    Last,
}

/// A value for a parameter.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) sql: &'static Sql,
    pub(crate) params: Vec<Param>,
    pub(crate) role: Role,
    /// Rows that the statement copies.
    pub(crate) rows: Option<Bytes>,
}

impl Call {
    pub(crate) fn new(sql: &'static Sql, params: Vec<Param>) -> Self {
        Self {
            sql,
            params,
            role: Role::Alone,
            rows: None,
        }
    }

    /// One that can be part of a joint call.
    pub(crate) fn part(part: &'static Part, params: Vec<Param>) -> Self {
        Self {
            role: Role::Part(part),
            ..Self::new(&part.sql, params)
        }
    }

    /// One that can end a joint call.
    pub(crate) fn last(sql: &'static Sql, params: Vec<Param>) -> Self {
        Self {
            role: Role::Last,
            ..Self::new(sql, params)
        }
    }

    /// A `COPY` of these rows. Only a session that [prepares](crate::session::Session::prepares) can send it.
    pub(crate) fn copy(sql: &'static Sql, rows: Bytes) -> Self {
        Self {
            rows: Some(rows),
            ..sql.into()
        }
    }

    /// Whether it begins a transaction, and nothing else.
    pub(crate) fn begins(&self) -> bool {
        self.is(&BEGIN)
    }

    pub(crate) fn commits(&self) -> bool {
        self.is(&COMMIT)
    }

    pub(crate) fn ends(&self) -> bool {
        self.commits() || self.is(&ROLLBACK)
    }

    /// Whether it is this statement.
    pub(crate) fn is(&self, sql: &'static Sql) -> bool {
        std::ptr::eq(self.sql, sql)
    }
}

impl From<&'static Sql> for Call {
    fn from(sql: &'static Sql) -> Self {
        Self::new(sql, Vec::new())
    }
}

/// Parameters of a call.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$(Box::new($value) as $crate::call::Param),*] };
}
pub(crate) use params;

/// The schema as it is written in statements.
pub(crate) fn quoted(schema: &str) -> String {
    format!("\"{}\"", schema.replace('"', "\"\""))
}

/// A statement for the schema that is really meant.
pub(crate) fn with_schema(text: &str, schema: &str) -> String {
    text.replace("plimsoll.", &format!("{schema}."))
}
