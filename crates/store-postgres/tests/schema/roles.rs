//! What a role that runs programs may do, and what a person who looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::store::{Commit, Compact, Put, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Store, StoreExt, record};
use plimsoll_engine::Engine;
use plimsoll_store_postgres::{SCHEMA_VERSION, grants_sql, migrate, viewer_sql};
use tokio_postgres::error::SqlState;

use crate::server::Place;

/// The same schema as another role, which is new. Names of roles belong to the whole server.
async fn role(place: &Place, role: &str, grants: &str) -> Place {
    let quoted = format!("\"{role}\"");
    let known = format!("SELECT 1 FROM pg_roles WHERE rolname = '{role}'");
    if !place.column(&known).await.is_empty() {
        place
            .run(&format!("DROP OWNED BY {quoted}; DROP ROLE {quoted}"))
            .await;
    }
    place
        .run(&format!("CREATE ROLE {quoted} LOGIN PASSWORD 'secret'"))
        .await;
    place.run(grants).await;
    let mut config = place.config.clone();
    config.server.user(role).password("secret");
    let sql = crate::server::connect(&config).await;
    let other = Place { config, sql };
    other
        .run(&format!("SET search_path = {}", other.quoted()))
        .await;
    other
}

#[tokio::test]
async fn the_runtime_role_can_work_and_nothing_else() {
    let place = Place::new("test_runtime").await;
    let grants = grants_sql("test_runtime", "test Runtime");
    let runtime = role(&place, "test Runtime", &grants).await;

    let store = runtime.store().await;
    let put = Put::new(
        "config.a".try_into().unwrap(),
        record::fields([("x", "1")]).unwrap(),
    );
    store.commit_one(Commit::of(Write::Put(put))).await.unwrap();
    let engine = Engine::new(Arc::new(store) as Arc<dyn Store>);
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
    assert_eq!(tasks.get(id).await.unwrap().status, Status::Completed);
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Completed, Duration::ZERO)]),
        groups: Some(Duration::ZERO),
        history: Some(Duration::ZERO),
        logs: Some(Duration::ZERO),
        limit: 100,
    };
    engine.store().compact(compact).await.unwrap();
    assert_eq!(
        runtime.column("SELECT made FROM keep_partitions(4)").await,
        ["2"]
    );

    let refused = [
        "DROP TABLE tasks",
        "ALTER TABLE tasks ADD COLUMN x integer",
        "TRUNCATE tasks",
        "TRUNCATE tasks_done",
        "CREATE TABLE mine (x integer)",
        "CREATE INDEX ON tasks (fence)",
        "DROP SCHEMA test_runtime CASCADE",
        "ALTER TABLE tasks DISABLE TRIGGER ALL",
        "CREATE OR REPLACE FUNCTION number_of(word text) RETURNS bigint LANGUAGE sql RETURN 1",
        "INSERT INTO migrations VALUES (99)",
        "UPDATE migrations SET version = 99",
        "SELECT make_partition('2020-01-01')",
        "SELECT drop_partition('tasks_done_other')",
        "ALTER SEQUENCE positions RESTART",
        "SELECT setval('positions', 1)",
    ];
    for sql in refused {
        let why = runtime.refusal(sql).await;
        assert_eq!(why, SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
    gone(&place, "test Runtime").await;
}

/// As the guide begins: one role owns the schema and is no superuser, another one works.
#[tokio::test]
async fn an_owner_without_further_rights_migrates_for_a_role_that_works() {
    let place = Place::empty("test_owned").await;
    let may_create = "DO $$ BEGIN \
        EXECUTE format('GRANT CREATE ON DATABASE %I TO test_owner', current_database()); END $$";
    let owner = role(&place, "test_owner", may_create).await;
    let superuser = "SELECT rolsuper::text FROM pg_roles WHERE rolname = current_user";
    assert_eq!(owner.column(superuser).await, ["false"]);
    let runtime = role(&place, "test_worker", "").await;
    for version in [0, SCHEMA_VERSION] {
        assert_eq!(migrate(&owner.config).await.unwrap(), version);
        owner.run(&grants_sql("test_owned", "test_worker")).await;
    }
    let engine = runtime.engine().await;
    let tasks = engine.tasks();
    let new = tasks.task("media", "clip", "{}").unwrap();
    let id = tasks.submit(new).await.unwrap().id;
    let worker = engine.worker("w").queue("media");
    let worker = worker.handle("clip", async || {}).build().unwrap();
    worker.run_until_empty().await.unwrap();
    assert_eq!(tasks.get(id).await.unwrap().status, Status::Completed);
    let made = "SELECT made FROM keep_partitions(3)";
    assert_eq!(runtime.column(made).await, ["1"]);
    gone(&place, "test_worker").await;
    gone(&place, "test_owner").await;
}

#[tokio::test]
async fn who_may_look_can_look_at_everything_and_change_nothing() {
    let place = Place::new("test_viewer").await;
    let viewer = role(
        &place,
        "test_viewer_role",
        &viewer_sql("test_viewer", "test_viewer_role"),
    )
    .await;
    let tasks = place.engine().await.tasks();
    tasks
        .submit(tasks.task("media", "clip", "{}").unwrap())
        .await
        .unwrap();
    let views = "jobs lanes job_logs execution_steps workers locks partitioned_jobs states jobs_archive records_now";
    for view in views.split(' ') {
        viewer.rows(&format!("SELECT * FROM {view}")).await;
    }
    assert_eq!(viewer.column("SELECT status FROM jobs").await, ["pending"]);
    for sql in [
        "DELETE FROM tasks",
        "UPDATE records SET revision = 0",
        "INSERT INTO namespaces (name) VALUES ('x')",
        "SELECT nextval('revisions')",
        "SELECT keep_partitions(2)",
        "TRUNCATE logs",
    ] {
        let why = viewer.refusal(sql).await;
        assert_eq!(why, SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
    gone(&place, "test_viewer_role").await;
}

#[tokio::test]
async fn a_role_without_rights_is_told_what_to_do() {
    let place = Place::new("test_nobody").await;
    let nobody = role(&place, "test_nobody_role", "").await;
    let refused = plimsoll_store_postgres::Postgres::open(nobody.config.clone()).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("the role lacks a right"), "{said}");
    gone(&place, "test_nobody_role").await;
}

async fn gone(place: &Place, role: &str) {
    place.drop().await;
    place
        .run(&format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""))
        .await;
}
