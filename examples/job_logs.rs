//! A handler logs and runs commands; somebody follows along, and reads afterwards which commands ran
//! and how they ended.

#![allow(clippy::print_stdout)]

use plimsoll::log::Level;
use plimsoll::tasks::StepEnd;
use plimsoll::worker::{Context, Failure};
use plimsoll::{Plimsoll, Tasks};

async fn transcode(context: Context) -> Result<(), Failure> {
    context.log(Level::Info, "two passes are enough").await?;
    for pass in ["pass-1", "pass-2"] {
        let step = context.step(pass, "ffmpeg")?;
        let step = step.command(format!("ffmpeg -pass {pass} in.mov"));
        let step = step.start().await?;
        // Lines are gathered: a thousand of them cost about one commit.
        for frame in 0..1_000 {
            context.log(Level::Debug, format!("frame {frame}")).await?;
        }
        let end = StepEnd::exit(0).stdout("frame= 1000 fps= 25\n");
        step.end(end).await?;
    }
    Ok(())
}

/// Shows what the task says, from Info up, until it has ended.
async fn follow(tasks: &Tasks, id: plimsoll::TaskId) -> plimsoll::Result<usize> {
    use futures::TryStreamExt;
    let mut lines = tasks.follow_logs(id, Level::Info);
    let mut count = 0;
    while let Some(line) = lines.try_next().await? {
        println!("  {:?} {}", line.line.level, line.line.message);
        count += 1;
    }
    Ok(count)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> plimsoll::Result<()> {
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or("memory:".into());
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let tasks = engine.tasks();
    let id = tasks.submit(tasks.task("media", "transcode", "clip-7")?);
    let id = id.await?.id;
    let worker = engine.worker("w1").queue("media");
    let worker = worker.handle("transcode", transcode).build()?;

    println!("Live:");
    let (_, lines) = tokio::try_join!(worker.run_until_empty(), follow(&tasks, id))?;
    assert_eq!(lines, 5);

    println!("Steps:");
    let steps = tasks.steps(id).await?;
    for step in &steps {
        let (code, took) = (step.exit_code.unwrap_or(-1), step.duration_ms.unwrap_or(0));
        println!("  {} exit code {code} after {took} ms", step.step_id);
    }
    assert!(steps.len() == 2 && steps.iter().all(|step| step.success == Some(true)));
    Ok(())
}
