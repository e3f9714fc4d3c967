//! The order of the history on a real server: hundreds of writers in several processes, transactions
//! that are held up between taking a position and committing, strangers that never end theirs,
//! backends that are killed.

#![allow(clippy::expect_used, clippy::panic)]

mod contend;
mod meeting;
mod positions;
mod server;
