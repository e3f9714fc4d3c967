//! What state costs: the states of jobs, how others hear of them and read them, and records that many want.

mod barriers;
mod cas;
mod paced;
mod read;
mod replay;
mod subscribers;
mod write;

use plimsoll::jobs::Jobs;
use plimsoll::{Engine, Result, Retries};

use crate::figures::Measured;
use crate::{Bench, Scale};

/// Something done with state, again and again.
#[derive(Clone, Debug)]
pub(crate) struct OfState {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Write(write::Writers),
    Subscribers(subscribers::Subscribers),
    Barriers(barriers::Barriers),
    Paced(paced::Paced),
    Read(read::Reads),
    Replay(replay::Replay),
    Cas(cas::Cas),
}

pub(crate) fn of_state(scale: Scale) -> Vec<OfState> {
    let parts = [
        write::writers(scale),
        subscribers::subscribers(scale),
        barriers::barriers(scale),
        paced::paced(scale),
        read::reads(scale),
        replay::replays(scale),
        cas::swaps(scale),
    ];
    parts.into_iter().flatten().collect()
}

impl OfState {
    fn new(name: impl Into<String>, about: &'static str, act: Act) -> Self {
        let name = name.into();
        Self { name, about, act }
    }

    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        match self.act {
            Act::Write(writers) => writers.run(bench).await,
            Act::Subscribers(subscribers) => subscribers.run(bench).await,
            Act::Barriers(barriers) => barriers.run(bench).await,
            Act::Paced(paced) => paced.run(bench).await,
            Act::Read(reads) => reads.run(bench).await,
            Act::Replay(replay) => replay.run(bench).await,
            Act::Cas(cas) => cas.run(bench).await,
        }
    }
}

impl Bench {
    /// An engine of its own, as another process has.
    fn engine(&self) -> Engine {
        Engine::with(self.store.clone(), self.clock.clone(), self.ids.clone())
    }

    /// Jobs whose calls fail when the store's do.
    fn jobs(&self) -> Jobs {
        self.engine().jobs().with_retries(Retries::none())
    }
}
