//! A process group: everything that one command has started, as long as it stays in the group.
//!
//! The leader (the guard) is not waited for before the rest of the group has been killed, because
//! a process id that was waited for can be given to somebody else. Processes that lose their parent
//! become children of this process ([`adopt_orphans`]), so that it knows when the last one is gone.

use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll::clock::Clock;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process_group, waitid,
    waitpgid,
};
use tokio::signal::unix::{Signal as Listener, SignalKind, signal};

use super::verdict::End;

/// How often to look for children that are gone, should the signal for one of them get lost.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Makes orphans among the descendants children of this process, where the system can.
pub(super) fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Groups that were killed by somebody who could not wait for their end.
#[derive(Debug, Default)]
pub(super) struct Morgue(Mutex<Vec<Pid>>);

impl Morgue {
    fn add(&self, leader: Pid) {
        self.groups().push(leader);
    }

    /// Lets go of what is gone. Answers whether that is everything.
    pub(super) fn sweep(&self) -> bool {
        let mut groups = self.groups();
        groups.retain(|leader| !is_gone(*leader));
        groups.is_empty()
    }

    /// Waits until everything is gone.
    pub(super) async fn empty(&self, clock: &dyn Clock) -> io::Result<()> {
        let mut children = signal(SignalKind::child())?;
        while !self.sweep() {
            woken(&mut children, clock).await;
        }
        Ok(())
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that one command has started. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    children: Listener,
    morgue: Arc<Morgue>,
    gone: bool,
}

impl Group {
    /// Starts the leader of a new group. Answers its pipes too.
    pub(super) fn start(
        command: &mut Command,
        morgue: &Arc<Morgue>,
    ) -> io::Result<(Self, std::process::Child)> {
        use std::os::unix::process::CommandExt;
        // Before the start, or the end of a short command could be missed.
        let children = signal(SignalKind::child())?;
        let child = command.process_group(0).spawn()?;
        let group = Self {
            leader: Pid::from_child(&child),
            children,
            morgue: morgue.clone(),
            gone: false,
        };
        Ok((group, child))
    }

    /// Sends a signal to every process of the group.
    pub(super) fn signal(&self, signal: Signal) {
        // The leader has not been waited for, so the group exists; it may be empty but for that.
        kill_process_group(self.leader, signal).ok();
    }

    /// Waits for the leader to end. It stays a zombie, which keeps its process id.
    pub(super) async fn ended(&mut self, clock: &dyn Clock) -> io::Result<End> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            if let Some(status) = waitid(WaitId::Pid(self.leader), options)? {
                return Ok(end(&status));
            }
            woken(&mut self.children, clock).await;
        }
    }

    /// Kills what is left of the group and waits until all of it is gone.
    pub(super) async fn finish(mut self, clock: &dyn Clock) {
        self.signal(Signal::KILL);
        while !is_gone(self.leader) {
            woken(&mut self.children, clock).await;
        }
        self.gone = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        // The leader is waited for only after this: until then, the group is this one.
        self.signal(Signal::KILL);
        if !is_gone(self.leader) {
            self.morgue.add(self.leader);
        }
    }
}

async fn woken(children: &mut Listener, clock: &dyn Clock) {
    tokio::select! {
        _ = children.recv() => {}
        () = clock.sleep(LOOK_EVERY) => {}
    }
}

/// Whether this process has no children in the group any more. Waits for those that have ended.
fn is_gone(leader: Pid) -> bool {
    loop {
        match waitpgid(leader, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            // There is no child to wait for.
            Err(_) => return true,
        }
    }
}

fn end(status: &WaitIdStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => End::Killed(signal.unwrap_or_default()),
    }
}
