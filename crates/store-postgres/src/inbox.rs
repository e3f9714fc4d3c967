//! Tasks that were submitted inside other people's transactions.
//!
//! Such a transaction may stay open for long, so it must not hold rows or a position that others
//! wait for: it only adds to the inbox. Once it has committed, the store takes the tasks from there
//! and submits them, both in one transaction, in the order in which they came. One process does so
//! at a time for a namespace. What needs a row that somebody keeps locked is passed over for a
//! while, and waits alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::error::Applied;
use plimsoll_core::lifecycle::Lifecycle;
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::{
    Due, KeyLifetime, KeyRequest, Lane, NewTask, OnConflict, Priority, RetryPolicy,
};
use plimsoll_core::{Error, GroupId, IdempotencyKey, Invalid, Name, Result, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use tokio_postgres::{Row, Transaction};

use crate::call::{BEGIN, Call, Param, Sql, params, quoted, with_schema};
use crate::codec::{At, Blob, Id, Json, column, decode, encode};
use crate::error::{Answer, Fault};
use crate::notice::{News, Notice};
use crate::pool::Pool;
use crate::session::Session;
use crate::statement::{sent, sql_file};
use crate::stuck;
use crate::transaction::{self, About, Failed, Part, TRIES, attempt};

/// Adds a task, and tells whoever listens once the transaction commits.
static ADD: Sql = Sql {
    text: sql_file!("inbox/add"),
    types: &[
        Type::INT4,
        Type::UUID,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::INT2,
        Type::TIMESTAMPTZ,
        Type::TEXT,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::JSONB,
        Type::INT4,
        Type::INT8,
        Type::TEXT,
        Type::BYTEA,
        Type::TEXT,
        Type::TEXT,
    ],
};
static ADD_SENT: LazyLock<String> = LazyLock::new(|| sent(ADD.text));
pub(crate) static WAITING: Sql = Sql {
    text: "SELECT EXISTS (SELECT 1 FROM plimsoll.inbox WHERE ns = $1)",
    types: &[Type::INT4],
};
/// Takes the turn of emptying the inbox, unless another process has it.
static TURN: Sql = Sql {
    text: "SELECT pg_try_advisory_xact_lock(hashtextextended('plimsoll.inbox ' || $1, 0))",
    types: &[Type::INT4],
};
/// The first tasks but for some, if it is our turn: not many, and not many bytes.
pub(crate) static FIRST: Sql = Sql {
    text: sql_file!("inbox/first"),
    types: &[Type::INT4, Type::INT8, Type::INT8, Type::INT8_ARRAY],
};
/// Removes tasks, and keeps those that were refused apart.
pub(crate) static REMOVE: Sql = Sql {
    text: sql_file!("inbox/remove"),
    types: &[
        Type::INT4,
        Type::INT8_ARRAY,
        Type::TIMESTAMPTZ,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
    ],
};
pub(crate) static FORGET: Sql = Sql {
    text: "DELETE FROM plimsoll.inbox_refused WHERE ns = $1 AND refused_at < $2",
    types: &[Type::INT4, Type::TIMESTAMPTZ],
};

/// How many tasks are taken at once.
const TAKEN_MAX: i64 = 500;
/// With about how many bytes.
const TAKEN_BYTES_MAX: i64 = 1024 * 1024;
/// How long refused ones are kept.
const REFUSED_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What few tasks have.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct More {
    retry: Option<RetryPolicy>,
    first_stage: Option<Name>,
    on_failure: Option<Box<NewTask>>,
    lifecycle: Option<Lifecycle>,
}

/// Adds a task inside somebody's transaction. It has been checked.
pub(crate) async fn add(
    transaction: &Transaction<'_>,
    schema: &str,
    ns: i32,
    task: &NewTask,
    now: Timestamp,
) -> Answer<()> {
    let mut params = columns(ns, task, now)?;
    let notice = Notice {
        inbox: true,
        ..Notice::default()
    };
    params.extend(params![schema.to_owned(), notice.text(ns, 0)]);
    let typed: Vec<_> = (params.iter())
        .map(|param| param.as_ref() as &(dyn tokio_postgres::types::ToSql + Sync))
        .zip(ADD.types.iter().cloned())
        .collect();
    let text = with_schema(&ADD_SENT, &quoted(schema));
    transaction.query_typed(&text, &typed).await?;
    Ok(())
}

fn columns(ns: i32, task: &NewTask, now: Timestamp) -> Answer<Vec<Param>> {
    let max_attempts = i32::try_from(task.retry.max_attempts);
    let usual = RetryPolicy {
        max_attempts: task.retry.max_attempts,
        ..RetryPolicy::default()
    };
    let more = More {
        retry: (task.retry != usual || max_attempts.is_err()).then(|| task.retry.clone()),
        first_stage: task.first_stage.clone(),
        on_failure: task.on_failure.clone(),
        lifecycle: task.lifecycle.clone(),
    };
    let run_at = match task.due {
        Due::Now => None,
        Due::After(delay) => Some(now.plus("due", delay).map_err(Error::from)?),
        Due::At(at) => Some(at),
    };
    let on_conflict = task.key.as_ref().map(|key| key.on_conflict);
    let labels = match task.labels.is_empty() {
        true => None,
        false => Some(Json::of(&task.labels)?),
    };
    Ok(params![
        ns,
        Id::from(task.id),
        task.lane.queue.to_string(),
        task.lane.kind.to_string(),
        Blob(task.payload.clone()),
        i16::from(task.priority.get()),
        run_at.map(At),
        task.key.as_ref().map(|key| key.key.to_string()),
        (task.key.as_ref()).and_then(|key| lifetime_us(key.lifetime)),
        on_conflict_text(on_conflict.unwrap_or_default()),
        task.group.as_ref().map(ToString::to_string),
        task.owner.as_ref().map(ToString::to_string),
        labels,
        max_attempts.unwrap_or(i32::MAX),
        task.attempt_timeout.map(micros),
        task.trace.clone(),
        (more != More::default())
            .then(|| encode(&more))
            .transpose()?,
    ])
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn lifetime_us(lifetime: KeyLifetime) -> Option<i64> {
    match lifetime {
        KeyLifetime::Forever => None,
        KeyLifetime::WhileActive => Some(0),
        KeyLifetime::For(lifetime) => Some(micros(lifetime)),
    }
}

fn lifetime_from(micros: Option<i64>) -> KeyLifetime {
    match micros {
        None => KeyLifetime::Forever,
        Some(0) => KeyLifetime::WhileActive,
        Some(micros) => KeyLifetime::For(Duration::from_micros(micros.unsigned_abs())),
    }
}

const ON_CONFLICT: [(OnConflict, &str); 4] = [
    (OnConflict::Attach, "attach"),
    (OnConflict::Reject, "reject"),
    (OnConflict::ReplacePending, "replace_pending"),
    (OnConflict::CancelAndReplace, "cancel_and_replace"),
];

fn on_conflict_text(policy: OnConflict) -> &'static str {
    let found = ON_CONFLICT.iter().find(|(known, _)| *known == policy);
    found.map_or("attach", |(_, text)| text)
}

/// Whether there is anything to take.
pub(crate) async fn is_waiting(session: &mut Session, ns: i32) -> Answer<bool> {
    let found = session.run(&[Call::new(&WAITING, params![ns])]).await?;
    column(&found[0][0], 0)
}

/// What was taken.
#[derive(Debug)]
pub(crate) enum Taken {
    /// There was nothing.
    Nothing,
    /// Nothing for now: another process has the turn, and may not see what has just come; or what is
    /// there needs rows that somebody has locked.
    NotYet,
    /// Some tasks, and there may be more.
    Some(News),
}

/// How to go about it.
#[derive(Debug)]
struct How {
    most: i64,
    cautious: bool,
    /// The task that is refused, whatever it is, and why.
    refuse: Option<(i64, String)>,
}

/// Takes the first tasks of the inbox and submits them. Somebody who `waits` for that is not kept by
/// rows that are locked.
pub(crate) async fn take(pool: &Pool, about: About<'_>, waits: bool) -> Result<Taken> {
    let mut how = How {
        most: TAKEN_MAX,
        cautious: false,
        refuse: None,
    };
    for _ in 0..TRIES {
        let untouched = |fault: Fault| fault.into_error(Applied::No);
        let mut pooled = pool.session().await.map_err(untouched)?;
        let session = pooled.session().map_err(untouched)?;
        let mut part = Part::default();
        let (fault, applied) = match take_with(session, about, &how, &mut part).await {
            Ok(taken) => return Ok(taken),
            Err(failed) => failed,
        };
        session.roll_back().await;
        let seqs = part.inbox.map(|inbox| inbox.submitted).unwrap_or_default();
        match (fault, seqs.as_slice()) {
            (Fault::Moved, _) => {}
            // One that cannot be submitted does not keep the others waiting.
            (Fault::Busy, [_, ..]) => {
                drop(pooled);
                let found = stuck::look(pool, about.ns, &part.commits).await;
                let held_up = stuck::held_up(&part.commits, found.map_err(untouched)?);
                let locked: Vec<i64> = (seqs.iter().zip(held_up))
                    .filter_map(|(seq, held_up)| (held_up || seqs.len() == 1).then_some(*seq))
                    .collect();
                how.most = if locked.is_empty() { 1 } else { TAKEN_MAX };
                about.stuck.pass_over(about.ns, locked);
                if waits {
                    return Ok(Taken::NotYet);
                }
            }
            (Fault::Corrupt(_), [_, _, ..]) => how.most = 1,
            (Fault::Corrupt(what), [seq]) => how.refuse = Some((*seq, what)),
            (fault, _)
                if applied == Applied::No && (fault.breaks_connection() || fault.is_stale()) => {}
            (fault, _) => return Err(fault.into_error(applied)),
        }
        how.cautious = true;
    }
    Err(Fault::Moved.into_error(Applied::No))
}

/// Takes tasks in one transaction. `part` tells which, if it fails.
async fn take_with(
    session: &mut Session,
    about: About<'_>,
    how: &How,
    part: &mut Part,
) -> Result<Taken, Failed> {
    let untouched = |fault: Fault| (fault, Applied::No);
    let passed_over = about.stuck.passed_over(about.ns);
    let nothing_else = passed_over.is_empty();
    let first = params![about.ns, how.most, TAKEN_BYTES_MAX, passed_over];
    let calls = [
        Call::from(&BEGIN),
        Call::new(&TURN, params![about.ns]),
        Call::new(&FIRST, first),
    ];
    let mut answers = session.run(&calls).await.map_err(untouched)?;
    let found = answers.pop().unwrap_or_default();
    if found.is_empty() {
        session.roll_back().await;
        let our_turn = column(&answers[1][0], 0).map_err(untouched)?;
        return Ok(match our_turn && nothing_else {
            true => Taken::Nothing,
            false => Taken::NotYet,
        });
    }
    let mut inbox = Inbox::default();
    for row in &found {
        let seq = column(row, 0).map_err(untouched)?;
        let task = match &how.refuse {
            Some((refused, why)) if *refused == seq => Err(why.clone()),
            _ => read(row, about),
        };
        match task {
            Ok(commit) => {
                inbox.submitted.push(seq);
                part.commits.push(commit);
            }
            Err(why) => inbox.unreadable.push((seq, why)),
        }
    }
    part.inbox = Some(inbox);
    let tried = transaction::How {
        cautious: how.cautious,
        pace: transaction::Pace::Hurried,
        past_locked: false,
    };
    let done = attempt(session, about, part, tried).await?;
    Ok(Taken::Some(done.news))
}

/// Tasks that come from the inbox.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// The numbers of those that are submitted, in order.
    submitted: Vec<i64>,
    unreadable: Vec<(i64, String)>,
}

