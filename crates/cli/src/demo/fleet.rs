//! The worker processes of a run: started, killed, frozen and thawed, each by its own process id.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::DemoError;
use super::worker::Report;

/// How workers are started.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    pub(super) store: String,
    pub(super) namespace: String,
    pub(super) workers: usize,
    pub(super) concurrency: usize,
    pub(super) lease: Duration,
}

/// What was done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Working,
    Killed,
    Frozen,
    /// It was frozen and works again.
    Thawed,
}

/// A worker with all its lives, of which at most the last one goes on.
#[derive(Debug)]
pub(super) struct Member {
    child: Child,
    pub(super) state: State,
    /// What each life said last.
    reports: BTreeMap<usize, Report>,
    life: usize,
}

impl Member {
    /// What its life of now said last.
    pub(super) fn report(&self) -> Report {
        self.reports.get(&self.life).copied().unwrap_or_default()
    }

    pub(super) fn completed(&self) -> u64 {
        self.reports.values().map(|report| report.completed).sum()
    }

    pub(super) fn refused(&self) -> u64 {
        self.reports.values().map(|report| report.refused).sum()
    }

    fn signal(&self, with: Signal) -> io::Result<()> {
        signal(&self.child, with)
    }
}

/// A process that has been waited for has no id any more, so that no other one is met.
pub(crate) fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    match id.and_then(Pid::from_raw) {
        Some(id) => Ok(kill_process(id, signal)?),
        None => Ok(()),
    }
}

/// Who said it, in which life, and what.
type Said = (usize, usize, Report);

/// All workers. Those that go on are killed when this is dropped.
pub(super) struct Fleet {
    crew: Crew,
    pub(super) members: Vec<Member>,
    said: SelectAll<BoxStream<'static, Said>>,
    pub(super) kills: u64,
    pub(super) freezes: u64,
}

pub(super) fn name(worker: usize) -> String {
    format!("worker-{}", worker + 1)
}

impl Fleet {
    pub(super) fn start(crew: Crew) -> Result<Self, DemoError> {
        let mut fleet = Self {
            members: Vec::new(),
            said: SelectAll::new(),
            kills: 0,
            freezes: 0,
            crew,
        };
        for worker in 0..fleet.crew.workers {
            let child = fleet.spawn(worker, 0)?;
            fleet.members.push(Member {
                child,
                state: State::Working,
                reports: BTreeMap::new(),
                life: 0,
            });
        }
        Ok(fleet)
    }

    fn spawn(&mut self, worker: usize, life: usize) -> Result<Child, DemoError> {
        let crew = &self.crew;
        let program = std::env::current_exe().map_err(DemoError::Start)?;
        let mut child = Command::new(program)
            // Arguments are for everybody to see, and there may be a password in it.
            .env("PLIMSOLL_STORE", &crew.store)
            .args(["demo-worker", "--namespace", &crew.namespace])
            .args(["--name", &name(worker)])
            .args(["--concurrency", &crew.concurrency.to_string()])
            .args(["--lease-ms", &crew.lease.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(DemoError::Start)?;
        if let Some(output) = child.stdout.take() {
            let lines = BufReader::new(output).lines();
            let said = stream::unfold(lines, async |mut lines| {
                let line = lines.next_line().await.ok().flatten()?;
                // A worker that is killed may leave half a line.
                let report = serde_json::from_str(&line).ok()?;
                Some((report, lines))
            });
            let said = said.map(move |report| (worker, life, report));
            self.said.push(said.boxed());
        }
        Ok(child)
    }

    /// Waits for a worker to say something, and notes it.
    pub(super) async fn listen(&mut self) {
        match self.said.next().await {
            Some(said) => self.note(said),
            None => std::future::pending().await,
        }
    }

    fn note(&mut self, (worker, life, report): Said) {
        self.members[worker].reports.insert(life, report);
    }

    pub(super) async fn kill(&mut self, worker: usize) -> Result<(), DemoError> {
        let member = &mut self.members[worker];
        member.child.kill().await.map_err(DemoError::Signal)?;
        member.state = State::Killed;
        self.kills += 1;
        Ok(())
    }

    /// Starts a worker that was killed again, as another life of it.
    pub(super) fn restart(&mut self, worker: usize) -> Result<(), DemoError> {
        let life = self.members[worker].life + 1;
        let child = self.spawn(worker, life)?;
        let member = &mut self.members[worker];
        (member.child, member.life, member.state) = (child, life, State::Working);
        Ok(())
    }

    pub(super) fn freeze(&mut self, worker: usize) -> Result<(), DemoError> {
        let member = &mut self.members[worker];
        member.signal(Signal::STOP).map_err(DemoError::Signal)?;
        member.state = State::Frozen;
        Ok(())
    }

    pub(super) fn thaw(&mut self, worker: usize) -> Result<(), DemoError> {
        let member = &mut self.members[worker];
        member.signal(Signal::CONT).map_err(DemoError::Signal)?;
        member.state = State::Thawed;
        Ok(())
    }

    pub(super) fn refused(&self) -> u64 {
        self.members.iter().map(Member::refused).sum()
    }

    /// Whether a worker ended that nobody has ended.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        for (worker, member) in self.members.iter_mut().enumerate() {
            if member.state != State::Killed
                && let Some(status) = member.child.try_wait().map_err(DemoError::Signal)?
            {
                let name = name(worker);
                return Err(DemoError::Ended { name, status });
            }
        }
        Ok(())
    }

    /// Lets every worker finish what it has begun, and hears its last words.
    pub(super) async fn drain(&mut self) -> Result<(), DemoError> {
        for worker in 0..self.members.len() {
            if self.members[worker].state == State::Frozen {
                self.thaw(worker)?;
            }
            drop(self.members[worker].child.stdin.take());
        }
        while let Some(said) = self.said.next().await {
            self.note(said);
        }
        for member in &mut self.members {
            member.child.wait().await.map_err(DemoError::Signal)?;
        }
        Ok(())
    }

    /// Ends every process at once and waits until it is gone: only then the file can be removed.
    pub(super) async fn end(&mut self) {
        for member in &mut self.members {
            // One that has ended already cannot be killed.
            member.child.kill().await.ok();
        }
    }
}
