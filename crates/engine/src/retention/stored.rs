//! The retention that is stored with a namespace, for every sweeper that was not given another one.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::limits::DURATION_MAX;
use plimsoll_core::record::{Fields, Record};
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Commit, Guard, Put, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Key, Name, Result, Revision, StoreExt};
use serde_json::json;

use super::Retention;
use crate::answer::refused_by;
use crate::contest::Contest;
use crate::fields::Reader;
use crate::{Engine, Tasks};

const KEY: &str = "plimsoll.retention";
/// No silence: somebody may be about to say something.
const SILENT_MIN: Duration = Duration::from_secs(1);

/// The client of the retention that is stored with a namespace, as the record `plimsoll.retention`.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, Retention};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let retention = Retention { history: Some(Duration::from_secs(3_600)), ..Retention::default() };
/// engine.retention().set(&retention).await?;
/// assert_eq!(engine.retention().get().await?, Some(retention));
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct StoredRetention {
    engine: Engine,
}

impl StoredRetention {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// What is stored; `None`: nothing, so that [`Retention::default`] applies. A record that cannot be
    /// read is `Corrupt`, and nothing is removed by it.
    pub async fn get(&self) -> Result<Option<Retention>> {
        Ok(self.find().await?.map(|(_, retention)| retention))
    }

    async fn find(&self) -> Result<Option<(Revision, Retention)>> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let key = Key::new(KEY)?;
        let Some(record) = tasks.patiently(|| store.record(&key)).await? else {
            return Ok(None);
        };
        let retention = read(&record)?;
        // Somebody else may have written it.
        let checked = retention.check(store.limits());
        checked.map_err(|invalid| Error::Corrupt(format!("record {KEY}: {invalid}").into()))?;
        Ok(Some((record.revision, retention)))
    }

    /// Stores it. Sweepers go by it from their next pass on, within a minute. Times are kept to the
    /// millisecond.
    pub async fn set(&self, retention: &Retention) -> Result<()> {
        retention.check(self.engine.store().limits())?;
        let put = Put::new(Key::new(KEY)?, fields(retention)?);
        self.write(Write::Put(put)).await
    }

    /// Changes what is stored, or the default if nothing is: what somebody else changes meanwhile stays changed. After
    /// some tries in vain it is `contended`. Answers what was said.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Retention};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let an_hour = Some(Duration::from_secs(3_600));
    /// let said = engine.retention().update(|before| Retention { history: an_hour, ..before }).await?;
    /// assert_eq!(said, Retention { history: an_hour, ..Retention::default() });
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn update(
        &self,
        mut change: impl FnMut(Retention) -> Retention,
    ) -> Result<Retention> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let (key, mut contest) = (Key::new(KEY)?, Contest::default());
        loop {
            let (guard, before) = match self.find().await? {
                Some((revision, before)) => (Guard::RecordAt(key.clone(), revision), before),
                None => (Guard::RecordAbsent(key.clone()), Retention::default()),
            };
            let retention = change(before);
            retention.check(store.limits())?;
            let put = Write::Put(Put::new(key.clone(), fields(&retention)?));
            let id = self.engine.ids().commit();
            let commit = Commit::of(put).guard(guard).id(id);
            match tasks.patiently(|| store.commit_one(commit.clone())).await {
                Ok(_) => return Ok(retention),
                Err(error) if refused_by(&error).is_some() => contest.again(&self.engine).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what is stored: the default applies again.
    pub async fn clear(&self) -> Result<()> {
        self.write(Write::Delete(Key::new(KEY)?)).await
    }

    async fn write(&self, write: Write) -> Result<()> {
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let written = tasks.patiently(|| store.write(write.clone())).await;
        written.map(drop)
    }
}

/// Times that may be absent, which is for ever.
fn times(retention: &Retention) -> [(&'static str, Option<Duration>); 6] {
    [
        ("archived_ms", retention.archived),
        ("jobs_ms", retention.jobs),
        ("silent_jobs_ms", retention.silent_jobs),
        ("groups_ms", retention.groups),
        ("history_ms", retention.history),
        ("logs_ms", retention.logs),
    ]
}

fn fields(retention: &Retention) -> Result<Fields, Invalid> {
    let tasks = retention.tasks.iter();
    let tasks: BTreeMap<_, _> = tasks.map(|(status, age)| (status, millis(*age))).collect();
    let mut fields = plimsoll_core::record::fields([
        ("tasks_ms", json!(tasks).to_string()),
        ("archive", json!(retention.archive).to_string()),
        ("elsewhere", retention.elsewhere.to_string()),
    ])?;
    for (name, age) in times(retention) {
        if let Some(age) = age {
            fields.insert(Name::new(name)?, millis(age).to_string().into());
        }
    }
    Ok(fields)
}

fn read(record: &Record) -> Result<Retention> {
    let read = Reader(record);
    let tasks: BTreeMap<Status, u64> = read.json("tasks_ms")?;
    let time = |name: &str| {
        let millis = read.optional(name, Reader::number)?;
        Ok::<_, Error>(millis.map(Duration::from_millis))
    };
    Ok(Retention {
        tasks: (tasks.into_iter())
            .map(|(status, age)| (status, Duration::from_millis(age)))
            .collect(),
        archive: read.json("archive")?,
        elsewhere: read.json("elsewhere")?,
        archived: time("archived_ms")?,
        jobs: time("jobs_ms")?,
        silent_jobs: time("silent_jobs_ms")?,
        groups: time("groups_ms")?,
        history: time("history_ms")?,
        logs: time("logs_ms")?,
    })
}

fn millis(age: Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

impl Check for Retention {
    fn check(&self, limits: &plimsoll_core::Limits) -> Result<(), Invalid> {
        // Also of those that are archived first.
        let mut step = self.step(1);
        step.tasks.clone_from(&self.tasks);
        step.check(limits)?;
        if let Some(status) = self.archive.iter().find(|status| !status.is_terminal()) {
            let why = format!("{status} is not the status of a finished task");
            return Err(Invalid::new("archive", Problem::Contradiction(why.into())));
        }
        if let Some(archived) = self.archived {
            let put = Put::new(Key::new(KEY)?, Fields::new()).ttl(archived);
            Write::Put(put)
                .check(limits)
                .map_err(|invalid| Invalid::new("archived", invalid.problem))?;
        }
        let jobs = ("jobs", Duration::ZERO, self.jobs);
        let silent = ("silent_jobs", SILENT_MIN, self.silent_jobs);
        for (field, min, age) in [jobs, silent] {
            if let Some(age) = age.filter(|age| !(min..=DURATION_MAX).contains(age)) {
                let problem = Problem::OutOfRange {
                    value: format!("{age:?}"),
                    min: format!("{min:?}"),
                    max: format!("{DURATION_MAX:?}"),
                };
                return Err(Invalid::new(field, problem));
            }
        }
        Ok(())
    }
}
