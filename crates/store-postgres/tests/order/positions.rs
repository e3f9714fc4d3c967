//! What holds back whom, at which positions.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join;
use futures::poll;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::decorate::{Around, Decorated, Method};
use plimsoll_core::store::{Changes, Commit, Outcome, Receipt, Start, Write};
use plimsoll_core::{Key, Namespace, Position, Result, Revision, Store, StoreExt};
use plimsoll_engine::Engine;
use plimsoll_engine::records::WatchEvent;
use plimsoll_store_postgres::PostgresStore;

use crate::server::{Server, entries_after, hold_up, position_of, until_waited_for};

/// What a lock carries of a position are its last 31 bits.
#[tokio::test]
async fn what_is_in_flight_holds_back_what_comes_after_it_at_every_position() {
    let server = Server::new().await;
    let (store, watcher) = (server.open().await, server.stranger().await);
    let turn = 1_i64 << 31;
    for last in [
        1,
        turn - 3,
        turn - 2,
        turn - 1,
        turn,
        2 * turn - 2,
        5 * turn - 1,
        turn * turn / 4,
    ] {
        let set = format!("SELECT setval('plimsoll.positions', {last})");
        server.run(&watcher, &set).await;
        let start = store.commit_one(server.put("start")).await;
        let start = position_of(&start.expect("committed"));
        let (one, other) = (server.stranger().await, server.stranger().await);
        let (first, second) = (server.put("first"), server.put("second"));
        hold_up(&server, &one, first.id.expect("an id")).await;
        hold_up(&server, &other, second.id.expect("an id")).await;
        let rest = async {
            until_waited_for(&watcher, &one).await;
            let passed = store.commit_one(server.put("third")).await;
            let passed = position_of(&passed.expect("committed"));
            let nothing = (Vec::new(), start);
            assert_eq!(entries_after(&store, start).await, nothing, "{last}");
            assert!(passed.get() > start.get() + 1, "{last}");
            let late = async {
                until_waited_for(&watcher, &other).await;
                assert_eq!(entries_after(&store, start).await, nothing, "{last}");
                // The first may commit: up to the second everything is there.
                one.batch_execute("ROLLBACK").await.expect("ended");
                passed
            };
            late.await
        };
        let second = async {
            until_waited_for(&watcher, &one).await;
            store.commit_one(second).await
        };
        let all = join(join(store.commit_one(first), second), async {
            let passed = rest.await;
            // Whoever waits behind the other is the only one left.
            let clock = SystemClock::new();
            while entries_after(&store, start).await.0.is_empty() {
                assert!(clock.monotonic() < Duration::from_secs(120), "{last}");
                clock.sleep(Duration::from_millis(1)).await;
            }
            other.batch_execute("ROLLBACK").await.expect("ended");
            passed
        });
        let ((first, second), third) = all.await;
        let mut wanted = [first, second]
            .map(|one| position_of(&one.expect("committed")))
            .to_vec();
        wanted.push(third);
        wanted.sort();
        let newest = wanted.last().copied().expect("three");
        assert_eq!(
            entries_after(&store, start).await,
            (wanted, newest),
            "{last}"
        );
    }
    server.drop().await;
}

/// Counts the looks at the history that were answered.
#[derive(Clone, Debug, Default)]
struct Looks(Arc<AtomicUsize>);

