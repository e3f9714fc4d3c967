//! What is known of a job at a moment.

use std::sync::Arc;

use plimsoll::Result;
use plimsoll::jobs::{Monitor, Progress, Scope, State};

use super::line::Line;
use super::standing::{bar, counts, tint, words};
use crate::screen::{Screen, Tint};
use crate::text::{clean, cut};

/// How wide a bar is.
const BAR: usize = 20;
/// How wide the name of a tag may be.
const TAG: usize = 20;

/// What is known of a job at a moment.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) partitions: u32,
    /// The state that speaks for what is looked at.
    pub(super) lowest: State,
    /// How far each tag is; none where only one partition is looked at.
    pub(super) tags: Vec<Progress>,
    /// Its states, in the order of partitions and tags; `None`: too many to look at each.
    pub(super) states: Option<Vec<Arc<State>>>,
}

impl Picture {
    /// Takes one of these states; of each state only where the job has no more than `most` partitions.
    pub(super) async fn take(monitor: &Monitor, scope: &Scope, most: u32) -> Result<Self> {
        let partitions = monitor.partitions().await?;
        let mut tags = match scope.partition {
            Some(_) => Vec::new(),
            None => monitor.progress().await?,
        };
        tags.retain(|progress| scope.tag.as_ref().is_none_or(|tag| *tag == progress.tag));
        let each = scope.partition.is_some() || partitions <= most;
        let states = match each {
            true => Some(monitor.states(scope).await?),
            false => None,
        };
        Ok(Self {
            partitions,
            lowest: monitor.get_state(scope).await?,
            tags,
            states,
        })
    }

    /// A bar for each tag.
    pub(super) fn bars(&self, width: usize, screen: &Screen) -> Vec<String> {
        let names = self.tags.iter().map(name);
        let names: Vec<String> = names.collect();
        let widths = names.iter().map(|name| console::measure_text_width(name));
        let widest = widths.max().unwrap_or(0);
        let lines = self.tags.iter().zip(&names).map(|(progress, name)| {
            let blanks = widest - console::measure_text_width(name);
            let line = Line::new(width, screen).add(Tint::Plain, "  ");
            let line = line.add(Tint::Plain, name);
            let line = line.add(Tint::Plain, &" ".repeat(blanks + 2));
            let line = line.painted(&bar(progress, BAR, screen), BAR);
            line.say(Tint::Plain, &counts(progress)).end()
        });
        lines.collect()
    }
}

fn name(progress: &Progress) -> String {
    cut(&clean(progress.tag.as_str()), TAG)
}

/// `partition 2 at export: running 40`, and what it says.
pub(super) fn who<'a>(state: &State, line: Line<'a>) -> Line<'a> {
    let at = (state.tag.as_ref()).map(|tag| format!(" at {}", clean(tag.as_str())));
    let partition = format!("partition {}{}: ", state.partition, at.unwrap_or_default());
    let line = line.add(Tint::Plain, &partition);
    let line = line.add(tint(state.status), &words(state.status));
    line.say(said(state), &state.message)
}

/// How a message is shown: those of what went wrong stand out.
pub(super) fn said(state: &State) -> Tint {
    match state.is_error() {
        true => tint(state.status),
        false => Tint::Plain,
    }
}
