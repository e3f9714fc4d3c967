//! The port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Durability, Exchange, Exchanged, Get,
    Groups, LaneCounts, List, LogPage, Logs, Page, Peek, Pick, Receipt, Renew, Renewal, Scan,
    TaskByKey, Tasks,
};
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener};
use plimsoll_core::{Error, Limits, Namespace, Result, Store, Timestamp};
use rusqlite::Connection;

use crate::claim::next_pending;
use crate::config::Config;
use crate::error::Answer;
use crate::hints::Hints;
use crate::overlay::Overlay;
use crate::readers::Readers;
use crate::transaction::Transaction;
use crate::watch::Watching;
use crate::writer::{Writer, unanswered};
use crate::{indexes, read, rows};

/// About what a call, and each of its writes, costs beside the bytes it carries.
const CALL_BYTES: usize = 256;

/// An open file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    file: Arc<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    writer: Writer,
    readers: Readers,
    hints: Arc<Hints>,
    limits: Limits,
    clock: Arc<dyn Clock>,
    durability: Durability,
    _watching: Watching,
}

impl Sqlite {
    /// Opens the file, creates it if need be, and brings its schema up to date.
    pub fn open(config: Config) -> Result<Self> {
        let hints = Arc::new(Hints::default());
        let writer = Writer::start(&config, hints.clone())?;
        Ok(Self {
            file: Arc::new(OpenFile {
                writer,
                readers: Readers::start(&config)?,
                _watching: Watching::start(&config, hints.clone())?,
                hints,
                limits: config.limits,
                clock: config.clock,
                durability: config.durability,
            }),
        })
    }

    /// A handle to a namespace.
    pub async fn namespace(&self, namespace: Namespace) -> Result<SqliteStore> {
        let name = namespace.clone();
        let open = move |transaction: &mut Transaction<'_>, _| transaction.namespace(&name);
        let ns = self.file.writer.call(CALL_BYTES, open).await?;
        Ok(SqliteStore {
            file: self.file.clone(),
            namespace,
            ns,
            hub: self.file.hints.hub(ns),
            closed: AtomicBool::new(false),
        })
    }
}

/// A handle to a namespace in a file.
#[derive(Debug)]
pub struct SqliteStore {
    file: Arc<OpenFile>,
    namespace: Namespace,
    ns: i64,
    hub: Arc<Hub>,
    closed: AtomicBool,
}

impl SqliteStore {
    fn check(&self, input: &(impl Check + ?Sized)) -> Result<()> {
        self.check_open()?;
        Ok(input.check(&self.file.limits)?)
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, i64) -> Answer<T> + Send + 'static,
    {
        let ns = self.ns;
        (self.file.readers)
            .read(move |connection| read(connection, ns))
            .await
    }

