//! Migrations: what the database needs, and whether it has it.

use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::{Applied, Problem, Unavailable};
use plimsoll_core::{Error, Invalid, Result};
use tokio_postgres::types::Type;

use crate::call::{Call, Sql, params, quoted, with_schema};
use crate::codec::column;
use crate::config::Config;
use crate::error::{Answer, Fault};
use crate::server::Server;
use crate::session::Session;

/// The migrations, the first one first.
const MIGRATIONS: [&str; 5] = [
    include_str!("../sql/migrations/0001_tables.sql"),
    include_str!("../sql/migrations/0002_views.sql"),
    include_str!("../sql/migrations/0003_partitions.sql"),
    include_str!("../sql/migrations/0004_submit.sql"),
    include_str!("../sql/migrations/0005_ballast.sql"),
];

/// The version of the schema that this program works with.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// How long a migration waits for a table that others use, in milliseconds, how often it tries, and how long the others
/// have in between.
const LOCK_MS: u64 = 1_000;
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_secs(1);

/// PostgreSQL cuts longer names.
const NAME_BYTES_MAX: usize = 63;

static VERSION_TABLE: Sql = Sql {
    text: "SELECT to_regclass($1) IS NOT NULL",
    types: &[Type::TEXT],
};
static VERSION: Sql = Sql {
    text: "SELECT coalesce(max(version), 0) FROM plimsoll.migrations",
    types: &[],
};

/// What [`migrate`] runs, as SQL for people who run it by themselves, as often as they like.
///
/// ```
/// let sql = plimsoll_store_postgres::migration_sql("tenant_a");
/// assert!(sql.contains("CREATE SCHEMA IF NOT EXISTS \"tenant_a\""));
/// ```
pub fn migration_sql(schema: &str) -> String {
    script(schema, "")
}

/// What waits for a table keeps all others waiting that come after it, so this is not for long. Whoever runs the script by
/// hand decides that alone.
fn impatient_sql(schema: &str) -> String {
    script(
        schema,
        &format!("SET LOCAL lock_timeout = '{LOCK_MS}ms';\n"),
    )
}

fn script(schema: &str, patience: &str) -> String {
    let steps: String = MIGRATIONS.iter().zip(1..).map(step).collect();
    let script = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;\n\
         SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;\n\
         -- Whoever comes first migrates; the others wait here and find it done.\n\
         SELECT pg_advisory_xact_lock(hashtext('plimsoll migration'));\n\
         {patience}\
         CREATE SCHEMA IF NOT EXISTS {};\n\
         CREATE TABLE IF NOT EXISTS plimsoll.migrations (\n    \
             version integer PRIMARY KEY,\n    \
             at timestamptz NOT NULL DEFAULT now()\n\
         );\n{steps}COMMIT;\n",
        quoted(schema)
    );
    with_schema(&script, &quoted(schema))
}

/// A migration that is skipped where it was run before.
fn step((script, version): (&&str, u32)) -> String {
    format!(
        "DO $migration$ BEGIN\n\
         IF NOT EXISTS (SELECT 1 FROM plimsoll.migrations WHERE version = {version}) THEN\n\
         {script}\
         INSERT INTO plimsoll.migrations (version) VALUES ({version});\n\
         END IF;\nEND $migration$;\n"
    )
}

/// What gives a role everything that programs need at run time, and nothing else: it can neither
/// create nor alter nor drop nor truncate anything. To be run after each migration, by its owner.
///
/// ```
/// let sql = plimsoll_store_postgres::grants_sql("plimsoll", "worker");
/// assert!(sql.contains("GRANT USAGE ON SCHEMA \"plimsoll\" TO \"worker\";"));
/// ```
pub fn grants_sql(schema: &str, role: &str) -> String {
    let grants = include_str!("../sql/grants.sql");
    (grants.replace(":schema", &quoted(schema))).replace(":role", &quoted(role))
}

