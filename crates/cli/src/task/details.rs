//! `plimsoll task show`.

use clap::Args;
use plimsoll::archive::Archived;
use plimsoll::task::{Backoff, KeyLifetime, Status, Task};
use plimsoll::{Error, Name, Timestamp};

use super::list::{in_words, what};
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::input::{self, Which};
use crate::json;
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::text::{age, bytes, clean, clean_lines, count, cut, moment, span};
use crate::wire::{WireTask, failure};

/// So many lines of a payload or a result are shown.
const LINES_MAX: usize = 20;
/// So much of a line where nobody says how wide the screen is.
const WIDTH: usize = 120;
const BAR: usize = 24;

/// Shows everything about a task.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Its id, or `key:KEY`.
    #[arg(value_name = "TASK", value_parser = input::which)]
    task: Which,
    /// Payload and result to their end.
    #[arg(long)]
    full: bool,
}

impl Show {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let screen = &client.screen;
        let task = match (self.task.task(&client.tasks).await, &self.task) {
            (Err(Error::NotFound(gone)), Which::Id(id)) => {
                // It may be over for so long that it was archived.
                let archived = client.engine.archive().get(*id).await?;
                let archived = archived.ok_or(Error::NotFound(gone))?;
                return show_archived(&archived, screen);
            }
            (task, _) => task?,
        };
        if screen.json {
            screen.object(&WireTask::from(&task))?;
        } else {
            say(&details(&task, client.now(), self.full, screen))?;
        }
        Ok(OK)
    }
}

/// What is left of a task that was archived, under the names of the archive.
fn show_archived(archived: &Archived, screen: &Screen) -> Outcome {
    if screen.json {
        screen.object(&archived.to_json())?;
        return Ok(OK);
    }
    let id = screen.paint(Tint::Strong, &archived.id.to_string());
    let status = screen.paint(archived.status.into(), archived.status.as_str());
    let mut text = format!("{id}  {status}  (archived)\n");
    for (name, value) in archived.fields.iter().chain(&archived.attributes) {
        let name = screen.paint(Tint::Faint, &format!("{:17}", name.as_str()));
        let value = shown(value, false, screen.width.unwrap_or(WIDTH));
        text += &format!("  {name}  {}\n", value.trim());
    }
    say(&text)?;
    Ok(OK)
}

/// Everything that a person wants to know of a task.
pub(super) fn details(task: &Task, now: Timestamp, full: bool, screen: &Screen) -> String {
    let status = screen.paint(task.status.into(), task.status.as_str());
    let id = screen.paint(Tint::Strong, &task.id().to_string());
    let mut text = format!("{id}  {status}\n");
    for (name, fact) in facts(task, now) {
        let name = screen.paint(Tint::Faint, &format!("{name:10}"));
        text += &format!("  {name}  {}\n", clean(&fact));
    }
    if !task.errors.is_empty() {
        text += &format!("\n{}\n", screen.paint(Tint::Strong, "Errors"));
        text += &errors(task, now, screen);
    }
    if !task.attributes.is_empty() {
        text += &format!("\n{}\n", screen.paint(Tint::Strong, "Attributes"));
        text += &attributes(task, full, screen);
    }
    let mut section = |name: &str, body: Option<&[u8]>| {
        if let Some(body) = body {
            let size = bytes(body.len() as u64);
            text += &format!("\n{}, {size}\n", screen.paint(Tint::Strong, name));
            text += &shown(body, full, screen.width.unwrap_or(WIDTH));
        }
    };
    section("Payload", Some(&task.spec.payload));
    section("Checkpoint", task.checkpoint.as_deref());
    section("Result", task.result.as_deref());
    text
}

fn facts(task: &Task, now: Timestamp) -> Vec<(&'static str, String)> {
    let spec = &task.spec;
    let mut facts = vec![
        ("queue", spec.lane.queue.to_string()),
        ("kind", spec.lane.kind.to_string()),
        ("priority", task.priority.get().to_string()),
    ];
    let mut fact = |name, value: Option<String>| {
        facts.extend(value.map(|value| (name, value)));
    };
    fact(
        "key",
        spec.key.as_ref().map(|(key, lifetime)| {
            let until = match lifetime {
                KeyLifetime::Forever => "until it is deleted".into(),
                KeyLifetime::WhileActive => "until it has ended".into(),
                KeyLifetime::For(time) => format!("for {} or until it has ended", span(*time)),
            };
            format!("{key} ({until})")
        }),
    );
    fact("owner", spec.owner.as_ref().map(|owner| owner.to_string()));
    fact("group", spec.group.as_ref().map(|group| group.to_string()));
    let labels = spec
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let labels = labels.collect::<Vec<_>>().join(" ");
    fact("labels", (!labels.is_empty()).then_some(labels));
    fact("attempts", Some(attempts(task)));
    fact(
        "lease",
        task.lease.as_ref().map(|lease| {
            let worker = &lease.worker.name;
            match lease.until > now {
                true => format!("{worker}, until {}", moment(now, lease.until)),
                false => format!("{worker}, ran out {}", age(now, lease.until)),
            }
        }),
    );
    fact(
        "deadline",
        task.lease
            .as_ref()
            .and_then(|lease| lease.deadline)
            .map(|at| moment(now, at)),
    );
    fact("stage", task.stage.as_ref().map(|stage| stage.to_string()));
    let settled = task.settled.as_ref();
    let settled = settled.and_then(|settled| settled.worker.as_ref());
    fact("settled by", settled.map(|worker| worker.to_string()));
    fact(
        "progress",
        task.progress
            .as_ref()
            .map(|progress| match progress.percent {
                Some(percent) => format!("{} {}", bar(percent), in_words(progress)),
                None => in_words(progress),
            }),
    );
    fact(
        "stopping",
        task.cancel.as_ref().map(|cancel| {
            let why = cancel.reason.as_ref().map(|why| format!(": {why}"));
            format!("asked {}{}", age(now, cancel.at), why.unwrap_or_default())
        }),
    );
    fact(
        "waits for",
        task.waiting.as_ref().map(|waiting| waiting.on.to_string()),
    );
    fact("then", task.successor.map(|id| id.to_string()));
    fact("reason", task.reason.clone());
    fact("submitted", Some(moment(now, spec.created_at)));
    let waits = matches!(task.status, Status::Scheduled | Status::Pending);
    fact("runnable", waits.then(|| moment(now, task.runnable_at)));
    fact("started", task.started_at.map(|at| moment(now, at)));
    fact(
        "claimed",
        task.claimed_at
            .filter(|at| Some(*at) != task.started_at)
            .map(|at| moment(now, at)),
    );
    fact("ended", task.finished_at.map(|at| moment(now, at)));
    let took = (task.status == Status::Completed).then(|| what(task, now));
    fact("time", took.filter(|took| !took.is_empty()));
    facts
}

