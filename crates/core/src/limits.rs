//! How large an input may be. Names and keys have fixed limits; the rest can be configured.

use std::time::Duration;

/// Longest key, prefix, idempotency key and group id, in bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Longest name (field, queue, kind, owner, label, stage, worker), in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// Longest duration that any input may carry: a hundred years.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// Longest lease: a week.
pub const LEASE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Shortest lease and shortest record TTL.
pub const LEASE_MIN: Duration = Duration::from_millis(1);
/// How many errors a task keeps: those of its last attempts.
pub const ERRORS_KEPT: usize = 20;
/// How much of each of these errors is kept, in bytes.
pub const ERROR_BYTES_KEPT: usize = 4 * 1024;
/// How many members and arrivals a group may have.
pub const GROUP_MAX: u64 = 1_000_000_000_000;
/// How deep tasks may be nested in tasks by `on_failure`.
pub const NESTING_MAX: usize = 4;
/// How many stages a lifecycle may have.
pub const LIFECYCLE_STAGES_MAX: usize = 64;
/// How many moves between its stages.
pub const LIFECYCLE_MOVES_MAX: usize = 256;
/// About how many bytes it may take: it is stored with every task.
pub const LIFECYCLE_BYTES_MAX: usize = 8 * 1024;
/// How long a store remembers a commit id or a claim request, at least.
pub const MEMORY: Duration = Duration::from_secs(10 * 60);
/// How many rows a filtered read looks at before it answers with what it has.
pub const ROWS_EXAMINED_MAX: usize = 10_000;
/// How many indexes a namespace may have: every write of a record looks at each.
pub const INDEXES_MAX: usize = 16;
/// About how many bytes a page may hold.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The configurable limits of a store. Every store checks them before it writes anything.
///
/// ```
/// use plimsoll_core::Limits;
/// let limits = Limits { payload_bytes_max: 64 * 1024, ..Limits::default() };
/// assert_eq!(limits.commit_writes_max, 200);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload, result and checkpoint of a task, each.
    pub payload_bytes_max: usize,
    /// A task to submit with all that is nested in it; the tasks of a group together.
    pub task_bytes_max: usize,
    /// Value of one field.
    pub value_bytes_max: usize,
    /// Fields of one record, attributes or labels of one task.
    pub fields_max: usize,
    /// All fields of one record together.
    pub record_bytes_max: usize,
    /// Free text: reasons, error and log messages, progress messages.
    pub text_bytes_max: usize,
    /// Guards and writes of one commit, each.
    pub commit_writes_max: usize,
    /// Everything a commit carries.
    pub commit_bytes_max: usize,
    /// Commits of one call.
    pub commits_max: usize,
    /// Everything the commits of one call carry.
    pub call_bytes_max: usize,
    /// Rows of one page, keys or ids of one read, tasks of one claim.
    pub page_max: usize,
    /// Lanes of one claim or peek.
    pub lanes_max: usize,
    /// Leases of one renewal.
    pub leases_max: usize,
    /// Lines of one append to a job log.
    pub log_lines_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 256 * 1024,
            task_bytes_max: 512 * 1024,
            value_bytes_max: 256 * 1024,
            fields_max: 256,
            record_bytes_max: 256 * 1024,
            text_bytes_max: 64 * 1024,
            commit_writes_max: 200,
            commit_bytes_max: 4 * 1024 * 1024,
            commits_max: 10_000,
            call_bytes_max: 64 * 1024 * 1024,
            page_max: 1_000,
            lanes_max: 64,
            leases_max: 10_000,
            log_lines_max: 1_000,
        }
    }
}
