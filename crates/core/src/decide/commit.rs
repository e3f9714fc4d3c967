//! Decides a whole commit over the rows that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::change::{Change, GroupEvent, TaskEvent};
use crate::decide::draft::{Draft, Finished, Step};
use crate::decide::submit::Submission;
use crate::decide::task::Verdict;
use crate::decide::{Moment, RowId, Rows, group, record, submit, task};
use crate::error::{Conflict, Error, Invalid, LeaseLost, Result};
use crate::group::{Group, NewGroup};
use crate::ids::{Revision, TaskId};
use crate::log::{Line, NewLine};
use crate::names::GroupId;
use crate::record::Record;
use crate::store::{
    Commit, GroupCounts, Guard, Log, Merge, Outcome, Receipt, Settle, SubmitOutcome, Submitted,
    Write,
};
use crate::task::{NewTask, Task};

/// What a commit that was decided leads to. Its rows are in the [`Rows`].
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// For the caller. The store adds the position, and remembers the receipt of a commit with an
    /// id, with its position.
    pub receipt: Receipt,
    /// Which commit of the same batch it repeats: that one's receipt has the position.
    pub repeats: Option<usize>,
    /// For the history.
    pub changes: Vec<Change>,
    /// For the logs. A line whose id the task's log has already is left out.
    pub lines: Vec<(TaskId, Line)>,
}

/// Why a commit was not decided, or decided against.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// This row was not loaded.
    Missing(RowId),
    /// The commit is refused, and nothing of it was written.
    Error(Error),
}

macro_rules! refuse {
    ($($error:ty),*) => {$(
        impl From<$error> for Refused {
            fn from(error: $error) -> Self {
                Self::Error(error.into())
            }
        }
    )*};
}

refuse!(Error, Conflict, Invalid, LeaseLost);

impl Refused {
    /// Blames the write that it came from.
    fn within(self, write: usize) -> Self {
        match self {
            Self::Error(Error::Invalid(invalid)) => {
                invalid.within(format_args!("writes[{write}]")).into()
            }
            other => other,
        }
    }
}

/// Decides a commit: writes to `rows` what it leaves, or nothing.
pub fn commit(commit: &Commit, rows: &mut Rows, moment: Moment<'_>) -> Result<Applied, Refused> {
    let (receipt, finished) = decide(commit, rows, moment)?;
    let (changes, lines) = finished.write(rows);
    if let (Some(id), false) = (commit.id, receipt.repeated) {
        rows.commits.write(id, Some(receipt.clone()));
    }
    Ok(Applied {
        receipt,
        repeats: None,
        changes,
        lines,
    })
}

fn decide(commit: &Commit, rows: &Rows, moment: Moment<'_>) -> Step<(Receipt, Finished)> {
    let mut draft = Draft::new(rows, moment);
    if let Some(receipt) = repeated(commit, rows, &draft)? {
        return Ok((receipt, draft.finish()));
    }
    for (index, guard) in commit.guards.iter().enumerate() {
        check(guard, index, &draft)?;
    }
    let mut outcomes = Vec::with_capacity(commit.writes.len());
    for (index, write) in commit.writes.iter().enumerate() {
        let outcome = apply(write, &mut draft).map_err(|refused| refused.within(index))?;
        outcomes.push(outcome);
    }
    draft.drain_groups()?;
    for (write, outcome) in commit.writes.iter().zip(&mut outcomes) {
        refresh(write, outcome, &draft)?;
    }
    let receipt = Receipt {
        outcomes,
        position: None,
        repeated: false,
    };
    let finished = draft.finish();
    let answered = outcomes_size(&receipt.outcomes);
    let (bytes, max) = (
        finished.size().max(answered),
        moment.limits.commit_bytes_max,
    );
    if bytes > max {
        return Err(Conflict::CommitTooLarge { bytes, max }.into());
    }
    Ok((receipt, finished))
}

