//! Those who contend for locks and hold them: what they are told, what they rely on, and what they
//! write under them. What a lock protects takes what comes with a token, and refuses one that is
//! lower than it has seen.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::store::{Commit, Guard, Receipt, Write};
use plimsoll_core::{Error, Key, Result, StoreExt, Token};

use super::Checker;
use super::locks::{End, LOCKS, Term};

/// How long somebody may wait for a lock once nothing goes wrong, and how often it may be taken by
/// others meanwhile: each of those who contend once, and a few that come in between.
const WAIT_MAX: Duration = Duration::from_secs(180);
const TAKEN_MAX: u64 = 16;

/// Those who contend for locks, by number.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    wants: BTreeMap<u64, Want>,
    last: u64,
}

#[derive(Debug)]
struct Want {
    who: String,
    lock: Key,
    since: Duration,
    /// How often others have taken it since, while nothing went wrong.
    taken: u64,
}

/// What a holder knows of its lock.
#[derive(Clone, Debug)]
pub(crate) struct Grip {
    pub(crate) lock: Key,
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
}

/// A renewal that a commit asks for.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// Which commit.
    place: usize,
    lock: Key,
    holder: String,
}

/// The renewals that these commits ask for, as their senders mean them.
pub(crate) fn renewals(commits: &[Commit]) -> Vec<Renewal> {
    let mut renewals = Vec::new();
    for (place, commit) in commits.iter().enumerate() {
        let renews = |key: &Key| {
            let touches =
                |write: &Write| matches!(write, Write::Touch(touched, _) if touched == key);
            key.as_str().starts_with(LOCKS) && commit.writes.iter().any(touches)
        };
        renewals.extend(commit.guards.iter().find_map(|guard| match guard {
            Guard::Field(key, _, Some(holder)) if renews(key) => Some(Renewal {
                place,
                lock: key.clone(),
                holder: String::from_utf8_lossy(holder).into_owned(),
            }),
            _ => None,
        }));
    }
    renewals
}

impl Checker {
    /// The renewals that the store has let through, of locks that were another's before.
    pub(crate) fn stale(&self, sent: Vec<Renewal>, results: &[Result<Receipt>]) -> Vec<Renewal> {
        let through = |renewal: &Renewal| matches!(results.get(renewal.place), Some(Ok(_)));
        (sent.into_iter())
            .filter(|renewal| through(renewal) && !self.is_held(renewal))
            .collect()
    }

    /// These were let through, and what they renewed is still another's.
    pub(crate) fn renewed(&mut self, stale: Vec<Renewal>) {
        for renewal in stale {
            if !self.is_held(&renewal) {
                let wrong = format!("{} was renewed by another", renewal.lock);
                self.blame("locks", wrong);
            }
        }
    }

    fn is_held(&self, renewal: &Renewal) -> bool {
        let lock = self.locks.locks.get(&renewal.lock);
        let holder = lock.and_then(|lock| lock.holder.as_ref());
        holder.is_some_and(|holder| holder.id == renewal.holder && holder.token.is_some())
    }

    /// A lock was taken, and others go on waiting for it.
    pub(super) fn count_taken(&mut self, lock: &Key) {
        if self.calm_since.is_none() {
            return;
        }
        let mut starving = None;
        for want in self.contenders.wants.values_mut() {
            if want.lock == *lock {
                want.taken += 1;
                if want.taken > TAKEN_MAX {
                    starving = Some(format!("{} waits for {lock}, which others get", want.who));
                }
            }
        }
        if let Some(wrong) = starving {
            self.blame("line", wrong);
        }
    }

    /// Somebody begins to contend for a lock. Answers its number.
    pub(crate) fn wants(&mut self, who: &str, lock: &Key) -> u64 {
        self.contenders.last += 1;
        let want = Want {
            who: who.to_owned(),
            lock: lock.clone(),
            since: self.now,
            taken: 0,
        };
        self.contenders.wants.insert(self.contenders.last, want);
        self.contenders.last
    }

