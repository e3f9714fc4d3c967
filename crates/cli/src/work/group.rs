//! A process group: everything that one command has started, as long as it stays in the group.
//!
//! The leader (the guard) is not waited for before the rest of the group has been killed, because
//! a process id that was waited for can be given to somebody else. Processes that lose their parent
//! become children of this process ([`adopt_orphans`]), so that it knows when the last one is gone.

use std::collections::HashSet;
use std::fs::DirEntry;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll::clock::Clock;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpgid, kill_process_group,
    waitid, waitpgid, waitpid,
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

/// All groups that this process has started and not seen the end of.
#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<Leaders>);

#[derive(Debug, Default)]
struct Leaders {
    /// Somebody waits for the end of these.
    watched: HashSet<Pid>,
    /// Nobody does: these were killed by somebody who could not.
    killed: HashSet<Pid>,
}

impl Groups {
    /// Lets go of what is gone. Answers whether that is everything that was killed.
    pub(super) fn sweep(&self) -> bool {
        let mut leaders = self.leaders();
        leaders.killed.retain(|leader| !is_gone(*leader));
        leaders.bury_strangers();
        leaders.killed.is_empty()
    }

    /// Waits until everything that was killed is gone.
    pub(super) async fn empty(&self, clock: &dyn Clock) -> io::Result<()> {
        let mut children = signal(SignalKind::child())?;
        while !self.sweep() {
            woken(&mut children, clock).await;
        }
        Ok(())
    }

    fn leaders(&self) -> MutexGuard<'_, Leaders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leaders {
    /// Waits for adopted processes that have left their group and ended: they would stay zombies.
    fn bury_strangers(&self) {
        let ours = |group: Pid| self.watched.contains(&group) || self.killed.contains(&group);
        bury(|child| getpgid(Some(child)).is_ok_and(ours));
    }
}

/// Waits for children that have ended, but for those that somebody else waits for.
pub(super) fn bury(is_kept: impl Fn(Pid) -> bool) {
    for child in children().into_iter().filter(|child| !is_kept(*child)) {
        // It may still run, and it may be gone by now.
        waitpid(Some(child), WaitOptions::NOHANG).ok();
    }
}

/// The children of this process that are alive in a group, but for one that somebody else waits for.
/// Every process of the group is such a child or has a living parent that is, as far as orphans
/// are adopted and parents stay in the group.
pub(super) fn others(group: Pid, except: Option<Pid>) -> Vec<Pid> {
    let is_other = |child: &Pid| Some(*child) != except && getpgid(Some(*child)) == Ok(group);
    let is_alive = |child: &Pid| matches!(waitpid(Some(*child), WaitOptions::NOHANG), Ok(None));
    let others = children().into_iter().filter(is_other);
    others.filter(is_alive).collect()
}

/// The children of this process, where the system tells.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let of_thread = |thread: DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let lists = threads
        .flatten()
        .filter_map(|thread| of_thread(thread).ok());
    let pids = lists.flat_map(|list| {
        let numbers = list.split_whitespace().map(str::parse);
        numbers.flatten().collect::<Vec<i32>>()
    });
    pids.filter_map(Pid::from_raw).collect()
}

/// Everything that one command has started. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    children: Listener,
    groups: Arc<Groups>,
    gone: bool,
}

impl Group {
    /// Starts the leader of a new group. Answers its pipes too.
    pub(super) fn start(
        command: &mut Command,
        groups: &Arc<Groups>,
    ) -> io::Result<(Self, std::process::Child)> {
        use std::os::unix::process::CommandExt;
        // Before the start, or the end of a short command could be missed.
        let children = signal(SignalKind::child())?;
        // Under the lock, so that nobody takes a leader that has ended at once for a stranger.
        let mut leaders = groups.leaders();
        let child = command.process_group(0).spawn()?;
        let leader = Pid::from_child(&child);
        leaders.watched.insert(leader);
        drop(leaders);
        let group = Self {
            leader,
            children,
            groups: groups.clone(),
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
        while !self.let_go() {
            woken(&mut self.children, clock).await;
        }
        self.gone = true;
    }

    /// Forgets the group if it is gone: under the lock, because its id may be given to the next one.
    fn let_go(&self) -> bool {
        let mut leaders = self.groups.leaders();
        let gone = is_gone(self.leader);
        if gone {
            leaders.watched.remove(&self.leader);
        }
        gone
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        // The leader is waited for only after this: until then, the group is this one.
        self.signal(Signal::KILL);
        let mut leaders = self.groups.leaders();
        leaders.watched.remove(&self.leader);
        if !is_gone(self.leader) {
            leaders.killed.insert(self.leader);
        }
    }
}

/// Until a child has ended, or it is time to look again.
pub(super) async fn woken(children: &mut Listener, clock: &dyn Clock) {
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
