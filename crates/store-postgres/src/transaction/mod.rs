//! One call that writes: commits, renewals and a claim in one transaction.
//!
//! First it is assumed that tasks to be submitted are new, and their keys free, so that nothing has to be
//! read for them. If that turns out wrong, or somebody else was faster, everything is read and decided
//! again.

mod assumed;
mod attempt;
mod beside;
mod tries;
mod writing;

use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::error::Applied;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{
    Claim, Claimed, Commit, Exchange, Exchanged, Guard, Receipt, Renew, Renewal, Write,
};
use plimsoll_core::{Error, Limits, Result};

use crate::error::Fault;
use crate::floors::Floors;
use crate::held::Held;
use crate::inbox::Inbox;
use crate::listen::Listening;
use crate::notice::News;
use crate::pool::Pool;
use crate::stuck::Stuck;
use crate::taken_keys::TakenKeys;

pub(crate) use attempt::attempt;
use beside::Beside;
pub(crate) use tries::TRIES;

/// How many commits a transaction has at most: as many as there are revisions for it, less one for
/// a claim.
const COMMITS_MAX: usize = 1_000;

/// About how many bytes they carry: an entry of the history holds them all.
const COMMITS_BYTES_MAX: usize = 1024 * 1024;

/// How many records they name: each that does not exist needs a lock of its own, and the server has
/// room for some thousands (`max_locks_per_transaction` times `max_connections`). A commit of more
/// stays whole.
const COMMITS_RECORDS_MAX: usize = 500;

/// What a call is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) ns: i32,
    pub(crate) limits: &'a Limits,
    pub(crate) clock: &'a dyn Clock,
    /// How wrong it can be.
    pub(crate) off: Duration,
    pub(crate) held: &'a Held,
    pub(crate) stuck: &'a Stuck,
    pub(crate) taken_keys: &'a TakenKeys,
    pub(crate) listening: Option<&'a Listening>,
    pub(crate) floors: &'a Floors,
}

/// What becomes one transaction.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) commits: Vec<Commit>,
    pub(crate) renew: Option<Renew>,
    pub(crate) claim: Option<Claim>,
    /// Where the commits come from, if it is the inbox: then the transaction has begun.
    pub(crate) inbox: Option<Inbox>,
    /// Of one that has another one beside it.
    beside: Option<Beside>,
}

/// What a transaction came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    receipts: Vec<Result<Receipt>>,
    renewals: Option<Result<Vec<Renewal>>>,
    claimed: Option<Result<Claimed>>,
    pub(crate) news: News,
    /// Other processes have been told.
    pub(crate) told: bool,
    /// A claim found less than it asked for, and there is something in the inbox.
    look_into_inbox: bool,
}

/// How long a transaction waits for rows that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As long as `lock_timeout` allows.
    Patient,
    /// Hardly: as long as our own transactions take, even on a machine that is busy.
    Hurried,
    /// Less than that: others wait for it.
    Rushed,
}

/// How a transaction is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether everything is read, and nothing assumed.
    pub(crate) cautious: bool,
    pub(crate) pace: Pace,
    /// Whether leases whose rows somebody else has locked are not prolonged.
    pub(crate) past_locked: bool,
}

/// Why a transaction failed, and whether it may have happened all the same.
pub(crate) type Failed = (Fault, Applied);

/// What an exchange came to.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) exchanged: Exchanged,
    pub(crate) news: News,
    /// What of it other processes have not been told.
    pub(crate) untold: News,
    /// A claim found less than it asked for, and there is something in the inbox.
    pub(crate) look_into_inbox: bool,
}

