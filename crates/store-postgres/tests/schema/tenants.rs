//! Several schemas in one database: they have nothing to do with each other.

use std::time::Duration;

use futures::future::join;
use plimsoll_core::record::Index;
use plimsoll_core::store::{Commit, DeclareIndex, Put, Write};
use plimsoll_core::{Key, Name, Prefix, Store};

use crate::server::Place;

/// Whoever has this lock keeps a writer from going on.
const GATE: i64 = 4_211;

fn put() -> Commit {
    let key = Key::new("key").expect("a key");
    Commit::of(Write::Put(Put::new(key, Default::default())))
}

#[tokio::test]
async fn a_writer_of_one_schema_does_not_wait_for_one_of_another() {
    let mut slow = Place::new("tenant_slow").await;
    let mut quick = Place::new("tenant_quick").await;
    slow.config.lock_timeout = Duration::from_secs(20);
    quick.config.lock_timeout = Duration::from_millis(500);
    let gate = format!(
        "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock({GATE}); RETURN NEW; END $$; \
         CREATE TRIGGER gate BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION gate(); \
         SELECT pg_advisory_lock({GATE})"
    );
    slow.run(&gate).await;
    let (one, other) = (slow.store().await, quick.store().await);
    let beside = async {
        // Now it has locked what it needs.
        let waits = format!(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = {GATE} AND NOT granted"
        );
        while slow.column(&waits).await.is_empty() {}
        other.commit(vec![put()]).await.remove(0).expect("a record");
        let index = Index {
            prefix: Prefix::new("key").expect("a prefix"),
            field: Name::new("field").expect("a name"),
        };
        let declare = DeclareIndex { index, limit: 1 };
        other.declare_index(declare).await.expect("an index");
        slow.run(&format!("SELECT pg_advisory_unlock({GATE})"))
            .await;
    };
    let (answers, ()) = join(one.commit(vec![put()]), beside).await;
    assert!(answers[0].is_ok(), "{answers:?}");
    slow.drop().await;
    quick.drop().await;
}
