//! Seeds are repeatable, a share of them passes, and bugs on purpose are found.

use plimsoll_sim::{Options, Planted, run};

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

/// A share of all seeds: the command runs as many as there is time for.
#[test]
fn nothing_breaks_a_rule() {
    for seed in 0..40 {
        let violation = run(seed, Options::default()).violation;
        assert_eq!(violation, None, "seed {seed}");
    }
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
    assert_eq!(found(Planted::ForgottenCommit, 200), "unasked");
}

#[test]
fn a_line_that_is_lost_is_found() {
    assert_eq!(found(Planted::LostLine, 40), "logs");
}

#[test]
fn history_with_a_gap_is_found() {
    assert_eq!(found(Planted::SkippedEntry, 40), "subscription");
}
