//! The processes of a run: who they are, and what is to happen to each.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::{Ids, Invalid, Result, Store};
use plimsoll_engine::history::Reconnect;
use plimsoll_engine::jobs::Scope;
use plimsoll_engine::tasks::Retries;
use plimsoll_engine::{Engine, Jobs, Locks, Records, Tasks, group_commit};

use crate::actors::clerk::{self, Ledger};
use crate::actors::locker::{Rounds, contend};
use crate::actors::onlooker::{Notebook, look};
use crate::actors::orders::Orders;
use crate::actors::partition::{JOBS, PARTITIONS, Script, TAGS, report};
use crate::actors::submitter::{ToDo, submit};
use crate::actors::subscriber::{Bookmark, follow};
use crate::actors::worker::{Reins, work};
use crate::actors::{Station, deleter, housekeeping, operator};
use crate::clock::SkewedClock;
use crate::dice::Dice;
use crate::planted::Planted;
use crate::process::{Doom, Life, Resumed, Root};
use crate::wire::Wire;
use crate::world::World;

/// What somebody does, with what survives a crash.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    Submitter(Arc<ToDo>),
    Worker(Arc<Reins>),
    Sweeper,
    Operator,
    Compactor,
    Subscriber(Arc<Bookmark>),
    Locker(Arc<Rounds>),
    Partition(Arc<Script>),
    Deleter,
    Onlooker(Arc<Notebook>),
    Clerk,
    Watcher(Arc<Ledger>),
}

/// A process, alive or not.
pub(crate) struct Process {
    pub(crate) name: String,
    number: u64,
    pub(crate) role: Role,
    pub(crate) life: Option<Life>,
    lives: u64,
    /// It has done what it is for, and does not begin again.
    pub(crate) done: bool,
    pub(crate) start_at: Option<Duration>,
    pub(crate) crash_at: Option<Duration>,
    pub(crate) pause_at: Option<Duration>,
    /// While it is paused: until when.
    pub(crate) resume_at: Option<Duration>,
    pub(crate) drain_at: Option<Duration>,
    pub(crate) resumed: Resumed,
    pub(crate) dice: Dice,
}

impl Process {
    fn new(name: String, number: u64, role: Role, seed: u64, world: &World) -> Self {
        Self {
            name,
            number,
            role,
            life: None,
            lives: 0,
            done: false,
            start_at: Some(Duration::ZERO),
            crash_at: None,
            pause_at: None,
            resume_at: None,
            drain_at: None,
            resumed: Resumed::default(),
            dice: Dice::new(seed, &[2, number], Arc::new(world.clock.clone())),
        }
    }

    /// Everything that is to happen to it.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        let events = [
            self.start_at,
            self.crash_at,
            self.pause_at,
            self.resume_at,
            self.drain_at,
        ];
        events.into_iter().flatten().min()
    }

    /// Whether a turn would get it anywhere.
    pub(crate) fn is_runnable(&self) -> bool {
        self.resume_at.is_none() && self.life.as_ref().is_some_and(Life::is_runnable)
    }

    /// Nothing more is to happen to it, but for a start.
    pub(crate) fn leave_alone(&mut self) {
        self.crash_at = None;
        self.pause_at = None;
        self.drain_at = None;
        if let Some(life) = &mut self.life {
            life.spare();
        }
    }

    /// It is gone, with everything that was in its memory.
    pub(crate) fn die(&mut self, world: &World, start_at: Option<Duration>) {
        world.checker().died(&self.name);
        self.life = None;
        self.leave_alone();
        self.resume_at = None;
        self.start_at = start_at;
    }

    /// Begins a new life, which inherits nothing but what was written down.
    pub(crate) fn start(&mut self, seed: u64, world: &Arc<World>) -> std::io::Result<()> {
        self.lives += 1;
        self.start_at = None;
        let (dice, now) = (&self.dice, world.clock.monotonic());
        let some_time = |mean: Option<Duration>| {
            let mean = mean.filter(|_| !world.is_calm())?;
            Some(now + dice.time(Duration::from_millis(1), mean * 2))
        };
        self.pause_at = some_time(world.profile.until_pause);
        self.drain_at = match self.role {
            Role::Worker(_) => some_time(world.profile.until_drain),
            _ => None,
        };
        self.crash_at = some_time(world.profile.life);
        let mut polls_left = None;
        if self.crash_at.is_some() && dice.chance(500) {
            self.crash_at = None;
            polls_left = Some(dice.range(1, 300));
        }
        let skew = world.profile.skew_max;
        let (ahead, behind) = (
            dice.time(Duration::ZERO, skew),
            dice.time(Duration::ZERO, skew),
        );
        let clock: Arc<dyn Clock> = Arc::new(SkewedClock::new(world.clock.clone(), ahead, behind));
        let own = |purpose| Dice::new(seed, &[3, self.number, self.lives, purpose], clock.clone());
        let doom = Doom::default();
        let wire = Wire::new(world.clone(), self.name.clone(), own(0));
        let merged = dice.chance(world.profile.merged);
        let reader = Readers::draw(&own(3));
        world.checker().begins(&self.name, reader.reconnect);
        let ids = own(1).ids().clone();
        let part = Part {
            role: self.role.clone(),
            first: self.number == 0,
            world: world.clone(),
            wire: Arc::new(wire),
            clock: clock.clone(),
            ids,
            dice: own(2),
            doom: doom.clone(),
            resumed: self.resumed.clone(),
            who: self.name.clone(),
            merged,
            reader,
        };
        self.life = Some(Life::start(|| part.play(), doom, polls_left)?);
        Ok(())
    }
}

