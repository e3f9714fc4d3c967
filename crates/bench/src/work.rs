//! Workers: how many tasks a second from submit to completion, how long until a handler starts, and
//! what it costs to wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::clock::Clock;
use plimsoll::decorate::{Around, Decorated, Method};
use plimsoll::store::Receipt;
use plimsoll::task::{Lane, NewTask};
use plimsoll::worker::{Stats, Stopper};
use plimsoll::{Engine, Error, Result, Store, StoreExt};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// What workers are given to do.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    load: Load,
}

#[derive(Clone, Copy, Debug)]
enum Load {
    /// As much as goes, with so many handlers at the same time.
    Full { concurrency: usize, tasks: u64 },
    /// One task after another: the worker is idle when each of them comes.
    Idle { tasks: u64 },
    /// Half as much as goes.
    Half { tasks: u64 },
    /// Nothing, for so long.
    None { workers: usize, rest: Duration },
}

const CALLERS: u64 = 64;
const PAYLOAD: usize = 200;

pub(crate) fn works(scale: Scale) -> Vec<Work> {
    let part = |part: u64| (scale.tasks / part).max(1);
    let full = |concurrency: usize| Work {
        name: format!("work-{concurrency}"),
        about: "64 callers submit one task each, a worker runs an empty handler for each",
        load: Load::Full {
            concurrency,
            tasks: part(1),
        },
    };
    let mut works: Vec<Work> = [1, 16, 64, 256].map(full).into();
    works.push(Work {
        name: "start-idle".into(),
        about: "from the submit to the start of the handler, when the worker is idle",
        load: Load::Idle { tasks: part(40) },
    });
    works.push(Work {
        name: "start-half".into(),
        about: "from the submit to the start of the handler, at half of the load that goes",
        load: Load::Half { tasks: part(4) },
    });
    works.push(Work {
        name: "waiting".into(),
        about: "10 workers of 10 processes wait for tasks: what they ask the store",
        load: Load::None {
            workers: 10,
            rest: scale.rest * 10,
        },
    });
    works
}

impl Work {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        match self.load {
            Load::Full { concurrency, tasks } => full(&bench, concurrency, tasks).await,
            Load::Idle { tasks } => idle(&bench, tasks).await,
            Load::Half { tasks } => half(&bench, tasks).await,
            Load::None { workers, rest } => waiting(&bench, workers, rest).await,
        }
    }
}

/// Gives a worker whose handlers do nothing a load of so many tasks, and notes how long each took
/// to start.
async fn drive(
    bench: &Bench,
    concurrency: usize,
    tasks: u64,
    load: impl AsyncFnOnce(&Stats) -> Result<()>,
) -> Result<Measured> {
    let started = Arc::new(Mutex::new(Latencies::new()));
    let (noted, clock) = (started.clone(), bench.clock.clone());
    let handler = move |submitted: bytes::Bytes| {
        let since = clock.monotonic().saturating_sub(moment(&submitted));
        lock(&noted).record(since);
        async {}
    };
    let worker = Engine::new(bench.store.clone())
        .worker("bench")
        .queue("bench")
        .concurrency(concurrency)
        .handle("work", handler)
        // What is written is to be the tasks' own. Nothing is ever due.
        .registers(false)
        .sweeps(false)
        .build()?;
    let (stats, stopper) = (worker.stats(), worker.stopper());
    let (began, wrote) = (bench.clock.monotonic(), Written::now());
    let loading = async {
        load(&stats).await?;
        completed(bench, &stats, tasks).await;
        let done = (bench.since(began), Written::now().since(wrote));
        stopper.drain();
        Ok(done)
    };
    let working = Callers::spawn([async move { worker.run().await }]);
    let ((took, written), _) = tokio::try_join!(loading, working.join())?;
    let latencies = std::mem::replace(&mut *lock(&started), Latencies::new());
    Ok(Measured {
        operation: "task",
        operations: tasks,
        took,
        written,
        latency_of: "submit to start",
        latencies,
        counts: BTreeMap::from([("submits", tasks), ("completed", tasks)]),
        settings: BTreeMap::from([
            ("callers", CALLERS.into()),
            ("concurrency", (concurrency as u64).into()),
            ("payload_bytes", (PAYLOAD as u64).into()),
        ]),
        alone: None,
    })
}

