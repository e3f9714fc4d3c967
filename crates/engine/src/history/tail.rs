//! The one reader of a store's history in a process, for all who follow it.
//!
//! It starts with the first follower and ends with the last. It reads what any of them is interested in,
//! is woken by the store's hints, and looks by itself as often as they need.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::change::{Entry, Interest};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Position, Result, Store};
use tokio::sync::Notify;

use super::interests::narrow;
use crate::Engine;
use crate::spawn::Spawner;

/// How long most can do without a look where no hint comes.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// How many turns others have, if all give way, and for how long at most.
const TURNS: usize = 16;
const TURNS_MAX: Duration = Duration::from_millis(5);
/// How many changes are read at once.
const CHANGES_MAX: usize = 1_000;

/// One who follows the history. None of these calls may wait.
pub(crate) trait Follower: Send + Sync + fmt::Debug {
    /// What it wants to see from the next read on; empty: nothing for now.
    fn interests(&self) -> Vec<Interest>;

    /// How long it can do without a look while nothing hints at one.
    fn poll(&self) -> Duration;

    /// How long from now on it can do without being told what hints say is there: it has told many others
    /// just now.
    fn rest(&self) -> Duration;

    /// Whether others should have their turns before it is told what hints say is there: much was written at once, and
    /// those who wrote it go on now.
    fn gives_way(&self) -> bool;

    /// From now on it is told what comes after this position: at first, after history was lost, and when
    /// nobody was interested in anything for a while.
    fn begins(&self, after: Position);

    /// What was written next. There may be more than it is interested in, and what it became interested in
    /// while this was read is not in it.
    fn told(&self, entries: &[Entry], upto: Position);

    /// What comes next is not kept any more. It begins again at another place.
    fn gone(&self);

    /// The store has not answered, so many times in a row. How long to wait before the next try; `None`:
    /// it gives up, and is not told any more.
    fn failing(&self, failures: u32, error: &Error) -> Option<Duration>;

    /// The store answers again.
    fn back(&self);

    /// It is not told any more: for this reason, or because the runtime has ended.
    fn over(&self, error: Option<&Error>);
}

/// Who follows, shared by them and the one who reads for them.
#[derive(Debug)]
pub(crate) struct Tail {
    store: Arc<dyn Store>,
    followers: Mutex<Followers>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Followers {
    read: bool,
    members: BTreeMap<u64, Member>,
    joined: u64,
}

#[derive(Clone, Debug)]
struct Member {
    follower: Arc<dyn Follower>,
    begun: bool,
}

/// Somebody follows. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Following {
    tail: Arc<Tail>,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        let member = self.tail.followers().members.remove(&self.number);
        // It may hold other things that follow.
        drop(member);
        self.tail.changed.notify_one();
    }
}

impl Tail {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            followers: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Lets one follow, and reads from now on if nobody does.
    pub(crate) fn follow(
        self: &Arc<Self>,
        engine: &Engine,
        follower: Arc<dyn Follower>,
    ) -> Following {
        let mut followers = self.followers();
        // Outside a runtime this panics, before anything has changed.
        let spawner = (!followers.read).then(Spawner::current);
        let number = followers.joined;
        followers.joined += 1;
        let begun = false;
        followers.members.insert(number, Member { follower, begun });
        followers.read = true;
        drop(followers);
        if let Some(spawner) = spawner {
            // Its end is told also if it never begins.
            let end = End(Some(self.clone()));
            spawner.spawn(run(end, self.clone(), engine.clone()));
        }
        self.changed.notify_one();
        Following {
            tail: self.clone(),
            number,
        }
    }

    /// Lets it look at the store now: somebody's interests have changed.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        (self.followers.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody follows. If not, whoever comes next has to start a reader.
    fn goes_on(&self) -> bool {
        let mut followers = self.followers();
        followers.read = !followers.members.is_empty();
        followers.read
    }

    fn members(&self) -> BTreeMap<u64, Member> {
        self.followers().members.clone()
    }

    /// How long to wait for a hint.
    fn poll(&self) -> Duration {
        let members = self.members().into_values();
        members
            .map(|member| member.follower.poll())
            .min()
            .unwrap_or(POLL)
    }

    /// How long nobody needs to be told anything.
    fn rest(&self) -> Duration {
        let members = self.members().into_values();
        let rests = members.map(|member| member.follower.rest());
        rests.min().unwrap_or_default()
    }

    /// Whether all give way to others.
    fn gives_way(&self) -> bool {
        let members = self.members();
        members.values().all(|member| member.follower.gives_way())
    }

    /// All begin again.
    fn begin_again(&self) {
        for member in self.followers().members.values_mut() {
            member.begun = false;
        }
    }

    /// Whether somebody has come since so many had joined, or all have left.
    fn has_others(&self, joined: u64) -> bool {
        let followers = self.followers();
        followers.joined != joined || followers.members.is_empty()
    }

