//! Shows the checkers a run that is over.

use std::collections::BTreeMap;

use plimsoll_core::change::{Change, TaskEvent};
use plimsoll_core::store::{Changes, Exchange, Exchanged, Outcome, Tasks};
use plimsoll_core::{Fence, Key, Position, Result, Revision, Store, TaskId};
use plimsoll_engine::jobs::StateEvent;

use super::log::{Event, Log, Recorder};
use crate::check::{Asked, Checker, Figures, Recorded, Telling, Violation, linearizable, place_of};

/// Reads what the store has when everybody has ended.
pub(super) async fn what_is_left(store: &dyn Store, recorder: &Recorder) -> Result<Recorded> {
    let (mut entries, mut after) = (Vec::new(), Position::ZERO);
    loop {
        let page = store.changes(Changes::after(after, 1_000)).await?;
        after = page.next;
        entries.extend(page.entries);
        if !page.more {
            break;
        }
    }
    let ids = recorder.log().tasks.clone();
    let mut tasks = BTreeMap::new();
    for ids in ids.chunks(1_000) {
        let rows = store.tasks(Tasks { ids: ids.to_vec() }).await?;
        tasks.extend(rows.into_iter().flatten().map(|row| (row.id(), row)));
    }
    Ok(Recorded {
        entries,
        upto: Position::ZERO,
        tasks,
    })
}

/// Where in the history something happened.
#[derive(Debug, Default)]
struct Places {
    records: BTreeMap<(Key, Revision), Position>,
    claims: BTreeMap<(TaskId, Fence), Position>,
    submits: BTreeMap<TaskId, Position>,
}

impl Places {
    fn of(record: &Recorded) -> Self {
        let mut places = Self::default();
        for entry in &record.entries {
            for change in &entry.changes {
                match change {
                    Change::Put(record) => {
                        let key = (record.key.clone(), record.revision);
                        places.records.insert(key, entry.position);
                    }
                    Change::Task(task) if task.event == TaskEvent::Claimed => {
                        places.claims.insert((task.id, task.fence), entry.position);
                    }
                    Change::Task(task) if task.event == TaskEvent::Submitted => {
                        places.submits.insert(task.id, entry.position);
                    }
                    _ => {}
                }
            }
        }
        places
    }
}

/// Goes through a run.
pub(super) fn replay(log: Log, record: Recorded) -> Result<Figures, Violation> {
    let places = Places::of(&record);
    let mut replay = Replay {
        checker: Checker::recorded(record),
        places,
        asked: BTreeMap::new(),
        joins: BTreeMap::new(),
        tellings: BTreeMap::new(),
    };
    for (number, (at, event)) in log.events.into_iter().enumerate() {
        replay.checker.now = at;
        replay.step(number, event);
        if let Some(violation) = replay.checker.violation {
            return Err(violation);
        }
    }
    let mut checker = replay.checker;
    checker.look_upto(Position::new(u64::MAX));
    checker.compare_recorded();
    for (telling, _) in replay.tellings.values() {
        if !checker.is_told_all(telling) {
            checker.blame("replay", format!("{telling:?} was not told everything"));
        }
    }
    checker.figures.calls_ordered += log.operations.len() as u64;
    if let Err(wrong) = linearizable(log.operations) {
        checker.blame("linearizable", wrong);
    }
    match checker.violation {
        None => Ok(checker.figures),
        Some(violation) => Err(violation),
    }
}

/// A subscriber, and what it was told that cannot be looked at before the marker comes.
type Reader = (Telling, Vec<StateEvent>);

struct Replay {
    checker: Checker,
    places: Places,
    /// What was asked and not answered yet, and which of its leases had ended before.
    asked: BTreeMap<usize, (Exchange, Vec<bool>)>,
    joins: BTreeMap<usize, i64>,
    tellings: BTreeMap<usize, Reader>,
}

