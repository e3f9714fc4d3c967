//! awa on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, insert_with, migrations,
};
use measure::{Args, Books, Job, Peer, Result, Seen};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::oneshot;

const QUEUE: &str = "bench";
const CONNECTIONS: u32 = 32;
const WORKERS: u32 = 512;
const CLAIMERS: u16 = 2;
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Work {
    #[serde(flatten)]
    job: Job,
}

struct Awa {
    pool: PgPool,
    store: QueueStorage,
}

fn opts() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.into(),
        ..InsertOpts::default()
    }
}

impl Awa {
    fn client(&self, handle: impl Fn(&Job) + Send + Sync + 'static) -> Result<Client> {
        let config = QueueConfig {
            max_workers: WORKERS,
            claimers: CLAIMERS,
            poll_interval: POLL,
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        };
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, config)
            .register::<Work, _, _>(move |work, _| {
                handle(&work.job);
                async { Ok(JobResult::Completed) }
            })
            .build()?;
        Ok(client)
    }
}

impl Peer for Awa {
    async fn setup(args: &Args) -> Result<()> {
        let peer = Self::open(args).await?;
        migrations::run(&peer.pool).await?;
        // A new database gets its queue storage from the first worker.
        let client = peer.client(|_| {})?;
        client.start().await?;
        client.shutdown(Duration::from_secs(30)).await;
        Ok(())
    }

    async fn open(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect(&args.url)
            .await?;
        let store = QueueStorage::new(QueueStorageConfig::default())?;
        Ok(Self { pool, store })
    }

    fn settings(&self) -> Value {
        json!({
            "submit": "insert_with; bulk by enqueue_params_copy",
            "work": format!("queue storage, {WORKERS} workers, {CLAIMERS} claimers, a poll every {POLL:?}, no deadlines"),
            "connections": CONNECTIONS,
        })
    }

    async fn submit(&self, job: Job) -> Result<()> {
        insert_with(&self.pool, &Work { job }, opts()).await?;
        Ok(())
    }

    async fn submit_all(&self, jobs: Vec<Job>) -> Result<()> {
        let params = jobs.into_iter().map(|job| {
            Ok(InsertParams {
                kind: Work::kind().into(),
                args: serde_json::to_value(Work { job })?,
                opts: opts(),
            })
        });
        let params = params.collect::<Result<Vec<_>>>()?;
        self.store.enqueue_params_copy(&self.pool, &params).await?;
        Ok(())
    }

    async fn work(
        &self,
        seen: Arc<Seen>,
        ready: oneshot::Sender<()>,
        stop: oneshot::Receiver<()>,
    ) -> Result<()> {
        let client = self.client(move |job| seen.handle(job))?;
        client.start().await?;
        // Whoever waits for this has gone only if the program ends.
        let _ = ready.send(());
        let _ = stop.await;
        client.shutdown(Duration::from_secs(30)).await;
        Ok(())
    }

    async fn check(&self) -> Result<Books> {
        let counts = self.store.queue_counts(&self.pool, QUEUE).await?;
        Ok(Books {
            completed: Some(counts.terminal.try_into()?),
            left: (counts.available + counts.running).try_into()?,
        })
    }
}

fn main() -> Result<()> {
    measure::main::<Awa>()
}
