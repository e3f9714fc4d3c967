//! Several processes on one file, some of them killed: what was acknowledged is there, what was
//! not is there as a whole or not at all. The test program runs itself again as a child.

// A failed assertion is how a test fails; a child tells its parent by printing.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod disk;
mod older;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write as _, stdin};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use plimsoll_core::clock::SystemClock;
use plimsoll_core::record::{Index, fields, integer};
use plimsoll_core::store::{
    Changes, Claim, Commit, Counts, DeclareIndex, DropIndex, Ending, Merge, Pick, Put, Range, Scan,
    Settle, Write,
};
use plimsoll_core::task::{Lane, NewTask, Status, WorkerId};
use plimsoll_core::{
    Error, Ids, Key, Name, Namespace, Position, Prefix, Result, Store, StoreExt, TaskId,
};
use plimsoll_store_sqlite::{Config, Sqlite, SqliteStore};

const CHILD: &str = "PLIMSOLL_TEST_CHILD";

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(CHILD) {
        let path = std::env::args().nth(1).unwrap_or_default();
        return match block_on(child(&role, Path::new(&path))) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("error {error}");
                ExitCode::FAILURE
            }
        };
    }
    let trial = |name: &str, test: fn() -> Result<(), Failed>| Trial::test(name, test);
    let trials = vec![
        trial(
            "a_killed_process_loses_nothing_and_leaves_nothing_half_done",
            killed,
        ),
        trial("processes_share_the_work_of_one_file", shared),
        trial(
            "processes_open_an_older_file_at_the_same_time",
            older::older,
        ),
        trial(
            "a_process_that_is_killed_while_it_brings_a_file_up_to_date_loses_nothing",
            older::killed,
        ),
        trial(
            "a_file_is_not_brought_up_to_date_on_a_full_disk_and_loses_nothing",
            || disk::on_a_small_disk("upgrade-full"),
        ),
        trial("a_busy_process_does_not_keep_a_lone_caller_out", fair),
        trial("a_process_hears_what_another_one_writes", heard),
        trial(
            "a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room",
            disk::full_disk,
        ),
        trial(
            "an_fsync_that_fails_is_told_as_unknown_and_loses_nothing_acknowledged",
            disk::failing_fsync,
        ),
        trial(
            "a_read_only_disk_is_told_and_work_goes_on_afterwards",
            disk::read_only,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

fn ids() -> Ids {
    Ids::random(Arc::new(SystemClock::new()))
}

fn lane() -> Result<Lane> {
    Ok(Lane::new("q", "k")?)
}

async fn open(path: &Path) -> Result<SqliteStore> {
    let config = Config {
        poll: Duration::from_millis(10),
        ..Config::new(path)
    };
    let sqlite = Sqlite::open(config)?;
    sqlite.namespace(Namespace::new("test")?).await
}

async fn put(store: &SqliteStore, n: u64) -> Result<()> {
    let key = Key::new(format!("k.{n:06}"))?;
    let put = Put::new(key, fields([("f", "v".repeat(8_000))])?);
    store.write(Write::Put(put)).await.map(drop)
}

fn start(role: &str, path: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.arg(path).env(CHILD, role);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("a child")
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output = child.stdout.take().expect("its output");
    BufReader::new(output).lines().map_while(Result::ok)
}

/// What a child tells its parent, at once.
fn say(words: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{words}").and_then(|()| out.flush()).ok();
}

async fn child(role: &str, path: &Path) -> Result<()> {
    match role {
        "write" => {
            let store = open(path).await?;
            let writers = (0..4).map(|_| write_for_ever(&store));
            let writers = futures::future::try_join_all(writers);
            futures::future::try_join(writers, index_for_ever(&store))
                .await
                .map(drop)
        }
        "saturate" => saturate(path).await,
        "work" => work(path).await,
        "upgrade" => {
            say(format_args!("ready"));
            stdin().read_line(&mut String::new()).ok();
            open(path).await.map(drop)
        }
        "submit" => {
            let task = NewTask::new(ids().task(), lane()?, "x");
            open(path).await?.submit(task).await.map(drop)
        }
        "upgrade-full" => older::on_a_full_disk(path).await,
        "full" => disk::fill_up(path).await,
        "read-only" => disk::turn_read_only(path).await,
        "fsync" => disk::meet_a_failing_fsync(path).await,
        role => Err(Error::Unsupported(format!("no role {role}").into())),
    }
}

/// Submits and completes, each together with records that must agree with it.
async fn write_for_ever(store: &SqliteStore) -> Result<()> {
    let ids = ids();
    let worker = WorkerId {
        name: Name::new("child")?,
        incarnation: ids.incarnation(),
    };
    loop {
        let id = ids.task();
        let count = |field: &str| -> Result<Write> {
            let merge = Merge::new(Key::new("totals")?).add(Name::new(field)?, 1);
            Ok(Write::Merge(merge))
        };
        let mark = |prefix: &str| -> Result<Write> {
            let key = Key::new(format!("{prefix}.{id}"))?;
            Ok(Write::Put(Put::new(key, fields([("f", "7")])?)))
        };
        let submit = Commit::of(Write::Submit(Box::new(NewTask::new(id, lane()?, "x"))))
            .write(count("submitted")?)
            .write(mark("submitted")?)
            .id(ids.commit());
        store.commit_one(submit).await?;
        say(format_args!("submitted {id}"));
        let claim = Claim {
            pick: Pick::Ids(vec![id]),
            worker: worker.clone(),
            lease: Duration::from_secs(3_600),
            request: ids.request(),
        };
        let task = store.claim(claim).await?.tasks.remove(0);
        let holder = task.holder().expect("it was just claimed");
        let how = Ending::Complete { result: None };
        let complete = Commit::of(Write::Settle(Settle { holder, how }))
            .write(count("completed")?)
            .write(mark("completed")?)
            .id(ids.commit());
        store.commit_one(complete).await?;
        say(format_args!("completed {id}"));
    }
}

fn index() -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new("submitted.")?,
        field: Name::new("f")?,
    })
}

