//! apalis on SQLite.

use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage, queries::push_tasks};
use futures::StreamExt;
use futures::channel::mpsc::{self, UnboundedReceiver};
use measure::{Args, Books, Job, Peer, Result, Seen};
use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteOperation, SqlitePoolOptions, SqliteSynchronous};
use tokio::sync::oneshot;

const QUEUE: &str = "bench";
const BATCH: usize = 1_000;
const CONNECTIONS: u32 = 4;
const BUSY: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

struct Apalis {
    pool: SqlitePool,
    inserts: Mutex<Option<UnboundedReceiver<()>>>,
}

impl Apalis {
    async fn push(&self, jobs: impl IntoIterator<Item = Job>) -> Result<()> {
        let task = |job| Ok(TaskBuilder::new(serde_json::to_vec(&job)?).build());
        let tasks = jobs.into_iter().map(task).collect::<Result<Vec<_>>>()?;
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        push_tasks(&mut *transaction, QUEUE, &tasks).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl Peer for Apalis {
    async fn setup(args: &Args) -> Result<()> {
        let pool = SqlitePool::connect(&format!("{}?mode=rwc", args.url)).await?;
        SqliteStorage::setup(&pool).await?;
        pool.close().await;
        Ok(())
    }

    /// What `SqliteStorage::connect_with_callback` does, but with commits that are on disk when they are acknowledged
    /// (`setup` turns that off, but only in its own connection), and with few connections that wait for each other: with
    /// its defaults 64 callers end in "database is locked".
    async fn open(args: &Args) -> Result<Self> {
        let (tell, told) = mpsc::unbounded();
        let options = SqliteConnectOptions::from_str(&args.url)?
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .after_connect(move |connection, _| {
                let tell = tell.clone();
                Box::pin(async move {
                    let mut handle = connection.lock_handle().await?;
                    handle.set_update_hook(move |event| {
                        if event.operation == SqliteOperation::Insert {
                            // A process that only submits has nobody who listens.
                            let _ = tell.unbounded_send(());
                        }
                    });
                    Ok(())
                })
            })
            .connect_with(options)
            .await?;
        Ok(Self {
            pool,
            inserts: Mutex::new(Some(told)),
        })
    }

    fn settings(&self) -> Value {
        json!({
            "submit": "push_tasks",
            "work": format!("update hook and a poll every {POLL:?}, batches of {BATCH}, tasks not locked one by one"),
            "connections": CONNECTIONS,
            "durability": "WAL, synchronous=FULL",
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
        let inserts = self.inserts.lock().map_err(|_| "poisoned")?.take();
        let inserts = inserts.ok_or("works already")?;
        let config = Config::default()
            .queue(QUEUE)
            .batch_size(BATCH)
            .lock_tasks(false);
        let strategy = Strategy::new()
            .stream(inserts.ready_chunks(BATCH))
            .interval(POLL);
        let backend = SqliteStorage::<Job>::new(&self.pool)
            .with_config(config)
            .poll_with_strategy(strategy);
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
                   FROM Jobs";
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
