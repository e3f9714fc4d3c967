//! What is written down of a run.

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::{ChangePage, Changes, Exchange, Exchanged};
use plimsoll_core::{Key, Name, Result, Revision, TaskId};
use plimsoll_engine::jobs::{Scope, State, StateEvent, Written};

use crate::check::{Answer, Deed, Grip, Operation, Question};

/// Something that a client asked or was answered.
#[derive(Debug)]
pub(super) enum Event {
    /// A process is about to change something.
    Asks { who: String, exchange: Exchange },
    /// It was answered; the number of what it asked.
    Answers {
        asks: usize,
        answer: Result<Exchanged>,
    },
    /// Records were read.
    Saw(Vec<(Key, Revision)>),
    /// History was read.
    Shown(Changes, Result<ChangePage>),
    /// A clerk is about to write a record.
    Does(Deed),
    /// What became of it; `None`: it was refused.
    Did(usize, Option<Revision>),
    /// Somebody contends for a lock.
    Wants { who: String, lock: Key },
    /// Somebody contends no longer.
    WantsNoMore(u64),
    /// Somebody was told that a lock is theirs.
    HasLock(u64, Grip),
    /// Somebody asks whether it still has a lock, and may have heard that it does.
    Relies(Grip, Arc<OnceLock<()>>),
    /// What somebody was told of its release.
    Released(Grip, Result<()>),
    /// Somebody is about to take part in a job.
    Joins(&'static str),
    /// It takes part; the number of when it began to.
    Joined(&'static str, usize),
    /// A manager is about to write a state.
    Sets {
        manager: usize,
        partition: u32,
        tag: Name,
        event: String,
    },
    /// What it was told.
    Set(usize, Result<Written>),
    /// Who wrote this version reads.
    ReadsOwn(usize, u64, Result<State>),
    /// Somebody, by number, subscribes to a job from the start.
    Subscribes(usize, &'static str, Scope),
    /// It goes on from where it was.
    Resumes,
    /// It was told something.
    Told(usize, StateEvent),
}

/// Everything that was written down.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) events: Vec<(Duration, Event)>,
    pub(super) operations: Vec<Operation>,
    pub(super) tasks: Vec<TaskId>,
    /// How many there were of those that are counted.
    counts: HashMap<Discriminant<Event>, usize>,
}

/// Writes down what happens, in the order in which it does.
#[derive(Debug)]
pub(super) struct Recorder {
    clock: Arc<SystemClock>,
    log: Mutex<Log>,
}

impl Recorder {
    pub(super) fn new(clock: Arc<SystemClock>) -> Self {
        Self {
            clock,
            log: Mutex::default(),
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Log {
        std::mem::take(&mut *self.log())
    }

    /// Writes something down. Answers its number among all.
    pub(super) fn note(&self, event: Event) -> usize {
        let mut log = self.log();
        log.events.push((self.clock.monotonic(), event));
        log.events.len() - 1
    }

    /// Writes something down. Answers how many like it there were before.
    pub(super) fn count(&self, event: Event) -> usize {
        let mut log = self.log();
        let like = log
            .counts
            .entry(std::mem::discriminant(&event))
            .or_default();
        *like += 1;
        let before = *like - 1;
        log.events.push((self.clock.monotonic(), event));
        before
    }

    /// Asks something of a record.
    pub(super) async fn asks<T>(
        &self,
        key: &Key,
        question: Question,
        call: impl Future<Output = (Answer, T)>,
    ) -> T {
        let sent = self.step();
        let (answer, told) = call.await;
        let answered = self.step();
        self.log().operations.push(Operation {
            key: key.clone(),
            sent,
            answered,
            question,
            answer,
        });
        told
    }

    /// A moment that nobody else has.
    fn step(&self) -> usize {
        self.note(Event::Saw(Vec::new()))
    }
}
