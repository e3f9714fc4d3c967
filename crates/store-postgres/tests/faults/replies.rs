//! Answers that are lost after everything was committed: nobody knows then, and whoever repeats the
//! call is answered as the first time.

use std::cell::Cell;
use std::future::Future;

use futures::future::join;
use plimsoll_core::error::Applied;
use plimsoll_core::record::integer;
use plimsoll_core::store::{Commit, Ending, Exchange, Get, Merge, Settle, Tasks, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Name, Store};
use plimsoll_store_postgres::tokio_postgres::Client;
use plimsoll_store_postgres::{PostgresStore, migrate};

use crate::proxy::{Mode, Proxy};
use crate::world::{World, assert_told, claimed, is_well, key, one, put, submit, until};

const PREFIX: &str = "fault_replies_";
/// Whoever has this keeps all commits from being done.
const GATE: i64 = 7_301;

struct Lossy {
    world: World,
    store: PostgresStore,
    proxy: Proxy,
    stranger: Client,
    /// Whether connections are cut when a call has been committed.
    loses: Cell<bool>,
}

impl Lossy {
    /// `name` makes the schema one of its own.
    async fn new(name: &str) -> Self {
        let mut world = World::shared().await;
        let stranger = world.stranger().await;
        let schema = format!("{PREFIX}{name}");
        let sql = format!("DROP SCHEMA IF EXISTS {schema} CASCADE");
        stranger.batch_execute(&sql).await.expect("dropped");
        world.config.schema.clone_from(&schema);
        world.config.lock_timeout = std::time::Duration::from_secs(10);
        world.config.call_timeout = std::time::Duration::from_secs(10);
        migrate(&world.config).await.expect("migrated");
        // It runs when everything else is done, right before the commit.
        let gate = format!(
            "CREATE FUNCTION {schema}.gate() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}, {ns}); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON {schema}.changes \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.gate()",
            ns = Self::number(name),
        );
        stranger.batch_execute(&gate).await.expect("a gate");
        let (proxy, config) = world.proxy().await;
        Self {
            store: world.open_with(&config).await,
            world,
            proxy,
            stranger,
            loses: Cell::new(false),
        }
    }

    /// Tests run beside each other: each has a gate of its own.
    fn number(name: &str) -> u32 {
        name.bytes().fold(0, |sum, byte| sum * 7 + u32::from(byte)) % 1_000_000
    }

    /// Does something while everything is done for a call but the commit itself.
    async fn before_commit<T>(&self, call: impl Future<Output = T>, act: impl AsyncFnOnce()) -> T {
        let gate = Self::number(self.world.config.schema.trim_start_matches(PREFIX));
        let close = format!("SELECT pg_advisory_lock({GATE}, {gate})");
        self.stranger.batch_execute(&close).await.expect("closed");
        let at_the_gate = async || {
            let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                       AND classid::bigint = $1 AND objid::bigint = $2 AND mode = 'ShareLock'";
            let found = (self.stranger)
                .query_one(sql, &[&GATE, &i64::from(gate)])
                .await;
            found.expect("locks").get::<_, i64>(0)
        };
        let meanwhile = async {
            until(10, "reaching the gate", async || at_the_gate().await > 0).await;
            act().await;
            let open = format!("SELECT pg_advisory_unlock({GATE}, {gate})");
            self.stranger.batch_execute(&open).await.expect("open");
            until(10, "committing", async || at_the_gate().await == 0).await;
            self.proxy.set(Mode::Pass);
            if self.loses.get() {
                self.proxy.cut();
            }
        };
        join(call, meanwhile).await.0
    }

    /// Makes a call whose answer is lost after it was committed.
    async fn lose<T>(&self, call: impl Future<Output = T>) -> T {
        self.loses.set(true);
        let lost = self
            .before_commit(call, async || self.proxy.set(Mode::LoseAnswers))
            .await;
        self.loses.set(false);
        lost
    }

    async fn history(&self) -> i64 {
        let schema = &self.world.config.schema;
        let sql = format!("SELECT count(*) FROM {schema}.changes WHERE ns > 0");
        self.stranger
            .query_one(&sql, &[])
            .await
            .expect("a count")
            .get(0)
    }
}

const BROKE: &str = "the connection to PostgreSQL broke: try again";

