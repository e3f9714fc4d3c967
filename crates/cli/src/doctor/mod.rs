//! `plimsoll doctor`: looks at a store, and says what is wrong and what to do.

mod judge;
#[cfg(feature = "postgres")]
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plimsoll::record::Fields;
use plimsoll::registry::{Profile, WorkerStatus};
use plimsoll::store::{Changes, Commit, Counts, Due, List, Put, Selector, Start, Write};
use plimsoll::task::{Lane, Status, Task};
use plimsoll::{Error, Key, Result, StoreExt, StoreUrl, TaskId, Timestamp, sqlite};

use crate::client::{Client, IfMissing, Options};
use crate::exit::{CliError, FAILURE, OK, Outcome, of_error};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::place::filesystem;
use crate::queue;
use crate::screen::{Screen, Tint};
use crate::text::clean;
use judge::{Check, Overdue, Verdict, Waiting};

/// How many commits are timed.
const COMMITS: usize = 5;
/// How many tasks of each lane and status are looked at.
const LOOKED_AT: usize = 200;
/// How many overdue things are counted.
const DUE_MAX: usize = 500;

/// Looks at a store, and says what is wrong and what to do. The exit code is 1 if there is a problem.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Writes nothing: does not find out whether and how fast that is possible.
    #[arg(long)]
    no_write: bool,
    /// A warning counts as a problem.
    #[arg(long)]
    strict: bool,
}

impl Doctor {
    pub(crate) async fn run(self) -> Outcome {
        let screen = self.options.screen();
        let (checks, code) = match self.options.existing()? {
            StoreUrl::Sqlite { path, .. } => self.file(&path).await?,
            #[cfg(feature = "postgres")]
            StoreUrl::Postgres(url) => self.server(&url).await?,
            _ => {
                let client = self.options.open(IfMissing::Refuse).await?;
                (self.examine(&client, []).await, None)
            }
        };
        show(&checks, &screen)?;
        let worst = checks.iter().map(|check| check.verdict).max();
        let ill = match self.strict {
            true => worst > Some(Verdict::Ok),
            false => worst > Some(Verdict::Warning),
        };
        Ok(code.unwrap_or(if ill { FAILURE } else { OK }))
    }

    /// What was found, and the exit code if the file cannot be opened. To open it brings its schema
    /// up to date, so that is looked at first.
    async fn file(&self, path: &Path) -> Outcome<(Vec<Check>, Option<u8>)> {
        let version = match sqlite::schema_version(path) {
            Ok(version) => version,
            Err(error) => return Ok(unopened(&error)),
        };
        let schema = judge::schema(version, sqlite::SCHEMA_VERSION, !self.no_write);
        if schema.verdict == Verdict::Problem {
            return Ok((vec![schema], None));
        }
        match self.options.open(IfMissing::Refuse).await {
            Ok(client) => {
                let durability = client.engine.store().capabilities().durability;
                let folder = path.parent().unwrap_or(Path::new(""));
                let durable = judge::durable(durability, filesystem(folder).as_deref());
                let mut checks = self.examine(&client, [schema, durable]).await;
                checks.extend(disk(path));
                Ok((checks, None))
            }
            Err(CliError::Plimsoll(error)) => Ok(unopened(&error)),
            Err(error) => Err(error),
        }
    }

    /// What can be said of any store; what is known already comes after the first.
    async fn examine(&self, client: &Client, known: impl IntoIterator<Item = Check>) -> Vec<Check> {
        let mut checks = made(["store", "clock"], reach(client).await);
        checks.splice(1..1, known);
        if !self.no_write {
            checks.extend(made(["commit"], commits(client).await));
        }
        checks.extend(made(["scheduled", "leases"], due(client).await));
        checks.extend(made(["workers"], work(client).await));
        checks.extend(made(["finished"], finished(client).await));
        checks.extend(made(["tasks"], tasks(client).await));
        checks.extend(made(["history"], history(client).await));
        checks
    }
}

