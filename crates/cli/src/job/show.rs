//! `plimsoll job show`.

use std::sync::Arc;

use clap::Args;
use plimsoll::error::NotFound;
use plimsoll::jobs::{JobInfo, Scope, State};
use plimsoll::{Error, Name, Timestamp};

use super::line::Line;
use super::picture::{Picture, said, who};
use super::standing::{tint, words};
use super::wire::{WireJob, WireShown, WireState};
use crate::client::Client;
use crate::exit::{OK, Outcome};
use crate::grid::{Cell, Column, Grid};
use crate::output::say;
use crate::screen::{Screen, Tint};
use crate::table::grouped;
use crate::text::{age, clean, moment, span};

/// How wide lines are where nobody says how wide the screen is.
const WIDTH: usize = 200;

/// Shows a job: how far each tag is, who is last, and its states, the lowest first.
#[derive(Debug, Args)]
pub(super) struct Show {
    /// Which job.
    job: Name,
    #[command(flatten)]
    which: Which,
    /// At most so many states.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    /// However many states there are.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Which states.
#[derive(Debug, Args)]
pub(super) struct Which {
    /// Only states of this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<Name>,
    /// Only states of this partition.
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
}

impl Which {
    pub(super) fn scope(&self) -> Scope {
        Scope {
            partition: self.partition,
            tag: self.tag.clone(),
        }
    }
}

impl Show {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let jobs = client.engine.jobs();
        let info = jobs.get(&self.job).await?;
        let info = info.ok_or(Error::from(NotFound::Job(self.job.clone())))?;
        let (picture, mut states) = match info.deleted_at {
            Some(_) => (None, Vec::new()),
            None => {
                let monitor = jobs.monitor(&self.job).await?;
                let states = monitor.states(&self.which.scope()).await?;
                let picture = Picture::take(&monitor, &Scope::all(), 0).await?;
                (Some(picture), states)
            }
        };
        states.sort_by_key(|state| state.status);
        let total = states.len();
        if !self.all {
            states.truncate(self.limit);
        }
        let screen = &client.screen;
        if screen.json {
            screen.object(&WireShown {
                job: WireJob::new(&info, picture.as_ref()),
                states: states
                    .iter()
                    .map(|state| WireState::from(&**state))
                    .collect(),
                states_total: total,
            })?;
            return Ok(OK);
        }
        let mut text = facts(&info, picture.as_ref(), client.now(), screen);
        if !states.is_empty() {
            text += &format!("\n{}\n", screen.paint(Tint::Strong, "States"));
            text += &table(&states, client.now(), screen);
        }
        say(&text)?;
        if states.len() < total {
            let (shown, total) = (grouped(states.len() as u64), grouped(total as u64));
            screen.note(&format!(
                "{shown} of {total} states, the lowest first; --limit and --all show more."
            ));
        }
        Ok(OK)
    }
}

/// Everything but the states.
fn facts(info: &JobInfo, picture: Option<&Picture>, now: Timestamp, screen: &Screen) -> String {
    let width = screen.width.unwrap_or(WIDTH);
    let line = |name: &str| {
        let line = Line::new(width, screen).add(Tint::Plain, "  ");
        line.add(Tint::Faint, &format!("{name:10}  "))
    };
    let fact = |name: &str, fact: &str| line(name).add(Tint::Plain, &clean(fact)).end();
    let (status, tint) = match picture {
        Some(picture) => (words(picture.lowest.status), tint(picture.lowest.status)),
        None => ("deleted".into(), Tint::Faint),
    };
    let name = clean(info.name.as_str());
    let head = Line::new(width, screen).add(Tint::Strong, &name);
    let mut lines = vec![
        head.say(tint, &status).end(),
        fact("partitions", &grouped(info.partitions.into())),
        fact("created", &moment(now, info.created_at)),
    ];
    if let Some(at) = info.deleted_at {
        lines.push(fact("deleted", &moment(now, at)));
    }
    if info.generation > 1 {
        lines.push(fact("generation", &info.generation.to_string()));
    }
    if let Some(retain) = info.retain {
        let kept = format!("{} after it has finished", span(retain));
        lines.push(fact("kept", &kept));
    }
    for (name, value) in &info.about {
        lines.push(fact(&clean(name.as_str()), value));
    }
    if let Some(picture) = picture {
        lines.push(who(&picture.lowest, line("lowest")).end());
        let bars = picture.bars(width, screen);
        if !bars.is_empty() {
            lines.extend([String::new(), screen.paint(Tint::Strong, "Tags")]);
        }
        lines.extend(bars);
    }
    lines.join("\n") + "\n"
}

fn table(states: &[Arc<State>], now: Timestamp, screen: &Screen) -> String {
    const COLUMNS: [Column; 6] = [
        Column::new("PARTITION").right(),
        Column::new("TAG").cut_to(8),
        Column::new("STATUS"),
        Column::new("WRITTEN"),
        Column::new("VERSION").right().rank(1),
        Column::new("MESSAGE").cut_to(12),
    ];
    let rows = states.iter().map(|state| {
        let tag = state.tag.as_ref().map_or("", Name::as_str);
        let written = state.timestamp.map(|at| age(now, at));
        vec![
            state.partition.to_string().into(),
            tag.into(),
            Cell::tinted(words(state.status), tint(state.status)),
            written.unwrap_or_default().into(),
            state.version.to_string().into(),
            Cell::tinted(&state.message, said(state)),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let grid = Grid::fit(&COLUMNS, &rows, screen.width);
    grid.header(screen) + &grid.rows(&rows, screen)
}
