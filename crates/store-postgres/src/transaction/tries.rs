//! How often a transaction is tried, and what is done about rows that others keep locked.

use plimsoll_core::error::Applied;
use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Error, Result};

use super::assumed::held_task;
use super::attempt::attempt;
use super::{About, Done, Failed, How, Pace, Part};
use crate::error::Fault;
use crate::floors::Floors;
use crate::notice::News;
use crate::pool::Pool;
use crate::stuck;

/// How often a transaction is tried again because somebody else was faster.
pub(crate) const TRIES: usize = 100;

/// How often with another connection.
const RECONNECTS: usize = 8;

impl Pace {
    /// Nobody waits for what is known to be locked. Leases are worth it.
    fn of(about: About<'_>, part: &Part) -> Self {
        match about.stuck.has_unnamed(about.ns) && !part.commits.is_empty() {
            true => Self::Hurried,
            false => Self::Patient,
        }
    }

    /// How often one commit waits once more for rows that somebody else has locked.
    fn waits(self) -> usize {
        match self {
            Self::Patient | Self::Hurried => 2,
            Self::Rushed => 0,
        }
    }
}

impl How {
    fn at(pace: Pace) -> Self {
        Self {
            cautious: false,
            pace,
            past_locked: false,
        }
    }
}

/// Whether some of a part needs rows that are thought to be locked by somebody else.
pub(super) fn are_held_up(about: About<'_>, part: &Part) -> bool {
    stuck::held_up(&part.commits, about.stuck.rows(about.ns)).contains(&true)
}

/// Carries out a part, past rows that are thought to be locked by somebody else. `cautious`: nothing is assumed.
pub(super) async fn carry_out(
    pool: &Pool,
    about: About<'_>,
    part: Part,
    cautious: bool,
) -> Result<Done, Failed> {
    match are_held_up(about, &part) {
        true => past_the_stuck(pool, about, part).await,
        false => {
            let how = How {
                cautious,
                ..How::at(Pace::of(about, &part))
            };
            try_out(pool, about, part, how).await
        }
    }
}

/// Tries a part once, hardly waiting for others. What it came to may be that it has to be [carried out](carry_out) once
/// more.
pub(super) async fn once(pool: &Pool, about: About<'_>, part: &Part) -> Result<Done, Failed> {
    let how = How::at(Pace::Hurried);
    let untouched = |fault| (fault, Applied::No);
    let mut pooled = pool.session().await.map_err(untouched)?;
    let session = pooled.session().map_err(untouched)?;
    let tried = attempt(session, about, part, how).await;
    if let Err((_, applied)) = &tried {
        session.roll_back().await;
        if *applied != Applied::No {
            about.floors.lower_all();
        }
    }
    tried
}

/// A claim that nobody waits for any more: what it has locked is free when the server hears of it, and others may
/// have passed it.
struct Passed<'a>(Option<&'a Floors>);

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        if let Some(floors) = self.0 {
            floors.lower_all();
            floors.look_soon();
        }
    }
}

