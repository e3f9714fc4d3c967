//! A server of a test's own, which can be restarted and switched as it likes.

use std::path::PathBuf;
use std::process::{Command, Output};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");

/// It is stopped and removed when this is dropped.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    /// With which it is started the next time.
    pub(crate) settings: String,
    pub(crate) url: String,
}

impl Server {
    /// With these settings, as in `-c max_connections=20`.
    pub(crate) fn start(settings: &str) -> Self {
        let folder = said(&script(&["folder"], settings));
        let mut server = Self {
            folder: folder.into(),
            settings: settings.into(),
            url: String::new(),
        };
        server.url = server.start_again();
        server
    }

    fn run(&self, verb: &str) -> String {
        let folder = self.folder.to_string_lossy();
        said(&script(&[verb, &folder], &self.settings))
    }

    /// Starts one that has ended. It is where it was.
    pub(crate) fn start_again(&self) -> String {
        self.run("start")
    }

    /// Stops it: it says so to everybody, and writes what there is.
    pub(crate) fn stop(&self) {
        self.run("stop");
    }

    /// Kills it: it has no time to say or write anything.
    pub(crate) fn crash(&self) {
        self.run("crash");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn script(arguments: &[&str], settings: &str) -> Output {
    let mut command = Command::new(SCRIPT);
    command.args(arguments);
    command.env("PLIMSOLL_POSTGRES_SETTINGS", settings);
    command.env("PLIMSOLL_POSTGRES_FAST", "1");
    command.output().expect("scripts/postgres runs")
}

fn said(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