impl Inbox {
    /// The statements that remove them, given why some were refused.
    pub(crate) fn remove<'a>(
        &self,
        ns: i32,
        now: Timestamp,
        errors: impl Iterator<Item = Option<&'a Error>>,
    ) -> Vec<Call> {
        let mut refused: BTreeMap<i64, String> = self.unreadable.iter().cloned().collect();
        for (seq, error) in self.submitted.iter().zip(errors) {
            refused.extend(error.map(|error| (*seq, error.to_string())));
        }
        for (seq, reason) in &refused {
            tracing::warn!(seq, reason, "a task of the inbox is refused");
        }
        let unreadable = self.unreadable.iter().map(|(seq, _)| *seq);
        let all: Vec<i64> = self.submitted.iter().copied().chain(unreadable).collect();
        let (seqs, reasons): (Vec<i64>, Vec<String>) = refused.into_iter().unzip();
        let mut calls = Vec::new();
        if !seqs.is_empty() {
            let before = At(now.saturating_minus(REFUSED_KEPT));
            calls.push(Call::new(&FORGET, params![ns, before]));
        }
        calls.push(Call::new(&REMOVE, params![ns, all, At(now), seqs, reasons]));
        calls
    }
}

/// The submit of a row, or why it cannot be.
fn read(row: &Row, about: About<'_>) -> Result<Commit, String> {
    let task = task_from(row).map_err(|fault| match fault {
        Fault::Corrupt(what) => what,
        fault => fault.into_error(Applied::No).to_string(),
    })?;
    let commit = Commit::of(Write::Submit(Box::new(task)));
    let checked = commit.check(about.limits);
    checked.map_err(|invalid| invalid.to_string())?;
    Ok(commit)
}

