//! The retention that is stored with a namespace, for every sweeper that was not given another one.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::limits::DURATION_MAX;
use plimsoll_core::record::{Fields, Record};
use plimsoll_core::store::check::Check;
use plimsoll_core::store::{Put, Write};
use plimsoll_core::task::Status;
use plimsoll_core::{Key, Name, Result, StoreExt};
use serde_json::json;

use super::Retention;
use crate::fields::Reader;
use crate::{Engine, Tasks};

const KEY: &str = "plimsoll.retention";

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
        let (store, tasks) = (self.engine.store(), Tasks::new(self.engine.clone()));
        let key = Key::new(KEY)?;
        let record = tasks.patiently(|| store.record(&key)).await?;
        let retention = record.as_ref().map(read).transpose()?;
        if let Some(retention) = &retention {
            // Somebody else may have written it.
            let checked = retention.check(self.engine.store().limits());
            checked.map_err(|invalid| {
                plimsoll_core::Error::Corrupt(format!("record {KEY}: {invalid}").into())
            })?;
        }
        Ok(retention)
    }

    /// Stores it. Sweepers go by it from their next pass on, within a minute. Times are kept to the
    /// millisecond.
    pub async fn set(&self, retention: &Retention) -> Result<()> {
        retention.check(self.engine.store().limits())?;
        let put = Put::new(Key::new(KEY)?, fields(retention)?);
        self.write(Write::Put(put)).await
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
fn times(retention: &Retention) -> [(&'static str, Option<Duration>); 5] {
    [
        ("archived_ms", retention.archived),
        ("jobs_ms", retention.jobs),
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
        Ok::<_, plimsoll_core::Error>(millis.map(Duration::from_millis))
    };
    Ok(Retention {
        tasks: (tasks.into_iter())
            .map(|(status, age)| (status, Duration::from_millis(age)))
            .collect(),
        archive: read.json("archive")?,
        elsewhere: read.json("elsewhere")?,
        archived: time("archived_ms")?,
        jobs: time("jobs_ms")?,
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
        match self.jobs {
            Some(jobs) if jobs > DURATION_MAX => {
                let problem = Problem::OutOfRange {
                    value: format!("{jobs:?}"),
                    min: format!("{:?}", Duration::ZERO),
                    max: format!("{DURATION_MAX:?}"),
                };
                Err(Invalid::new("jobs", problem))
            }
            Some(_) | None => Ok(()),
        }
    }
}
