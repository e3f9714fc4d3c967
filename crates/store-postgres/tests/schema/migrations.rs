//! Migrations: as a program, as SQL, at once, and of others.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use futures::future::join_all;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::Get;
use plimsoll_core::{Error, Key, Namespace, Store};
use plimsoll_store_postgres::{Postgres, SCHEMA_VERSION, migrate, migration_sql};

use crate::server::{Place, connect, url};

/// Begins to run a script as people do.
fn psql(script: &str) -> std::process::Child {
    let mut child = Command::new("psql")
        .args([&url(), "-q", "-v", "ON_ERROR_STOP=1"])
        .env("PGOPTIONS", "-c client_min_messages=warning")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql, which comes with PostgreSQL");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(script.as_bytes()).expect("it reads");
    child
}

fn finished(child: std::process::Child) {
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
}

/// What the catalog says of relations, columns, constraints, indexes, triggers and functions of the schema.
const CATALOG: &str = "
WITH relations AS (SELECT * FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
SELECT concat_ws(' ', 'relation', relkind, relname, reloptions, pg_get_partkeydef(oid),
    CASE relkind WHEN 'v' THEN pg_get_viewdef(oid) END, obj_description(oid, 'pg_class')) FROM relations
UNION ALL
SELECT concat_ws(' ', 'column', relname, attname, format_type(atttypid, atttypmod), attcollation, attnotnull, attidentity,
    attstorage, attoptions, pg_get_expr(adbin, adrelid))
FROM relations r JOIN pg_attribute ON attrelid = r.oid AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
UNION ALL
SELECT concat_ws(' ', 'constraint', relname, conname, pg_get_constraintdef(c.oid))
FROM relations r JOIN pg_constraint c ON conrelid = r.oid
UNION ALL
SELECT pg_get_indexdef(indexrelid) FROM relations r JOIN pg_index ON indrelid = r.oid
UNION ALL
SELECT pg_get_triggerdef(t.oid) FROM relations r JOIN pg_trigger t ON tgrelid = r.oid WHERE NOT tgisinternal
UNION ALL
SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
ORDER BY 1";

async fn catalog(place: &Place) -> Vec<String> {
    place.column(CATALOG).await
}

#[tokio::test]
async fn as_sql_they_do_the_same() {
    let place = Place::empty("test_by_hand").await;
    let script = migration_sql(&place.config.schema);
    finished(psql(&script));
    finished(psql(&script));
    let by_hand = catalog(&place).await;
    let has = |what: &str| by_hand.iter().any(|line| line.contains(what));
    assert!(has("relation v jobs_archive") && has("tasks_ready") && has("submit("));
    place.drop().await;
    assert_eq!(migrate(&place.config).await.unwrap(), 0);
    assert_eq!(catalog(&place).await, by_hand);
    place.drop().await;
}

/// As if each of today's migrations had been the last one of an older program.
#[tokio::test]
async fn from_every_version_they_lead_to_the_same() {
    let place = Place::new("test_older").await;
    let newest = catalog(&place).await;
    place.drop().await;
    let script = migration_sql(&place.config.schema);
    let steps: Vec<_> = script.match_indices("DO $migration$").collect();
    assert_eq!(steps.len(), SCHEMA_VERSION as usize);
    for ((next, _), version) in steps.iter().zip(0..).skip(1) {
        finished(psql(&format!("{}COMMIT;", &script[..*next])));
        assert_ne!(catalog(&place).await, newest);
        assert_eq!(migrate(&place.config).await.unwrap(), version);
        assert_eq!(catalog(&place).await, newest, "from {version}");
        place.drop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_processes_at_once_do_it_once() {
    let place = Place::empty("test_at_once").await;
    let script = migration_sql(&place.config.schema);
    let others: Vec<_> = (0..10).map(|_| psql(&script)).collect();
    let own = join_all((0..10).map(|_| migrate(&place.config))).await;
    others.into_iter().for_each(finished);
    own.into_iter()
        .for_each(|done| assert!(done.is_ok(), "{done:?}"));
    let versions = place
        .column("SELECT version FROM migrations ORDER BY version")
        .await;
    let expected: Vec<_> = (1..=SCHEMA_VERSION)
        .map(|version| version.to_string())
        .collect();
    assert_eq!(versions, expected);
    assert_eq!(migrate(&place.config).await.unwrap(), SCHEMA_VERSION);
    place.drop().await;
}

#[tokio::test]
async fn a_schema_may_have_another_name() {
    for name in ["tenant_a", "Tenant \"B\" of plimsoll", "select"] {
        let place = Place::new(name).await;
        let engine = place.engine().await;
        let tasks = engine.tasks();
        let id = tasks
            .submit(tasks.task("media", "clip", "{}").unwrap())
            .await
            .unwrap()
            .id;
        let worker = engine
            .worker("w")
            .queue("media")
            .handle("clip", async || {});
        worker.build().unwrap().run_until_empty().await.unwrap();
        let shown = place
            .column(&format!("SELECT status FROM jobs WHERE job_id = '{id}'"))
            .await;
        assert_eq!(shown, ["completed"], "{name}");
        assert_eq!(
            place.column("SELECT made FROM keep_partitions(3)").await,
            ["1"],
            "{name}"
        );
        place.drop().await;
    }
    for name in ["", "it's", "a$$b", "a%sb", "a.b", &"x".repeat(64)] {
        let mut place = Place::empty("test_names").await;
        place.config.schema = name.into();
        let refused = migrate(&place.config).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{name}: {refused}");
        assert!(refused.to_string().contains("schema"), "{refused}");
        let refused = Postgres::open(place.config).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{name}: {refused}");
    }
}

#[tokio::test]
async fn one_that_is_too_old_or_too_new_is_refused_with_what_to_do() {
    let place = Place::new("test_versions").await;
    place.run("INSERT INTO migrations VALUES (99)").await;
    for refused in [
        Postgres::open(place.config.clone())
            .await
            .map(drop)
            .unwrap_err(),
        migrate(&place.config).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        let said = refused.to_string();
        assert!(
            said.contains("version 99") && said.contains("use a newer program"),
            "{said}"
        );
    }
    place.drop().await;
    let refused = Postgres::open(place.config.clone())
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("run `plimsoll migrate`"), "{refused}");
}

#[tokio::test]
async fn namespaces_of_two_schemas_have_nothing_in_common() {
    let (one, two) = (Place::new("test_one").await, Place::new("test_two").await);
    let tasks = one.engine().await.tasks();
    let id = tasks
        .submit(tasks.task("media", "clip", "{}").unwrap())
        .await
        .unwrap()
        .id;
    assert!(two.engine().await.tasks().find(id).await.unwrap().is_none());
    assert_eq!(
        one.store().await.namespace(),
        &Namespace::new("media").unwrap()
    );
    one.drop().await;
    two.drop().await;
}

/// Brings a schema up to the version before the newest one, as an older program left it.
async fn as_before(schema: &str) -> Place {
    let place = Place::empty(schema).await;
    let script = migration_sql(schema);
    let (last, _) = script.match_indices("DO $migration$").last().unwrap();
    finished(psql(&format!("{}COMMIT;", &script[..last])));
    place
}

/// What others have open for long is waited for in steps: who comes after the migration does not wait for that.
#[tokio::test]
async fn a_migration_steps_back_from_tables_that_others_use() {
    let place = as_before("test_used").await;
    place.run("BEGIN; LOCK TABLE records IN SHARE MODE").await;
    let migrating = async { migrate(&place.config).await.unwrap() };
    let others = async {
        for waits in [true, false, true] {
            until_waited_for(&place, waits).await;
        }
        place.run("COMMIT").await;
    };
    let (before, ()) = tokio::join!(migrating, others);
    assert_eq!(before, SCHEMA_VERSION - 1);
    assert_eq!(migrate(&place.config).await.unwrap(), SCHEMA_VERSION);
    place.drop().await;
}

/// Until somebody waits for the table of records, or nobody does.
async fn until_waited_for(place: &Place, waits: bool) {
    let other = connect(&place.config).await;
    let table = format!("{}.records", place.quoted());
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass($1)";
    let clock = SystemClock::new();
    loop {
        let found = other.query_one(waiting, &[&table]).await;
        if (found.unwrap().get::<_, i64>(0) > 0) == waits {
            return;
        }
        assert!(clock.monotonic() < Duration::from_secs(20), "{waits}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_program_that_is_older_than_the_schema_makes_no_more_connections() {
    let mut place = Place::new("test_overtaken").await;
    place.config.server.application_name("overtaken");
    let store = place.store().await;
    store.ping().await.unwrap();
    place.run("INSERT INTO migrations VALUES (99)").await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name LIKE 'overtaken%'";
    assert_ne!(place.column(kill).await, ["0"]);
    let refused = store
        .get(Get {
            keys: vec![Key::new("a").unwrap()],
        })
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Unsupported(why) if why.contains("version 99")),
        "{refused}"
    );
    place.drop().await;
}
