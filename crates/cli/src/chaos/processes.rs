//! Processes that belong to a run, wherever they are: each has the mark of the run in its
//! environment, as all have whom it starts.

use std::path::Path;

use plimsoll::TaskId;
use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks them.
pub(super) const MARK: &str = "PLIMSOLL_CHAOS";

/// A process of the run. One that has ended and was not waited for is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// When it was started. No two with the same id have the same.
    started: u64,
    pub(super) command: String,
    pub(super) errand: Option<Errand>,
}

/// What a process of `plimsoll work` is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Errand {
    pub(super) worker: String,
    pub(super) task: TaskId,
    pub(super) fence: u64,
}

impl Process {
    pub(super) fn is_of(&self, worker: &str) -> bool {
        self.errand
            .as_ref()
            .is_some_and(|errand| errand.worker == worker)
    }

    /// Whether it is a command or what one has started, and not the guard of one.
    pub(super) fn is_command(&self) -> bool {
        self.errand.is_some() && !self.command.contains(" work-guard ")
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }

    /// It may be gone by now.
    pub(super) fn kill(&self) {
        kill_process(self.pid, Signal::KILL).ok();
    }

    /// Reads about a process, if it has the mark.
    fn read(folder: &Path, mark: &str) -> Option<Self> {
        let pid = folder.file_name()?.to_str()?.parse().ok()?;
        let environment = std::fs::read(folder.join("environ")).ok()?;
        if variable(&environment, MARK)? != mark {
            return None;
        }
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        let command = std::fs::read(folder.join("cmdline")).ok()?;
        Some(Self {
            pid: Pid::from_raw(pid)?,
            started: started(&stat)?,
            command: String::from_utf8_lossy(&command).replace('\0', " "),
            errand: errand(&environment),
        })
    }
}

/// All processes with the mark.
pub(super) fn marked(mark: &str) -> Vec<Process> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let read = |process: std::fs::DirEntry| Process::read(&process.path(), mark);
    processes.flatten().filter_map(read).collect()
}

fn errand(environment: &[u8]) -> Option<Errand> {
    Some(Errand {
        worker: variable(environment, "PLIMSOLL_WORKER")?,
        task: TaskId::parse(&variable(environment, "PLIMSOLL_TASK_ID")?).ok()?,
        fence: variable(environment, "PLIMSOLL_FENCE")?.parse().ok()?,
    })
}

/// A variable among those that end with a NUL each.
fn variable(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let value = variable.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    });
    Some(String::from_utf8_lossy(value?).into_owned())
}

/// The 22nd field of `stat`. The second is the name in brackets, which may contain anything.
fn started(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(") ")?;
    after.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_its_mark_and_known_again() {
        let mark = format!("test-{}", std::process::id());
        let task = TaskId::from_u128(7);
        assert_eq!(marked(&mark), []);
        let mut child = Command::new("cat");
        let child = child
            .env(MARK, &mark)
            .env("PLIMSOLL_WORKER", "worker-1")
            .env("PLIMSOLL_TASK_ID", task.to_string())
            .env("PLIMSOLL_FENCE", "3")
            .stdin(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // It has been started, and may not have its environment yet.
        let found = std::iter::repeat_with(|| marked(&mark)).find(|found| !found.is_empty());
        let [found] = &found.unwrap()[..] else {
            panic!("one process");
        };
        assert_eq!(found.pid, Pid::from_child(&child));
        assert!(found.is_of("worker-1") && !found.is_of("worker-12"));
        assert!(
            found
                .errand
                .as_ref()
                .is_some_and(|errand| errand.fence == 3)
        );
        assert!(found.is_command());
        assert_eq!(marked(&mark[..5]), []);
        found.kill();
        child.wait().unwrap();
        assert_eq!(marked(&mark), []);
    }

    #[test]
    fn names_of_programs_may_contain_brackets() {
        let rest = (3..=30).map(|field| field.to_string());
        let stat = format!("17 (a) b) {}", rest.collect::<Vec<_>>().join(" "));
        assert_eq!(started(&stat), Some(22));
    }
}