/// The rows that a commit names. Deciding it may need more: see [`batch`].
pub fn footprint(commit: &Commit) -> BTreeSet<RowId> {
    let mut rows = BTreeSet::new();
    rows.extend(commit.id.map(RowId::Commit));
    rows.extend(commit.guards.iter().map(|guard| match guard {
        Guard::RecordAbsent(key)
        | Guard::RecordPresent(key)
        | Guard::RecordAt(key, _)
        | Guard::Field(key, _, _) => RowId::Record(key.clone()),
        Guard::Held(holder) => RowId::Task(holder.task),
        Guard::TaskAt(task, _) => RowId::Task(*task),
        Guard::GroupOpen(group) => RowId::Group(group.clone()),
    }));
    for write in &commit.writes {
        let row = match write {
            Write::Put(put) => RowId::Record(put.key.clone()),
            Write::Merge(merge) => RowId::Record(merge.key.clone()),
            Write::Delete(key) | Write::Touch(key, _) | Write::ExpireRecord(key) => {
                RowId::Record(key.clone())
            }
            Write::Submit(new) => {
                rows.extend(new.key.as_ref().map(|key| RowId::Key(key.key.clone())));
                rows.extend(new.group.clone().map(RowId::Group));
                RowId::Task(new.id)
            }
            Write::Settle(settle) => RowId::Task(settle.holder.task),
            Write::Amend(amend) => RowId::Task(amend.holder.task),
            Write::Log(log) => RowId::Task(log.holder.task),
            Write::Cancel(cancel) => RowId::Task(cancel.task),
            Write::Retry(retry) => RowId::Task(retry.task),
            Write::Expire(expire) => RowId::Task(expire.task),
            Write::Prioritise(id, _) | Write::Promote(id) | Write::DeleteTask(id) => {
                RowId::Task(*id)
            }
            Write::OpenGroup(new) => RowId::Group(new.id.clone()),
            Write::Arrive(id, _)
            | Write::Seal(id)
            | Write::Reopen(id)
            | Write::Tally(id)
            | Write::DeleteGroup(id) => RowId::Group(id.clone()),
        };
        rows.insert(row);
    }
    rows
}

/// Decides commits one after another: each sees what those before it leave, and the `n`th has the
/// revision of `moment` plus `n`. Writes to `rows` what they leave.
///
/// As long as rows are missing, nothing is decided and all of them are named that can be told so
/// far: those that the commits name, then those that follow. A store loads them and asks again;
/// that takes two or three rounds, whatever the number of commits.
pub fn batch(
    commits: &[Commit],
    rows: &mut Rows,
    moment: Moment<'_>,
) -> Result<Vec<Result<Applied>>, BTreeSet<RowId>> {
    let named = commits.iter().flat_map(footprint);
    let mut missing: BTreeSet<RowId> = named.filter(|row| !rows.is_loaded(row)).collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut results = Vec::with_capacity(commits.len());
    for (one, n) in commits.iter().zip(0..) {
        let moment = Moment {
            revision: Revision::new(moment.revision.get() + n),
            ..moment
        };
        let result = loop {
            match commit(one, rows, moment) {
                Ok(applied) => break Ok(applied),
                Err(Refused::Error(error)) => break Err(error),
                // Going on as if it were not there finds most of what else is missing.
                Err(Refused::Missing(row)) => {
                    rows.load_absent(&row);
                    missing.insert(row);
                }
            }
        };
        results.push(result);
    }
    if !missing.is_empty() {
        rows.forget(&missing);
        return Err(missing);
    }
    tell_repeats(commits, &mut results);
    drop_lines_of_removed(&mut results);
    Ok(results)
}

/// A commit may be repeated within a batch, before the store has given the first one a position.
fn tell_repeats(commits: &[Commit], results: &mut [Result<Applied>]) {
    let mut firsts = BTreeMap::new();
    for (index, (commit, result)) in commits.iter().zip(results).enumerate() {
        let (Some(id), Ok(applied)) = (commit.id, result) else {
            continue;
        };
        if applied.receipt.repeated {
            applied.repeats = firsts.get(&id).copied();
        } else {
            firsts.insert(id, index);
        }
    }
}

/// Lines that one commit appends to a log go with the task if a later one removes it.
fn drop_lines_of_removed(results: &mut [Result<Applied>]) {
    let mut removed = BTreeSet::new();
    for applied in results.iter_mut().rev().flatten() {
        applied.lines.retain(|(task, _)| !removed.contains(task));
        for change in &applied.changes {
            if let Change::Task(task) = change
                && task.event == TaskEvent::Deleted
            {
                removed.insert(task.id);
            }
        }
    }
}

/// The receipt of a commit that was applied before.
fn repeated(commit: &Commit, rows: &Rows, draft: &Draft<'_>) -> Step<Option<Receipt>> {
    if let Some(id) = commit.id {
        let remembered = rows.commits.get(&id);
        let remembered = remembered.ok_or(Refused::Missing(RowId::Commit(id)))?;
        if let Some(receipt) = remembered {
            return Ok(Some(Receipt {
                repeated: true,
                ..receipt.clone()
            }));
        }
    }
    let mut outcomes = Vec::with_capacity(commit.writes.len());
    for write in &commit.writes {
        // A commit that does more than settle is recognised by its id alone: the task does not
        // tell whether the rest was the same.
        let Write::Settle(settle) = write else {
            return Ok(None);
        };
        let task = draft.find_task(settle.holder.task)?;
        let settled = task.and_then(|t| task::settled_before(t, &settle.holder, &settle.how));
        let Some(settled) = settled else {
            return Ok(None);
        };
        outcomes.push(Outcome::Settled {
            status: settled.status,
            runnable_at: settled.runnable_at,
        });
    }
    Ok((!outcomes.is_empty()).then_some(Receipt {
        outcomes,
        position: None,
        repeated: true,
    }))
}

