//! Submit the same thing twice and it happens once: an idempotency key makes a task the same as an
//! earlier one. How long the key lasts, and what a duplicate does, is said with it.

#![allow(clippy::print_stdout)]

use plimsoll::Plimsoll;
use plimsoll::store::{Counts, SubmitOutcome};
use plimsoll::task::{KeyLifetime, OnConflict, Status};

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("shop").await?;
    let tasks = engine.tasks();
    let charge = |payload: &'static str| -> plimsoll::Result<_> {
        Ok((tasks.task("orders", "charge", payload)?).key("order-123-charge".try_into()?))
    };

    println!("A web handler submits, times out, and its caller tries again:");
    let first = tasks.submit(charge("12.50 EUR")?).await?;
    let again = tasks.submit(charge("12.50 EUR")?).await?;
    println!("  first: {:?}, again: {:?}", first.outcome, again.outcome);
    assert_eq!(first.id, again.id);
    assert_eq!(again.outcome, SubmitOutcome::Existing);

    println!("A duplicate with another payload is told, and changes nothing:");
    let other = tasks.submit(charge("99.00 EUR")?).await?;
    println!("  {:?}", other.outcome);
    assert_eq!(other.outcome, SubmitOutcome::ExistingOtherPayload);
    assert_eq!(tasks.get(first.id).await?.spec.payload, "12.50 EUR");

    println!("Twenty at the same time make one task:");
    let reindex = || -> plimsoll::Result<_> {
        let task = tasks.task("search", "reindex", "all")?;
        // The key is free again when the task has ended.
        let lifetime = KeyLifetime::WhileActive;
        Ok(task.key_with("reindex".try_into()?, lifetime, OnConflict::Attach))
    };
    let twenty = (0..20).map(|_| reindex()).collect::<Result<Vec<_>, _>>()?;
    let outcomes = tasks.submit_all(twenty).await;
    let created = (outcomes.iter().flatten())
        .filter(|submitted| submitted.outcome == SubmitOutcome::Created)
        .count();
    println!("  created: {created}");
    assert_eq!((outcomes.len(), created), (20, 1));

    println!("When it has ended, the same key makes a new one:");
    let worker = engine.worker("w1").queue("search");
    let worker = worker.handle("reindex", async || {}).build()?;
    worker.run_until_empty().await?;
    let next = tasks.submit(reindex()?).await?;
    println!("  {:?}", next.outcome);
    assert_eq!(next.outcome, SubmitOutcome::Created);

    println!("Newest wins: a pending one is replaced.");
    let newest = tasks.task("search", "reindex", "only today")?;
    let newest = newest.key_with(
        "reindex".try_into()?,
        KeyLifetime::WhileActive,
        OnConflict::ReplacePending,
    );
    let newest = tasks.submit(newest).await?;
    assert_eq!(newest.outcome, SubmitOutcome::Created);
    assert_eq!(tasks.get(next.id).await?.status, Status::Cancelled);

    for lane in tasks.counts(Counts::default()).await? {
        println!("  {}: {:?}", lane.lane, lane.by_status);
    }
    // Nobody waits for it here.
    tasks.cancel(newest.id, None).await?;
    Ok(())
}
