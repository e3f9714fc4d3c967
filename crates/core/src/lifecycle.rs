//! Lifecycles: the stages of a kind of work, and the moves between them that are allowed.
//!
//! A task pins its lifecycle when it is submitted, as it pins its retry policy. The deciders ask
//! [`Lifecycle::allows`] on every store and for every client, so nobody can skip a stage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, Problem};
use crate::limits::{LIFECYCLE_BYTES_MAX, LIFECYCLE_MOVES_MAX, LIFECYCLE_STAGES_MAX};
use crate::names::Name;
use crate::task::{Status, Task};

/// The stages of a task and the moves between them.
///
/// A claim puts a task into the first stage. Its holder moves it along, and completes it from a
/// stage that may complete. From every stage it may fail or be cancelled.
///
/// ```
/// use plimsoll_core::lifecycle::{Lifecycle, Phase, Stage};
/// use plimsoll_core::Name;
///
/// let review = Lifecycle::new([
///     Stage::new("drafting")?.to("checking")?,
///     Stage::new("checking")?.to("drafting")?.completes(),
/// ])?;
/// let stage = |text| Name::new(text).map(Phase::Stage);
/// assert_eq!(review.first().as_str(), "drafting");
/// assert!(review.allows(&stage("checking")?, &Phase::Completed));
/// assert!(!review.allows(&stage("drafting")?, &Phase::Completed));
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stage>", into = "Vec<Stage>")]
pub struct Lifecycle {
    /// The first one is where a claim begins. Shared, because every task of a kind has the same.
    stages: Arc<[Stage]>,
}

/// One stage, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: Name,
    /// The stages that may follow.
    pub next: Vec<Name>,
    /// Whether the task may complete in it.
    pub completes: bool,
}

impl Stage {
    /// A stage that leads nowhere yet.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        Ok(Self {
            name: Name::for_field("stage", name)?,
            next: Vec::new(),
            completes: false,
        })
    }

    /// One more stage may follow.
    pub fn to(mut self, next: impl AsRef<str>) -> Result<Self, Invalid> {
        self.next.push(Name::for_field("next", next)?);
        Ok(self)
    }

    /// The task may complete in it.
    pub fn completes(mut self) -> Self {
        self.completes = true;
        self
    }
}

/// Where a task with a lifecycle is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// In the line, now or later.
    Pending,
    /// In the hands of a worker, in this stage.
    Stage(Name),
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
    /// It was called off.
    Cancelled,
}

