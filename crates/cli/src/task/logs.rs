//! `plimsoll task logs`.

use std::collections::VecDeque;
use std::time::Duration;

use clap::Args;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll::TaskId;
use plimsoll::log::{ExecutionStep, Level, Line};
use plimsoll::store::{Cursor, Logs};

use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::input::{self, Which};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{clean, clean_lines, instant, span};
use crate::wire::WireLine;

/// How many lines are read at a time.
const PAGE: usize = 500;

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
    #[arg(long, value_parser = input::level(), default_value = "debug")]
    level: Level,
    /// At most so many lines, the oldest first.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Only so many of the newest lines, at most 10000; with --follow, what comes after them too.
    #[arg(long, value_name = "COUNT", conflicts_with = "limit", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    tail: Option<u16>,
}

impl ShowLogs {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let task = self.task.id(&client.tasks).await?;
        let lines = match (self.tail, self.follow) {
            (Some(count), _) => self.newest(client, task, count.into()).await?,
            (None, true) => client.tasks.follow_logs(task, self.level),
            (None, false) => self.stored(client, task),
        };
        let limit = usize::try_from(self.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut lines = lines.take(limit);
        while let Some(line) = lines.next().await {
            let (line, screen) = (line?, &client.screen);
            let heard = match screen.json {
                true => screen.object(&WireLine::from(&line))?,
                false => say(&for_people(&line, screen))?,
            };
            if !heard {
                break;
            }
        }
        Ok(OK)
    }

    /// What there is now.
    fn stored(&self, client: &Client, task: TaskId) -> BoxStream<'static, plimsoll::Result<Line>> {
        let (tasks, level) = (client.tasks.clone(), self.level);
        let pages = stream::try_unfold(Some(None), move |at: Option<Option<Cursor>>| {
            let tasks = tasks.clone();
            async move {
                let Some(cursor) = at else {
                    return Ok::<_, plimsoll::Error>(None);
                };
                let page = Logs {
                    task,
                    level,
                    cursor,
                    limit: PAGE,
                };
                let page = tasks.logs(page).await?;
                let next = page.more.then_some(Some(page.next));
                Ok(Some((stream::iter(page.lines.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    /// The newest lines, and perhaps what comes after them. A log is read from its beginning, page
    /// by page; no more than these lines are held.
    async fn newest(
        &self,
        client: &Client,
        task: TaskId,
        count: usize,
    ) -> plimsoll::Result<BoxStream<'static, plimsoll::Result<Line>>> {
        let (mut newest, mut cursor) = (VecDeque::new(), None);
        loop {
            let page = client.tasks.logs(Logs {
                task,
                level: self.level,
                cursor,
                limit: PAGE,
            });
            let page = page.await?;
            newest.extend(page.lines);
            newest.drain(..newest.len().saturating_sub(count));
            cursor = Some(page.next);
            if !page.more {
                break;
            }
        }
        let newest = stream::iter(newest).map(Ok);
        Ok(match self.follow {
            true => {
                let next = client.tasks.follow_logs_after(task, self.level, cursor);
                newest.chain(next).boxed()
            }
            false => newest.boxed(),
        })
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
    let at = screen.paint(Tint::Faint, &instant(line.at));
    let level = screen.paint(tint, &format!("{:5}", new.level.as_str()));
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
