//! A folder, a store, a command to run there, and a client that does what workers do.
//!
//! The store is a file in the folder, or a schema of the server that PLIMSOLL_TEST_STORE names.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use plimsoll::tasks::Held;
use plimsoll::{Engine, Plimsoll, TaskId, Tasks};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

pub(crate) struct World {
    folder: TempDir,
    runtime: Runtime,
    schema: Option<Schema>,
}

/// A schema that nobody else has: tests share a server. It is dropped in the end.
#[derive(Debug)]
pub(crate) struct Schema {
    server: String,
    pub(crate) name: String,
}

impl Schema {
    pub(crate) fn new(server: String, world: &World) -> Self {
        let name = world.path().file_name().and_then(|name| name.to_str());
        let name = name.expect("a name").to_lowercase();
        Self { server, name }
    }

    pub(crate) fn url(&self) -> String {
        with(&accepting(&self.server), &format!("schema={}", self.name))
    }

    pub(crate) fn sql(&self, sql: &str) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let done = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.server, NoTls).await?;
            tokio::select! {
                done = client.batch_execute(sql) => done,
                ended = connection => ended,
            }
        });
        done.expect("the server does it");
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        self.sql(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name));
    }
}

/// A URL with another option.
pub(crate) fn with(url: &str, option: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{option}")
}

/// The server of the tests, which keeps nothing when its machine fails.
pub(crate) fn accepting(server: &str) -> String {
    with(server, "unsafe_durability=accept")
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Said {
    /// What it said, if it ended with this code.
    #[track_caller]
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// What it said on one line of standard output.
    #[track_caller]
    pub(crate) fn line(&self) -> &str {
        let mut lines = self.out.lines();
        let line = lines.next().unwrap_or_else(|| panic!("a line: {self:?}"));
        assert_eq!(lines.next(), None, "{self:?}");
        line
    }

    /// The objects on its lines.
    #[track_caller]
    pub(crate) fn objects(&self) -> Vec<Value> {
        let object = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}"));
        self.out.lines().map(object).collect()
    }

    /// The one object on its only line.
    #[track_caller]
    pub(crate) fn object(&self) -> Value {
        self.line();
        self.objects().remove(0)
    }

    /// The error that it told a program.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        let told: Value = serde_json::from_str(&self.err).expect("one object");
        told["error"].clone()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self::on_file();
        if let Ok(server) = std::env::var("PLIMSOLL_TEST_STORE") {
            world.schema = Some(Schema::new(server, &world));
        }
        world
    }

    /// For tests of what a file is like, wherever the others run.
    pub(crate) fn on_file() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let folder = tempfile::Builder::new().prefix("cli_").tempdir();
        Self {
            folder: folder.expect("a temporary folder"),
            runtime: runtime.enable_all().build().expect("a runtime"),
            schema: None,
        }
    }

    pub(crate) fn is_on_a_server(&self) -> bool {
        self.schema.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(arguments).current_dir(self.path());
        command.stdin(Stdio::null());
        for name in ["PLIMSOLL_STORE", "PLIMSOLL_NAMESPACE", "COLUMNS"] {
            command.env_remove(name);
        }
        if let Some(schema) = &self.schema {
            command.env("PLIMSOLL_STORE", schema.url());
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).output();
        output.expect("the command runs").into()
    }

    /// Runs it with this on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Said {
        let mut child = self.start(self.command(arguments).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input).expect("it listens");
        drop(stdin);
        child.wait_with_output().expect("it ends").into()
    }

    /// Runs it with nobody who listens to what it says.
    pub(crate) fn run_unheard(&self, arguments: &[&str], input: &[u8]) -> Said {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = self.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(writer);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input).expect("it reads");
        drop(stdin);
        child.wait_with_output().expect("it ends").into()
    }

    /// The file, as other programs see it.
    pub(crate) fn file(&self) -> rusqlite::Connection {
        assert!(self.schema.is_none(), "there is no file");
        let path = self.path().join("plimsoll.db");
        rusqlite::Connection::open(path).expect("SQLite opens it")
    }

    /// Makes the tasks of a kind that have not ended unreadable.
    pub(crate) fn spoil(&self, kind: &str) {
        let lane = "(SELECT lane FROM lanes WHERE kind = ?)";
        let statement = format!("UPDATE tasks SET state = x'c1' WHERE lane = {lane}");
        let spoilt = self.file().execute(&statement, [kind]);
        assert_ne!(spoilt.expect("it is done"), 0);
    }

    pub(crate) fn start(&self, command: &mut Command) -> Child {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    }

    /// Submits a task with what is not usual about it; its id.
    #[track_caller]
    pub(crate) fn submit(&self, lane: [&str; 2], payload: &str, more: &[&str]) -> String {
        let [queue, kind] = lane;
        let arguments = [&["task", "submit", queue, kind, payload], more].concat();
        self.run(&arguments).ended(0).line().to_owned()
    }

    /// A task as programs see it.
    #[track_caller]
    pub(crate) fn task(&self, id: &str) -> Value {
        self.run(&["task", "show", id, "--json"]).ended(0).object()
    }

    /// Acts as a library does, on the same store.
    pub(crate) fn act<T>(&self, act: impl AsyncFnOnce(Engine) -> plimsoll::Result<T>) -> T {
        let file = || format!("sqlite:{}", self.path().join("plimsoll.db").display());
        let url = self.schema.as_ref().map_or_else(file, Schema::url);
        let done = self.runtime.block_on(async {
            let plimsoll = Plimsoll::open(&url)?;
            act(plimsoll.engine("default").await?).await
        });
        done.expect("it is done")
    }

    /// Claims a task as `worker-1`, and does this with it.
    pub(crate) fn work<T>(
        &self,
        id: &str,
        work: impl AsyncFnOnce(Held) -> plimsoll::Result<T>,
    ) -> T {
        self.act(async |engine| work(claim(&engine.tasks(), id).await?).await)
    }
}

async fn claim(tasks: &Tasks, id: &str) -> plimsoll::Result<Held> {
    let lease = Duration::from_secs(600);
    let id = TaskId::parse(id)?;
    tasks.claim(id, &tasks.worker("worker-1")?, lease).await
}