impl Phase {
    /// Where this task is; `None` if it is claimed without a stage.
    pub fn of(task: &Task) -> Option<Self> {
        match task.status {
            Status::Scheduled | Status::Pending => Some(Self::Pending),
            Status::Claimed => task.stage.clone().map(Self::Stage),
            Status::Completed => Some(Self::Completed),
            Status::Failed => Some(Self::Failed),
            Status::Cancelled => Some(Self::Cancelled),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Stage(stage) => stage.as_str(),
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

impl Lifecycle {
    /// Checks the stages: each is named once, can be reached from the first, and leads only to
    /// stages that are there; one of them completes.
    pub fn new(stages: impl IntoIterator<Item = Stage>) -> Result<Self, Invalid> {
        let lifecycle = Self {
            stages: stages.into_iter().collect(),
        };
        check(&lifecycle.stages).map_err(|invalid| invalid.within("lifecycle"))?;
        Ok(lifecycle)
    }

    /// Stages in a row: each leads to the one after it, and the last one completes.
    ///
    /// ```
    /// use plimsoll_core::lifecycle::Lifecycle;
    /// let media = Lifecycle::row([
    ///     "validating", "planning", "downloading_inputs", "processing", "uploading_outputs",
    /// ])?;
    /// assert_eq!(media.stages().len(), 5);
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    pub fn row<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, Invalid> {
        let mut names = names.into_iter().peekable();
        let mut stages = Vec::new();
        while let Some(name) = names.next() {
            let stage = Stage::new(name)?;
            stages.push(match names.peek() {
                Some(next) => stage.to(next)?,
                None => stage.completes(),
            });
        }
        Self::new(stages)
    }

    /// The stage that a claim begins in.
    pub fn first(&self) -> &Name {
        // There is always one: `new` checks it.
        &self.stages[0].name
    }

    /// All stages, the first one first.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    fn stage(&self, name: &Name) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == *name)
    }

    /// Whether there is such a stage.
    pub fn has(&self, stage: &Name) -> bool {
        self.stage(stage).is_some()
    }

    /// Where a task may go from here.
    ///
    /// From `pending` a claim leads to the first stage, from `failed` a retry leads to `pending`.
    /// What has completed or was cancelled stays so: submit it again.
    ///
    /// That an attempt ends without an end of the task is no move, and needs no permission: a snooze, a
    /// release, a failure that is tried again, a lease or deadline that ran out, an operator's retry of a
    /// claimed task. All of these lead from any stage to `pending`, and the next claim to the first stage.
    pub fn allowed(&self, from: &Phase) -> Vec<Phase> {
        match from {
            Phase::Pending => vec![Phase::Stage(self.first().clone()), Phase::Cancelled],
            Phase::Stage(name) => self.stage(name).map_or_else(Vec::new, |stage| {
                let next = stage.next.iter().cloned().map(Phase::Stage);
                let completed = stage.completes.then_some(Phase::Completed);
                next.chain(completed)
                    .chain([Phase::Failed, Phase::Cancelled])
                    .collect()
            }),
            Phase::Failed => vec![Phase::Pending],
            Phase::Completed | Phase::Cancelled => Vec::new(),
        }
    }

    /// Whether a task may go from one phase to another, in one move.
    pub fn allows(&self, from: &Phase, to: &Phase) -> bool {
        self.allowed(from).contains(to)
    }

    /// Whether moves lead from one stage to another, over others or none.
    pub fn leads(&self, from: &Name, to: &Name) -> bool {
        reached(&self.stages, from).contains(to)
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        size(&self.stages)
    }
}

fn size(stages: &[Stage]) -> usize {
    let names = stages
        .iter()
        .flat_map(|stage| [&stage.name].into_iter().chain(&stage.next));
    names.map(|name| name.as_str().len() + 1).sum()
}

impl TryFrom<Vec<Stage>> for Lifecycle {
    type Error = Invalid;
    fn try_from(stages: Vec<Stage>) -> Result<Self, Invalid> {
        Self::new(stages)
    }
}

impl From<Lifecycle> for Vec<Stage> {
    fn from(lifecycle: Lifecycle) -> Self {
        lifecycle.stages.to_vec()
    }
}

/// The stages that moves lead to from this one, itself included.
fn reached<'a>(stages: &'a [Stage], from: &'a Name) -> BTreeSet<&'a Name> {
    let next: BTreeMap<&Name, &[Name]> = (stages.iter())
        .map(|stage| (&stage.name, stage.next.as_slice()))
        .collect();
    let (mut reached, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(name) = open.pop() {
        for to in next.get(name).copied().unwrap_or_default() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

fn check(stages: &[Stage]) -> Result<(), Invalid> {
    let invalid = |field: &str, problem| Err(Invalid::new(field, problem));
    let Some(first) = stages.first() else {
        return invalid("stages", Problem::Empty);
    };
    let many = |field, count, max| match count > max {
        true => invalid(field, Problem::TooMany { count, max }),
        false => Ok(()),
    };
    many("stages", stages.len(), LIFECYCLE_STAGES_MAX)?;
    let moves = stages.iter().map(|stage| stage.next.len()).sum();
    many("moves", moves, LIFECYCLE_MOVES_MAX)?;
    let (bytes, max) = (size(stages), LIFECYCLE_BYTES_MAX);
    if bytes > max {
        return invalid("stages", Problem::TooLong { bytes, max });
    }
    let mut names = BTreeSet::new();
    for stage in stages {
        let name = &stage.name;
        if Status::ALL
            .iter()
            .any(|status| status.as_str() == name.as_str())
        {
            let why = format!("{name} is the name of a status");
            return invalid("stages", Problem::Contradiction(why.into()));
        }
        if !names.insert(name) {
            return invalid("stages", Problem::Repeated(name.to_string()));
        }
    }
    for stage in stages {
        let mut seen = BTreeSet::new();
        let field = format!("stages.{}.next", stage.name);
        for to in &stage.next {
            if !seen.insert(to) {
                return invalid(&field, Problem::Repeated(to.to_string()));
            }
            if !names.contains(to) {
                let why = format!("there is no stage {to}");
                return invalid(&field, Problem::Contradiction(why.into()));
            }
        }
    }
    let reached = reached(stages, &first.name);
    if let Some(stage) = stages.iter().find(|stage| !reached.contains(&stage.name)) {
        let why = format!("no move leads to stage {}", stage.name);
        return invalid("stages", Problem::Contradiction(why.into()));
    }
    if !stages.iter().any(|stage| stage.completes) {
        let why = "a task must be able to complete in one of the stages".to_owned();
        return invalid("stages", Problem::Missing(why.into()));
    }
    Ok(())
}
