//! How often what the checkers wait for has happened: a rule that nothing comes near finds nothing.

use std::ops::AddAssign;

/// How often something happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Locks were taken.
    pub locks_taken: u64,
    /// Holders lost their locks because they did not renew them in time.
    pub locks_expired: u64,
    /// An operator took a lock away.
    pub locks_broken: u64,
    /// A lock went from one who released it to one who waited.
    pub hand_overs: u64,
    /// Writes under a lock came so late that another holder had written before.
    pub writes_refused: u64,
    /// Handlers asked for a stage, or for success, that their lifecycle does not allow.
    pub moves_refused: u64,
    /// Workers were marked as offline by others.
    pub workers_marked: u64,
    /// Tasks went to the archive.
    pub tasks_archived: u64,
    /// Lines of attempts that ended were stored.
    pub lines_stored: u64,
    /// Lines were lost with those who logged them.
    pub lines_lost: u64,
    /// States of jobs were written.
    pub states_written: u64,
    /// A state was written before, by the same event.
    pub states_repeated: u64,
    /// A state was refused because its job was deleted.
    pub states_refused: u64,
    /// Jobs were deleted.
    pub jobs_deleted: u64,
    /// Jobs went that had finished, and that nobody deletes.
    pub jobs_finished: u64,
    /// Jobs went that had not, because nobody wrote to them any more.
    pub jobs_silent: u64,
    /// Who followed states or records was too late, and was told everything again.
    pub replays_again: u64,
    /// Who followed states went on from a cursor.
    pub resumed: u64,
    /// Who followed states live came so far behind that it had to read the history by itself.
    pub lagged: u64,
    /// One of these found that what it had to read was not kept any more.
    pub overtaken: u64,
    /// The store answered again one who followed states.
    pub reconnected: u64,
    /// A subscription ended because the store was out of reach for too long.
    pub gave_up: u64,
    /// The history could not be read by one who followed it.
    pub histories_unread: u64,
    /// The states of a job were read and compared.
    pub aggregates_read: u64,
    /// All partitions were where a barrier waited for them.
    pub barriers_reached: u64,
    /// A partition failed while a barrier waited.
    pub barriers_failed: u64,
    /// A barrier was not reached in time, and said who was behind.
    pub barriers_late: u64,
    /// A barrier still waited after everything was told that its process had to be told of.
    pub barriers_waiting: u64,
    /// A record was not as somebody expected.
    pub swaps_refused: u64,
    /// The lease of a task ran out.
    pub leases_expired: u64,
    /// Somebody submitted under a key that stood for a task already.
    pub keys_shared: u64,
    /// Calls of clients were put in an order.
    pub calls_ordered: u64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.locks_taken += other.locks_taken;
        self.locks_expired += other.locks_expired;
        self.locks_broken += other.locks_broken;
        self.hand_overs += other.hand_overs;
        self.writes_refused += other.writes_refused;
        self.moves_refused += other.moves_refused;
        self.workers_marked += other.workers_marked;
        self.tasks_archived += other.tasks_archived;
        self.lines_stored += other.lines_stored;
        self.lines_lost += other.lines_lost;
        self.states_written += other.states_written;
        self.states_repeated += other.states_repeated;
        self.states_refused += other.states_refused;
        self.jobs_deleted += other.jobs_deleted;
        self.jobs_finished += other.jobs_finished;
        self.jobs_silent += other.jobs_silent;
        self.replays_again += other.replays_again;
        self.resumed += other.resumed;
        self.lagged += other.lagged;
        self.overtaken += other.overtaken;
        self.reconnected += other.reconnected;
        self.gave_up += other.gave_up;
        self.histories_unread += other.histories_unread;
        self.aggregates_read += other.aggregates_read;
        self.barriers_reached += other.barriers_reached;
        self.barriers_failed += other.barriers_failed;
        self.barriers_late += other.barriers_late;
        self.barriers_waiting += other.barriers_waiting;
        self.swaps_refused += other.swaps_refused;
        self.leases_expired += other.leases_expired;
        self.keys_shared += other.keys_shared;
        self.calls_ordered += other.calls_ordered;
    }
}
