//! The state, work and history of distributed jobs.
//!
//! ```
//! use plimsoll::{Namespace, Plimsoll, Store};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let plimsoll = Plimsoll::open("memory:")?;
//! let store = plimsoll.namespace(Namespace::new("orders")?).await?;
//! assert_eq!(store.capabilities().store, "memory");
//! # Ok::<(), plimsoll::Error>(()) }).unwrap();
//! ```

#[cfg(feature = "postgres")]
mod server;
pub mod telemetry;
mod url;

use std::sync::Arc;

pub use plimsoll_core::*;
pub use plimsoll_engine::{
    Archive, Engine, Jobs, Locks, Records, Retention, Retries, StoredRetention, Sweeper, Tasks,
    Worker, Workers, archive, history, history::History, jobs, locks, records, registry, sweeper,
    tasks, testing, worker,
};
#[cfg(feature = "postgres")]
pub use plimsoll_store_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use plimsoll_store_sqlite as sqlite;

pub use url::{PostgresUrl, StoreUrl};

/// An open store with all its namespaces.
#[derive(Clone, Debug)]
pub struct Plimsoll {
    opened: Opened,
    locks: Option<Opened>,
}

#[derive(Clone, Debug)]
enum Opened {
    Memory(Memory),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlite::Sqlite),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Postgres),
    #[cfg(feature = "postgres")]
    Server(Arc<server::Server>),
}

impl From<Memory> for Plimsoll {
    fn from(memory: Memory) -> Self {
        Self::of(Opened::Memory(memory))
    }
}

/// For who wants to configure more than a URL says.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("plimsoll.db");
/// use std::time::Duration;
/// use plimsoll::{Plimsoll, sqlite};
/// let config = sqlite::Config { poll: Duration::from_millis(20), ..sqlite::Config::new(path) };
/// let plimsoll = Plimsoll::from(sqlite::Sqlite::open(config)?);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[cfg(feature = "sqlite")]
impl From<sqlite::Sqlite> for Plimsoll {
    fn from(sqlite: sqlite::Sqlite) -> Self {
        Self::of(Opened::Sqlite(sqlite))
    }
}

/// For who wants to configure more than a URL says. Calls are merged as they are for a URL.
#[cfg(feature = "postgres")]
impl From<postgres::Postgres> for Plimsoll {
    fn from(postgres: postgres::Postgres) -> Self {
        Self::of(Opened::Postgres(postgres))
    }
}

impl Plimsoll {
    /// Opens the store that the URL names: see [`StoreUrl`].
    ///
    /// It waits for a file: up to five seconds if another program holds it, and longer if an older
    /// file is brought up to date. A server is connected to when the first namespace is opened,
    /// on the runtime of who does that, which needs I/O and time. If its schema is missing or older, it is brought up to date
    /// then, unless the URL says `migrate=off`.
    pub fn open(url: &str) -> Result<Self> {
        StoreUrl::parse(url)?.open()
    }

    fn of(opened: Opened) -> Self {
        Self {
            opened,
            locks: None,
        }
    }

    /// The same store with its locks on another one, in namespaces of the same names. Run a
    /// [`Sweeper`] there, too.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use plimsoll::Plimsoll;
    /// let locks = Plimsoll::open("memory:")?;
    /// let plimsoll = Plimsoll::open("memory:")?.locks_on(locks.clone());
    /// let guard = plimsoll.engine("orders").await?.locks().lock("a").acquire().await?;
    /// assert!(locks.engine("orders").await?.locks().get("a").await?.is_some());
    /// # Ok::<(), plimsoll::Error>(()) }).unwrap();
    /// ```
    pub fn locks_on(mut self, other: Self) -> Self {
        self.locks = Some(other.opened);
        self
    }

    /// Tasks, workers, records, jobs and locks of a namespace.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let engine = plimsoll::Plimsoll::open("memory:")?.engine("orders").await?;
    /// let worker = engine.worker("w1").queue("mail").handle("send", async || {}).build()?;
    /// assert_eq!(worker.run_until_empty().await?.started, 0);
    /// # Ok::<(), plimsoll::Error>(()) }).unwrap();
    /// ```
    pub async fn engine(&self, namespace: &str) -> Result<Engine> {
        let namespace = Namespace::new(namespace)?;
        let engine = Engine::new(self.namespace(namespace.clone()).await?);
        match &self.locks {
            None => Ok(engine),
            Some(opened) => Ok(engine.locks_on(opened.namespace(namespace).await?)),
        }
    }

    /// The store of a namespace, for who wants to build on the port itself.
    pub async fn namespace(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        self.opened.namespace(namespace).await
    }
}

impl StoreUrl {
    /// Opens the store: see [`Plimsoll::open`].
    pub fn open(self) -> Result<Plimsoll> {
        let opened = match self {
            Self::Memory => Opened::Memory(Memory::new()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path, durability } => {
                let config = sqlite::Config {
                    durability,
                    ..sqlite::Config::new(path)
                };
                Opened::Sqlite(sqlite::Sqlite::open(config)?)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Opened::Server(Arc::new(server::Server::new(&url)?)),
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite { .. } => return Err(without("sqlite")),
            #[cfg(not(feature = "postgres"))]
            Self::Postgres(_) => return Err(without("postgres")),
        };
        Ok(Plimsoll::of(opened))
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn without(feature: &str) -> Error {
    let message = format!("this program was built without the feature `{feature}`");
    Error::Unsupported(message.into())
}

impl Opened {
    async fn namespace(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
        match self {
            Self::Memory(memory) => Ok(Arc::new(memory.open(namespace))),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(sqlite) => Ok(Arc::new(sqlite.namespace(namespace).await?)),
            #[cfg(feature = "postgres")]
            Self::Postgres(postgres) => server::merged(postgres, namespace).await,
            #[cfg(feature = "postgres")]
            Self::Server(server) => server.namespace(namespace).await,
        }
    }
}

/// Runs the snippets of the guides.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/tasks.md")]
    struct Tasks;
    #[doc = include_str!("../../../docs/records.md")]
    struct Records;
    #[doc = include_str!("../../../docs/job-states.md")]
    struct JobStates;
    #[doc = include_str!("../../../docs/locks.md")]
    struct Locks;
    #[cfg(all(feature = "logs", feature = "otlp", feature = "prometheus"))]
    #[doc = include_str!("../../../docs/telemetry.md")]
    struct Telemetry;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/lifecycle.md")]
    struct Lifecycle;
    #[doc = include_str!("../../../docs/logs.md")]
    struct Logs;
    #[doc = include_str!("../../../docs/workers.md")]
    struct Workers;
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/postgres.md")]
    struct Postgres;
}
