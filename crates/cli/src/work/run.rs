//! One task, one process: what goes in, what comes out, and when it has to end.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::Name;
use plimsoll::clock::Clock;
use plimsoll::log::{ExecutionStep, Level, NewLine};
use plimsoll::worker::{Answer, Cause, Context};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::group::{Group, Groups};
use super::guard::frame;
use super::journal::Journal;
use super::lines::plain;
use super::pipes::{Fifo, Tap};
use super::report::Report;
use super::troubles::Troubles;
use super::verdict::{End, Output, Run, grace};
use super::{environment, follow};
use crate::process::SYSTEM;

/// How much of its standard output is kept with the step.
const STEP_OUTPUT_MAX: usize = 4 * 1024;
/// A worker that cannot do a task holds it back for this long, or would have it again at once.
const HOLD_BACK: Duration = Duration::from_secs(1);
/// Who ends a worker and all that it started may reach the command a little earlier.
const SIGNAL_TO_ALL: Duration = Duration::from_millis(500);

/// How commands are run.
pub(super) struct Setup {
    pub(super) command: Vec<OsString>,
    /// This program, to be run as the guard of a command.
    pub(super) program: PathBuf,
    pub(super) store: String,
    pub(super) namespace: String,
    pub(super) grace: Duration,
    pub(super) lease: Duration,
    pub(super) log_bytes_max: usize,
    pub(super) groups: Arc<Groups>,
    /// Whether the worker was told to end.
    pub(super) draining: watch::Sender<bool>,
    pub(super) troubles: Troubles,
    pub(super) report: Report,
}

