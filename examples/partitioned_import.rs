//! An import in four partitions, in a file: each is a task, and says how far it is with each of its two
//! steps. One fails and is tried again; it goes on with the step that it had not finished. Somebody looks
//! on, and sees at every moment where the job stands: as far as the last of its partitions.

#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll::jobs::{Coded, FINISHED, Monitor, NewState, Scope, State};
use plimsoll::jobs::{StateEvent, SubscribeOptions, Subscription};
use plimsoll::task::{Backoff, KeyLifetime, OnConflict, RetryPolicy};
use plimsoll::worker::{Context, Failure, Json};
use plimsoll::{Plimsoll, Result};

const JOB: &str = "import-7";
const PARTITIONS: u32 = 4;
const STEPS: [&str; 2] = ["extract", "load"];
const DISK_FULL: i32 = -28;

async fn import(context: Context, Json(partition): Json<u32>) -> Result<(), Failure> {
    let jobs = context.engine().jobs();
    let me = jobs.join(JOB, partition, PARTITIONS).await?;
    // The attempt before may have been in another process: what it wrote must be seen here.
    me.refresh().await?;
    let mut steps = Vec::new();
    for step in STEPS {
        let mine = Scope::all().partition(partition).tag(step)?;
        let state = me.get_state(&mine).await?;
        if !state.exists() {
            // What nobody has mentioned is not waited for: between two steps, the job would look finished.
            me.set_state(NewState::of(step)?.message("waits")).await?;
        }
        if !state.is_finished() {
            steps.push(step);
        }
    }
    for step in steps {
        me.set_started(NewState::of(step)?).await?;
        context.engine().clock().sleep(WORK).await;
        if (partition, step, context.attempt()) == (2, "load", 1) {
            let error = Coded {
                status: DISK_FULL,
                source: "disk full".into(),
            };
            me.set_error(&error, NewState::of(step)?).await?;
            return Err(error.into());
        }
        me.set_state(NewState::new(step, 50)?.message("50 %"))
            .await?;
        context.engine().clock().sleep(WORK).await;
        // If the process dies before the task is completed, the next one finds this and skips the step.
        me.set_finished(NewState::of(step)?).await?;
    }
    Ok(())
}

/// So that the partitions have something to wait for, and take turns.
const WORK: Duration = Duration::from_millis(5);

/// Tells of every change, and where the job stands by then, until everything is finished. Answers the
/// changes.
async fn look_on(monitor: &Monitor, mut events: Subscription) -> Result<Vec<State>> {
    let (mut changes, mut finished) = (Vec::new(), BTreeSet::new());
    while finished.len() < PARTITIONS as usize * STEPS.len() {
        let Some(event) = events.next().await.transpose()? else {
            break;
        };
        let StateEvent::State(state) = event else {
            continue;
        };
        let job = monitor.get_state(&Scope::all()).await?;
        println!("  {:<46} the job: {}", line(&state), line(&job));
        if state.is_finished() {
            finished.insert((state.partition, state.tag.clone()));
        }
        changes.push(State::clone(&state));
    }
    Ok(changes)
}

fn line(state: &State) -> String {
    let tag = state.tag.as_ref().map_or("-", |tag| tag.as_str());
    let status = match state.status {
        FINISHED => "done".to_owned(),
        status => status.to_string(),
    };
    let (partition, version) = (state.partition, state.version);
    format!(
        "{partition} {tag:<7} {status:>4}  {} (v{version})",
        state.message
    )
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("import.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let engine = Plimsoll::open(&url)?.engine("imports").await?;
    let (tasks, jobs) = (engine.tasks(), engine.jobs());

    // The import of last night, if that is there: this is another one of its name.
    jobs.delete(JOB).await?;
    // Whoever submits the partitions creates the job, and says what it is about.
    let job = jobs
        .join(JOB, 0, PARTITIONS)
        .about("source", "ftp")?
        .await?;
    assert!(job.created());
    let soon = RetryPolicy {
        backoff: Backoff::Fixed(Duration::from_millis(30)),
        ..RetryPolicy::default()
    };
    for partition in 0..PARTITIONS {
        let task = tasks.json("imports", "import", &partition)?;
        let key = format!("{JOB}-{partition}").try_into()?;
        let task = task.key_with(key, KeyLifetime::WhileActive, OnConflict::Attach);
        tasks.submit(task.retry(soon.clone())).await?;
    }

    println!("partition, step, status, message (version):");
    let monitor = jobs.monitor(JOB).await?;
    let events = monitor.subscribe(Scope::all(), SubscribeOptions::default());
    let events = events.await?;
    let worker = engine.worker("w1").queue("imports");
    let worker = worker.handle("import", import).build()?;
    let stopper = worker.stopper();
    let looking = async {
        let changes = look_on(&monitor, events).await;
        stopper.drain();
        changes
    };
    let (summary, changes) = tokio::join!(worker.run(), looking);
    let (summary, changes) = (summary?, changes?);

    println!("Progress by step:");
    let progress = monitor.progress().await?;
    for step in &progress {
        println!("  {}: {} of {PARTITIONS} finished", step.tag, step.finished);
        assert_eq!((step.finished, step.failed), (PARTITIONS, 0));
    }
    assert_eq!(progress.len(), STEPS.len());
    assert_eq!((summary.completed, summary.retried), (4, 1));

    // It failed once, said so with the status of its error, and did not extract again.
    let of = |tag: &str| {
        let states = changes.iter().filter(|state| state.partition == 2);
        let states = states.filter(|state| state.tag.as_ref().is_some_and(|of| of.as_str() == tag));
        states.map(|state| state.status).collect::<Vec<_>>()
    };
    assert_eq!(of("extract"), [0, 1, 50, FINISHED]);
    assert_eq!(of("load"), [0, 1, DISK_FULL, 1, 50, FINISHED]);
    assert_eq!(changes.len(), 4 * 8 + 2);
    assert!(monitor.get_state(&Scope::all()).await?.is_finished());
    Ok(())
}