    /// It contends no longer.
    pub(crate) fn wants_no_more(&mut self, number: u64) {
        self.look_at_wants();
        self.contenders.wants.remove(&number);
    }

    /// Nobody waits for long once nothing goes wrong.
    pub(crate) fn look_at_wants(&mut self) {
        let Some(calm) = self.calm_since else { return };
        let late = |want: &&Want| self.now > want.since.max(calm) + WAIT_MAX;
        if let Some(want) = self.contenders.wants.values().find(late) {
            let wrong = format!("{} waits for {} for too long", want.who, want.lock);
            self.blame("line", wrong);
        }
    }

    /// Somebody was told that a lock is theirs.
    pub(crate) fn has_lock(&mut self, number: u64, grip: &Grip) {
        self.wants_no_more(number);
        let term = self.term(grip);
        let told = term.map(|term| *term.told.get_or_insert(number));
        if told != Some(number) {
            let token = grip.token;
            let whose = told.map_or("nobody's", |_| "another's");
            self.blame("locks", format!("{}: token {token} is {whose}", grip.lock));
        }
    }

    fn term(&mut self, grip: &Grip) -> Option<&mut Term> {
        let lock = self.locks.locks.get_mut(&grip.lock)?;
        lock.terms.get_mut(&grip.token.get())
    }

    /// How somebody's time ended; one that ran out may not have been removed yet.
    fn how_it_ended(&mut self, grip: &Grip) -> Option<(Duration, End)> {
        let ended = self.term(grip).and_then(|term| term.ended);
        ended.or_else(|| {
            // Nobody knows any more what there was then.
            let live = self.source.live()?.record(&grip.lock).now_or_never();
            let there = live.and_then(Result::ok).flatten().is_some();
            (!there).then_some((self.now, End::Expired))
        })
    }

    /// Somebody may rely on a lock, as far as it knows.
    pub(crate) fn relies_on_lock(&mut self, grip: &Grip) {
        let (now, jumps) = (self.now, self.clock_jumps);
        let wrong = self.how_it_ended(grip).filter(|(at, end)| match end {
            // It is not told until it renews.
            End::Broken => now > *at + grip.ttl,
            // The token protects what a jump of the store's clock exposes.
            End::Expired => !jumps || now > *at + grip.ttl,
            End::GivenUp => true,
        });
        if let Some((at, end)) = wrong {
            let token = grip.token;
            let wrong = format!("{} {token} is relied upon: {end:?} at {at:?}", grip.lock);
            self.blame("locks", wrong);
        }
    }

    /// Something that was written under a lock arrives, perhaps long after it was sent, at what the
    /// lock protects. Whoever had the lock later keeps it out.
    pub(crate) fn write_under(&mut self, grip: &Grip) {
        let lock = self.locks.locks.entry(grip.lock.clone()).or_default();
        let token = grip.token.get();
        let refused = token < lock.seen;
        lock.seen = lock.seen.max(token);
        let current = lock.holder.as_ref().and_then(|holder| holder.token);
        let outrun = current.is_some_and(|current| current < token);
        self.figures.writes_refused += u64::from(refused);
        if outrun {
            self.blame(
                "locks",
                format!("{} {token} is ahead of its holder", grip.lock),
            );
        }
    }

    /// Somebody was told what became of its release.
    pub(crate) fn released(&mut self, grip: &Grip, answer: &Result<()>) {
        let end = self.how_it_ended(grip).map(|(_, end)| end);
        let wrong = match answer {
            Ok(()) => !matches!(end, Some(End::GivenUp | End::Broken)),
            Err(Error::Conflict(_)) if end.is_none() => self.source.live().is_some(),
            Err(Error::Conflict(_)) => !matches!(end, Some(End::Expired | End::Broken)),
            Err(_) => false,
        };
        if wrong {
            let wrong = format!("{}: {answer:?}, but it was {end:?}", grip.lock);
            self.blame("acknowledged", wrong);
        }
    }

    /// Those who contend, in one process, are no more.
    pub(super) fn forget_wants(&mut self, who: &str) {
        self.contenders.wants.retain(|_, want| want.who != who);
    }
}
