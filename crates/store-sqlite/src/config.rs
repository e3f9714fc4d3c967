//! How to open a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Limits;
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::Durability;

/// How to open a file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file. It is created if it is not there.
    pub path: PathBuf,
    /// What has happened when a write is acknowledged: [`Durability::Disk`], or, if asked for by
    /// name, [`Durability::System`].
    pub durability: Durability,
    /// The limits on inputs.
    pub limits: Limits,
    /// The clock that leases, retries and expiry go by.
    pub clock: Arc<dyn Clock>,
    /// How many reads may run at the same time.
    pub readers: usize,
    /// How often to look for what other processes wrote.
    pub poll: Duration,
    /// How many calls may wait for the writer, and how many for a reader, before callers have to
    /// wait in turn.
    pub queue_max: usize,
    /// About how many bytes may wait for the writer before callers have to wait in turn.
    pub queue_bytes_max: usize,
    /// How long to wait for a foreign process that holds the file. Who opens it may wait twice as long: for a turn, and
    /// then for the file.
    pub busy_timeout: Duration,
}

impl Config {
    /// This file, durable on disk, with everything else at its default.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Disk,
            limits: Limits::default(),
            clock: Arc::new(SystemClock::new()),
            readers: 2,
            poll: Duration::from_millis(100),
            queue_max: 4_096,
            queue_bytes_max: 64 * 1024 * 1024,
            busy_timeout: Duration::from_secs(5),
        }
    }
}
