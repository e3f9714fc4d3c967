//! The order of the history on a real server: hundreds of writers in several processes, transactions
//! that are held up between taking a position and committing, strangers that never end theirs,
//! backends that are killed.

#![allow(clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{join, join_all};
use plimsoll_core::change::{Change, Entry};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Changes, Commit, Merge, Outcome, Put, Receipt, Start, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{
    CommitId, Error, Key, Name, Namespace, Position, Revision, Store, StoreExt, TaskId,
};
use plimsoll_store_postgres::tokio_postgres::{Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

/// A schema of its own.
struct Server {
    config: Config,
    ids: Ids,
    namespace: Namespace,
}

impl Server {
    async fn new() -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let mut config = Config::new(&url).expect("a URL");
        config.schema = format!("order {}", ids.task());
        config.unsafe_durability = true;
        config.lock_timeout = Duration::from_secs(300);
        config.server.application_name(&config.schema);
        migrate(&config).await.expect("a schema");
        let namespace = Namespace::new("order").expect("a namespace");
        Self {
            config,
            ids,
            namespace,
        }
    }

    /// A handle with connections of its own, as another process would have.
    async fn open(&self) -> PostgresStore {
        let postgres = Postgres::open(self.config.clone()).await.expect("open");
        let store = postgres.namespace(self.namespace.clone()).await;
        store.expect("a namespace")
    }

    async fn stranger(&self) -> Client {
        let mut server = self.config.server.clone();
        server.application_name("stranger");
        let (client, connection) = server.connect(NoTls).await.expect("connected");
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Runs a statement that names the schema as `plimsoll`.
    async fn run(&self, client: &Client, text: &str) {
        let text = text.replace("plimsoll.", &format!("\"{}\".", self.config.schema));
        client.batch_execute(&text).await.expect("done");
    }

    /// The text of a function of the schema.
    async fn function(&self, function: &str) -> String {
        let client = self.stranger().await;
        let name = format!("\"{}\".{function}", self.config.schema);
        let found = "SELECT pg_get_functiondef($1::text::regproc)";
        let row = client.query_one(found, &[&name]).await;
        row.expect("a function").get(0)
    }

    /// Replaces a function of the schema.
    async fn change(&self, function: &str, change: impl Fn(String) -> String) {
        let text = self.function(function).await;
        let changed = change(text.clone());
        assert_ne!(changed, text, "{function} is not what it was");
        self.run(&self.stranger().await, &changed).await;
    }

    async fn drop(self) {
        let client = self.stranger().await;
        let text = format!("DROP SCHEMA \"{}\" CASCADE", self.config.schema);
        client.batch_execute(&text).await.expect("dropped");
    }

    fn put(&self, key: &str) -> Commit {
        let key = Key::new(key).expect("a key");
        let fields = fields([("n", "1")]).expect("fields");
        let mut commit = Commit::of(Write::Put(Put::new(key, fields)));
        commit.id = Some(self.ids.commit());
        commit
    }
}

/// Lets every step of a function take a while, so that others come in between.
fn slowed(text: String) -> String {
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let body = body.replace(";\n", ";\n PERFORM pg_sleep(random() * 0.003);\n");
    format!("{head}BEGIN\n{body}")
}

/// Whoever inserts the receipt of this commit waits, with its position taken, until this ends.
async fn hold_up(server: &Server, client: &Client, commit: CommitId) {
    let uuid = commit.to_string();
    let text = format!(
        "BEGIN; INSERT INTO plimsoll.commits SELECT ns, '{uuid}', now(), NULL, '' \
         FROM plimsoll.namespaces"
    );
    server.run(client, &text).await;
}

/// Waits until somebody waits for a transaction of this client.
async fn until_waited_for(watcher: &Client, client: &Client) {
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    let pid: i32 = row.expect("a pid").get(0);
    let waits =
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))";
    let clock = SystemClock::new();
    loop {
        let row = watcher.query_one(waits, &[&pid]).await.expect("a look");
        if row.get(0) {
            return;
        }
        assert!(clock.monotonic() < Duration::from_secs(120), "nobody waits");
        clock.sleep(Duration::from_millis(2)).await;
    }
}

fn position_of(receipt: &Receipt) -> Position {
    receipt.position.expect("a position")
}

async fn entries_after(store: &PostgresStore, after: Position) -> (Vec<Position>, Position) {
    let page = store.changes(Changes::after(after, 100)).await;
    let page = page.expect("a page");
    let entries = page.entries.iter().map(|entry| entry.position).collect();
    (entries, page.next)
}

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

