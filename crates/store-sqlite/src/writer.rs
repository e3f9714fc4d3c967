//! The thread that writes: everything that waits shares one transaction and one fsync.
//!
//! While a group is being written, callers queue; what has queued by then is the next group. There
//! is no timer: a lone caller is served at once. A call is answered after its transaction is on
//! disk. Once a call is in the queue it is carried out, whether or not its caller still waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::clock::Clock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Compact, Compacted, Exchange, Exchanged};
use plimsoll_core::wake::{Hub, Wake};
use plimsoll_core::{Error, Limits, Namespace, Result};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::{mpsc, oneshot};

use crate::cache::Cache;
use crate::config::Config;
use crate::error::{Answer, Fault};
use crate::schema;
use crate::transaction::{Lanes, Transaction};
use crate::turnstile::Turnstile;

/// How many calls a group may hold.
const GROUP_MAX: usize = 1_024;

/// The listeners of each namespace.
pub(crate) type Hubs = Arc<Mutex<BTreeMap<i64, Arc<Hub>>>>;

type Reply<T> = oneshot::Sender<Result<T>>;

/// A call that writes.
pub(crate) enum Call {
    Open(Namespace, Reply<i64>),
    Exchange(i64, Box<Exchange>, Reply<Exchanged>),
    Compact(i64, Box<Compact>, Reply<Compacted>),
}

/// What a call is answered once its transaction is on disk.
enum Done {
    Open(i64, Reply<i64>),
    Exchange(Exchanged, Reply<Exchanged>),
    Compact(Compacted, Reply<Compacted>),
}

/// The end of the queue that callers hold. The thread ends when all are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    calls: mpsc::Sender<Call>,
}

impl Writer {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start(config: &Config, hubs: Hubs) -> Result<Self> {
        let (calls, queue) = mpsc::channel(config.queue_max.max(1));
        let turnstile = Turnstile::open(config)?;
        // One after another: SQLite does not wait for the lock when it changes to the log.
        let connection = turnstile.through(|| schema::open_writer(config))?;
        let mut thread = Thread {
            connection,
            turnstile,
            lanes: Lanes::new(),
            cache: Cache::default(),
            limits: config.limits.clone(),
            clock: config.clock.clone(),
            hubs,
        };
        std::thread::spawn(move || thread.run(queue));
        Ok(Self { calls })
    }

    /// Queues a call and waits for its answer.
    pub(crate) async fn call<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.calls
            .send(call(reply))
            .await
            .map_err(|_| Error::Closed)?;
        // The thread answers every call it takes; it can only vanish by a panic.
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(Unavailable {
                applied: Applied::Unknown,
                cause: "the writer ended while the call was under way".into(),
            }))
        })
    }
}

struct Thread {
    connection: Connection,
    turnstile: Turnstile,
    lanes: Lanes,
    cache: Cache,
    limits: Limits,
    clock: Arc<dyn Clock>,
    hubs: Hubs,
}

impl Thread {
    fn run(&mut self, mut queue: mpsc::Receiver<Call>) {
        while let Some(first) = queue.blocking_recv() {
            self.write(vec![first], Some(&mut queue));
        }
    }

