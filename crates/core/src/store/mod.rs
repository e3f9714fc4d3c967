//! The storage port: one trait that every store implements and everything else is written against.
//!
//! Each method lists its promises. Each promise has a case in the conformance suite that fails
//! when a store breaks it. What a store cannot do, it says in [`Capabilities`], and a promise
//! that depends on one names it.
//!
//! A store is bound to one namespace. It checks inputs with [`check`], reads the rows that a
//! commit needs, lets [`crate::decide`] decide, and applies the outcome as a whole. It never
//! decides by itself.

mod capabilities;
pub mod check;
mod commit;
mod ext;
mod index;
mod pager;
mod read;
mod select;

use async_trait::async_trait;

pub use capabilities::{Capabilities, Capability, Durability};
pub use commit::{
    Amend, Cancel, Commit, Ending, Expire, FailRetry, GroupCounts, Guard, Log, Merge, Outcome, Put,
    Receipt, Retry, Settle, SubmitOutcome, Submitted, Write,
};
pub use ext::{StoreExt, Swept};
pub use index::{DeclareIndex, Declared, DropIndex, Dropped, Range};
pub use pager::Pager;
pub use read::{
    ChangePage, Changes, Counts, Cursor, Get, Groups, LaneCounts, List, LogPage, Logs, Page, Peek,
    Scan, Selector, Start, TaskByKey, TaskFilter, Tasks,
};
pub use select::{
    Claim, Claimed, Compact, Compacted, Due, DueNow, Exchange, Exchanged, Pick, Renew, Renewal,
};

use crate::error::Result;
use crate::group::Group;
use crate::limits::Limits;
use crate::names::Namespace;
use crate::record::Record;
use crate::task::Task;
use crate::time::Timestamp;
use crate::wake::Listener;

