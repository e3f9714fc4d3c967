//! What is done to a PostgreSQL server and to the way to it, while workers use both.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll::clock::{Clock, SystemClock};
use plimsoll::postgres::tokio_postgres::{self, NoTls};
use plimsoll::{Ids, StoreUrl};
use tokio::net::lookup_host;
use tokio::process::Command;
use tokio::sync::watch;

use super::mischief::{Dice, Mischief};
use super::{DemoError, Run, Troubles};
use crate::chaos::proxy::{Mode, Proxy};

/// What workers are called at the server.
const NAME: &str = "plimsoll chaos";
/// How long a worker waits for an answer, in seconds: not for long, so that much can happen.
const CALL_TIMEOUT: u64 = 2;
/// How much longer it takes until one kind that holds up everybody is done twice in a row: nobody would get anything
/// done where nothing else is done to them.
const RECOVERY: Duration = Duration::from_secs(2 * CALL_TIMEOUT);
/// How often connections are ended from the side of the server, and how many times in a row.
const KILL_EVERY: Duration = Duration::from_millis(100);
const KILLS: u64 = 15;

/// Worker processes on PostgreSQL, killed and frozen; the server, killed and started again; the
/// connections, ended, cut, stalled and left half open.
#[derive(Debug, Args)]
pub(crate) struct ChaosPostgres {
    /// The server, which should be nobody else's.
    #[arg(
        long,
        value_name = "URL",
        env = "PLIMSOLL_STORE",
        hide_env_values = true
    )]
    store: String,
    /// Kills the server and starts it again at the same port, as a command of a shell.
    #[arg(long, value_name = "COMMAND")]
    restart: String,
    /// So many tasks at the start.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    tasks: u64,
    /// So many worker processes.
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: u16,
    /// So many tasks at a time in each of them.
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    concurrency: usize,
    /// It has failed if it takes longer than this.
    #[arg(long, value_name = "MINUTES", default_value_t = 20)]
    minutes_max: u64,
    /// Only this is done to the server and to the way to it; several with commas between them.
    /// Without it, everything is. Workers are killed and frozen in any case.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    only: Vec<Kind>,
    /// What happens when comes from this. Without it, from chance.
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object instead of a summary for people.
    #[arg(long)]
    json: bool,
}

/// What can be done to a server and to the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The server is killed and started again.
    Restart,
    /// The server ends the connections of all workers, ten times a second.
    Backends,
    /// All connections are cut.
    Cut,
    /// Connections are cut in the middle of an answer.
    CutAnswers,
    /// Nothing arrives for a while.
    Stall,
    /// Connections stay open, and nothing arrives on them any more.
    HalfOpen,
}

impl Kind {
    /// Each as often as it shall be drawn: what takes long is rarer.
    const DRAWN: [Self; 10] = [
        Self::Restart,
        Self::Backends,
        Self::Cut,
        Self::Cut,
        Self::CutAnswers,
        Self::CutAnswers,
        Self::Stall,
        Self::Stall,
        Self::HalfOpen,
        Self::HalfOpen,
    ];
}

impl ChaosPostgres {
    pub(crate) async fn run(self) -> Result<(), DemoError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let chance = Ids::random(clock.clone());
        let seed = self.seed.unwrap_or_else(|| chance.below(1_000_000_000));
        eprintln!("Chaos on PostgreSQL with --seed {seed}");
        let StoreUrl::Postgres(url) = StoreUrl::parse(&self.store)? else {
            return Err(DemoError::NoServer);
        };
        let server = url.config()?.server;
        let address = address(&server).await?;
        let proxy = Proxy::start(address).await.map_err(DemoError::Proxy)?;
        let run = Run {
            url: self.store.clone(),
            workers_url: through(&self.store, address.port(), proxy.port),
            tasks: self.tasks,
            first: self.tasks / 2,
            workers: usize::from(self.workers),
            concurrency: self.concurrency,
            within: Duration::from_secs(self.minutes_max * 60),
            seed: Some(seed),
            json: self.json,
        };
        let calm = watch::Sender::new(false);
        let mut trouble = Trouble {
            dice: Ids::seeded(seed.rotate_left(32), clock.clone()),
            clock: clock.clone(),
            proxy,
            server,
            restart: self.restart,
            kinds: drawn_from(&self.only),
            due: all_of(&self.only),
            last: None,
            done: Troubles::default(),
        };
        let mischief = Mischief::Dice(Dice::new(seed, clock));
        // The way to the server is there until the last worker has ended.
        run.go(mischief, &calm, trouble.make(calm.subscribe()))
            .await
    }
}

