//! What a scan by range costs while many other records are there.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::record::{Fields, Index};
use plimsoll::store::{Commit, Put, Range, Scan, Write};
use plimsoll::{Key, Name, Prefix, Result, StoreExt};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::{Bench, Scale};

/// A scan of [`HITS`] records by a declared index, and how many records there are.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) full_only: bool,
    depth: u64,
    /// How much is in each besides what it is found by.
    params: usize,
    rounds: u64,
    rest: Duration,
}

/// How many records there are.
pub(crate) const DEPTHS: [(u64, &str); 3] = [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1m")];
/// Filling a store with more takes minutes.
pub(crate) const SHORT_DEPTH_MAX: u64 = 100_000;
/// How many records each scan finds.
const HITS: u64 = 100;
/// Shares no factor with any depth, so that keys and values are in different orders.
pub(crate) const STRIDE: u64 = 7_919;
const PREFIX: &str = "bench.state.";
/// What is in a record like that of a task, and in one with a long error.
pub(crate) const PARAMS: usize = 200;
const LARGE_PARAMS: usize = 1_000;

pub(crate) fn ranges(scale: Scale) -> Vec<Ranges> {
    let range = |(depth, size), kind, about, params| Ranges {
        name: format!("range-{kind}{size}"),
        about,
        full_only: depth > SHORT_DEPTH_MAX,
        depth,
        params,
        rounds: scale.rounds,
        rest: scale.rest,
    };
    let about = "one caller finds 100 records by a declared index";
    let small = DEPTHS.map(|depth| range(depth, "", about, PARAMS));
    let about = "the same, of records of more than a kilobyte";
    let large = DEPTHS.map(|depth| range(depth, "large-", about, LARGE_PARAMS));
    small.into_iter().chain(large).collect()
}

impl Ranges {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        fill(&bench, self.depth, self.params).await?;
        let index = index()?;
        bench.store.ensure_index(&index).await?;
        bench.clock.sleep(self.rest).await;
        let mut latencies = Latencies::new();
        let (mut found, mut took) = (0, Duration::ZERO);
        // Once beforehand: whoever reads for the first time also makes room for what it keeps.
        for _ in 0..self.rounds {
            scan(&bench, &index, self.depth).await?;
        }
        let wrote = Written::now();
        for round in 0..self.rounds {
            let asked = bench.clock.monotonic();
            let rows = scan(&bench, &index, self.depth).await?;
            let answered = bench.since(asked);
            latencies.record(answered);
            took += answered;
            found += rows;
            (bench.progress)(round, self.rounds);
        }
        Ok(Measured {
            operation: "record",
            operations: found,
            took,
            written: Written::now().since(wrote),
            latency_of: "scan",
            latencies,
            counts: BTreeMap::from([("scans", self.rounds), ("found", found)]),
            settings: BTreeMap::from([
                ("limit", HITS.into()),
                ("depth", self.depth.into()),
                ("params_bytes", (self.params as u64).into()),
            ]),
            alone: None,
        })
    }
}

/// Finds [`HITS`] records somewhere, and answers how many it found.
async fn scan(bench: &Bench, index: &Index, depth: u64) -> Result<u64> {
    let first = bench.ids.below(depth - HITS + 1) as i64;
    let range = Range::new(index.field.clone())
        .from(first)
        .before(first + HITS as i64);
    let scan = Scan::new(index.prefix.clone(), HITS as usize).range(range);
    Ok(bench.store.scan(scan).await?.rows.len() as u64)
}

pub(crate) fn index() -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new(PREFIX)?,
        field: Name::new("updated_at")?,
    })
}

pub(crate) fn key(n: u64) -> Result<Key> {
    Ok(Key::new(format!("{PREFIX}{n:08}"))?)
}

/// So many records, each with a value of its own.
pub(crate) async fn fill(bench: &Bench, depth: u64, params: usize) -> Result<()> {
    const COMMIT: u64 = 200;
    const CALL: u64 = 5_000;
    let params = Bytes::from(vec![b'x'; params]);
    let put = |n: u64| -> Result<Write> {
        let updated_at = n * STRIDE % depth;
        let fields = Fields::from([
            (Name::new("updated_at")?, updated_at.to_string().into()),
            (Name::new("params")?, params.clone()),
        ]);
        Ok(Write::Put(Put::new(key(n)?, fields)))
    };
    for first in (0..depth).step_by(CALL as usize) {
        let last = depth.min(first + CALL);
        let commit = |from: u64| -> Result<Commit> {
            let writes = (from..last.min(from + COMMIT)).map(put);
            Ok(Commit {
                writes: writes.collect::<Result<_>>()?,
                ..Commit::default()
            })
        };
        let commits = (first..last).step_by(COMMIT as usize).map(commit);
        for receipt in bench.store.commit(commits.collect::<Result<_>>()?).await {
            receipt?;
        }
        (bench.progress)(first, depth);
    }
    Ok(())
}
