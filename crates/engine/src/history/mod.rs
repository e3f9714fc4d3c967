//! The history as it is followed in a process: read once, told to all who want to know.

mod fanout;
mod feed;
mod interests;
mod place;
mod reconnect;
mod tail;
mod watch;

/// What [`fanout`] is built on. Its model is built on others.
mod sync {
    pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
}

pub(crate) use fanout::{Fanout, Reader, Share, Taken, Told, Woken};
pub(crate) use feed::Feeds;
pub(crate) use place::{End, Mark, Part, end, in_order, placed, places, read};
pub use place::{Place, Seen};
pub use reconnect::Reconnect;
pub(crate) use reconnect::{Bears, Patience};
pub(crate) use tail::{Follower, Following, POLL, Tail};
pub use watch::{History, Watch};
