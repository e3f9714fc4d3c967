//! Plimsoll on any of its stores.

use std::sync::Arc;

use measure::{Args, Books, Job, Peer, Result, Seen};
use plimsoll::store::Counts;
use plimsoll::task::{NewTask, Status};
use plimsoll::worker::Json;
use plimsoll::{Plimsoll, Tasks};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const QUEUE: &str = "bench";
const KIND: &str = "work";
const CONCURRENCY: usize = 64;

struct Ours {
    tasks: Tasks,
    engine: plimsoll::Engine,
    /// Whether each job has an idempotency key of its own.
    keys: bool,
}

impl Ours {
    fn task(&self, job: &Job) -> Result<NewTask> {
        let task = self.tasks.json(QUEUE, KIND, job)?;
        Ok(match self.keys {
            true => task.key(format!("job-{}", job.n).try_into()?),
            false => task,
        })
    }
}

impl Peer for Ours {
    async fn setup(args: &Args) -> Result<()> {
        Self::open(args).await.map(drop)
    }

    async fn open(args: &Args) -> Result<Self> {
        let engine = Plimsoll::open(&args.url)?.engine("bench").await?;
        let tasks = Tasks::new(engine.clone());
        Ok(Self {
            tasks,
            engine,
            keys: args.keys,
        })
    }

    fn settings(&self) -> Value {
        let keys = match self.keys {
            true => "each with an idempotency key, kept as long as they are",
            false => "no keys",
        };
        json!({
            "submit": "submit; bulk by submit_all",
            "work": format!("{CONCURRENCY} handlers at the same time, else the defaults; tasks and history kept, {keys}"),
        })
    }

    async fn submit(&self, job: Job) -> Result<()> {
        self.tasks.submit(self.task(&job)?).await?;
        Ok(())
    }

    async fn submit_all(&self, jobs: Vec<Job>) -> Result<()> {
        let tasks = jobs.iter().map(|job| self.task(job));
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        for submitted in self.tasks.submit_all(tasks).await {
            submitted?;
        }
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        Ok(self.tasks.close().await?)
    }

    async fn work(
        &self,
        seen: Arc<Seen>,
        ready: oneshot::Sender<()>,
        stop: oneshot::Receiver<()>,
    ) -> Result<()> {
        let handler = move |Json(job): Json<Job>| {
            seen.handle(&job);
            async {}
        };
        let worker = self
            .engine
            .worker("bench")
            .queue(QUEUE)
            .concurrency(CONCURRENCY)
            .handle(KIND, handler)
            .build()?;
        let stopper = worker.stopper();
        // Whoever waits for this has gone only if the program ends.
        let _ = ready.send(());
        let stopping = async {
            let _ = stop.await;
            stopper.drain();
        };
        let (summary, ()) = tokio::join!(worker.run(), stopping);
        summary?;
        Ok(())
    }

    async fn check(&self) -> Result<Books> {
        let (mut completed, mut left) = (0, 0);
        for lane in self.tasks.counts(Counts::default()).await? {
            for (status, count) in lane.by_status {
                match status {
                    Status::Completed => completed += count,
                    _ => left += count,
                }
            }
        }
        Ok(Books {
            completed: Some(completed),
            left,
        })
    }
}

fn main() -> Result<()> {
    measure::main::<Ours>()
}
