//! How a server is set up and how it does, for who has to judge it.

use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::error::Applied;
use tokio_postgres::Row;

use crate::call::{BEGIN, Call, Sql};
use crate::codec::column;
use crate::config::Config;
use crate::error::Answer;
use crate::schema::version;
use crate::session::Session;
use crate::statement::sql_file;

static HEALTH: Sql = Sql {
    text: sql_file!("health"),
    types: &[],
};
static BACKEND: Sql = Sql {
    text: "SELECT pg_backend_pid()",
    types: &[],
};

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// The version of the server as a number, as in 150018.
    pub server_version: u32,
    /// The version of the schema; 0 if there is none.
    pub schema_version: u32,
    /// Whether what is written is on disk.
    pub fsync: bool,
    /// When a commit is answered, in the server's words.
    pub synchronous_commit: String,
    /// Whether a page that was half written can be mended.
    pub full_page_writes: bool,
    /// Whether dead rows are removed.
    pub autovacuum: bool,
    /// Whether it takes no writes.
    pub read_only: bool,
    /// How many connections there are, of all programs.
    pub connections: u64,
    /// How many there may be.
    pub connections_max: u64,
    /// The size of the database.
    pub bytes: u64,
    /// Whether this role sees what others do.
    pub sees_others: bool,
    /// The transaction of somebody else that has been open for longest.
    pub oldest: Option<OpenTransaction>,
    /// Whether something between here and the server hands connections on after each transaction.
    pub is_pooled: bool,
}

/// A transaction that goes on. Rows that died since it began cannot be removed.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenTransaction {
    /// How long it has been open.
    pub age: Duration,
    /// The process of the server, unless it is a prepared transaction.
    pub pid: Option<i32>,
    /// Who opened it, as they call themselves.
    pub application: String,
}

/// Looks at the server of a database. Nothing is written.
pub async fn health(config: &Config) -> Result<Health> {
    let looked = look(config).await;
    looked.map_err(|fault| fault.into_error(Applied::No))
}

async fn look(config: &Config) -> Answer<Health> {
    // Nothing is set or prepared, as behind a pooler others would meet it.
    let config = Config {
        prepare: false,
        ..config.clone()
    };
    let session = Session::connect_to_any(&config).await?;
    let mut session = session.without_settings();
    let schema_version = version(&mut session, &config).await?;
    let is_pooled = is_pooled(&mut session, &config).await?;
    let found = session.run(&[(&HEALTH).into()]).await?;
    read(&found[0][0], schema_version, is_pooled)
}

/// A pooler gives the connection that was used last to whoever comes next. If another transaction
/// has it, the next statement is answered by another process of the server.
async fn is_pooled(session: &mut Session, config: &Config) -> Answer<bool> {
    let ask = [Call::from(&BACKEND)];
    let before: i32 = column(&session.run(&ask).await?[0][0], 0)?;
    let other = Session::connect_to_any(config).await?;
    let mut other = other.without_settings();
    other.run(&[(&BEGIN).into(), (&BACKEND).into()]).await?;
    let after: i32 = column(&session.run(&ask).await?[0][0], 0)?;
    other.roll_back().await;
    Ok(before != after)
}

fn read(row: &Row, schema_version: u32, is_pooled: bool) -> Answer<Health> {
    let unsigned = |number| column::<i64>(row, number).map(i64::unsigned_abs);
    let age: Option<f64> = column(row, 10)?;
    let (pid, application) = (column(row, 11)?, column::<Option<String>>(row, 12)?);
    let oldest = age.map(|age| OpenTransaction {
        age: Duration::from_secs_f64(age.max(0.0)),
        pid,
        application: application.unwrap_or_default(),
    });
    Ok(Health {
        server_version: column::<i32>(row, 0)?.unsigned_abs(),
        schema_version,
        fsync: column(row, 1)?,
        synchronous_commit: column(row, 2)?,
        full_page_writes: column(row, 3)?,
        autovacuum: column(row, 4)?,
        read_only: column(row, 5)?,
        connections: unsigned(6)?,
        connections_max: unsigned(7)?,
        bytes: unsigned(8)?,
        sees_others: column(row, 9)?,
        oldest,
        is_pooled,
    })
}
