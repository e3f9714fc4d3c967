//! How states are read: `aggregate` and `gaps` the rule that the lowest status wins, `fold` what was told of each
//! state, `cache` and `load` the states of a job in a process and how they get there, `view` who shares them, `aims` what
//! barriers wait for, `wake` how many subscribers are woken together, `subscribe`, `replay`, `event`, `portion`, `batch`,
//! `versions` and `barrier` what readers have.

pub(crate) mod aggregate;
mod aims;
pub(crate) mod barrier;
pub(crate) mod batch;
pub(crate) mod cache;
pub(crate) mod event;
pub(crate) mod fold;
mod gaps;
pub(crate) mod load;
pub(crate) mod portion;
mod replay;
pub(crate) mod subscribe;
mod versions;
pub(crate) mod view;
mod wake;