/// Tries a part, again as long as that is of use.
async fn try_out(pool: &Pool, about: About<'_>, part: Part, mut how: How) -> Result<Done, Failed> {
    let pace = how.pace;
    let (mut tries, mut waits, mut reconnects) = (0, 0, 0);
    loop {
        let mut pooled = pool.session().await.map_err(|fault| (fault, Applied::No))?;
        let session = pooled.session().map_err(|fault| (fault, Applied::No))?;
        let mut passed = Passed(part.claim.as_ref().map(|_| about.floors));
        let tried = attempt(session, about, &part, how).await;
        passed.0 = None;
        let (fault, applied) = match tried {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        let writes = part.commits.iter().flat_map(|commit| &commit.writes);
        about.held.forget(about.ns, writes.filter_map(held_task));
        session.roll_back().await;
        if part.claim.is_some() || applied != Applied::No {
            about.floors.lower_all();
        }
        if applied != Applied::No {
            return Err((fault, applied));
        }
        match fault {
            Fault::Moved if tries < TRIES => tries += 1,
            // It may be one lease of many.
            Fault::Busy if part.renew.is_some() && part.commits.len() <= 1 && !how.past_locked => {
                how.past_locked = true;
            }
            Fault::Busy if part.commits.len() <= 1 && waits < pace.waits() => waits += 1,
            Fault::Busy if part.commits.len() <= 1 && pace != Pace::Patient => {
                return Err((fault, applied));
            }
            Fault::Busy if !part.commits.is_empty() => {
                drop(pooled);
                let busy = stuck::look(pool, about.ns, &part.commits).await;
                let busy = busy.map_err(|fault| (fault, Applied::No))?;
                about.stuck.mark(about.ns, busy);
                return Box::pin(past_the_stuck(pool, about, part)).await;
            }
            Fault::Corrupt(_) | Fault::Crowded if part.commits.len() > 1 => {
                drop(pooled);
                return Box::pin(one_by_one(pool, about, part, pace)).await;
            }
            Fault::Corrupt(what) if part.commits.len() == 1 => {
                let error = Error::Corrupt(what.into());
                let rest = Part {
                    commits: Vec::new(),
                    ..part
                };
                drop(pooled);
                let mut done = Box::pin(try_out(pool, about, rest, How::at(pace))).await?;
                done.receipts = vec![Err(error)];
                return Ok(done);
            }
            fault if (fault.breaks_connection() || fault.is_stale()) && reconnects < RECONNECTS => {
                reconnects += 1;
            }
            fault => return Err((fault, applied)),
        }
        how.cautious = true;
    }
}

/// Carries out what names no row that somebody else keeps locked. The rest is tried almost without
/// waiting, each commit by itself.
async fn past_the_stuck(pool: &Pool, about: About<'_>, mut part: Part) -> Result<Done, Failed> {
    let held_up = stuck::held_up(&part.commits, about.stuck.rows(about.ns));
    if !held_up.contains(&true) {
        // It is free by now, or a row that a decision has led to.
        return one_by_one(pool, about, part, Pace::Hurried).await;
    }
    let (mut free, mut stuck) = (Vec::new(), Vec::new());
    for (commit, held_up) in part.commits.into_iter().zip(&held_up) {
        match held_up {
            true => stuck.push(commit),
            false => free.push(commit),
        }
    }
    part.commits = free;
    let how = How::at(Pace::of(about, &part));
    let mut done = try_out(pool, about, part, how).await?;
    done.told = false;
    let mut free = std::mem::take(&mut done.receipts).into_iter();
    let (mut stuck, mut waits) = (stuck.into_iter(), true);
    for held_up in held_up {
        let receipt = match held_up {
            false => free.next(),
            true => match stuck.next() {
                Some(commit) => {
                    let tried = hardly_waiting(pool, about, commit, &mut waits, &mut done.news);
                    Some(tried.await)
                }
                None => None,
            },
        };
        done.receipts.extend(receipt);
    }
    Ok(done)
}

/// Carries out a commit if all rows that it names are free, or `waits` a moment for them: a row that
/// everybody wants is hardly ever free, but soon. Only the first one waits, if in vain.
async fn hardly_waiting(
    pool: &Pool,
    about: About<'_>,
    commit: Commit,
    waits: &mut bool,
    news: &mut News,
) -> Result<Receipt> {
    let untouched = |fault: Fault| fault.into_error(Applied::No);
    let busy = stuck::look(pool, about.ns, std::slice::from_ref(&commit)).await;
    let busy = busy.map_err(untouched)?;
    if !busy.is_empty() && !*waits {
        about.stuck.mark(about.ns, busy);
        return Err(untouched(Fault::Busy));
    }
    let one = Part {
        commits: vec![commit.clone()],
        ..Part::default()
    };
    let pace = if *waits { Pace::Hurried } else { Pace::Rushed };
    let mut done = match try_out(pool, about, one, How::at(pace)).await {
        Ok(done) => done,
        Err((fault, applied)) => {
            *waits &= !matches!(fault, Fault::Busy);
            about.stuck.mark(about.ns, busy);
            return Err(fault.into_error(applied));
        }
    };
    about.stuck.clear(about.ns, &commit);
    news.absorb(&done.news);
    (done.receipts.pop()).unwrap_or_else(|| Err(Error::Corrupt("a commit was not decided".into())))
}

/// Carries out each commit by itself: one that cannot be does not keep the others waiting. Where a row
/// stays locked, nobody waits for it for a while.
async fn one_by_one(
    pool: &Pool,
    about: About<'_>,
    mut part: Part,
    mut pace: Pace,
) -> Result<Done, Failed> {
    let mut all = Done::default();
    for commit in std::mem::take(&mut part.commits) {
        let one = Part {
            commits: vec![commit],
            ..Part::default()
        };
        match try_out(pool, about, one, How::at(pace)).await {
            Ok(done) => {
                all.news.absorb(&done.news);
                all.receipts.extend(done.receipts);
            }
            Err((fault, applied)) => {
                if matches!(fault, Fault::Busy) {
                    about.stuck.mark_unnamed(about.ns);
                    pace = Pace::Rushed;
                }
                all.receipts.push(Err(fault.into_error(applied)));
            }
        }
    }
    // The commits have happened, whatever becomes of the rest.
    let (renews, claims) = (part.renew.is_some(), part.claim.is_some());
    match try_out(pool, about, part, How::at(Pace::Patient)).await {
        Ok(done) => {
            all.news.absorb(&done.news);
            Ok(Done {
                receipts: all.receipts,
                news: all.news,
                told: false,
                ..done
            })
        }
        Err((fault, applied)) => {
            let error = fault.into_error(applied);
            all.renewals = renews.then(|| Err(error.clone()));
            all.claimed = claims.then_some(Err(error));
            Ok(all)
        }
    }
}
