//! One try: rows are locked and read, decided about, and written.

use std::collections::HashSet;
use std::time::Duration;

use plimsoll_core::decide::{self, Moment};
use plimsoll_core::error::Applied;
use plimsoll_core::store::{Commit, Receipt, Renewal};
use plimsoll_core::{Result, Revision, TaskId, Timestamp};

use super::assumed::{Assumed, claims_of, keys};
use super::writing::Writing;
use super::{About, Done, Failed, How, Pace, Part, beside};
use crate::call::{BEGIN, Call, Sql, params};
use crate::claim::{self, Revised};
use crate::claims::CLOSE_SPENT;
use crate::codec::Id;
use crate::error::{Answer, Fault};
use crate::indexes;
use crate::load::{Loaded, Wanted};
use crate::notice::earlier;
use crate::renew::{self, Known};
use crate::session::Session;

/// Rows that somebody else keeps locked are not waited for, but a moment: our own transactions are
/// over by then.
pub(super) static HURRY: Sql = Sql {
    text: "SELECT set_config('lock_timeout', '50', true)",
    types: &[],
};

/// A transaction that takes longer than this is late: others may have looked already where its tasks
/// are to be found. Less than what they leave out, because it takes a while to tell them.
const LATE: Duration = Duration::from_millis(50);

/// One try, in one transaction. Whatever fails before `COMMIT` is sent has not happened.
pub(crate) async fn attempt(
    session: &mut Session,
    about: About<'_>,
    part: &Part,
    how: How,
) -> Result<Done, Failed> {
    let untouched = |fault: Fault| (fault, Applied::No);
    let now = (part.beside.as_ref()).map_or_else(|| about.clock.now(), |beside| beside.now);
    let ns = about.ns;
    let mut begin = match part.inbox {
        None => vec![Call::from(&BEGIN)],
        Some(_) => Vec::new(),
    };
    match how.pace {
        Pace::Patient => {}
        Pace::Hurried | Pace::Rushed => begin.push((&HURRY).into()),
    }
    let first = session.revisions().await.map_err(untouched)?;
    let mut moment = Moment {
        now,
        revision: Revision::new(first),
        limits: about.limits,
    };
    let assumed = match how.cautious {
        true => Assumed::nothing(about),
        false => Assumed::of(&part.commits, about),
    };
    let has_keys = keys(&part.commits).next().is_some();
    if has_keys && part.beside.is_some() && !assumed.has_keys() {
        // Somebody has met a key that is taken, meanwhile.
        return Err(untouched(Fault::Moved));
    }
    let mut claims = claims_of(about, part, &assumed, how.cautious);
    let spent = about.held.spent(ns);
    if !spent.is_empty() {
        begin.push(Call::new(&CLOSE_SPENT, params![ns, spent]));
    }
    begin.extend(claims.lock(ns, &[]));
    let decided = decide(
        session,
        ns,
        &part.commits,
        &mut moment,
        &assumed,
        &mut begin,
    );
    let decided = decided.await.map_err(untouched)?;
    if has_keys {
        let is_taken = |key| decided.loaded.rows.keys.stored(key).is_some();
        let taken = keys(&part.commits).any(is_taken);
        about.taken_keys.learn(ns, taken);
    }
    let unused = moment.revision.get();
    let mut writing = Writing::new(ns, session.prepares());
    let mut done = Done::default();
    let held = assumed.held.claims().map(|(task, _)| (task.id(), None));
    writing.apply.rowless(held);
    let receipts = writing.commits(decided, &part.commits).map_err(untouched)?;
    let written: HashSet<TaskId> = writing.apply.written.iter().map(|task| task.id).collect();
    let leaves = |id: TaskId| written.contains(&id);
    let closed = assumed.held.last(leaves);
    // Claims that are closed need not be locked before.
    if begin.pop_if(|_| !claims.is_empty()).is_some() {
        begin.extend(claims.lock(ns, &closed));
    }
    begin.extend(claims.close(ns, &closed));
    (claims.prolonged).retain(|_, tasks| !tasks.iter().any(|task| leaves(task.id())));
    let count = u64::try_from(part.commits.len()).unwrap_or(u64::MAX);
    moment.revision = Revision::new(moment.revision.get().saturating_add(count));
    let mut calls = begin;
    if let Some(inbox) = &part.inbox {
        let errors = receipts.iter().map(|receipt| receipt.as_ref().err());
        calls.extend(inbox.remove(ns, now, errors));
    }
    if let Some(renew) = &part.renew {
        calls.extend(writing.flush().map_err(untouched)?);
        let known = Known {
            prolonged: &claims.prolonged,
            some_are_locked: how.past_locked,
        };
        let apply = &mut writing.apply;
        let renewals = renew::renew(session, ns, renew, now, known, &mut calls, apply);
        done.renewals = Some(Ok(renewals.await.map_err(untouched)?));
    }
    let (mut remember, mut plain) = (None, None);
    if let Some(claim) = &part.claim {
        calls.extend(writing.flush().map_err(untouched)?);
        let sent = std::mem::take(&mut calls);
        let mut revised = Revised { moment };
        let (asked, apply) = ((claim, how.cautious), &mut writing.apply);
        let floors = (about.floors, about.off);
        let taken = claim::claim(session, ns, asked, &mut revised, sent, apply, floors);
        let taken = taken.await.map_err(untouched)?;
        writing.changes.extend(taken.changes);
        remember = taken.remember;
        plain = Some((Id(claim.request.as_u128()), taken.plain));
        done.look_into_inbox = taken.look_into_inbox;
        done.claimed = Some(Ok(taken.claimed));
    }
    calls.extend(writing.flush().map_err(untouched)?);
    if let Some(first) = part
        .beside
        .as_ref()
        .and_then(|beside| beside.first.as_ref())
    {
        let sent = std::mem::take(&mut calls);
        beside::write(session, first, &sent)
            .await
            .map_err(untouched)?;
    }
    calls.extend(remember);
    // What was submitted is thought to be there since `now`.
    let late = || (about.clock.now().since(now) + about.off > LATE).then_some(now);
    done.news = writing.news();
    done.news.back_to = earlier(done.news.back_to, late());
    let notice = (about.listening).and_then(|listening| listening.at_once(ns, &done.news));
    let (position, told) = writing.finish(session, calls, now, notice).await?;
    let told_late = done.news.back_to;
    done.news.back_to = earlier(told_late, late());
    done.told = told && done.news.back_to == told_late;
    if position.is_none() && part.commits.is_empty() {
        // Nothing was written, so nothing has one of these.
        session.keep_revisions(unused);
    }
    assumed.held.committed(leaves, &closed);
    about.held.committed(ns, writing.tasks.drain(..));
    let renewals = done.renewals.iter().flatten().flatten();
    about.held.renewed(ns, renewed(part, renewals));
    if let Some((request, tasks)) = plain.filter(|(_, tasks)| !tasks.is_empty()) {
        about.held.claimed(ns, request, tasks);
    }
    done.receipts = (receipts.into_iter())
        .map(|receipt| receipt.map(|draft| draft.with(position)))
        .collect();
    tell_repeats(&mut done.receipts, &writing.repeats);
    Ok(done)
}

