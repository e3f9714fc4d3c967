//! A job as it is drawn on a terminal while it goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll::Name;
use plimsoll::jobs::{Scope, State};

use super::line::Line;
use super::picture::{Picture, said, who};
use super::standing::{Standing, legend, tint, words};
use crate::screen::{Screen, Tint};
use crate::text::{clean, count};

/// Up to so many partitions have a line each, if there is room.
const LINES_MAX: usize = 32;
/// So many lines of marks at most.
const MARKS_MAX: usize = 10;
/// So many tags and so many errors are shown.
const TAGS_MAX: usize = 10;
const ERRORS_MAX: usize = 5;
/// Of more partitions than this, only counts are shown: to look at each would take too long.
pub(super) const EACH_MAX: u32 = 20_000;

/// How much room there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// The lines that show a job: no more than there is room for, and none wider.
pub(super) fn frame(
    job: &Name,
    scope: &Scope,
    picture: &Picture,
    size: Size,
    screen: &Screen,
) -> Vec<String> {
    let line = || Line::new(size.width, screen);
    let status = picture.lowest.status;
    let head = line().add(Tint::Strong, &clean(job.as_str()));
    let head = head.say(tint(status), &words(status));
    let head = head.say(Tint::Faint, &looked_at(scope, picture.partitions));
    let mut lines = vec![head.end()];
    let mut bars = picture.bars(size.width, screen);
    let more = bars.len().saturating_sub(TAGS_MAX);
    bars.truncate(TAGS_MAX);
    lines.extend(bars);
    if more > 0 {
        let more = format!("and {}", count(more as u64, "more tag"));
        lines.push(line().say(Tint::Faint, &more).end());
    }
    if let Some(states) = &picture.states {
        let room = size.height.saturating_sub(lines.len() + 2);
        let each = match scope.partition {
            Some(_) => states.len(),
            None => picture.partitions as usize,
        };
        lines.push(String::new());
        if each <= room.min(LINES_MAX) {
            lines.extend(rows(scope, picture, states, &line));
        } else {
            lines.extend(marks(picture, states, room, size, screen));
            lines.extend(errors(states, &line));
        }
    }
    if status != plimsoll::jobs::FINISHED {
        let last = line().add(Tint::Faint, "  last  ");
        lines.push(who(&picture.lowest, last).end());
    }
    lines.truncate(size.height);
    lines
}

/// `4 partitions, only ingest`
fn looked_at(scope: &Scope, partitions: u32) -> String {
    let all = count(partitions.into(), "partition");
    let tag = scope.tag.as_ref().map(|tag| tag.to_string());
    let partition = scope.partition.map(|number| format!("partition {number}"));
    let only = [partition, tag].into_iter().flatten().collect::<Vec<_>>();
    match only.is_empty() {
        true => all,
        false => format!("{all}, only {}", only.join(" at ")),
    }
}

/// The states of each partition, by tag.
fn by_partition(states: &[Arc<State>]) -> BTreeMap<u32, BTreeMap<&Name, &State>> {
    let mut partitions: BTreeMap<u32, BTreeMap<_, _>> = BTreeMap::new();
    for state in states {
        let tags = partitions.entry(state.partition).or_default();
        tags.extend(state.tag.as_ref().map(|tag| (tag, &**state)));
    }
    partitions
}

/// A line for each partition, with what speaks for it; or for each tag of the one that is looked at.
fn rows<'a>(
    scope: &Scope,
    picture: &Picture,
    states: &[Arc<State>],
    line: &impl Fn() -> Line<'a>,
) -> Vec<String> {
    let row = |name: String, marks: Vec<Standing>, state: Option<&State>| {
        let mut row = line().add(Tint::Faint, &format!("  {name:>4}  "));
        for mark in marks {
            row = row.add(mark.tint(), mark.mark());
        }
        let status = state.map_or(0, |state| state.status);
        let row = row.say(tint(status), &words(status));
        let Some(state) = state else { return row.end() };
        let tag = state.tag.as_ref().map_or("", Name::as_str);
        row.say(Tint::Faint, tag)
            .say(said(state), &state.message)
            .end()
    };
    let known = by_partition(states);
    let partitions = match scope.partition {
        Some(partition) => partition..partition.saturating_add(1),
        None => 0..picture.partitions,
    };
    let tags: Vec<&Name> = picture.tags.iter().map(|progress| &progress.tag).collect();
    let mut lines = Vec::new();
    for partition in partitions {
        let said = known.get(&partition);
        let name = partition.to_string();
        if scope.partition.is_some() {
            let states = said.into_iter().flat_map(BTreeMap::values);
            lines.extend(states.map(|state| row(name.clone(), Vec::new(), Some(*state))));
            continue;
        }
        let of_tag = |tag: &&Name| {
            let state = said.and_then(|tags| tags.get(*tag));
            state.map_or(Standing::NotStarted, |state| Standing::of(state.status))
        };
        let lowest = said.and_then(|tags| tags.values().min_by_key(|state| state.status));
        let marks = tags.iter().map(of_tag).collect();
        lines.push(row(name, marks, lowest.copied()));
    }
    lines
}

/// A mark for each partition, or for a few neighbours.
fn marks(
    picture: &Picture,
    states: &[Arc<State>],
    room: usize,
    size: Size,
    screen: &Screen,
) -> Vec<String> {
    let (known, tags) = (by_partition(states), picture.tags.len());
    let of_partition = |partition: u32| {
        let said = known.get(&partition);
        let said = said.into_iter().flat_map(BTreeMap::values);
        let silent = tags - said.clone().count().min(tags);
        let said = said.map(|state| Standing::of(state.status));
        Standing::of_all(said.chain(std::iter::repeat_n(Standing::NotStarted, silent)))
    };
    let width = size.width.saturating_sub(2).max(1);
    let height = room.saturating_sub(ERRORS_MAX + 3).clamp(1, MARKS_MAX);
    let partitions = picture.partitions as usize;
    let each = partitions.div_ceil(width * height).max(1);
    let every: Vec<Standing> = (0..picture.partitions).map(of_partition).collect();
    let marks = every
        .chunks(each)
        .map(|few| Standing::of_all(few.iter().copied()));
    let marks: Vec<Standing> = marks.collect();
    let mut lines = Vec::new();
    for marks in marks.chunks(width) {
        let mut line = Line::new(size.width, screen).add(Tint::Plain, "  ");
        // As one text each, so that a terminal has little to read.
        for same in marks.chunk_by(|one, other| one == other) {
            line = line.add(same[0].tint(), &same[0].mark().repeat(same.len()));
        }
        lines.push(line.end());
    }
    let each = match each {
        1 => String::new(),
        each => format!("{each} partitions a mark: "),
    };
    let what = format!("  {each}{}", legend());
    lines.push(Line::new(size.width, screen).add(Tint::Faint, &what).end());
    lines
}

/// What went wrong.
fn errors<'a>(states: &[Arc<State>], line: &impl Fn() -> Line<'a>) -> Vec<String> {
    let failed = states.iter().filter(|state| state.is_error());
    let failed: Vec<&Arc<State>> = failed.collect();
    let shown = failed.iter().take(ERRORS_MAX);
    let mut lines: Vec<String> = shown
        .map(|state| who(state, line().add(Tint::Plain, "  ")).end())
        .collect();
    if failed.len() > ERRORS_MAX {
        let more = format!("and {} more", failed.len() - ERRORS_MAX);
        lines.push(line().say(Tint::Bad, &more).end());
    }
    lines
}

#[cfg(test)]
mod tests;
