//! Callers who submit one job at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::job::{Job, now};
use crate::seen::quantile_ms;
use crate::{Args, Peer, Result};

/// Lets callers submit for as long as the arguments say, each as often as it can, at a rate or with a gap.
pub(crate) async fn call<P: Peer>(peer: &Arc<P>, args: &Args) -> Result<Value> {
    let (start, began) = (Instant::now(), now());
    let end = start + Duration::from_secs_f64(args.seconds);
    let next = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..args.callers {
        let (peer, args, next) = (peer.clone(), args.clone(), next.clone());
        callers.spawn(async move {
            let mut took = Vec::new();
            for turn in 0_u64.. {
                if let Some(rate) = args.rate {
                    let nth = (turn * args.callers + caller) as f64;
                    sleep_until(start + Duration::from_secs_f64(nth / rate)).await;
                }
                if Instant::now() >= end {
                    break;
                }
                let called = Instant::now();
                peer.submit(Job::new(next.fetch_add(1, Ordering::Relaxed)))
                    .await?;
                took.push(called.elapsed().as_nanos() as u64);
                if args.gap_ms > 0.0 {
                    sleep(gap(args.gap_ms, turn)).await;
                }
            }
            Result::<_>::Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(caller) = callers.join_next().await {
        took.extend(caller??);
    }
    took.sort_unstable();
    Ok(json!({
        "jobs": took.len(),
        "began": began,
        "ended": now(),
        "call_p50_ms": quantile_ms(&took, 0.50),
        "call_p99_ms": quantile_ms(&took, 0.99),
        "settings": peer.settings(),
    }))
}

/// Between one and one and a half times the gap, spread evenly, so that nobody who polls falls into step.
fn gap(gap_ms: f64, turn: u64) -> Duration {
    let golden = (turn as f64 * 0.618_033_988_75).fract();
    Duration::from_secs_f64(gap_ms * (1.0 + golden / 2.0) / 1e3)
}