    /// Writes a group, and with it whatever comes into the queue meanwhile. If the file refuses
    /// it, each call is tried alone, so that one that cannot be written does not take its
    /// neighbours with it.
    fn write(&mut self, mut group: Vec<Call>, queue: Option<&mut mpsc::Receiver<Call>>) {
        match self.transact(&mut group, queue) {
            Ok((answers, told)) => {
                metrics::counter!("plimsoll_group_commits_total").increment(1);
                metrics::histogram!("plimsoll_group_commit_calls").record(group.len() as f64);
                self.tell(told);
                for (call, answer) in group.into_iter().zip(answers) {
                    answer.with(call).send();
                }
            }
            Err((_, Applied::No)) if group.len() > 1 => {
                for call in group {
                    self.write(vec![call], None);
                }
            }
            Err((fault, applied)) => {
                let error = fault.into_error(applied);
                tracing::warn!(%error, "the file refused a transaction");
                while let Some(call) = group.pop() {
                    call.fail(error.clone());
                }
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn transact(
        &mut self,
        group: &mut Vec<Call>,
        queue: Option<&mut mpsc::Receiver<Call>>,
    ) -> Result<(Vec<Answered>, Vec<(i64, Wake)>), (Fault, Applied)> {
        let nothing = |fault: Fault| (fault, Applied::No);
        self.turnstile
            .through(|| self.connection.execute_batch("BEGIN IMMEDIATE"))
            .map_err(|error| nothing(error.into()))?;
        if let Err(fault) = self.cache.validate(&self.connection) {
            self.roll_back();
            return Err((fault, Applied::No));
        }
        let mut transaction = Transaction::new(
            &self.connection,
            &self.limits,
            &mut self.cache,
            &mut self.lanes,
        );
        let decided = answer_all(group, queue, &mut transaction, self.clock.as_ref())
            .and_then(|answers| Ok((answers, transaction.finish()?)));
        let (answers, told) = match decided {
            Ok(decided) => decided,
            Err(fault) => {
                transaction.forget();
                self.roll_back();
                return Err((fault, Applied::No));
            }
        };
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            // A commit that was refused before it wrote can be undone. One that failed while it
            // wrote may or may not be found after a crash.
            let busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                || error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
            let applied = if busy { Applied::No } else { Applied::Unknown };
            self.lanes.clear();
            self.cache.clear();
            self.roll_back();
            return Err((error.into(), applied));
        }
        Ok((answers, told))
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }

    fn tell(&self, told: Vec<(i64, Wake)>) {
        let hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        for (ns, wake) in told {
            if let Some(hub) = hubs.get(&ns) {
                hub.notify(&wake);
            }
        }
    }
}

/// An answer on its way to the caller that is still in the call.
enum Answered {
    Open(i64),
    Exchange(Exchanged),
    Compact(Compacted),
}

impl Answered {
    fn with(self, call: Call) -> Sent {
        Sent(match (self, call) {
            (Self::Open(ns), Call::Open(_, reply)) => Some(Done::Open(ns, reply)),
            (Self::Exchange(done), Call::Exchange(_, _, reply)) => {
                Some(Done::Exchange(done, reply))
            }
            (Self::Compact(done), Call::Compact(_, _, reply)) => Some(Done::Compact(done, reply)),
            (Self::Open(_) | Self::Exchange(_) | Self::Compact(_), _) => None,
        })
    }
}

struct Sent(Option<Done>);

impl Sent {
    /// A caller that went away does not want to know.
    fn send(self) {
        match self.0 {
            Some(Done::Open(ns, reply)) => reply.send(Ok(ns)).map_err(drop).ok(),
            Some(Done::Exchange(done, reply)) => reply.send(Ok(done)).map_err(drop).ok(),
            Some(Done::Compact(done, reply)) => reply.send(Ok(done)).map_err(drop).ok(),
            None => None,
        };
    }
}

impl Call {
    fn fail(self, error: Error) {
        match self {
            Self::Open(_, reply) => reply.send(Err(error)).map_err(drop).ok(),
            Self::Exchange(_, _, reply) => reply.send(Err(error)).map_err(drop).ok(),
            Self::Compact(_, _, reply) => reply.send(Err(error)).map_err(drop).ok(),
        };
    }
}

/// Carries out the calls of a group inside its transaction, and those that join it meanwhile.
fn answer_all(
    group: &mut Vec<Call>,
    mut queue: Option<&mut mpsc::Receiver<Call>>,
    transaction: &mut Transaction<'_>,
    clock: &dyn Clock,
) -> Answer<Vec<Answered>> {
    let mut answers = Vec::with_capacity(group.len());
    loop {
        for call in &group[answers.len()..] {
            answers.push(answer(call, transaction, clock)?);
        }
        // Whoever was answered by the last group and calls again comes while this one is being
        // decided. Taking them in makes one large group of two that would take turns.
        while group.len() < GROUP_MAX
            && let Some(call) = queue.as_mut().and_then(|queue| queue.try_recv().ok())
        {
            group.push(call);
        }
        if group.len() == answers.len() {
            return Ok(answers);
        }
    }
}

/// Carries out a call inside the transaction.
fn answer(call: &Call, transaction: &mut Transaction<'_>, clock: &dyn Clock) -> Answer<Answered> {
    let now = clock.now();
    match call {
        Call::Open(namespace, _) => open(transaction.connection, namespace).map(Answered::Open),
        Call::Compact(ns, compact, _) => transaction
            .compact(*ns, compact, now)
            .map(Answered::Compact),
        Call::Exchange(ns, exchange, _) => {
            let commits = (exchange.commits.iter())
                .map(|commit| transaction.commit(*ns, commit, now))
                .collect::<Answer<Vec<_>>>()?;
            let renewals = match &exchange.renew {
                None => None,
                Some(renew) => Some(match renew.check(transaction.limits) {
                    Ok(()) => Ok(transaction.renew(*ns, renew, now)?),
                    Err(invalid) => Err(invalid.into()),
                }),
            };
            let claimed = match &exchange.claim {
                None => None,
                Some(claim) => Some(match claim.check(transaction.limits) {
                    Ok(()) => Ok(transaction.claim(*ns, claim, now)?),
                    Err(invalid) => Err(invalid.into()),
                }),
            };
            Ok(Answered::Exchange(Exchanged {
                commits,
                renewals,
                claimed,
            }))
        }
    }
}

/// The number of a namespace, which is new if need be.
fn open(connection: &Connection, namespace: &Namespace) -> Answer<i64> {
    let find = || {
        connection
            .prepare_cached("SELECT ns FROM namespaces WHERE name = ?")?
            .query_row([namespace.as_str()], |row| row.get(0))
            .optional()
    };
    if let Some(ns) = find()? {
        return Ok(ns);
    }
    connection.execute(
        "INSERT INTO namespaces (name) VALUES (?)",
        [namespace.as_str()],
    )?;
    Ok(connection.last_insert_rowid())
}