/// About how many bytes of records a receipt carries.
fn outcomes_size(outcomes: &[Outcome]) -> usize {
    let records = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Written { record, .. } => record.as_ref(),
        Outcome::Removed { .. }
        | Outcome::Submitted(_)
        | Outcome::Settled { .. }
        | Outcome::Changed { .. }
        | Outcome::Already { .. }
        | Outcome::Group(_)
        | Outcome::Logged => None,
    });
    records.map(|record| record.size()).sum()
}

/// What a write says of a group is what the commit leaves.
fn refresh(write: &Write, outcome: &mut Outcome, draft: &Draft<'_>) -> Step<()> {
    let id = match write {
        Write::OpenGroup(new) => &new.id,
        Write::Arrive(id, _) | Write::Seal(id) | Write::Reopen(id) | Write::Tally(id) => id,
        Write::Put(_)
        | Write::Merge(_)
        | Write::Delete(_)
        | Write::Touch(..)
        | Write::ExpireRecord(_)
        | Write::Submit(_)
        | Write::Settle(_)
        | Write::Amend(_)
        | Write::Cancel(_)
        | Write::Retry(_)
        | Write::Prioritise(..)
        | Write::Promote(_)
        | Write::Expire(_)
        | Write::DeleteTask(_)
        | Write::DeleteGroup(_)
        | Write::Log(_) => return Ok(()),
    };
    if let Some(group) = draft.find_group(id)? {
        *outcome = Outcome::Group(GroupCounts::from(group));
    }
    Ok(())
}

fn check(guard: &Guard, index: usize, draft: &Draft<'_>) -> Step<()> {
    let holds = match guard {
        Guard::RecordAbsent(key) => draft.record(key)?.is_none(),
        Guard::RecordPresent(key) => draft.record(key)?.is_some(),
        Guard::RecordAt(key, revision) => {
            (draft.record(key)?).is_some_and(|record| record.revision == *revision)
        }
        Guard::Field(key, field, value) => {
            let found = draft.record(key)?.and_then(|r| r.fields.get(field));
            found == value.as_ref()
        }
        Guard::Held(holder) => {
            let Some(task) = draft.find_task(holder.task)? else {
                return Err(task::gone(holder).into());
            };
            task::held(task, holder)?;
            true
        }
        Guard::TaskAt(id, revision) => {
            (draft.find_task(*id)?).is_some_and(|task| task.revision == *revision)
        }
        Guard::GroupOpen(id) => draft
            .find_group(id)?
            .is_some_and(|group| group::admits(group, 1).is_ok()),
    };
    if holds {
        return Ok(());
    }
    Err(Conflict::Guard {
        index,
        guard: guard.clone(),
    }
    .into())
}

