//! What a scan by range costs while many other records are there.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::record::{Fields, Index};
use plimsoll::store::{Commit, Put, Range, Scan, Write};
use plimsoll::{Ids, Key, Name, Prefix, Result, StoreExt};

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
    /// Finds the same ones each time, those with the lowest values, as a sweeper does that looks for what is overdue.
    same: bool,
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
        name: format!("{kind}-{size}"),
        about,
        full_only: depth > SHORT_DEPTH_MAX,
        depth,
        params,
        same: kind == "overdue",
        rounds: scale.rounds,
        rest: scale.rest,
    };
    let about = "one caller finds 100 records by a declared index, somewhere else each time";
    let small = DEPTHS.map(|depth| range(depth, "range", about, PARAMS));
    let about = "the same, of records of more than a kilobyte";
    let large = DEPTHS.map(|depth| range(depth, "range-large", about, LARGE_PARAMS));
    let about = "one caller finds the same 100 by a declared index, as a sweeper does";
    let same = DEPTHS.map(|depth| range(depth, "overdue", about, PARAMS));
    small.into_iter().chain(large).chain(same).collect()
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
            self.scan(&bench, &index).await?;
        }
        let wrote = Written::now();
        for round in 0..self.rounds {
            let asked = bench.clock.monotonic();
            let rows = self.scan(&bench, &index).await?;
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

    /// The lowest value that is looked for.
    fn first(&self, ids: &Ids) -> i64 {
        match self.same {
            true => 0,
            false => ids.below(self.depth - HITS + 1) as i64,
        }
    }

    /// Finds [`HITS`] records, and answers how many it found.
    async fn scan(&self, bench: &Bench, index: &Index) -> Result<u64> {
        let first = self.first(&bench.ids);
        let range = Range::new(index.field.clone())
            .from(first)
            .before(first + HITS as i64);
        let scan = Scan::new(index.prefix.clone(), HITS as usize).range(range);
        Ok(bench.store.scan(scan).await?.rows.len() as u64)
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use plimsoll::clock::ManualClock;

    use super::*;

    #[test]
    fn only_what_is_overdue_is_looked_for_at_the_same_place_each_time() {
        let ids = Ids::seeded(1, Arc::new(ManualClock::new()));
        for range in ranges(Scale::SHORT) {
            let places: BTreeSet<i64> = (0..50).map(|_| range.first(&ids)).collect();
            let same = range.name.starts_with("overdue");
            assert_eq!(places.len() == 1, same, "{}", range.name);
        }
    }
}
