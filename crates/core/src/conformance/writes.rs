//! Writes in a word, for cases that put them into commits.

use std::time::Duration;

use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::{Fence, TaskId};
use crate::log::NewLine;
use crate::names::Key;
use crate::record::fields;
use crate::store::{Cancel, Ending, Expire, Log, Put, Retry, Settle, Write};
use crate::task::{Holder, NewTask};

/// Puts a record with one field, `value`.
pub(super) fn put(key: &str, value: &'static str) -> Result<Write> {
    let value = fields([("value", value)])?;
    Ok(Write::Put(Put::new(Key::new(key)?, value)))
}

pub(super) fn submit(task: NewTask) -> Write {
    Write::Submit(Box::new(task))
}

pub(super) fn settle(holder: &Holder, how: Ending) -> Write {
    let holder = holder.clone();
    Write::Settle(Settle { holder, how })
}

pub(super) fn cancel(task: TaskId, reason: &str) -> Write {
    let reason = Some(reason.to_owned());
    Write::Cancel(Cancel { task, reason })
}

/// Retries a task without delay.
pub(super) fn retry(task: TaskId, force: bool) -> Write {
    let delay = Duration::ZERO;
    Write::Retry(Retry { task, force, delay })
}

/// Expires a lease, without jitter.
pub(super) fn expire(task: TaskId, fence: Fence) -> Write {
    Write::Expire(Expire {
        task,
        fence,
        jitter: Default::default(),
    })
}

pub(super) fn log(holder: &Holder, lines: &[NewLine]) -> Write {
    Write::Log(Log {
        holder: holder.clone(),
        lines: lines.to_vec(),
    })
}

pub(super) fn open(group: NewGroup) -> Write {
    Write::OpenGroup(Box::new(group))
}
