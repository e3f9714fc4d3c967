//! Real signals to a real process: the test program runs itself again as a child.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::{Memory, Namespace, StoreExt};
use plimsoll_engine::Engine;
use plimsoll_engine::worker::{Context, Worker};

const CHILD: &str = "PLIMSOLL_TEST_CHILD";

/// Not a test: what the child does. It prints when its handler runs, and what the worker did.
#[test]
#[ignore = "runs as the child of the other tests here"]
#[allow(clippy::print_stdout)]
fn child() {
    let Ok(role) = std::env::var(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async move {
        let store = Memory::new().open(Namespace::new("test").unwrap());
        let engine = Engine::new(Arc::new(store));
        let task = NewTask::new(engine.ids().task(), Lane::new("q", "k").unwrap(), "");
        let id = engine.store().submit(task).await.unwrap().id;
        let obedient = role == "obedient";
        let handler = move |context: Context| async move {
            println!("at work");
            context.cancellation().await;
            println!("asked");
            if !obedient {
                std::future::pending::<()>().await;
            }
        };
        let worker = Worker::builder(engine.clone(), "w")
            .queue("q")
            .handle("k", handler)
            .settings(|settings| settings.drain_soft = Duration::ZERO)
            .build()
            .unwrap();
        let summary = worker.run_until_signal().await.unwrap();
        let status = engine.store().task(id).await.unwrap().unwrap().status;
        println!(
            "{status} cut={} interrupted={}",
            summary.cut, summary.interrupted
        );
    });
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Process {
    fn start(role: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "signals::child", "--ignored", "--nocapture"])
            .env(CHILD, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads on until a line says this, and answers it.
    fn until(&mut self, what: &str) -> String {
        let line = self
            .lines
            .find(|line| line.as_ref().unwrap().contains(what));
        line.expect("the child ended early").unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_signal_drains() {
    for name in ["-TERM", "-INT"] {
        let mut process = Process::start("obedient");
        process.until("at work");
        process.signal(name);
        let end = process.until("cut=");
        assert!(end.ends_with("completed cut=0 interrupted=0"), "{end}");
    }
}

#[test]
fn a_second_signal_stops_at_once_and_leaves_nothing_claimed() {
    let mut process = Process::start("stubborn");
    process.until("at work");
    process.signal("-TERM");
    process.until("asked");
    process.signal("-TERM");
    let end = process.until("cut=");
    assert!(end.ends_with("pending cut=1 interrupted=1"), "{end}");
}