const PROCESSES: usize = 4;
const WRITERS: usize = 200;
const COMMITS: usize = 6;
const KEYS: usize = 12;

/// A commit that was acknowledged, and when it was sent and answered, in steps of everybody.
#[derive(Debug)]
struct Acknowledged {
    sent: u64,
    answered: u64,
    position: Position,
    wrote: Wrote,
}

#[derive(Debug)]
enum Wrote {
    Record(Key, Revision),
    Nothing,
    Task(TaskId),
}

/// What everybody has seen.
#[derive(Debug, Default)]
struct Seen {
    steps: AtomicU64,
    acknowledged: Mutex<Vec<Acknowledged>>,
    unknown: AtomicUsize,
    done: AtomicBool,
}

impl Seen {
    fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::SeqCst)
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Acknowledged>> {
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes, and asks again until it is answered.
async fn write(server: &Server, store: &PostgresStore, seen: &Seen, commit: Commit) {
    let sent = seen.step();
    loop {
        match store.commit_one(commit.clone()).await {
            Ok(receipt) => {
                let answered = seen.step();
                let wrote = match (&receipt.outcomes[0], &commit.writes[0]) {
                    (
                        Outcome::Written { revision, .. },
                        Write::Put(Put { key, .. }) | Write::Merge(Merge { key, .. }),
                    ) => Wrote::Record(key.clone(), *revision),
                    (Outcome::Submitted(new), _) => Wrote::Task(new.id),
                    _ => Wrote::Nothing,
                };
                if let Some(position) = receipt.position {
                    seen.all().push(Acknowledged {
                        sent,
                        answered,
                        position,
                        wrote,
                    });
                }
                return;
            }
            Err(Error::Unavailable(_)) => {
                seen.unknown.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("{error} in {}", server.config.schema),
        }
    }
}

async fn writer(server: &Server, store: &PostgresStore, seen: &Seen, number: usize) {
    for round in 0..COMMITS {
        let ids = &server.ids;
        let key = Key::new(format!("key {}", ids.below(KEYS as u64))).expect("a key");
        let write_ = match (number + round) % 5 {
            0 => Write::Submit(Box::new(NewTask::new(
                ids.task(),
                Lane::new("queue", "kind").expect("a lane"),
                "x",
            ))),
            1 => Write::Delete(key),
            2 => Write::Put(Put::new(key, fields([("n", "0")]).expect("fields"))),
            _ => Write::Merge(Merge::new(key).add(Name::new("n").expect("a name"), 1)),
        };
        let mut commit = Commit::of(write_);
        commit.id = Some(ids.commit());
        write(server, store, seen, commit).await;
    }
}

/// Commits that are held up with their position taken, one after another, and some that take a
/// position and never commit.
async fn held_up(server: &Server, store: &PostgresStore, seen: &Seen) {
    let (holder, watcher) = (server.stranger().await, server.stranger().await);
    let mut number = 0;
    while !seen.done.load(Ordering::Relaxed) {
        number += 1;
        let commit = server.put(&format!("held {}", number % 3));
        hold_up(server, &holder, commit.id.expect("an id")).await;
        let rest = async {
            until_waited_for(&watcher, &holder).await;
            let after = seen.all().len() + 10;
            let clock = SystemClock::new();
            while seen.all().len() < after && !seen.done.load(Ordering::Relaxed) {
                clock.sleep(Duration::from_millis(1)).await;
            }
            holder.batch_execute("ROLLBACK").await.expect("ended");
        };
        join(write(server, store, seen, commit), rest).await;
        let wasted =
            "BEGIN; SELECT plimsoll.append(ns, now(), '') FROM plimsoll.namespaces; ROLLBACK";
        server.run(&holder, wasted).await;
    }
}

/// Kills one backend of ours after another.
async fn killer(server: &Server, seen: &Seen) {
    let client = server.stranger().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE application_name LIKE $1 || '%' ORDER BY random() LIMIT 1";
    let clock = SystemClock::new();
    while !seen.done.load(Ordering::Relaxed) {
        let after = seen.all().len() + 40;
        while seen.all().len() < after && !seen.done.load(Ordering::Relaxed) {
            clock.sleep(Duration::from_millis(2)).await;
        }
        client
            .query(kill, &[&server.config.schema])
            .await
            .expect("killed");
    }
}

/// Reads everything there is from a start on, until nothing more will come.
async fn reader(store: &PostgresStore, seen: &Seen, start: Start, limit: usize) -> Vec<Entry> {
    let (mut all, mut start) = (Vec::new(), start);
    let clock = SystemClock::new();
    loop {
        let last = seen.done.load(Ordering::SeqCst);
        let asked = Changes {
            start,
            interests: Vec::new(),
            limit,
        };
        let page = match store.changes(asked).await {
            Ok(page) => page,
            Err(Error::Unavailable(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let ended = page.entries.is_empty();
        start = Start::After(page.next);
        all.extend(page.entries);
        if ended && last {
            return all;
        }
        if ended {
            clock.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A server has only so many connections.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Lets everybody write and read at once. What is wrong with what they saw.
async fn contend(server: &Server) -> Result<(), String> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let stores = join_all((0..PROCESSES).map(|_| server.open())).await;
    // Neither with a transaction id nor without is anybody delayed.
    let (with, without) = (server.stranger().await, server.stranger().await);
    with.batch_execute("BEGIN; SELECT pg_current_xact_id()")
        .await
        .expect("begun");
    (without
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await)
        .expect("begun");
    let seen = Seen::default();
    let writers = (0..WRITERS).map(|n| writer(server, &stores[n % PROCESSES], &seen, n));
    let writers = async {
        join_all(writers).await;
        seen.done.store(true, Ordering::SeqCst);
    };
    let readers = (0..2 * PROCESSES).map(|n| {
        let start = match n % 3 {
            0 => Start::Oldest,
            1 => Start::After(Position::ZERO),
            _ => Start::Newest,
        };
        reader(&stores[n % PROCESSES], &seen, start, 1 + 3 * n)
    });
    let helpers = join(held_up(server, &stores[0], &seen), killer(server, &seen));
    let ((), (told, ((), ()))) = join(writers, join(join_all(readers), helpers)).await;
    // Whatever was held up last may have come after the readers ended.
    let last = Seen::default();
    last.done.store(true, Ordering::SeqCst);
    let truth = reader(&stores[0], &last, Start::Oldest, 1_000).await;
    for told in &told {
        let begins = truth
            .iter()
            .position(|entry| told.first().is_none_or(|first| first == entry));
        let begins = begins.ok_or("a reader was told what there is not")?;
        let there = &truth[begins..];
        if !there.starts_with(told) {
            let at = told.iter().zip(there).find(|(told, there)| told != there);
            return Err(format!("a reader missed or repeated something: {at:?}"));
        }
    }
    let acknowledged = std::mem::take(&mut *seen.all());
    in_order(&truth, acknowledged)?;
    for client in [with, without] {
        client.batch_execute("ROLLBACK").await.expect("still open");
    }
    Ok(())
}

/// What is wrong with a history, given what was acknowledged.
fn in_order(truth: &[Entry], mut acknowledged: Vec<Acknowledged>) -> Result<(), String> {
    let positions: BTreeSet<Position> = truth.iter().map(|entry| entry.position).collect();
    if positions.len() != truth.len() || !truth.is_sorted_by_key(|entry| entry.position) {
        return Err("an entry is there twice or out of order".into());
    }
    let mut newest: BTreeMap<Key, Revision> = BTreeMap::new();
    let (mut records, mut tasks) = (BTreeMap::new(), BTreeMap::new());
    for (change, position) in truth
        .iter()
        .flat_map(|entry| entry.changes.iter().map(|change| (change, entry.position)))
    {
        match change {
            Change::Put(record) => {
                let before = newest.insert(record.key.clone(), record.revision);
                if before >= Some(record.revision) {
                    return Err(format!("{record:?} after {before:?}"));
                }
                records.insert((record.key.clone(), record.revision), position);
            }
            Change::Removed { key, revision, .. } => {
                if newest.get(key) != Some(revision) {
                    return Err(format!(
                        "{key} {revision} was removed, not {:?}",
                        newest.get(key)
                    ));
                }
            }
            Change::Task(task) => {
                if tasks.insert(task.id, position).is_some() {
                    return Err(format!("{} was submitted twice", task.id));
                }
            }
            Change::Group { .. } => {}
        }
    }
    for one in &acknowledged {
        let told = match &one.wrote {
            Wrote::Record(key, revision) => records.get(&(key.clone(), *revision)),
            Wrote::Task(id) => tasks.get(id),
            Wrote::Nothing => positions.get(&one.position),
        };
        if told != Some(&one.position) {
            return Err(format!("{one:?} is at {told:?}"));
        }
    }
    acknowledged.sort_by_key(|one| one.sent);
    let mut by_answer: Vec<&Acknowledged> = acknowledged.iter().collect();
    by_answer.sort_by_key(|one| one.answered);
    let (mut answered, mut highest) = (by_answer.into_iter().peekable(), Position::ZERO);
    for one in &acknowledged {
        while let Some(before) = answered.next_if(|before| before.answered < one.sent) {
            highest = highest.max(before.position);
        }
        if one.position <= highest {
            return Err(format!("{one:?} was sent after {highest} was acknowledged"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_reads_everything_in_one_order() {
    let server = Server::new().await;
    server.change("append", slowed).await;
    server.change("horizon", slowed).await;
    contend(&server).await.expect("order");
    server.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_that_does_not_look_at_locks_is_found_out() {
    let server = Server::new().await;
    let blind = |text: String| text.replace("coalesce(behind, 0)", "0");
    server.change("horizon", blind).await;
    let mut found = Ok(());
    // Whether a reader comes while a writer is held up is up to the machine: in every run many do.
    for _ in 0..8 {
        if found.is_ok() {
            found = contend(&server).await;
        }
    }
    let wrong = found.expect_err("blind");
    assert!(wrong.starts_with("a reader missed"), "{wrong}");
    server.drop().await;
}

/// Whoever comes to the gate first waits until the test opens it, everybody else goes on.
const GATE: &str = " PERFORM FROM plimsoll.gate WHERE n = 1 FOR UPDATE SKIP LOCKED;
 IF FOUND THEN PERFORM FROM plimsoll.gate WHERE n = 2 FOR UPDATE; END IF;\n";

/// The function with a gate in each of its places, before and after every step.
fn gated(text: &str) -> Vec<String> {
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let steps: Vec<&str> = body.split_inclusive(";\n").collect();
    let reached = |step: &&str| !step.contains("RETURN") && step.ends_with(";\n");
    let places = steps.iter().take_while(|step| reached(step)).count();
    let with = |place: usize| {
        let (before, after) = steps.split_at(place);
        format!("{head}BEGIN\n{}{GATE}{}", before.concat(), after.concat())
    };
    (0..=places).map(with).collect()
}

/// Processes that meet at the gate.
struct Meeting {
    server: Server,
    stores: [PostgresStore; 3],
    gate: Client,
    holder: Client,
    watcher: Client,
}

impl Meeting {
    async fn new() -> Self {
        let server = Server::new().await;
        let gate = server.stranger().await;
        let made = "CREATE TABLE plimsoll.gate AS SELECT n FROM generate_series(1, 2) AS n";
        server.run(&gate, made).await;
        Self {
            stores: [
                server.open().await,
                server.open().await,
                server.open().await,
            ],
            gate,
            holder: server.stranger().await,
            watcher: server.stranger().await,
            server,
        }
    }

    async fn commit(&self, store: usize, commit: Commit) -> Position {
        let receipt = self.stores[store].commit_one(commit).await;
        position_of(&receipt.expect("committed"))
    }

    async fn close_gate(&self) {
        let close = "BEGIN; SELECT FROM plimsoll.gate WHERE n = 2 FOR UPDATE";
        self.server.run(&self.gate, close).await;
    }

    async fn open_gate(&self) {
        self.gate.batch_execute("ROLLBACK").await.expect("open");
    }

    /// Whether a reader who was told this, and goes on behind it, is told everything.
    async fn all_is_told(&self, start: Position, told: (Vec<Position>, Position)) -> bool {
        let (mut told, next) = told;
        told.extend(entries_after(&self.stores[2], next).await.0);
        told == entries_after(&self.stores[2], start).await.0
    }

    /// Whether a reader is told everything while a writer stands at the gate and another one passes.
    async fn writer_stops(&self) -> bool {
        let start = self.commit(0, self.server.put("start")).await;
        self.close_gate().await;
        let rest = async {
            until_waited_for(&self.watcher, &self.gate).await;
            self.commit(1, self.server.put("second")).await;
            let told = entries_after(&self.stores[2], start).await;
            self.open_gate().await;
            told
        };
        let first = self.commit(0, self.server.put("first"));
        let (_, told) = join(first, rest).await;
        self.all_is_told(start, told).await
    }

    /// Whether a reader who stands at the gate is told everything, while one writer comes as far as
    /// its position and another one passes. The first comes before the reader, or after.
    async fn reader_stops(&self, before: bool) -> bool {
        let start = self.commit(0, self.server.put("start")).await;
        let first = self.server.put("first");
        hold_up(&self.server, &self.holder, first.id.expect("an id")).await;
        let (stands, is_there) = tokio::sync::oneshot::channel();
        let writers = async {
            if !before {
                is_there.await.expect("a reader");
            }
            self.commit(0, first).await;
        };
        let reader = async {
            if before {
                until_waited_for(&self.watcher, &self.holder).await;
            }
            self.close_gate().await;
            let rest = async {
                until_waited_for(&self.watcher, &self.gate).await;
                stands.send(()).ok();
                until_waited_for(&self.watcher, &self.holder).await;
                self.commit(1, self.server.put("second")).await;
                self.open_gate().await;
            };
            let (told, ()) = join(entries_after(&self.stores[2], start), rest).await;
            self.holder.batch_execute("ROLLBACK").await.expect("ended");
            told
        };
        let ((), told) = join(writers, reader).await;
        self.all_is_told(start, told).await
    }

    /// In which places of a function everything is told.
    async fn writers_told(&self, append: String) -> Vec<bool> {
        let mut told = Vec::new();
        for text in gated(&append) {
            self.server.run(&self.watcher, &text).await;
            told.push(self.writer_stops().await);
        }
        told
    }

    /// Likewise, for a reader who comes after a writer and for one who comes before it.
    async fn readers_told(&self, horizon: String) -> Vec<[bool; 2]> {
        let mut told = Vec::new();
        for text in gated(&horizon) {
            self.server.run(&self.watcher, &text).await;
            told.push([
                self.reader_stops(true).await,
                self.reader_stops(false).await,
            ]);
        }
        told
    }
}

#[tokio::test]
async fn wherever_a_writer_stops_readers_miss_nothing() {
    let meeting = Meeting::new().await;
    let append = meeting.server.function("append").await;
    assert_eq!(meeting.writers_told(append).await, [true; 5]);
    meeting.server.drop().await;
}

#[tokio::test]
async fn wherever_a_reader_stops_it_misses_nothing() {
    let meeting = Meeting::new().await;
    let horizon = meeting.server.function("horizon").await;
    assert_eq!(meeting.readers_told(horizon).await, [[true; 2]; 4]);
    meeting.server.drop().await;
}

#[tokio::test]
async fn wherever_a_writer_stops_a_reader_that_does_not_look_at_locks_is_found_out() {
    let meeting = Meeting::new().await;
    let blind = |text: String| text.replace("coalesce(behind, 0)", "0");
    meeting.server.change("horizon", blind).await;
    let append = meeting.server.function("append").await;
    // From when it has a position.
    let told = [true, true, true, false, false];
    assert_eq!(meeting.writers_told(append).await, told);
    meeting.server.drop().await;
}

#[tokio::test]
async fn a_position_that_is_taken_before_it_is_announced_is_found_out() {
    let meeting = Meeting::new().await;
    let text = meeting.server.function("append").await;
    let taking = "    taken := nextval('";
    let (head, tail) = text.split_once(taking).expect("taking");
    let (name, tail) = tail.split_once(";\n").expect("an end");
    let announcing = "    PERFORM pg_advisory";
    let (first, last) = head.split_once(announcing).expect("announcing");
    let early = format!("{first}{taking}{name};\n{announcing}{last}{tail}");
    // Between the two, and nowhere else.
    let told = [true, true, false, true, true];
    assert_eq!(meeting.writers_told(early).await, told);
    meeting.server.drop().await;
}

#[tokio::test]
async fn a_reader_that_looks_at_locks_first_is_found_out() {
    let meeting = Meeting::new().await;
    let text = meeting.server.function("horizon").await;
    let (head, body) = text.split_once("BEGIN\n").expect("a body");
    let newest = body.lines().next().expect("a line");
    let last = "    upto :=";
    let body = body.replace(last, &format!("{newest}\n{last}"));
    let late = format!("{head}BEGIN\n{body}");
    // What announced itself after it read the newest first is ahead of that, and seen by nobody.
    let (all, missed) = ([true; 2], [true, false]);
    let told = [all, missed, missed, all, all];
    assert_eq!(meeting.readers_told(late).await, told);
    meeting.server.drop().await;
}
