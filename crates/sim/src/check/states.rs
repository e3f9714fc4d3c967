//! Job states as they are written: versions without a gap, each call once and in its order, nothing
//! for a job that was deleted.

use std::collections::BTreeMap;

use plimsoll_core::change::Change;
use plimsoll_core::record::{Record, integer};
use plimsoll_core::{Name, Position, Result, Revision, Timestamp};
use plimsoll_engine::jobs::{Scope, State, Written};

use super::Checker;

pub(crate) const JOBS: &str = "plimsoll.jobs.";
pub(crate) const STATES: &str = "plimsoll.states.";
/// How many events of a partition and tag are remembered, so that a repetition is recognised.
const EVENTS_KEPT: usize = 16;

/// A partition and a tag.
pub(super) type Slot = (u32, Name);

/// A state that was written.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) position: Position,
    pub(super) slot: Slot,
    pub(super) version: u64,
    pub(super) status: i32,
    /// How many partitions the job had.
    pub(super) partitions: u32,
    event: String,
    message: String,
    pub(super) at: Timestamp,
    /// In the order in which it was set, where that is known at all.
    pub(super) revision: Revision,
}

impl Said {
    /// Whether a reader was shown this.
    pub(super) fn is(&self, state: &State) -> bool {
        let event = state.event_id.as_ref().map(Name::as_str);
        (self.version, self.status, &self.message) == (state.version, state.status, &state.message)
            && (Some(self.at), Some(self.event.as_str())) == (state.timestamp, event)
            && self.slot.0 == state.partition
            && Some(&self.slot.1) == state.tag.as_ref()
    }

    pub(super) fn is_in(&self, scope: &Scope) -> bool {
        (scope.partition).is_none_or(|partition| partition == self.slot.0)
            && (scope.tag.as_ref()).is_none_or(|tag| *tag == self.slot.1)
    }
}

/// What is known of a job.
#[derive(Debug, Default)]
pub(super) struct JobModel {
    /// Whether its record says that it may be written, and whether it says that it is deleted.
    open: bool,
    deleted: bool,
    generation: i64,
    floor: i64,
    pub(super) partitions: u32,
    /// How many partitions it had from when on.
    sizes: Vec<(Position, u32)>,
    /// Everything that was ever written.
    pub(super) said: Vec<Said>,
    /// What was in each slot from when on.
    slots: BTreeMap<Slot, Vec<(Position, Option<usize>)>>,
    /// When it was marked as deleted.
    pub(super) ended: Vec<Position>,
}

impl JobModel {
    pub(super) fn is_alive(&self) -> bool {
        self.generation > 0 && !self.deleted
    }

    pub(super) fn was_created(&self) -> bool {
        self.generation > 0
    }

    /// Whether this life of it has ended.
    fn is_over(&self, life: i64) -> bool {
        life < self.generation || (life == self.generation && self.deleted)
    }

    /// What was in a slot after this position.
    pub(super) fn at(&self, slot: &Slot, position: Position) -> Option<&Said> {
        let ever = self.slots.get(slot)?;
        let upto = ever.partition_point(|(since, _)| *since <= position);
        let (_, said) = ever.get(upto.checked_sub(1)?)?;
        self.said.get((*said)?)
    }

    /// The states of a scope after this position.
    pub(super) fn all_at(&self, scope: &Scope, position: Position) -> BTreeMap<Slot, &Said> {
        let said = (self.slots.keys()).filter_map(|slot| Some((slot, self.at(slot, position)?)));
        let said = said.filter(|(_, said)| said.is_in(scope));
        said.map(|(slot, said)| (slot.clone(), said)).collect()
    }

    /// The states that it has.
    pub(super) fn present(&self) -> impl Iterator<Item = &Said> {
        let last = self.slots.values().filter_map(|ever| ever.last()?.1);
        last.filter_map(|said| self.said.get(said))
    }

    pub(super) fn version(&self, slot: &Slot, version: u64) -> Option<&Said> {
        let ever = self.slots.get(slot)?.iter();
        let mut said = ever.filter_map(|(_, said)| self.said.get((*said)?));
        said.find(|said| said.version == version)
    }

    /// Whether a state was removed after this position.
    pub(super) fn removed_after(&self, slot: &Slot, position: Position) -> bool {
        let ever = self.slots.get(slot).into_iter().flatten();
        ever.rev()
            .take_while(|(since, _)| *since > position)
            .any(|(_, said)| said.is_none())
    }

