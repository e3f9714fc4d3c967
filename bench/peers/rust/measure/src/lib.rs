//! What every peer written in Rust is measured with.
//!
//! A peer implements [`Peer`] and calls [`main`]. Its program then understands the commands of the runner: `setup`,
//! `bulk`, `call`, `work`, `both` and `check` (see the README of `bench/peers`), and answers each with a line of JSON.

mod args;
mod call;
mod job;
mod seen;

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;

pub use args::Args;
pub use job::Job;
pub use seen::Seen;

/// The same for all, as the program `plimsoll` has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Whatever goes wrong ends the program.
pub type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// How many jobs are submitted in one call by the command `bulk`.
const CHUNK: u64 = 1_000;

/// A system under measurement.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Creates its tables in an empty database.
    fn setup(args: &Args) -> impl Future<Output = Result<()>>;

    /// Connects.
    fn open(args: &Args) -> impl Future<Output = Result<Self>> + Send;

    /// The settings it runs with, for people.
    fn settings(&self) -> Value;

    /// Submits one job; durable when it answers.
    fn submit(&self, job: Job) -> impl Future<Output = Result<()>> + Send;

    /// Submits many jobs; durable when it answers.
    fn submit_all(&self, jobs: Vec<Job>) -> impl Future<Output = Result<()>> + Send;

    /// Says what it has yet to say, before the program ends.
    fn close(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Works until told to stop, calls [`Seen::handle`] for each job, and ends when all that it has handled is completed
    /// in the database. `ready` is told once it waits for jobs.
    fn work(
        &self,
        seen: Arc<Seen>,
        ready: oneshot::Sender<()>,
        stop: oneshot::Receiver<()>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// How many jobs its tables say are completed, and how many are left.
    fn check(&self) -> impl Future<Output = Result<Books>> + Send;
}

/// What the tables of a peer say.
#[derive(Clone, Copy, Debug)]
pub struct Books {
    /// Completed jobs; none if the peer deletes them.
    pub completed: Option<u64>,
    /// Jobs that wait or run.
    pub left: u64,
}

/// Runs the command that the arguments of the program name.
pub fn main<P: Peer>() -> Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let answer = runtime.block_on(run::<P>(&args))?;
    println!("{answer}");
    Ok(())
}

async fn run<P: Peer>(args: &Args) -> Result<Value> {
    match args.command.as_str() {
        "setup" => {
            P::setup(args).await?;
            Ok(json!({}))
        }
        "bulk" => bulk(&P::open(args).await?, args).await,
        "call" => {
            let peer = Arc::new(P::open(args).await?);
            let called = call::call(&peer, args).await?;
            peer.close().await?;
            Ok(called)
        }
        "work" => work(Arc::new(P::open(args).await?), expected()).await,
        "both" => both(&Arc::new(P::open(args).await?), args).await,
        "check" => {
            let books = P::open(args).await?.check().await?;
            Ok(json!({ "completed": books.completed, "left": books.left }))
        }
        other => Err(format!("no such command: {other}").into()),
    }
}

async fn bulk<P: Peer>(peer: &P, args: &Args) -> Result<Value> {
    let jobs = args.jobs;
    let began = job::now();
    for first in (0..jobs).step_by(CHUNK as usize) {
        let chunk = (first..jobs.min(first + CHUNK)).map(Job::new).collect();
        peer.submit_all(chunk).await?;
    }
    Ok(json!({
        "jobs": jobs,
        "began": began,
        "ended": job::now(),
        "settings": peer.settings(),
    }))
}

/// Works until as many jobs are handled as `expected` says, which may become known late.
async fn work<P: Peer>(peer: Arc<P>, expected: impl Future<Output = Result<u64>>) -> Result<Value> {
    let seen = Arc::new(Seen::default());
    let (ready, is_ready) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let began = job::now();
    let mut working = tokio::spawn({
        let (peer, seen) = (peer.clone(), seen.clone());
        async move { peer.work(seen, ready, stopped).await }
    });
    let handled = async {
        is_ready.await?;
        println!("{}", json!({ "ready": true }));
        seen.expect(expected.await?);
        seen.all().await;
        Result::<_>::Ok(())
    };
    tokio::select! {
        handled = handled => handled?,
        ended = &mut working => {
            ended??;
            return Err("the worker ended early".into());
        }
    }
    // A worker that has ended by itself does not listen any more, and its own error says why.
    let _ = stop.send(());
    working.await??;
    let mut answer = seen.answer();
    answer["began"] = began.into();
    answer["settings"] = peer.settings();
    Ok(answer)
}

/// Callers and a worker in one process.
async fn both<P: Peer>(peer: &Arc<P>, args: &Args) -> Result<Value> {
    let (tell, told) = oneshot::channel();
    let calling = async {
        let called = call::call(peer, args).await?;
        // The worker may have failed; that error is the one to report.
        let _ = tell.send(called["jobs"].as_u64().unwrap_or_default());
        Ok(called)
    };
    let working = work(peer.clone(), async { Ok(told.await?) });
    let (called, worked) = tokio::try_join!(calling, working)?;
    Ok(json!({ "call": called, "work": worked }))
}

/// The runner writes how many jobs there are as a line, once it knows.
async fn expected() -> Result<u64> {
    let mut line = String::new();
    BufReader::new(tokio::io::stdin())
        .read_line(&mut line)
        .await?;
    Ok(line.trim().parse()?)
}
