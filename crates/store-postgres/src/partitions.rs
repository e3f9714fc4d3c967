//! The months of finished tasks: a partition of `tasks_done` each.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use tokio_postgres::types::Type;

use crate::call::{Call, Sql, params};
use crate::codec::column;
use crate::error::Answer;
use crate::session::Session;

/// How many months after this one have their partition before they begin.
const AHEAD: i32 = 2;
/// How often a process looks after them.
const PAUSE: Duration = Duration::from_secs(60 * 60);

static KEEP: Sql = Sql {
    text: "SELECT made, dropped FROM plimsoll.keep_partitions($1)",
    types: &[Type::INT4],
};

/// Makes the partitions of the next months, and drops those of earlier ones that are empty. It
/// waits for nobody: what others are in the way of is done the next time.
pub(crate) async fn keep(session: &mut Session) -> Answer<()> {
    let found = session.run(&[Call::new(&KEEP, params![AHEAD])]).await?;
    let (made, dropped): (i32, i32) = (column(&found[0][0], 0)?, column(&found[0][0], 1)?);
    if made + dropped > 0 {
        tracing::info!(made, dropped, "partitions of finished tasks");
    }
    Ok(())
}

/// When this process looked last.
#[derive(Debug, Default)]
pub(crate) struct Look {
    timer: SystemClock,
    last: Mutex<Option<Duration>>,
}

impl Look {
    /// Whether it is time to look again. Only one caller is told so.
    pub(crate) fn is_due(&self) -> bool {
        let now = self.timer.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.saturating_sub(last) >= PAUSE);
        if due {
            *last = Some(now);
        }
        due
    }
}
