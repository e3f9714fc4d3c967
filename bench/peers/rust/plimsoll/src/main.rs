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
}

impl Ours {
    fn task(&self, job: &Job) -> Result<NewTask> {
        Ok(self.tasks.json(QUEUE, KIND, job)?)
    }
}

impl Peer for Ours {
    async fn setup(args: &Args) -> Result<()> {
        Self::open(args).await.map(drop)
    }

    async fn open(args: &Args) -> Result<Self> {
        let engine = Plimsoll::open(&args.url)?.engine("bench").await?;
        let tasks = Tasks::new(engine.clone());
        Ok(Self { tasks, engine })
    }

    fn settings(&self) -> Value {
        json!({
            "submit": "submit; bulk by submit_all",
            "work": format!("{CONCURRENCY} handlers at the same time, else the defaults; tasks and history kept, no keys"),
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
