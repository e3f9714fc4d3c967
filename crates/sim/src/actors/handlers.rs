//! What handlers do: one kind for each way in which they may behave.
//!
//! | kind | what it does |
//! |---|---|
//! | `plain` | a little work, then success |
//! | `flaky` | fails half of the time: as its policy says, after a while, or for good |
//! | `slow` | takes longer than its lease, with or without listening when it is asked to stop |
//! | `snoozer` | puts itself off, gives itself back or calls itself off |
//! | `panicky` | panics now and then |
//! | `spawner` | submits further tasks together with its success |
//! | `staged` | goes through the stages of its lifecycle and logs, and forgets a stage now and then |
//! | `poison` | kills its process, unless the profile is calm |
//!
//! Every success writes a record in the same commit, and some write records under their fence on the
//! way, so that the checkers see which fence was believed.

use std::time::Duration;

use plimsoll_core::log::Level;
use plimsoll_core::record::{Fields, fields};
use plimsoll_core::store::{Commit, Guard, Merge, Write};
use plimsoll_core::task::{KeyLifetime, Lane, NewTask, OnConflict, Progress};
use plimsoll_core::{IdempotencyKey, Invalid, Key, Name, Result, StoreExt};
use plimsoll_engine::worker::{Answer, Completion, Context, Failure};

use super::Station;
use super::orders::{KEYS, QUEUES, STAGES};
use crate::check::{DONE, STEP};

/// After so many attempts everything succeeds, so that everything ends.
const ATTEMPTS_MAX: u32 = 6;

/// Works on a task as its kind says.
pub(crate) async fn handle(station: Station, context: Context) -> Answer {
    match behave(&station, &context).await {
        Ok(answer) => answer,
        // What the handler wanted to write was refused or did not come through.
        Err(error) if station.dice.chance(500) => Answer::Fail(Failure::new(error.to_string())),
        Err(_) => done(&station, &context),
    }
}

async fn behave(station: &Station, context: &Context) -> Result<Answer> {
    let dice = &station.dice;
    rely(station, context);
    let last = context.attempt() > ATTEMPTS_MAX;
    let kind = context.task().spec.lane.kind.as_str();
    if kind == "poison" && !station.world.profile.calm {
        station.doom.seal();
        std::future::pending::<()>().await;
    }
    if kind == "staged" {
        return staged(station, context, last).await;
    }
    let (low, high) = match kind {
        "slow" if !last => (1_000, 30_000),
        _ => (0, 1_500),
    };
    let pieces = dice.range(1, 3);
    let listens = dice.chance(600);
    for _ in 0..pieces {
        if dice.chance(300) {
            write_something(station, context).await?;
            rely(station, context);
        }
        let nap = dice.millis(low, high) / u32::try_from(pieces).unwrap_or(1);
        if !sleep(station, context, nap, listens).await {
            return Ok(match dice.below(3) {
                0 => Answer::Release,
                1 => Answer::Cancel(None),
                _ => done(station, context),
            });
        }
        rely(station, context);
    }
    Ok(match kind {
        _ if last => done(station, context),
        "flaky" if dice.chance(500) => Answer::Fail(match dice.below(5) {
            0 => Failure::fatal("for good"),
            1 => Failure::retry_after(dice.millis(0, 5_000), "later"),
            _ => Failure::new("once more"),
        }),
        "snoozer" => match dice.below(6) {
            0 | 1 => Answer::Snooze(dice.millis(0, 5_000)),
            2 => Answer::Release,
            3 => Answer::Cancel(Some("by itself".into())),
            _ => done(station, context),
        },
        // Without a word to standard error, as `panic!` would have.
        "panicky" if dice.chance(400) => std::panic::resume_unwind(Box::new("on purpose")),
        "spawner" => more(station, context)?,
        _ => done(station, context),
    })
}

/// Goes through the stages, and logs its lines by number.
async fn staged(station: &Station, context: &Context, last: bool) -> Result<Answer> {
    let dice = &station.dice;
    let mut lines = 0;
    for stage in STAGES {
        // What follows a stage that was forgotten is refused, success included.
        if last || dice.chance(950) {
            context.stage(Name::new(stage)?).await?;
        }
        for _ in 0..dice.below(4) {
            context.log(Level::Info, lines.to_string()).await?;
            lines += 1;
        }
        rely(station, context);
        sleep(station, context, dice.millis(0, 400), false).await;
    }
    let logged = fields([("lines", lines.to_string())])?;
    Ok(Answer::Complete(completion(context, logged)?))
}

/// Sleeps; `false`: it was asked to stop, and listened.
async fn sleep(station: &Station, context: &Context, nap: Duration, listens: bool) -> bool {
    let clock = station.engine.clock();
    if !listens {
        clock.sleep(nap).await;
        return true;
    }
    tokio::select! {
        biased;
        _ = context.cancellation() => false,
        () = clock.sleep(nap) => true,
    }
}

/// What a worker says of a lease must be so, and nobody works on without one.
fn rely(station: &Station, context: &Context) {
    let mut checker = station.world.checker();
    if context.still_mine() {
        checker.relies(context.holder());
    }
    checker.still_runs(context.holder(), station.resumed.get());
}

async fn write_something(station: &Station, context: &Context) -> Result<()> {
    let holder = context.holder();
    match station.dice.below(4) {
        0 => {
            let percent = Some(50);
            let progress = Progress {
                percent,
                ..Progress::default()
            };
            context.progress(progress).await
        }
        1 => context.checkpoint("half way").await,
        2 => context.log(Level::Info, "half way").await,
        _ => {
            let key = Key::new(format!("{STEP}{}", holder.task))?;
            let fence = fields([("fence", holder.fence.to_string())])?;
            let commit = Commit::new()
                .guard(Guard::Held(holder.clone()))
                .write(Write::Merge(Merge::new(key).set(fence)));
            station.engine.store().commit_one(commit).await.map(drop)
        }
    }
}

/// Success, with a record of it in the same commit.
fn done(station: &Station, context: &Context) -> Answer {
    match completion(context, Fields::new()) {
        Ok(completion) => Answer::Complete(completion),
        Err(invalid) => {
            let wrong = format!("{}: {invalid}", station.who);
            station.world.checker().blame("gave up", wrong);
            Answer::Release
        }
    }
}

fn completion(context: &Context, more: Fields) -> Result<Completion, Invalid> {
    let holder = context.holder();
    let key = Key::new(format!("{DONE}{}", holder.task))?;
    let record = Merge::new(key)
        .set(fields([("fence", holder.fence.to_string())])?)
        .set(more)
        .add(Name::new("times")?, 1);
    Ok(Completion::bytes(holder.fence.to_string()).write(Write::Merge(record)))
}

/// Success, with further tasks in the same commit.
fn more(station: &Station, context: &Context) -> Result<Answer> {
    let dice = &station.dice;
    let mut completion = completion(context, Fields::new())?;
    for _ in 0..dice.range(1, 2) {
        let lane = Lane::new(*dice.pick(&QUEUES), "plain")?;
        let mut task = NewTask::new(dice.ids().task(), lane, "more");
        if dice.chance(300) {
            // Perhaps the key stands for another one: then the whole answer is refused.
            let key = IdempotencyKey::new(format!("k{}", dice.below(KEYS)))?;
            task = task.key_with(key, KeyLifetime::WhileActive, OnConflict::Reject);
        }
        completion = completion.submit(task);
    }
    Ok(Answer::Complete(completion))
}