/// What one life of a process is made of.
struct Part {
    role: Role,
    first: bool,
    world: Arc<World>,
    wire: Arc<Wire>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    dice: Dice,
    doom: Doom,
    resumed: Resumed,
    who: String,
    merged: bool,
    reader: Readers,
}

/// How those are who read job states in one life of a process.
struct Readers {
    reconnect: Reconnect,
    /// How many events are kept for them, if not as many as usual.
    events_kept: Option<usize>,
}

impl Readers {
    fn draw(dice: &Dice) -> Self {
        let few = usize::try_from(dice.range(1, 8)).unwrap_or(1);
        Self {
            reconnect: Reconnect {
                first: dice.millis(50, 1_500),
                cap: dice.millis(500, 20_000),
                attempts: u32::try_from(dice.below(6)).unwrap_or(0),
            },
            events_kept: dice.chance(600).then_some(few),
        }
    }

    /// An engine that reads like this, unless a bug is planted.
    fn read_with(&self, engine: Engine, planted: Option<Planted>) -> Engine {
        let mut reconnect = self.reconnect;
        if planted == Some(Planted::Impatient) {
            reconnect.attempts = 0;
        }
        let engine = engine.reconnecting(reconnect);
        match self.events_kept {
            Some(events) => engine.keeping_events(events),
            None => engine,
        }
    }
}

impl Part {
    fn play(self) -> Root {
        let store: Arc<dyn Store> = if self.merged {
            Arc::new(group_commit(self.wire.clone()))
        } else {
            self.wire.clone()
        };
        let engine = Engine::with(store, self.clock, self.ids);
        let engine = self.reader.read_with(engine, self.world.planted);
        let retries = Retries {
            tries: u32::try_from(self.dice.range(1, 6)).unwrap_or(1),
            first: self.dice.millis(10, 500),
            cap: self.dice.millis(500, 5_000),
        };
        let station = Station {
            world: self.world,
            tasks: Tasks::new(engine.clone()).with_retries(retries),
            locks: Locks::new(engine.clone()).with_retries(retries),
            jobs: Jobs::new(engine.clone()).with_retries(retries),
            records: Records::new(engine.clone()).with_retries(retries),
            engine,
            dice: self.dice,
            doom: self.doom,
            resumed: self.resumed,
            who: self.who,
        };
        let (role, first, wire) = (self.role, self.first, self.wire);
        Box::pin(async move {
            tokio::select! {
                biased;
                ended = act(role, first, station) => ended,
                () = wire.pass_on_hints() => Ok(()),
            }
        })
    }
}

