//! How states are written: `queue` those that wait in the order of their calls, `draft` what is checked of
//! each, `known` what the partition has written, `plan` what is committed for it, `round` how that is sent and
//! decided anew, `told` how it is answered.

pub(crate) mod draft;
pub(crate) mod known;
pub(crate) mod plan;
pub(crate) mod queue;
mod round;
mod told;