    /// Whether any state was removed after this position.
    pub(super) fn loses_after(&self, position: Position) -> bool {
        (self.slots.keys()).any(|slot| self.removed_after(slot, position))
    }

    /// Whether what was said was there at this position, or came later.
    pub(super) fn is_there_since(&self, said: &Said, position: Position) -> bool {
        let then = self.at(&said.slot, position);
        said.position > position || then.is_some_and(|then| then.position == said.position)
    }

    /// How many partitions it had after this position.
    pub(super) fn partitions_at(&self, position: Position) -> u32 {
        let upto = self.sizes.partition_point(|(since, _)| *since <= position);
        let size = upto.checked_sub(1).and_then(|last| self.sizes.get(last));
        size.map_or(0, |(_, partitions)| *partitions)
    }

    /// This position, and each after it at which something about the job has changed.
    pub(super) fn moments_since(&self, position: Position) -> impl Iterator<Item = Position> {
        let said = self.slots.values().flatten().map(|(since, _)| *since);
        let sized = self.sizes.iter().map(|(since, _)| *since);
        let later = said.chain(sized).filter(move |since| *since > position);
        std::iter::once(position).chain(later)
    }

    /// Whether the job was deleted after this position.
    pub(super) fn ended_after(&self, position: Position) -> bool {
        self.ended.last().is_some_and(|ended| *ended > position)
    }
}

/// One call of a manager.
#[derive(Debug)]
struct Call {
    manager: usize,
    slot: Slot,
    event: String,
    written: bool,
    /// It was answered that it was written, and not before.
    acknowledged: bool,
    /// It was answered that it may not have been written.
    failed: bool,
    /// The job of its manager was deleted before it was made.
    late: bool,
}

/// Somebody who takes part in a job.
#[derive(Debug)]
struct ManagerModel {
    job: String,
    /// The lives of the job that it may have joined.
    lives: (i64, i64),
    /// The last of its calls that was written.
    last: usize,
}

/// What is known of job states.
#[derive(Debug, Default)]
pub(super) struct States {
    pub(super) jobs: BTreeMap<String, JobModel>,
    managers: Vec<ManagerModel>,
    calls: Vec<Call>,
}

/// What a manager is about to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) manager: usize,
    pub(crate) partition: u32,
    pub(crate) tag: &'a Name,
    pub(crate) event: &'a str,
}

impl Checker {
    pub(super) fn job(&mut self, job: &str) -> &mut JobModel {
        self.states.jobs.entry(job.to_owned()).or_default()
    }

    /// Somebody is about to join a job: in which life at the earliest.
    pub(crate) fn joins(&mut self, job: &str) -> i64 {
        let model = self.job(job);
        model.generation + i64::from(!model.is_alive())
    }

    /// It has joined. Its number.
    pub(crate) fn joined(&mut self, job: &str, earliest: i64) -> usize {
        let latest = self.job(job).generation;
        self.states.managers.push(ManagerModel {
            job: job.to_owned(),
            lives: (earliest, latest),
            last: 0,
        });
        self.states.managers.len() - 1
    }

    /// Whether the life of the job has ended that a manager may have joined.
    pub(super) fn is_over_for(&self, manager: usize) -> bool {
        let manager = &self.states.managers[manager];
        let job = self.states.jobs.get(&manager.job);
        job.is_some_and(|job| job.is_over(manager.lives.0))
    }

    /// A manager is about to write a state, whose message must end with the number of this call.
    pub(crate) fn sets(&mut self, asked: Asked<'_>) -> usize {
        let manager = &self.states.managers[asked.manager];
        let (job, (_, latest)) = (manager.job.clone(), manager.lives);
        let late = self.job(&job).is_over(latest);
        self.states.calls.push(Call {
            manager: asked.manager,
            slot: (asked.partition, asked.tag.clone()),
            event: asked.event.to_owned(),
            written: false,
            acknowledged: false,
            failed: false,
            late,
        });
        self.states.calls.len() - 1
    }

    /// Whoever called does not wait for the answer.
    pub(crate) fn gives_up(&mut self, number: usize) {
        self.states.calls[number].failed = true;
    }