async fn act(role: Role, first: bool, station: Station) -> Result<()> {
    match role {
        Role::Submitter(to_do) if station.dice.chance(500) => {
            // One process that works and submits: the one carries the claims of the other. The worker
            // begins first, so that it can be told to end.
            let reins = Arc::<Reins>::default();
            let worker = work(station.clone(), reins.clone(), false);
            let submits = async {
                submit(station.clone(), to_do).await?;
                reins.stop(false, station.engine.clock().monotonic());
                Ok(())
            };
            futures::future::try_join(worker, submits).await.map(drop)
        }
        Role::Submitter(to_do) => submit(station, to_do).await,
        Role::Worker(reins) => work(station, reins, first).await,
        Role::Sweeper => housekeeping::sweep(station).await,
        Role::Operator => operator::meddle(station).await,
        Role::Compactor => housekeeping::compact(station).await,
        Role::Subscriber(bookmark) => follow(station, bookmark).await,
        Role::Locker(rounds) => contend(station, rounds).await,
        Role::Partition(script) => report(station, script).await,
        Role::Deleter => deleter::delete(station).await,
        Role::Onlooker(notebook) => look(station, notebook).await,
        Role::Clerk => clerk::write(station).await,
        Role::Watcher(ledger) => clerk::watch(station, ledger).await,
    }
}

/// Everybody who takes part. The first is a worker that takes every kind.
pub(crate) fn cast(seed: u64, world: &World) -> Result<Vec<Process>, Invalid> {
    let profile = &world.profile;
    let clock = Arc::new(world.clock.clone());
    let mut roles = Vec::new();
    for number in 1..=profile.workers {
        roles.push((format!("worker{number}"), Role::Worker(Arc::default())));
    }
    for number in 1..=profile.submitters {
        let dice = Dice::new(seed, &[4, number], clock.clone());
        let orders = Orders::new(dice, clock.clone(), number).draw(profile.orders)?;
        let role = Role::Submitter(Arc::new(ToDo::new(orders)));
        roles.push((format!("submitter{number}"), role));
    }
    for number in 1..=profile.sweepers {
        roles.push((format!("sweeper{number}"), Role::Sweeper));
    }
    for number in 1..=profile.lockers {
        let role = Role::Locker(Arc::new(Rounds::new(profile.rounds)));
        roles.push((format!("locker{number}"), role));
    }
    for (name, slow) in [("reader", false), ("slow reader", true)] {
        let role = Role::Subscriber(Arc::new(Bookmark::new(slow, slow)));
        roles.push((name.to_owned(), role));
    }
    roles.extend(keepers_of_state(seed, world)?);
    roles.push(("operator".to_owned(), Role::Operator));
    roles.push(("compactor".to_owned(), Role::Compactor));
    let processes = (0..).zip(roles);
    Ok(processes
        .map(|(number, (name, role))| Process::new(name, number, role, seed, world))
        .collect())
}

/// Those who write and read the states of jobs, and records.
fn keepers_of_state(seed: u64, world: &World) -> Result<Vec<(String, Role)>, Invalid> {
    let profile = &world.profile;
    let clock = Arc::new(world.clock.clone());
    let mut roles = Vec::new();
    for number in 0..profile.partitions {
        // Of three, two are the same partition of the same job.
        let job = JOBS[usize::from(number >= 3)];
        let partition = number % PARTITIONS;
        let dice = Dice::new(seed, &[5, number / 3, partition], clock.clone());
        let partition = u32::try_from(partition).unwrap_or(0);
        let script = Script::draw(job, partition, profile.steps, &dice)?;
        let role = Role::Partition(Arc::new(script));
        roles.push((format!("partition{number}"), role));
    }
    if profile.partitions > 0 && profile.deleter {
        roles.push(("deleter".to_owned(), Role::Deleter));
    }
    for number in 0..profile.onlookers {
        let dice = Dice::new(seed, &[6, number], clock.clone());
        let mut subscriptions = Vec::new();
        for _ in 0..profile.subscriptions {
            let mut scope = Scope::all();
            if dice.chance(400) {
                scope = scope.partition(u32::try_from(dice.below(PARTITIONS)).unwrap_or(0));
            }
            if dice.chance(400) {
                scope = scope.tag(dice.pick(&TAGS))?;
            }
            subscriptions.push((scope, dice.chance(400)));
        }
        let job = JOBS[usize::from(profile.partitions > 3 && dice.chance(300))];
        let role = Role::Onlooker(Arc::new(Notebook::new(job, subscriptions)));
        roles.push((format!("onlooker{number}"), role));
    }
    for number in 0..profile.clerks {
        roles.push((format!("clerk{number}"), Role::Clerk));
    }
    if profile.clerks > 0 {
        let dice = Dice::new(seed, &[7], clock);
        let ledger = Ledger::new(dice.chance(500));
        roles.push(("watcher".to_owned(), Role::Watcher(Arc::new(ledger))));
    }
    Ok(roles)
}
