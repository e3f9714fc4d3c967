//! What Plimsoll builds on its storage port, written once for every store.
//!
//! - [`GroupCommit`] merges the commits of concurrent callers into one store call.

mod engine;
mod group_commit;
mod spawn;

pub use engine::Engine;
pub use group_commit::{GroupCommit, group_commit};
