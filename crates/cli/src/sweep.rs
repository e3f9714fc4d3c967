//! `plimsoll sweep`: a sweeper in a process of its own, which works on nothing.

use std::time::Duration;

use clap::Args;
use plimsoll::sweeper::{Part, Pass, Trouble};
use plimsoll::{Sweeper, Timestamp};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::{Client, IfMissing, Options};
use crate::exit::{FAILURE, OK, Outcome};
use crate::input;
use crate::output::say;
use crate::table::grouped;
use crate::text::clean;
use crate::wire::At;

/// Sweeps without working on anything, and shows what each pass did.
///
/// Makes scheduled tasks runnable when they are due, ends attempts whose leases ran out, marks silent
/// workers as offline, archives and removes what was kept long enough, until SIGTERM or an interrupt.
///
/// Workers do all of it too. Any number may run: one leads, the others stand by.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    #[command(flatten)]
    pub(crate) options: Options,
    /// Ends when nothing is left to do now; with exit code 1 if something could not be done.
    #[arg(long)]
    once: bool,
    /// How often to look when nothing is known to come.
    #[arg(long, value_name = "TIME", value_parser = input::duration, default_value = "10s")]
    interval: Duration,
    /// How long the others wait when this one leads and dies.
    #[arg(long, value_name = "TIME", value_parser = input::duration, default_value = "30s")]
    term: Duration,
}

impl Sweep {
    pub(crate) async fn run(self) -> Outcome {
        let client = self.options.open(IfMissing::Refuse).await?;
        let sweeper = Sweeper::new(client.engine.clone());
        let sweeper = sweeper.interval(self.interval).term(self.term);
        if self.once {
            let pass = sweeper.pass_all().await;
            tell(&pass, &client)?;
            return Ok(if pass.troubles.is_empty() {
                OK
            } else {
                FAILURE
            });
        }
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let sweep = sweeper.on_pass(move |pass| {
            if !pass.is_idle() {
                // If nobody listens, it sweeps all the same.
                tell(pass, &client).ok();
            }
        });
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        sweep.run_until(stop).await;
        Ok(OK)
    }
}

fn tell(pass: &Pass, client: &Client) -> Outcome<()> {
    let (screen, now) = (&client.screen, client.now());
    match screen.json {
        true => drop(screen.object(&WirePass::new(pass, now))?),
        false => drop(say(&format!("{now}  {}\n", words(pass)))?),
    }
    for trouble in &pass.troubles {
        screen.note(&clean(&trouble.to_string()));
    }
    Ok(())
}

/// What a pass did, in words.
fn words(pass: &Pass) -> String {
    let removed = &pass.removed;
    let counts = [
        (pass.promoted, "promoted"),
        (pass.expired, "expired"),
        (pass.failed, "failed for good"),
        (pass.cancelled, "cancelled"),
        (pass.records, "records expired"),
        (pass.groups, "groups tallied"),
        (pass.offline, "workers offline"),
        (pass.archived, "archived"),
        (pass.jobs, "jobs deleted"),
        (pass.states, "states removed"),
        (removed.tasks, "tasks removed"),
        (removed.groups, "groups removed"),
        (removed.entries, "entries of the history removed"),
        (removed.lines, "lines of logs removed"),
        (removed.remembered, "remembered answers removed"),
        (
            pass.troubles.len() as u64 + pass.untold,
            "could not be done",
        ),
    ];
    let told = counts.iter().filter(|(count, _)| *count > 0);
    let told = told.map(|(count, what)| format!("{} {what}", grouped(*count)));
    match told.collect::<Vec<_>>() {
        told if told.is_empty() => "nothing to do".into(),
        told => told.join(", "),
    }
}

/// What programs read.
#[derive(Serialize)]
struct WirePass<'a> {
    at: At,
    promoted: u64,
    expired: u64,
    failed: u64,
    cancelled: u64,
    records: u64,
    groups: u64,
    offline: u64,
    archived: u64,
    jobs: u64,
    states: u64,
    removed: Removed,
    troubles: Vec<WireTrouble<'a>>,
    untold: u64,
    more: bool,
}

#[derive(Serialize)]
struct Removed {
    tasks: u64,
    groups: u64,
    entries: u64,
    lines: u64,
    remembered: u64,
}

#[derive(Serialize)]
struct WireTrouble<'a> {
    part: Part,
    what: Option<&'a str>,
    code: &'static str,
    message: String,
}

impl<'a> WirePass<'a> {
    fn new(pass: &'a Pass, at: Timestamp) -> Self {
        Self {
            at: At(at),
            promoted: pass.promoted,
            expired: pass.expired,
            failed: pass.failed,
            cancelled: pass.cancelled,
            records: pass.records,
            groups: pass.groups,
            offline: pass.offline,
            archived: pass.archived,
            jobs: pass.jobs,
            states: pass.states,
            removed: Removed {
                tasks: pass.removed.tasks,
                groups: pass.removed.groups,
                entries: pass.removed.entries,
                lines: pass.removed.lines,
                remembered: pass.removed.remembered,
            },
            troubles: pass.troubles.iter().map(WireTrouble::from).collect(),
            untold: pass.untold,
            more: pass.more,
        }
    }
}

impl<'a> From<&'a Trouble> for WireTrouble<'a> {
    fn from(trouble: &'a Trouble) -> Self {
        Self {
            part: trouble.part,
            what: trouble.what.as_deref(),
            code: trouble.error.code(),
            message: trouble.error.to_string(),
        }
    }
}
