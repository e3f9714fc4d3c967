//! `plimsoll lock`: who holds which lock, commands that run under one, and taking one away.

mod exec;
mod run;
mod take_away;

use clap::{Args, Subcommand};
use futures::StreamExt;
use plimsoll::locks::LockState;
use plimsoll::{Error, Name, Timestamp};
use serde::Serialize;

use crate::client::{Client, IfMissing, Options};
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::screen::Screen;
use crate::text::age;
use crate::wire::{At, Body};

pub(crate) use exec::LockExec;

/// Shows who holds which lock, and runs commands under one.
#[derive(Debug, Args)]
pub(crate) struct LockCommand {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists the locks that somebody has.
    List,
    /// Runs a command under a lock, and ends with its exit code.
    Run(run::Run),
    /// Takes a lock away from whoever has it, who is told when it renews it next.
    Break(take_away::Break),
}

#[derive(Serialize)]
struct WireLock<'a> {
    name: &'a Name,
    owner: &'a str,
    token: u64,
    since: At,
    until: At,
    reserved: bool,
    waiting: u64,
    metadata: Option<Body>,
}

impl<'a> From<&'a LockState> for WireLock<'a> {
    fn from(lock: &'a LockState) -> Self {
        Self {
            name: &lock.name,
            owner: &lock.owner,
            token: lock.token.get(),
            since: At(lock.since),
            until: At(lock.until),
            reserved: lock.reserved,
            waiting: lock.waiting,
            metadata: lock.metadata.as_deref().map(Body::of),
        }
    }
}

impl LockCommand {
    pub(crate) async fn run(self) -> Outcome {
        match self.verb {
            Verb::List => list(&self.options.open(IfMissing::Refuse).await?).await,
            Verb::Break(taking) => {
                taking
                    .run(&self.options.open(IfMissing::Refuse).await?)
                    .await
            }
            Verb::Run(run) => run.run(&self.options.open(IfMissing::Create).await?).await,
        }
    }
}

async fn list(client: &Client) -> Outcome {
    let screen = &client.screen;
    let mut locks = client.engine.locks().list_all();
    let (mut held, mut unreadable) = (Vec::new(), None);
    while let Some(lock) = locks.next().await {
        let lock = match lock {
            Err(error @ Error::Corrupt(_)) => {
                unreadable = Some(error);
                continue;
            }
            lock => lock?,
        };
        match screen.json {
            true if !screen.object(&WireLock::from(&lock))? => return Ok(OK),
            true => {}
            false => held.push(lock),
        }
    }
    match (screen.json, held.is_empty()) {
        (true, _) => {}
        (false, true) if unreadable.is_some() => {}
        (false, true) => screen.note("Nobody holds a lock."),
        (false, false) => {
            say(&table(&held, client.now(), screen))?;
        }
    }
    unreadable.map_or(Ok(OK), |error| Err(error.into()))
}

fn table(locks: &[LockState], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 6] = [
        Column::new("LOCK").cut_to(12),
        Column::new("OWNER").cut_to(12),
        Column::new("TOKEN").right(),
        Column::new("HELD"),
        Column::new("ENDS"),
        Column::new("WAITING").right(),
    ];
    let rows = locks.iter().map(|lock| {
        let waiting = match lock.waiting {
            0 => String::new(),
            waiting => waiting.to_string(),
        };
        let held = match lock.reserved {
            true => "not yet taken".into(),
            false => age(now, lock.since),
        };
        vec![
            lock.name.as_str().into(),
            lock.owner.as_str().into(),
            lock.token.to_string().into(),
            held.into(),
            age(now, lock.until).into(),
            waiting.into(),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let grid = Grid::fit(&COLUMNS, &rows, screen.width);
    grid.header(screen) + &grid.rows(&rows, screen)
}
