//! Migrations: as a program, as SQL, at once, and of others.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use futures::future::join_all;
use plimsoll_core::{Error, Namespace, Store};
use plimsoll_store_postgres::{Postgres, SCHEMA_VERSION, migrate, migration_sql};

use crate::server::{Place, url};

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

/// All that the catalog says of a schema.
fn dump(schema: &str) -> String {
    let pattern = format!("\"{}\"", schema.replace('"', "\"\""));
    let dump = Command::new("pg_dump")
        .args([&url(), "-s", "-n", &pattern])
        .output();
    let dump = dump.expect("pg_dump, which comes with PostgreSQL");
    assert!(
        dump.status.success(),
        "{}",
        String::from_utf8_lossy(&dump.stderr)
    );
    let text = String::from_utf8(dump.stdout).expect("text");
    // Newer versions begin and end with a word that is drawn by lot.
    let lines = text.lines().filter(|line| !line.starts_with('\\'));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn as_sql_they_do_the_same() {
    let place = Place::empty("test_by_hand").await;
    let script = migration_sql(&place.config.schema);
    finished(psql(&script));
    finished(psql(&script));
    let by_hand = dump(&place.config.schema);
    assert!(by_hand.contains("CREATE VIEW") && by_hand.contains("jobs_archive"));
    place.drop().await;
    assert_eq!(migrate(&place.config).await.unwrap(), 0);
    assert_eq!(dump(&place.config.schema), by_hand);
    place.drop().await;
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
