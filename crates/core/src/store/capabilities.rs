//! Where stores differ.

use serde::{Deserialize, Serialize};

/// What a store can do beyond what every store must. Each `false` relaxes a promise that names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The name of the store.
    pub store: String,
    /// What has happened when a write is acknowledged.
    pub durability: Durability,
    /// History has one order for all keys. Otherwise it is ordered for each key alone.
    pub total_order: bool,
    /// A group drains in the commit that completes it. Otherwise at the latest in the next sweep.
    pub joins_in_commit: bool,
    /// Within a priority, tasks are claimed in the order in which they became runnable. Otherwise
    /// about in this order, with tasks that wait for long never overtaken without end.
    pub first_in_first_out: bool,
    /// Listeners are woken by other processes, too. Otherwise they have to poll.
    pub remote_wakeups: bool,
    /// Indexes on integer fields of records can be declared. Otherwise whatever has to do with them
    /// answers `Unsupported`.
    pub integer_indexes: bool,
    /// Calls that write are carried out beside each other. Otherwise one after another.
    pub concurrent_writes: bool,
}

/// What has happened to a write when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// It is in the memory of this process.
    Process,
    /// It is with the operating system: it survives the process, not the machine.
    System,
    /// It is on disk.
    Disk,
    /// It is on the disks of a majority.
    Majority,
}

/// A capability that a conformance case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// See [`Capabilities::total_order`].
    TotalOrder,
    /// See [`Capabilities::joins_in_commit`].
    JoinsInCommit,
    /// See [`Capabilities::first_in_first_out`].
    FirstInFirstOut,
    /// See [`Capabilities::integer_indexes`].
    IntegerIndexes,
}

impl Capabilities {
    /// Whether the store has this capability.
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::TotalOrder => self.total_order,
            Capability::JoinsInCommit => self.joins_in_commit,
            Capability::FirstInFirstOut => self.first_in_first_out,
            Capability::IntegerIndexes => self.integer_indexes,
        }
    }
}
