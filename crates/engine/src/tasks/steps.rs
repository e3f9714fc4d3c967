//! Steps of the work on a task: the commands that it ran, and how they ended.

use std::borrow::Cow;
use std::time::Duration;

use plimsoll_core::log::{AttemptStep, ExecutionStep, Level, NewLine, Steps, cut_middle};
use plimsoll_core::store::Logs;
use plimsoll_core::task::Status;
use plimsoll_core::{Name, Result, TaskId};

use crate::tasks::{JobLog, Tasks};

/// How much of each output is kept.
const TEXT_BYTES_MAX: usize = 32 * 1024;

impl JobLog {
    /// A step of the work, such as a command, to be [started](NewStep::start). The id tells it from
    /// other steps of the attempt; the kind says what is done: `download`, `ffmpeg`, `upload`.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// use plimsoll_engine::tasks::StepEnd;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// # let id = tasks.submit(tasks.task("media", "transcode", "clip-7")?).await?.id;
    /// # let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
    /// let log = held.job_log();
    /// let step = log.step("encode", "ffmpeg")?.command("ffmpeg -i in.mov out.mp4").start().await?;
    /// log.flush().await?;
    /// assert_eq!(tasks.steps(id).await?[0].success, None);
    /// step.end(StepEnd::exit(1).stderr("no such codec")).await?;
    /// log.flush().await?;
    /// let steps = tasks.steps(id).await?;
    /// assert_eq!((steps[0].exit_code, steps[0].success), (Some(1), Some(false)));
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn step(&self, step_id: impl AsRef<str>, kind: impl AsRef<str>) -> Result<NewStep> {
        let started_at = self.hold().tasks.engine.clock().now();
        Ok(NewStep {
            log: self.clone(),
            step: ExecutionStep {
                step_id: Name::for_field("step_id", step_id)?,
                kind: Name::for_field("kind", kind)?,
                command: None,
                exit_code: None,
                stdout: None,
                stderr: None,
                started_at,
                completed_at: None,
                duration_ms: None,
                success: None,
                error: None,
            },
        })
    }

    async fn report(&self, level: Level, message: String, step: ExecutionStep) -> Result<()> {
        let line = NewLine::new(self.line_id(), level, message);
        self.append(NewLine {
            step: Some(Box::new(step)),
            ..line
        })
        .await
    }

    /// A text as every store takes it: what a command says is never a reason to refuse it.
    fn fitting(&self, text: &str) -> String {
        let max = TEXT_BYTES_MAX.min(self.hold().tasks.store().limits().text_bytes_max);
        cut_middle(&text.replace('\0', "\u{fffd}"), max)
    }
}

/// A step that has not started.
#[derive(Clone, Debug)]
pub struct NewStep {
    log: JobLog,
    step: ExecutionStep,
}

impl NewStep {
    /// With the command line.
    pub fn command(mut self, command: impl AsRef<str>) -> Self {
        self.step.command = Some(self.log.fitting(command.as_ref()));
        self
    }

    /// Starts it: from now on it is seen as running, as soon as its line is stored.
    pub async fn start(self) -> Result<Step> {
        let clock = self.log.hold().tasks.engine.clock();
        let since = clock.monotonic();
        let step = ExecutionStep {
            started_at: clock.now(),
            ..self.step
        };
        let message = format!("{} started ({})", step.step_id, step.kind);
        self.log.report(Level::Info, message, step.clone()).await?;
        let log = self.log;
        Ok(Step { log, step, since })
    }
}

/// A step that is running. One that is dropped stays so, and is cut off with its attempt. It is timed by
/// the clock of this process, not by the store's.
#[derive(Debug)]
pub struct Step {
    log: JobLog,
    step: ExecutionStep,
    since: Duration,
}

impl Step {
    /// Ends it. Outputs that are too long are cut in the middle, with a note of how much.
    pub async fn end(self, end: StepEnd) -> Result<ExecutionStep> {
        let clock = self.log.hold().tasks.engine.clock();
        let took = clock.monotonic().saturating_sub(self.since);
        let fitting = |text: Option<String>| text.map(|text| self.log.fitting(&text));
        let success = end.error.is_none() && end.exit_code.unwrap_or(0) == 0;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let step = ExecutionStep {
            exit_code: end.exit_code,
            stdout: fitting(end.stdout),
            stderr: fitting(end.stderr),
            completed_at: Some(clock.now().max(self.step.started_at)),
            duration_ms: Some(millis),
            success: Some(success),
            error: fitting(end.error),
            ..self.step
        };
        let how = match (&step.error, step.exit_code) {
            (Some(error), _) => Cow::from(format!("failed: {error}")),
            (None, Some(code)) => format!("ended with exit code {code}").into(),
            (None, None) => "ended".into(),
        };
        let message = format!("{} {how} after {millis} ms", step.step_id);
        let level = if success { Level::Info } else { Level::Error };
        let message = self.log.fitting(&message);
        self.log.report(level, message, step.clone()).await?;
        Ok(step)
    }
}

/// How a step ended: well, unless there is an error or an exit code other than zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepEnd {
    /// The exit code, of a command.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output.
    pub stdout: Option<String>,
    /// What it wrote to standard error.
    pub stderr: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

impl StepEnd {
    /// It ended well.
    pub fn ok() -> Self {
        Self::default()
    }

    /// A command ended with this code.
    pub fn exit(code: i32) -> Self {
        Self {
            exit_code: Some(code),
            ..Self::default()
        }
    }

    /// It went wrong.
    pub fn failed(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::default()
        }
    }

    /// With what it wrote to standard output. What is not UTF-8 is replaced.
    pub fn stdout(mut self, output: impl AsRef<[u8]>) -> Self {
        self.stdout = Some(String::from_utf8_lossy(output.as_ref()).into_owned());
        self
    }

    /// With what it wrote to standard error. What is not UTF-8 is replaced.
    pub fn stderr(mut self, output: impl AsRef<[u8]>) -> Self {
        self.stderr = Some(String::from_utf8_lossy(output.as_ref()).into_owned());
        self
    }
}

impl Tasks {
    /// The steps of a task, those of each attempt on their own, in the order in which they started, each
    /// as it was reported last. One whose attempt ended first, as in a crash, is
    /// [cut off](AttemptStep::cut_off). Reads the log page by page, and holds nothing of it but steps.
    pub async fn steps(&self, task: TaskId) -> Result<Vec<AttemptStep>> {
        // Before the log: what an attempt that was over then has said is all in it.
        let now = self.find(task).await?;
        let over = |fence| {
            let current = now.as_ref().map(|task| (task.fence, task.status));
            current.is_none_or(|(newest, status)| {
                fence < newest || (fence == newest && status != Status::Claimed)
            })
        };
        let mut steps = Steps::default();
        let mut cursor = None;
        loop {
            let page = self.logs(Logs {
                task,
                level: Level::Info,
                cursor,
                limit: self.page(),
            });
            let page = page.await?;
            page.lines.into_iter().for_each(|line| steps.add(line));
            if !page.more {
                return Ok(steps.told(over));
            }
            cursor = Some(page.next);
        }
    }
}
