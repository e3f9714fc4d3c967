//! A store, tasks in it, and workers on it. The store is a file, or a namespace of the server that
//! PLIMSOLL_TEST_STORE names.

use std::io::{BufRead, BufReader, Lines, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use plimsoll::log::{Level, Line};
use plimsoll::store::Logs;
use plimsoll::task::{Backoff, NewTask, RetryPolicy, Task};
use plimsoll::{Engine, Plimsoll, TaskId, Tasks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct World {
    folder: TempDir,
    /// The store and the namespace, as workers are told.
    pub(crate) store: [String; 2],
    pub(crate) engine: Engine,
    pub(crate) tasks: Tasks,
}

/// A URL that accepts that what is acknowledged may be lost.
fn accepting(server: &str) -> String {
    let joint = if server.contains('?') { '&' } else { '?' };
    format!("{server}{joint}unsafe_durability=accept")
}

impl World {
    pub(crate) async fn new() -> Self {
        match std::env::var("PLIMSOLL_TEST_STORE") {
            // It keeps nothing when its machine fails.
            Ok(server) => Self::on(Some(accepting(&server))).await,
            Err(_) => Self::on_file().await,
        }
    }

    /// For tests of what a file is like, wherever the others run.
    pub(crate) async fn on_file() -> Self {
        Self::on(None).await
    }

    async fn on(server: Option<String>) -> Self {
        let folder = tempfile::Builder::new().prefix("work_").tempdir();
        let folder = folder.expect("a temporary folder");
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let name = folder.path().file_name().and_then(|name| name.to_str());
        let (url, store) = match server {
            // Nobody else has this namespace: tests share a server.
            Some(url) => (url.clone(), [url, name.expect("a name").into()]),
            None => (
                format!("sqlite:{}/work.db", folder.path().display()),
                ["sqlite:work.db".into(), "default".into()],
            ),
        };
        let plimsoll = Plimsoll::open(&url).expect("a store");
        let engine = plimsoll.engine(&store[1]).await.expect("a namespace");
        let tasks = engine.tasks();
        Self {
            folder,
            store,
            engine,
            tasks,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A task of queue `q` and kind `k` that is tried again at once.
    pub(crate) fn task(&self, payload: impl Into<bytes::Bytes>) -> NewTask {
        let task = self.tasks.task("q", "k", payload).expect("a task");
        task.retry(RetryPolicy {
            backoff: Backoff::Fixed(std::time::Duration::ZERO),
            ..RetryPolicy::default()
        })
    }

    pub(crate) async fn submit(&self, payload: impl Into<bytes::Bytes>) -> TaskId {
        self.add(self.task(payload)).await
    }

    pub(crate) async fn add(&self, task: NewTask) -> TaskId {
        self.tasks.submit(task).await.expect("submitted").id
    }

    pub(crate) async fn get(&self, id: TaskId) -> Task {
        self.tasks.get(id).await.expect("a task")
    }

    pub(crate) async fn log(&self, id: TaskId) -> Vec<Line> {
        let logs = Logs {
            task: id,
            level: Level::Debug,
            cursor: None,
            limit: 1_000,
        };
        self.tasks.logs(logs).await.expect("a log").lines
    }

    /// The lines of a log that are no execution steps.
    pub(crate) async fn said(&self, id: TaskId) -> Vec<(Level, String)> {
        let lines = self.log(id).await.into_iter();
        lines
            .filter(|line| line.line.step.is_none())
            .map(|line| (line.line.level, line.line.message))
            .collect()
    }

    /// A worker with these options for this command.
    pub(crate) fn work(&self, options: &[&str], command: &[&str]) -> Command {
        let mut work = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        work.args(["work", "--queue", "q"])
            .args(options)
            .arg("--")
            .args(command)
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env("PLIMSOLL_STORE", &self.store[0])
            .env("PLIMSOLL_NAMESPACE", &self.store[1])
            .current_dir(self.folder.path());
        work
    }

    /// Runs a script on everything there is.
    pub(crate) fn run(&self, script: &str) -> Output {
        let output = self
            .work(&["--until-empty"], &["sh", "-c", script])
            .output();
        let output = output.expect("the command runs");
        assert!(output.status.success(), "{output:?}");
        self.assert_tidy();
        output
    }

    /// Nothing is left of control files and folders.
    pub(crate) fn assert_tidy(&self) {
        let left = std::fs::read_dir(self.folder.path().join("tmp")).expect("a folder");
        let left: Vec<_> = left.flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, [] as [PathBuf; 0]);
    }

    /// A fifo by which commands tell the test something.
    pub(crate) fn fifo(&self, name: &str) -> Fifo {
        let path = self.folder.path().join(name);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("a fifo");
        Fifo(path)
    }
}

pub(crate) struct Fifo(PathBuf);

impl Fifo {
    /// Waits for somebody to say something and to close it.
    pub(crate) fn read(&self) -> String {
        let mut said = String::new();
        let mut fifo = std::fs::File::open(&self.0).expect("a fifo");
        fifo.read_to_string(&mut said).expect("text");
        said
    }

    /// The process ids that somebody says.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        let said = self.read();
        let pids: Vec<Pid> = said.split_whitespace().map(pid).collect();
        assert!(!pids.is_empty());
        pids
    }
}

fn pid(text: &str) -> Pid {
    let number = text.parse().expect("a number");
    Pid::from_raw(number).expect("a process id")
}

/// Whether a process runs: one that nobody has waited for yet does not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The name in parentheses may hold anything.
    let state = stat.ok().and_then(|stat| {
        let (_, rest) = stat.rsplit_once(')')?;
        rest.trim_start().chars().next()
    });
    state.is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// Waits until a process is gone.
pub(crate) fn await_gone(pid: Pid) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    let count = poll(&mut ended, Some(&patience)).expect("a process to wait for");
    assert_eq!(count, 1, "process {pid:?} is still there");
}

/// A worker beside the test, which says everything that happens.
pub(crate) struct Working {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
}

impl Working {
    pub(crate) fn start(world: &World, options: &[&str], command: &[&str]) -> Self {
        let options = [&["--json"], options].concat();
        let mut work = world.work(&options, command);
        let mut child = work.stdout(Stdio::piped()).spawn().expect("a worker");
        let events = child.stdout.take().expect("its output");
        Self {
            child,
            events: BufReader::new(events).lines(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a worker to signal");
    }

    /// Waits for the next event of this name.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        let found = self.events.find_map(|line| {
            let event: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            (event["event"] == name).then_some(event)
        });
        found.unwrap_or_else(|| panic!("the worker ended without {name}"))
    }

    /// Waits for its end. Answers its exit code.
    pub(crate) fn end(mut self) -> i32 {
        let status = self.child.wait().expect("a worker to wait for");
        let signal = || -status.signal().unwrap_or_default();
        status.code().unwrap_or_else(signal)
    }

    /// Kills it without a word.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a worker to kill");
        self.child.wait().expect("a worker to wait for");
    }
}

/// A test that fails leaves no worker behind.
impl Drop for Working {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
