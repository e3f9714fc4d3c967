//! What subscribers cost those who write.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use plimsoll::jobs::{
    Batches, Jobs, Manager, Scope, StateBatch, StateEvent, SubscribeOptions, Subscription,
};
use plimsoll::{Error, Result};

use super::write::{JOB, TAGS, Writers, tag};
use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// The same writers alone and beside subscribers, in turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscribers {
    writers: Writers,
    subscribers: u64,
    scopes: Scopes,
    taking: Taking,
    through: Through,
    /// How many events each takes at once, at most.
    depth: usize,
    rounds: u64,
}

/// What they subscribe through.
#[derive(Clone, Copy, Debug)]
enum Through {
    Monitor,
    /// One that writes nothing, and goes with the subscribers: whoever keeps the states would go on following between
    /// the rounds, where the writers are to be alone.
    Manager,
}

/// How they take what they are told.
#[derive(Clone, Copy, Debug)]
enum Taking {
    Batches,
    Events,
    /// Events of their own.
    Stream,
}

/// What they subscribe to.
#[derive(Clone, Copy, Debug)]
enum Scopes {
    /// Everything.
    All,
    /// A quarter each: everything, a partition, a tag, and a tag of a partition.
    Spread,
}

const ROUNDS: u64 = 5;
/// For those who are told of a lot.
const DEEP: usize = 512;

pub(super) fn subscribers(scale: Scale) -> Vec<OfState> {
    let taking = |managers, depth, part: u64, subscribers, scopes, taking| Subscribers {
        writers: Writers::new(managers, depth, scale.tasks / part / ROUNDS),
        subscribers,
        scopes,
        taking,
        through: Through::Monitor,
        depth: SubscribeOptions::default().depth,
        rounds: ROUNDS,
    };
    let kind = |managers, depth, part, subscribers, scopes| {
        let taking = taking(managers, depth, part, subscribers, scopes, Taking::Batches);
        Act::Subscribers(taking)
    };
    let each = |managers, depth, part, scopes| {
        let taking = taking(managers, depth, part, 1_000, scopes, Taking::Events);
        Act::Subscribers(taking)
    };
    let stream = |managers, depth, part, scopes| {
        let taking = taking(managers, depth, part, 1_000, scopes, Taking::Stream);
        Act::Subscribers(taking)
    };
    let manager = Act::Subscribers(Subscribers {
        through: Through::Manager,
        ..taking(8, 1, 2, 1_000, Scopes::All, Taking::Events)
    });
    let deep = |taking| {
        Act::Subscribers(Subscribers {
            depth: DEEP,
            ..taking
        })
    };
    vec![
        OfState::new(
            "subscribers-1",
            "8 managers set states one by one, beside a subscriber",
            kind(8, 1, 2, 1, Scopes::All),
        ),
        OfState::new(
            "subscribers-all",
            "8 managers set states one by one, beside 1,000 subscribers of all",
            kind(8, 1, 2, 1_000, Scopes::All),
        ),
        OfState::new(
            "subscribers-all-each",
            "the same, who take one event after the other instead of batches",
            each(8, 1, 2, Scopes::All),
        ),
        OfState::new(
            "subscribers-all-stream",
            "the same, who take each as a stream gives it, as their own",
            stream(8, 1, 2, Scopes::All),
        ),
        OfState::new(
            "subscribers-all-manager",
            "likewise one event after the other, through a manager of the job",
            manager,
        ),
        OfState::new(
            "subscribers-mix",
            "8 managers beside 1,000 subscribers of the four kinds of scope",
            kind(8, 1, 2, 1_000, Scopes::Spread),
        ),
        OfState::new(
            "subscribers-mix-each",
            "the same, who take one event after the other",
            each(8, 1, 2, Scopes::Spread),
        ),
        OfState::new(
            "subscribers-mix-stream",
            "the same, who take each as a stream gives it, as their own",
            stream(8, 1, 2, Scopes::Spread),
        ),
        OfState::new(
            "subscribers-seq",
            "one manager sets states one by one, beside 1,000 subscribers",
            kind(1, 1, 8, 1_000, Scopes::All),
        ),
        OfState::new(
            "subscribers-seq-each",
            "the same, who take one event after the other",
            each(1, 1, 8, Scopes::All),
        ),
        OfState::new(
            "subscribers-seq-stream",
            "the same, who take each as a stream gives it, as their own",
            stream(1, 1, 8, Scopes::All),
        ),
        OfState::new(
            "subscribers-fast-1",
            "8 managers, 64 states of each under way, beside a subscriber",
            kind(8, 64, 2, 1, Scopes::All),
        ),
        OfState::new(
            "subscribers-fast",
            "8 managers, 64 states of each under way, beside 1,000 subscribers",
            kind(8, 64, 2, 1_000, Scopes::All),
        ),
        OfState::new(
            "subscribers-fast-each",
            "the same, who take one event after the other",
            each(8, 64, 2, Scopes::All),
        ),
        OfState::new(
            "subscribers-fast-stream",
            "the same, who take each as a stream gives it, as their own",
            stream(8, 64, 2, Scopes::All),
        ),
        OfState::new(
            "subscribers-fast-deep",
            "8 managers, 64 states of each under way, beside 1,000 who take up to 512 at once",
            deep(taking(8, 64, 2, 1_000, Scopes::All, Taking::Batches)),
        ),
        OfState::new(
            "subscribers-fast-deep-each",
            "the same, who take one event after the other",
            deep(taking(8, 64, 2, 1_000, Scopes::All, Taking::Events)),
        ),
    ]
}

