//! The port.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_core::clock::Clock;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Durability, Exchange, Exchanged, Get,
    Groups, LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, TaskByKey,
    Tasks, Write,
};
use plimsoll_core::task::{NewTask, Task};
use plimsoll_core::wake::{Hub, Listener, Wake};
use plimsoll_core::{Error, Limits, Namespace, Result, Store, TaskId, Timestamp};
use tokio_postgres::types::Type;

use crate::call::{Call, Sql, params};
use crate::clerk::{Clerk, Inboxes};
use crate::clock::ServerClock;
use crate::codec::{At, column};
use crate::config::Config;
use crate::error::{Answer, Fault};
use crate::floors::{Below, Floor, Floors};
use crate::held::Held;
use crate::inbox::Taken;
use crate::listen::{Audience, Listening};
use crate::notice::{News, Notice};
use crate::pool::{Doubts, Pool};
use crate::session::Session;
use crate::spawn::spawn;
use crate::statement::sql_file;
use crate::stuck::Stuck;
use crate::taken_keys::TakenKeys;
use crate::{clerk, compact, floors, inbox, indexes, partitions, read, schema, transaction};

static NAMESPACE: Sql = Sql {
    text: sql_file!("store/namespace"),
    types: &[Type::TEXT],
};
static NOW: Sql = Sql {
    text: "SELECT clock_timestamp()",
    types: &[],
};

/// How often the server is asked for its time.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);

/// Does something that may be done again with a connection of a pool. One that broke while nobody
/// used it is noticed only now: then another one is tried. What fails has changed nothing, unless another explanation is
/// given.
macro_rules! retrying {
    ($pool:expr, $session:ident => $step:expr) => {
        retrying!($pool, $session => $step, untouched)
    };
    ($pool:expr, $session:ident => $step:expr, $failed:expr) => {{
        let mut tries = 0;
        loop {
            let failed = |fault| match tries {
                0 => untouched(fault),
                _ => $failed(fault),
            };
            let mut pooled = $pool.session().await.map_err(failed)?;
            let $session = pooled.session().map_err(failed)?;
            match $step.await {
                Err(fault) if fault.breaks_connection() && tries < RECONNECTS => tries += 1,
                Err(fault) if fault.is_stale() && tries < RECONNECTS => tries += 1,
                answer => break answer.map_err($failed),
            }
        }
    }};
}

/// How often a call that may be repeated is tried with another connection.
const RECONNECTS: usize = 8;

/// An error of a call that has not changed anything.
fn untouched(fault: Fault) -> Error {
    fault.into_error(Applied::No)
}

/// An error of a call that may have changed something: it has several steps, or its connection was lost and it was
/// made again.
fn perhaps(fault: Fault) -> Error {
    match fault.into_error(Applied::Unknown) {
        Error::Unavailable(unavailable) => Error::Unavailable(Unavailable {
            applied: Applied::Unknown,
            ..unavailable
        }),
        error => error,
    }
}

/// Whether a call that failed like this has certainly not changed anything.
fn is_untouched(error: &Error) -> bool {
    match error {
        Error::Unavailable(unavailable) => unavailable.applied == Applied::No,
        _ => true,
    }
}

/// The number of a namespace, which is new if need be.
async fn number(session: &mut Session, namespace: &Namespace) -> Answer<i32> {
    loop {
        let name = namespace.as_str().to_owned();
        let found = session.run(&[Call::new(&NAMESPACE, params![name])]).await?;
        // Nothing is found while another process is just making it.
        if let Some(row) = found[0].first() {
            return column(row, 0);
        }
    }
}

/// An open database.
#[derive(Clone, Debug)]
pub struct Postgres {
    database: Arc<Database>,
}

/// What all handles to a database share.
#[derive(Debug)]
pub(crate) struct Database {
    writers: Pool,
    readers: Pool,
    /// For transactions of callers.
    guests: Pool,
    /// For looks that take long, one at a time.
    looks: Pool,
    limits: Limits,
    durability: Durability,
    clock: Arc<dyn Clock>,
    /// The server's clock, unless another one was injected.
    server_clock: Option<Arc<ServerClock>>,
    hubs: Mutex<BTreeMap<i32, Arc<Hub>>>,
    partitions: partitions::Look,
    held: Held,
    stuck: Stuck,
    taken_keys: TakenKeys,
    floors: Floors,
    /// Tells other processes, and hears from them.
    listening: Option<Listening>,
    /// Empties inboxes.
    clerk: Clerk,
    schema: String,
}

