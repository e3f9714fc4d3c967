//! What it costs when many want to change the same record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::{Error, Records, Result, Retries};

use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// Callers that read a field and swap it for the next number, until they succeed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cas {
    callers: u64,
    times: u64,
    rounds: u64,
}

const FIELD: &str = "count";
const ROUNDS: u64 = 3;

pub(super) fn swaps(scale: Scale) -> Vec<OfState> {
    let cas = Cas {
        callers: 64,
        times: (scale.tasks / 20 / ROUNDS).max(1),
        rounds: ROUNDS,
    };
    vec![OfState::new(
        "contended-cas",
        "64 callers count up a field of one record; alone: each of its own",
        Act::Cas(cas),
    )]
}

impl Cas {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let records = bench.engine().records().with_retries(Retries::none());
        for number in 0..self.callers {
            records.put(key(number), [(FIELD, 0)], None).await?;
        }
        let (mut alone, mut took) = (Duration::ZERO, Duration::ZERO);
        let (mut latencies, mut attempts) = (Latencies::new(), 0);
        let mut written = Written::NOTHING;
        for round in 0..self.rounds {
            (bench.progress)(round, self.rounds);
            let began = bench.clock.monotonic();
            self.round(&bench, &records, true).await?;
            alone += bench.since(began);
            let (began, wrote) = (bench.clock.monotonic(), Written::now());
            let callers = self.round(&bench, &records, false).await?;
            took += bench.since(began);
            written = written.and(Written::now().since(wrote));
            for (latency, tried) in callers {
                latencies.merge(&latency);
                attempts += tried;
            }
        }
        let operations = self.times * self.rounds;
        Ok(Measured {
            operation: "swap",
            operations,
            took,
            written,
            latency_of: "until it did",
            latencies,
            counts: BTreeMap::from([("attempts", attempts), ("swaps", operations)]),
            settings: BTreeMap::from([("callers", self.callers.into())]),
            alone: Some(operations as f64 / alone.as_secs_f64().max(1e-9)),
        })
    }

    async fn round(
        self,
        bench: &Bench,
        records: &Records,
        own: bool,
    ) -> Result<Vec<(Latencies, u64)>> {
        let turns = Arc::new(AtomicU64::new(0));
        let call = |number| {
            let key = key(if own { number } else { 0 });
            count(
                bench.clone(),
                records.clone(),
                key,
                turns.clone(),
                self.times,
            )
        };
        Callers::spawn((0..self.callers).map(call)).join().await
    }
}

/// Counts up as long as there are turns; answers how long each took, and how many were tried.
async fn count(
    bench: Bench,
    records: Records,
    key: String,
    turns: Arc<AtomicU64>,
    times: u64,
) -> Result<(Latencies, u64)> {
    let (mut latencies, mut attempts) = (Latencies::new(), 0);
    while turns.fetch_add(1, Ordering::Relaxed) < times {
        let began = bench.clock.monotonic();
        loop {
            let value = records.get_field(&key, FIELD).await?;
            let number = value.and_then(|value| plimsoll::record::integer(&value));
            let number = number.ok_or_else(|| Error::Corrupt("no number".into()))?;
            attempts += 1;
            let swap = records.compare_and_swap(&key, FIELD, number, number + 1);
            if swap.await? {
                break;
            }
        }
        latencies.record(bench.since(began));
    }
    Ok((latencies, attempts))
}

fn key(number: u64) -> String {
    format!("bench.count.{number:02}")
}
