//! One call that writes: commits, renewals and a claim in one transaction.
//!
//! First it is assumed that tasks to be submitted are new, so that nothing has to be read for
//! them. If that turns out wrong, or somebody else was faster, everything is read and decided
//! again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use plimsoll_core::change::Change;
use plimsoll_core::clock::Clock;
use plimsoll_core::decide::{self, Moment, Rows};
use plimsoll_core::error::Applied;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{
    Claim, Claimed, Commit, Exchange, Exchanged, Guard, Receipt, Renew, Renewal, Write,
};
use plimsoll_core::task::Task;
use plimsoll_core::wake::Wake;
use plimsoll_core::{Error, Limits, Position, Result, Revision, TaskId, Timestamp};
use tokio_postgres::types::Type;

use crate::apply::Apply;
use crate::claim::{self, Revised};
use crate::claims::{self, CLOSE_SPENT};
use crate::codec::{At, Id, column, encode, unsigned};
use crate::error::{Answer, Fault};
use crate::held::{Held, Taken};
use crate::inbox::Inbox;
use crate::indexes::{self, Known};
use crate::load::{Loaded, Wanted};
use crate::pool::Pool;
use crate::session::{BEGIN, COMMIT, Call, Session, Sql, params};
use crate::stuck::{self, Stuck};

static APPEND: Sql = Sql {
    text: "SELECT plimsoll.append($1, $2, $3)",
    types: &[Type::INT4, Type::TIMESTAMPTZ, Type::BYTEA],
};
/// Receipts, with the position that this transaction has taken.
static REMEMBER: Sql = Sql {
    text: "INSERT INTO plimsoll.commits SELECT $1, u.id, $2, \
           CASE WHEN u.told THEN currval('plimsoll.positions') END, u.receipt \
           FROM unnest($3, $4, $5) u(id, told, receipt)",
    types: &[
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::UUID_ARRAY,
        Type::BOOL_ARRAY,
        Type::BYTEA_ARRAY,
    ],
};

/// How many commits a transaction has at most: as many as there are revisions for it, less one for
/// a claim.
const COMMITS_MAX: usize = 1_000;
/// About how many bytes they carry: an entry of the history holds them all.
const COMMITS_BYTES_MAX: usize = 1024 * 1024;
/// How often a transaction is tried again because somebody else was faster.
pub(crate) const TRIES: usize = 100;
/// How often one commit waits for rows that somebody else has locked.
const WAITS: usize = 2;
/// Rows that somebody else keeps locked are not waited for, but a moment: our own transactions are
/// over by then.
static HURRY: Sql = Sql {
    text: "SELECT set_config('lock_timeout', '50', true)",
    types: &[],
};
/// How often with another connection.
const RECONNECTS: usize = 8;

/// What a call is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) ns: i32,
    pub(crate) limits: &'a Limits,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) held: &'a Held,
    pub(crate) stuck: &'a Stuck,
}

/// What becomes one transaction.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) commits: Vec<Commit>,
    pub(crate) renew: Option<Renew>,
    pub(crate) claim: Option<Claim>,
    /// Where the commits come from, if it is the inbox: then the transaction has begun.
    pub(crate) inbox: Option<Inbox>,
}

/// What a transaction came to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    receipts: Vec<Result<Receipt>>,
    renewals: Option<Result<Vec<Renewal>>>,
    claimed: Option<Result<Claimed>>,
    pub(crate) wake: Wake,
    /// A claim found less than it asked for, and there is something in the inbox.
    look_into_inbox: bool,
}

/// How long a transaction waits for rows that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As long as `lock_timeout` allows.
    Patient,
    /// Hardly.
    Hurried,
}

impl Pace {
    /// Nobody waits for what is known to be locked. Leases are worth it.
    fn of(about: About<'_>, part: &Part) -> Self {
        match about.stuck.has_unnamed(about.ns) && !part.commits.is_empty() {
            true => Self::Hurried,
            false => Self::Patient,
        }
    }
}

/// How a transaction is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Whether everything is read, and nothing assumed.
    pub(crate) cautious: bool,
    pub(crate) pace: Pace,
}

/// Why a transaction failed, and whether it may have happened all the same.
pub(crate) type Failed = (Fault, Applied);

