//! Of three processes one leads. It resigns, another dies, and each time the next takes over.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::Plimsoll;
use plimsoll::locks::Election;
use tokio::runtime::{Builder, Runtime};

/// A process, as far as the file can tell: it opens the file by itself, and has a runtime of its
/// own. When that ends, everything it was doing ends with it.
struct Process {
    runtime: Runtime,
    election: Election,
}

fn process(url: &str, name: &str) -> Result<Process, Box<dyn std::error::Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let engine = runtime.block_on(async { Plimsoll::open(url)?.engine("fleet").await })?;
    let election = engine.locks().election("scheduler", name);
    Ok(Process {
        runtime,
        // How long a dead leader is waited for.
        election: election.ttl(Duration::from_secs(1)),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("election.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let (ada, bob, cy) = (
        process(&url, "ada")?,
        process(&url, "bob")?,
        process(&url, "cy")?,
    );

    let leads = ada.runtime.block_on(ada.election.campaign())?;
    let first = leads.token();
    println!("ada leads, with token {first}, and resigns");
    ada.runtime.block_on(leads.resign())?;

    let leads = bob.runtime.block_on(bob.election.campaign())?;
    let second = leads.token();
    println!("bob leads, with token {second}, and dies");
    assert!(second > first);
    drop(bob.runtime);
    let seen = ada.runtime.block_on(ada.election.leader())?;
    println!(
        "  the store still says {:?}",
        seen.map(|leader| leader.candidate)
    );

    // The work runs as long as cy leads. It is dropped where it stands if that ends before.
    let work = cy.election.lead(async |tenure| {
        println!("cy leads, with token {}", tenure.token());
        tenure.token()
    });
    let third = cy.runtime.block_on(work)?;
    assert!(third > second);

    let seen = ada.runtime.block_on(ada.election.leader())?;
    println!("cy is done and has resigned: {seen:?} leads");
    assert!(seen.is_none());
    Ok(())
}