fn task_from(row: &Row) -> Answer<NewTask> {
    let id = column::<Id>(row, 1)?.task();
    let what = format!("task {id}");
    let corrupt = |error: Invalid| Fault::Corrupt(format!("{what}: {error}"));
    let lane = Lane::new(column::<&str>(row, 2)?, column::<&str>(row, 3)?).map_err(corrupt)?;
    let payload = Bytes::copy_from_slice(column(row, 4)?);
    let priority: i16 = column(row, 5)?;
    let key = (column::<Option<&str>>(row, 7)?).map(IdempotencyKey::new);
    let policy: &str = column(row, 9)?;
    let found = ON_CONFLICT.iter().find(|(_, text)| *text == policy);
    let unknown = || Fault::Corrupt(format!("{what}: on_conflict {policy} is unknown"));
    let on_conflict = found.map(|(policy, _)| *policy).ok_or_else(unknown)?;
    let lifetime = lifetime_from(column(row, 8)?);
    let max_attempts: i32 = column(row, 13)?;
    let timeout: Option<i64> = column(row, 14)?;
    let more = match column::<Option<&[u8]>>(row, 16)? {
        Some(body) => decode(&what, body)?,
        None => More::default(),
    };
    Ok(NewTask {
        priority: Priority::new(u8::try_from(priority).unwrap_or(u8::MAX)).map_err(corrupt)?,
        due: column::<Option<At>>(row, 6)?.map_or(Due::Now, |at| Due::At(at.0)),
        key: (key.transpose().map_err(corrupt)?).map(|key| KeyRequest {
            key,
            lifetime,
            on_conflict,
        }),
        group: (column::<Option<&str>>(row, 10)?)
            .map(GroupId::new)
            .transpose()
            .map_err(corrupt)?,
        owner: (column::<Option<&str>>(row, 11)?)
            .map(Name::new)
            .transpose()
            .map_err(corrupt)?,
        labels: match column::<Option<Json>>(row, 12)? {
            Some(labels) => labels.read(&what)?,
            None => BTreeMap::new(),
        },
        retry: more.retry.unwrap_or(RetryPolicy {
            max_attempts: max_attempts.unsigned_abs(),
            ..RetryPolicy::default()
        }),
        attempt_timeout: timeout.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        first_stage: more.first_stage,
        on_failure: more.on_failure,
        trace: column(row, 15)?,
        lifecycle: more.lifecycle,
        ..NewTask::new(id, lane, payload)
    })
}