    /// How long to wait before the next try; those who give up leave.
    fn failing(&self, failures: u32, error: &Error) -> Duration {
        let waits = self.members().into_iter().map(|(number, member)| {
            let wait = member.follower.failing(failures, error);
            if wait.is_none() {
                let left = self.followers().members.remove(&number);
                // It may hold other things that follow.
                drop(left);
            }
            wait
        });
        waits.flatten().min().unwrap_or_default()
    }

    fn over(&self, error: &Error) {
        let members = std::mem::take(&mut self.followers().members);
        for member in members.into_values() {
            member.follower.over(Some(error));
        }
    }
}

/// Reads as long as somebody follows.
async fn run(mut end: End, tail: Arc<Tail>, engine: Engine) {
    let mut hints = tail.store.wakeups();
    let mut place = None;
    let mut failures = 0;
    while tail.goes_on() {
        match turn(&tail, &mut place).await {
            Ok(more) => {
                if failures > 0 {
                    failures = 0;
                    tail.members()
                        .values()
                        .for_each(|member| member.follower.back());
                }
                if more {
                    continue;
                }
                // In this order, so that a simulation runs the same way again.
                tokio::select! {
                    biased;
                    () = tail.changed.notified() => {}
                    () = told_of_history(&mut hints) => rested(&tail, &engine).await,
                    () = engine.clock().sleep(tail.poll()) => {}
                }
            }
            Err(Error::NotFound(NotFound::History { .. })) => {
                place = None;
                tail.begin_again();
                tail.members()
                    .values()
                    .for_each(|member| member.follower.gone());
            }
            Err(error) if error.is_transient() => {
                failures += 1;
                let joined = tail.followers().joined;
                let wait = tail.failing(failures, &error);
                rest(&tail, joined, engine.clock().sleep(wait)).await;
            }
            Err(error) => tail.over(&error),
        }
    }
    end.0 = None;
}

/// Waits before the next try, unless others come who have not waited yet, or nobody is left. Those who
/// only want a look have to wait: it would fail.
async fn rest(tail: &Tail, joined: u64, wait: impl Future<Output = ()>) {
    tokio::pin!(wait);
    while !tail.has_others(joined) {
        tokio::select! {
            biased;
            () = &mut wait => return,
            () = tail.changed.notified() => {}
        }
    }
}

/// Waits as long as nobody needs to be told, or until somebody asks for a look.
async fn rested(tail: &Tail, engine: &Engine) {
    let rest = async {
        if tail.gives_way() {
            others_turns(engine).await;
        }
        let rest = tail.rest();
        if !rest.is_zero() {
            engine.clock().sleep(rest).await;
        }
    };
    tokio::select! {
        biased;
        () = tail.changed.notified() => {}
        () = rest => {}
    }
}

/// Lets others have their turns.
async fn others_turns(engine: &Engine) {
    let began = engine.clock().monotonic();
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
        if engine.clock().monotonic().saturating_sub(began) >= TURNS_MAX {
            break;
        }
    }
}

async fn told_of_history(hints: &mut Listener) {
    while !hints.next().await.history {}
}

/// Reads one page for all. Answers whether there is more to do at once.
async fn turn(tail: &Tail, place: &mut Option<Position>) -> Result<bool> {
    let store = tail.store.as_ref();
    let limits = store.limits();
    let members = tail.members();
    let interests = members
        .values()
        .flat_map(|member| member.follower.interests());
    let interests = narrow(interests, limits.lanes_max)?;
    if interests.is_empty() {
        // Nobody needs what comes next. Who does later begins where the history ends then.
        *place = None;
        tail.begin_again();
        return Ok(false);
    }
    let changes = Changes {
        start: place.map_or(Start::Newest, Start::After),
        interests,
        limit: CHANGES_MAX.min(limits.page_max),
    };
    let page = store.changes(changes).await?;
    let from = place.unwrap_or(page.next);
    *place = Some(page.next);
    for (number, member) in members {
        // Some have left while this was read, or while others were told.
        let begun = match tail.followers().members.get_mut(&number) {
            Some(member) => std::mem::replace(&mut member.begun, true),
            None => continue,
        };
        if !begun {
            member.follower.begins(from);
        }
        member.follower.told(&page.entries, page.next);
    }
    Ok(page.more)
}

/// When the one who reads goes away while somebody follows, as with its runtime, they are told, and
/// whoever comes next starts another.
struct End(Option<Arc<Tail>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(tail) = self.0.take() {
            let mut followers = tail.followers();
            // At once: whoever comes after those who are told starts another.
            followers.read = false;
            let members = std::mem::take(&mut followers.members);
            drop(followers);
            for member in members.into_values() {
                member.follower.over(None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
