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
//! | `staged` | goes through the stages of its lifecycle and logs, and does so wrongly now and then |
//! | `poison` | kills its process, unless the profile is calm |
//!
//! Every success writes a record in the same commit, and some write records under their fence on the
//! way, so that the checkers see which fence was believed.

use std::time::Duration;

use plimsoll_core::log::Level;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Commit, Guard, Merge, Write};
use plimsoll_core::task::{KeyLifetime, Lane, NewTask, OnConflict, Progress};
use plimsoll_core::{Error, IdempotencyKey, Invalid, Key, Name, Result, StoreExt};
use plimsoll_engine::tasks::StepEnd;
use plimsoll_engine::worker::{Answer, Completion, Context, Failure};

use super::Station;
use super::orders::{KEYS, QUEUES, STAGES};
use crate::check::{DONE, STEP, Said};

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

/// Goes through the stages, back at times, and logs what it does. It forgets a stage or asks for a
/// wrong one now and then: what its lifecycle does not allow is refused, success included.
async fn staged(station: &Station, context: &Context, last: bool) -> Result<Answer> {
    let dice = &station.dice;
    let (mut place, mut lines) = (0, 0);
    while place < STAGES.len() {
        if !last && dice.chance(100) {
            wrong_stage(station, context).await?;
        }
        if last || dice.chance(950) {
            context.stage(Name::new(STAGES[place])?).await?;
        }
        for _ in 0..dice.below(4) {
            lines += 1;
            say(station, context, lines.to_string()).await?;
        }
        if dice.chance(300) {
            run_step(station, context, format!("{place}.{lines}")).await?;
        }
        rely(station, context);
        sleep(station, context, dice.millis(0, 400), false).await;
        // From the second stage there is a way back to the first.
        place = if place == 1 && dice.chance(200) {
            0
        } else {
            place + 1
        };
    }
    Ok(match dice.below(8) {
        0 if !last => Answer::Fail(Failure::new("in the last stage")),
        1 if !last => Answer::Release,
        _ => done(station, context),
    })
}

/// Asks for a stage that is not the next one, perhaps.
async fn wrong_stage(station: &Station, context: &Context) -> Result<()> {
    let stage = Name::new(*station.dice.pick(&STAGES))?;
    match context.stage(stage).await {
        Err(Error::Conflict(_)) => Ok(()),
        answer => answer,
    }
}

/// Logs a line, which is stored when there are more of them, or soon.
async fn say(station: &Station, context: &Context, line: impl Into<String>) -> Result<()> {
    let line = line.into();
    let said = Said::Line(line.clone());
    station.world.checker().says(context.holder(), said);
    context.log(Level::Info, line).await
}

/// Runs something that has a beginning and an end in the log.
async fn run_step(station: &Station, context: &Context, name: String) -> Result<()> {
    let says = |said: Said| station.world.checker().says(context.holder(), said);
    let step = context.step(&name, "step")?;
    says(Said::Started(name.clone()));
    let step = step.start().await?;
    sleep(station, context, station.dice.millis(0, 300), false).await;
    says(Said::Ended(name));
    let code = i32::from(station.dice.chance(300));
    step.end(StepEnd::exit(code)).await.map(drop)
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
        2 => say(station, context, "half way").await,
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
    match completion(context) {
        Ok(completion) => Answer::Complete(completion),
        Err(invalid) => {
            let wrong = format!("{}: {invalid}", station.who);
            station.world.checker().blame("gave up", wrong);
            Answer::Release
        }
    }
}

fn completion(context: &Context) -> Result<Completion, Invalid> {
    let holder = context.holder();
    let key = Key::new(format!("{DONE}{}", holder.task))?;
    let record = Merge::new(key)
        .set(fields([("fence", holder.fence.to_string())])?)
        .add(Name::new("times")?, 1);
    Ok(Completion::bytes(holder.fence.to_string()).write(Write::Merge(record)))
}

/// Success, with further tasks in the same commit.
fn more(station: &Station, context: &Context) -> Result<Answer> {
    let dice = &station.dice;
    let mut completion = completion(context)?;
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
