//! Seeds are repeatable, a share of them passes, and bugs on purpose are found.

use std::collections::BTreeSet;

use plimsoll_sim::{Figures, Options, Planted, run};

const TRACED: Options = Options {
    trace: true,
    planted: None,
};

#[test]
fn a_seed_leads_to_the_same_trace_again() {
    for seed in [1, 2, 3, 5, 8, 13, 21, 34] {
        let (first, second) = (run(seed, TRACED), run(seed, TRACED));
        assert!(first.trace.len() > 100, "seed {seed} does too little");
        assert!(first == second, "seed {seed} went another way");
    }
}

#[test]
fn a_trace_changes_nothing() {
    let (traced, plain) = (run(7, TRACED), run(7, Options::default()));
    assert_eq!((traced.turns, traced.lasted), (plain.turns, plain.lasted));
    assert_eq!((traced.tasks, traced.entries), (plain.tasks, plain.entries));
}

#[test]
fn seeds_lead_to_different_runs() {
    assert_ne!(run(1, TRACED).trace, run(2, TRACED).trace);
}

/// A share of all seeds: the command runs as many as there is time for. What the rules are about
/// happens in them, or they could not be broken.
#[test]
fn nothing_breaks_a_rule() {
    let mut all = Figures::default();
    for seed in 105..180 {
        let outcome = run(seed, Options::default());
        assert_eq!(outcome.violation, None, "seed {seed}");
        all += outcome.figures;
    }
    let locks = [
        all.locks_taken,
        all.locks_expired,
        all.locks_broken,
        all.hand_overs,
        all.writes_refused,
    ];
    let others = [
        all.moves_refused,
        all.workers_marked,
        all.tasks_archived,
        all.lines_stored,
        all.lines_lost,
    ];
    let states = [
        all.states_written,
        all.states_repeated,
        all.states_refused,
        all.jobs_deleted,
        all.jobs_finished,
        all.jobs_silent,
        all.replays_again,
        all.resumed,
        all.lagged,
        all.overtaken,
        all.reconnected,
        all.gave_up,
        all.histories_unread,
        all.aggregates_read,
        all.barriers_reached,
        all.barriers_failed,
        all.barriers_late,
        all.barriers_waiting,
        all.swaps_refused,
    ];
    let mut all_of_them = locks.into_iter().chain(others).chain(states);
    assert!(all_of_them.all(|times| times > 0), "{all:?}");
}

/// The rules by which a bug is found, within this many seeds.
fn rules(planted: Planted, seeds: u64) -> impl Iterator<Item = &'static str> {
    let options = Options {
        planted: Some(planted),
        ..Options::default()
    };
    let broken = (0..seeds).filter_map(move |seed| run(seed, options).violation);
    broken.map(|violation| violation.rule)
}

/// The first of them.
fn found(planted: Planted, seeds: u64) -> &'static str {
    rules(planted, seeds).next().unwrap_or("none")
}

#[test]
fn a_settle_that_ignores_the_fence_is_found() {
    let rule = found(Planted::FencelessSettle, 40);
    assert!(
        ["acknowledged", "effects", "unasked"].contains(&rule),
        "{rule}"
    );
}

#[test]
fn a_claim_that_forgets_its_request_is_found() {
    assert_eq!(found(Planted::ForgottenRequest, 40), "hidden");
}

#[test]
fn a_drain_that_drops_is_found() {
    assert_eq!(found(Planted::DroppingDrain, 40), "hidden");
}

#[test]
fn an_expiry_that_does_not_count_is_found() {
    assert_eq!(found(Planted::FreeExpiry, 40), "unasked");
}

#[test]
fn a_lease_that_is_shorter_than_told_is_found() {
    let rule = found(Planted::ShortLease, 40);
    assert!(["reliance", "expiry"].contains(&rule), "{rule}");
}

#[test]
fn a_claim_out_of_order_is_found() {
    // It names what it takes, so that a repetition is not known by its request: in some seeds the
    // first that goes wrong is a hidden task.
    let mut rules = rules(Planted::UnfairClaim, 40);
    assert!(rules.any(|rule| rule == "order"));
}