/// Runs the command on a task.
pub(super) async fn run(setup: Arc<Setup>, context: Context) -> Answer {
    setup.report.started(&context);
    let clock = context.engine().clock().clone();
    let began = clock.monotonic();
    let (answer, exit_code) = match attempt(&setup, &context).await {
        Ok(mut run) => {
            match run.end {
                End::Exited(SYSTEM) => setup.troubles.met(clock.monotonic(), &run.words()),
                _ => setup.troubles.overcome(),
            }
            run.draining = run.was_told_to_stop() && setup.drains(clock.as_ref()).await;
            let cut = run.draining || run.stopped == Some(Cause::Draining);
            let exit_code = run.exit_code();
            let answer = run.verdict();
            if cut && !matches!(answer, Answer::Complete(_)) {
                setup.report.interrupted();
            }
            (answer, exit_code)
        }
        Err(error) => {
            // The task is not to blame.
            setup.report.trouble(&context, &error);
            setup.troubles.met(clock.monotonic(), &error.to_string());
            (Answer::Release, None)
        }
    };
    setup
        .report
        .ended(&context, &answer, exit_code, clock.monotonic() - began);
    if answer == Answer::Release && context.cancelled().is_none() {
        let mut draining = setup.draining.subscribe();
        tokio::select! {
            () = clock.sleep(HOLD_BACK) => {}
            _ = context.cancellation() => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }
    answer
}

async fn attempt(setup: &Setup, context: &Context) -> io::Result<Run> {
    let clock = context.engine().clock().clone();
    let (started_at, began) = (clock.now(), clock.monotonic());
    // The guard removes it if this worker cannot.
    let folder = tempfile::Builder::new()
        .prefix("plimsoll-work-")
        .tempdir()?;
    let control = folder.path().join("control");
    let fifo = Fifo::make(&control)?;
    let checkpoint = match context.last_checkpoint() {
        Some(bytes) => {
            let path = folder.path().join("checkpoint");
            std::fs::write(&path, bytes)?;
            Some(path)
        }
        None => None,
    };
    let mut command = setup.guard(folder.path());
    environment::tell(&mut command, context, &control, checkpoint.as_deref());
    setup.groups.sweep();
    let (mut group, mut child) = Group::start(&mut command, &setup.groups)?;
    let (over, until) = watch::channel(false);
    let pipes = Pipes::of(&mut child, &until)?;
    let (scribe, journal) = Journal::new(context.clone(), setup.log_bytes_max);

    let ending = async {
        let ended = watch_over(&mut group, context, setup).await;
        group.finish(clock.as_ref()).await;
        over.send_replace(true);
        ended
    };
    let result_max = context.engine().store().limits().payload_bytes_max;
    let payload = context.task().spec.payload.clone();
    let controlled = follow::control(fifo, until.clone(), context, scribe.clone());
    let (ended, (), output, said, mut asked, journal) = tokio::join!(
        ending,
        feed(pipes.stdin, payload, until.clone()),
        pipes.stdout.all(result_max),
        follow::errors(pipes.stderr, scribe),
        controlled,
        journal.run(),
    );
    let (end, stopped) = ended?;
    if end == End::Exited(0) {
        asked.follow_ups.read_files();
    }
    let run = Run {
        end,
        stopped,
        draining: false,
        output,
        last_words: said.last_words,
        retry_after: asked.retry_after,
        timeout: context.task().spec.attempt_timeout,
        follow_ups: asked.follow_ups,
    };
    let took = clock.monotonic() - began;
    let step = ExecutionStep {
        step_id: name(&format!("attempt-{}", context.attempt()))?,
        kind: name("command")?,
        command: Some(setup.command_line()),
        exit_code: run.exit_code(),
        stdout: match &run.output {
            Output::Whole(bytes) => text(&bytes[..bytes.len().min(STEP_OUTPUT_MAX)]),
            Output::Beyond { max } => Some(format!("more than {max} bytes")),
        },
        stderr: text(&said.tail),
        started_at,
        // From the clock that does not jump: it must not end before it began.
        completed_at: Some(started_at.saturating_plus(took)),
        duration_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        success: Some(run.end == End::Exited(0)),
        error: (run.end != End::Exited(0)).then(|| run.words()),
    };
    let level = match run.end {
        End::Exited(0) => Level::Info,
        End::Exited(_) | End::Killed(_) => Level::Error,
    };
    let id = journal.context().engine().ids().line();
    let line = NewLine::new(id, level, format!("{} after {took:.1?}", run.words()));
    let step = Some(Box::new(step));
    journal.close(NewLine { step, ..line }).await;
    Ok(run)
}

/// Waits for the end of a command, and makes it end when it has to. Answers how it ended, and why it
/// was told to.
async fn watch_over(
    group: &mut Group,
    context: &Context,
    setup: &Setup,
) -> io::Result<(End, Option<Cause>)> {
    let clock = context.engine().clock().as_ref();
    let cause = tokio::select! {
        biased;
        end = group.ended(clock) => return Ok((end?, None)),
        cause = context.cancellation() => cause,
    };
    group.signal(Signal::TERM);
    // One that was stopped must go on to hear it.
    group.signal(Signal::CONT);
    let timeout = context.task().spec.attempt_timeout;
    let grace = grace(setup.grace, &cause, setup.lease, timeout);
    // The guard ends after what the command has started, which may end politely too.
    let end = tokio::select! {
        biased;
        end = group.ended(clock) => Some(end?),
        () = clock.sleep(grace) => None,
    };
    let end = match end {
        Some(end) => end,
        None => {
            group.signal(Signal::KILL);
            group.ended(clock).await?
        }
    };
    Ok((end, Some(cause)))
}

struct Pipes {
    stdin: pipe::Sender,
    stdout: Tap,
    stderr: Tap,
}

impl Pipes {
    fn of(child: &mut Child, until: &watch::Receiver<bool>) -> io::Result<Self> {
        let missing = || io::Error::other("a pipe is missing");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        Ok(Self {
            stdin: pipe::Sender::from_owned_fd(stdin.into())?,
            stdout: Tap::of(stdout, until.clone())?,
            stderr: Tap::of(stderr, until.clone())?,
        })
    }
}

/// Hands over the payload. The pipe stays open for as long as this worker lives and watches.
async fn feed(mut pipe: pipe::Sender, payload: Bytes, mut over: watch::Receiver<bool>) {
    let all = async {
        // A guard that is gone is noticed elsewhere.
        if pipe.write_all(&frame(&payload)).await.is_ok() {
            pipe.write_all(&payload).await.ok();
        }
    };
    tokio::select! {
        () = all => {}
        _ = over.wait_for(|over| *over) => {}
    }
    over.wait_for(|over| *over).await.ok();
}

fn name(text: &str) -> io::Result<Name> {
    Name::new(text).map_err(io::Error::other)
}

fn text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| plain(bytes))
}

impl Setup {
    /// Whether the worker drains, or is about to.
    async fn drains(&self, clock: &dyn Clock) -> bool {
        let mut draining = self.draining.subscribe();
        tokio::select! {
            biased;
            told = draining.wait_for(|draining| *draining) => told.is_ok(),
            () = clock.sleep(SIGNAL_TO_ALL) => false,
        }
    }

    fn guard(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let grace = format!("{}ms", self.grace.as_millis());
        command
            .args(["work-guard", "--grace", &grace, "--folder"])
            .arg(folder)
            .arg("--")
            .args(&self.command)
            .env("PLIMSOLL_STORE", &self.store)
            .env("PLIMSOLL_NAMESPACE", &self.namespace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn command_line(&self) -> String {
        let words: Vec<_> = self
            .command
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let line = plain(words.join(" ").as_bytes());
        line[..line.floor_char_boundary(STEP_OUTPUT_MAX)].to_owned()
    }
}