async fn address(server: &tokio_postgres::Config) -> Result<SocketAddr, DemoError> {
    let port = server.get_ports().first().copied().unwrap_or(5432);
    let host = match server.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.as_str(),
        _ => return Err(DemoError::NoServer),
    };
    let mut found = lookup_host((host, port)).await.map_err(DemoError::Proxy)?;
    found.next().ok_or(DemoError::NoServer)
}

/// The same server, by way of the proxy.
fn through(url: &str, port: u16, proxy: u16) -> String {
    let url = url.replacen(&format!(":{port}/"), &format!(":{proxy}/"), 1);
    let joint = if url.contains('?') { '&' } else { '?' };
    let name = NAME.replace(' ', "%20");
    format!("{url}{joint}application_name={name}&call_timeout={CALL_TIMEOUT}")
}

struct Trouble {
    dice: Ids,
    clock: Arc<dyn Clock>,
    proxy: Proxy,
    server: tokio_postgres::Config,
    restart: String,
    /// What the dice choose from.
    kinds: Vec<Kind>,
    /// What comes first, the last of these at first: each kind once, so that a short run meets them all.
    due: Vec<Kind>,
    last: Option<Kind>,
    done: Troubles,
}

/// The kinds that are asked for; all if none is.
fn all_of(only: &[Kind]) -> Vec<Kind> {
    let mut kinds = Kind::value_variants().to_vec();
    kinds.retain(|kind| only.is_empty() || only.contains(kind));
    kinds
}

/// The same, each as often as it shall be drawn.
fn drawn_from(only: &[Kind]) -> Vec<Kind> {
    let mut kinds = Kind::DRAWN.to_vec();
    kinds.retain(|kind| only.is_empty() || only.contains(kind));
    kinds
}

impl Trouble {
    /// Makes trouble until all is to be calm. Then server and proxy are as they should be.
    async fn make(&mut self, mut calm: watch::Receiver<bool>) -> Result<Troubles, DemoError> {
        loop {
            let kind = self.next();
            let holds_up = matches!(kind, Kind::Restart | Kind::Stall | Kind::HalfOpen);
            let recovery = match holds_up && self.last == Some(kind) {
                true => RECOVERY,
                false => Duration::ZERO,
            };
            let pause = self.between(200, 900) + recovery;
            tokio::select! {
                // Whoever would say so is gone.
                _ = calm.wait_for(|calm| *calm) => return Ok(self.done),
                () = self.clock.sleep(pause) => {}
            }
            self.last = Some(kind);
            match kind {
                Kind::Restart => self.restart().await?,
                Kind::Backends => self.kill_backends().await?,
                Kind::Cut => {
                    self.done.cut += 1;
                    self.proxy.cut();
                }
                Kind::CutAnswers => {
                    self.done.cut_in_answers += 1;
                    let most = self.dice.below(200) as usize;
                    self.during(Mode::CutAnswers(most), 50, 300).await;
                }
                Kind::Stall => {
                    self.done.stalled += 1;
                    self.during(Mode::Stall, 200, 3_000).await;
                }
                Kind::HalfOpen => {
                    self.done.half_open += 1;
                    self.during(Mode::HalfOpen, 100, 1_000).await;
                }
            }
        }
    }

    /// What is done next.
    fn next(&mut self) -> Kind {
        let drawn = self.dice.below(self.kinds.len() as u64) as usize;
        self.due.pop().unwrap_or(self.kinds[drawn])
    }

    fn between(&self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.dice.below(most - least))
    }

    async fn during(&self, mode: Mode, least: u64, most: u64) {
        self.proxy.set(mode);
        self.clock.sleep(self.between(least, most)).await;
        self.proxy.set(Mode::Pass);
    }

    async fn restart(&mut self) -> Result<(), DemoError> {
        self.done.server_killed += 1;
        let mut restart = Command::new("sh");
        restart.args(["-c", &self.restart]).stdout(Stdio::null());
        let status = restart.status().await.map_err(DemoError::Restart)?;
        match status.success() {
            true => Ok(()),
            false => Err(DemoError::Restart(io::Error::other(status.to_string()))),
        }
    }

    /// Ends the connections of all workers, ten times a second.
    async fn kill_backends(&mut self) -> Result<(), DemoError> {
        let (client, connection) = self
            .server
            .connect(NoTls)
            .await
            .map_err(DemoError::Server)?;
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                    WHERE application_name LIKE $1 || '%'";
        let kills = async {
            for _ in 0..KILLS {
                let asked = client.query(kill, &[&NAME]).await?;
                // One that was gone already is answered with `false`.
                let killed = asked.iter().filter(|row| row.get(0)).count();
                self.done.backends_killed += killed as u64;
                self.clock.sleep(KILL_EVERY).await;
            }
            Ok(())
        };
        tokio::select! {
            done = kills => done,
            ended = connection => ended,
        }
        .map_err(DemoError::Server)
    }
}