impl Looks {
    fn answered(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Around for Looks {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let answer = call().await;
        if method == Method::Changes && answer.is_ok() {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

/// Somebody commits behind a transaction that is in flight, which the history does not tell before that has ended.
/// Whoever watches reads it, and is not told it again.
#[tokio::test]
async fn a_watch_that_begins_while_something_is_in_flight_tells_everything_once() {
    let server = Server::new().await;
    let (store, watcher) = (server.open().await, server.stranger().await);
    let holder = server.stranger().await;
    let held = server.put("held");
    hold_up(&server, &holder, held.id.expect("an id")).await;
    let looks = Looks::default();
    let looked_at = Decorated::new(Arc::new(server.open().await), looks.clone());
    let engine = Engine::new(Arc::new(looked_at));
    let records = engine.records();
    let rest = async {
        until_waited_for(&watcher, &holder).await;
        for n in [1, 2] {
            records.set_field("key", "n", n).await.expect("set");
        }
        let [mut watch, changes] = [(); 2].map(|()| records.watch("").expect("a watch"));
        let mut changes = changes.changes_only();
        // What is there is told although something is in flight.
        let first = watch.next().await.expect("told");
        let WatchEvent::Snapshot(record) = first else {
            panic!("{first:?}");
        };
        assert_eq!(record.field("n").expect("a field"), "2");
        let mut changed = pin!(changes.next());
        // It has begun when its look is answered. Nobody else looks meanwhile.
        let before = looks.answered();
        while looks.answered() == before {
            assert!(poll!(&mut changed).is_pending());
            engine.clock().sleep(Duration::from_millis(1)).await;
        }
        // They wait for as long as it takes.
        let next = {
            let mut next = pin!(watch.next());
            for _ in 0..20 {
                assert!(poll!(&mut next).is_pending() && poll!(&mut changed).is_pending());
                engine.clock().sleep(Duration::from_millis(5)).await;
            }
            holder.batch_execute("ROLLBACK").await.expect("ended");
            next.await
        };
        let mut told = vec![next.expect("told")];
        told.push(watch.next().await.expect("told"));
        records.set_field("key", "n", 3).await.expect("set");
        told.push(watch.next().await.expect("told"));
        let told: Vec<_> = told.into_iter().map(in_short).collect();
        assert_eq!(told, ["held", "replayed", "key 3"]);
        // Who looks when it has begun to watch changes does not miss what was in flight then.
        assert_eq!(in_short(changed.await.expect("told")), "held");
    };
    let (held, ()) = join(store.commit_one(held), rest).await;
    held.expect("committed");
    server.drop().await;
}

fn in_short(event: WatchEvent) -> String {
    match event {
        WatchEvent::ReplayComplete { .. } => "replayed".into(),
        WatchEvent::Put { record, .. } if record.key.as_str() == "held" => "held".into(),
        WatchEvent::Put { record, .. } => {
            let n = record.field("n").expect("a field");
            format!("{} {}", record.key, String::from_utf8_lossy(n))
        }
        other => panic!("{other:?}"),
    }
}

/// What was acknowledged is waited for, although the history does not tell it yet.
#[tokio::test]
async fn a_page_names_what_is_behind_something_in_flight() {
    let server = Server::new().await;
    let (store, watcher) = (server.open().await, server.stranger().await);
    let (holder, held) = (server.stranger().await, server.put("held"));
    hold_up(&server, &holder, held.id.expect("an id")).await;
    let rest = async {
        until_waited_for(&watcher, &holder).await;
        let put = store.commit_one(server.put("key")).await;
        let put = position_of(&put.expect("committed"));
        for start in [Start::Newest, Start::Oldest] {
            let changes = Changes {
                start,
                interests: Vec::new(),
                limit: 1,
            };
            let page = store.changes(changes).await.expect("a page");
            assert_eq!((page.entries.len(), page.newest), (0, put));
            assert!(page.next < put && !page.more, "{page:?}");
        }
        holder.batch_execute("ROLLBACK").await.expect("ended");
    };
    let (held, ()) = join(store.commit_one(held), rest).await;
    held.expect("committed");
    server.drop().await;
}

/// A transaction of another one that is in flight holds back nobody here.
async fn holds_back_nobody(server: &Server, another: &Server) {
    let (store, far) = (server.open().await, another.open().await);
    let (watcher, holder) = (server.stranger().await, server.stranger().await);
    let held = another.put("held");
    hold_up(another, &holder, held.id.expect("an id")).await;
    let rest = async {
        until_waited_for(&watcher, &holder).await;
        let mut last = Position::ZERO;
        for _ in 0..3 {
            let receipt = store.commit_one(server.put("key")).await;
            last = position_of(&receipt.expect("committed"));
        }
        let (_, next) = entries_after(&store, Position::ZERO).await;
        holder.batch_execute("ROLLBACK").await.expect("ended");
        assert_eq!(next, last);
    };
    let (held, ()) = join(far.commit_one(held), rest).await;
    held.expect("committed");
}

#[tokio::test]
async fn transactions_of_another_schema_hold_back_nobody() {
    let (server, another) = (Server::new().await, Server::new().await);
    holds_back_nobody(&server, &another).await;
    server.drop().await;
    another.drop().await;
}

/// Although both take their positions from one sequence.
#[tokio::test]
async fn transactions_of_another_namespace_hold_back_nobody() {
    let server = Server::new().await;
    let another = Server {
        config: server.config.clone(),
        ids: server.ids.clone(),
        namespace: Namespace::new("another").expect("a namespace"),
    };
    holds_back_nobody(&server, &another).await;
    server.drop().await;
}

#[tokio::test]
async fn a_revision_grows_over_deletion_whoever_writes() {
    let server = Server::new().await;
    let (one, other) = (server.open().await, server.open().await);
    let revision = async |store: &PostgresStore, commit: Commit| -> Revision {
        let receipt = store.commit_one(commit).await.expect("committed");
        match &receipt.outcomes[0] {
            Outcome::Written { revision, .. } => *revision,
            outcome => panic!("{outcome:?}"),
        }
    };
    // It has connections that have written before.
    revision(&one, server.put("elsewhere")).await;
    for _ in 0..3 {
        let before = revision(&other, server.put("key")).await;
        let gone = Commit::of(Write::Delete(Key::new("key").expect("a key")));
        other.commit_one(gone.clone()).await.expect("deleted");
        let after = revision(&one, server.put("key")).await;
        assert!(after > before, "{after} after {before}");
        one.commit_one(gone).await.expect("deleted");
    }
    server.drop().await;
}
