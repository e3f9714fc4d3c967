//! The history as it is followed in a process: read once, told to all who want to know.

mod fanout;
mod interests;
mod place;
mod tail;

/// What [`fanout`] is built on. Its model is built on others.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub(crate) use fanout::{Fanout, Reader, Taken, Told};
pub use place::Place;
pub(crate) use place::{Part, Placed, newest, placed, read};
pub(crate) use tail::{Follower, Following, Tail};