#[test]
fn a_submit_that_is_forgotten_is_found() {
    assert_eq!(found(Planted::ForgottenSubmit, 40), "acknowledged");
}

#[test]
fn an_end_that_nobody_is_told_of_is_found() {
    assert_eq!(found(Planted::HiddenEnd, 40), "ends");
}

#[test]
fn a_wait_that_is_answered_another_end_is_found() {
    assert_eq!(found(Planted::WrongEnd, 40), "waits");
}

#[test]
fn a_commit_that_forgets_its_id_is_found() {
    // Either something is done twice, or who released a lock is told that it was late, or who swapped a
    // record that it was refused.
    let rule = found(Planted::ForgottenCommit, 200);
    assert!(
        ["unasked", "acknowledged", "records"].contains(&rule),
        "{rule}"
    );
}

#[test]
fn a_line_that_is_lost_is_found() {
    assert_eq!(found(Planted::LostLine, 40), "logs");
}

#[test]
fn a_line_that_is_stored_twice_is_found() {
    assert_eq!(found(Planted::RepeatedLine, 40), "logs");
}

#[test]
fn lines_out_of_order_are_found() {
    assert_eq!(found(Planted::SwappedLines, 40), "logs");
}

#[test]
fn a_move_that_is_not_allowed_is_found() {
    assert_eq!(found(Planted::IllegalMove, 40), "stages");
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    assert_eq!(found(Planted::ReusedToken, 40), "locks");
}

#[test]
fn a_lock_that_two_have_is_found() {
    assert_eq!(found(Planted::UnguardedLock, 40), "locks");
}

#[test]
fn a_release_by_another_is_found() {
    assert_eq!(found(Planted::AnybodyReleases, 40), "locks");
}

#[test]
fn a_renewal_by_another_is_found() {
    assert_eq!(found(Planted::AnybodyRenews, 80), "locks");
}

#[test]
fn a_lock_that_ends_early_is_found() {
    assert_eq!(found(Planted::ShortLock, 40), "locks");
}

#[test]
fn a_lock_that_does_not_end_is_found() {
    assert_eq!(found(Planted::EndlessLock, 40), "line");
}

#[test]
fn a_line_that_is_served_from_its_end_is_found() {
    assert_eq!(found(Planted::LastInLine, 120), "line");
}

#[test]
fn a_worker_that_is_gone_and_not_marked_is_found() {
    assert_eq!(found(Planted::UnmarkedWorker, 40), "registry");
}

#[test]
fn a_worker_that_lives_and_is_marked_is_found() {
    assert_eq!(found(Planted::DeafRegistry, 40), "registry");
}

#[test]
fn a_task_in_two_places_is_found() {
    assert_eq!(found(Planted::ArchivedTwice, 40), "archive");
}

#[test]
fn a_task_in_no_place_is_found() {
    assert_eq!(found(Planted::NeverArchived, 40), "archive");
}

#[test]
fn a_task_that_is_archived_early_is_found() {
    assert_eq!(found(Planted::EarlyArchive, 40), "archive");
}

#[test]
fn history_with_a_gap_is_found() {
    assert_eq!(found(Planted::SkippedEntry, 40), "subscription");
}

#[test]
fn a_state_that_ignores_its_version_is_found() {
    assert_eq!(found(Planted::UnguardedVersion, 40), "states");
}

#[test]
fn a_state_that_overtakes_a_refused_one_is_found() {
    assert_eq!(found(Planted::Unbound, 80), "states");
}

#[test]
fn a_state_that_forgets_its_event_is_found() {
    assert_eq!(found(Planted::ForgottenEvent, 40), "states");
}

#[test]
fn a_state_of_a_job_that_was_deleted_is_found() {
    assert_eq!(found(Planted::LateManager, 80), "states");
}

#[test]
fn a_repeat_that_is_answered_after_the_job_was_deleted_is_found() {
    assert_eq!(found(Planted::LateRepeat, 80), "states");
}

#[test]
fn a_job_that_goes_before_it_is_over_is_found() {
    assert_eq!(found(Planted::AgedStates, 80), "retirement");
}

