//! Receipts that a program of an earlier version has stored: it may still run beside later ones.

use plimsoll_core::ids::{CommitId, Revision};
use plimsoll_core::record::{Record, fields};
use plimsoll_core::store::{Commit, Merge, Outcome, Put, Receipt, Write};
use plimsoll_core::{Key, Name, StoreExt, Timestamp};
use plimsoll_store_postgres::tokio_postgres::Client;

use crate::server::Server;

/// A put that did not ask for its record, a merge that did, and a delete, as they were stored before
/// receipts said when records were written.
const OLD: &str = "93\
    93\
    81a77772697474656e9203c0\
    81a77772697474656e920495a5612e74776f81a16ec401310405c0\
    81a772656d6f76656491c3\
    c0c2";

/// What it says.
fn old() -> Vec<Outcome> {
    let at = |micros| Timestamp::from_micros(micros).expect("a moment");
    let record = Record {
        key: Key::new("a.two").expect("a key"),
        fields: fields([("n", "1")]).expect("fields"),
        revision: Revision::new(4),
        modified_at: at(5),
        expires_at: None,
    };
    let written = |revision, record| Outcome::Written {
        revision: Revision::new(revision),
        record,
        modified_at: Timestamp::MIN,
    };
    let removed = Outcome::Removed { existed: true };
    vec![written(3, None), written(4, Some(record)), removed]
}

/// Stores other bytes as the receipt of a commit.
async fn remembered_as(server: &Server, stranger: &Client, id: CommitId, hex: &str) {
    let (id, schema) = (id.to_string(), &server.config.schema);
    let replace = format!(
        "UPDATE {schema}.commits SET receipt = decode($1, 'hex') WHERE id::text = $2 \
         AND ns = (SELECT ns FROM {schema}.namespaces WHERE name = $3)"
    );
    let replaced = stranger
        .execute(&replace, &[&hex, &id, &server.namespace.as_str()])
        .await;
    assert_eq!(replaced.expect("replaced"), 1);
}

/// Whoever does not know what became of a commit may repeat it through a later program than the one
/// that made it.
#[tokio::test]
async fn a_commit_of_an_older_program_is_answered_as_it_was_stored() {
    let server = Server::new("old receipt").await;
    let (store, stranger) = (server.open().await, server.stranger().await);
    let key = |key| Key::new(key).expect("a key");
    let n = Name::new("n").expect("a name");
    let put = |at| Write::Put(Put::new(key(at), fields([("n", "0")]).expect("fields")));
    store.write(put("a.three")).await.expect("written");
    let id = server.ids.commit();
    let commit = Commit::of(put("a.one"))
        .write(Write::Merge(Merge::new(key("a.two")).add(n, 1).returning()))
        .write(Write::Delete(key("a.three")))
        .id(id);
    let first = store.commit_one(commit.clone()).await.expect("committed");
    let before = store.record(&key("a.two")).await.expect("a look");
    remembered_as(&server, &stranger, id, OLD).await;
    // One of another process, which has not seen the commit.
    for store in [store, server.open().await] {
        let expected = Receipt {
            outcomes: old(),
            position: first.position,
            repeated: true,
        };
        assert_eq!(store.commit_one(commit.clone()).await, Ok(expected));
        let after = store.record(&key("a.two")).await.expect("a look");
        assert_eq!(after, before, "nothing was written again");
    }
}
