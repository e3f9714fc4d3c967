//! `plimsoll lock run`: runs a command under a lock.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use plimsoll::Error;
use plimsoll::locks::LockGuard;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::client::Client;
use crate::exit::{CliError, Outcome};
use crate::input;
use crate::text::{clean, span};

/// Runs a command under a lock, and ends with its exit code, or with 128 and the signal that ended
/// it; 20 if the lock was not acquired, 21 if it was lost. The command finds PLIMSOLL_LOCK and
/// PLIMSOLL_LOCK_TOKEN in its environment. When the lock is lost, the command and all it has started
/// are ended.
#[derive(Debug, Args)]
pub(super) struct Run {
    /// The lock.
    name: String,
    /// How long the lock outlives this process when it dies. It is renewed at half of it.
    #[arg(long, value_name = "TIME", value_parser = input::duration, default_value = "30s")]
    ttl: Duration,
    /// Waits until the lock is free; otherwise gives up at once.
    #[arg(long)]
    wait: bool,
    /// Waits until the lock is free, but not for longer than this.
    #[arg(long, value_name = "TIME", value_parser = input::duration, conflicts_with = "wait")]
    timeout: Option<Duration>,
    /// Who holds it, for people: the host and process, if not said otherwise.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Lets the command read from the terminal. It is in no process group of its own then: if the
    /// lock is lost, only the command is ended and not what it has started.
    #[arg(long)]
    foreground: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Run {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let owner = self.owner.clone().unwrap_or_else(owner);
        let lock = client.engine.locks().lock(&self.name);
        let lock = lock.ttl(self.ttl).owner(owner);
        let guard = match (self.wait, self.timeout) {
            (true, _) => {
                let bar = client
                    .screen
                    .bar("{spinner} waiting for the lock {elapsed}");
                bar.enable_steady_tick(Duration::from_millis(100));
                let guard = lock.acquire().await;
                bar.finish_and_clear();
                guard
            }
            (false, Some(timeout)) => lock.acquire_within(timeout).await,
            (false, None) => lock.try_acquire().await,
        };
        match guard {
            Ok(guard) => self.under(guard, client).await,
            Err(error) if error.code() == "lock_not_acquired" => {
                Err(CliError::LockNotAcquired(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn under(&self, guard: LockGuard, client: &Client) -> Outcome {
        // Before the command starts, so that none of them ends this process without it.
        let mut signals = Forwarded::listen()?;
        let mut running = Running {
            child: self.start(&guard)?,
            foreground: self.foreground,
        };
        let status = loop {
            tokio::select! {
                biased;
                () = guard.lost() => break None,
                status = running.child.wait() => break Some(status?),
                signal = signals.next() => running.forward(signal),
            }
        };
        let Some(status) = status else {
            running.end(client, grace(self.ttl)).await?;
            return Err(lost(&self.name, "its command was ended"));
        };
        match guard.release().await {
            Ok(()) => Ok(code(status)),
            Err(error) if error.is_transient() => {
                let ends = span(self.ttl);
                let error = clean(&error.to_string());
                client.screen.note(&format!(
                    "The lock could not be released and ends within {ends}: {error}"
                ));
                Ok(code(status))
            }
            Err(Error::Conflict(_)) => Err(lost(&self.name, "before its command had ended")),
            Err(error) => Err(error.into()),
        }
    }

    fn start(&self, guard: &LockGuard) -> Outcome<Child> {
        let failed = |error| CliError::Input {
            what: "this program, to start the command".into(),
            error,
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("lock-exec").arg("--parent");
        command.arg(std::process::id().to_string());
        command.arg("--").args(&self.command);
        command.env("PLIMSOLL_LOCK", guard.name());
        command.env("PLIMSOLL_LOCK_TOKEN", guard.token().to_string());
        if !self.foreground {
            command.process_group(0);
        }
        command.spawn().map_err(failed)
    }
}

/// How long a command that has lost its lock may take to end. It was told a tenth of the time to
/// live before anybody else can have the lock, and must be gone by then.
fn grace(ttl: Duration) -> Duration {
    ttl / 20
}

/// The host and the process.
fn owner() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    format!("{host} ({})", std::process::id())
}

fn lost(name: &str, what: &'static str) -> CliError {
    let name = name.into();
    CliError::LockLost { name, what }
}

/// What a shell would say: the exit code, or 128 and the signal.
fn code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// The command while it runs.
struct Running {
    child: Child,
    foreground: bool,
}

impl Running {
    /// To the command and, unless it shares our group, to all it has started.
    fn signal(&self, signal: Signal) {
        let id = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(id) = id {
            // One that has ended needs none.
            match self.foreground {
                true => kill_process(id, signal).ok(),
                false => kill_process_group(id, signal).ok(),
            };
        }
    }

    /// Passes on what was sent to this process. In the foreground, the terminal interrupts both.
    fn forward(&self, signal: Signal) {
        if !(self.foreground && signal == Signal::INT) {
            self.signal(signal);
        }
    }

    /// Asks it to end, and makes it end.
    async fn end(&mut self, client: &Client, grace: Duration) -> Outcome<()> {
        self.signal(Signal::TERM);
        let group = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(id.cast_signed()));
        tokio::select! {
            biased;
            status = self.child.wait() => drop(status?),
            () = client.engine.clock().sleep(grace) => {}
        }
        // Also what it has started and left behind.
        if let (Some(group), false) = (group, self.foreground) {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.signal(Signal::KILL);
        self.child.wait().await?;
        Ok(())
    }
}

/// Signals to this process, which are meant for the command.
struct Forwarded {
    hangup: Signals,
    interrupt: Signals,
    terminate: Signals,
}

impl Forwarded {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}
