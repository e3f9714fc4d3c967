//! What must hold. Checkers take no part: they see the history, the rows that reads answer, and
//! what actors asked and were told.
//!
//! | rule | broken when |
//! |---|---|
//! | `transition` | a task changes in a way that its status does not allow, or ends twice |
//! | `fence` | a task is claimed while it is held, or its fence moves otherwise than by one on a claim or revocation |
//! | `revision` | a revision of a task does not grow |
//! | `rows` | what a read shows is not what the history tells |
//! | `invariants` | something about a row must not be, or must not have happened to it |
//! | `logs` | the log of an attempt has a line twice or out of order, lacks one that is not among the last, or lacks any though the attempt was settled |
//! | `stages` | an attempt was let into a stage, or to its success, that its lifecycle does not allow |
//! | `failures` | a task has failed more often than it may, or for good without its failure task |
//! | `order` | a claim passes over a task of the same lane that comes first |
//! | `effects` | something that a handler wrote was taken under another fence than the current one, or twice |
//! | `unasked` | an attempt was ended by a holder that did not ask for it, or a task was made to run again more often than operators asked |
//! | `acknowledged` | an answer says something that did not happen |
//! | `hidden` | a worker holds a task and does not know, or ended properly and holds one |
//! | `reliance` | a handler may rely on its lease by its own clock, and has none; or it works on after its lease ran out, in a process that could have stopped it |
//! | `expiry` | a lease ran out although nothing went wrong, or before its time |
//! | `keys` | a key stands for two tasks that may run |
//! | `groups` | a group drains early, twice, or without its `then` |
//! | `subscription` | a reader of history misses, repeats or reorders something |
//! | `counts` | counts are not what there is |
//! | `lost` | an acknowledged task is gone before its end |
//! | `locks` | somebody takes or ends what another holds, a token does not grow or is told to two, a holder relies on what it has not, or something is left for ever |
//! | `line` | somebody waits for a lock while others get it, or too long |
//! | `registry` | a worker that lives is marked as offline, or one that does not is not |
//! | `archive` | a task is deleted and not archived, or archived and not deleted, or too early |
//! | `states` | a version of a job state is not the one after the last, a call is written twice, out of order, in another life of its job or not as it was answered, or who wrote it does not see it |
//! | `retirement` | a job that nobody deletes goes before it is over for long enough |
//! | `replay` | a subscriber to job states is not told exactly what there was at one moment, one marker, and everything that followed, in order; or its subscription ends though it could go on |
//! | `sight` | who looks at a job is told that it is gone, or that there never was one, though that is not so |
//! | `aggregate` | a reader of job states is shown less than it may rely on, or not the lowest status |
//! | `barriers` | a barrier answers what never was, or was over before it began, or overlooks what came first; or it waits although it need not |
//! | `linearizable` | what clients were answered of a record has no order that explains it |
//! | `records` | a write of a record is made twice, not as it was asked, or against what it expected |
//! | `watch` | what a watch tells does not add up to the records |
//! | `waits` | who waits for a task is answered something else than an end that it had come to since, or that it is gone though it is not, or late |
//! | `ends` | something does not end in time once nothing goes wrong, or who waits for it is not answered |
//! | `livelock`, `panic`, `gave up` | an actor spins, panics, or ends with an error |

mod aggregates;
mod answers;
mod archive;
mod ending;
mod figures;
mod groups;
mod history;
mod holders;
mod leases;
mod locks;
mod logs;
mod model;
mod patience;
mod register;
mod registry;
mod retirement;
mod shelf;
mod sight;
mod source;
mod stages;
mod states;
mod tellings;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::change::{Entry, TaskEvent};
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::task::{Task, WorkerId};
use plimsoll_core::{
    Fence, GroupId, IdempotencyKey, Incarnation, Position, Store, TaskId, Timestamp,
};

use self::groups::GroupModel;
use self::holders::Contenders;
use self::leases::Leases;
use self::locks::Locks;
use self::model::Model;
use self::patience::Borne;
use self::registry::Registry;
use self::retirement::Keeping;
use self::shelf::Shelf;
use self::source::Source;
use self::stages::Stages;
use self::states::States;
use crate::profile::Profile;
use crate::trace::Aliases;

pub(crate) use self::aggregates::{Awaited, Since, View, Waiter};
pub(crate) use self::archive::ARCHIVE;
pub use self::figures::Figures;
pub(crate) use self::history::{DONE, STEP};
pub(crate) use self::holders::{Grip, renewals};
pub(crate) use self::locks::{LOCKS, WAITERS};
pub(crate) use self::logs::Said;
pub(crate) use self::register::{Answer, Held, Operation, Question, linearizable};
pub(crate) use self::registry::WORKERS;
pub(crate) use self::shelf::{Deed, SHELF, Watched};
pub(crate) use self::sight::Sight;
pub(crate) use self::source::Recorded;
pub(crate) use self::stages::moves;
pub(crate) use self::states::{Asked, JOBS, STATES};
pub(crate) use self::tellings::{Began, Telling, place_of};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: &'static str,
    /// How.
    pub detail: String,
    /// When, in virtual time.
    pub at: Duration,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.as_secs_f64();
        write!(f, "{} at {at:.6} s: {}", self.rule, self.detail)
    }
}

