//! Partitioned jobs: each partition says how far it is, the lowest status wins.

mod state;
mod stored;

pub use state::{ERROR, FINISHED, NOT_STARTED, NewState, Payload, STARTED, Scope, State, WARNING};
