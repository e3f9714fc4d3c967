//! The processes of a run: started, killed, frozen, drained, each by its own process id.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::ChaosError;
use super::job::SCRIPT;
use super::stage::{self, Stage};
use crate::demo::signal;
use crate::exit::CUT_OFF;

/// How long it may take until a process that was started listens for signals.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `plimsoll work`
    Worker,
    /// `plimsoll chaos-holder`
    Holder,
    /// `plimsoll sweep`
    Watchdog,
}

impl Role {
    pub(super) const ALL: [Self; 3] = [Self::Worker, Self::Holder, Self::Watchdog];

    /// How many processes do this.
    pub(super) fn count(self) -> u64 {
        match self {
            Self::Worker => 4,
            Self::Holder => 5,
            Self::Watchdog => 3,
        }
    }

    pub(super) fn name(self, number: u64) -> String {
        let role = match self {
            Self::Worker => "worker",
            Self::Holder => "holder",
            Self::Watchdog => "watchdog",
        };
        format!("{role}-{}", number + 1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// Until this moment.
    Frozen(Duration),
    /// Since this moment.
    Draining(Duration),
}

/// A process with all its lives.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) role: Role,
    number: u64,
    child: Child,
    /// When this life began.
    started: Duration,
    pub(super) state: State,
}

impl Actor {
    /// Whether it may end like this when it was told to. A worker says so when it had to cut
    /// something off. SIGTERM ends one that does not listen yet, and has begun nothing.
    fn may_end(&self, status: ExitStatus, told: Duration) -> bool {
        let cut_off = self.role == Role::Worker && status.code() == Some(CUT_OFF.into());
        let terminated = status.signal() == Some(Signal::TERM.as_raw());
        status.success() || cut_off || (terminated && told < self.started + LISTENS_WITHIN)
    }

    pub(super) fn name(&self) -> String {
        self.role.name(self.number)
    }

    fn signal(&self, with: Signal) -> Result<(), ChaosError> {
        signal(&self.child, with).map_err(ChaosError::Process)
    }
}

/// All processes. Those that go on are killed when this is dropped.
pub(super) struct Cast {
    stage: Stage,
    pub(super) actors: Vec<Actor>,
}

impl Cast {
    pub(super) fn start(stage: Stage) -> Result<Self, ChaosError> {
        let mut cast = Self {
            stage,
            actors: Vec::new(),
        };
        for role in Role::ALL {
            for number in 0..role.count() {
                let child = cast.spawn(role, number).map_err(ChaosError::Process)?;
                cast.actors.push(Actor {
                    role,
                    number,
                    child,
                    started: Duration::ZERO,
                    state: State::Up,
                });
            }
        }
        Ok(cast)
    }

    /// Where an actor is found.
    pub(super) fn index(&self, role: Role, number: u64) -> Option<usize> {
        let is = |actor: &Actor| (actor.role, actor.number) == (role, number);
        self.actors.iter().position(is)
    }

    /// Starts a process that is killed with this one, whatever it becomes.
    fn spawn(&self, role: Role, number: u64) -> io::Result<Child> {
        let (stage, name) = (&self.stage, role.name(number));
        let program = std::env::current_exe()?;
        let log = |ending: &str| {
            let path = stage.folder.join(format!("{name}.{ending}"));
            File::options().create(true).append(true).open(path)
        };
        let mut command = Command::new(&program);
        command
            .args(["lock-exec", "--parent", &std::process::id().to_string()])
            .arg("--")
            .arg(&program)
            .args(self.arguments(role, &name))
            .args(["--store", &stage.store, "--namespace", &stage.namespace])
            .env(super::processes::MARK, &stage.mark)
            .env("TMPDIR", &stage.folder)
            .stdin(Stdio::piped())
            .stdout(log("out")?)
            .stderr(log("err")?)
            .kill_on_drop(true);
        if role == Role::Worker {
            command.args(["--", "sh", "-c", SCRIPT]);
        }
        command.spawn()
    }