/// A namespace of records, tasks, groups and history.
///
/// # Promise
/// These hold for every method:
/// - Bad input answers `Invalid`, names the field and the limit, and changes nothing.
/// - After [`close`](Self::close), every call answers `Closed`.
/// - `Unavailable` says whether the call may have taken effect. If nobody knows, repeating the
///   same call is safe: nothing is counted, submitted or taken twice. A submit that created its
///   task, settles alone, a claim of the next and a commit with an id answer what the first one
///   did. Anything else is decided anew, and a write that sets something sets it again: where
///   others may have written in between, give the commit an id or a guard.
/// - A future that is dropped either has no effect or its whole effect; of many commits, each.
/// - Time is the store's: its server's clock, or the clock it was opened with.
/// - Nothing of another namespace is ever seen or changed.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The namespace this store is bound to.
    fn namespace(&self) -> &Namespace;

    /// What inputs must keep. Whoever splits bulk work goes by these.
    fn limits(&self) -> &Limits;

    /// What this store can do beyond what every store must.
    fn capabilities(&self) -> Capabilities;

    /// Reads records by key.
    ///
    /// # Promise
    /// - Answers one record or `None` for each key, in the order asked, also for repeated keys.
    /// - All are read at one moment, which shows every write acknowledged before the call.
    /// - A record that has expired is not there, whether swept or not.
    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>>;

    /// Reads records by prefix.
    ///
    /// # Promise
    /// - Answers in the byte order of keys, at most `limit` a page, and where to go on. By range:
    ///   in the order of values, then keys.
    /// - A key that exists during the whole scan is answered exactly once, however many pages.
    /// - All filters must match, as the type they declare; a field that is absent or not of that
    ///   type does not match.
    /// - A record that has expired is not there, whether swept or not.
    /// - The prefix is text, whatever it means to the store's own language.
    /// - Shows every write acknowledged before the call; a page holds about 4 MiB at most.
    /// - A cursor goes on through any handle; one that this store did not make for this prefix and
    ///   range answers `Invalid`.
    /// - By range (`integer_indexes`): reads only what the index has in the range, however many
    ///   records there are. A page examines a bounded number of rows: it may be short or empty and
    ///   still say where to go on. A record that is in the range with the same value during the
    ///   whole scan is answered exactly once. An index that is not declared answers
    ///   `NotFound::Index`, one that is not ready `IndexNotReady`.
    async fn scan(&self, scan: Scan) -> Result<Page<Record>>;

    /// Declares an index on an integer field, for scans by range. Repeated until it is ready.
    ///
    /// # Promise
    /// - Stored with the namespace: from then on every write of a record through any handle keeps
    ///   the index, in the same commit. Declaring again changes nothing that is there.
    /// - Looks at no more than `limit` existing records a call, and goes on where the last call
    ///   ended, whoever made it; answers `ready` when all are in. Writes meanwhile go on as ever,
    ///   and are in the index as they should be.
    /// - A record is in the index as long as its key has the prefix and the field is an integer, as
    ///   [`integer`](crate::record::integer) reads it. Any number of indexes may have it.
    /// - One index more than [`INDEXES_MAX`](crate::limits::INDEXES_MAX) answers `Invalid`.
    /// - Without [`Capabilities::integer_indexes`], answers `Unsupported`.
    /// - Appends nothing to the history.
    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared>;

    /// Drops an index.
    ///
    /// # Promise
    /// - At once it is not declared any more, and counts no more; records stay as they are. What takes
    ///   longer than others should wait is left to [`compact`](Self::compact).
    /// - Declared again, it is filled again.
    /// - An index that is not declared is none that existed, and no error.
    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped>;

    /// Lists the indexes of the namespace, by prefix and field.
    async fn indexes(&self) -> Result<Vec<Declared>>;

    /// Reads tasks by id.
    ///
    /// # Promise
    /// - Answers one task or `None` for each id, in the order asked.
    /// - Shows every write acknowledged before the call.
    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>>;

    /// Reads the task that an idempotency key was last given to.
    ///
    /// # Promise
    /// - Answers that task also when it has ended, and `None` once it is deleted.
    /// - A key of another namespace is another key.
    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>>;

    /// Lists tasks by one indexed selector and further filters.
    ///
    /// # Promise
    /// - Answers in id order (by key prefix: in key order; by how long they were kept: the longest
    ///   kept first), at most `limit` a page.
    /// - A task that matches during the whole listing is answered exactly once.
    /// - A page examines a bounded number of rows and holds about 4 MiB at most: it may be short
    ///   or empty and still say where to go on.
    /// - A cursor that this store did not make for this selector answers `Invalid`.
    /// - By how long they were kept, a task that cannot be read is left out, as it is by
    ///   [`compact`](Self::compact): it keeps nothing else from being shown.
    async fn list(&self, list: List) -> Result<Page<Task>>;

    /// Shows the tasks that the next claim would take.
    ///
    /// # Promise
    /// - Answers in the order of [`claim`](Self::claim), at most `limit`.
    /// - Changes nothing.
    async fn peek(&self, peek: Peek) -> Result<Vec<Task>>;

    /// Counts tasks by lane and status.
    ///
    /// # Promise
    /// - The counts equal what [`list`](Self::list) would find, lane by lane.
    /// - Lanes are in order; a lane without tasks, and a status without tasks, is left out.
    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>>;

    /// Reads groups by id.
    ///
    /// # Promise
    /// - Answers one group or `None` for each id, in the order asked.
    /// - Without [`Capabilities::joins_in_commit`], counts may lag until the next sweep.
    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>>;

    /// Reads the log of a task.
    ///
    /// # Promise
    /// - Answers lines in the order they were appended, of at least the given level; a page
    ///   examines a bounded number of lines. A line id is stored once in each task's log.
    /// - A cursor that this store did not make for this log answers `Invalid`.
    /// - Going on from a page answers what was appended since: no gap, no repeat, also after lines
    ///   were removed.
    /// - A task that does not exist has no lines.
    async fn logs(&self, logs: Logs) -> Result<LogPage>;

    /// Reads history.
    ///
    /// # Promise
    /// - Every commit that changed something is in exactly one entry, and is never split.
    /// - All readers see the same entries in the same order (`total_order`; otherwise each key's
    ///   changes are in order, and an entry of the last 5 minutes may be answered again).
    /// - For each key, the order is the order of revisions; a removal carries the revision that
    ///   ended, and comes after it.
    /// - A commit acknowledged before another one was sent comes before it (`total_order`).
    /// - An acknowledged commit is in the history at the position of its receipt.
    /// - A page names the newest entry there was (`newest`): what was acknowledged before, or could be read in any
    ///   other way, is no newer (`total_order`). Entries up to there can be read soon.
    /// - Entries without a change to show are left out, but `next` moves past them. A page holds
    ///   about 4 MiB at most.
    /// - Renewals, touches and log lines are never in the history.
    /// - A start that was compacted away, or that this history never had, answers
    ///   `NotFound::History` with the oldest position a reader may go on from, never silence.
    async fn changes(&self, changes: Changes) -> Result<ChangePage>;

    /// Changes things.
    ///
    /// # Promise
    /// Commits:
    /// - Each commit happens as a whole or not at all; a failing one does not touch its
    ///   neighbours, and each has its own answer, in order.
    /// - Commits of one call take effect in order; each sees those before it.
    /// - When it is answered, it is as durable as [`Capabilities::durability`] says.
    /// - The first guard that does not hold is named; `Held` answers `LeaseLost`.
    /// - A commit with an id is applied once: repeating it within 10 minutes answers the first
    ///   receipt, marked as repeated. One that was refused may be tried again.
    /// - A commit of settles alone that were applied before, with the same worker, fence and verb,
    ///   answers the first result, marked as repeated, until the task is settled again.
    /// - Every write of a commit sees the writes before it.
    ///
    /// Records:
    /// - `Put` replaces all fields and the time to live. `Merge` changes the named fields only
    ///   and keeps the time to live. `Touch` changes the time to live only.
    /// - A record's revision grows with each commit that writes it, also over deletion.
    /// - A receipt says the revision of a record and when it was written, as its readers see them.
    /// - `add` and `raise` need integers: anything else is `NotInteger`, a sum past 64 bits is
    ///   `Overflow`, and nothing happens.
    /// - An expired record is absent for every guard and write; that it expired is in the history
    ///   exactly once, whoever notices first.
    ///
    /// Tasks:
    /// - `Submit` always answers a task. The same id again is the same submission; an id taken by
    ///   another task is `IdTaken`.
    /// - A key stands for one task at a time, from submit until its lifetime ends, and through
    ///   every wait, lease and cancellation of that task.
    /// - `Settle`, `Amend` and `Log` need the worker and fence of the current claim; anything else
    ///   answers `LeaseLost` and changes nothing. A lease that ran out holds until it is expired.
    /// - A failure counts toward the cap, a snooze, release, cancellation or revocation does not.
    /// - Exactly one terminal status: a success with a valid fence wins over a cancel request,
    ///   anything else becomes cancelled.
    /// - `Cancel` ends what nobody holds at once, flags what is held, and says what was already so.
    /// - `Retry` revokes a lease: the fence moves on.
    /// - `Expire` and `Promote` act only on what is overdue and as it was when it was selected.
    /// - Only a finished task can be deleted; its key and its log go with it. However long the log is,
    ///   nobody sees it any more, also not through another task with the same id; what takes longer than
    ///   others should wait is left to [`compact`](Self::compact).
    ///
    /// Groups:
    /// - Each member that ends is counted once, whatever ended it.
    /// - A group drains at the end of the commit that leaves its total known and done; `then` is
    ///   submitted exactly once for each generation, in that commit (`joins_in_commit`), and
    ///   `on_first_failure` likewise. What a receipt says of a group is what the commit leaves.
    /// - A sealed or full group takes no members, but for the `then` of an inner group that extends
    ///   it or is opened again.
    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>>;

    /// Takes tasks for a worker.
    ///
    /// # Promise
    /// - Takes only pending tasks, only of the given lanes, never more than `limit`. A claim by id
    ///   also takes a scheduled task that is due.
    /// - A task is held by at most one worker at a time.
    /// - Order over all lanes: priority, then the moment the task became runnable, then id
    ///   (`first_in_first_out`).
    /// - Each claim of a task moves its fence on by one and counts one attempt.
    /// - Repeating a request for the next that took something, within 10 minutes, answers those of
    ///   its tasks that are still held by it, with the same leases, and takes nothing more.
    /// - By id: a task that this incarnation holds already is answered as it is; one that cannot
    ///   be taken is named with the reason, and does not keep the others from being taken.
    /// - A claim that finds fewer than asked says when the next task of its lanes is due.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Prolongs leases.
    ///
    /// # Promise
    /// - Answers for each lease, in order; one that is lost does not affect the others.
    /// - A lease ends `lease` from now, or at the deadline of its attempt if that is earlier.
    /// - A cancel request is delivered with every renewal.
    /// - Neither revision nor history shows it.
    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>>;

    /// Commits, renews and claims, in this order, in one round trip where the store can.
    ///
    /// # Promise
    /// - Does what the three calls one after another would do; the claim sees the commits.
    /// - The three parts fail independently, also for bad input.
    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged>;

    /// Selects what time has made ready for a decision: see [`StoreExt::sweep`].
    ///
    /// # Promise
    /// - Changes nothing that anybody sees.
    /// - Each kind is cut at `limit` at the latest, the longest overdue first, and `more` says so.
    /// - When nothing is overdue, says when the next thing will be.
    async fn due(&self, due: Due) -> Result<DueNow>;

    /// Removes what has been kept long enough.
    ///
    /// # Promise
    /// - Removes at most `limit` of each kind, the oldest of each status first, and says if more may
    ///   be left. What is exactly as old as asked goes.
    /// - Removes only finished tasks, only of the statuses named, with their keys and logs. Their
    ///   age counts from their end, or from the end of the time that their key was given for.
    /// - Removes history from its old end only; never what is younger than asked.
    /// - Removes lines of logs by when they were appended, whatever their task is and however long
    ///   that is kept. An id of a line that was removed may be appended again.
    /// - Removes a bounded number of lines that tasks have left which were deleted before, and of
    ///   entries that indexes have left which were dropped before.
    /// - Keeps nothing of a lane that has no tasks left.
    /// - Forgets commit ids and claim requests after 10 minutes at the earliest.
    /// - Appends nothing to the history.
    async fn compact(&self, compact: Compact) -> Result<Compacted>;

    /// Answers the store's time.
    ///
    /// # Promise
    /// - Reaches the server that holds the data.
    async fn ping(&self) -> Result<Timestamp>;

    /// A listener that is woken when something of this namespace may be worth a look.
    ///
    /// # Promise
    /// - Wake-ups are hints: coalesced, bounded, never needed for correctness.
    /// - What this handle itself makes runnable or appends to the history is hinted at; what it makes runnable, before
    ///   the call is answered.
    fn wakeups(&self) -> Listener;

    /// Releases what this handle holds. Data stays.
    ///
    /// # Promise
    /// - Acknowledged writes are as durable as they were promised to be.
    /// - Closing again does nothing.
    async fn close(&self) -> Result<()>;
}
