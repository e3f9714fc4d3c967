//! The thread that writes: everything that waits shares one transaction and one fsync.
//!
//! While a group is being written, callers queue; what has queued by then is the next group. There
//! is no timer: a lone caller is served at once. Claims come last in their group: so they find what
//! the others submit, and new tasks that they take are written once. A call is answered after its transaction is on
//! disk. Once a call is in the queue it is carried out, whether or not its caller still waits. The
//! queue is bounded by calls and by bytes: when it is full, callers wait for room.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Limits, Result, Timestamp};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::cache::Cache;
use crate::config::Config;
use crate::error::{Answer, Fault};
use crate::hints::Hints;
use crate::lanes::Lanes;
use crate::threads::Patience;
use crate::transaction::{Told, Transaction};
use crate::turnstile::Turnstile;
use crate::{schema, threads};

/// How many calls a group may hold.
const GROUP_MAX: usize = 1_024;
/// Calls join a group until it holds about so many bytes, so that nobody waits long for it.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A call that writes, with the one who waits for it.
trait Call: Send {
    /// About how many bytes it carries.
    fn size(&self) -> usize;
    /// Carries it out inside the transaction, and keeps the answer. May be done again in another
    /// transaction if this one is undone.
    fn write(&mut self, transaction: &mut Transaction<'_>, now: Timestamp) -> Answer<()>;
    /// Takes the tasks that it asks for, after the whole group has written.
    fn claim(&mut self, transaction: &mut Transaction<'_>, now: Timestamp) -> Answer<()>;
    /// Answers it, once it is known what became of the transaction.
    fn answer(self: Box<Self>, written: Result<()>);
}

struct Waiting<T, W, C> {
    write: W,
    claim: C,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T>>,
    /// Its part of the bytes that may wait.
    room: OwnedSemaphorePermit,
}

impl<T, W, C> Call for Waiting<T, W, C>
where
    T: Send,
    W: Fn(&mut Transaction<'_>, Timestamp) -> Answer<T> + Send,
    C: Fn(&mut Transaction<'_>, Timestamp, &mut T) -> Answer<()> + Send,
{
    fn size(&self) -> usize {
        self.room.num_permits()
    }

    fn write(&mut self, transaction: &mut Transaction<'_>, now: Timestamp) -> Answer<()> {
        self.answer = Some((self.write)(transaction, now)?);
        Ok(())
    }

    fn claim(&mut self, transaction: &mut Transaction<'_>, now: Timestamp) -> Answer<()> {
        match &mut self.answer {
            Some(answer) => (self.claim)(transaction, now, answer),
            None => Ok(()),
        }
    }

    fn answer(self: Box<Self>, written: Result<()>) {
        let Self { answer, reply, .. } = *self;
        let answer = written.and_then(|()| answer.ok_or_else(unanswered));
        // A caller that went away does not want to know.
        reply.send(answer).ok();
    }
}

/// The end of the queue that callers hold. The thread ends when all are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    calls: mpsc::Sender<Box<dyn Call>>,
    room: Arc<Semaphore>,
    /// How much room there is in all.
    bytes_max: usize,
}

impl Writer {
    pub(crate) fn start(config: &Config, hints: Arc<Hints>) -> Result<Self> {
        let (calls, queue) = mpsc::channel(config.queue_max.max(1));
        let turnstile = Turnstile::open(config)?;
        // One after another: SQLite does not wait for the lock when it changes to the log.
        let mut patience = Patience::new(config.busy_timeout);
        let opened = turnstile.through(&mut patience, |_| schema::open_writer(config));
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                if matches!(error, Error::Unsupported(_) | Error::Corrupt(_)) {
                    turnstile.remove(config);
                }
                return Err(error);
            }
        };
        let mut thread = Thread {
            connection,
            turnstile,
            busy_timeout: config.busy_timeout,
            lanes: Lanes::new(),
            cache: Cache::default(),
            limits: config.limits.clone(),
            clock: config.clock.clone(),
            hints,
        };
        threads::start("writer", move || thread.run(queue))?;
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let bytes_max = config.queue_bytes_max.clamp(1, most);
        Ok(Self {
            calls,
            room: Arc::new(Semaphore::new(bytes_max)),
            bytes_max,
        })
    }

    /// Queues a call of about this size and waits for its answer.
    pub(crate) async fn call<T, W>(&self, size: usize, write: W) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Transaction<'_>, Timestamp) -> Answer<T> + Send + 'static,
    {
        self.call_and_claim(size, write, |_, _, _| Ok(())).await
    }

    /// Likewise, for one that adds to its answer what it claims.
    pub(crate) async fn call_and_claim<T, W, C>(&self, size: usize, write: W, claim: C) -> Result<T>
    where
        T: Send + 'static,
        W: Fn(&mut Transaction<'_>, Timestamp) -> Answer<T> + Send + 'static,
        C: Fn(&mut Transaction<'_>, Timestamp, &mut T) -> Answer<()> + Send + 'static,
    {
        // A call that is larger than all the room goes alone.
        let size = size.clamp(1, self.bytes_max) as u32;
        let room = self.room.clone().acquire_many_owned(size).await;
        let (reply, answer) = oneshot::channel();
        let call = Waiting {
            write,
            claim,
            answer: None,
            reply,
            room: room.map_err(|_| Error::Closed)?,
        };
        let sent = self.calls.send(Box::new(call)).await;
        sent.map_err(|_| Error::Closed)?;
        // The thread answers every call it takes; it can only vanish by a panic.
        answer.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(Unavailable {
                applied: Applied::Unknown,
                cause: "the writer ended while the call was under way".into(),
            }))
        })
    }
}