    /// It was answered.
    pub(crate) fn was_set(&mut self, number: usize, answer: &Result<Written>) {
        let written = match answer {
            Ok(written) => *written,
            Err(error) => {
                self.states.calls[number].failed = true;
                let deleted = error.code() == "job_deleted";
                self.figures.states_refused += u64::from(deleted);
                let manager = self.states.calls[number].manager;
                if deleted && !self.is_over_for(manager) {
                    let job = &self.states.managers[manager].job;
                    self.blame("states", format!("{job} is not deleted"));
                }
                return;
            }
        };
        let call = &mut self.states.calls[number];
        call.acknowledged = !written.repeated;
        let job = self.states.managers[call.manager].job.clone();
        let model = self.states.jobs.get(&job);
        let said = model.and_then(|model| model.version(&call.slot, written.version));
        let fits = said.is_some_and(|said| {
            said.event == call.event && (written.repeated || call_of(&said.message) == Some(number))
        });
        let fits = fits && !call.late;
        self.figures.states_repeated += u64::from(written.repeated);
        if !fits {
            let wrong = format!("{job} {call:?}: answered {written:?}, but it was {said:?}");
            self.blame("states", wrong);
        }
    }

    /// When a manager has last set a tag to less than this, if it knows that.
    pub(crate) fn set_back(&self, manager: usize, tag: &Name, status: i32) -> Position {
        let by_it = |said: &&Said| {
            let call = call_of(&said.message).and_then(|call| self.states.calls.get(call));
            let known = call.filter(|call| call.acknowledged && call.manager == manager);
            known.is_some() && said.slot.1 == *tag && said.status < status
        };
        let job = (self.states.jobs).get(&self.states.managers[manager].job);
        let last = job.and_then(|job| job.said.iter().rev().find(by_it));
        last.map_or(Position::ZERO, |said| said.position)
    }

    /// A writer reads what it has written.
    pub(crate) fn reads_own(&mut self, number: usize, version: u64, answer: &Result<State>) {
        let call = &self.states.calls[number];
        let state = match answer {
            Ok(state) => state,
            Err(error) if error.code() == "job_deleted" && !self.is_over_for(call.manager) => {
                let wrong = format!("{call:?}: its writer reads that the job is deleted");
                self.blame("states", wrong);
                return;
            }
            Err(_) => return,
        };
        let job = self.states.managers[call.manager].job.clone();
        let Some(model) = self.states.jobs.get(&job) else {
            return;
        };
        let written = model.version(&call.slot, version);
        let ended = written.is_some_and(|said| model.ended_after(said.position));
        if state.version < version && !ended {
            let slot = call.slot.clone();
            let wrong = format!(
                "{job} {slot:?}: wrote {version}, and reads {}",
                state.version
            );
            self.blame("states", wrong);
        }
    }

    pub(super) fn look_at_state_change(&mut self, change: &Change, position: Position) {
        match change {
            Change::Put(record) => {
                if let Some(job) = record.key.as_str().strip_prefix(JOBS) {
                    self.look_at_job(&unescape(job), record, position);
                } else if let Some((job, slot)) = slot_of(record.key.as_str()) {
                    self.look_at_state(&job, slot, record, position);
                }
            }
            Change::Removed { key, .. } => {
                if let Some((job, slot)) = slot_of(key.as_str()) {
                    self.look_at_removal(&job, slot, position);
                }
            }
            Change::Task(_) | Change::Group { .. } => {}
        }
    }

    fn look_at_job(&mut self, name: &str, record: &Record, position: Position) {
        let number = |field: &str| record.field(field).and_then(|value| integer(value));
        let (open, deleted) = (number("generation"), number("deleted"));
        let generation = open.or(deleted).or(number("closing")).unwrap_or(0);
        let partitions = number("partitions").and_then(|number| u32::try_from(number).ok());
        let floor = number("floor");
        let job = self.job(name);
        let grew = match deleted.is_none() && job.deleted {
            true => generation == job.generation + 1,
            false => generation == job.generation || job.generation == 0,
        };
        let keeps = floor.unwrap_or(-1) >= job.floor
            && (job.generation != generation || partitions == Some(job.partitions));
        if !job.deleted && deleted.is_some() {
            job.ended.push(position);
            self.figures.jobs_deleted += 1;
            let created_at = number("created_at").unwrap_or(i64::MAX);
            self.look_at_end(name, created_at, record.modified_at);
        }
        let job = self.job(name);
        job.open = open.is_some();
        job.deleted = deleted.is_some();
        job.generation = generation;
        job.floor = floor.unwrap_or(0);
        job.partitions = partitions.unwrap_or(0);
        if job.sizes.last().map(|(_, size)| *size) != Some(job.partitions) {
            job.sizes.push((position, job.partitions));
        }
        if !grew || !keeps {
            let wrong = format!("{name}: generation {generation}, floor {floor:?}, {partitions:?}");
            self.blame("states", wrong);
        }
    }