#[tokio::test]
async fn a_submit_whose_answer_is_lost_is_there_once() {
    let lossy = Lossy::new("submit").await;
    let commit = submit(lossy.world.task());
    let answer = lossy.lose(one(&lossy.store, commit.clone())).await;
    assert_told(answer, Applied::Unknown, BROKE);
    one(&lossy.store, commit).await.expect("the same");
    assert_eq!(lossy.history().await, 1);
    let claimed = lossy.store.claim(lossy.world.claim(9)).await;
    assert_eq!(claimed.expect("a claim").tasks.len(), 1);
    is_well(&lossy.store).await;
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_happens_once() {
    let lossy = Lossy::new("settle").await;
    let task = claimed(&lossy.world, &lossy.store, 1).await.remove(0);
    let settle = Settle {
        holder: task.holder().expect("it is held"),
        how: Ending::Complete {
            result: Some("done".into()),
        },
    };
    let commit = Commit::of(Write::Settle(settle));
    let before = lossy.history().await;
    let answer = lossy.lose(one(&lossy.store, commit.clone())).await;
    assert_told(answer, Applied::Unknown, BROKE);
    one(&lossy.store, commit).await.expect("the same");
    assert_eq!(lossy.history().await, before + 1);
    let ids = vec![task.id()];
    let found = lossy.store.tasks(Tasks { ids }).await.expect("tasks");
    let status = found[0].as_ref().map(|task| task.status);
    assert_eq!(status, Some(Status::Completed));
    is_well(&lossy.store).await;
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_answered_the_same_again() {
    let lossy = Lossy::new("claim").await;
    let commits = (0..20).map(|_| submit(lossy.world.task())).collect();
    for receipt in lossy.store.commit(commits).await {
        receipt.expect("submitted");
    }
    let claim = lossy.world.claim(7);
    let before = lossy.history().await;
    let answer = lossy.lose(lossy.store.claim(claim.clone())).await;
    assert_told(answer, Applied::Unknown, BROKE);
    let again = lossy.store.claim(claim).await.expect("the same").tasks;
    assert_eq!(again.len(), 7);
    assert!(again.iter().all(|task| task.attempts == 1));
    assert_eq!(lossy.history().await, before + 1);
    is_well(&lossy.store).await;
}

#[tokio::test]
async fn an_addition_whose_answer_is_lost_counts_once() {
    let lossy = Lossy::new("add").await;
    one(&lossy.store, put("other")).await.expect("a record");
    let add = Merge::new(key("counter")).add(Name::new("n").expect("a name"), 1);
    let commit = Commit::of(Write::Merge(add)).id(lossy.world.ids.commit());
    let answer = lossy.lose(one(&lossy.store, commit.clone())).await;
    assert_told(answer, Applied::Unknown, BROKE);
    let receipt = one(&lossy.store, commit).await.expect("the same");
    assert!(receipt.repeated && receipt.position.is_some());
    let keys = vec![key("counter")];
    let found = lossy.store.get(Get { keys }).await.expect("a record");
    let counted = found[0].as_ref().and_then(|it| integer(it.field("n")?));
    assert_eq!(counted, Some(1));
    is_well(&lossy.store).await;
}

#[tokio::test]
async fn commits_are_answered_although_one_cannot_be_read_and_the_claim_fails() {
    let lossy = Lossy::new("beside").await;
    one(&lossy.store, put("damaged")).await.expect("a record");
    let schema = &lossy.world.config.schema;
    let spoil = format!(
        "UPDATE {schema}.records SET fields = '{{\"n\": 1}}'; \
         ALTER TABLE {schema}.claims RENAME TO gone"
    );
    (lossy.stranger.batch_execute(&spoil))
        .await
        .expect("spoilt");
    let exchange = Exchange {
        commits: vec![put("first"), put("damaged"), put("last")],
        renew: None,
        claim: Some(lossy.world.claim(1)),
    };
    let answer = lossy.store.exchange(exchange).await.expect("an answer");
    let [Ok(first), Err(Error::Corrupt(_)), Ok(last)] = &answer.commits[..] else {
        panic!("{:?}", answer.commits);
    };
    assert!(first.position < last.position);
    let claimed = answer.claimed.expect("an answer to the claim");
    assert_told(claimed, Applied::No, "run `plimsoll migrate`");
}
