//! For tests of handlers and of what submits tasks: see [`Kit`].
//!
//! | to | use |
//! |---|---|
//! | run one handler for one task | [`Kit::perform`] |
//! | work on everything that is runnable | [`Kit::drain`] |
//! | the same, and on everything that is due later | [`Kit::drain_all`] |
//! | have a worker beside the test, and let it die | [`Kit::start`], [`Started::crash`] |
//! | move time | [`Kit::pass`], [`Kit::clock`] |
//! | say what must be true | [`Kit::assert_submitted`], [`Kit::assert_completed`] and their like |
//!
//! Whatever goes wrong in here panics: that is how a test fails.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic)]

mod assert;
mod kit;
mod run;
mod start;
mod store;

pub use assert::Submissions;
pub use kit::Kit;
pub use start::Started;
