//! Job states as they are read: from memory, live, at a barrier. Over the memory store, with a clock that
//! tests move.
//!
//! What the document of the State Manager asks to be tested, and where it is:
//!
//! | it asks for | tests |
//! |---|---|
//! | normal flow: partitions, tags, aggregation, order of the replay | `jobs/views.rs`, `each_scope_is_replayed_in_the_order_of_time_and_then_told_live`, on each store; `reading.rs`, `the_lowest_status_wins_in_each_of_the_four_scopes` |
//! | missing states | `reading.rs`, `what_is_missing_is_not_started_when_it_is_asked_for_and_not_there_in_lists`; `subscribing.rs`, `each_scope_shows_its_states_and_no_others` |
//! | failed writes | `jobs/lost_replies.rs`, `every_write_with_every_fault_ends_as_without` |
//! | disconnected listeners | `listener.rs`, `a_listener_that_is_disconnected_tries_again_after_1_2_4_8_and_16_seconds`; of a server: `faults/following.rs`, `whoever_follows_is_told_everything_although_…` |
//! | inconsistent caches | `listener.rs`, `what_the_history_left_out_is_found_by_the_refresh_after_a_reconnection`, `an_end_that_…`, `a_deletion_that_…` |
//! | versions told twice | `subscribing.rs`, `a_version_that_is_repeated_during_the_replay_is_told_once`; `lives.rs`, `a_version_that_is_repeated_while_states_are_loaded_again_is_told_once`, `a_version_that_does_not_grow_is_not_told` |
//! | baselines of performance | `baselines.rs`, `a_replay_of_10_000_states_…`, `a_delivery_takes_the_same_calls_…`, in calls of the store; in time, `plimsoll bench` and `docs/performance.md` |
//! | races in cache and subscriptions | `concurrent.rs`, `nobody_misses_or_repeats_anything_between_replay_and_live_under_concurrent_writers`; `jobs/threads.rs`, `nothing_is_lost_or_told_twice_in_memory`; model-checked: `fanout.rs`, `every_reader_is_told_everything_once_and_in_order` |
//!
//! [`named`] finds each of these names. The document of the key-value store has no such section: its sequences are in `records/task_states/mod.rs`.

// Whatever goes wrong in here is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod barriers;
mod baselines;
mod batches;
mod concurrent;
mod cursors;
mod figures;
mod history;
mod lines;
mod listener;
mod lives;
mod many;
mod named;
mod reading;
mod slow;
mod subscribing;
mod world;
