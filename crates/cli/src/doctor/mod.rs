//! `plimsoll doctor`: looks at a store, and says what is wrong and what to do.

mod judge;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plimsoll::record::Fields;
use plimsoll::registry::{Profile, WorkerStatus};
use plimsoll::store::{Changes, Commit, Counts, Due, List, Put, Selector, Start, Write};
use plimsoll::task::{Lane, Status, Task};
use plimsoll::{Key, Result, StoreExt, StoreUrl, TaskId, Timestamp};

use crate::client::{Client, IfMissing, Options};
use crate::exit::{CliError, FAILURE, OK, Outcome};
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
        let StoreUrl::Sqlite { path, .. } = self.options.url()? else {
            return Ok(OK);
        };
        let screen = self.options.screen();
        let (checks, code) = match self.options.open(IfMissing::Refuse).await {
            Ok(client) => (self.examine(&client, &path).await?, None),
            Err(error @ CliError::Plimsoll(_)) => (vec![unopened(&error)], Some(error.exit_code())),
            Err(error) => return Err(error),
        };
        show(&checks, &screen)?;
        let worst = checks.iter().map(|check| check.verdict).max();
        let ill = match self.strict {
            true => worst > Some(Verdict::Ok),
            false => worst > Some(Verdict::Warning),
        };
        Ok(code.unwrap_or(if ill { FAILURE } else { OK }))
    }

    async fn examine(&self, client: &Client, path: &Path) -> Result<Vec<Check>> {
        let store = client.engine.store();
        let clock = client.engine.clock();
        let (before, asked) = (clock.monotonic(), clock.now());
        let answered = store.ping().await?;
        let latency = clock.monotonic().saturating_sub(before);
        let capabilities = store.capabilities();
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut checks = vec![
            judge::reached(&capabilities.store, latency),
            schema(),
            judge::durable(capabilities.durability, filesystem(folder).as_deref()),
            judge::clocks(apart(answered, asked, latency)),
        ];
        if !self.no_write {
            checks.push(match commits(client).await {
                Ok(times) => judge::committed(times),
                Err(error) => refused("commit", &error),
            });
        }
        checks.extend(due(client).await?);
        checks.extend(work(client).await?);
        checks.push(tasks(client).await?);
        checks.push(history(client).await?);
        checks.extend(disk(path));
        Ok(checks)
    }
}

fn unopened(error: &CliError) -> Check {
    Check::new("store", Verdict::Problem, clean(&error.to_string()))
}

fn refused(check: &'static str, error: &plimsoll::Error) -> Check {
    Check::new(check, Verdict::Problem, clean(&error.to_string()))
}

/// A file that could be opened was brought up to date.
fn schema() -> Check {
    let version = plimsoll::sqlite::SCHEMA_VERSION;
    let found = format!("version {version}, as this program writes it");
    Check::new("schema", Verdict::Ok, found)
}

/// How far two clocks are apart, as far as one can tell by a call that took this long.
fn apart(theirs: Timestamp, ours: Timestamp, latency: Duration) -> Duration {
    let distance = theirs.since(ours).max(ours.since(theirs));
    distance.saturating_sub(latency)
}

/// Writes a record that nobody reads, and removes it; it expires if this ends halfway.
async fn commits(client: &Client) -> Result<Vec<Duration>> {
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
    Ok(times)
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

async fn work(client: &Client) -> Result<[Check; 2]> {
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
    let ended = Status::ALL
        .into_iter()
        .filter(|status| status.is_terminal());
    let finished = ended.map(|status| rows.iter().map(|row| of(row, status)).sum::<u64>());
    Ok([
        judge::worked_on(&waiting.collect::<Vec<_>>()),
        judge::finished(finished.sum()),
    ])
}

/// Whether a worker that says this of itself takes tasks of this lane. One that names no kinds takes
/// them all.
fn handles(profile: &Profile, lane: &Lane) -> bool {
    profile.queues.contains(&lane.queue)
        && (profile.kinds.is_empty() || profile.kinds.contains(&lane.kind))
}

/// Looks at some tasks of every lane and status for what must not be.
async fn tasks(client: &Client) -> Result<Check> {
    let store = client.engine.store();
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for counts in client.tasks.counts(Counts::default()).await? {
        for status in counts.by_status.into_keys() {
            let selector = Selector::Lane(counts.lane.clone(), status);
            let page = match store.list(List::new(selector, LOOKED_AT)).await {
                Ok(page) => page.rows,
                Err(error @ plimsoll::Error::Corrupt(_)) => return Ok(refused("tasks", &error)),
                Err(error) => return Err(error),
            };
            looked_at += page.len();
            for task in &page {
                let violations = task.violations().into_iter();
                wrong.extend(violations.map(|violation| (task.id(), violation)));
            }
        }
    }
    Ok(judge::sound(looked_at, &wrong))
}

async fn history(client: &Client) -> Result<Check> {
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
    Ok(judge::history(entries.unwrap_or(0), age))
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