/// What an exchange came to.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) exchanged: Exchanged,
    pub(crate) wake: Wake,
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
    let (mut wake, mut look_into_inbox) = (Wake::default(), false);
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
    let alone = parts.len() == 1;
    let mut places = places.into_iter();
    for part in parts {
        let (count, renews, claims) = (
            part.commits.len(),
            part.renew.is_some(),
            part.claim.is_some(),
        );
        let carried = match about.stuck.rows(about.ns).is_empty() {
            true => {
                let pace = Pace::of(about, &part);
                carry_out(pool, about, part, pace).await
            }
            false => carry_out_beside(pool, about, part).await,
        };
        match carried {
            Ok(done) => {
                wake.absorb(&done.wake);
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
                for place in places.by_ref().take(count) {
                    answer.commits[place] = Err(error.clone());
                }
                answer.renewals = answer.renewals.or(renews.then(|| Err(error.clone())));
                answer.claimed = answer.claimed.or(claims.then(|| Err(error.clone())));
            }
        }
    }
    Ok(Carried {
        exchanged: answer,
        wake,
        look_into_inbox,
    })
}

/// Cuts commits into transactions that hold nobody up for long.
fn cut(commits: Vec<Commit>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut bytes = 0;
    for commit in commits {
        let size = commit.size();
        match parts.last_mut() {
            Some(part) if part.commits.len() < COMMITS_MAX && bytes + size <= COMMITS_BYTES_MAX => {
                part.commits.push(commit);
                bytes += size;
            }
            _ => {
                bytes = size;
                parts.push(Part {
                    commits: vec![commit],
                    ..Part::default()
                });
            }
        }
    }
    parts
}

/// Carries out a part, and tries again as long as that is of use.
async fn carry_out(pool: &Pool, about: About<'_>, part: Part, pace: Pace) -> Result<Done, Failed> {
    let mut how = How {
        cautious: false,
        pace,
    };
    let (mut tries, mut waits, mut reconnects) = (0, 0, 0);
    loop {
        let mut pooled = pool.session().await.map_err(|fault| (fault, Applied::No))?;
        let session = pooled.session().map_err(|fault| (fault, Applied::No))?;
        let (fault, applied) = match attempt(session, about, &part, how).await {
            Ok(done) => return Ok(done),
            Err(failed) => failed,
        };
        let writes = part.commits.iter().flat_map(|commit| &commit.writes);
        about.held.forget(about.ns, writes.filter_map(held_task));
        session.roll_back().await;
        match fault {
            Fault::Moved if tries < TRIES => tries += 1,
            Fault::Busy if pace == Pace::Hurried && part.commits.len() <= 1 => {
                return Err((fault, applied));
            }
            Fault::Busy if part.commits.len() <= 1 && waits < WAITS => waits += 1,
            Fault::Busy if !part.commits.is_empty() => {
                let busy = stuck::find(session, about.ns, &part.commits).await;
                drop(pooled);
                about
                    .stuck
                    .mark(about.ns, busy.map_err(|fault| (fault, Applied::No))?);
                return Box::pin(past_the_stuck(pool, about, part)).await;
            }
            Fault::Corrupt(_) if part.commits.len() > 1 => {
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
                let mut done = Box::pin(carry_out(pool, about, rest, pace)).await?;
                done.receipts = vec![Err(error)];
                return Ok(done);
            }
            fault
                if applied == Applied::No
                    && (fault.breaks_connection() || fault.is_stale())
                    && reconnects < RECONNECTS =>
            {
                reconnects += 1;
            }
            fault => return Err((fault, applied)),
        }
        how.cautious = true;
    }
}

/// Carries out a part while some rows are thought to be locked by somebody else.
async fn carry_out_beside(pool: &Pool, about: About<'_>, part: Part) -> Result<Done, Failed> {
    let stuck = about.stuck.rows(about.ns);
    match stuck::held_up(&part.commits, stuck).contains(&true) {
        true => past_the_stuck(pool, about, part).await,
        false => {
            let pace = Pace::of(about, &part);
            carry_out(pool, about, part, pace).await
        }
    }
}