impl Postgres {
    /// Connects to the server. The schema must be there: see [`migrate`](crate::migrate).
    pub async fn open(config: Config) -> Result<Self> {
        let server = schema::check(&config).await?;
        let server_clock = (config.clock.is_none()).then(Arc::<ServerClock>::default);
        let clock: Arc<dyn Clock> = match (&config.clock, &server_clock) {
            (Some(clock), _) => clock.clone(),
            (None, Some(clock)) => clock.clone(),
            (None, None) => Arc::new(ServerClock::default()),
        };
        let doubts = Doubts::default();
        let database = Arc::new_cyclic(|database: &Weak<Database>| Database {
            writers: Pool::new(&config, config.writers, &doubts),
            readers: Pool::new(&config, config.readers, &doubts),
            guests: Pool::new(&plain(&config), config.guests, &doubts),
            looks: Pool::new(&config, 1, &doubts),
            clerk: Clerk::new(database.clone()),
            schema: config.schema.clone(),
            listening: (config.listen).then(|| Listening::new(&config, database.clone())),
            limits: config.limits,
            durability: server.durability(),
            clock,
            server_clock,
            hubs: Mutex::default(),
            partitions: partitions::Look::default(),
            held: Held::default(),
            stuck: Stuck::default(),
            taken_keys: TakenKeys::default(),
            floors: Floors::default(),
        });
        if let Some(listening) = &database.listening {
            listening.ready().await;
        }
        database.look_at_clock().await?;
        Ok(Self { database })
    }

    /// A handle to a namespace.
    pub async fn namespace(&self, namespace: Namespace) -> Result<PostgresStore> {
        let ns = retrying!(self.database.writers, session => number(session, &namespace))?;
        Ok(PostgresStore {
            database: self.database.clone(),
            hub: self.database.hub(ns),
            namespace,
            ns,
            closed: AtomicBool::new(false),
        })
    }
}

impl Database {
    fn hub(&self, ns: i32) -> Arc<Hub> {
        self.hubs().entry(ns).or_default().clone()
    }

