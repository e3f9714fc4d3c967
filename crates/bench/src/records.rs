//! What records and the history cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll::record::Fields;
use plimsoll::store::{Changes, Commit, Guard, Merge, Outcome, Put, Scan, Start, Write};
use plimsoll::{Key, Name, Prefix, Result, Revision, StoreExt};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// Something done with records, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    act: Act,
    times: u64,
    callers: u64,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Merge,
    Swap,
    Page,
    Tail,
}

impl Act {
    fn word(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Swap => "swap",
            Self::Page => "page",
            Self::Tail => "change",
        }
    }
}

const KEYS: u64 = 10_000;

pub(crate) fn records(scale: Scale) -> Vec<Records> {
    let times = (scale.tasks / 2).max(1);
    let record = |name, about, act| Records {
        name,
        about,
        act,
        times,
        callers: 64,
    };
    vec![
        record(
            "merge",
            "64 callers set fields of 10,000 records",
            Act::Merge,
        ),
        record(
            "swap",
            "64 callers compare and swap, each its own record",
            Act::Swap,
        ),
        Records {
            times: (times / 100).max(1),
            callers: 1,
            ..record(
                "scan",
                "one caller scans 10,000 records in pages of 1,000",
                Act::Page,
            )
        },
        record(
            "tail",
            "64 callers write, one reader follows the history",
            Act::Tail,
        ),
    ]
}

impl Records {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        if let Act::Page = self.act {
            for first in (0..KEYS).step_by(200) {
                let put = |n| Ok(Write::Put(Put::new(key(n)?, fields("value")?)));
                let writes = (first..first + 200).map(put).collect::<Result<_>>()?;
                let commit = Commit {
                    writes,
                    ..Commit::default()
                };
                bench.store.commit_one(commit).await?;
            }
        }
        let turns = Arc::new(AtomicU64::new(0));
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let call = |number| call(bench.clone(), self.clone(), number, turns.clone());
        let callers = Callers::spawn((0..self.callers).map(call));
        let (latency_of, latencies) = match self.act {
            Act::Merge | Act::Swap | Act::Page => (self.act.word(), callers.join().await?),
            Act::Tail => {
                let (_, followed) = tokio::try_join!(callers.join(), follow(&bench, self.times))?;
                ("write to read", vec![followed])
            }
        };
        let mut all = Latencies::new();
        latencies.iter().for_each(|each| all.merge(each));
        Ok(Measured {
            operation: self.act.word(),
            operations: self.times,
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of,
            latencies: all,
            counts: BTreeMap::from([("calls", self.times)]),
            settings: BTreeMap::from([("callers", self.callers.into())]),
            alone: None,
        })
    }
}

async fn call(
    bench: Bench,
    work: Records,
    number: u64,
    turns: Arc<AtomicU64>,
) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut revision = Revision::ZERO;
    let mut cursor = None;
    loop {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        if turn >= work.times {
            return Ok(latencies);
        }
        (bench.progress)(turn, work.times);
        let began = bench.clock.monotonic();
        match work.act {
            Act::Merge => {
                let merge = Merge::new(key(turn % KEYS)?).set(fields("value")?);
                bench.store.write(Write::Merge(merge)).await?;
            }
            Act::Tail => {
                let at = began.as_micros().to_string();
                let put = Put::new(key(turn % KEYS)?, fields(&at)?);
                bench.store.write(Write::Put(put)).await?;
            }
            Act::Swap => {
                let own = key(number)?;
                let guard = match revision {
                    Revision::ZERO => Guard::RecordAbsent(own.clone()),
                    revision => Guard::RecordAt(own.clone(), revision),
                };
                let put = Write::Put(Put::new(own, fields("value")?));
                let receipt = (bench.store)
                    .commit_one(Commit::of(put).guard(guard))
                    .await?;
                if let Some(Outcome::Written { revision: now, .. }) = receipt.outcomes.first() {
                    revision = *now;
                }
            }
            Act::Page => {
                let scan = Scan {
                    cursor,
                    ..Scan::new(Prefix::any(), 1_000)
                };
                cursor = bench.store.scan(scan).await?.next;
            }
        }
        latencies.record(bench.since(began));
    }
}

/// Follows the history until `times` changes were seen, and measures how old each one is.
async fn follow(bench: &Bench, times: u64) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut wakeups = bench.store.wakeups();
    let (mut start, mut seen) = (Start::Oldest, 0);
    while seen < times {
        let changes = Changes {
            start,
            interests: Vec::new(),
            limit: 1_000,
        };
        let page = bench.store.changes(changes).await?;
        let now = bench.clock.monotonic();
        for change in page.entries.iter().flat_map(|entry| &entry.changes) {
            seen += 1;
            if let plimsoll::change::Change::Put(record) = change
                && let Some(at) = record
                    .field("field")
                    .and_then(|at| plimsoll::record::integer(at))
            {
                let at = Duration::from_micros(u64::try_from(at).unwrap_or(0));
                latencies.record(now.saturating_sub(at));
            }
        }
        start = Start::After(page.next);
        if !page.more && page.entries.is_empty() {
            wakeups.next().await;
        }
    }
    Ok(latencies)
}

fn key(n: u64) -> Result<Key> {
    Ok(Key::new(format!("bench.record.{n:08}"))?)
}

fn fields(value: &str) -> Result<Fields> {
    let name = Name::new("field")?;
    Ok(Fields::from([(name, Bytes::from(value.to_owned()))]))
}