/// Fills an index in small steps, and begins again.
async fn index_for_ever(store: &SqliteStore) -> Result<()> {
    loop {
        let declare = DeclareIndex {
            index: index()?,
            limit: 5,
        };
        while !store.declare_index(declare.clone()).await?.ready {}
        store.drop_index(DropIndex { index: index()? }).await?;
    }
}

/// Every record that a step has passed is in the index, and every entry is as its record. Answers how
/// many records a step has yet to pass.
fn check_index(path: &Path) -> i64 {
    let looker = rusqlite::Connection::open(path).expect("SQLite opens it");
    let count = |condition: &str| -> i64 {
        let question = format!(
            "SELECT count(*) FROM indexes i JOIN records r ON r.ns = i.ns \
             AND r.key > i.prefix AND r.key < i.prefix || '~' WHERE {condition}"
        );
        let answer = looker.query_row(&question, [], |row| row.get(0));
        answer.expect("a count")
    };
    let entry = "EXISTS (SELECT 1 FROM index_entries e \
                 WHERE e.idx = i.idx AND e.value = 7 AND e.key = r.key \
                 AND (e.fields, e.revision) = (r.fields, r.revision))";
    let passed = "coalesce(r.key <= i.filled, true)";
    assert_eq!(count(&format!("{passed} AND NOT {entry}")), 0, "not in it");
    let entries = "SELECT count(*) FROM index_entries e JOIN indexes i ON i.idx = e.idx \
                   WHERE i.prefix IS NOT NULL";
    let entries: i64 = (looker.query_row(entries, [], |row| row.get(0))).expect("a count");
    assert_eq!(entries, count(entry), "entries without their record");
    count(&format!("NOT {passed}"))
}

fn killed() -> Result<(), Failed> {
    const ROUNDS: u64 = 100;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("plimsoll.db");
    let chance = Ids::seeded(7, Arc::new(SystemClock::new()));
    let mut acknowledged: BTreeMap<TaskId, &str> = BTreeMap::new();
    let mut cut_short = 0;
    for _ in 0..ROUNDS {
        let mut children = [start("write", &path), start("write", &path)];
        let mut heard = Vec::new();
        for child in &mut children {
            let mut said = lines(child);
            heard.extend(said.by_ref().take(chance.below(24) as usize));
            child.kill()?;
            // What was said between the last line read and the end was acknowledged, too.
            heard.extend(said);
            child.wait()?;
        }
        for line in heard {
            let (what, id) = line.split_once(' ').ok_or("a line without an id")?;
            let what = if what == "completed" {
                "completed"
            } else {
                "submitted"
            };
            acknowledged.insert(TaskId::parse(id)?, what);
        }
        cut_short += u64::from(!acknowledged.is_empty() && check_index(&path) > 0);
    }
    assert!(cut_short > 0, "no index was killed while it was filled");
    if acknowledged.len() < ROUNDS as usize {
        return Err(format!("only {} tasks were written", acknowledged.len()).into());
    }
    block_on(check_books(&path, acknowledged)).map_err(|error| error.to_string().into())
}

