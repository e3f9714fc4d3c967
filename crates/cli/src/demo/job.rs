//! The job of the demo: pictures that are resized, uploaded, imported and announced.

use std::time::Duration;

use plimsoll::record::fields;
use plimsoll::store::{Commit, Merge, Write};
use plimsoll::task::{Backoff, FailureKind, Lane, NewTask, Priority, RetryPolicy};
use plimsoll::worker::{Completion, Context, Failure, Json};
use plimsoll::{Engine, Error, IdempotencyKey, Key, Name, Result, TaskId};
use serde::{Deserialize, Serialize};

pub(super) const QUEUE: &str = "pictures";
pub(super) const KINDS: [&str; 5] = ["resize", "upload", "import", "notify", "thumbnail"];
/// The field that counts how often a task was completed.
pub(super) const TIMES: &str = "times";
/// The field that says with which fence it was completed.
pub(super) const FENCE: &str = "fence";
/// How many tasks are submitted in one commit.
const TOGETHER: usize = 200;
/// How many at once while workers are at it, and how long it rests in between.
const AT_ONCE: usize = 400;
const REST: Duration = Duration::from_millis(250);

/// What a task asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Work {
    takes_ms: u64,
    /// How often it fails before it succeeds.
    fails: usize,
    /// Whether it submits another task as it completes.
    follow_up: bool,
}

/// The tasks of one run.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) namespace: String,
    pub(super) tasks: u64,
}

impl Job {
    fn id(&self, number: u64) -> TaskId {
        TaskId::derive(&[&self.namespace, &number.to_string()])
    }

    /// What to submit at the start: the first tasks.
    pub(super) fn commits(&self, first: u64) -> Result<Vec<Commit>> {
        let numbers: Vec<u64> = (0..first).collect();
        let commit = |numbers: &[u64]| {
            numbers.iter().try_fold(Commit::new(), |commit, number| {
                let task = self.task(*number)?;
                Ok(commit.write(Write::Submit(Box::new(task))))
            })
        };
        numbers.chunks(TOGETHER).map(commit).collect()
    }

    /// Submits all but the first tasks, each under a key of its own, a few hundred at a time, and repeats what may not
    /// have happened until it has. Answers how many had to be repeated.
    pub(super) async fn submit_rest(&self, engine: &Engine, first: u64) -> Result<u64> {
        let mut repeated = 0;
        let numbers: Vec<u64> = (first..self.tasks).collect();
        for numbers in numbers.chunks(AT_ONCE) {
            let tasks = numbers.iter().map(|number| self.keyed(*number));
            let mut left = tasks.collect::<Result<Vec<_>>>()?;
            loop {
                let answers = engine.tasks().submit_all(left.clone()).await;
                let mut answered = left.into_iter().zip(answers);
                left = answered.try_fold(Vec::new(), |mut left, (task, answer)| match answer {
                    Ok(submitted) if submitted.id == task.id => Ok(left),
                    Ok(submitted) => {
                        let what = format!("{} has the key of {}", submitted.id, task.id);
                        Err(Error::Corrupt(what.into()))
                    }
                    Err(error) if error.is_transient() => {
                        left.push(task);
                        Ok(left)
                    }
                    Err(error) => Err(error),
                })?;
                engine.clock().sleep(REST).await;
                if left.is_empty() {
                    break;
                }
                repeated += left.len() as u64;
            }
        }
        Ok(repeated)
    }

    fn keyed(&self, number: u64) -> Result<NewTask> {
        Ok(self
            .task(number)?
            .key(IdempotencyKey::new(number.to_string())?))
    }

    fn task(&self, number: u64) -> Result<NewTask> {
        let (kind, work) = plan(number);
        let priority = match kind {
            "notify" => Priority::HIGHEST,
            _ => Priority::default(),
        };
        Ok(task(self.id(number), kind, work)?.priority(priority))
    }

    /// Every task that must be completed in the end: those of the start, and those that follow.
    pub(super) fn expected(&self) -> Vec<TaskId> {
        let with_follow_up = |number| {
            let id = self.id(number);
            let follow_up = plan(number).1.follow_up.then(|| id.nth(1));
            [id].into_iter().chain(follow_up)
        };
        (0..self.tasks).flat_map(with_follow_up).collect()
    }
}

/// What the task of this number is about. Every tenth fails once or twice, every eighth has a
/// follow-up, every fiftieth is urgent, and another fiftieth takes so long that whoever comes back
/// from the dead meets others at work on it.
fn plan(number: u64) -> (&'static str, Work) {
    let work = Work {
        takes_ms: match number % 50 {
            7 => 1_000,
            _ => 10 + number * 37 % 81,
        },
        fails: 0,
        follow_up: false,
    };
    match number {
        n if n % 20 == 3 => ("upload", Work { fails: 1, ..work }),
        n if n % 20 == 13 => ("upload", Work { fails: 2, ..work }),
        n if n % 50 == 0 => ("notify", work),
        n if n % 8 == 5 => (
            "import",
            Work {
                follow_up: true,
                ..work
            },
        ),
        _ => ("resize", work),
    }
}

fn task(id: TaskId, kind: &str, work: Work) -> Result<NewTask> {
    let payload = serde_json::to_vec(&work)
        .map_err(|error| Error::Corrupt(format!("a payload is no JSON: {error}").into()))?;
    // A worker that is killed or frozen is no reason to give a task up.
    let retry = RetryPolicy {
        max_attempts: 0,
        backoff: Backoff::Exponential {
            first: Duration::from_millis(200),
            factor: 2.0,
            cap: Duration::from_secs(1),
        },
        ..RetryPolicy::default()
    };
    Ok(NewTask::new(id, Lane::new(QUEUE, kind)?, payload).retry(retry))
}

/// Where completions of a task are counted.
pub(super) fn done_key(task: TaskId) -> Result<Key> {
    Ok(Key::new(format!("done.{task}"))?)
}

/// The handler of every kind. The completion, the count of completions and the follow-up are one
/// commit: a task that is completed twice would be counted twice.
pub(super) async fn handle(
    Json(work): Json<Work>,
    context: Context,
) -> std::result::Result<Completion, Failure> {
    let takes = Duration::from_millis(work.takes_ms);
    context.engine().clock().sleep(takes).await;
    let task = context.task();
    let failed = |error: &&_| {
        matches!(
            error,
            plimsoll::task::AttemptError {
                kind: FailureKind::Error,
                ..
            }
        )
    };
    if task.errors.iter().filter(failed).count() < work.fails {
        return Err(Failure::new("the network is away"));
    }
    let count = Merge::new(done_key(task.id())?)
        .add(Name::new(TIMES)?, 1)
        .set(fields([(FENCE, context.fence().to_string())])?);
    let completion = Completion::new().write(Write::Merge(count));
    if !work.follow_up {
        return Ok(completion);
    }
    let thumbnail = Work {
        follow_up: false,
        ..work
    };
    Ok(completion.submit(self::task(task.id().nth(1), "thumbnail", thumbnail)?))
}
