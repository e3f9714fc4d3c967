//! `plimsoll task logs`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll::TaskId;
use plimsoll::log::{ExecutionStep, Level, Line};
use plimsoll::store::{Cursor, Logs};

use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::input::{self, Which};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{clean, clean_lines, span};
use crate::wire::{WireLine, level};

/// How many lines are read at a time.
const PAGE: usize = 500;
/// How often to look for new lines.
const POLL: Duration = Duration::from_millis(500);

/// Shows what a task said while it ran.
#[derive(Debug, Args)]
pub(super) struct ShowLogs {
    /// Its id, or `key:KEY`.
    #[arg(value_name = "TASK", value_parser = input::which)]
    task: Which,
    /// Goes on until the task has ended.
    #[arg(long, short)]
    follow: bool,
    /// Only lines that matter at least as much.
    #[arg(long, value_enum, default_value_t = Least::Debug)]
    level: Least,
    /// At most so many lines, the oldest first.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// How much a line must matter.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Least {
    Debug,
    Info,
    Warn,
    Error,
}

impl From<Least> for Level {
    fn from(least: Least) -> Self {
        match least {
            Least::Debug => Self::Debug,
            Least::Info => Self::Info,
            Least::Warn => Self::Warn,
            Least::Error => Self::Error,
        }
    }
}

/// How far the log was shown.
struct Reader<'a> {
    client: &'a Client,
    task: TaskId,
    level: Level,
    cursor: Option<Cursor>,
    /// How many lines may still be shown.
    left: u64,
}

impl ShowLogs {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let mut reader = Reader {
            client,
            task: self.task.id(&client.tasks).await?,
            level: self.level.into(),
            cursor: None,
            left: self.limit.unwrap_or(u64::MAX),
        };
        loop {
            // Before its lines are read: what has ended says nothing more.
            let task = client.tasks.get(reader.task).await?;
            let go_on = reader.catch_up().await?;
            if !go_on || !self.follow || task.status.is_terminal() {
                return Ok(OK);
            }
            client.engine.clock().sleep(POLL).await;
        }
    }
}

impl Reader<'_> {
    /// Shows all there is. Whether more is wanted.
    async fn catch_up(&mut self) -> Outcome<bool> {
        let screen = &self.client.screen;
        loop {
            let limit = usize::try_from(self.left).unwrap_or(PAGE).min(PAGE);
            let page = Logs {
                task: self.task,
                level: self.level,
                cursor: self.cursor.clone(),
                limit,
            };
            let page = self.client.tasks.logs(page).await?;
            for line in &page.lines {
                let heard = match screen.json {
                    true => screen.object(&WireLine::from(line))?,
                    false => say(&for_people(line, screen))?,
                };
                if !heard {
                    return Ok(false);
                }
            }
            self.left = self.left.saturating_sub(page.lines.len() as u64);
            self.cursor = Some(page.next);
            if self.left == 0 {
                return Ok(false);
            }
            if !page.more {
                return Ok(true);
            }
        }
    }
}

fn for_people(line: &Line, screen: &Screen) -> String {
    let new = &line.line;
    let tint = match new.level {
        Level::Debug => Tint::Faint,
        Level::Info => Tint::Plain,
        Level::Warn => Tint::Warning,
        Level::Error => Tint::Bad,
    };
    let millis = line.at.as_micros() / 1_000 * 1_000;
    let at = plimsoll::Timestamp::from_micros(millis).unwrap_or(line.at);
    let at = screen.paint(Tint::Faint, &format!("{at:.3}"));
    let level = screen.paint(tint, &format!("{:5}", level(new.level)));
    let stage = new
        .stage
        .as_ref()
        .map(|stage| format!("[{}] ", clean(stage.as_str())));
    let metadata = new.metadata.as_ref().map(|bytes| {
        let text = clean(&String::from_utf8_lossy(bytes));
        screen.paint(Tint::Faint, &format!("  {text}"))
    });
    // What a message says on more lines is set off from the next one.
    let message = clean_lines(&new.message).replace('\n', "\n    ");
    let mut text = format!(
        "{at} {level} {}{message}{}\n",
        stage.unwrap_or_default(),
        metadata.unwrap_or_default()
    );
    if let Some(step) = &new.step {
        text += &of_step(step, screen);
    }
    text
}

fn of_step(step: &ExecutionStep, screen: &Screen) -> String {
    let took = step.duration_ms.map(|ms| span(Duration::from_millis(ms)));
    let code = step.exit_code.map(|code| format!("exit code {code}"));
    let outcome = match step.success {
        Some(true) => Some(screen.paint(Tint::Good, "done")),
        Some(false) => Some(screen.paint(Tint::Bad, "failed")),
        None => None,
    };
    let parts = [outcome, code, took].into_iter().flatten();
    let parts = parts.collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "    step {} ({}) {parts}\n",
        clean(step.step_id.as_str()),
        clean(step.kind.as_str())
    );
    let outputs = [
        ("$", &step.command),
        ("|", &step.stdout),
        ("!", &step.stderr),
        ("error:", &step.error),
    ];
    for (mark, output) in outputs {
        let lines = output.as_deref().map(clean_lines).unwrap_or_default();
        for line in lines.lines() {
            text += &format!("    {} {line}\n", screen.paint(Tint::Faint, mark));
        }
    }
    text
}