fn apply(write: &Write, draft: &mut Draft<'_>) -> Step<Outcome> {
    match write {
        Write::Put(put) => {
            let record = record::put(put, &draft.moment)?;
            let outcome = written(&record, None);
            draft.put_record(&put.key, Some(record));
            Ok(outcome)
        }
        Write::Merge(merge) => apply_merge(merge, draft),
        Write::Delete(key) => {
            let existed = draft.record(key)?.is_some();
            draft.put_record(key, None);
            Ok(Outcome::Removed { existed })
        }
        Write::Touch(key, ttl) => {
            let record = record::touch(draft.record(key)?, key, *ttl, &draft.moment)?;
            let outcome = written(&record, None);
            draft.put_record_quietly(record);
            Ok(outcome)
        }
        Write::ExpireRecord(key) => {
            // A record that is there again, or still, is left alone.
            let now = draft.moment.now;
            let stored = draft.stored_record(key)?;
            let expired = stored.is_some_and(|record| record.is_expired(now));
            if expired {
                draft.put_record(key, None);
            }
            Ok(Outcome::Removed { existed: expired })
        }
        Write::Submit(new) => apply_submit(new, draft),
        Write::Settle(settle) => apply_settle(settle, draft),
        Write::Amend(amend) => {
            let before = held_task(amend.holder.task, || task::gone(&amend.holder), draft)?;
            let after = task::amend(&before, amend, &draft.moment)?;
            let outcome = changed(&after);
            draft.put_task(&before, after, TaskEvent::Amended)?;
            Ok(outcome)
        }
        Write::Cancel(cancel) => {
            let before = draft.task(cancel.task)?;
            let verdict = task::cancel(&before, cancel.reason.as_ref(), &draft.moment);
            apply_verdict(&before, verdict, draft)
        }
        Write::Retry(retry) => {
            let before = draft.task(retry.task)?;
            let verdict = task::retry(&before, retry.force, retry.delay, &draft.moment)?;
            if before.status.is_terminal() {
                reclaim_key(&before, draft)?;
            }
            apply_verdict(&before, verdict, draft)
        }
        Write::Prioritise(id, priority) => {
            let before = draft.task(*id)?;
            let verdict = task::prioritise(&before, *priority, &draft.moment)?;
            apply_verdict(&before, verdict, draft)
        }
        Write::Promote(id) => {
            let before = draft.task(*id)?;
            let verdict = task::promote(&before, &draft.moment);
            apply_verdict(&before, verdict, draft)
        }
        Write::Expire(expire) => {
            let before = draft.task(expire.task)?;
            let verdict = task::expire(&before, expire.fence, expire.jitter, &draft.moment);
            apply_verdict(&before, verdict, draft)
        }
        Write::DeleteTask(id) => apply_delete_task(*id, draft),
        Write::OpenGroup(new) => apply_open_group(new, draft),
        Write::Arrive(id, count) => {
            let mut group = draft.group(id)?;
            group::admits(&group, *count)?;
            let effects = group::arrive(&mut group, *count);
            put_group(group, effects, draft)
        }
        Write::Seal(id) => {
            let mut group = draft.group(id)?;
            let effects = group::seal(&mut group);
            put_group(group, effects, draft)
        }
        Write::Reopen(id) => {
            let mut group = draft.group(id)?;
            let effects = group::reopen(&mut group);
            put_group(group, effects, draft)
        }
        Write::Tally(id) => {
            let group = draft.group(id)?;
            draft.touch_group(id);
            Ok(Outcome::Group(GroupCounts::from(&group)))
        }
        Write::DeleteGroup(id) => apply_delete_group(id, draft),
        Write::Log(log) => apply_log(log, draft),
    }
}

fn written(record: &Record, shown: Option<Record>) -> Outcome {
    Outcome::Written {
        revision: record.revision,
        record: shown,
        modified_at: record.modified_at,
    }
}

fn changed(task: &Task) -> Outcome {
    Outcome::Changed {
        status: task.status,
        revision: task.revision,
    }
}

fn apply_merge(merge: &Merge, draft: &mut Draft<'_>) -> Step<Outcome> {
    let record = record::merge(draft.record(&merge.key)?, merge, &draft.moment)?;
    let outcome = written(&record, merge.returning.then(|| record.clone()));
    draft.put_record(&merge.key, Some(record));
    Ok(outcome)
}

fn apply_submit(new: &NewTask, draft: &mut Draft<'_>) -> Step<Outcome> {
    let holder = match &new.key {
        Some(request) => match draft.key(&request.key)? {
            Some(id) => draft.find_task(id)?.cloned(),
            None => None,
        },
        None => None,
    };
    let same_id = draft.find_task(new.id)?.map(Arc::as_ref);
    let submission = submit::submit(new, same_id, holder.as_deref(), draft.moment.now)?;
    let predecessor = match (submission, holder) {
        (Submission::Existing(id, outcome), _) => {
            return Ok(Outcome::Submitted(Submitted { id, outcome }));
        }
        (Submission::Repeated, _) => return Ok(created(new.id)),
        (Submission::Create, _) | (_, None) => None,
        (Submission::Replace, Some(holder)) => {
            let reason = format!("replaced by task {}", new.id);
            let verdict = task::cancel(&holder, Some(&reason), &draft.moment);
            apply_verdict(&holder, verdict, draft)?;
            holder.waiting.as_ref().map(|waiting| waiting.on)
        }
        (Submission::Succeed, Some(holder)) => {
            let reason = format!("replaced by task {}", new.id);
            let verdict = task::cancel(&holder, Some(&reason), &draft.moment);
            apply_verdict(&holder, verdict, draft)?;
            Some(holder.id())
        }
    };
    if let Some(id) = predecessor {
        draft.set_successor(id, new.id)?;
    }
    if let Some(request) = &new.key {
        draft.put_key(&request.key, Some(new.id));
    }
    draft.create_task(new, predecessor)?;
    Ok(created(new.id))
}