/// What is said of a store that cannot be opened.
fn unopened(error: &Error) -> (Vec<Check>, Option<u8>) {
    (vec![refused("store", error)], Some(of_error(error)))
}

/// What could not be looked at is a problem, and does not keep the rest from being looked at.
fn made<const N: usize>(names: [&'static str; N], checks: Result<[Check; N]>) -> Vec<Check> {
    match checks {
        Ok(checks) => checks.into(),
        Err(error) => names.map(|name| refused(name, &error)).into(),
    }
}

fn refused(check: &'static str, error: &Error) -> Check {
    let check = Check::new(check, Verdict::Problem, clean(&error.to_string()));
    match error {
        Error::Corrupt(_) => check.advise(
            "Keep a copy of the file, and go on with the last good one. If no disk has failed, please tell us.",
        ),
        _ => check,
    }
}

/// Whether and when the store answers, and what time it has.
async fn reach(client: &Client) -> Result<[Check; 2]> {
    let (store, clock) = (client.engine.store(), client.engine.clock());
    let (before, asked) = (clock.monotonic(), clock.now());
    let answered = store.ping().await?;
    let latency = clock.monotonic().saturating_sub(before);
    Ok([
        judge::reached(&store.capabilities().store, latency),
        judge::clocks(apart(answered, asked, latency)),
    ])
}

/// How far two clocks are apart, as far as one can tell by a call that took this long.
fn apart(theirs: Timestamp, ours: Timestamp, latency: Duration) -> Duration {
    let distance = theirs.since(ours).max(ours.since(theirs));
    distance.saturating_sub(latency)
}

/// Writes a record that nobody reads, and removes it; it expires if this ends halfway.
async fn commits(client: &Client) -> Result<[Check; 1]> {
    let (store, clock) = (client.engine.store(), client.engine.clock());
    let ids = client.engine.ids();
    let key = Key::new(format!("plimsoll.doctor.{}", ids.commit()))?;
    let mut times = Vec::new();
    for _ in 0..COMMITS {
        let put = Put {
            ttl: Some(Duration::from_secs(60)),
            ..Put::new(key.clone(), Fields::new())
        };
        let before = clock.monotonic();
        let commit = Commit::of(Write::Put(put)).id(ids.commit());
        store.commit_one(commit).await?;
        times.push(clock.monotonic().saturating_sub(before));
    }
    let commit = Commit::of(Write::Delete(key)).id(ids.commit());
    store.commit_one(commit).await?;
    Ok([judge::committed(times)])
}

async fn due(client: &Client) -> Result<[Check; 2]> {
    let due = client.engine.store().due(Due { limit: DUE_MAX }).await?;
    let now = client.now();
    let runnable = |task: &Task| Some(task.runnable_at);
    let until = |task: &Task| task.lease.as_ref().map(|lease| lease.until);
    let (scheduled, expired) = (due.scheduled.first(), due.expired.first());
    let scheduled = first(client, scheduled.copied(), runnable, now).await?;
    let expired = first(client, expired.map(|(id, _)| *id), until, now).await?;
    let overdue = |found: usize, longest| Overdue {
        found,
        more: due.more && found >= DUE_MAX,
        longest,
    };
    Ok([
        judge::promoted(overdue(due.scheduled.len(), scheduled)),
        judge::leases(overdue(due.expired.len(), expired)),
    ])
}

/// For how long the first of them has been overdue, if it still is.
async fn first(
    client: &Client,
    id: Option<TaskId>,
    since: impl Fn(&Task) -> Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Duration>> {
    let Some(id) = id else { return Ok(None) };
    let task = client.tasks.find(id).await?;
    Ok(task.and_then(|task| since(&task)).map(|at| now.since(at)))
}

async fn work(client: &Client) -> Result<[Check; 1]> {
    let rows = queue::rows(client, None).await?;
    let mut workers = client.engine.workers().list().await?;
    workers.retain(|worker| worker.status == WorkerStatus::Active);
    let now = client.now();
    let of = |row: &queue::Row, status| row.counts.by_status.get(&status).copied().unwrap_or(0);
    let waiting = rows.iter().filter_map(|row| {
        let next = row.next.as_ref()?;
        Some(Waiting {
            lane: row.counts.lane.clone(),
            pending: of(row, Status::Pending),
            claimed: of(row, Status::Claimed),
            served: workers
                .iter()
                .any(|worker| handles(&worker.profile, &row.counts.lane)),
            waits: now.since(next.runnable_at),
        })
    });
    Ok([judge::worked_on(&waiting.collect::<Vec<_>>())])
}

async fn finished(client: &Client) -> Result<[Check; 1]> {
    let lanes = client.tasks.counts(Counts::default()).await?;
    let counts = lanes.into_iter().flat_map(|lane| lane.by_status);
    let ended = counts.filter(|(status, _)| status.is_terminal());
    Ok([judge::finished(ended.map(|(_, tasks)| tasks).sum())])
}

/// Whether a worker that says this of itself takes tasks of this lane. One that names no kinds takes
/// them all.
fn handles(profile: &Profile, lane: &Lane) -> bool {
    profile.queues.contains(&lane.queue)
        && (profile.kinds.is_empty() || profile.kinds.contains(&lane.kind))
}

/// Looks at some tasks of every lane and status for what must not be.
async fn tasks(client: &Client) -> Result<[Check; 1]> {
    let store = client.engine.store();
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for counts in client.tasks.counts(Counts::default()).await? {
        for status in counts.by_status.into_keys() {
            let selector = Selector::Lane(counts.lane.clone(), status);
            let page = store.list(List::new(selector, LOOKED_AT)).await?.rows;
            looked_at += page.len();
            for task in &page {
                let violations = task.violations().into_iter();
                wrong.extend(violations.map(|violation| (task.id(), violation)));
            }
        }
    }
    Ok([judge::sound(looked_at, &wrong)])
}

async fn history(client: &Client) -> Result<[Check; 1]> {
    let store = client.engine.store();
    let page = |start| Changes {
        start,
        interests: Vec::new(),
        limit: 1,
    };
    let oldest = store.changes(page(Start::Oldest)).await?;
    let newest = store.changes(page(Start::Newest)).await?.next;
    let oldest = oldest.entries.first();
    let entries = oldest.map(|entry| newest.get().saturating_sub(entry.position.get()) + 1);
    let age = oldest.map(|entry| client.now().since(entry.at));
    Ok([judge::history(entries.unwrap_or(0), age)])
}

/// What can be seen of the file from outside.
fn disk(path: &Path) -> Vec<Check> {
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let mut checks = Vec::new();
    if let Ok(room) = rustix::fs::statvfs(path) {
        let (free, total) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
        checks.push(judge::disk(free, total, size(path.into())));
    }
    checks.push(judge::write_ahead(size(log.into())));
    checks
}

fn show(checks: &[Check], screen: &Screen) -> Outcome<()> {
    const COLUMNS: [Column; 3] = [
        Column::new("CHECK"),
        Column::new("VERDICT"),
        Column::new("FOUND").cut_to(20),
    ];
    if screen.json {
        for check in checks {
            screen.object(check)?;
        }
        return Ok(());
    }
    let rows = checks.iter().map(|check| {
        let tint = match check.verdict {
            Verdict::Ok => Tint::Good,
            Verdict::Warning => Tint::Warning,
            Verdict::Problem => Tint::Bad,
        };
        let verdict = Cell::tinted(check.verdict.as_str(), tint);
        vec![check.check.into(), verdict, check.found.as_str().into()]
    });
    let rows: Vec<_> = rows.collect();
    // What was found is never cut: it is what people came for.
    let grid = Grid::fit(&COLUMNS, &rows, None);
    let mut text = grid.header(screen);
    for (row, check) in rows.iter().zip(checks) {
        text += &grid.rows(std::slice::from_ref(row), screen);
        if let Some(advice) = check.advice {
            text += &format!("{:12}→ {advice}\n", "");
        }
    }
    say(&text)?;
    Ok(())
}