/// A call without its answer, which no call is.
pub(crate) fn unanswered() -> Error {
    Error::Corrupt("the writer did not answer what was asked".into())
}

type Group = Vec<Box<dyn Call>>;
type Queue = mpsc::Receiver<Box<dyn Call>>;

struct Thread {
    connection: Connection,
    turnstile: Turnstile,
    busy_timeout: Duration,
    lanes: Lanes,
    cache: Cache,
    limits: Limits,
    clock: Arc<dyn Clock>,
    hints: Arc<Hints>,
}

impl Thread {
    fn run(&mut self, mut queue: Queue) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            match self.begin() {
                Ok(()) => self.write(group, Some(&mut queue)),
                Err(fault) => {
                    // Nobody can write, so nobody is to wait for that to be found out again.
                    while let Ok(call) = queue.try_recv() {
                        group.push(call);
                    }
                    refuse(group, fault, Applied::No);
                }
            }
        }
    }

    /// Takes the file's lock.
    fn begin(&self) -> Answer<()> {
        let mut patience = Patience::new(self.busy_timeout);
        self.turnstile.through(&mut patience, |patience| {
            loop {
                match self.connection.execute_batch("BEGIN IMMEDIATE") {
                    Ok(()) => return Ok(()),
                    Err(error)
                        if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                            && patience.wait() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }

    /// Writes a group in the transaction that has begun, and with it whatever comes into the queue
    /// meanwhile. If the file refuses it, each call is tried alone, so that one that cannot be
    /// written does not take its neighbours with it.
    fn write(&mut self, mut group: Group, queue: Option<&mut Queue>) {
        match self.transact(&mut group, queue) {
            Ok(told) => {
                metrics::counter!("plimsoll_group_commits_total").increment(1);
                metrics::histogram!("plimsoll_group_commit_calls").record(group.len() as f64);
                // Who is answered finds that there is something to do, if it made that, and goes on before those
                // who follow what was written.
                for told in &told {
                    self.hints.wrote(told.ns, told.from, told.to, &told.wake);
                }
                for call in group {
                    call.answer(Ok(()));
                }
                for told in told.iter().filter(|told| told.history) {
                    self.hints.appended(told.ns);
                }
            }
            Err((_, Applied::No)) if group.len() > 1 => self.write_each(group),
            Err((fault, applied)) => refuse(group, fault, applied),
        }
    }

    fn write_each(&mut self, group: Group) {
        let mut calls = group.into_iter();
        while let Some(call) = calls.next() {
            match self.begin() {
                Ok(()) => self.write(vec![call], None),
                Err(fault) => {
                    let rest = std::iter::once(call).chain(calls);
                    return refuse(rest.collect(), fault, Applied::No);
                }
            }
        }
    }

    fn transact(
        &mut self,
        group: &mut Group,
        queue: Option<&mut Queue>,
    ) -> Result<Vec<Told>, (Fault, Applied)> {
        if let Err(fault) = self.cache.validate(&mut self.lanes, &self.connection) {
            self.roll_back();
            return Err((fault, Applied::No));
        }
        let mut transaction = Transaction::new(
            &self.connection,
            &self.limits,
            &mut self.cache,
            &mut self.lanes,
        );
        let decided = write_all(group, queue, &mut transaction, self.clock.as_ref())
            .and_then(|()| transaction.finish());
        let told = match decided {
            Ok(told) => told,
            Err(fault) => {
                transaction.forget();
                self.roll_back();
                return Err((fault, Applied::No));
            }
        };
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            // A commit that was refused before it wrote can be undone. One that failed while it
            // wrote may or may not be found after a crash.
            let undone = matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull)
            );
            let applied = if undone {
                Applied::No
            } else {
                Applied::Unknown
            };
            self.lanes.clear();
            self.cache.clear();
            self.roll_back();
            return Err((error.into(), applied));
        }
        Ok(told)
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }
}

fn refuse(group: Group, fault: Fault, applied: Applied) {
    let error = fault.into_error(applied);
    tracing::warn!(%error, calls = group.len(), "the file refused a transaction");
    for call in group {
        call.answer(Err(error.clone()));
    }
}

/// Carries out the calls of a group inside its transaction, and those that join it meanwhile.
fn write_all(
    group: &mut Group,
    mut queue: Option<&mut Queue>,
    transaction: &mut Transaction<'_>,
    clock: &dyn Clock,
) -> Answer<()> {
    let (mut written, mut claimed) = (0, 0);
    let mut bytes: usize = group.iter().map(|call| call.size()).sum();
    while claimed < group.len() {
        while written < group.len() {
            for call in &mut group[written..] {
                call.write(transaction, clock.now())?;
                written += 1;
            }
            // Whoever was answered by the last group and calls again comes while this one is being
            // decided. Taking them in makes one large group of two that would take turns.
            while group.len() < GROUP_MAX
                && bytes < GROUP_BYTES_MAX
                && let Some(call) = queue.as_mut().and_then(|queue| queue.try_recv().ok())
            {
                bytes += call.size();
                group.push(call);
            }
        }
        for call in &mut group[claimed..] {
            call.claim(transaction, clock.now())?;
            claimed += 1;
        }
    }
    Ok(())
}