    fn arguments(&self, role: Role, name: &str) -> Vec<String> {
        let ms = |time: Duration| format!("{}ms", time.as_millis());
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match role {
            Role::Worker => owned(&[
                "work",
                "--json",
                "--queue",
                super::job::QUEUE,
                "--name",
                name,
                "--concurrency",
                &stage::CONCURRENCY.to_string(),
                "--lease",
                &ms(stage::LEASE),
                "--heartbeat",
                &ms(stage::HEARTBEAT),
                "--grace",
                &ms(stage::GRACE),
                "--drain-timeout",
                &ms(stage::DRAIN),
            ]),
            Role::Holder => {
                let folder = self.stage.folder.to_string_lossy();
                owned(&["chaos-holder", "--name", name, "--folder", &folder])
            }
            Role::Watchdog => owned(&[
                "sweep",
                "--json",
                "--interval",
                &ms(stage::HEARTBEAT),
                "--term",
                &ms(stage::LEASE),
            ]),
        }
    }

    /// Kills a process, and starts it again.
    pub(super) async fn kill(&mut self, index: usize, now: Duration) -> Result<(), ChaosError> {
        let actor = &mut self.actors[index];
        actor.child.kill().await.map_err(ChaosError::Process)?;
        self.restart(index, now)
    }

    fn restart(&mut self, index: usize, now: Duration) -> Result<(), ChaosError> {
        let (role, number) = (self.actors[index].role, self.actors[index].number);
        let child = self.spawn(role, number).map_err(ChaosError::Process)?;
        let actor = &mut self.actors[index];
        (actor.child, actor.started, actor.state) = (child, now, State::Up);
        Ok(())
    }

    pub(super) fn freeze(&mut self, index: usize, until: Duration) -> Result<(), ChaosError> {
        let actor = &mut self.actors[index];
        actor.state = State::Frozen(until);
        actor.signal(Signal::STOP)
    }

    pub(super) fn thaw(&mut self, index: usize) -> Result<(), ChaosError> {
        let actor = &mut self.actors[index];
        actor.state = State::Up;
        actor.signal(Signal::CONT)
    }

    /// Tells a process to finish what it has begun: by the end of its input, or by SIGTERM.
    pub(super) fn drain(&mut self, index: usize, now: Duration) -> Result<(), ChaosError> {
        let actor = &mut self.actors[index];
        actor.state = State::Draining(now);
        match actor.role {
            Role::Holder => {
                drop(actor.child.stdin.take());
                Ok(())
            }
            Role::Worker | Role::Watchdog => actor.signal(Signal::TERM),
        }
    }

    /// Starts those again that have drained, and answers their names. Fails if somebody has ended
    /// who was not told to, or takes too long.
    pub(super) fn check(&mut self, now: Duration) -> Result<Vec<String>, ChaosError> {
        let mut drained = Vec::new();
        for index in 0..self.actors.len() {
            if self.has_drained(index, now)? {
                drained.push(self.actors[index].name());
                self.restart(index, now)?;
            }
        }
        Ok(drained)
    }

    /// Whether one that was told to end has.
    fn has_drained(&mut self, index: usize, now: Duration) -> Result<bool, ChaosError> {
        let actor = &mut self.actors[index];
        let status = actor.child.try_wait().map_err(ChaosError::Process)?;
        match (status, actor.state) {
            (None, State::Draining(since)) if now > since + stage::DRAINED_WITHIN => {
                Err(ChaosError::Undrained(actor.name()))
            }
            (None, _) => Ok(false),
            (Some(status), State::Draining(since)) if actor.may_end(status, since) => Ok(true),
            (Some(status), _) => {
                let name = actor.name();
                let path = self.stage.folder.join(format!("{name}.err"));
                let said = std::fs::read_to_string(path).unwrap_or_default();
                let last_words = said.lines().last().unwrap_or_default().to_owned();
                Err(ChaosError::Ended {
                    name,
                    status,
                    last_words,
                })
            }
        }
    }

    /// Whether all who do this have drained.
    pub(super) fn have_drained(&mut self, role: Role, now: Duration) -> Result<bool, ChaosError> {
        let mut all = true;
        for index in 0..self.actors.len() {
            if self.actors[index].role == role {
                all &= self.has_drained(index, now)?;
            }
        }
        Ok(all)
    }

    /// Forgets those who have drained.
    pub(super) fn dismiss(&mut self, role: Role) {
        self.actors.retain(|actor| actor.role != role);
    }

    /// Ends every process at once and waits until it is gone: only then the file can be removed.
    pub(super) async fn end(&mut self) {
        for actor in &mut self.actors {
            // One that has ended already cannot be killed.
            actor.child.kill().await.ok();
        }
    }
}