/// One claim of one task.
type Attempt = (TaskId, Fence);

/// What the checkers know.
#[derive(Debug)]
pub(crate) struct Checker {
    source: Source,
    /// Everything that ever happened, though the store may have removed it.
    entries: Vec<Entry>,
    tasks: BTreeMap<TaskId, Model>,
    /// Each task as a read showed it last.
    seen: BTreeMap<TaskId, Task>,
    by_key: BTreeMap<IdempotencyKey, BTreeSet<TaskId>>,
    /// The task that everybody was told who submitted under a key that is kept.
    kept_keys: BTreeMap<IdempotencyKey, TaskId>,
    groups: BTreeMap<GroupId, GroupModel>,
    /// Who made each claim; `None`: nobody was told yet.
    claims: BTreeMap<Attempt, Option<WorkerId>>,
    /// Where and how each attempt ended.
    endings: BTreeMap<Attempt, (Position, TaskEvent)>,
    /// The verbs that holders sent.
    asked: BTreeMap<Attempt, Vec<plimsoll_core::task::Verb>>,
    /// Attempts that somebody thought were over their time.
    overdue: BTreeSet<Attempt>,
    /// The claims that workers were told of.
    known: BTreeSet<(Incarnation, TaskId, Fence)>,
    acknowledged: BTreeSet<TaskId>,
    /// The tasks that somebody waits for.
    awaited: BTreeSet<TaskId>,
    leases: Leases,
    locks: Locks,
    contenders: Contenders,
    registry: Registry,
    stages: Stages,
    states: States,
    shelf: Shelf,
    /// How patient each process is.
    borne: BTreeMap<String, Borne>,
    /// What the handler of each attempt that goes on has logged.
    said: BTreeMap<Attempt, Vec<Said>>,
    pub(crate) figures: Figures,
    /// How often operators asked for a task to run again, less how often it was made to. A refusal
    /// takes nothing back: the same request may still arrive late, and be taken then.
    retries_asked: BTreeMap<TaskId, u32>,
    /// Since when nothing goes wrong.
    pub(crate) calm_since: Option<Duration>,
    /// Whether a lease may run out: something goes wrong in this run.
    expiries_expected: bool,
    /// Whether the wall clock may pass over a lease that its holder relies on.
    clock_jumps: bool,
    jobs_kept: Option<Keeping>,
    pub(crate) now: Duration,
    pub(crate) violation: Option<Violation>,
    aliases: Aliases,
}

impl Checker {
    pub(crate) fn new(store: Arc<MemoryStore>, aliases: Aliases, profile: &Profile) -> Self {
        let expiries_expected = !profile.calm;
        Self {
            expiries_expected,
            calm_since: (!expiries_expected).then_some(Duration::ZERO),
            clock_jumps: !profile.jumps.is_empty(),
            jobs_kept: Keeping::of(profile),
            ..Self::of(Source::Live(store), aliases)
        }
    }

    /// Looks at a run that is over. Anything may have taken long in it.
    pub(crate) fn recorded(record: Recorded) -> Self {
        Self::of(Source::Recorded(record), Aliases::default())
    }

    fn of(source: Source, aliases: Aliases) -> Self {
        Self {
            source,
            entries: Vec::new(),
            tasks: BTreeMap::new(),
            seen: BTreeMap::new(),
            by_key: BTreeMap::new(),
            kept_keys: BTreeMap::new(),
            groups: BTreeMap::new(),
            claims: BTreeMap::new(),
            endings: BTreeMap::new(),
            asked: BTreeMap::new(),
            overdue: BTreeSet::new(),
            known: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            awaited: BTreeSet::new(),
            leases: Leases::default(),
            locks: Locks::default(),
            contenders: Contenders::default(),
            registry: Registry::default(),
            stages: Stages::new(),
            states: States::default(),
            shelf: Shelf::default(),
            borne: BTreeMap::new(),
            said: BTreeMap::new(),
            figures: Figures::default(),
            retries_asked: BTreeMap::new(),
            calm_since: None,
            expiries_expected: true,
            clock_jumps: false,
            jobs_kept: None,
            now: Duration::ZERO,
            violation: None,
            aliases,
        }
    }

    /// Notes the first rule that was broken.
    pub(crate) fn blame(&mut self, rule: &'static str, detail: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation {
                rule,
                detail,
                at: self.now,
            });
        }
    }

    fn name(&self, task: TaskId) -> String {
        self.aliases.of(task)
    }

    fn newest(&self) -> Position {
        self.entries
            .last()
            .map_or(Position::ZERO, |entry| entry.position)
    }

    /// What was appended to the history since the last look.
    fn fresh(&mut self) -> Vec<Entry> {
        match self.source.after(self.newest()) {
            Some(fresh) => fresh,
            None => {
                self.blame("acknowledged", "the history cannot be read".into());
                Vec::new()
            }
        }
    }

    fn rows(&self, ids: Vec<TaskId>) -> Vec<Option<Task>> {
        self.source.tasks(ids)
    }

    fn store_time(&self) -> Timestamp {
        let time = self
            .source
            .live()
            .and_then(|store| store.ping().now_or_never());
        time.and_then(Result::ok).unwrap_or(Timestamp::MIN)
    }
}
