//! Whole commits: which rows they need, and that a batch is a sequence of singles.

mod batches;
mod footprints;
mod histories;
mod joins;
mod random;
mod stories;
mod successors;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::change::{Change, TaskEvent};
use plimsoll_core::decide::task::{self, Verdict};
use plimsoll_core::decide::{self, Applied, Moment, Refused, RowId, Rows, Written};
use plimsoll_core::error::Result;
use plimsoll_core::group::{Group, NewGroup};
use plimsoll_core::ids::Jitter;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Cancel, Commit, Ending, FailRetry, Receipt, Retry, Settle, Write};
use plimsoll_core::task::{Holder, Lane, NewTask, Task};
use plimsoll_core::{CommitId, Fence, GroupId, IdempotencyKey, Key, Revision, TaskId};

use crate::{at, moment_at, secs, worker};

/// The simplest store there can be: maps that rows are loaded from and written to.
#[derive(Clone, Debug, Default, PartialEq)]
struct Maps {
    records: BTreeMap<Key, Record>,
    keys: BTreeMap<IdempotencyKey, TaskId>,
    tasks: BTreeMap<TaskId, Arc<Task>>,
    groups: BTreeMap<GroupId, Group>,
    receipts: BTreeMap<CommitId, Receipt>,
    now: u64,
    revision: u64,
}

/// Commits that were decided and are not applied yet.
struct Decided {
    answers: Vec<Result<Applied>>,
    rows: Rows,
    /// What was loaded, round by round.
    rounds: Vec<BTreeSet<RowId>>,
}

impl Maps {
    fn new() -> Self {
        Self {
            now: 1_000,
            ..Self::default()
        }
    }

    /// The moment of the next commit.
    fn moment(&self) -> Moment<'static> {
        moment_at(at(self.now), self.revision + 1)
    }

    fn load(&self, id: &RowId, rows: &mut Rows) {
        assert!(!rows.is_loaded(id), "{id:?} is loaded already");
        match id {
            RowId::Record(key) => (rows.records).load(key.clone(), self.records.get(key).cloned()),
            RowId::Key(key) => rows.keys.load(key.clone(), self.keys.get(key).copied()),
            RowId::Task(id) => rows.tasks.load(*id, self.tasks.get(id).cloned()),
            RowId::Group(id) => rows.groups.load(id.clone(), self.groups.get(id).cloned()),
            RowId::Commit(id) => rows.commits.load(*id, self.receipts.get(id).cloned()),
        }
    }

    /// Decides commits over shared rows, as a store does that loads many rows at once.
    fn decide(&self, commits: &[Commit]) -> Decided {
        let (mut rows, mut rounds) = (Rows::default(), Vec::new());
        loop {
            match decide::batch(commits, &mut rows, self.moment()) {
                Ok(answers) => {
                    return Decided {
                        answers,
                        rows,
                        rounds,
                    };
                }
                Err(missing) => {
                    assert!(
                        !missing.is_empty(),
                        "nothing is decided, nothing is missing"
                    );
                    assert_eq!(written(&rows), written(&Rows::default()));
                    // To load a row twice is a fault, so these are new and few enough to end.
                    missing.iter().for_each(|id| self.load(id, &mut rows));
                    rounds.push(missing);
                }
            }
        }
    }

    /// Decides one commit, as a store does that loads a row when it is asked for. Answers also
    /// what was loaded.
    fn decide_alone(&self, commit: &Commit, rows: &mut Rows) -> (Result<Applied>, BTreeSet<RowId>) {
        let mut loaded: BTreeSet<RowId> = (decide::footprint(commit).into_iter())
            .filter(|id| !rows.is_loaded(id))
            .collect();
        loaded.iter().for_each(|id| self.load(id, rows));
        loop {
            match decide::commit(commit, rows, self.moment()) {
                Ok(applied) => return (Ok(applied), loaded),
                Err(Refused::Error(error)) => return (Err(error), loaded),
                Err(Refused::Missing(id)) => {
                    self.load(&id, rows);
                    loaded.insert(id);
                }
            }
        }
    }

    /// Makes one commit.
    fn commit(&mut self, commit: &Commit) -> Result<Applied> {
        let mut rows = Rows::default();
        let (answer, _) = self.decide_alone(commit, &mut rows);
        self.revision += 1;
        self.apply(rows);
        answer
    }

    /// Makes commits over shared rows, which are written at the end.
    fn batch(&mut self, commits: &[Commit]) -> Vec<Result<Applied>> {
        let decided = self.decide(commits);
        self.revision += commits.len() as u64;
        self.apply(decided.rows);
        decided.answers
    }

    fn apply(&mut self, rows: Rows) {
        rows.records
            .into_written()
            .for_each(|row| put(&mut self.records, row));
        rows.keys
            .into_written()
            .for_each(|row| put(&mut self.keys, row));
        rows.tasks
            .into_written()
            .for_each(|row| put(&mut self.tasks, row));
        rows.groups
            .into_written()
            .for_each(|row| put(&mut self.groups, row));
        rows.commits
            .into_written()
            .for_each(|row| put(&mut self.receipts, row));
    }

    /// A worker claims whatever it can.
    fn claim_all(&mut self) {
        let m = self.moment();
        for task in self.tasks.values_mut() {
            let claimed = task::claim(task, &worker("w"), secs(30), &m);
            if let Ok(Verdict::Changed(after, _)) = claimed {
                *task = Arc::from(after);
            }
        }
        self.revision += 1;
    }

    /// Makes one commit that must be applied.
    #[track_caller]
    fn done(&mut self, commit: Commit) -> Applied {
        self.commit(&commit).expect("the commit is applied")
    }
}

