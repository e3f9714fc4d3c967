//! A manager reads what it and the others have written, and closes.

use plimsoll_core::record::fields;
use plimsoll_core::store::{Merge, Write};
use plimsoll_core::{Error, Key, Name, Result, StoreExt};
use plimsoll_engine::jobs::{FINISHED, NewState, Scope, StateEvent, SubscribeOptions};
use serde_json::json;

use crate::world::{in_memory, spawn, worlds};

fn ingest() -> Scope {
    Scope::all().tag("ingest").unwrap()
}

#[tokio::test]
async fn a_writer_reads_its_own_writes_also_through_other_handles_of_its_process() -> Result<()> {
    for world in worlds().await {
        let process = world.process(1);
        let manager = process.jobs.join("import", 0, 1).await?;
        let monitor = process.jobs.monitor("import").await?;
        for status in 1..50 {
            manager.set_state(NewState::new("ingest", status)?).await?;
            assert_eq!(manager.get_state(&ingest()).await?.status, status);
            let read = monitor.get_state(&Scope::all()).await?;
            assert_eq!((read.status, read.version), (status, status as u64));
            assert!(read.timestamp.is_some());
        }
    }
    Ok(())
}

/// What a writer has not been told yet it knows from what it wrote.
#[tokio::test]
async fn a_writer_reads_of_its_own_writes_what_others_read() -> Result<()> {
    let payloads = [
        Some(
            json!({"a": 0.1, "b": [1e300, -0.0, 18_446_744_073_709_551_615_u64, null], "ü": {"": "\u{0}\n"}}),
        ),
        None,
        Some(json!({})),
        Some(json!({"z": 1, "a": 2})),
    ];
    for world in worlds().await {
        let (one, other) = (world.process(1), world.process(2));
        let manager = one.jobs.join("import", 0, 1).await?;
        let monitor = other.jobs.monitor("import").await?;
        // From now on somebody reads the job here, and is told of what is written.
        manager.get_state(&ingest()).await?;
        for (n, payload) in payloads.iter().enumerate() {
            let state = NewState::new("ingest", n as i32 - 2)?.message(format!("{n} äöü \"\n"));
            let state = state
                .event_id(format!("event-{n}"))?
                .schema_version(7 + n as u32);
            let state = match payload {
                Some(payload) => state.payload(payload)?,
                None => state,
            };
            manager.set_state(state).await?;
            let own = manager.get_state(&ingest()).await?;
            assert_eq!(
                (own.version, own.schema_version),
                (n as u64 + 1, 7 + n as u32)
            );
            monitor.refresh().await?;
            assert_eq!(monitor.get_state(&ingest()).await?, own);
            manager.refresh().await?;
            assert_eq!(manager.get_state(&ingest()).await?, own);
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_another_process_wrote_is_there_after_a_refresh() -> Result<()> {
    for world in worlds().await {
        let (one, other) = (world.process(1), world.process(2));
        let writer = one.jobs.join("import", 0, 2).await?;
        let reader = other.jobs.join("import", 1, 2).await?;
        assert_eq!(reader.get_state(&ingest()).await?.status, 0);
        for status in 1..20 {
            writer.set_state(NewState::new("ingest", status)?).await?;
            reader.refresh().await?;
            let read = reader.get_state(&Scope::all().partition(0)).await?;
            assert_eq!(read.status, status);
            // The other partition has said nothing.
            assert_eq!(reader.get_state(&ingest()).await?.partition, 1);
        }
    }
    Ok(())
}

#[tokio::test]
async fn partitions_meet_at_a_barrier() -> Result<()> {
    for world in worlds().await {
        let process = world.process(1);
        let mut managers = Vec::new();
        for partition in 0..3 {
            managers.push(process.jobs.join("import", partition, 3).await?);
        }
        let barrier = managers[0].barrier("ingest", FINISHED)?;
        let barrier = spawn(async move { barrier.await });
        for manager in &managers {
            assert!(!barrier.is_finished());
            manager.set_finished(NewState::of("ingest")?).await?;
        }
        assert!(barrier.await.unwrap()?.is_finished());
    }
    Ok(())
}

#[tokio::test]
async fn a_manager_that_is_closed_has_written_everything_and_ends_its_subscriptions() -> Result<()>
{
    for world in worlds().await {
        let process = world.process(1);
        let manager = process.jobs.join("import", 0, 1).await?;
        let monitor = process.jobs.monitor("import").await?;
        let mut own = manager
            .subscribe(Scope::all(), SubscribeOptions::default())
            .await?;
        let mut others = monitor
            .subscribe(Scope::all(), SubscribeOptions::default())
            .await?;
        for events in [&mut own, &mut others] {
            let marker = events.next().await.unwrap()?;
            assert!(matches!(marker, StateEvent::ReplayComplete { .. }));
        }
        let writes: Vec<_> = (1..=100)
            .map(|status| manager.set_state(NewState::new("ingest", status).unwrap()))
            .collect();
        manager.clone().close().await;
        for write in writes {
            write.await?;
        }
        assert_eq!(own.next().await, None);
        for status in 1..=100 {
            match others.next().await.unwrap()? {
                StateEvent::State(state) => assert_eq!(state.status, status),
                other => panic!("{other:?}"),
            }
        }
        let refused = manager.set_finished(NewState::of("ingest")?).await;
        assert_eq!(refused, Err(Error::Closed));
        assert_eq!(manager.get_state(&Scope::all()).await, Err(Error::Closed));
        manager.close().await;
        // The job and the store go on.
        let again = process.jobs.join("import", 0, 1).await?;
        assert_eq!(
            again.set_finished(NewState::of("ingest")?).await?.version,
            101
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_subscription_that_waits_is_ended_by_closing_its_manager_and_not_by_dropping_it()
-> Result<()> {
    let world = in_memory();
    let process = world.process(1);
    let mut waiting = Vec::new();
    let (dropped, closed) = (
        process.jobs.join("import", 0, 2).await?,
        process.jobs.join("import", 1, 2).await?,
    );
    for manager in [&dropped, &closed] {
        let mut events = manager
            .subscribe(Scope::all(), SubscribeOptions::default())
            .await?;
        waiting.push(spawn(async move {
            let mut told = 0;
            while let Some(event) = events.next().await {
                event.unwrap();
                told += 1;
            }
            told
        }));
    }
    world.settle().await;
    drop(dropped);
    closed.close().await;
    world.settle().await;
    assert!(!waiting[0].is_finished());
    assert!(waiting[1].is_finished());
    Ok(())
}

#[tokio::test]
async fn a_job_that_a_sweeper_closes_and_a_writer_opens_again_goes_on_for_its_readers() -> Result<()>
{
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await?;
    manager.set_finished(NewState::of("ingest")?).await?;
    let mut events = manager
        .subscribe(Scope::all(), SubscribeOptions::default())
        .await?;
    for _ in 0..2 {
        events.next().await.unwrap()?;
    }
    // As a sweeper does it that makes sure that the job has ended.
    let closing = Merge::new(Key::new("plimsoll.jobs.import")?)
        .unset(Name::new("generation")?)
        .set(fields([("closing", "1")])?);
    (world.store).write(Write::Merge(closing)).await?;
    world.settle().await;
    assert!(manager.get_state(&Scope::all()).await?.is_finished());
    manager.set_state(NewState::new("ingest", 7)?).await?;
    assert!(matches!(
        events.next().await.unwrap()?,
        StateEvent::State(state) if state.status == 7
    ));
    Ok(())
}
