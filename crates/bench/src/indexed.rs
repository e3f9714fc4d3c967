//! What a declared index costs those who write its records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::record::fields;
use plimsoll::store::{Merge, Write};
use plimsoll::{Result, StoreExt};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::ranges::{DEPTHS, PARAMS, SHORT_DEPTH_MAX, STRIDE, fill, index, key};
use crate::{Bench, Scale};

const CALLERS: u64 = 64;

/// One field of a record set by many callers, and how many records there are.
#[derive(Clone, Debug)]
pub(crate) struct Indexed {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) full_only: bool,
    field: &'static str,
    depth: u64,
    times: u64,
    rest: Duration,
}

pub(crate) fn indexed(scale: Scale) -> Vec<Indexed> {
    let moved = (
        "indexed-move",
        "64 callers set the field of a declared index",
        "updated_at",
    );
    let stays = (
        "indexed-stay",
        "64 callers set another field of records in an index",
        "step",
    );
    let all = [moved, stays].map(|(name, about, field)| {
        DEPTHS.map(|(depth, size)| Indexed {
            name: format!("{name}-{size}"),
            about,
            full_only: depth > SHORT_DEPTH_MAX,
            field,
            depth,
            times: (scale.tasks / 2).max(1),
            rest: scale.rest,
        })
    });
    all.into_iter().flatten().collect()
}

impl Indexed {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        fill(&bench, self.depth, PARAMS).await?;
        bench.store.ensure_index(&index()?).await?;
        bench.clock.sleep(self.rest).await;
        let turns = Arc::new(AtomicU64::new(0));
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let call = |_| call(bench.clone(), self.clone(), turns.clone());
        let callers = Callers::spawn((0..CALLERS).map(call));
        let mut all = Latencies::new();
        let latencies = callers.join().await?;
        latencies.iter().for_each(|each| all.merge(each));
        Ok(Measured {
            operation: "merge",
            operations: self.times,
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of: "merge",
            latencies: all,
            counts: BTreeMap::from([("calls", self.times)]),
            settings: BTreeMap::from([
                ("callers", CALLERS.into()),
                ("depth", self.depth.into()),
                ("field", self.field.into()),
            ]),
            alone: None,
        })
    }
}

/// Sets the field to what no record had before, in records that are no neighbours.
async fn call(bench: Bench, work: Indexed, turns: Arc<AtomicU64>) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    loop {
        let turn = turns.fetch_add(1, Ordering::Relaxed);
        if turn >= work.times {
            return Ok(latencies);
        }
        (bench.progress)(turn, work.times);
        let value = (work.depth + turn).to_string();
        let merge =
            Merge::new(key(turn * STRIDE % work.depth)?).set(fields([(work.field, value)])?);
        let began = bench.clock.monotonic();
        bench.store.write(Write::Merge(merge)).await?;
        latencies.record(bench.since(began));
    }
}
