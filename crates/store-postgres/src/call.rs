//! Statements, and calls of them with what they are given.

use bytes::Bytes;
use tokio_postgres::types::{ToSql, Type};

/// A statement, with the types of its parameters. It names the schema `plimsoll`, whatever that is
/// called.
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

/// A value for a parameter.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A statement with its parameters.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) sql: &'static Sql,
    pub(crate) params: Vec<Param>,
    /// Rows that the statement copies.
    pub(crate) rows: Option<Bytes>,
}

impl Call {
    pub(crate) fn new(sql: &'static Sql, params: Vec<Param>) -> Self {
        Self {
            sql,
            params,
            rows: None,
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
