//! One run: gives turns to processes, lets time jump when nobody has anything to do, and makes
//! things go wrong. First there is a storm, then it is calm until everything has ended, then the
//! workers drain.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Error;
use plimsoll_core::clock::{Clock, ManualClock};

use crate::actors::veterans;
use crate::cast::{Process, Role, cast};
use crate::check::{Figures, Violation};
use crate::dice::Dice;
use crate::planted::Planted;
use crate::process::Turn;
use crate::profile::Profile;
use crate::world::World;

/// How long everything may take to end once it is calm, and workers to drain after that.
const END_MAX: Duration = Duration::from_secs(20 * 60);
/// How many turns a run may take.
const TURNS_MAX: u64 = 2_000_000;

/// What to run besides the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to keep a trace.
    pub trace: bool,
    /// A bug to plant.
    pub planted: Option<Planted>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// What happened, if that was to be kept.
    pub trace: Vec<String>,
    /// How many tasks there were.
    pub tasks: usize,
    /// How many entries the history had.
    pub entries: usize,
    /// How many turns processes had.
    pub turns: u64,
    /// How much virtual time passed.
    pub lasted: Duration,
    /// How often what the checkers wait for has happened.
    pub figures: Figures,
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, options: Options) -> Outcome {
    let clock = ManualClock::new();
    let dice = Dice::new(seed, &[1], Arc::new(clock.clone()));
    let profile = Profile::draw(&dice);
    let begun = World::new(clock, profile, options.planted, options.trace)
        .map(Arc::new)
        .map_err(Error::from)
        .and_then(|world| {
            veterans::serve(&world, &dice)?;
            let processes = cast(seed, &world)?;
            Ok((world, processes))
        });
    let (world, processes) = match begun {
        Ok(begun) => begun,
        Err(error) => return not_begun(error.to_string()),
    };
    world.say("weather", |_| format!("{:?}", world.profile));
    let mut run = Run {
        seed,
        phase: Phase::Storm,
        limit: world.profile.storm,
        jumps: world.profile.jumps.clone(),
        world,
        processes,
        dice,
        turns: 0,
    };
    while run.step() {}
    run.outcome()
}

