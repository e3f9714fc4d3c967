//! A job as it is drawn on a terminal while it goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll::Name;
use plimsoll::jobs::{FINISHED, NOT_STARTED, Progress, Scope, State};

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
        lines.push(String::new());
        if scope.partition.is_some() {
            let states = states.iter().take(room);
            lines.extend(states.map(|state| told(state, line())));
        } else if picture.partitions as usize <= room.min(LINES_MAX) {
            lines.extend(rows(picture, states, &line));
        } else {
            lines.extend(marks(picture, states, room, size, screen));
            lines.extend(errors(states, &line));
        }
    }
    if status != FINISHED {
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

/// A line for each partition, with a mark for each tag and what speaks for it.
fn rows<'a>(picture: &Picture, states: &[Arc<State>], line: &impl Fn() -> Line<'a>) -> Vec<String> {
    let (known, silent) = (by_partition(states), BTreeMap::new());
    let row = |partition: u32| {
        let said = known.get(&partition).unwrap_or(&silent);
        let mut row = line().add(Tint::Faint, &format!("  {partition:>4}  "));
        for Progress { tag, .. } in &picture.tags {
            let status = said.get(tag).map_or(NOT_STARTED, |state| state.status);
            let standing = Standing::of(status);
            row = row.add(standing.tint(), standing.mark());
        }
        told(&speaker(partition, said, picture), row)
    };
    (0..picture.partitions).map(row).collect()
}

/// What is lowest of what a partition has said; once all that is finished, what it has not begun.
fn speaker(partition: u32, said: &BTreeMap<&Name, &State>, picture: &Picture) -> State {
    let mut tags = picture.tags.iter().map(|progress| &progress.tag);
    let missing = tags.find(|tag| !said.contains_key(tag));
    match said.values().min_by_key(|state| state.status) {
        Some(state) if missing.is_none() || !state.is_finished() => State::clone(state),
        lowest => {
            let tag = lowest.and(missing).cloned();
            State::not_started(picture.lowest.job.clone(), partition, tag)
        }
    }
}

/// How far it is, with what, and what it says.
fn told(state: &State, line: Line<'_>) -> String {
    let tag = state.tag.as_ref().map_or("", Name::as_str);
    let line = line.say(tint(state.status), &words(state.status));
    let line = line.say(Tint::Faint, tag);
    line.say(said(state), &state.message).end()
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
