//! Lines of a log, gathered so that ten thousand of them do not cost ten thousand commits.
//!
//! Lines stay in the buffer until the store has them, in the order in which they were appended, and
//! each has an id: whoever is interrupted while sending sends them again, and nothing is stored
//! twice or lost.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::error::{LeaseLost, Lost};
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::store::check::Check;
use plimsoll_core::{Error, LineId, Result};
use tokio::sync::Notify;

use crate::tasks::Hold;

/// How long a line waits for others at most.
const LINGER: Duration = Duration::from_millis(100);
/// How many lines are gathered at most.
const LINES_MAX: usize = 1_000;
/// How many bytes are gathered at most, unless it is one line.
const BYTES_MAX: usize = 256 * 1024;

/// The log of a task, for its holder.
///
/// Lines are gathered, and stored together: when there are many of them, when the first has waited
/// for a tenth of a second, when somebody asks for it, and with the answer of the handler. So what
/// was logged is stored before the attempt has ended. Whoever logs faster than the store can take
/// waits.
///
/// A line that is wrong is refused at once. That the task is lost is told when lines are stored, and
/// to whoever appends after that.
///
/// In a worker, [`Context::job_log`](crate::worker::Context::job_log) is kept flushed. Elsewhere,
/// call [`flush`](Self::flush) before the task is settled, or lines are lost.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use plimsoll_core::{Memory, Namespace, log::Level, store::Logs};
/// # use plimsoll_engine::{Engine, Tasks};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// # let tasks = Tasks::new(Engine::new(store));
/// let id = tasks.submit(tasks.task("media", "transcode", "clip-7")?).await?.id;
/// let held = tasks.claim(id, &tasks.worker("w1")?, Duration::from_secs(30)).await?;
/// let log = held.job_log();
/// for frame in 0..100 {
///     log.log(Level::Debug, format!("frame {frame}")).await?;
/// }
/// log.flush().await?;
/// held.complete("").await?;
/// let page = tasks.logs(Logs { task: id, level: Level::Debug, cursor: None, limit: 200 }).await?;
/// assert_eq!(page.lines.len(), 100);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct JobLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    hold: Hold,
    buffer: Mutex<Buffer>,
    /// Held by the one who sends: lines are stored in order.
    sending: tokio::sync::Mutex<()>,
    /// There is a line where there was none.
    begun: Notify,
}

#[derive(Debug)]
struct Buffer {
    lines: VecDeque<NewLine>,
    bytes: usize,
    /// Why nothing can be stored any more.
    refused: Option<Error>,
}

impl JobLog {
    pub(crate) fn new(hold: Hold) -> Self {
        let buffer = Buffer {
            lines: VecDeque::new(),
            bytes: 0,
            refused: None,
        };
        Self {
            inner: Arc::new(Inner {
                hold,
                buffer: Mutex::new(buffer),
                sending: tokio::sync::Mutex::new(()),
                begun: Notify::new(),
            }),
        }
    }

    /// A new id for a line.
    pub fn line_id(&self) -> LineId {
        self.hold().tasks.engine.ids().line()
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.inner.hold
    }

    /// Appends a line.
    pub async fn log(&self, level: Level, message: impl Into<String>) -> Result<()> {
        let line = NewLine::new(self.line_id(), level, message);
        self.append(line).await
    }

    /// Appends a line, with all that can be said in one. It has the stage of the task unless it
    /// says another.
    pub async fn append(&self, mut line: NewLine) -> Result<()> {
        let limits = self.hold().tasks.store().limits();
        line.check(limits)?;
        if line.stage.is_none() {
            line.stage = self.hold().stage_now().await;
        }
        let lines_max = LINES_MAX.min(limits.log_lines_max);
        let bytes_max = BYTES_MAX.min(limits.commit_bytes_max / 4);
        loop {
            {
                let mut buffer = self.buffer();
                if let Some(error) = &buffer.refused {
                    return Err(error.clone());
                }
                let fits =
                    buffer.lines.len() < lines_max && buffer.bytes + line.size() <= bytes_max;
                if fits || buffer.lines.is_empty() {
                    self.push(&mut buffer, line);
                    return Ok(());
                }
            }
            self.flush().await?;
        }
    }

    /// Appends a line of the engine's own, before anybody else has appended one.
    pub(crate) fn note(&self, level: Level, message: String) {
        let line = NewLine::new(self.line_id(), level, message);
        self.push(&mut self.buffer(), line);
    }

    fn push(&self, buffer: &mut Buffer, line: NewLine) {
        if buffer.lines.is_empty() {
            self.inner.begun.notify_one();
        }
        buffer.bytes += line.size();
        buffer.lines.push_back(line);
    }

    /// Waits until all lines that were appended before are stored.
    pub async fn flush(&self) -> Result<()> {
        let _turn = self.inner.sending.lock().await;
        let batch: Vec<NewLine> = {
            let buffer = self.buffer();
            match &buffer.refused {
                Some(error) => return Err(error.clone()),
                None => buffer.lines.iter().cloned().collect(),
            }
        };
        if batch.is_empty() {
            return Ok(());
        }
        let sent: Vec<LineId> = batch.iter().map(|line| line.id).collect();
        match self.hold().log_lines(batch).await {
            Ok(()) => {
                let mut buffer = self.buffer();
                // Somebody may have taken them meanwhile: only what was sent goes.
                for id in sent {
                    if let Some(line) = buffer.lines.pop_front_if(|line| line.id == id) {
                        buffer.bytes -= line.size();
                    }
                }
                Ok(())
            }
            Err(error) => {
                // Otherwise they stay, to be sent again.
                if matches!(
                    error,
                    Error::LeaseLost(_) | Error::Closed | Error::Invalid(_)
                ) {
                    let mut buffer = self.buffer();
                    buffer.lines.clear();
                    buffer.bytes = 0;
                    buffer.refused = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Stores lines that have waited long enough, for as long as it is polled.
    pub async fn keep_flushing(&self) -> Infallible {
        loop {
            self.inner.begun.notified().await;
            let clock = self.hold().tasks.engine.clock();
            while self.has_lines() {
                clock.sleep(LINGER).await;
                // Whoever logs next, or settles, is told what is wrong.
                self.flush().await.ok();
            }
        }
    }

    fn has_lines(&self) -> bool {
        !self.buffer().lines.is_empty()
    }

    /// What is not known to be stored. The attempt has ended: what is appended later is refused.
    pub(crate) fn take(&self) -> Vec<NewLine> {
        let holder = self.hold().holder();
        let over = LeaseLost {
            task: holder.task,
            fence: holder.fence,
            why: Lost::AttemptOver,
        };
        let mut buffer = self.buffer();
        buffer.refused.get_or_insert_with(|| over.into());
        buffer.bytes = 0;
        buffer.lines.drain(..).collect()
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        (self.inner.buffer.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}