fn created(id: TaskId) -> Outcome {
    Outcome::Submitted(Submitted {
        id,
        outcome: SubmitOutcome::Created,
    })
}

fn apply_settle(settle: &Settle, draft: &mut Draft<'_>) -> Step<Outcome> {
    let holder = &settle.holder;
    let before = held_task(holder.task, || task::gone(holder), draft)?;
    let (after, event) = task::settle(&before, holder, &settle.how, &draft.moment)?;
    let outcome = Outcome::Settled {
        status: after.status,
        runnable_at: (!after.status.is_terminal()).then_some(after.runnable_at),
    };
    draft.put_task(&before, after, event)?;
    Ok(outcome)
}

fn apply_verdict(before: &Task, verdict: Verdict, draft: &mut Draft<'_>) -> Step<Outcome> {
    match verdict {
        Verdict::Unchanged => Ok(Outcome::Already {
            status: before.status,
        }),
        Verdict::Changed(after, event) => {
            let outcome = changed(&after);
            draft.put_task(before, after, event)?;
            Ok(outcome)
        }
    }
}

/// A task that runs again needs its key again.
fn reclaim_key(task: &Task, draft: &mut Draft<'_>) -> Step<()> {
    let Some((key, _)) = &task.spec.key else {
        return Ok(());
    };
    let holder = match draft.key(key)? {
        Some(id) if id != task.id() => draft.find_task(id)?,
        Some(_) | None => None,
    };
    match holder {
        Some(holder) if submit::key_stands(holder, draft.moment.now) => Err(Conflict::KeyTaken {
            key: key.clone(),
            holder: holder.id(),
            status: holder.status,
        }
        .into()),
        Some(_) | None => {
            draft.put_key(key, Some(task.id()));
            Ok(())
        }
    }
}

fn apply_delete_task(id: TaskId, draft: &mut Draft<'_>) -> Step<Outcome> {
    let Some(task) = draft.find_task(id)?.cloned() else {
        return Ok(Outcome::Removed { existed: false });
    };
    task::delete(&task)?;
    if let Some((key, _)) = &task.spec.key
        && draft.key(key)? == Some(id)
    {
        draft.put_key(key, None);
    }
    draft.remove_task(&task);
    Ok(Outcome::Removed { existed: true })
}

fn apply_open_group(new: &NewGroup, draft: &mut Draft<'_>) -> Step<Outcome> {
    let existing = draft.find_group(&new.id)?;
    let opened = match group::open(existing, new, &draft.moment)? {
        None => draft.group(&new.id)?,
        Some(mut opened) => {
            draft.mark_group(&opened, GroupEvent::Opened);
            if let Some(id) = new.then.as_ref().and_then(|then| then.group.as_ref()) {
                let mut outer = draft.group(id)?;
                opened.outer_born = Some(outer.born);
                let effects = group::expect(&mut outer, new.extends)?;
                draft.put_group(outer, effects)?;
            }
            draft.put_group(opened, group::Effects::default())?;
            draft.group(&new.id)?
        }
    };
    Ok(Outcome::Group(GroupCounts::from(&opened)))
}

fn put_group(group: Group, effects: group::Effects, draft: &mut Draft<'_>) -> Step<Outcome> {
    let counts = GroupCounts::from(&group);
    draft.put_group(group, effects)?;
    Ok(Outcome::Group(counts))
}

fn apply_delete_group(id: &GroupId, draft: &mut Draft<'_>) -> Step<Outcome> {
    let Some(group) = draft.find_group(id)?.cloned() else {
        return Ok(Outcome::Removed { existed: false });
    };
    draft.remove_group(&group)?;
    Ok(Outcome::Removed { existed: true })
}

fn apply_log(log: &Log, draft: &mut Draft<'_>) -> Step<Outcome> {
    let task = held_task(log.holder.task, || task::gone(&log.holder), draft)?;
    task::held(&task, &log.holder)?;
    let at = draft.moment.now;
    draft.lines.extend(log.lines.iter().map(|line| {
        let stage = line.stage.as_ref().or(task.stage.as_ref());
        let line = Line {
            line: NewLine {
                stage: stage.cloned(),
                ..line.clone()
            },
            fence: log.holder.fence,
            at,
        };
        (log.holder.task, line)
    }));
    Ok(Outcome::Logged)
}

fn held_task(id: TaskId, gone: impl FnOnce() -> LeaseLost, draft: &Draft<'_>) -> Step<Arc<Task>> {
    match draft.find_task(id)? {
        Some(task) => Ok(task.clone()),
        None => Err(gone().into()),
    }
}