/// Carries out what names no row that somebody else keeps locked. The rest is tried almost without
/// waiting, each commit by itself.
async fn past_the_stuck(pool: &Pool, about: About<'_>, mut part: Part) -> Result<Done, Failed> {
    let held_up = stuck::held_up(&part.commits, about.stuck.rows(about.ns));
    if !held_up.contains(&true) {
        // It was a row that a decision has led to.
        about.stuck.mark_unnamed(about.ns);
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
    let pace = Pace::of(about, &part);
    let mut done = carry_out(pool, about, part, pace).await?;
    let mut free = std::mem::take(&mut done.receipts).into_iter();
    let (mut stuck, mut waits) = (stuck.into_iter(), true);
    for held_up in held_up {
        let receipt = match held_up {
            false => free.next(),
            true => match stuck.next() {
                Some(commit) => {
                    let tried = hardly_waiting(pool, about, commit, &mut waits, &mut done.wake);
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
    wake: &mut Wake,
) -> Result<Receipt> {
    let untouched = |fault: Fault| fault.into_error(Applied::No);
    let busy = {
        let mut pooled = pool.session().await.map_err(untouched)?;
        let session = pooled.session().map_err(untouched)?;
        let found = stuck::find(session, about.ns, std::slice::from_ref(&commit)).await;
        found.map_err(untouched)?
    };
    if !busy.is_empty() && !*waits {
        about.stuck.mark(about.ns, busy);
        return Err(untouched(Fault::Busy));
    }
    let one = Part {
        commits: vec![commit.clone()],
        ..Part::default()
    };
    let mut done = match carry_out(pool, about, one, Pace::Hurried).await {
        Ok(done) => done,
        Err((fault, applied)) => {
            *waits &= !matches!(fault, Fault::Busy);
            about.stuck.mark(about.ns, busy);
            return Err(fault.into_error(applied));
        }
    };
    about.stuck.clear(about.ns, &commit);
    wake.absorb(&done.wake);
    (done.receipts.pop()).unwrap_or_else(|| Err(Error::Corrupt("a commit was not decided".into())))
}

/// The task that a write of its holder changes.
fn held_task(write: &Write) -> Option<TaskId> {
    match write {
        Write::Settle(settle) => Some(settle.holder.task),
        Write::Amend(amend) => Some(amend.holder.task),
        _ => None,
    }
}

/// Carries out each commit by itself: one that cannot be does not keep the others waiting.
async fn one_by_one(
    pool: &Pool,
    about: About<'_>,
    mut part: Part,
    pace: Pace,
) -> Result<Done, Failed> {
    let mut all = Done::default();
    for commit in std::mem::take(&mut part.commits) {
        let one = Part {
            commits: vec![commit],
            ..Part::default()
        };
        match carry_out(pool, about, one, pace).await {
            Ok(done) => {
                all.wake.absorb(&done.wake);
                all.receipts.extend(done.receipts);
            }
            Err((fault, applied)) => all.receipts.push(Err(fault.into_error(applied))),
        }
    }
    // The commits have happened, whatever becomes of the rest.
    let (renews, claims) = (part.renew.is_some(), part.claim.is_some());
    match carry_out(pool, about, part, Pace::Patient).await {
        Ok(done) => {
            all.wake.absorb(&done.wake);
            Ok(Done {
                receipts: all.receipts,
                wake: all.wake,
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

/// The tasks that a commit only wants to be held.
fn seen(commit: &Commit) -> impl Iterator<Item = TaskId> {
    let logged = commit.writes.iter().filter_map(|write| match write {
        Write::Log(log) => Some(log.holder.task),
        _ => None,
    });
    let guarded = commit.guards.iter().filter_map(|guard| match guard {
        Guard::Held(holder) => Some(holder.task),
        _ => None,
    });
    logged.chain(guarded)
}

/// The task that its holder amends, and that stays claimed.
fn amended_task(write: &Write) -> Option<TaskId> {
    match write {
        Write::Amend(amend) => Some(amend.holder.task),
        _ => None,
    }
}

/// Tasks that need not be read, as they are assumed to be: new ones do not exist, and those that
/// this process holds are as it has written them. Writing them, or locking their claims, finds out.
struct Assumed<'a> {
    new: BTreeSet<TaskId>,
    held: Taken<'a>,
}

impl<'a> Assumed<'a> {
    /// What can be assumed of the tasks of these commits. For a submit that needs another row,
    /// reading the task as well costs no further turn.
    fn of(commits: &[Commit], about: About<'a>) -> Self {
        let writes = || commits.iter().flat_map(|commit| &commit.writes);
        let new = writes().filter_map(|write| match write {
            Write::Submit(new) if new.key.is_none() && new.group.is_none() => Some(new.id),
            _ => None,
        });
        let (written, seen) = (
            writes().filter_map(held_task),
            commits.iter().flat_map(seen),
        );
        Self {
            new: new.collect(),
            held: about.held.take(about.ns, written, seen),
        }
    }

    /// Nothing.
    fn nothing(about: About<'a>) -> Self {
        Self::of(&[], about)
    }

    fn load(&self, loaded: &mut Loaded) {
        for id in &self.new {
            loaded.rows.tasks.load(*id, None);
        }
        for (id, holding) in &self.held.tasks {
            loaded.newest = holding.task.revision.max(loaded.newest);
            loaded.rows.tasks.load(*id, Some(holding.task.clone()));
        }
    }

    /// Whether everything that was assumed is going to be found out.
    fn is_verified(&self, rows: &Rows) -> bool {
        let after = |id: &TaskId| rows.tasks.get(id).flatten();
        let mut held = self.held.tasks.iter();
        self.new.iter().all(|id| after(id).is_some())
            && held.all(|(id, holding)| {
                let changed = |after: &Arc<Task>| after.revision != holding.task.revision;
                holding.claim.is_some() || after(id).is_none_or(changed)
            })
    }
}

/// Decided commits, before they are written.
struct Decided {
    applied: Vec<Result<decide::Applied>>,
    loaded: Loaded,
    indexes: Vec<Known>,
}

/// One try, in one transaction. Whatever fails before `COMMIT` is sent has not happened.
pub(crate) async fn attempt(
    session: &mut Session,
    about: About<'_>,
    part: &Part,
    how: How,
) -> Result<Done, Failed> {
    let untouched = |fault: Fault| (fault, Applied::No);
    let (ns, now) = (about.ns, about.clock.now());
    let mut begin = match part.inbox {
        None => vec![Call::from(&BEGIN)],
        Some(_) => Vec::new(),
    };
    if how.pace == Pace::Hurried {
        begin.push((&HURRY).into());
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
    let mut writing = Writing::new(ns);
    let mut done = Done::default();
    let held = assumed.held.claims().map(|(task, _)| (task.id(), None));
    writing.apply.rowless(held);
    let receipts = writing.commits(decided, &part.commits).map_err(untouched)?;
    let written: HashSet<TaskId> = writing.apply.written.iter().map(|(id, _)| *id).collect();
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
        let (prolonged, apply) = (&claims.prolonged, &mut writing.apply);
        let renewals = claim::renew(session, ns, renew, now, prolonged, &mut calls, apply);
        done.renewals = Some(Ok(renewals.await.map_err(untouched)?));
    }
    let (mut remember, mut plain) = (None, None);
    if let Some(claim) = &part.claim {
        calls.extend(writing.flush().map_err(untouched)?);
        let sent = std::mem::take(&mut calls);
        let mut revised = Revised { moment };
        let taken = claim::claim(session, ns, claim, &mut revised, sent, &mut writing.apply);
        let taken = taken.await.map_err(untouched)?;
        writing.changes.extend(taken.changes);
        remember = taken.remember;
        plain = Some((Id(claim.request.as_u128()), taken.plain));
        done.look_into_inbox = taken.look_into_inbox;
        done.claimed = Some(Ok(taken.claimed));
    }
    calls.extend(writing.flush().map_err(untouched)?);
    calls.extend(remember);
    done.wake = writing.wake();
    let position = writing.finish(session, calls, now).await?;
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

/// The claims that are written without being read: those of the tasks that this process settles,
/// and those of which it prolongs all that they hold.
fn claims_of(
    about: About<'_>,
    part: &Part,
    assumed: &Assumed<'_>,
    cautious: bool,
) -> claims::Assumed {
    let writes = part.commits.iter().flat_map(|commit| &commit.writes);
    let amended = writes.filter_map(amended_task).collect();
    let renew = part.renew.iter().filter(|_| !cautious);
    let holders = renew.flat_map(|renew| renew.holders.iter().cloned());
    let prolonged = about.held.whole(about.ns, holders);
    claims::Assumed::new(&assumed.held, &amended, prolonged)
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
    let mut indexes: Option<Vec<Known>> = None;
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

/// A receipt that has no position yet.
struct Draft {
    receipt: Receipt,
    told: bool,
}

impl Draft {
    fn with(self, position: Option<Position>) -> Receipt {
        match self.told {
            true => Receipt {
                position,
                ..self.receipt
            },
            false => self.receipt,
        }
    }
}

/// What a transaction is going to write.
struct Writing {
    ns: i32,
    apply: Apply,
    changes: Vec<Change>,
    /// Commits that repeat others of the same call.
    repeats: Vec<(usize, usize)>,
    /// Receipts to be remembered: id, whether there is history, body.
    remember: (Vec<Id>, Vec<bool>, Vec<Vec<u8>>),
    logs: bool,
    /// Tasks as they are written.
    tasks: Vec<(TaskId, Option<Arc<Task>>)>,
}

impl Writing {
    fn new(ns: i32) -> Self {
        Self {
            ns,
            apply: Apply::new(ns),
            changes: Vec::new(),
            repeats: Vec::new(),
            remember: Default::default(),
            logs: false,
            tasks: Vec::new(),
        }
    }

    /// Takes in what commits came to.
    fn commits(&mut self, decided: Decided, commits: &[Commit]) -> Answer<Vec<Result<Draft>>> {
        let mut drafts = Vec::with_capacity(commits.len());
        let mut lines = Vec::new();
        for (place, (applied, commit)) in decided.applied.into_iter().zip(commits).enumerate() {
            let applied = match applied {
                Ok(applied) => applied,
                Err(error) => {
                    drafts.push(Err(error));
                    continue;
                }
            };
            self.repeats
                .extend(applied.repeats.map(|first| (place, first)));
            let told = !applied.changes.is_empty();
            if let (Some(id), false) = (commit.id, applied.receipt.repeated) {
                self.remember.0.push(Id(id.as_u128()));
                self.remember.1.push(told);
                self.remember.2.push(encode(&applied.receipt)?);
            }
            self.changes.extend(applied.changes);
            lines.extend(applied.lines);
            drafts.push(Ok(Draft {
                receipt: applied.receipt,
                told,
            }));
        }
        self.logs = !lines.is_empty();
        let rowless = decided.loaded.rowless.into_iter();
        self.apply
            .rowless(rowless.map(|(task, claim)| (task, Some(claim))));
        self.apply.rows(decided.loaded.rows, &decided.indexes)?;
        self.apply.lines(&lines)?;
        Ok(drafts)
    }

    /// The statements for what was taken in since the last time.
    fn flush(&mut self) -> Answer<Vec<Call>> {
        let mut apply = std::mem::replace(&mut self.apply, Apply::new(self.ns));
        self.tasks.append(&mut apply.written);
        apply.calls()
    }

    fn wake(&self) -> Wake {
        let mut wake = Wake::of(&self.changes);
        wake.logs = self.logs;
        wake
    }

    /// Writes everything and commits. Answers the position of the entry, if there is one.
    async fn finish(
        &mut self,
        session: &mut Session,
        mut calls: Vec<Call>,
        now: Timestamp,
    ) -> Result<Option<Position>, Failed> {
        let untouched = |fault| (fault, Applied::No);
        let mut appended = None;
        if !self.changes.is_empty() {
            let entry = encode(&self.changes).map_err(untouched)?;
            appended = Some(calls.len());
            calls.push(Call::new(&APPEND, params![self.ns, At(now), entry]));
        }
        let (ids, told, receipts) = std::mem::take(&mut self.remember);
        if !ids.is_empty() {
            calls.push(Call::new(
                &REMEMBER,
                params![self.ns, At(now), ids, told, receipts],
            ));
        }
        // Nothing was read or locked, and there is nothing to write.
        let idle = calls.iter().all(|call| call.begins() || call.is(&HURRY));
        if idle && !session.is_open() {
            return Ok(None);
        }
        calls.push((&COMMIT).into());
        let answers = session.commit(calls).await?;
        match appended {
            None => Ok(None),
            Some(place) => {
                let row = answers.get(place).and_then(|rows| rows.first());
                let row = row.ok_or((Fault::Corrupt("no position".into()), Applied::Unknown))?;
                let position: i64 = column(row, 0).map_err(|fault| (fault, Applied::Unknown))?;
                let position = unsigned(position).map_err(|fault| (fault, Applied::Unknown))?;
                Ok(Some(Position::new(position)))
            }
        }
    }
}
