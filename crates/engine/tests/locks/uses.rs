//! What locks are for: one worker processes a job, and one registers a worker.

use plimsoll_core::record::fields;
use plimsoll_core::store::{Put, Write};
use plimsoll_core::{Key, Result, StoreExt};

use crate::world::{Process, World, code, seconds, spawn};

/// Processes a job, unless somebody does already.
async fn process_job(process: &Process, job: &str, minutes: f64) -> Result<()> {
    let lock = process.locks.lock(format!("job:{job}")).ttl(seconds(300.0));
    let guard = lock.owner("worker").try_acquire().await?;
    process.engine.clock().sleep(seconds(minutes * 60.0)).await;
    guard.release().await
}

#[tokio::test]
async fn a_job_is_processed_by_one_worker_at_a_time_however_long_it_takes() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let first = spawn(async move { process_job(&a, "42", 20.0).await });
    w.pass(seconds(60.0)).await;
    // Also long after the five minutes that the lock would live by itself.
    for _ in 0..3 {
        assert_eq!(code(process_job(&b, "42", 0.0).await), "lock_not_acquired");
        process_job(&b, "43", 0.0).await?;
        w.pass(seconds(350.0)).await;
    }
    w.time(first).await.1?;
    process_job(&b, "42", 0.0).await
}

#[tokio::test]
async fn a_worker_is_registered_by_one_at_a_time() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let key = Key::new("workers.w1")?;
    let register = async |process: &Process, host: &'static str| {
        let lock = process.locks.lock("worker:w1").ttl(seconds(30.0));
        let upsert = lock.with(async |_| {
            let before = process.engine.store().record(&key).await?;
            let hosts = before.map_or(String::new(), |record| {
                String::from_utf8_lossy(&record.fields["hosts"]).into_owned()
            });
            // Others would get in here, if there were no lock.
            tokio::task::yield_now().await;
            let fields = fields([("hosts", format!("{hosts}{host} "))])?;
            let put = Write::Put(Put::new(key.clone(), fields));
            process.engine.store().write(put).await.map(drop)
        });
        upsert.await?
    };
    let (one, two) = futures::join!(register(&a, "h1"), register(&b, "h2"));
    one.and(two)?;
    let record = w.store().record(&key).await?.unwrap();
    assert_eq!(record.fields["hosts"].len(), "h1 h2 ".len());
    Ok(())
}
