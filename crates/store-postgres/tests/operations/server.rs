//! The real server, and questions to it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use futures::{StreamExt, stream};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::ids::Ids;
use plimsoll_core::store::{Claim, Claimed, Commit, Pick, Write};
use plimsoll_core::task::{Lane, NewTask, WorkerId};
use plimsoll_core::{Name, Namespace, Store, TaskId};
use plimsoll_store_postgres::tokio_postgres::{AsyncMessage, Client, NoTls};
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A namespace of its own on the real server.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) namespace: Namespace,
    pub(crate) ids: Ids,
}

impl Server {
    /// `name` is what its connections are called.
    pub(crate) async fn new(name: &str) -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL")
            .expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        let mut config = Config::new(&url).expect("a URL");
        config.unsafe_durability = true;
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let name = format!("{name} {}", ids.task());
        config.server.application_name(&name);
        migrate(&config).await.expect("migrated");
        Self {
            config,
            namespace: Namespace::new(&name[name.len() - 36..]).expect("a namespace"),
            ids,
        }
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        let postgres = Postgres::open(self.config.clone()).await.expect("open");
        let store = postgres.namespace(self.namespace.clone()).await;
        store.expect("a namespace")
    }

    /// A connection that has nothing to do with the store.
    pub(crate) async fn stranger(&self) -> Client {
        let mut server = self.config.server.clone();
        server.application_name("stranger");
        let (client, connection) = server.connect(NoTls).await.expect("connected");
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// Likewise, with all that processes tell each other.
    pub(crate) async fn eavesdropper(&self) -> (Client, UnboundedReceiver<String>) {
        let mut server = self.config.server.clone();
        server.application_name("eavesdropper");
        let (client, mut connection) = server.connect(NoTls).await.expect("connected");
        let (tell, told) = unbounded_channel();
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message {
                    drop(tell.send(notification.payload().to_owned()));
                }
            }
        });
        let listen = format!("LISTEN {}", self.config.schema);
        client.batch_execute(&listen).await.expect("listens");
        (client, told)
    }

    /// The connections of this test whose name ends so.
    pub(crate) async fn backends(&self, stranger: &Client, ending: &str) -> Vec<i32> {
        let name = self.config.server.get_application_name().expect("a name");
        let found = stranger
            .query(
                "SELECT pid FROM pg_stat_activity WHERE application_name = $1",
                &[&format!("{name}{ending}")],
            )
            .await;
        let found = found.expect("backends");
        found.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn claim(&self, store: &dyn Store, lane: &Lane, limit: usize) -> Claimed {
        let claim = Claim {
            pick: Pick::Next {
                lanes: vec![lane.clone()],
                limit,
            },
            worker: WorkerId {
                name: Name::new("worker").expect("a name"),
                incarnation: self.ids.incarnation(),
            },
            lease: Duration::from_secs(60),
            request: self.ids.request(),
        };
        store.claim(claim).await.expect("a claim")
    }

    pub(crate) async fn submit(&self, store: &dyn Store, lane: &Lane) -> TaskId {
        let id = self.ids.task();
        let task = NewTask::new(id, lane.clone(), "payload");
        let done = store.commit(vec![Commit::of(Write::Submit(Box::new(task)))]);
        done.await.remove(0).expect("submitted");
        id
    }
}

pub(crate) fn lane(kind: &str) -> Lane {
    Lane::new("queue", kind).expect("a lane")
}

/// Asks again and again, for what nobody is told of, and fails after a while.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let clock = SystemClock::new();
    while !holds().await {
        assert!(clock.monotonic() < Duration::from_secs(20), "{what}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// What must happen soon: a test that waits for ever says nothing.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let limit = SystemClock::new().sleep(Duration::from_secs(20));
    match select(pin!(what), limit).await {
        Either::Left((happened, _)) => happened,
        Either::Right(_) => panic!("it has not happened for 20 s"),
    }
}