    async fn write(&self, mut exchange: Exchange) -> Result<Exchanged> {
        let (ns, size) = (self.ns, size(&exchange));
        let claim = exchange.claim.take();
        let write =
            move |transaction: &mut Transaction<'_>, now| transaction.exchange(ns, &exchange, now);
        let take = move |transaction: &mut Transaction<'_>, now, answer: &mut Exchanged| {
            if let Some(claim) = &claim {
                answer.claimed = Some(transaction.claim(ns, claim, now)?);
            }
            Ok(())
        };
        self.file.writer.call_and_claim(size, write, take).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn limits(&self) -> &Limits {
        &self.file.limits
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "sqlite".into(),
            durability: self.file.durability,
            total_order: true,
            joins_in_commit: true,
            first_in_first_out: true,
            remote_wakeups: true,
            integer_indexes: true,
            concurrent_writes: false,
        }
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        self.check(&get)?;
        let now = self.file.clock.now();
        self.read(move |connection, ns| {
            let live = |record: &Record| !record.is_expired(now);
            (get.keys.iter())
                .map(|key| Ok(rows::record(connection, ns, key)?.filter(live)))
                .collect()
        })
        .await
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        self.check(&scan)?;
        let now = self.file.clock.now();
        self.read(move |connection, ns| read::scan(connection, ns, &scan, now))
            .await?
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.check(&declare)?;
        let (ns, limit) = (self.ns, declare.limit);
        let write = move |transaction: &mut Transaction<'_>, now| {
            transaction.declare_index(ns, &declare, now)
        };
        (self.file.writer.call(CALL_BYTES * (1 + limit), write)).await?
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        self.check_open()?;
        let ns = self.ns;
        let write = move |transaction: &mut Transaction<'_>, now| {
            transaction.drop_index(ns, &drop.index, now)
        };
        self.file.writer.call(CALL_BYTES, write).await
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        self.check_open()?;
        self.read(indexes::declared).await
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        self.check(&tasks)?;
        self.read(move |connection, ns| {
            (tasks.ids.iter())
                .map(|id| rows::task(connection, ns, *id))
                .collect()
        })
        .await
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        self.check_open()?;
        self.read(
            move |connection, ns| match rows::key_holder(connection, ns, &by.key)? {
                Some(id) => rows::task(connection, ns, id),
                None => Ok(None),
            },
        )
        .await
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.check(&list)?;
        let now = self.file.clock.now();
        self.read(move |connection, ns| read::list(connection, ns, &list, now))
            .await?
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        self.check(&peek)?;
        self.read(move |connection, ns| {
            let mut tasks = Vec::new();
            let nothing_new = Overlay::default();
            for id in next_pending(connection, &nothing_new, ns, &peek.lanes, peek.limit)? {
                tasks.extend(rows::task(connection, ns, id)?);
            }
            Ok(tasks)
        })
        .await
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        self.check_open()?;
        self.read(move |connection, ns| read::counts(connection, ns, &counts))
            .await
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        self.check(&groups)?;
        self.read(move |connection, ns| {
            (groups.ids.iter())
                .map(|id| rows::group(connection, ns, id))
                .collect()
        })
        .await
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.check(&logs)?;
        self.read(move |connection, ns| read::logs(connection, ns, &logs))
            .await?
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        self.check(&changes)?;
        self.read(move |connection, ns| read::changes(connection, ns, &changes))
            .await?
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        let count = commits.len();
        if let Err(error) = self.check(commits.as_slice()) {
            return vec![Err(error); count];
        }
        let exchange = Exchange {
            commits,
            ..Exchange::default()
        };
        match self.write(exchange).await {
            Ok(exchanged) => exchanged.commits,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.check(&claim)?;
        let exchange = Exchange {
            claim: Some(claim),
            ..Exchange::default()
        };
        self.write(exchange)
            .await?
            .claimed
            .unwrap_or_else(|| Err(unanswered()))
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        self.check(&renew)?;
        let exchange = Exchange {
            renew: Some(renew),
            ..Exchange::default()
        };
        self.write(exchange)
            .await?
            .renewals
            .unwrap_or_else(|| Err(unanswered()))
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        self.check_open()?;
        match exchange.commits.as_slice().check(&self.file.limits) {
            Ok(()) => self.write(exchange).await,
            Err(invalid) => {
                let refused = vec![Err(Error::from(invalid)); exchange.commits.len()];
                let rest = Exchange {
                    commits: Vec::new(),
                    ..exchange
                };
                let done = self.write(rest).await?;
                Ok(Exchanged {
                    commits: refused,
                    ..done
                })
            }
        }
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        self.check(&due)?;
        let now = self.file.clock.now();
        self.read(move |connection, ns| read::due(connection, ns, due.limit, now))
            .await
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.check(&compact)?;
        let (ns, limit) = (self.ns, compact.limit);
        let write =
            move |transaction: &mut Transaction<'_>, now| transaction.compact(ns, &compact, now);
        self.file.writer.call(CALL_BYTES * (1 + limit), write).await
    }

    async fn ping(&self) -> Result<Timestamp> {
        self.check_open()?;
        let clock = self.file.clock.clone();
        self.read(move |connection, ns| {
            connection
                .prepare_cached("SELECT 1 FROM namespaces WHERE ns = ?")?
                .query_row([ns], |_| Ok(()))?;
            Ok(clock.now())
        })
        .await
    }

    fn wakeups(&self) -> Listener {
        self.hub.listen()
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// About how many bytes of work an exchange is.
fn size(exchange: &Exchange) -> usize {
    let writes: usize = (exchange.commits.iter())
        .map(|commit| commit.size() + commit.writes.len() * CALL_BYTES)
        .sum();
    let renewed = (exchange.renew.as_ref()).map_or(0, |renew| renew.holders.len());
    let claimed = (exchange.claim.as_ref()).map_or(0, |claim| match &claim.pick {
        Pick::Next { limit, .. } => *limit,
        Pick::Ids(ids) => ids.len(),
    });
    CALL_BYTES * (1 + renewed + claimed) + writes
}