fn not_begun(detail: String) -> Outcome {
    Outcome {
        violation: Some(Violation {
            rule: "gave up",
            detail,
            at: Duration::ZERO,
        }),
        trace: Vec::new(),
        tasks: 0,
        entries: 0,
        turns: 0,
        lasted: Duration::ZERO,
        figures: Figures::default(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Things go wrong.
    Storm,
    /// Everything comes to its end.
    Calm,
    /// Workers drain, and readers catch up.
    Closing,
}

struct Run {
    seed: u64,
    world: Arc<World>,
    processes: Vec<Process>,
    dice: Dice,
    phase: Phase,
    /// When the phase must be over.
    limit: Duration,
    jumps: Vec<(Duration, Duration, bool)>,
    turns: u64,
}

impl Run {
    /// One turn of one process, or one leap in time; `false`: the run is over.
    fn step(&mut self) -> bool {
        if self.world.checker().violation.is_some() {
            return false;
        }
        self.happen();
        let runnable: Vec<usize> = (self.processes.iter().enumerate())
            .filter(|(_, process)| process.is_runnable())
            .map(|(index, _)| index)
            .collect();
        if !runnable.is_empty() {
            let index = *self.dice.pick(&runnable);
            self.turn(index);
            return true;
        }
        if self.is_over() {
            return self.next_phase();
        }
        self.leap();
        true
    }

    /// Everything that is due now.
    fn happen(&mut self) {
        let now = self.now();
        self.world.deliver();
        while let Some(place) = self.jumps.iter().position(|(at, ..)| *at <= now) {
            let (_, by, ahead) = self.jumps.swap_remove(place);
            let (wall, way) = (self.world.clock.now(), if ahead { "on" } else { "back" });
            self.world
                .say("clock", |_| format!("jumps {way} by {by:?}"));
            self.world.clock.jump_to(if ahead {
                wall.saturating_plus(by)
            } else {
                wall.saturating_minus(by)
            });
        }
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        for process in &mut self.processes {
            if process.life.is_none() {
                if due(process.start_at) && !process.done {
                    self.world.say(&process.name, |_| "starts".to_owned());
                    if let Err(error) = process.start(self.seed, &self.world) {
                        let wrong = format!("{}: {error}", process.name);
                        self.world.checker().blame("gave up", wrong);
                    }
                }
                continue;
            }
            if due(process.crash_at) {
                self.world.say(&process.name, |_| "crashes".to_owned());
                let again = now + process.dice.millis(0, 15_000);
                process.die(&self.world, Some(again));
                continue;
            }
            if due(process.pause_at) {
                let pause = process.dice.millis(10, 40_000);
                self.world
                    .say(&process.name, |_| format!("pauses for {pause:?}"));
                process.pause_at = None;
                process.resume_at = Some(now + pause);
            }
            if due(process.resume_at) {
                self.world.say(&process.name, |_| "goes on".to_owned());
                process.resume_at = None;
                process.resumed.set(now);
            }
            if due(process.drain_at) {
                process.drain_at = None;
                if let Role::Worker(reins) = &process.role {
                    let at_once = process.dice.chance(300);
                    self.world
                        .say(&process.name, |_| format!("drains, at once: {at_once}"));
                    reins.stop(at_once, now);
                }
            }
        }
    }

    fn turn(&mut self, index: usize) {
        self.turns += 1;
        if self.turns == TURNS_MAX {
            let wrong = format!("{TURNS_MAX} turns, and no end");
            self.world.checker().blame("livelock", wrong);
        }
        let now = self.now();
        let closing = self.phase == Phase::Closing;
        let process = &mut self.processes[index];
        let Some(life) = &mut process.life else {
            return;
        };
        let name = &process.name;
        match life.turn() {
            Turn::Waits => {}
            Turn::Ended(Ok(())) => {
                self.world.say(name, |_| "ends".to_owned());
                let again = matches!(process.role, Role::Worker(_)) && !closing;
                process.done = !again;
                let start_at = now + process.dice.millis(0, 5_000);
                process.die(&self.world, again.then_some(start_at));
            }
            Turn::Ended(Err(error)) => {
                let wrong = format!("{name}: {error}");
                self.world.checker().blame("gave up", wrong);
            }
            Turn::Killed => {
                self.world.say(name, |_| "is killed".to_owned());
                let again = now + process.dice.millis(0, 15_000);
                process.die(&self.world, Some(again));
            }
            Turn::Panicked(words) => {
                let wrong = format!("{name}: {words}");
                self.world.checker().blame("panic", wrong);
            }
            Turn::Spins => {
                let wrong = format!("{name} never waits");
                self.world.checker().blame("livelock", wrong);
            }
        }
    }

    /// Whether the phase has come to its end.
    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Storm => self.now() >= self.limit,
            Phase::Calm => {
                let done = (self.processes.iter()).all(|process| {
                    process.done
                        || !matches!(
                            process.role,
                            Role::Submitter(_) | Role::Locker(_) | Role::Partition(_)
                        )
                });
                let mut checker = self.world.checker();
                checker.look_at_wants();
                done && self.world.next_late().is_none()
                    && checker.is_finished()
                    && checker.registry_is_right()
            }
            Phase::Closing => {
                let checker = self.world.checker();
                (self.processes.iter()).all(|process| match &process.role {
                    Role::Worker(_) => process.done,
                    Role::Subscriber(bookmark) => checker.has_seen_all(bookmark.start()),
                    Role::Onlooker(notebook) => {
                        (notebook.tellings()).all(|telling| checker.is_told_all(&telling))
                    }
                    Role::Watcher(ledger) => checker.is_all_watched(&ledger.watched()),
                    Role::Submitter(_)
                    | Role::Locker(_)
                    | Role::Partition(_)
                    | Role::Deleter
                    | Role::Clerk
                    | Role::Sweeper
                    | Role::Operator
                    | Role::Compactor => true,
                })
            }
        }
    }

    /// Begins the next phase; `false`: there is none.
    fn next_phase(&mut self) -> bool {
        let now = self.now();
        self.limit = now + END_MAX;
        self.world
            .say("weather", |_| format!("{:?} is over", self.phase));
        match self.phase {
            Phase::Storm => {
                self.phase = Phase::Calm;
                self.world.calm_down();
                for process in &mut self.processes {
                    process.leave_alone();
                    process.resume_at = process.resume_at.map(|_| now);
                    process.start_at = process.start_at.map(|_| now);
                    if matches!(process.role, Role::Operator | Role::Deleter | Role::Clerk) {
                        // Whatever runs again because of it must have a chance to end.
                        process.done = true;
                        process.die(&self.world, None);
                    }
                }
                true
            }
            Phase::Calm => {
                self.phase = Phase::Closing;
                for process in &mut self.processes {
                    if let Role::Worker(reins) = &process.role {
                        process.done = process.life.is_none();
                        reins.stop(false, now);
                    }
                }
                true
            }
            Phase::Closing => {
                self.world.checker().compare_all();
                false
            }
        }
    }

    /// Lets time pass until something happens.
    fn leap(&mut self) {
        let now = self.now();
        let sleep = self.world.clock.next_sleep().map(|wait| now + wait);
        let events = self.processes.iter().filter_map(Process::next_event);
        let jumps = self.jumps.iter().map(|(at, ..)| *at);
        let storm = (self.phase == Phase::Storm).then_some(self.limit);
        let next = (events.chain(jumps))
            .chain(sleep)
            .chain(storm)
            .chain(self.world.next_late())
            .filter(|at| *at > now)
            .min();
        match next {
            Some(next) if next <= self.limit => self.world.clock.advance(next - now),
            Some(_) | None => {
                let mut checker = self.world.checker();
                let left = checker.unfinished();
                let left = left.unwrap_or_else(|| format!("{:?} does not end", self.phase));
                checker.blame("ends", left);
            }
        }
    }

    fn now(&self) -> Duration {
        self.world.clock.monotonic()
    }

    fn outcome(self) -> Outcome {
        let checker = self.world.checker();
        let (tasks, entries) = checker.size();
        Outcome {
            violation: checker.violation.clone(),
            trace: self.world.trace().take(),
            tasks,
            entries,
            turns: self.turns,
            lasted: self.now(),
            figures: checker.figures,
        }
    }
}