/// Every acknowledged commit is there, and the books agree with each other.
async fn check_books(path: &Path, acknowledged: BTreeMap<TaskId, &str>) -> Result<()> {
    let looker = rusqlite::Connection::open(path).expect("SQLite opens it");
    let ask = |question: &str| -> String {
        let answer = looker.query_row(question, [], |row| row.get(0));
        answer.expect("an answer")
    };
    assert_eq!(ask("PRAGMA integrity_check"), "ok");
    let orphans = "SELECT count(*) || '' FROM specs WHERE id NOT IN \
                   (SELECT id FROM tasks UNION ALL SELECT id FROM done)";
    assert_eq!(
        ask(orphans),
        "0",
        "what never changes of a task without the rest of it"
    );
    let store = open(path).await?;
    for (id, what) in &acknowledged {
        let task = store.task(*id).await?;
        let task = task.unwrap_or_else(|| panic!("task {id} was {what} and is gone"));
        if *what == "completed" {
            assert_eq!(task.status, Status::Completed, "task {id}");
        }
    }
    let marked = async |prefix: &str| -> Result<BTreeSet<TaskId>> {
        let mut found = BTreeSet::new();
        let mut scan = Scan::new(Prefix::new(format!("{prefix}."))?, 1_000);
        loop {
            let page = store.scan(scan.clone()).await?;
            for record in page.rows {
                let id = record.key.as_str().rsplit('.').next().unwrap_or_default();
                found.insert(TaskId::parse(id)?);
            }
            match page.next {
                Some(next) => scan.cursor = Some(next),
                None => return Ok(found),
            }
        }
    };
    let (submitted, completed) = (marked("submitted").await?, marked("completed").await?);
    store.ensure_index(&index()?).await?;
    let mut indexed = BTreeSet::new();
    let range = Range::new(index()?.field).from(7).before(8);
    let mut scan = Scan::new(index()?.prefix, 1_000).range(range);
    loop {
        let page = store.scan(scan.clone()).await?;
        for record in page.rows {
            let id = record.key.as_str().rsplit('.').next().unwrap_or_default();
            assert!(indexed.insert(TaskId::parse(id)?), "{id} twice");
        }
        scan.cursor = page.next;
        if scan.cursor.is_none() {
            break;
        }
    }
    assert_eq!(indexed, submitted);
    let totals = store.record(&Key::new("totals")?).await?;
    let total = |field: &str| -> u64 {
        let value = totals.as_ref().and_then(|record| record.field(field));
        value.and_then(|v| integer(v)).unwrap_or(0).unsigned_abs()
    };
    assert_eq!(total("submitted"), submitted.len() as u64);
    assert_eq!(total("completed"), completed.len() as u64);
    let counts = store.counts(Counts::default()).await?;
    let by_status = &counts[0].by_status;
    let in_status = |status| by_status.get(&status).copied().unwrap_or(0);
    assert_eq!(in_status(Status::Completed), completed.len() as u64);
    assert_eq!(by_status.values().sum::<u64>(), submitted.len() as u64);
    for id in submitted {
        let task = store.task(id).await?.expect("a record without its task");
        assert_eq!(task.status == Status::Completed, completed.contains(&id));
    }
    let mut last = Position::ZERO;
    loop {
        let page = store.changes(Changes::after(last, 1_000)).await?;
        for entry in &page.entries {
            assert_eq!(entry.position, last.next(), "a gap in the history");
            last = entry.position;
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// Claims and completes one task after another until there is none.
async fn work(path: &Path) -> Result<()> {
    let store = open(path).await?;
    let ids = ids();
    let worker = WorkerId {
        name: Name::new("worker")?,
        incarnation: ids.incarnation(),
    };
    loop {
        let claim = Claim {
            pick: Pick::Next {
                lanes: vec![lane()?],
                limit: 1,
            },
            worker: worker.clone(),
            lease: Duration::from_secs(3_600),
            request: ids.request(),
        };
        let Some(task) = store.claim(claim).await?.tasks.pop() else {
            return Ok(());
        };
        let holder = task.holder().expect("it was just claimed");
        store
            .settle(holder, Ending::Complete { result: None })
            .await?;
        say(format_args!("{}", task.id()));
    }
}

fn shared() -> Result<(), Failed> {
    const TASKS: usize = 1_500;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("plimsoll.db");
    let all = block_on(async {
        let (store, ids) = (open(&path).await?, ids());
        let mut all = BTreeSet::new();
        for _ in 0..TASKS / 100 {
            let mut commit = Commit::new();
            for _ in 0..100 {
                let id = ids.task();
                all.insert(id);
                let task = NewTask::new(id, lane()?, "x");
                commit = commit.write(Write::Submit(Box::new(task)));
            }
            store.commit_one(commit).await?;
        }
        Ok(all)
    })
    .map_err(|error| error.to_string())?;
    let mut workers: Vec<Child> = (0..3).map(|_| start("work", &path)).collect();
    let mut done = Vec::new();
    for worker in &mut workers {
        let own: Vec<String> = lines(worker).collect();
        if !worker.wait()?.success() {
            return Err(format!("a worker failed: {:?}", own.last()).into());
        }
        assert!(!own.is_empty(), "a worker got no turn");
        done.extend(own);
    }
    let once: BTreeSet<TaskId> = done
        .iter()
        .map(|id| TaskId::parse(id))
        .collect::<Result<_, _>>()?;
    assert_eq!(done.len(), TASKS, "each is done once");
    assert_eq!(once, all);
    Ok(())
}

/// Writes from many callers at once for as long as its parent listens.
async fn saturate(path: &Path) -> Result<()> {
    let store = open(path).await?;
    let write = async |n: u64| -> Result<()> {
        for turn in 0.. {
            put(&store, n).await?;
            if turn == 100 {
                say(format_args!("busy"));
            }
        }
        Ok(())
    };
    futures::future::try_join_all((0..16).map(write))
        .await
        .map(drop)
}

/// How many transactions of others come between each two of so many writes, the least first.
async fn between(store: &SqliteStore, writes: usize) -> Result<Vec<u64>> {
    let mut positions = Vec::new();
    for _ in 0..=writes {
        let put = Put::new(Key::new("lone")?, fields([("f", "v")])?);
        let receipt = store.commit_one(Commit::of(Write::Put(put))).await?;
        positions.extend(receipt.position.map(Position::get));
    }
    let mut between: Vec<u64> = positions
        .windows(2)
        .map(|two| two[1] - two[0] - 1)
        .collect();
    between.sort_unstable();
    Ok(between)
}

/// Each transaction of the other process is one entry of the history: they take turns. Whoever
/// asks at the right moment, without turns, gets the file twice or six times in a row.
fn take_turns(between: &[u64]) -> bool {
    let turns = between.iter().filter(|others| **others <= 1).count();
    // Else nobody else wrote.
    let are_two = between.iter().sum::<u64>() > 0;
    are_two && turns >= between.len() * 8 / 10
}

fn fair() -> Result<(), Failed> {
    const WRITES: usize = 50;
    // A process that the machine does not let run misses its turn: that is not so all the time.
    const ROUNDS: usize = 5;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("plimsoll.db");
    let mut busy = start("saturate", &path);
    let first = lines(&mut busy).next();
    let is_fair = |rounds: &[Vec<u64>]| rounds.last().is_some_and(|round| take_turns(round));
    let rounds = block_on(async {
        let store = open(&path).await?;
        let mut rounds: Vec<Vec<u64>> = Vec::new();
        while rounds.len() < ROUNDS && !is_fair(&rounds) {
            rounds.push(between(&store, WRITES).await?);
        }
        Ok(rounds)
    });
    busy.kill()?;
    busy.wait()?;
    let rounds = rounds.map_err(|error| error.to_string())?;
    assert_eq!(first.as_deref(), Some("busy"));
    assert!(rounds.iter().all(|round| round.len() == WRITES));
    assert!(
        is_fair(&rounds),
        "transactions of the other in between: {rounds:?}"
    );
    Ok(())
}

fn heard() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("plimsoll.db");
    let answer = block_on(async {
        let store = open(&path).await?;
        let mut listener = store.wakeups();
        assert!(start("submit", &path).wait().expect("it ends").success());
        // Ends only if what the child wrote is hinted at: this process writes nothing more.
        listener.next().await;
        assert_eq!(store.counts(Counts::default()).await?.len(), 1);
        Ok(())
    });
    answer.map_err(|error| error.to_string().into())
}