/// Waits until so many tasks are completed.
async fn completed(bench: &Bench, stats: &Stats, tasks: u64) {
    while stats.summary().completed < tasks {
        bench.clock.sleep(Duration::from_millis(1)).await;
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that says when it was submitted.
fn task(bench: &Bench) -> Result<NewTask> {
    let mut payload = vec![b'x'; PAYLOAD];
    let now = u64::try_from(bench.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
    payload[..8].copy_from_slice(&now.to_be_bytes());
    Ok(bench.task(&Lane::new("bench", "work")?, &payload.into()))
}

fn moment(payload: &[u8]) -> Duration {
    let nanos = payload.first_chunk::<8>().copied().unwrap_or_default();
    Duration::from_nanos(u64::from_be_bytes(nanos))
}

/// Submits from many callers, each as often as it can, or every so often.
async fn submit(bench: &Bench, tasks: u64, every: Option<Duration>) -> Result<()> {
    let callers = (0..CALLERS).map(|caller| {
        let bench = bench.clone();
        let own = tasks / CALLERS + u64::from(caller < tasks % CALLERS);
        async move {
            let began = bench.clock.monotonic();
            let offset = every
                .unwrap_or_default()
                .mul_f64(caller as f64 / CALLERS as f64);
            for turn in 0..own {
                if let Some(every) = every {
                    let at = began + offset + every.mul_f64(turn as f64);
                    bench
                        .clock
                        .sleep(at.saturating_sub(bench.clock.monotonic()))
                        .await;
                }
                bench.store.submit(task(&bench)?).await?;
                (bench.progress)(turn, own);
            }
            Ok(())
        }
    });
    Callers::spawn(callers).join().await.map(drop)
}

async fn full(bench: &Bench, concurrency: usize, tasks: u64) -> Result<Measured> {
    let load = async |_: &Stats| submit(bench, tasks, None).await;
    drive(bench, concurrency, tasks, load).await
}

async fn idle(bench: &Bench, tasks: u64) -> Result<Measured> {
    let load = async |stats: &Stats| {
        for turn in 0..tasks {
            bench.store.submit(task(bench)?).await?;
            completed(bench, stats, turn + 1).await;
            (bench.progress)(turn, tasks);
        }
        Ok(())
    };
    drive(bench, 16, tasks, load).await
}

async fn half(bench: &Bench, tasks: u64) -> Result<Measured> {
    let concurrency = 64;
    let most = full(bench, concurrency, tasks).await?;
    let every = most
        .took
        .div_f64(tasks as f64)
        .mul_f64(2.0 * CALLERS as f64);
    let load = async |_: &Stats| submit(bench, tasks, Some(every)).await;
    drive(bench, concurrency, tasks, load).await
}

async fn waiting(bench: &Bench, workers: usize, rest: Duration) -> Result<Measured> {
    let asked = Asked {
        clock: bench.clock.clone(),
        took: Arc::new(Mutex::new((0, Latencies::new()))),
    };
    let mut stoppers = Vec::new();
    let mut running = Vec::new();
    for number in 0..workers {
        // Each has a handle of its own, as another process would have.
        let store: Arc<dyn Store> = Arc::new(Decorated::new(bench.store.clone(), asked.clone()));
        let worker = Engine::new(store)
            .worker(format!("bench-{number}"))
            .queue("bench")
            .handle("work", async || {})
            .build()?;
        stoppers.push(worker.stopper());
        running.push(async move { worker.run().await.map(drop) });
    }
    let running = Callers::spawn(running);
    // What they ask when they start is not what waiting costs.
    bench.clock.sleep(rest / 10).await;
    *lock(&asked.took) = (0, Latencies::new());
    let (began, wrote) = (bench.clock.monotonic(), Written::now());
    let steps = 20;
    for step in 0..steps {
        (bench.progress)(step, steps);
        bench.clock.sleep(rest / 20).await;
    }
    let (took, written) = (bench.since(began), Written::now().since(wrote));
    let (calls, latencies) = std::mem::replace(&mut *lock(&asked.took), (0, Latencies::new()));
    stoppers.iter().for_each(Stopper::drain);
    running.join().await?;
    let minutes = took.as_secs_f64() / 60.0;
    Ok(Measured {
        operation: "store call",
        operations: calls,
        took,
        written,
        latency_of: "store call",
        latencies,
        counts: BTreeMap::from([
            ("calls", calls),
            (
                "calls_per_minute",
                (calls as f64 / minutes.max(1e-9)) as u64,
            ),
        ]),
        settings: BTreeMap::from([("workers", (workers as u64).into())]),
        alone: None,
    })
}

/// Counts what a store is asked.
#[derive(Clone, Debug)]
struct Asked {
    clock: Arc<dyn Clock>,
    took: Arc<Mutex<(u64, Latencies)>>,
}

impl Around for Asked {
    async fn around<T, C, F>(&self, _: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let began = self.clock.monotonic();
        let answer = call().await;
        let took = self.clock.monotonic().saturating_sub(began);
        let mut asked = lock(&self.took);
        asked.0 += 1;
        asked.1.record(took);
        answer
    }

    fn committed(&self, _: &[Result<Receipt, Error>]) {}
}
