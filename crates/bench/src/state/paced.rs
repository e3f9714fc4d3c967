//! How long it takes from a write to those who want to hear of it.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use plimsoll::jobs::{NewState, Scope, StateEvent, SubscribeOptions, Subscription};
use plimsoll::records::{Watch, WatchEvent};
use plimsoll::{Error, Records, Result, Retries};

use super::subscribers::replay;
use super::write::JOB;
use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// One who writes at a moderate pace, and those who take everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paced {
    what: What,
    takers: u64,
    times: u64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    States,
    Records,
}

/// Two hundred a second.
const PACE: Duration = Duration::from_millis(5);
const KEY: &str = "bench.watched";
const FIELD: &str = "written";

pub(super) fn paced(scale: Scale) -> Vec<OfState> {
    let paced = |name, about, what, takers| {
        let times = (scale.tasks / 40).clamp(1, 2_000);
        OfState::new(
            name,
            about,
            Act::Paced(Paced {
                what,
                takers,
                times,
            }),
        )
    };
    vec![
        paced(
            "deliver-1",
            "200 states a second, one subscriber: from the call to who takes it",
            What::States,
            1,
        ),
        paced(
            "deliver-1k",
            "200 states a second, 1,000 subscribers: from the call to who takes it",
            What::States,
            1_000,
        ),
        paced(
            "watch-1",
            "200 puts a second, one watcher: from the call to who is told",
            What::Records,
            1,
        ),
        paced(
            "watch-100",
            "200 puts a second, 100 watchers: from the call to who is told",
            What::Records,
            100,
        ),
    ]
}

impl Paced {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        match self.what {
            What::States => self.states(bench).await,
            What::Records => self.records(bench).await,
        }
    }

    async fn states(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let manager = jobs.join(JOB, 0, 1).await?;
        let monitor = jobs.monitor(JOB).await?;
        let mut takers = Vec::new();
        for _ in 0..self.takers {
            let options = SubscribeOptions::default();
            let mut subscription = monitor.subscribe(Scope::all(), options).await?;
            replay(&mut subscription).await?;
            takers.push(take(bench.clone(), subscription, self.times));
        }
        let set = |began: Duration| {
            let state = NewState::new("tag", 1).map(|state| state.message(text(began)));
            let set = state.map(|state| manager.set_state(state));
            async move { set?.await.map(drop) }
        };
        self.measure(bench, Callers::spawn(takers), set).await
    }

    async fn records(self, bench: Bench) -> Result<Measured> {
        let records = bench.engine().records().with_retries(Retries::none());
        let mut takers = Vec::new();
        for _ in 0..self.takers {
            let mut watch = records.watch_key(KEY)?;
            while !matches!(watch.next().await?, WatchEvent::ReplayComplete { .. }) {}
            takers.push(told(bench.clone(), watch, self.times));
        }
        let put = |began: Duration| put(records.clone(), began);
        self.measure(bench, Callers::spawn(takers), put).await
    }

    /// Writes at the pace, and gathers how long each write took to each of those who take it.
    async fn measure<F: Future<Output = Result<()>>>(
        self,
        bench: Bench,
        takers: Callers<Vec<Duration>>,
        write: impl Fn(Duration) -> F,
    ) -> Result<Measured> {
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let writes = async {
            let mut writes = Latencies::new();
            for n in 0..self.times {
                (bench.progress)(n, self.times);
                let due = began + PACE * u32::try_from(n).unwrap_or(u32::MAX);
                bench
                    .clock
                    .sleep(due.saturating_sub(bench.clock.monotonic()))
                    .await;
                let asked = bench.clock.monotonic();
                write(asked).await?;
                writes.record(bench.since(asked));
            }
            Ok(writes)
        };
        let (writes, taken) = tokio::try_join!(writes, takers.join())?;
        let took = bench.since(began);
        let mut latencies = Latencies::new();
        (taken.iter().flatten()).for_each(|latency| latencies.record(*latency));
        Ok(Measured {
            operation: "write",
            operations: self.times,
            took,
            written: Written::now().since(wrote),
            latency_of: "write to taken",
            latencies,
            counts: BTreeMap::from([
                ("taken", self.times * self.takers),
                ("write_p50_us", writes.at(0.5)),
                ("write_p99_us", writes.at(0.99)),
            ]),
            settings: BTreeMap::from([("takers", self.takers.into())]),
            alone: None,
        })
    }
}

fn text(began: Duration) -> String {
    began.as_micros().to_string()
}

/// How long ago this was written.
fn age(bench: &Bench, text: &[u8]) -> Result<Duration> {
    let at = plimsoll::record::integer(text).and_then(|at| u64::try_from(at).ok());
    let at = at.ok_or_else(|| Error::Corrupt("no time of writing".into()))?;
    Ok(bench.since(Duration::from_micros(at)))
}

async fn put(records: Records, began: Duration) -> Result<()> {
    (records.put(KEY, [(FIELD, text(began))], None).await).map(drop)
}

async fn take(bench: Bench, mut events: Subscription, times: u64) -> Result<Vec<Duration>> {
    let mut ages = Vec::new();
    while (ages.len() as u64) < times {
        if let StateEvent::State(state) = events.next().await.ok_or(Error::Closed)?? {
            ages.push(age(&bench, state.message.as_bytes())?);
        }
    }
    Ok(ages)
}

async fn told(bench: Bench, mut watch: Watch, times: u64) -> Result<Vec<Duration>> {
    let mut ages = Vec::new();
    while (ages.len() as u64) < times {
        if let WatchEvent::Put { record, .. } = watch.next().await? {
            ages.push(age(&bench, record.field(FIELD).map_or(b"", |text| text))?);
        }
    }
    Ok(ages)
}
