//! What a worker tells: metrics for Prometheus, and a log line with the spans it is in.
//!
//! `cargo run --example telemetry` shows the metrics; `RUST_LOG` changes how much is logged.

#![allow(clippy::print_stdout)]

use plimsoll::telemetry::{LogFormat, Sampler, setup};
use plimsoll::worker::{Context, Failure};
use plimsoll::{Name, Plimsoll};

async fn transcode(context: Context) -> Result<(), Failure> {
    context.stage(Name::new("validating")?).await?;
    // The line carries job_id and worker_id, and the stage.
    tracing::info!("looks good");
    let work = async { context.attempt() };
    match context.in_stage(Name::new("processing")?, work).await? {
        1 => Err(Failure::fatal("no such codec")),
        _ => Ok(()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First of all: what is opened before that counts for nobody.
    let telemetry = setup("media-worker")
        .logs(LogFormat::Json)
        .metrics(([127, 0, 0, 1], 0).into())
        .install()?;
    if let Some(address) = telemetry.metrics_address() {
        println!("curl http://{address}/metrics would show:");
    }
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("media").await?;
    let tasks = engine.tasks();
    let submit = async |kind| tasks.submit(tasks.task("media", kind, "clip-7")?).await;
    submit("transcode").await?;
    let waits = submit("archive").await?;
    let worker = engine
        .worker("w1")
        .queue("media")
        .handle("transcode", transcode);
    worker.build()?.run_until_empty().await?;
    // Once for a namespace: how much waits, and for how long.
    Sampler::new(engine).sample_once().await?;

    let page = telemetry.render().unwrap_or_default();
    let told = |line: &&str| !line.is_empty() && !line.starts_with('#') && !line.ends_with(" 0");
    for line in page
        .lines()
        .filter(told)
        .filter(|line| !line.contains("bucket"))
    {
        println!("  {line}");
    }
    assert!(page.contains("jobs_completed_total{status=\"failed\"} 1"));
    assert!(page.contains("queue_size{namespace=\"media\",queue=\"media\"} 1"));
    // Nobody comes for it.
    tasks.cancel(waits.id, None).await?;
    telemetry.shutdown().await?;
    Ok(())
}