fn put<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    map: &mut BTreeMap<K, V>,
    row: Written<K, V>,
) {
    assert_eq!(
        map.get(&row.key),
        row.before.as_ref(),
        "{:?} as it was",
        row.key
    );
    match row.after {
        Some(after) => map.insert(row.key, after),
        None => map.remove(&row.key),
    };
}

/// All that was written to rows so far, in a form that can be compared.
fn written(rows: &Rows) -> String {
    let rows = rows.clone();
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        rows.records.into_written().collect::<Vec<_>>(),
        rows.keys.into_written().collect::<Vec<_>>(),
        rows.tasks.into_written().collect::<Vec<_>>(),
        rows.groups.into_written().collect::<Vec<_>>(),
        rows.commits.into_written().collect::<Vec<_>>(),
    )
}

/// What happened to tasks, in order.
fn task_events(applied: &Applied) -> Vec<(TaskId, TaskEvent)> {
    (applied.changes.iter())
        .filter_map(|change| match change {
            Change::Task(change) => Some((change.id, change.event)),
            _ => None,
        })
        .collect()
}

fn id(number: u128) -> TaskId {
    TaskId::from_u128(number)
}

fn task(number: u128) -> NewTask {
    NewTask::new(id(number), Lane::new("q", "k").unwrap(), "payload")
}

fn group(text: &str) -> GroupId {
    GroupId::new(text).unwrap()
}

fn record(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

fn commit_id(number: u128) -> CommitId {
    CommitId::from_u128(number)
}

/// The worker that claims everything here, with this fence.
fn holder(number: u128, fence: u64) -> Holder {
    Holder {
        task: id(number),
        worker: worker("w"),
        fence: Fence::new(fence),
    }
}

fn revision(number: u64) -> Revision {
    Revision::new(number)
}

fn submit(new: NewTask) -> Write {
    Write::Submit(Box::new(new))
}

fn cancel(number: u128) -> Write {
    Write::Cancel(Cancel {
        task: id(number),
        reason: None,
    })
}

fn retry(number: u128) -> Write {
    Write::Retry(Retry {
        task: id(number),
        force: true,
        delay: secs(0),
    })
}

fn settle(number: u128, fence: u64, how: Ending) -> Write {
    Write::Settle(Settle {
        holder: holder(number, fence),
        how,
    })
}

fn complete(number: u128) -> Write {
    settle(number, 1, Ending::Complete { result: None })
}

fn fail(number: u128) -> Write {
    settle(number, 1, fatal())
}

fn fatal() -> Ending {
    Ending::Fail {
        error: "broken".into(),
        retry: FailRetry::Fatal,
        jitter: Jitter::default(),
    }
}

fn open(text: &str) -> Write {
    Write::OpenGroup(Box::new(NewGroup::new(group(text))))
}