    fn hubs(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells this process now, and others what they do not know soon.
    fn tell(&self, ns: i32, news: &News, untold: &News) {
        self.floors.lower(ns, &news.wake, news.back_to);
        self.hub(ns).notify(&news.wake);
        if let Some(listening) = &self.listening {
            listening.tell(ns, untold);
        }
    }

    /// Asks the server for its time, if nobody has lately. Once it has answered, its time is known:
    /// then it is no error if it does not.
    async fn look_at_clock(&self) -> Result<()> {
        if let Some(clock) = &self.server_clock
            && clock.is_old(LOOK_AT_CLOCK)
            && let Err(error) = self.server_time(clock).await
        {
            if !clock.is_known() {
                return Err(error);
            }
            tracing::debug!(%error, "the server could not be asked for its time");
        }
        Ok(())
    }

    /// Looks after the partitions of finished tasks, once in a while. Nothing depends on it: what
    /// has no partition of its own is kept in the default one.
    async fn keep_partitions(&self) {
        if self.partitions.is_due()
            && let Err(error) = self.keep_partitions_now().await
        {
            tracing::warn!(%error, "partitions of finished tasks could not be looked after");
        }
    }

    async fn keep_partitions_now(&self) -> Result<()> {
        retrying!(self.writers, session => partitions::keep(session))
    }

    /// Looks for what was skipped of a lane. If there is something, claims begin there, and whoever waits is woken.
    async fn look_below(&self, ns: i32, lane: i64) {
        if let Some(top) = self.floors.top(lane) {
            match self.below(lane, &top).await {
                Ok(below) => {
                    self.floors.looked_below(lane, &below);
                    if below.first.iter().any(Option::is_some) {
                        self.hub(ns).notify(&Wake {
                            any_lane: true,
                            ..Wake::default()
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(lane, %error, "what is below a floor could not be looked at");
                    self.floors.looked_in_vain(lane);
                }
            }
        }
    }

    async fn below(&self, lane: i64, top: &Floor) -> Result<Below> {
        retrying!(self.looks, session => floors::look(session, lane, top))
    }

    async fn server_time(&self, clock: &ServerClock) -> Result<Timestamp> {
        retrying!(self.readers, session => server_time(session, clock))
    }
}

impl Database {
    fn about(&self, ns: i32) -> transaction::About<'_> {
        transaction::About {
            ns,
            limits: &self.limits,
            clock: self.clock.as_ref(),
            off: (self.server_clock.as_ref()).map_or(Duration::ZERO, |clock| clock.off()),
            held: &self.held,
            stuck: &self.stuck,
            taken_keys: &self.taken_keys,
            listening: self.listening.as_ref(),
            floors: &self.floors,
        }
    }

    /// Takes the first tasks of an inbox, for somebody who `waits` or not. Answers when to come back,
    /// if at all.
    async fn take_inbox(&self, ns: i32, waits: bool) -> Result<Option<Duration>> {
        match inbox::take(&self.writers, self.about(ns), waits).await? {
            Taken::Nothing => Ok(None),
            Taken::NotYet => Ok(Some(clerk::LATER)),
            Taken::Some(news) => {
                self.tell(ns, &news, &news);
                Ok(Some(clerk::SOON))
            }
        }
    }
}

impl Inboxes for Database {
    async fn take_some(&self, ns: i32) -> Result<Option<Duration>> {
        self.look_at_clock().await?;
        self.take_inbox(ns, false).await
    }
}

impl Audience for Database {
    fn hears(&self, ns: i32, notice: &Notice) {
        let hub = self.hubs().get(&ns).cloned();
        if let Some(hub) = hub {
            self.floors.lower(ns, &notice.wake, notice.back_to);
            hub.notify(&notice.wake);
            if notice.inbox {
                self.clerk.ring(ns);
            }
        }
    }

    fn missed(&self) {
        let namespaces: Vec<i32> = self.hubs().keys().copied().collect();
        for ns in namespaces {
            self.hears(ns, &Notice::everything());
        }
    }
}

/// Connections as callers expect them: without the settings that suit our statements.
fn plain(config: &Config) -> Config {
    Config {
        prepare: false,
        ..config.clone()
    }
}

async fn server_time(session: &mut Session, clock: &ServerClock) -> Answer<Timestamp> {
    let asked = clock.asks();
    let found = session.run(&[(&NOW).into()]).await?;
    let At(server) = column(&found[0][0], 0)?;
    clock.told(asked, server);
    Ok(server)
}

/// A handle to a namespace of a database.
#[derive(Debug)]
pub struct PostgresStore {
    database: Arc<Database>,
    namespace: Namespace,
    ns: i32,
    hub: Arc<Hub>,
    closed: AtomicBool,
}

impl PostgresStore {
    /// Connections for transactions of callers.
    pub(crate) fn guests(&self) -> Result<&Pool> {
        self.check_open()?;
        Ok(&self.database.guests)
    }

    /// The schema, and the number of the namespace in it.
    pub(crate) fn place(&self) -> (&str, i32) {
        (&self.database.schema, self.ns)
    }

    /// Whether keys of tasks that are submitted are likely to be taken.
    #[cfg(test)]
    pub(crate) fn looks_at_keys(&self) -> bool {
        self.database.taken_keys.are_likely(self.ns)
    }

    fn check(&self, input: &(impl Check + ?Sized)) -> Result<()> {
        self.check_open()?;
        Ok(input.check(&self.database.limits)?)
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    async fn now(&self) -> Result<Timestamp> {
        self.database.look_at_clock().await?;
        Ok(self.database.clock.now())
    }

    async fn write(&self, exchange: Exchange) -> Result<Exchanged> {
        self.database.look_at_clock().await?;
        let claim = exchange.claim.clone();
        let carried = self.carry_out(exchange).await?;
        let mut exchanged = carried.exchanged;
        if carried.look_into_inbox {
            self.look_into_inbox().await;
            // An empty claim is not remembered, so it can be tried again under its name.
            if matches!(&exchanged.claimed, Some(Ok(claimed)) if claimed.tasks.is_empty()) {
                let again = Exchange {
                    claim,
                    ..Exchange::default()
                };
                exchanged.claimed = match self.carry_out(again).await {
                    Ok(carried) => carried.exchanged.claimed,
                    // What went before has happened. If this has not, the first answer stands.
                    Err(error) if is_untouched(&error) => {
                        tracing::warn!(%error, "a claim could not be tried again");
                        exchanged.claimed
                    }
                    Err(error) => Some(Err(error)),
                };
            }
        }
        Ok(exchanged)
    }

    async fn carry_out(&self, exchange: Exchange) -> Result<transaction::Carried> {
        let database = &self.database;
        let about = database.about(self.ns);
        let carried = transaction::exchange(&database.writers, about, exchange).await;
        for (ns, lane) in database.floors.due() {
            let database = database.clone();
            spawn(async move { database.look_below(ns, lane).await });
        }
        let carried = carried?;
        database.tell(self.ns, &carried.news, &carried.untold);
        Ok(carried)
    }

    /// Takes what was submitted in other people's transactions: some of it now, the rest soon.
    async fn look_into_inbox(&self) {
        match self.database.take_inbox(self.ns, true).await {
            Ok(None) => {}
            Ok(Some(_)) => self.database.clerk.ring(self.ns),
            Err(error) => tracing::warn!(%error, "an inbox could not be emptied for now"),
        }
    }

    /// Submits a task inside the caller's transaction: it is there once that has committed, and
    /// never if it has not. The task is checked now. Whether its key stands for another one, and
    /// whether its id is taken, is decided after the commit: what is refused then is kept in the
    /// table `inbox_refused`, with the reason.
    ///
    /// ```no_run
    /// # use plimsoll_core::{Ids, Namespace, TaskId, clock::SystemClock, task::{Lane, NewTask}};
    /// # use plimsoll_store_postgres::{Config, Postgres, tokio_postgres};
    /// # async fn pay(postgres: Postgres, client: &mut tokio_postgres::Client, id: TaskId) -> Result<(), Box<dyn std::error::Error>> {
    /// let store = postgres.namespace(Namespace::new("orders")?).await?;
    /// let transaction = client.transaction().await?;
    /// transaction.execute("UPDATE orders SET paid = true WHERE id = 7", &[]).await?;
    /// let task = NewTask::new(id, Lane::new("mail", "receipt")?, r#"{"order": 7}"#);
    /// store.submit_in(&transaction, task).await?;
    /// transaction.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn submit_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        task: NewTask,
    ) -> Result<TaskId> {
        let id = task.id;
        let commit = Commit::of(Write::Submit(Box::new(task.clone())));
        self.check(&commit)?;
        let now = self.now().await?;
        let added = inbox::add(transaction, &self.database.schema, self.ns, &task, now);
        added.await.map_err(untouched)?;
        Ok(id)
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn limits(&self) -> &Limits {
        &self.database.limits
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "postgres".into(),
            durability: self.database.durability,
            total_order: true,
            joins_in_commit: true,
            first_in_first_out: true,
            remote_wakeups: self.database.listening.is_some(),
            integer_indexes: true,
            concurrent_writes: true,
        }
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        self.check(&get)?;
        let now = self.now().await?;
        retrying!(self.database.readers, session => read::get(session, self.ns, &get, now))
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        self.check(&scan)?;
        let now = self.now().await?;
        retrying!(self.database.readers, session => read::scan(session, self.ns, &scan, now))
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        self.check(&declare)?;
        retrying!(self.database.writers, session => indexes::declare(session, self.ns, &declare), perhaps)
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        self.check_open()?;
        retrying!(self.database.writers, session => indexes::drop(session, self.ns, &drop.index), perhaps)
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        self.check_open()?;
        retrying!(self.database.readers, session => indexes::declared(session, self.ns))
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        self.check(&tasks)?;
        retrying!(self.database.readers, session => read::tasks(session, self.ns, &tasks.ids))
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        self.check_open()?;
        retrying!(self.database.readers, session => read::task_by_key(session, self.ns, &by.key))
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        self.check(&list)?;
        let now = self.now().await?;
        retrying!(self.database.readers, session => read::list(session, self.ns, &list, now))
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        self.check(&peek)?;
        retrying!(self.database.readers, session => read::peek(session, self.ns, &peek))
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        self.check_open()?;
        retrying!(self.database.readers, session => read::counts(session, self.ns, &counts))
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        self.check(&groups)?;
        retrying!(self.database.readers, session => read::groups(session, self.ns, &groups))
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        self.check(&logs)?;
        retrying!(self.database.readers, session => read::logs(session, self.ns, &logs))
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        self.check(&changes)?;
        retrying!(self.database.readers, session => read::changes(session, self.ns, &changes))
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
        let claimed = self.write(exchange).await?.claimed;
        claimed.unwrap_or_else(|| Err(unanswered()))
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        self.check(&renew)?;
        let exchange = Exchange {
            renew: Some(renew),
            ..Exchange::default()
        };
        let renewals = self.write(exchange).await?.renewals;
        renewals.unwrap_or_else(|| Err(unanswered()))
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        self.check_open()?;
        match exchange.commits.as_slice().check(&self.database.limits) {
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
        let now = self.now().await?;
        if retrying!(self.database.readers, session => inbox::is_waiting(session, self.ns))? {
            self.look_into_inbox().await;
        }
        retrying!(self.database.readers, session => read::due(session, self.ns, due.limit, now))
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.check(&compact)?;
        let now = self.now().await?;
        self.database.keep_partitions().await;
        retrying!(self.database.writers, session => compact::compact(session, self.ns, &compact, now))
    }

    async fn ping(&self) -> Result<Timestamp> {
        self.check_open()?;
        match &self.database.server_clock {
            Some(clock) => self.database.server_time(clock).await,
            None => {
                let question = [Call::from(&NOW)];
                retrying!(self.database.readers, session => session.run(&question))?;
                Ok(self.database.clock.now())
            }
        }
    }

    fn wakeups(&self) -> Listener {
        self.hub.listen()
    }

    async fn close(&self) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        if let Some(listening) = &self.database.listening {
            listening.flush().await;
        }
        Ok(())
    }
}

/// A call without its answer, which no call is.
fn unanswered() -> Error {
    Error::Corrupt("the transaction did not answer what was asked".into())
}
