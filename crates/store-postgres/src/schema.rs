//! Migrations: what the database needs, and whether it has it.

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};
use tokio_postgres::types::Type;

use crate::codec::column;
use crate::config::Config;
use crate::error::Answer;
use crate::session::{Call, Session, Sql, params, quoted, with_schema};

/// The migrations, the first one first.
const MIGRATIONS: [&str; 2] = [
    include_str!("../sql/migrations/0001_tables.sql"),
    include_str!("../sql/migrations/0004_submit.sql"),
];

/// The version of the schema that this program works with.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

static VERSION_TABLE: Sql = Sql {
    text: "SELECT to_regclass($1) IS NOT NULL",
    types: &[Type::TEXT],
};
static VERSION: Sql = Sql {
    text: "SELECT coalesce(max(version), 0) FROM plimsoll.migrations",
    types: &[],
};

/// Everything that [`migrate`] does, as SQL for people who run it by themselves.
pub fn migration_sql(schema: &str) -> String {
    let schema = quoted(schema);
    let scripts = (MIGRATIONS.iter().zip(1..))
        .map(|(script, version)| with_schema(&format!("{script}{}", recorded(version)), &schema));
    let scripts: String = scripts.collect();
    format!("BEGIN;\n{}{scripts}COMMIT;\n", prelude(&schema))
}

/// Brings the schema up to date; many processes may do so at once. Answers the version it had.
pub async fn migrate(config: &Config) -> Result<u32> {
    let mut session = connect(config).await?;
    let done = apply(&mut session, config).await;
    session.roll_back().await;
    done.map_err(|fault| fault.into_error(Applied::No))?
}

/// Refuses a schema that is not the one this program works with.
pub(crate) async fn check(config: &Config) -> Result<()> {
    let mut session = connect(config).await?;
    let found = version(&mut session, config).await;
    let found = found.map_err(|fault| fault.into_error(Applied::No))?;
    match found {
        SCHEMA_VERSION => Ok(()),
        0..SCHEMA_VERSION => Err(Error::Unavailable(Unavailable {
            applied: Applied::No,
            cause: format!(
                "the schema {} has version {found} of {SCHEMA_VERSION}: run `plimsoll migrate`",
                config.schema
            ),
        })),
        _ => Err(too_new(config, found)),
    }
}

async fn connect(config: &Config) -> Result<Session> {
    (Session::connect(config).await).map_err(|fault| fault.into_error(Applied::No))
}

async fn version(session: &mut Session, config: &Config) -> Answer<u32> {
    let table = format!("{}.migrations", quoted(&config.schema));
    let found = session
        .run(&[Call::new(&VERSION_TABLE, params![table])])
        .await?;
    let exists: bool = column(&found[0][0], 0)?;
    if !exists {
        return Ok(0);
    }
    let found = session.run(&[(&VERSION).into()]).await?;
    let version: i32 = column(&found[0][0], 0)?;
    Ok(version.unsigned_abs())
}

async fn apply(session: &mut Session, config: &Config) -> Answer<Result<u32>> {
    let before = version(session, config).await?;
    if before == SCHEMA_VERSION {
        return Ok(Ok(before));
    }
    if before > SCHEMA_VERSION {
        return Ok(Err(too_new(config, before)));
    }
    // Whoever comes first migrates; the others wait here and find it done.
    session
        .execute("BEGIN; SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(hashtext('plimsoll migration'))")
        .await?;
    session.execute(&prelude(&quoted(&config.schema))).await?;
    let found = version(session, config).await?;
    for (script, version) in MIGRATIONS.iter().zip(1..) {
        if version > found {
            session.execute(script).await?;
            session.execute(&recorded(version)).await?;
        }
    }
    session.execute("COMMIT").await?;
    Ok(Ok(before))
}

fn prelude(schema: &str) -> String {
    format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};\n\
         CREATE TABLE IF NOT EXISTS {schema}.migrations (\n\
         \x20   version integer PRIMARY KEY,\n\
         \x20   at timestamptz NOT NULL DEFAULT now()\n);\n"
    )
}

fn recorded(version: u32) -> String {
    format!("INSERT INTO plimsoll.migrations (version) VALUES ({version});\n")
}

fn too_new(config: &Config, found: u32) -> Error {
    Error::Unsupported(
        format!(
            "the schema {} has version {found}, this program knows {SCHEMA_VERSION}: use a newer one",
            config.schema
        )
        .into(),
    )
}