#[test]
fn a_write_that_its_writer_does_not_see_is_found() {
    assert_eq!(found(Planted::HiddenWrite, 40), "states");
}

#[test]
fn a_state_that_is_lost_when_a_subscription_begins_is_found() {
    // Who writes and reads may see it first.
    assert!(rules(Planted::LostAtSwitch, 40).any(|rule| rule == "replay"));
}

#[test]
fn a_state_that_is_told_again_is_found() {
    assert_eq!(found(Planted::RepeatedState, 40), "replay");
}

#[test]
fn a_subscriber_that_goes_on_too_far_is_found() {
    assert_eq!(found(Planted::EarlyCursor, 40), "replay");
}

#[test]
fn a_state_that_the_history_leaves_out_is_found() {
    // Who reads all of them may see it first.
    assert!(rules(Planted::LostState, 40).any(|rule| rule == "replay"));
}

#[test]
fn a_listener_that_gives_up_at_once_is_found() {
    assert_eq!(found(Planted::Impatient, 40), "replay");
}

#[test]
fn a_second_marker_is_found() {
    assert_eq!(found(Planted::SecondMarker, 40), "replay");
}

#[test]
fn a_marker_that_never_comes_is_found() {
    assert_eq!(found(Planted::NoMarker, 40), "replay");
}

#[test]
fn a_version_that_falls_is_found() {
    assert_eq!(found(Planted::FallingVersion, 40), "replay");
}

#[test]
fn a_replay_in_another_order_than_that_of_the_calls_is_found() {
    assert_eq!(found(Planted::TurnedMoment, 40), "replay");
}

#[test]
fn a_replay_that_begins_again_for_nothing_is_found() {
    assert_eq!(found(Planted::NeedlessRestart, 40), "replay");
}

#[test]
fn a_job_that_is_hidden_from_its_readers_is_found() {
    // Whoever opens it or reads it, waits at a barrier of it, or is told what there is.
    let found: BTreeSet<&str> = rules(Planted::HiddenJob, 60).collect();
    assert_eq!(found, ["barriers", "replay", "sight"].into());
}

#[test]
fn an_aggregate_of_the_highest_is_found() {
    assert_eq!(found(Planted::HighestWins, 40), "aggregate");
}

#[test]
fn an_aggregate_of_one_partition_too_many_is_found() {
    assert_eq!(found(Planted::OneTooMany, 40), "aggregate");
}

#[test]
fn a_barrier_that_ignores_errors_is_found() {
    assert_eq!(found(Planted::DeafBarrier, 40), "barriers");
}

#[test]
fn a_barrier_that_overlooks_what_it_waits_for_is_found() {
    assert_eq!(found(Planted::SleepyBarrier, 40), "barriers");
}

#[test]
fn a_barrier_that_opens_after_an_error_is_found() {
    assert_eq!(found(Planted::ForgivingBarrier, 120), "barriers");
}

#[test]
fn a_barrier_that_fails_after_all_were_there_is_found() {
    assert_eq!(found(Planted::UnopenedBarrier, 160), "barriers");
}

#[test]
fn a_barrier_that_fails_by_what_was_over_is_found() {
    assert_eq!(found(Planted::PastError, 40), "barriers");
}

#[test]
fn a_barrier_that_opens_by_what_its_process_took_back_is_found() {
    assert_eq!(found(Planted::ReopenedBarrier, 40), "barriers");
}

#[test]
fn a_barrier_that_overlooks_who_is_behind_is_found() {
    assert_eq!(found(Planted::OverlookedLaggard, 80), "barriers");
}

#[test]
fn a_swap_that_ignores_what_there_is_is_found() {
    assert_eq!(found(Planted::UnguardedSwap, 40), "records");
}

#[test]
fn a_watch_that_goes_on_from_where_it_was_is_found() {
    assert_eq!(found(Planted::StaleCursor, 100), "watch");
}

#[test]
fn a_removal_that_a_watch_is_not_told_of_is_found() {
    assert_eq!(found(Planted::LostRemoval, 40), "watch");
}
