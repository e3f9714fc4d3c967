//! Where and with what measures a run takes place.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::unix::pipe;

use super::ChaosError;

/// How long leases and locks last. Short, so that it does not take long until others take over.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// How many locks there are.
pub(super) const LOCKS: u64 = 2;
/// How many commands each worker runs at a time.
pub(super) const CONCURRENCY: u64 = 2;
/// A worker counts as offline after three of these.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long commands may go on after they were told to stop.
pub(super) const GRACE: Duration = Duration::from_millis(500);
/// How long commands may go on after their worker was told to drain.
pub(super) const DRAIN: Duration = Duration::from_secs(3);
/// How long a worker, or what it has left, may take to be gone: much longer than it should.
pub(super) const GONE_WITHIN: Duration = Duration::from_secs(10);
/// How long a drain may take.
pub(super) const DRAINED_WITHIN: Duration = Duration::from_secs(20);

/// What every process of a run must know.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) store: String,
    pub(super) namespace: String,
    /// Everything that is written besides the store is in here.
    pub(super) folder: PathBuf,
    /// The mark of all processes.
    pub(super) mark: String,
}

/// The standard input of a process that ends with it.
pub(super) struct Input(pipe::Receiver);

impl Input {
    pub(super) fn has_ended(&mut self) -> bool {
        self.0.try_read(&mut [0]).is_ok_and(|read| read == 0)
    }
}

pub(super) fn end_of_input() -> Result<Input, ChaosError> {
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.and_then(pipe::Receiver::from_owned_fd);
    input.map(Input).map_err(ChaosError::Process)
}
