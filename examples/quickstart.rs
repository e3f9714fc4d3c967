//! Submit tasks, let a worker do them, read the results. Everything is in one SQLite file.

#![allow(clippy::print_stdout)]

use plimsoll::worker::{Failure, Json};
use plimsoll::{Plimsoll, tasks};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    customer: String,
    cents: Vec<u32>,
}

/// A handler is an async function. It says what it needs, and answers what the task came to.
async fn invoice(Json(order): Json<Order>) -> Result<Json<u32>, Failure> {
    if order.cents.is_empty() {
        return Err(Failure::fatal("an order without items"));
    }
    Ok(Json(order.cents.iter().sum()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("shop.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("shop").await?;
    let client = engine.tasks();

    let mut ids = Vec::new();
    for (customer, cents) in [("Ada", vec![1250, 399]), ("Bob", vec![])] {
        let customer = customer.to_owned();
        let task = client.json("orders", "invoice", &Order { customer, cents })?;
        ids.push(client.submit(task).await?.id);
    }
    println!("submitted {} orders, each safe on disk", ids.len());

    // In a service this would be `run_until_signal`.
    let worker = engine
        .worker("worker-1")
        .queue("orders")
        .handle("invoice", invoice)
        .build()?;
    let summary = worker.run_until_empty().await?;
    println!(
        "worker-1 completed {} and failed {}",
        summary.completed, summary.failed
    );

    let ada = client.get(ids[0]).await?;
    let total: Option<u32> = tasks::result(&ada)?;
    println!("Ada's order is {}: {total:?} cents", ada.status);
    assert_eq!(total, Some(1649));

    let bob = client.get(ids[1]).await?;
    let why = bob.errors.last().map_or("", |error| &error.message);
    println!("Bob's order is {}: {why}", bob.status);
    assert_eq!(why, "an order without items");
    Ok(())
}
