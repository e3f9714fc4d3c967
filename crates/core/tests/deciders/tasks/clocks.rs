//! Clocks that go back, and the end of time.

use super::*;

#[test]
fn a_moment_past_the_year_9999_is_refused_where_somebody_asks_for_it_and_cut_elsewhere() {
    let m = moment(Timestamp::MAX);
    let claimed = in_status(Status::Claimed);
    let holder = By::Holder.holder(&claimed);
    let snooze = Ending::Snooze { delay: secs(1) };
    let refused = task::settle(&claimed, &holder, &snooze, &m).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(i) if i.field == "delay"),
        "{refused:?}"
    );
    let refused = task::retry(&in_status(Status::Failed), false, secs(1), &m).unwrap_err();
    assert!(
        matches!(&refused, Error::Invalid(i) if i.field == "delay"),
        "{refused:?}"
    );

    let pending = in_status(Status::Pending);
    let Ok(Verdict::Changed(task, _)) = task::claim(&pending, &worker("me"), secs(30), &m) else {
        panic!("not claimed");
    };
    assert_eq!(task.lease.as_ref().unwrap().until, Timestamp::MAX);
}

#[test]
fn a_task_ends_no_earlier_than_it_was_claimed() {
    let m = moment(at(850));
    let claimed = in_status(Status::Claimed);
    let complete = Ending::Complete { result: None };
    let (task, _) = task::settle(&claimed, &By::Holder.holder(&claimed), &complete, &m).unwrap();
    assert_eq!(task.finished_at, Some(at(900)));
    let Verdict::Changed(task, _) = task::cancel(&in_status(Status::Pending), None, &m) else {
        panic!("not cancelled");
    };
    assert_eq!(task.finished_at, Some(at(900)));
}

#[test]
fn a_task_that_is_claimed_again_after_the_clock_went_back_ends_no_earlier_than_it_started() {
    let pending = in_status(Status::Pending);
    let Ok(Verdict::Changed(claimed, _)) =
        task::claim(&pending, &worker("me"), secs(30), &moment(at(600)))
    else {
        panic!("not claimed");
    };
    let holder = claimed.holder().unwrap();
    let complete = Ending::Complete { result: None };
    let (task, _) = task::settle(&claimed, &holder, &complete, &moment(at(610))).unwrap();
    assert!(
        task.finished_at >= task.started_at,
        "started {:?}, finished {:?}",
        task.started_at,
        task.finished_at
    );
}