/// What lets a role look at everything and change nothing. To be run after each migration.
///
/// ```
/// let sql = plimsoll_store_postgres::viewer_sql("plimsoll", "support");
/// assert!(!sql.contains("INSERT"));
/// ```
pub fn viewer_sql(schema: &str, role: &str) -> String {
    let (schema, role) = (quoted(schema), quoted(role));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};\n"
    )
}

/// Brings the schema up to date; many processes may do so at once. Answers the version it had.
pub async fn migrate(config: &Config) -> Result<u32> {
    sound(&config.schema)?;
    let mut session = connect(config).await?;
    let before = version(&mut session, config).await;
    let before = before.map_err(|fault| fault.into_error(Applied::No))?;
    if before > SCHEMA_VERSION {
        return Err(too_new(config, before));
    }
    if before < SCHEMA_VERSION {
        let done = run_patiently(&mut session, config).await;
        done.map_err(|fault| fault.into_error(Applied::No))?;
    }
    Ok(before)
}

/// Runs the migrations, again after a pause if others use a table that is to be altered.
async fn run_patiently(session: &mut Session, config: &Config) -> Answer<()> {
    let (script, clock) = (impatient_sql(&config.schema), SystemClock::new());
    for tries in 1..=TRIES {
        match session.execute(&script).await {
            Err(fault @ (Fault::Busy | Fault::Moved)) => {
                tracing::info!(
                    ?fault,
                    tries,
                    "others use the tables that are to be migrated"
                );
                session.execute("ROLLBACK").await?;
            }
            done => return done,
        }
        if tries < TRIES {
            clock.sleep(PAUSE).await;
        }
    }
    Err(Fault::Unreachable(format!(
        "tables of the schema {} were in use by other transactions whenever a migration tried to alter them, \
         {TRIES} times: nothing was changed. Look for one that is left open in pg_stat_activity, or for a backup, \
         and migrate when it has ended",
        config.schema
    )))
}

/// A name that can be written everywhere, also inside the texts of functions.
fn sound(schema: &str) -> Result<()> {
    let odd = |letter: char| matches!(letter, '\'' | '$' | '%' | '.' | '\\') || letter.is_control();
    if schema.is_empty() || schema.len() > NAME_BYTES_MAX || schema.contains(odd) {
        let expected = format!("a name of 1 to {NAME_BYTES_MAX} bytes without ' $ % . or \\");
        let expected = expected.into();
        return Err(Invalid::new("schema", Problem::Malformed { expected }).into());
    }
    Ok(())
}

/// Refuses a schema that is not the one this program works with. Answers what the server is like.
pub(crate) async fn check(config: &Config) -> Result<Server> {
    sound(&config.schema)?;
    let mut session = connect(config).await?;
    let found = version(&mut session, config).await;
    let found = found.map_err(|fault| fault.into_error(Applied::No))?;
    match found {
        SCHEMA_VERSION => Ok(session.server()),
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

/// Refuses a schema that was migrated by a newer program since this one has opened it.
pub(crate) async fn known(session: &mut Session, config: &Config) -> Answer<()> {
    let found = newest(session).await?;
    match found > SCHEMA_VERSION {
        true => Err(too_new(config, found).into()),
        false => Ok(()),
    }
}

async fn connect(config: &Config) -> Result<Session> {
    (Session::connect(config).await).map_err(|fault| fault.into_error(Applied::No))
}

pub(crate) async fn version(session: &mut Session, config: &Config) -> Answer<u32> {
    let table = format!("{}.migrations", quoted(&config.schema));
    let found = session
        .run(&[Call::new(&VERSION_TABLE, params![table])])
        .await?;
    let exists: bool = column(&found[0][0], 0)?;
    if !exists {
        return Ok(0);
    }
    newest(session).await
}

async fn newest(session: &mut Session) -> Answer<u32> {
    let found = session.run(&[(&VERSION).into()]).await?;
    Ok(column::<i32>(&found[0][0], 0)?.unsigned_abs())
}

fn too_new(config: &Config, found: u32) -> Error {
    Error::Unsupported(
        format!(
            "the schema {} has version {found}, this program knows {SCHEMA_VERSION}: use a newer program",
            config.schema
        )
        .into(),
    )
}
