//! apalis on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage, queries::push_tasks};
use measure::{Args, Books, Job, Peer, Result, Seen};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::oneshot;

const QUEUE: &str = "bench";
const CONNECTIONS: u32 = 32;
const BATCH: usize = 1_000;
const POLL: Duration = Duration::from_millis(20);

struct Apalis {
    pool: PgPool,
}

impl Apalis {
    async fn push(&self, jobs: impl IntoIterator<Item = Job>) -> Result<()> {
        let task = |job| Ok(TaskBuilder::new(serde_json::to_vec(&job)?).build());
        let tasks = jobs.into_iter().map(task).collect::<Result<Vec<_>>>()?;
        let mut connection = self.pool.acquire().await?;
        push_tasks(&mut *connection, QUEUE, tasks).await?;
        Ok(())
    }
}

impl Peer for Apalis {
    async fn setup(args: &Args) -> Result<()> {
        let pool = PgPool::connect(&args.url).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(())
    }

    async fn open(args: &Args) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .connect(&args.url)
            .await?;
        Ok(Self { pool })
    }

    fn settings(&self) -> Value {
        json!({
            "submit": "push_tasks",
            "work": format!("LISTEN/NOTIFY and a poll every {POLL:?}, batches of {BATCH}, tasks not locked one by one"),
            "connections": CONNECTIONS,
        })
    }

    async fn submit(&self, job: Job) -> Result<()> {
        self.push([job]).await
    }

    async fn submit_all(&self, jobs: Vec<Job>) -> Result<()> {
        self.push(jobs).await
    }

    async fn work(
        &self,
        seen: Arc<Seen>,
        ready: oneshot::Sender<()>,
        stop: oneshot::Receiver<()>,
    ) -> Result<()> {
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(BATCH)
            .lock_tasks(false);
        let backend = PostgresStorage::<Job>::new(&self.pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(POLL);
        let handler = async |job: Job, seen: Data<Arc<Seen>>| seen.handle(&job);
        let worker = WorkerBuilder::new("bench")
            .backend(backend)
            .data(seen)
            .build(handler);
        // Whoever waits for this has gone only if the program ends.
        let _ = ready.send(());
        let signal = async {
            let _ = stop.await;
            // What is done is written when the worker next asks for jobs.
            tokio::time::sleep(Duration::from_millis(500)).await;
            std::io::Result::Ok(())
        };
        worker.run_until(signal).await?;
        Ok(())
    }

    async fn check(&self) -> Result<Books> {
        let sql = "SELECT count(*) FILTER (WHERE status = 'Done'),
                          count(*) FILTER (WHERE status <> 'Done')
                   FROM apalis.jobs";
        let (done, left): (i64, i64) = sqlx::query_as(sql).fetch_one(&self.pool).await?;
        Ok(Books {
            completed: Some(done.try_into()?),
            left: left.try_into()?,
        })
    }
}

fn main() -> Result<()> {
    measure::main::<Apalis>()
}