impl Replay {
    fn step(&mut self, number: usize, event: Event) {
        let checker = &mut self.checker;
        match event {
            Event::Asks { who, exchange } => {
                checker.asked(&who, &exchange.commits);
                let ended = exchange.renew.as_ref().map(|renew| checker.ended_of(renew));
                self.asked
                    .insert(number, (exchange, ended.unwrap_or_default()));
            }
            Event::Answers { asks, answer } => {
                if let (Some((exchange, ended)), Ok(answer)) = (self.asked.remove(&asks), answer) {
                    self.answer(&exchange, &ended, &answer);
                }
            }
            Event::Saw(records) => {
                for record in records {
                    match self.places.records.get(&record) {
                        Some(position) => checker.look_upto(*position),
                        None => {
                            checker.blame("rows", format!("{record:?} was read, and never written"))
                        }
                    }
                }
            }
            Event::Shown(asked, answer) => {
                if let Ok(page) = &answer {
                    checker.look_upto(page.next);
                }
                checker.shown(&asked, &answer);
            }
            Event::Does(deed) => drop(checker.does(deed)),
            Event::Did(deed, Some(revision)) => checker.did(deed, revision),
            Event::Did(deed, None) => checker.did_not(deed),
            Event::Wants { who, lock } => drop(checker.wants(&who, &lock)),
            Event::WantsNoMore(number) => checker.wants_no_more(number),
            Event::HasLock(number, grip) => checker.has_lock(number, &grip),
            Event::Relies(grip, heard) => {
                if heard.get().is_some() {
                    checker.relies_on_lock(&grip);
                }
            }
            Event::Released(grip, answer) => checker.released(&grip, &answer),
            Event::Joins(job) => {
                let earliest = checker.joins(job);
                self.joins.insert(number, earliest);
            }
            Event::Joined(job, joins) => {
                let earliest = self.joins.remove(&joins).unwrap_or(0);
                checker.joined(job, earliest);
            }
            Event::Sets {
                manager,
                partition,
                tag,
                event,
            } => {
                checker.sets(Asked {
                    manager,
                    partition,
                    tag: &tag,
                    event: &event,
                });
            }
            Event::Set(call, answer) => checker.was_set(call, &answer),
            Event::ReadsOwn(call, version, answer) => checker.reads_own(call, version, &answer),
            Event::Subscribes(reader, job, scope) => {
                let begins = (Telling::new(job, scope), Vec::new());
                self.tellings.insert(reader, begins);
            }
            Event::Resumes => checker.figures.resumed += 1,
            Event::Told(reader, event) => self.tell(reader, event),
        }
    }

    fn answer(&mut self, exchange: &Exchange, ended: &[bool], answer: &Exchanged) {
        let checker = &mut self.checker;
        for receipt in answer.commits.iter().flatten() {
            if let Some(position) = receipt.position {
                checker.look_upto(position);
                checker.happened_at(position);
            }
        }
        // Who is told of another's task has written nothing.
        let outcomes = answer.commits.iter().flatten();
        for outcome in outcomes.flat_map(|receipt| &receipt.outcomes) {
            if let Outcome::Submitted(submitted) = outcome
                && let Some(position) = self.places.submits.get(&submitted.id)
            {
                checker.look_upto(*position);
            }
        }
        checker.answered(&exchange.commits, &answer.commits);
        if let (Some(renew), Some(Ok(renewals))) = (&exchange.renew, &answer.renewals) {
            checker.prolonged(renew, ended, renewals);
        }
        if let (Some(claim), Some(Ok(claimed))) = (&exchange.claim, &answer.claimed) {
            for task in &claimed.tasks {
                if let Some(position) = self.places.claims.get(&(task.id(), task.fence)) {
                    checker.look_upto(*position);
                }
            }
            checker.claimed(claim, claimed);
            checker.leased(claimed);
        }
    }

    /// What was there is told without a place: it is looked at once the marker names one.
    fn tell(&mut self, reader: usize, event: StateEvent) {
        let Some((telling, past)) = self.tellings.get_mut(&reader) else {
            return;
        };
        let position = place_of(&event);
        past.push(event);
        if let Some(position) = position {
            self.checker.look_upto(position);
            for event in past.drain(..) {
                self.checker.told(telling, &event);
            }
        }
    }
}
