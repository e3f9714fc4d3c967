//! `plimsoll work-guard`: the parent of one command, so that nothing of it outlives its worker.
//!
//! The worker starts the guard as the leader of a process group of its own; the command and all it
//! starts are in that group. The guard's standard input brings the payload and then stays open for
//! as long as the worker lives: when it ends, the guard ends the whole group, itself included. When
//! the command ends, the guard ends what is left of the group; if all were told to stop, the rest has
//! its grace first. The other way round, a worker that loses its guard ends the group by
//! the guard's process id.
//!
//! What loses its parent becomes a child of the guard, so that the guard knows when the last one of
//! the group is gone.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use plimsoll::clock::{Clock, SystemClock};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_current_process_group, kill_process,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

use super::group::{adopt_orphans, bury, others, woken};
use crate::process::{SIGNALLED, SYSTEM, code, code_of};

/// A signal to a group reaches all of it within this time.
const HEARD_WITHIN: Duration = Duration::from_millis(100);

/// The parent of one command, started by `plimsoll work`.
#[derive(Debug, Args)]
pub(crate) struct WorkGuard {
    /// How long the command may go on after SIGTERM once the worker is gone.
    #[arg(long, value_parser = crate::input::duration)]
    grace: Duration,
    /// The folder of the command, to be removed once the worker is gone.
    #[arg(long)]
    folder: PathBuf,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl WorkGuard {
    /// Answers as the command does: with its exit code, or 128 and the signal that killed it.
    pub(crate) async fn run(self) -> ExitCode {
        let code = match self.guard().await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("plimsoll work: cannot guard the command: {error}");
                SYSTEM
            }
        };
        ExitCode::from(code)
    }

    async fn guard(self) -> io::Result<u8> {
        if getpgrp() != getpid() {
            // It would end the processes of whoever tries it by hand.
            return Err(io::Error::other("a guard leads a process group of its own"));
        }
        let worker = getppid();
        let _deaf = ignore_signals_to_the_group()?;
        let mut terminate = signal(SignalKind::terminate())?;
        adopt_orphans()?;
        let children = signal(SignalKind::child())?;
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let mut input = pipe::Receiver::from_owned_fd(input)?;
        // A worker that dies before it has said everything leaves nothing to be started.
        let payload = read_payload(&mut input).await?;
        let mut child = match self.start() {
            Ok(child) => child,
            Err(error) => {
                let command = self.command[0].to_string_lossy();
                eprintln!("plimsoll work: cannot run `{command}`: {error}");
                return Ok(code_of(&error));
            }
        };
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command need not read what it does not want to know.
                stdin.write_all(&payload).await.ok();
            }
            drop(payload);
        };
        let gone = async {
            let mut nothing = [0; 16];
            while input.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
        };
        tokio::select! {
            status = fed(feed, child.wait()) => {
                let code = code(status?);
                if !others(getpgrp(), pid).is_empty() && told_to_stop(&mut terminate).await {
                    self.spare_the_rest(pid).await?;
                }
                end_the_rest(pid).await?;
                if getppid() != worker {
                    // The worker is gone, and leaves this to its guards.
                    std::fs::remove_dir_all(&self.folder).ok();
                }
                return Ok(code);
            }
            () = gone => {}
            never = bury_orphans(children, pid) => match never {},
        }
        self.end(child, pid).await
    }

    fn start(&self) -> io::Result<Child> {
        Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::piped())
            .spawn()
    }

    /// Ends everything: politely, then for good. All of the group has the grace, not only the command.
    async fn end(self, mut child: Child, pid: Option<Pid>) -> io::Result<u8> {
        kill_current_process_group(Signal::TERM)?;
        kill_current_process_group(Signal::CONT)?;
        let all = async {
            child.wait().await.ok();
            self.spare_the_rest(pid).await
        };
        tokio::select! {
            // Whatever goes wrong, the end for good comes next.
            _ = all => {}
            () = SystemClock::new().sleep(self.grace) => {}
        }
        std::fs::remove_dir_all(&self.folder).ok();
        kill_current_process_group(Signal::KILL)?;
        Ok(SIGNALLED)
    }

    /// Waits for what the command has started and left, but not for longer than its grace.
    async fn spare_the_rest(&self, command: Option<Pid>) -> io::Result<()> {
        let mut children = signal(SignalKind::child())?;
        let clock = SystemClock::new();
        let all = async {
            while !others(getpgrp(), command).is_empty() {
                woken(&mut children, &clock).await;
            }
        };
        tokio::select! {
            () = all => {}
            () = clock.sleep(self.grace) => {}
        }
        Ok(())
    }
}

/// Ends what the command has left behind, one by one: a signal to the group would end this process too.
/// The worker would end it as well; but it may be frozen, and killed before it wakes up.
async fn end_the_rest(command: Option<Pid>) -> io::Result<()> {
    let mut children = signal(SignalKind::child())?;
    let clock = SystemClock::new();
    loop {
        // What these have started becomes a child of this process when they are gone.
        let left = others(getpgrp(), command);
        if left.is_empty() {
            return Ok(());
        }
        for process in left {
            // It may be gone by now.
            kill_process(process, Signal::KILL).ok();
        }
        woken(&mut children, &clock).await;
    }
}

/// Whether all were told to stop. The guard hears it too, perhaps a moment after the command has
/// died of it.
async fn told_to_stop(terminate: &mut Listener) -> bool {
    tokio::select! {
        biased;
        _ = terminate.recv() => true,
        () = SystemClock::new().sleep(HEARD_WITHIN) => false,
    }
}

/// Waits for the command while it is fed, and does not wait for the feeding.
async fn fed<T>(feed: impl Future<Output = ()>, wait: impl Future<Output = T>) -> T {
    tokio::pin!(feed, wait);
    tokio::select! {
        done = &mut wait => return done,
        () = &mut feed => {}
    }
    wait.await
}

/// Waits for what was left to this process and has ended, for ever.
async fn bury_orphans(mut children: Listener, command: Option<Pid>) -> Infallible {
    loop {
        children.recv().await;
        bury(|child| Some(child) == command);
    }
}

/// Signals to the group are for the command. The guard hears them too, and goes on.
fn ignore_signals_to_the_group() -> io::Result<impl Sized> {
    [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ]
    .into_iter()
    .map(signal)
    .collect::<io::Result<Vec<_>>>()
}

/// What the worker sends: the length of the payload in eight bytes, and the payload.
pub(super) fn frame(payload: &[u8]) -> [u8; 8] {
    (payload.len() as u64).to_be_bytes()
}

async fn read_payload(input: &mut pipe::Receiver) -> io::Result<Vec<u8>> {
    let length = input.read_u64().await?;
    let mut payload = Vec::new();
    let read = input.take(length).read_to_end(&mut payload).await?;
    if read as u64 == length {
        Ok(payload)
    } else {
        Err(ErrorKind::UnexpectedEof.into())
    }
}