    fn look_at_state(&mut self, name: &str, slot: Slot, record: &Record, position: Position) {
        let text = |field: &str| {
            let value = record
                .field(field)
                .map(|value| String::from_utf8_lossy(value));
            value.unwrap_or_default().into_owned()
        };
        let said = Said {
            position,
            slot: slot.clone(),
            version: text("version").parse().unwrap_or(0),
            status: text("status").parse().unwrap_or(0),
            partitions: self.job(name).partitions,
            event: text("event_id"),
            message: text("message"),
            at: record.modified_at,
            revision: record.revision,
        };
        self.figures.states_written += 1;
        let wrong = self.wrong_write(name, &said);
        let job = self.job(name);
        let ever = job.slots.entry(slot).or_default();
        ever.push((position, Some(job.said.len())));
        job.said.push(said);
        if let Some(wrong) = wrong {
            self.blame("states", format!("{name}: {wrong}"));
        }
    }

    /// What is wrong with a state that is written.
    fn wrong_write(&mut self, name: &str, said: &Said) -> Option<String> {
        let job = self.job(name);
        let (slot, version) = (&said.slot, said.version);
        let (open, generation) = (job.open, job.generation);
        let ever = job.slots.get(slot).into_iter().flatten();
        // A life begins after a removal.
        let life: Vec<&Said> = (ever.rev())
            .map_while(|(_, said)| job.said.get((*said)?))
            .take(EVENTS_KEPT)
            .collect();
        let expected = match life.first() {
            Some(last) => last.version + 1,
            None => u64::try_from(job.floor).unwrap_or(0) + 1,
        };
        if version != expected {
            return Some(format!("{slot:?} is version {version}, not {expected}"));
        }
        if life.iter().any(|before| before.event == said.event) {
            return Some(format!("{slot:?}: event {} is written twice", said.event));
        }
        if !open {
            return Some(format!("{slot:?} is written, and the job is not open"));
        }
        let states = &mut self.states;
        let number = call_of(&said.message).unwrap_or(usize::MAX);
        let Some(call) = states.calls.get_mut(number) else {
            return Some(format!("{slot:?} is written, and nobody said so"));
        };
        let manager = states.managers.get_mut(call.manager)?;
        let (first, last) = manager.lives;
        let late = number < manager.last && !call.failed;
        let twice = std::mem::replace(&mut call.written, true);
        if twice || late || call.slot != *slot || call.event != said.event {
            let (last, event) = (manager.last, &said.event);
            let wrong =
                format!("{slot:?} {event}: {call:?} {number} is written twice or after {last}");
            return Some(wrong);
        }
        if manager.job != name || !(first..=last).contains(&generation) {
            let wrong = format!("{slot:?} in life {generation} by one of {first} to {last}");
            return Some(wrong);
        }
        manager.lives = (generation, generation);
        manager.last = manager.last.max(number);
        None
    }

    fn look_at_removal(&mut self, name: &str, slot: Slot, position: Position) {
        let job = self.job(name);
        let version = job.at(&slot, position).map(|said| said.version);
        let kept =
            version.is_none_or(|version| i64::try_from(version).is_ok_and(|v| v <= job.floor));
        let (deleted, floor) = (job.deleted, job.floor);
        let ever = job.slots.entry(slot.clone()).or_default();
        ever.push((position, None));
        if !deleted || !kept {
            let wrong = format!("{name} {slot:?}: {version:?} is removed, the floor is {floor}");
            self.blame("states", wrong);
        }
    }
}

/// The call that wrote a state.
fn call_of(message: &str) -> Option<usize> {
    message.rsplit(' ').next()?.parse().ok()
}

fn unescape(job: &str) -> String {
    job.replace("%2E", ".").replace("%25", "%")
}

/// The job, partition and tag of the key of a state.
fn slot_of(key: &str) -> Option<(String, Slot)> {
    let (job, rest) = key.strip_prefix(STATES)?.split_once('.')?;
    let (partition, tag) = rest.split_once('-')?;
    let slot = (partition.parse().ok()?, Name::new(tag).ok()?);
    Some((unescape(job), slot))
}
