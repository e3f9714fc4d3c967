//! What is done to workers on purpose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::clock::Clock;
use plimsoll::record::fields;
use plimsoll::store::{List, Put, Selector, Write};
use plimsoll::task::{Lane, Status};
use plimsoll::{Engine, Ids, Key, Name, StoreExt};

use super::DemoError;
use super::books::Books;
use super::fleet::{self, Fleet, State};
use super::job;

/// How a run looks at the moment.
pub(super) struct Scene<'a> {
    pub(super) now: Duration,
    pub(super) engine: &'a Engine,
    pub(super) books: &'a Books,
    pub(super) expected: u64,
    pub(super) lease: Duration,
}

impl Scene<'_> {
    fn percent(&self) -> u64 {
        self.books.completed * 100 / self.expected.max(1)
    }

    fn all_done(&self) -> bool {
        self.books.completed >= self.expected
    }

    /// Whether others can write. A process that is stopped within a transaction keeps the file
    /// for itself.
    async fn can_write(&self) -> Result<bool, DemoError> {
        let key = Key::new("probe")?;
        let fields = fields([("f", "v")])?;
        let write = self.engine.store().write(Write::Put(Put::new(key, fields)));
        tokio::select! {
            biased;
            written = write => Ok(written.map(|_| true)?),
            () = self.engine.clock().sleep(Duration::from_secs(1)) => Ok(false),
        }
    }

    /// Whether a worker holds a task by the books. What it said of itself may be out of date.
    async fn holds_something(&self, worker: usize) -> Result<bool, DemoError> {
        let name = Name::new(fleet::name(worker))?;
        for kind in job::KINDS {
            let lane = Lane::new(job::QUEUE, kind)?;
            let mut list = List::new(Selector::Lane(lane, Status::Claimed), 1_000);
            list.filter.worker = Some(name.clone());
            if !self.engine.store().list(list).await?.rows.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What is done to workers on purpose.
pub(super) enum Mischief {
    Script(Script),
    Dice(Dice),
}

impl Mischief {
    /// Does what is due, and says in words what that was.
    pub(super) async fn act(
        &mut self,
        scene: &Scene<'_>,
        fleet: &mut Fleet,
    ) -> Result<Vec<String>, DemoError> {
        match self {
            Self::Script(script) => script.act(scene, fleet).await,
            Self::Dice(dice) => dice.act(scene, fleet).await.map(|()| Vec::new()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Script(script) => script.kill == Kill::Over && script.freeze == Freeze::Over,
            Self::Dice(_) => true,
        }
    }
}

/// One worker is killed and another one is frozen for longer than its leases last.
pub(super) struct Script {
    killed: usize,
    frozen: usize,
    kill: Kill,
    freeze: Freeze,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kill {
    Waiting,
    /// At this moment; this many leases had run out before.
    Done(Duration, u64),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Freeze {
    Waiting,
    /// At this moment.
    Frozen(Duration),
    /// At this moment; this many answers had been refused before.
    Thawed(Duration, u64),
    Over,
}

/// How much must be done before each, in percent.
const KILL_AT: u64 = 15;
const FREEZE_AT: u64 = 40;
/// How long after something was to happen it is looked for in the books.
const SETTLED_AFTER: Duration = Duration::from_millis(400);
/// How long a worker that woke up is given to say something.
const SILENT_AFTER: Duration = Duration::from_secs(10);

impl Script {
    /// Of this many workers, which are at least two.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            killed: 1,
            frozen: if workers > 2 { 2 } else { 0 },
            kill: Kill::Waiting,
            freeze: Freeze::Waiting,
        }
    }

    async fn act(
        &mut self,
        scene: &Scene<'_>,
        fleet: &mut Fleet,
    ) -> Result<Vec<String>, DemoError> {
        let mut said = Vec::new();
        self.kill(scene, fleet, &mut said).await?;
        self.freeze(scene, fleet, &mut said).await?;
        Ok(said)
    }

    async fn kill(
        &mut self,
        scene: &Scene<'_>,
        fleet: &mut Fleet,
        said: &mut Vec<String>,
    ) -> Result<(), DemoError> {
        let worker = self.killed + 1;
        let held = fleet.members[self.killed].report().running;
        match self.kill {
            Kill::Waiting if scene.percent() >= KILL_AT && held > 0 => {
                fleet.kill(self.killed).await?;
                self.kill = Kill::Done(scene.now, scene.books.expired);
                said.push(format!(
                    "kill -9: worker {worker} dies in the middle of its work"
                ));
            }
            Kill::Waiting if scene.all_done() => self.kill = Kill::Over,
            Kill::Done(at, before)
                if scene.now >= at + scene.lease + SETTLED_AFTER
                    && (scene.books.expired > before || scene.now >= at + SILENT_AFTER) =>
            {
                let expired = scene.books.expired.saturating_sub(before);
                self.kill = Kill::Over;
                said.push(format!(
                    "its leases have run out: {} back in the queue",
                    tasks(expired)
                ));
            }
            Kill::Waiting | Kill::Done(..) | Kill::Over => {}
        }
        Ok(())
    }

    async fn freeze(
        &mut self,
        scene: &Scene<'_>,
        fleet: &mut Fleet,
        said: &mut Vec<String>,
    ) -> Result<(), DemoError> {
        let worker = self.frozen + 1;
        let report = fleet.members[self.frozen].report();
        match self.freeze {
            Freeze::Waiting if scene.percent() >= FREEZE_AT && report.running > 0 => {
                fleet.freeze(self.frozen)?;
                if !scene.can_write().await? || !scene.holds_something(self.frozen).await? {
                    // Nobody could work, or there would be nothing to see: not at this moment.
                    return fleet.thaw(self.frozen);
                }
                fleet.freezes += 1;
                self.freeze = Freeze::Frozen(scene.now);
                said.push(format!(
                    "SIGSTOP: worker {worker} freezes in the middle of its work"
                ));
            }
            Freeze::Waiting if scene.all_done() => self.freeze = Freeze::Over,
            Freeze::Frozen(at) if scene.now >= at + scene.lease * 5 / 2 => {
                fleet.thaw(self.frozen)?;
                self.freeze = Freeze::Thawed(scene.now, report.refused);
                said.push(format!(
                    "SIGCONT: worker {worker} wakes up, and answers as if nothing had happened"
                ));
            }
            Freeze::Thawed(at, before)
                if scene.now >= at + SETTLED_AFTER
                    && (report.refused > before || scene.now >= at + SILENT_AFTER) =>
            {
                let refused = report.refused.saturating_sub(before);
                self.freeze = Freeze::Over;
                said.push(match refused {
                    0 => "it had nothing to say".into(),
                    1 => "its late answer is refused".into(),
                    _ => format!("its {refused} late answers are refused, every one"),
                });
            }
            Freeze::Waiting | Freeze::Frozen(_) | Freeze::Thawed(..) | Freeze::Over => {}
        }
        Ok(())
    }
}

fn tasks(count: u64) -> String {
    match count {
        1 => "1 task is".into(),
        _ => format!("{count} tasks are"),
    }
}

/// Workers are killed about once a second and started again at once; every two or three seconds
/// one is frozen for longer than its leases last. Who and when comes from a seed, not from what
/// happens meanwhile.
pub(super) struct Dice {
    kills: Rhythm,
    freezes: Rhythm,
    /// Who is to be thawed when.
    thaw_at: BTreeMap<usize, Duration>,
}

struct Rhythm {
    dice: Ids,
    next: Duration,
}

impl Rhythm {
    /// A duration between two numbers of milliseconds.
    fn between(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.dice.below(most - least))
    }

    fn anyone(&self, fleet: &Fleet) -> usize {
        self.dice.below(fleet.members.len() as u64) as usize
    }
}

impl Dice {
    pub(super) fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        let rhythm = |seed, first| Rhythm {
            dice: Ids::seeded(seed, clock.clone()),
            next: Duration::from_millis(first),
        };
        Self {
            kills: rhythm(seed, 1_000),
            freezes: rhythm(!seed, 1_500),
            thaw_at: BTreeMap::new(),
        }
    }

    async fn act(&mut self, scene: &Scene<'_>, fleet: &mut Fleet) -> Result<(), DemoError> {
        if scene.all_done() {
            return Ok(());
        }
        let now = scene.now;
        let thaw: Vec<usize> = (self.thaw_at.iter())
            .filter_map(|(worker, at)| (*at <= now).then_some(*worker))
            .collect();
        for worker in thaw {
            self.thaw_at.remove(&worker);
            fleet.thaw(worker)?;
        }
        while now >= self.kills.next {
            let worker = self.kills.anyone(fleet);
            self.kills.next += self.kills.between(700, 1_300);
            self.thaw_at.remove(&worker);
            fleet.kill(worker).await?;
            fleet.restart(worker)?;
        }
        while now >= self.freezes.next {
            let worker = self.freezes.anyone(fleet);
            let lasts = scene.lease + self.freezes.between(0, 1_500);
            self.freezes.next += self.freezes.between(1_500, 3_500);
            if fleet.members[worker].state != State::Frozen {
                fleet.freeze(worker)?;
                fleet.freezes += 1;
                self.thaw_at.insert(worker, now + lasts);
            }
        }
        Ok(())
    }
}
