//! Deciders: pure functions that say what becomes of rows.
//!
//! A store reads the rows that commits need into [`Rows`], calls [`batch`], and applies what was
//! written. The functions below it decide for one row each: [`task`] holds one `match` over the
//! status for each event, [`submit`] one over the status of a key's holder and the conflict
//! policy, [`group`] and [`record`] say what becomes of counts and fields. None of them reads a clock, draws a
//! random number or does I/O: what they need is in their arguments.

mod commit;
mod draft;
pub mod group;
pub mod record;
mod rows;
pub mod submit;
pub mod task;

pub use commit::{Applied, Refused, batch, commit, footprint};
pub use rows::{RowId, Rows, Table, Written};

use crate::ids::Revision;
use crate::limits::Limits;
use crate::time::Timestamp;

/// What a decision depends on besides rows: the store's time, the revision that the written rows
/// get, and the limits they must keep.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The store's time.
    pub now: Timestamp,
    /// The revision of this commit, greater than that of every row it writes.
    pub revision: Revision,
    /// What rows must keep.
    pub limits: &'a Limits,
}
