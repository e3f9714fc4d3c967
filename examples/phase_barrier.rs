//! The second phase of a job begins when all partitions have finished the first. If one of them fails,
//! the others are told at once, and by whom; if one does not come, how many they have waited for.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use plimsoll::error::Conflict;
use plimsoll::jobs::{Coded, FINISHED, NewState, Scope, State};
use plimsoll::{Engine, Error, Plimsoll, Result};

const PARTITIONS: u32 = 3;

/// One partition of a job whose partitions all succeed.
async fn map_then_reduce(engine: &Engine, partition: u32) -> Result<()> {
    let me = engine.jobs().join("count", partition, PARTITIONS).await?;
    me.set_started(NewState::of("map")?).await?;
    // Some are faster than others.
    let work = Duration::from_millis(20) * (PARTITIONS - partition);
    engine.clock().sleep(work).await;
    me.set_finished(NewState::of("map")?).await?;
    println!("  partition {partition} has finished map, and waits");

    me.barrier("map", FINISHED)?.await?;
    println!("  partition {partition} begins reduce");
    let map = me.get_state(&Scope::all().tag("map")?).await?;
    assert!(map.is_finished(), "the lowest status is that of all");
    me.set_finished(NewState::of("reduce")?).await?;
    Ok(())
}

/// One partition of a job in which partition 1 fails. Answers what the barrier said.
async fn map_or_fail(engine: &Engine, partition: u32) -> Result<Result<State>> {
    let me = engine.jobs().join("broken", partition, PARTITIONS).await?;
    me.set_started(NewState::of("map")?).await?;
    match partition {
        // This one would take an hour. Nobody waits for it.
        0 => {}
        1 => {
            let error = Coded {
                status: -40,
                source: "input is not UTF-8".into(),
            };
            me.set_error(&error, NewState::of("map")?).await?;
        }
        _ => drop(me.set_finished(NewState::of("map")?).await?),
    }
    Ok(me.barrier("map", FINISHED)?.await)
}

/// Which partition keeps the others, and the status that it has.
fn failed(error: &Error) -> Option<(u32, i32)> {
    let Error::Conflict(conflict) = error else {
        return None;
    };
    match **conflict {
        Conflict::PartitionFailed {
            partition, status, ..
        } => Some((partition, status)),
        _ => None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;

    println!("Two phases:");
    let partitions = (0..PARTITIONS).map(|partition| map_then_reduce(&engine, partition));
    try_join_all(partitions).await?;

    println!("Partition 1 fails, so that the others do not wait for partition 0:");
    let partitions = (0..PARTITIONS).map(|partition| map_or_fail(&engine, partition));
    for (told, partition) in join_all(partitions).await.into_iter().zip(0..) {
        let error = told?.err().ok_or("nobody can have got past the barrier")?;
        println!("  partition {partition} is told: {error}");
        assert_eq!(failed(&error), Some((1, -40)));
    }

    println!("Of a third job, only partition 0 ever comes:");
    let alone = engine.jobs().join("lonely", 0, PARTITIONS).await?;
    alone.set_finished(NewState::of("map")?).await?;
    let map = alone.get_state(&Scope::all().tag("map")?).await?;
    println!(
        "  partition {} is last, with status {}",
        map.partition, map.status
    );
    let barrier = alone.barrier("map", FINISHED)?;
    let late = barrier.within(Duration::from_millis(50)).await;
    let late = late.err().ok_or("nobody can have got past the barrier")?;
    println!("  {late}");
    assert_eq!(late.code(), "barrier_not_reached");
    Ok(())
}