/// Carries out an exchange.
pub(crate) async fn exchange(pool: &Pool, about: About<'_>, exchange: Exchange) -> Result<Carried> {
    let mut answer = Exchanged {
        commits: Vec::with_capacity(exchange.commits.len()),
        renewals: None,
        claimed: None,
    };
    let mut last = Part::default();
    let (renew, claim) = (exchange.renew, exchange.claim);
    match renew.as_ref().map(|renew| renew.check(about.limits)) {
        Some(Err(invalid)) => answer.renewals = Some(Err(invalid.into())),
        Some(Ok(())) | None => last.renew = renew,
    }
    match claim.as_ref().map(|claim| claim.check(about.limits)) {
        Some(Err(invalid)) => answer.claimed = Some(Err(invalid.into())),
        Some(Ok(())) | None => last.claim = claim,
    }
    let (mut news, mut untold, mut look_into_inbox) = (News::default(), News::default(), false);
    let (mut valid, mut places) = (Vec::new(), Vec::new());
    for (place, commit) in exchange.commits.into_iter().enumerate() {
        match commit.check(about.limits) {
            Ok(()) => {
                answer.commits.push(Err(Error::Closed));
                places.push(place);
                valid.push(commit);
            }
            Err(invalid) => answer.commits.push(Err(invalid.into())),
        }
    }
    let mut parts = cut(valid);
    match parts.last_mut() {
        Some(part) => (part.renew, part.claim) = (last.renew, last.claim),
        None => parts.push(last),
    }
    let mut carried = Vec::new();
    for mut part in parts {
        let second = match tries::are_held_up(about, &part) {
            true => None,
            false => {
                let keys_are_free = !about.taken_keys.are_likely(about.ns);
                beside::second_half(&mut part, keys_are_free)
            }
        };
        let asked = Asked::of(&part);
        match second {
            None => carried.push((asked, tries::carry_out(pool, about, part, false).await)),
            Some(second) => {
                let asked = [asked, Asked::of(&second)];
                let done = beside::carry_out(pool, about, part, second).await;
                carried.extend(asked.into_iter().zip(done));
            }
        }
    }
    let alone = carried.len() == 1;
    let mut places = places.into_iter();
    for (asked, done) in carried {
        match done {
            Ok(done) => {
                news.absorb(&done.news);
                if !done.told {
                    untold.absorb(&done.news);
                }
                look_into_inbox |= done.look_into_inbox;
                for (receipt, place) in done.receipts.into_iter().zip(&mut places) {
                    answer.commits[place] = receipt;
                }
                answer.renewals = answer.renewals.or(done.renewals);
                answer.claimed = answer.claimed.or(done.claimed);
            }
            Err((fault, applied)) => {
                let error = fault.into_error(applied);
                if alone {
                    return Err(error);
                }
                for place in places.by_ref().take(asked.commits) {
                    answer.commits[place] = Err(error.clone());
                }
                let failed = |asked: bool| asked.then(|| error.clone());
                answer.renewals = answer.renewals.or(failed(asked.renews).map(Err));
                answer.claimed = answer.claimed.or(failed(asked.claims).map(Err));
            }
        }
    }
    Ok(Carried {
        exchanged: answer,
        news,
        untold,
        look_into_inbox,
    })
}

/// What a part is asked for, and has to be answered.
struct Asked {
    commits: usize,
    renews: bool,
    claims: bool,
}

impl Asked {
    fn of(part: &Part) -> Self {
        Self {
            commits: part.commits.len(),
            renews: part.renew.is_some(),
            claims: part.claim.is_some(),
        }
    }
}

/// Cuts commits into transactions that hold nobody up for long.
fn cut(commits: Vec<Commit>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let (mut bytes, mut records) = (0, 0);
    for commit in commits {
        (bytes, records) = (bytes + commit.size(), records + records_of(&commit));
        let fits = bytes <= COMMITS_BYTES_MAX && records <= COMMITS_RECORDS_MAX;
        match parts.last_mut() {
            Some(part) if part.commits.len() < COMMITS_MAX && fits => part.commits.push(commit),
            _ => {
                (bytes, records) = (commit.size(), records_of(&commit));
                parts.push(Part {
                    commits: vec![commit],
                    ..Part::default()
                });
            }
        }
    }
    parts
}

/// How many records a commit names at most.
fn records_of(commit: &Commit) -> usize {
    let guards = commit.guards.iter().filter(|guard| match guard {
        Guard::RecordAbsent(_)
        | Guard::RecordPresent(_)
        | Guard::RecordAt(..)
        | Guard::Field(..) => true,
        Guard::Held(_) | Guard::TaskAt(..) | Guard::GroupOpen(_) => false,
    });
    let writes = commit.writes.iter().filter(|write| {
        matches!(
            write,
            Write::Put(_)
                | Write::Merge(_)
                | Write::Delete(_)
                | Write::Touch(..)
                | Write::ExpireRecord(_)
        )
    });
    guards.count() + writes.count()
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use plimsoll_core::Key;

    use super::*;

    /// How many commits each transaction has.
    fn parts(commits: impl IntoIterator<Item = Commit>) -> Vec<usize> {
        let parts = cut(commits.into_iter().collect());
        parts.iter().map(|part| part.commits.len()).collect()
    }

    fn records(count: usize) -> Commit {
        let key = Key::new("key").expect("a key");
        let delete = |commit: Commit, _| commit.write(Write::Delete(key.clone()));
        (0..count).fold(Commit::new(), delete)
    }

    #[test]
    fn transactions_have_few_commits_and_few_records() {
        assert_eq!(parts([]), [0; 0]);
        assert_eq!(parts(vec![Commit::new(); 2_500]), [1_000, 1_000, 500]);
        assert_eq!(parts(vec![records(1); 1_200]), [500, 500, 200]);
        assert_eq!(parts(vec![records(10); 100]), [50, 50]);
        assert_eq!(parts(vec![records(501); 3]), [1, 1, 1]);
        assert_eq!(parts([records(499), records(1), records(1)]), [2, 1]);
        let key = Key::new("key").expect("a key");
        let guarded = records(1).guard(Guard::RecordAbsent(key));
        assert_eq!(parts(vec![guarded; 300]), [250, 50]);
    }
}
