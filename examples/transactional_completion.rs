//! Completing a task, writing what it changed and submitting what follows is one commit: either all
//! of it happens or nothing. There is no moment in between for a crash to hit.

#![allow(clippy::print_stdout)]

use plimsoll::store::{Merge, Write};
use plimsoll::worker::{Completion, Context, Failure, Json};
use plimsoll::{Key, Plimsoll, StoreExt};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Payment {
    order: u32,
    cents: i64,
}

async fn charge(context: Context, Json(payment): Json<Payment>) -> Result<Completion, Failure> {
    let tasks = context.engine().tasks();
    let ship = tasks.json("orders", "ship", &payment.order)?;
    let book = Merge::new(Key::new("accounts.shop")?)
        .add("cents".try_into()?, payment.cents)
        .add("payments".try_into()?, 1);
    Ok(Completion::json(&"charged")?
        .write(Write::Merge(book))
        .submit(ship))
}

async fn ship(Json(order): Json<u32>) {
    println!("  order {order} is on its way");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("shop.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("shop").await?;
    let tasks = engine.tasks();

    // A new year: the books are empty.
    engine.records().delete("accounts.shop").await?;
    println!("Three payments, charged and booked and shipped:");
    for order in 1..=3 {
        let payment = Payment { order, cents: 500 };
        tasks
            .submit(tasks.json("orders", "charge", &payment)?)
            .await?;
    }
    let worker = || {
        let worker = engine.worker("w1").queue("orders");
        worker.handle("charge", charge).handle("ship", ship).build()
    };
    let summary = worker()?.run_until_empty().await?;
    assert_eq!(summary.completed, 6);
    let account = Key::new("accounts.shop")?;
    let booked = async || -> plimsoll::Result<String> {
        let record = engine.store().record(&account).await?;
        let cents = record.and_then(|record| record.field("cents").cloned());
        Ok(String::from_utf8_lossy(&cents.unwrap_or_default()).into_owned())
    };
    println!("  in the books: {} cents", booked().await?);
    assert_eq!(booked().await?, "1500");

    println!("One that cannot be booked, because the sum does not fit 64 bits:");
    let payment = Payment {
        order: 4,
        cents: i64::MAX,
    };
    let task = tasks.json("orders", "charge", &payment)?.max_attempts(1);
    let id = tasks.submit(task).await?.id;
    let summary = worker()?.run_until_empty().await?;
    let task = tasks.get(id).await?;
    println!("  {}: {}", task.status, task.errors[0].message);
    println!(
        "  in the books: {} cents, and nothing was shipped",
        booked().await?
    );
    assert_eq!(booked().await?, "1500");
    assert_eq!((summary.started, summary.failed), (1, 1));
    Ok(())
}
