//! `plimsoll lock run`: runs a command under a lock.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use plimsoll::Error;
use plimsoll::locks::LockGuard;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, waitid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::client::Client;
use crate::exit::{CliError, Outcome};
use crate::input;
use crate::process::{code, this_program};
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
        let bar = client
            .screen
            .bar("{spinner} waiting for the lock {elapsed}");
        if self.wait || self.timeout.is_some() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        let guard = match (self.wait, self.timeout) {
            (true, _) => lock.acquire().await,
            (false, Some(timeout)) => lock.acquire_within(timeout).await,
            (false, None) => lock.try_acquire().await,
        };
        bar.finish_and_clear();
        match guard {
            Ok(guard) => self.under(guard, client).await,
            Err(error) if error.code() == "lock_not_acquired" => {
                Err(CliError::LockNotAcquired(error))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn under(&self, guard: LockGuard, client: &Client) -> Outcome {
        let status = match self.command(&guard, client).await {
            Ok(Some(status)) => status,
            Ok(None) => return Err(self.lost("its command was ended")),
            Err(error) => {
                // Nothing runs. If the lock cannot be released, it ends by itself.
                guard.release().await.ok();
                return Err(error);
            }
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
            Err(Error::Conflict(_)) => Err(self.lost("before its command had ended")),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs the command to its end, or ends it if the lock is lost: then it has no status.
    async fn command(&self, guard: &LockGuard, client: &Client) -> Outcome<Option<ExitStatus>> {
        let failed = |what| move |error| CliError::System { what, error };
        // Before the command starts, so that none of them ends this process without it.
        let mut signals = Forwarded::listen().map_err(failed("listen for signals"))?;
        let children = signal(SignalKind::child());
        let mut children = children.map_err(failed("listen for signals"))?;
        let start = self.start(guard);
        let mut running = Running {
            child: start.map_err(failed("start the command"))?,
            foreground: self.foreground,
        };
        loop {
            tokio::select! {
                biased;
                () = guard.lost() => {
                    let ended = running.end(client, grace(self.ttl)).await;
                    ended.map_err(failed("end the command"))?;
                    return Ok(None);
                }
                status = running.child.wait() => {
                    return status.map(Some).map_err(failed("wait for the command"));
                }
                signal = signals.next() => running.forward(signal),
                _ = children.recv() => if running.wants_terminal() {
                    client.screen.note("The command waits for the terminal: --foreground gives it.");
                },
            }
        }
    }

    fn lost(&self, what: &'static str) -> CliError {
        let name = self.name.clone();
        CliError::LockLost { name, what }
    }

    fn start(&self, guard: &LockGuard) -> io::Result<Child> {
        let mut command = Command::new(this_program()?);
        command.arg("lock-exec").arg("--parent");
        command.arg(std::process::id().to_string());
        command.arg("--").args(&self.command);
        command.env("PLIMSOLL_LOCK", guard.name());
        command.env("PLIMSOLL_LOCK_TOKEN", guard.token().to_string());
        if !self.foreground {
            command.process_group(0);
        }
        command.spawn()
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

/// The command while it runs.
struct Running {
    child: Child,
    foreground: bool,
}

impl Running {
    /// Unless its end was seen.
    fn pid(&self) -> Option<Pid> {
        let id = self.child.id()?;
        Pid::from_raw(id.cast_signed())
    }

    /// To the command and, unless it shares our group, to all it has started.
    fn signal(&self, signal: Signal) {
        if let Some(id) = self.pid() {
            // One that has ended needs none.
            match self.foreground {
                true => kill_process(id, signal).ok(),
                false => kill_process_group(id, signal).ok(),
            };
        }
    }

    /// Passes on what was sent to this process. In the foreground, the terminal interrupts both.
    fn forward(&self, signal: Signal) {
        match signal {
            // While this process is stopped, nobody renews the lock, so the command must not run.
            // It goes on when this one does.
            Signal::TSTP => {
                self.signal(Signal::STOP);
                kill_process(getpid(), Signal::STOP).ok();
            }
            Signal::INT if self.foreground => {}
            signal => self.signal(signal),
        }
    }

    /// Whether it stands still because it wants the terminal, which only the foreground has.
    fn wants_terminal(&self) -> bool {
        let stopped = self.pid().and_then(|id| {
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(id), options).ok().flatten()
        });
        let by = stopped.and_then(|status| status.stopping_signal());
        let terminal = [Signal::TTIN, Signal::TTOU].map(|signal| signal.as_raw());
        by.is_some_and(|signal| terminal.contains(&signal))
    }

    /// Asks it to end, and makes it end. One that is stopped must go on to hear it.
    async fn end(&mut self, client: &Client, grace: Duration) -> io::Result<()> {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        let group = self.pid();
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
    stop: Signals,
    proceed: Signals,
    interrupt: Signals,
    terminate: Signals,
}

impl Forwarded {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
            proceed: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::HUP,
            _ = self.stop.recv() => Signal::TSTP,
            _ = self.proceed.recv() => Signal::CONT,
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}
