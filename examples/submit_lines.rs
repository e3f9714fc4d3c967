//! Submits every line of its standard input as a task:
//! `ls *.png | cargo run --example submit_lines -- sqlite:plimsoll.db images thumbnail`.

#![allow(clippy::print_stdout)]

use plimsoll::{IdempotencyKey, Plimsoll};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().unwrap_or("memory:".into());
    let queue = arguments.next().unwrap_or("images".into());
    let kind = arguments.next().unwrap_or("thumbnail".into());
    let tasks = Plimsoll::open(&store)?.engine("default").await?.tasks();

    let mut new = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        // With a key, whoever runs the same pipe again submits nothing twice.
        let key = IdempotencyKey::new(format!("{queue}/{kind}/{line}"))?;
        new.push(tasks.task(&queue, &kind, line)?.key(key));
    }
    for submitted in tasks.submit_all(new).await {
        let submitted = submitted?;
        println!("{} {:?}", submitted.id, submitted.outcome);
    }
    Ok(())
}
