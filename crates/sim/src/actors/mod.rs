//! Those who act. Each lives in a process of its own, may die at any await and begin again with
//! nothing but what it had written down.

pub(crate) mod clerk;
pub(crate) mod deleter;
pub(crate) mod handlers;
pub(crate) mod housekeeping;
pub(crate) mod locker;
pub(crate) mod onlooker;
pub(crate) mod operator;
pub(crate) mod orders;
pub(crate) mod partition;
pub(crate) mod submitter;
pub(crate) mod subscriber;
pub(crate) mod veterans;
pub(crate) mod worker;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Error, Result, StoreExt};
use plimsoll_engine::{Engine, Jobs, Locks, Records, Tasks};

use crate::dice::Dice;
use crate::process::{Doom, Resumed};
use crate::world::World;

/// What an actor has in one of its lives.
#[derive(Clone, Debug)]
pub(crate) struct Station {
    pub(crate) world: Arc<World>,
    pub(crate) engine: Engine,
    /// The client, as patient as this life is.
    pub(crate) tasks: Tasks,
    /// The client of locks, as patient.
    pub(crate) locks: Locks,
    /// Those of jobs and of records, as patient.
    pub(crate) jobs: Jobs,
    pub(crate) records: Records,
    pub(crate) dice: Dice,
    pub(crate) doom: Doom,
    pub(crate) resumed: Resumed,
    pub(crate) who: String,
}

impl Station {
    /// Lets a while pass, from `low` to `high` milliseconds.
    pub(crate) async fn pause(&self, low: u64, high: u64) {
        self.sleep(self.dice.millis(low, high)).await;
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.engine.clock().sleep(duration).await;
    }

    /// Makes a commit that no verb of the client makes, again and again until there is an answer.
    pub(crate) async fn commit(&self, commit: &Commit) -> Result<Receipt> {
        loop {
            match self.engine.store().commit_one(commit.clone()).await {
                Err(Error::Unavailable(_)) => self.pause(10, 2_000).await,
                answer => return answer,
            }
        }
    }
}
