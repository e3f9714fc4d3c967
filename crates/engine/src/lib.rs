//! What Plimsoll builds on its storage port, written once for every store.
//!
//! - [`GroupCommit`] merges what concurrent callers commit, renew and claim into few store calls.

mod engine;
mod group_commit;
mod spawn;

pub use engine::Engine;
pub use group_commit::{Bounds, GroupCommit, group_commit};
