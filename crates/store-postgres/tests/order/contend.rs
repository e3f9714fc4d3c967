//! Hundreds of writers and readers at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::{join, join_all};
use plimsoll_core::change::{Change, Entry};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::record::fields;
use plimsoll_core::store::{Changes, Commit, Merge, Outcome, Put, Start, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{Error, Key, Name, Position, Revision, Store, StoreExt, TaskId};
use plimsoll_store_postgres::PostgresStore;

use crate::server::{Server, hold_up, slowed, until_waited_for};

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
