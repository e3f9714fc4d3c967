//! The tasks of a run: commands that start processes which would go on for ever, and what the
//! books say about them in the end.

use std::time::Duration;

use plimsoll::store::Tasks;
use plimsoll::task::{Backoff, Lane, NewTask, RetryPolicy, Status};
use plimsoll::{Engine, Result, TaskId};

use super::cast::Role;
use super::stage::CONCURRENCY;
use crate::demo::Books;

pub(super) const QUEUE: &str = "chaos";

/// Leaves three processes behind that nobody but the worker or its guard will end; those of a
/// stubborn one only SIGKILL does. The result is the fence, so that the books tell whose it is.
pub(super) const SCRIPT: &str = r#"
read -r seconds manner
[ "$manner" = stubborn ] && trap "" TERM
sleep 600 &
(sleep 600 & sleep 600) &
sleep "$seconds"
printf %s "$PLIMSOLL_FENCE"
"#;

/// How many tasks are open at a time, so that workers always have work.
const OPEN: u64 = 3;
/// How many rows are read at once.
const PAGE: usize = 500;

/// The tasks of a run.
pub(super) struct Job {
    namespace: String,
    pub(super) submitted: u64,
}

/// What the books say in the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Audit {
    pub(super) attempts: u64,
    /// Tasks that are not completed.
    pub(super) stranded: u64,
    /// Tasks of which the history does not say exactly once that they were completed.
    pub(super) miscounted: u64,
    /// Tasks that were completed by somebody who had lost them.
    pub(super) by_others: u64,
    /// Invariants that do not hold.
    pub(super) violations: u64,
}

impl Job {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.into(),
            submitted: 0,
        }
    }

    /// Submits more if there is little left to do.
    pub(super) async fn feed(&mut self, engine: &Engine, completed: u64) -> Result<()> {
        let wanted = completed + OPEN * CONCURRENCY * Role::Worker.count();
        let tasks = (self.submitted..wanted).map(|number| self.task(number));
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        for submitted in engine.tasks().submit_all(tasks).await {
            submitted?;
            self.submitted += 1;
        }
        Ok(())
    }

    fn id(&self, number: u64) -> TaskId {
        TaskId::derive(&[&self.namespace, &number.to_string()])
    }

    fn task(&self, number: u64) -> Result<NewTask> {
        let seconds = match number % 10 {
            // Longer than a lease.
            7 => 2.5,
            n => 0.1 * n as f64,
        };
        let manner = if number % 4 == 1 {
            "stubborn"
        } else {
            "polite"
        };
        let payload = format!("{seconds:.1} {manner}\n");
        // A worker that is killed or frozen is no reason to give a task up.
        let retry = RetryPolicy {
            max_attempts: 0,
            backoff: Backoff::Exponential {
                first: Duration::from_millis(100),
                factor: 1.5,
                cap: Duration::from_secs(1),
            },
            ..RetryPolicy::default()
        };
        Ok(NewTask::new(self.id(number), Lane::new(QUEUE, "command")?, payload).retry(retry))
    }

    /// Compares every task with the history.
    pub(super) async fn audit(&self, engine: &Engine, books: &Books) -> Result<Audit> {
        let ids: Vec<TaskId> = (0..self.submitted).map(|number| self.id(number)).collect();
        let mut audit = Audit::default();
        for ids in ids.chunks(PAGE) {
            let tasks = engine.store().tasks(Tasks { ids: ids.to_vec() }).await?;
            for (id, task) in ids.iter().zip(tasks) {
                let Some(task) = task else {
                    audit.stranded += 1;
                    continue;
                };
                let own = task.fence.to_string();
                let by_others = task.result.as_deref() != Some(own.as_bytes());
                audit.attempts += u64::from(task.attempts);
                audit.stranded += u64::from(task.status != Status::Completed);
                audit.miscounted += u64::from(books.completions(*id) != 1);
                audit.by_others += u64::from(by_others);
                audit.violations += task.violations().len() as u64;
            }
        }
        Ok(audit)
    }
}
