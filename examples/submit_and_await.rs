//! Ask for something and wait for the answer, as if it were a function call; only that the caller,
//! the worker and the machine may all be restarted in between. Whoever asks for the same thing
//! waits for the same task.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use plimsoll::worker::{Context, Json};
use plimsoll::{Plimsoll, tasks};

async fn summarize(context: Context, Json(text): Json<String>) -> Json<usize> {
    println!("  the worker reads {} letters, once", text.len());
    context
        .engine()
        .clock()
        .sleep(Duration::from_millis(100))
        .await;
    Json(text.split_whitespace().count())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("docs").await?;
    let worker = engine.worker("w1").queue("texts");
    let worker = worker.handle("summarize", summarize).build()?;
    let stopper = worker.stopper();

    let client = engine.tasks();
    let ask = async |who: &str| -> plimsoll::Result<usize> {
        let text = "All happy families are alike";
        let task = client.json("texts", "summarize", text)?;
        let task = client
            .submit_and_wait(task.key("summarize-tolstoy".try_into()?))
            .await?;
        // A task that failed or was cancelled is answered as well: look at its status.
        let words = tasks::result(&task)?.unwrap_or_default();
        println!(
            "  {who}: task {} is {}, {words} words",
            task.id(),
            task.status
        );
        Ok(words)
    };

    println!("Three ask at the same time, a fourth when it is all over:");
    let asking = async {
        let answers = tokio::try_join!(ask("Ada"), ask("Bob"), ask("Eve"))?;
        let late = ask("late").await?;
        stopper.drain();
        Ok::<_, plimsoll::Error>((answers, late))
    };
    let (summary, answers) = tokio::join!(worker.run(), asking);
    // None, if this has run before: the task of that key has ended, and its answer is kept.
    assert!(summary?.started <= 1);
    assert_eq!(answers?, ((5, 5, 5), 5));

    println!("To wait for no longer than a while, drop the future:");
    let nobody = client.submit(client.task("texts", "unknown", "")?).await?;
    tokio::select! {
        _ = client.wait(nobody.id) => println!("  done?!"),
        () = engine.clock().sleep(Duration::from_millis(50)) => {
            println!("  not done yet; the task stays, and can be waited for again");
        }
    }
    Ok(())
}