/// What the rounds of one kind came to.
struct Rounds {
    took: Duration,
    /// How long the subscribers took from when everything was written.
    behind: Duration,
    latencies: Latencies,
}

impl Subscribers {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let managers = self.writers.join(&jobs).await?;
        // Once beforehand, so that no round is the first.
        self.writers.write(&bench, &managers).await?;
        let mut alone = Duration::ZERO;
        let mut beside = Rounds {
            took: Duration::ZERO,
            behind: Duration::ZERO,
            latencies: Latencies::new(),
        };
        let mut written = Written::NOTHING;
        for _ in 0..self.rounds {
            let began = bench.clock.monotonic();
            self.writers.write(&bench, &managers).await?;
            alone += bench.since(began);
            let wrote = Written::now();
            self.round(&bench, &jobs, &managers, &mut beside).await?;
            written = written.and(Written::now().since(wrote));
        }
        let operations = self.writers.times() * self.rounds;
        let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        Ok(Measured {
            operation: "write",
            operations,
            took: beside.took,
            written,
            latency_of: "set",
            latencies: beside.latencies,
            counts: BTreeMap::from([
                ("rounds", self.rounds),
                ("behind_us", micros(beside.behind) / self.rounds.max(1)),
            ]),
            settings: BTreeMap::from([
                ("managers", u64::from(self.writers.managers).into()),
                ("subscribers", self.subscribers.into()),
                ("depth", (self.depth as u64).into()),
            ]),
            alone: Some(operations as f64 / alone.as_secs_f64().max(1e-9)),
        })
    }

    async fn round(
        self,
        bench: &Bench,
        jobs: &Jobs,
        managers: &[Manager],
        rounds: &mut Rounds,
    ) -> Result<()> {
        let monitor = jobs.monitor(JOB).await?;
        let manager = jobs.join(JOB, 0, self.writers.managers).await?;
        let mut subscriptions = Vec::new();
        for number in 0..self.subscribers {
            let scope = self.scope(number)?;
            let expected = self.expected(&scope);
            let options = SubscribeOptions {
                depth: self.depth,
                ..SubscribeOptions::default()
            };
            let mut subscription = match self.through {
                Through::Manager => manager.subscribe(scope, options).await?,
                Through::Monitor => monitor.subscribe(scope, options).await?,
            };
            replay(&mut subscription).await?;
            subscriptions.push(take(subscription, self.taking, expected));
        }
        let subscribers = Callers::spawn(subscriptions);
        let write = async {
            let began = bench.clock.monotonic();
            let latencies = self.writers.write(bench, managers).await?;
            rounds.took += bench.since(began);
            Ok((latencies, bench.clock.monotonic()))
        };
        let ((latencies, written), _) = tokio::try_join!(write, subscribers.join())?;
        rounds.behind += bench.since(written);
        rounds.latencies.merge(&latencies);
        Ok(())
    }

    fn scope(self, number: u64) -> Result<Scope> {
        let partition = |scope: Scope| scope.partition(number as u32 % self.writers.managers);
        let all = Scope::all();
        Ok(match (self.scopes, number % 4) {
            (Scopes::All, _) | (Scopes::Spread, 0) => all,
            (Scopes::Spread, 1) => partition(all),
            (Scopes::Spread, 2) => all.tag(tag(number / 4))?,
            (Scopes::Spread, _) => partition(all.tag(tag(number / 4))?),
        })
    }

    /// How many states a subscriber of this scope is told of in a round.
    fn expected(self, scope: &Scope) -> u64 {
        let partitions = scope.partition.map_or(self.writers.managers.into(), |_| 1);
        let tags = scope.tag.as_ref().map_or(TAGS, |_| 1);
        self.writers.each / TAGS * partitions * tags
    }
}

/// Takes what there is.
pub(super) async fn replay(subscription: &mut Subscription) -> Result<u64> {
    let mut states = 0;
    loop {
        match subscription.next().await.ok_or(Error::Closed)?? {
            StateEvent::State(_) => states += 1,
            StateEvent::ReplayComplete { .. } => return Ok(states),
            StateEvent::Restarted => states = 0,
        }
    }
}

/// Takes so many changes.
async fn take(mut subscription: Subscription, taking: Taking, expected: u64) -> Result<()> {
    match taking {
        Taking::Batches => batches(subscription.batches(), expected).await,
        Taking::Events => events(&mut subscription, expected).await,
        Taking::Stream => streamed(&mut subscription, expected).await,
    }
}

async fn batches(mut batches: Batches, expected: u64) -> Result<()> {
    let mut taken = 0;
    while taken < expected {
        match batches.next().await.ok_or(Error::Closed)?? {
            StateBatch::States(states) if !states.is_replay() => {
                taken += states.iter().count() as u64;
            }
            _ => return Err(lost()),
        }
    }
    Ok(())
}

async fn events(subscription: &mut Subscription, expected: u64) -> Result<()> {
    let mut taken = 0;
    while taken < expected
        && let Some(event) = subscription.next().await
    {
        match event? {
            StateEvent::State(state) if !state.is_replay() => taken += 1,
            _ => return Err(lost()),
        }
    }
    match taken == expected {
        true => Ok(()),
        false => Err(Error::Closed),
    }
}

async fn streamed(subscription: &mut Subscription, expected: u64) -> Result<()> {
    let mut taken = 0;
    while taken < expected
        && let Some(event) = StreamExt::next(subscription).await
    {
        match event? {
            StateEvent::State(state) if !state.is_replay() => taken += 1,
            _ => return Err(lost()),
        }
    }
    match taken == expected {
        true => Ok(()),
        false => Err(Error::Closed),
    }
}

fn lost() -> Error {
    Error::Corrupt("changes were not kept long enough".into())
}
