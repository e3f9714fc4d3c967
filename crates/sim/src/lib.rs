//! Simulates the engine: the real code over the memory store, in virtual time, with faults, all from
//! one seed.
//!
//! # How it works
//! - Everything runs on one thread. Each process (a worker, a submitter, a sweeper, a locker, an
//!   operator, a reader of the history, a compactor, a partition of a job, an onlooker, a clerk) has a runtime of its own and gets turns, in an order that
//!   the seed decides. When nobody has anything to do, time leaps to the next moment at which
//!   somebody has.
//! - Between each process and the store is a wire: calls take time, fail before or after they are
//!   applied, arrive twice, or arrive after their caller gave up; wake-ups are dropped, held
//!   back, or come for nothing.
//! - A process crashes after a number of polls or at a moment: its runtime is dropped with
//!   everything in it. It begins again with what it had written down. A paused process gets no
//!   turns, handlers included, and comes back as a zombie. Workers are told to drain. The wall
//!   clock of the store jumps both ways; those of the processes are wrong.
//! - After the storm it is calm, and everything must come to its end. Then the workers drain.
//! - Submitters and the operator use the client of tasks, with more or less patience. What it gives
//!   up on, a submitter submits again, and an operator forgets. Submitters wait for some of their
//!   tasks while they go on, begin again after a crash, and lose patience now and then.
//! - Workers have backoff functions for some of their kinds.
//! - Lockers contend for a few locks: they try, wait, wait for a while, lose patience, and write under
//!   what they have to something that refuses tokens lower than it has seen. An operator takes locks
//!   away. Each has so many rounds to go, the last of them when it is calm.
//! - Partitions of a few jobs say how far they are, several times at once, and say it again with the same
//!   event id; some processes are the same partition. A deleter and the retention delete the jobs, and whoever
//!   goes on creates them anew. Onlookers have a few subscriptions or a hundred each, quick and slow, in all scopes,
//!   and go on from their cursors; they read the states after a refresh, and wait at barriers, which must be decided
//!   by the first change that decides them.
//! - Clerks put, add to, raise, swap and delete a few records, some of which expire; somebody watches them.
//! - Some tasks had ended long before: they go to the archive in the storm, while operators have
//!   some of them run again.
//! - Checkers take no part: they see the history, what reads answer, and what actors asked and were
//!   told. The rules are listed in the module `check`.
//! - Bugs on purpose ([`Planted`]) show that the checkers see something.
//!
//! # What it does not cover
//! - Stores other than memory: the conformance suite and the tests of each store do, and real runs
//!   that are [`recorded`] and go through the same checkers.
//! - Threads: what two threads of one process do at the very same time.
//! - A claim that arrives after its own repetition was answered with nothing: the port does not
//!   promise that it takes nothing then.
//! - Deletion by operators, arrivals, groups in groups, layers, signals, and clocks that run at different speeds.
//! - Of the client: what it claims and holds, its bulk verbs and its pages. Groups, and tasks that are
//!   submitted together or not at all, go to the store in commits that submitters repeat themselves.
//! - Of job states: payloads, jobs that are described, many partitions. Whether a barrier answers soon enough.
//! - Of records: typed ones, scans, indexes, and when a time to live is over.
//! - When a backoff function says that a task is tried again.
//! - Elections, but for the one that sweepers hold; locks on a store of their own; archives elsewhere.
//! - How many calls an actor makes: one that asks the store far too often breaks no rule here.
//! - Leases while the clock jumps: what handlers rely on is not checked in runs with jumps.
//!
//! # How to use it
//! `cargo run --release -p plimsoll-sim -- --seeds 10000` runs seeds from 0 on and stops at the first that
//! breaks a rule, with the end of its trace and the command that runs it again. `--plant` plants a
//! bug. With `--store postgres://... --seconds 60` it records a real run instead, without faults.
//!
//! ```
//! use plimsoll_sim::{Options, run};
//! let outcome = run(1, Options::default());
//! assert_eq!(outcome.violation, None);
//! ```

mod actors;
mod cast;
mod check;
mod clock;
mod dice;
mod planted;
mod process;
mod profile;
pub mod recorded;
mod run;
mod trace;
mod wire;
mod world;

pub use check::{Figures, Violation};
pub use planted::Planted;
pub use run::{Options, Outcome, run};