/// `3, 2 failed of at most 4; retried after 10s to 5m, for 2h`
fn attempts(task: &Task) -> String {
    let retry = &task.spec.retry;
    let most = match retry.max_attempts {
        0 => String::new(),
        max => format!(" of at most {max}"),
    };
    let wait = match (&retry.backoff, retry.max_attempts) {
        (_, 1) => String::new(),
        (Backoff::Fixed(time), _) => format!("; retried after {}", span(*time)),
        (Backoff::Exponential { first, cap, .. }, _) => {
            format!("; retried after {} to {}", span(*first), span(*cap))
        }
    };
    let within = retry.total.filter(|_| retry.max_attempts != 1);
    let within = within.map(|time| format!(", for {}", span(time)));
    let within = within.unwrap_or_default();
    let timeout = task.spec.attempt_timeout;
    let timeout = timeout.map(|time| format!("; each up to {}", span(time)));
    let (attempts, failures) = (task.attempts, task.failures);
    let timeout = timeout.unwrap_or_default();
    format!("{attempts}, {failures} failed{most}{wait}{within}{timeout}")
}

/// `━━━━━━━━──────`
pub(super) fn bar(percent: u8) -> String {
    let full = usize::from(percent.min(100)) * BAR / 100;
    "━".repeat(full) + &"─".repeat(BAR - full)
}

fn errors(task: &Task, now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 6] = [
        Column::new("FENCE").right(),
        Column::new("WHEN"),
        Column::new("WORKER").cut_to(6),
        Column::new("HOW"),
        Column::new("STAGE").cut_to(6).rank(1),
        Column::new("MESSAGE").cut_to(20),
    ];
    let rows = task.errors.iter().map(|error| {
        vec![
            error.fence.get().to_string().into(),
            age(now, error.at).into(),
            error.worker.name.as_str().into(),
            Cell::tinted(failure(error.kind), Tint::Bad),
            error.stage.as_ref().map_or("", Name::as_str).into(),
            error.message.as_str().into(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let width = screen.width.map(|width| width.saturating_sub(2));
    let grid = Grid::fit(&COLUMNS, &rows, width);
    let table = grid.header(screen) + &grid.rows(&rows, screen);
    table.lines().map(|line| format!("  {line}\n")).collect()
}

/// Each on a line: what is longer is cut, unless all is to be seen.
fn attributes(task: &Task, full: bool, screen: &Screen) -> String {
    let names = task.attributes.keys();
    let names = names.map(|name| console::measure_text_width(&clean(name.as_str())));
    let column = names.max().unwrap_or_default();
    let width = screen.width.unwrap_or(WIDTH);
    let lines = task.attributes.iter().map(|(name, value)| {
        let name = clean(name.as_str());
        let gap = " ".repeat(column - console::measure_text_width(&name));
        let value = match std::str::from_utf8(value) {
            Ok(text) => clean(text),
            Err(_) => json::hex(value),
        };
        let line = format!("  {name}{gap}  {value}");
        let line = if full { line } else { cut(&line, width) };
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// What an author has stored, as far as it can be shown, cut with a note.
fn shown(body: &[u8], full: bool, width: usize) -> String {
    let text = match std::str::from_utf8(body) {
        Ok(text) => json::pretty(text).unwrap_or_else(|| text.into()),
        Err(_) => {
            let digits = json::hex(body);
            let lines = digits.as_bytes().chunks(64);
            let lines = lines.map(|line| String::from_utf8_lossy(line).into_owned());
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    let text = clean_lines(&text);
    let all = text.lines().count();
    let most = if full { usize::MAX } else { LINES_MAX };
    let line = |line: &str| match full {
        true => format!("  {line}\n"),
        false => format!("  {}\n", cut(line, width.saturating_sub(2))),
    };
    let mut shown: String = text.lines().take(most).map(line).collect();
    if all > most {
        let more = count((all - most) as u64, "more line");
        shown += &format!("  … {more}: --full shows all\n");
    }
    shown
}
