//! The stages of a media pipeline: a worker moves its task along them, and no other way. A handler
//! that claims to be done too early fails, at once and by name.

#![allow(clippy::print_stdout)]

use plimsoll::lifecycle::{Lifecycle, Phase};
use plimsoll::task::Status;
use plimsoll::worker::{Context, Failure};
use plimsoll::{Name, Plimsoll};

const STAGES: [&str; 5] = [
    "validating",
    "planning",
    "downloading_inputs",
    "processing",
    "uploading_outputs",
];

/// A claim puts the task into the first stage; the handler does the rest.
async fn transcode(context: Context) -> Result<(), Failure> {
    for stage in &STAGES[1..] {
        context.stage(Name::new(stage)?).await?;
    }
    Ok(())
}

/// Leaves out everything between the first stage and the end.
async fn careless() {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    let media = Lifecycle::row(STAGES)?;
    println!("From validating a task may go to:");
    for phase in media.allowed(&Phase::Stage(Name::new("validating")?)) {
        println!("  {phase}");
    }

    // Whatever is submitted of these kinds carries the lifecycle from then on.
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let engine = engine
        .lifecycle("transcode", media.clone())?
        .lifecycle("careless", media)?;
    let tasks = engine.tasks();
    let good = tasks.submit(tasks.task("media", "transcode", "clip-7")?);
    let good = good.await?.id;
    let bad = tasks.task("media", "careless", "clip-8")?.max_attempts(1);
    let bad = tasks.submit(bad).await?.id;

    let worker = engine.worker("w1").queue("media");
    let worker = worker.handle("transcode", transcode);
    let worker = worker.handle("careless", careless).build()?;
    worker.run_until_empty().await?;

    assert_eq!(tasks.get(good).await?.status, Status::Completed);
    let bad = tasks.get(bad).await?;
    println!("The careless one has {}:", bad.status);
    println!("  {}", bad.errors[0].message);
    assert_eq!(bad.status, Status::Failed);
    assert!(
        bad.errors[0]
            .message
            .contains("from validating to completed")
    );
    Ok(())
}