/// The leases that were renewed, and when they end now.
fn renewed<'a>(
    part: &'a Part,
    renewals: impl Iterator<Item = &'a Renewal> + 'a,
) -> impl Iterator<Item = (TaskId, Timestamp)> + 'a {
    let holders = part.renew.iter().flat_map(|renew| &renew.holders);
    holders
        .zip(renewals)
        .filter_map(|(holder, renewal)| match renewal {
            Renewal::Held { until } | Renewal::CancelRequested { until, .. } => {
                Some((holder.task, *until))
            }
            Renewal::Lost(_) => None,
        })
}

/// A commit that repeats one of the same call has its position.
fn tell_repeats(receipts: &mut [Result<Receipt>], repeats: &[(usize, usize)]) {
    for (place, first) in repeats {
        let position = match receipts.get(*first) {
            Some(Ok(receipt)) => receipt.position,
            Some(Err(_)) | None => None,
        };
        if let Some(Ok(receipt)) = receipts.get_mut(*place) {
            receipt.position = position;
        }
    }
}

/// Locks and reads what commits need, and decides them. What is left of `begin` was not sent.
async fn decide(
    session: &mut Session,
    ns: i32,
    commits: &[Commit],
    moment: &mut Moment<'_>,
    assumed: &Assumed<'_>,
    begin: &mut Vec<Call>,
) -> Answer<Decided> {
    let mut loaded = Loaded::default();
    let mut indexes: Option<Vec<indexes::Known>> = None;
    assumed.load(&mut loaded);
    let applied = loop {
        if loaded.newest >= moment.revision {
            // The last ones were taken, so these are newer, or were taken just now.
            moment.revision = Revision::new(session.revisions().await?);
        }
        match decide::batch(commits, &mut loaded.rows, *moment) {
            Ok(applied) => break applied,
            Err(missing) => {
                let wanted = Wanted::of(missing);
                let mut calls = std::mem::take(begin);
                let looks_for_indexes = wanted.has_records() && indexes.is_none();
                if looks_for_indexes {
                    calls.extend(indexes::calls(ns));
                }
                let mut before = wanted.load(session, ns, calls, &mut loaded).await?;
                if looks_for_indexes {
                    indexes = Some(indexes::known_from(&before.pop().unwrap_or_default())?);
                }
            }
        }
    };
    if !assumed.is_verified(&loaded.rows) {
        return Err(Fault::Moved);
    }
    Ok(Decided {
        applied,
        loaded,
        indexes: indexes.unwrap_or_default(),
    })
}

/// Decided commits, before they are written.
pub(super) struct Decided {
    pub(super) applied: Vec<Result<decide::Applied>>,
    pub(super) loaded: Loaded,
    pub(super) indexes: Vec<indexes::Known>,
}
