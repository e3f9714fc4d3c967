//! A partition of a job: says how far it is, several times at once, and again when it has no answer.
//! Others may be the same partition, and do the same.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use plimsoll_core::{Error, Invalid, Name, Result};
use plimsoll_engine::jobs::{Coded, ERROR, FINISHED, Manager, NewState, Scope, WARNING, Written};

use super::Station;
use super::onlooker::answered;
use crate::check::{Asked, Awaited, Waiter};
use crate::dice::Dice;

/// The jobs that there are. The name of one is the beginning of another's.
pub(crate) const JOBS: [&str; 2] = ["import", "import.b"];
pub(crate) const TAGS: [&str; 2] = ["load", "check"];
/// How many partitions somebody takes part as.
pub(crate) const PARTITIONS: u64 = 2;
/// What barriers wait for.
pub(crate) const WANTED: [i32; 3] = [1, 5, 9];
const STATUSES: [i32; 10] = [0, 1, 5, 5, 9, 9, FINISHED, ERROR, WARNING, -7];

/// What a partition says, and how far it is. It survives crashes.
#[derive(Debug)]
pub(crate) struct Script {
    job: &'static str,
    partition: u32,
    steps: Vec<Step>,
    done: AtomicUsize,
}

/// Something to be said once, however often it is tried.
#[derive(Clone, Debug)]
struct Step {
    tag: Name,
    status: i32,
    event: String,
}

impl Script {
    /// Those who are the same partition of a job, and draw from the same dice, say the same.
    pub(crate) fn draw(
        job: &'static str,
        partition: u32,
        steps: u64,
        dice: &Dice,
    ) -> Result<Self, Invalid> {
        let step = |number: u64| {
            Ok(Step {
                tag: Name::new(*dice.pick(&TAGS))?,
                status: *dice.pick(&STATUSES),
                event: format!("step {number}"),
            })
        };
        let mut steps: Vec<Step> = (0..steps).map(step).collect::<Result<_, Invalid>>()?;
        if dice.chance(700) {
            for tag in TAGS {
                steps.push(Step {
                    tag: Name::new(tag)?,
                    status: FINISHED,
                    event: format!("end of {tag}"),
                });
            }
        }
        Ok(Self {
            job,
            partition,
            steps,
            done: AtomicUsize::new(0),
        })
    }

    /// The next few, some of which may have been said before.
    fn next(&self, dice: &Dice) -> Range<usize> {
        let done = self.done.load(Ordering::Relaxed);
        let back = match dice.chance(200) {
            true => usize::try_from(dice.range(1, 3)).unwrap_or(1),
            false => 0,
        };
        let count = usize::try_from(dice.range(1, 4)).unwrap_or(1);
        let end = self.steps.len().min(done + count);
        done.saturating_sub(back)..end
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.steps.len()
    }
}

/// Says everything, as one manager after another: one whose job was deleted creates it anew.
pub(crate) async fn report(station: Station, script: Arc<Script>) -> Result<()> {
    let dice = &station.dice;
    while !script.is_done() {
        let earliest = station.world.checker().joins(script.job);
        let partitions = u32::try_from(dice.range(PARTITIONS, PARTITIONS + 1)).unwrap_or(2);
        let join = station.jobs.join(script.job, script.partition, partitions);
        let manager = match join.await {
            Ok(manager) => manager,
            Err(Error::Unavailable(_) | Error::Conflict(_)) => {
                station.pause(10, 2_000).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let number = station.world.checker().joined(script.job, earliest);
        while !script.is_done() && take_part(&station, &script, &manager, number).await? {}
        if dice.chance(500) {
            manager.close().await;
        }
    }
    Ok(())
}

/// Says the next few things. Answers whether the job is still there.
async fn take_part(
    station: &Station,
    script: &Script,
    manager: &Manager,
    number: usize,
) -> Result<bool> {
    let (dice, world) = (&station.dice, &station.world);
    station.pause(0, 3_000).await;
    let range = script.next(dice);
    let mut calls = Vec::new();
    for step in &script.steps[range.clone()] {
        let asked = Asked {
            manager: number,
            partition: script.partition,
            tag: &step.tag,
            event: &step.event,
        };
        let call = world.checker().sets(asked);
        calls.push(say(station, manager, step, call)?);
    }
    if dice.chance(100) {
        // Whoever does not wait for the answer has said it all the same.
        calls.pop();
    }
    if dice.chance(300) {
        // In whatever order they are waited for.
        calls.reverse();
    }
    let mut unanswered = false;
    for answer in join_all(calls).await {
        match answer {
            Ok(_) => {}
            Err(Error::Unavailable(_)) => unanswered = true,
            Err(error) if error.code() == "job_deleted" => return Ok(false),
            Err(Error::Conflict(_)) => unanswered = true,
            Err(error) => return Err(error),
        }
    }
    if !unanswered || dice.chance(300) {
        script.done.fetch_max(range.end, Ordering::Relaxed);
    }
    if dice.chance(150) {
        let tag = Name::new(*dice.pick(&TAGS))?;
        let wanted = *dice.pick(&WANTED);
        let set_back = world.checker().set_back(number, &tag, wanted);
        let awaited = Awaited {
            job: script.job,
            tag: &tag,
            wanted,
            despite_warnings: dice.chance(300),
            by: Waiter::Manager { number, set_back },
        };
        let mut barrier = manager.barrier(&tag, awaited.wanted)?;
        if awaited.despite_warnings {
            barrier = barrier.despite_warnings();
        }
        let mut answer = barrier.within(dice.millis(0, 3_000)).await;
        if let Some(planted) = world.planted {
            planted.reopens(&mut answer, world.checker().taken_back(&awaited));
        }
        answered(station, &awaited, answer)?;
    }
    Ok(true)
}

type Saying<'a> = Pin<Box<dyn Future<Output = Result<Written>> + 'a>>;

/// Says one thing, in one way or another, and reads it after that.
fn say<'a>(
    station: &'a Station,
    manager: &'a Manager,
    step: &'a Step,
    call: usize,
) -> Result<Saying<'a>, Invalid> {
    let state = NewState::new(&step.tag, step.status)?.event_id(&step.event)?;
    let words = call.to_string();
    // It takes its place in the line now, and not when it is polled.
    let writing: Saying<'a> = match step.status {
        1 => Box::pin(manager.set_started(state.message(words))),
        FINISHED => Box::pin(manager.set_finished(state.message(words))),
        ERROR => Box::pin(manager.set_error(&Error::Corrupt(words.into()), state)),
        WARNING => Box::pin(manager.set_warning(&words, state)),
        status if status < 0 => {
            let source = words.into();
            Box::pin(manager.set_error(&Coded { status, source }, state))
        }
        _ => Box::pin(manager.set_state(state.message(words))),
    };
    let forgotten = Forgotten {
        station,
        call,
        answered: false,
    };
    let scope = Scope::all().partition(manager.partition()).tag(&step.tag)?;
    Ok(Box::pin(async move {
        let answer = writing.await;
        forgotten.answered(&answer);
        let answer = answer?;
        if station.dice.chance(300) {
            let own = manager.get_state(&scope).await;
            let mut checker = station.world.checker();
            checker.reads_own(call, answer.version, &own);
        }
        Ok(answer)
    }))
}

/// A call whose answer nobody may have waited for.
struct Forgotten<'a> {
    station: &'a Station,
    call: usize,
    answered: bool,
}

impl Forgotten<'_> {
    fn answered(mut self, answer: &Result<Written>) {
        self.answered = true;
        self.station.world.checker().was_set(self.call, answer);
    }
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.station.world.checker().gives_up(self.call);
        }
    }
}
