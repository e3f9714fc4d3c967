//! Every event on every state, as a table.

use super::*;
use crate::{assert_whole, cells};

/// The word for an outcome: the new status and the event, `=` for no change, a conflict by name,
/// a lost lease after a `-`.
fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Changed(after, event) => format!("{:.3}:{}", after.status.as_str(), short(*event)),
        Outcome::Unchanged => "=".into(),
        Outcome::Renewed { stop: false } => "held".into(),
        Outcome::Renewed { stop: true } => "stop".into(),
        Outcome::Deleted => "gone".into(),
        Outcome::Refused(Error::Conflict(conflict)) => match conflict.as_ref() {
            Conflict::NotDue { .. } => "NotDue",
            Conflict::Waiting { .. } => "Waiting",
            Conflict::AlreadyClaimed { .. } => "Taken",
            Conflict::Finished { .. } => "Finished",
            Conflict::NotFinished { .. } => "NotEnded",
            Conflict::Cancelling { .. } => "Stopping",
            Conflict::MaxAttemptsReached { .. } => "MaxTries",
            other => panic!("no task decider refuses with {other:?}"),
        }
        .into(),
        Outcome::Refused(Error::LeaseLost(lost)) => match lost.why {
            Lost::NotClaimed { .. } => "-nobody",
            Lost::WrongWorker { .. } => "-worker",
            Lost::Superseded { .. } => "-fence",
            Lost::Finished { .. } => "-ended",
            Lost::Gone => "-gone",
            Lost::AttemptOver => panic!("that is for holders to say"),
        }
        .into(),
        Outcome::Refused(error) => panic!("no task decider refuses with {error:?}"),
    }
}

fn short(event: TaskEvent) -> &'static str {
    match event {
        TaskEvent::Submitted => "Subm",
        TaskEvent::Promoted => "Prom",
        TaskEvent::Claimed => "Clai",
        TaskEvent::Completed => "Comp",
        TaskEvent::Failed => "Fail",
        TaskEvent::Snoozed => "Snoo",
        TaskEvent::Released => "Rele",
        TaskEvent::CancelRequested => "Stop",
        TaskEvent::Cancelled => "Canc",
        TaskEvent::Expired => "Expi",
        TaskEvent::Retried => "Retr",
        TaskEvent::Unblocked => "Unbl",
        TaskEvent::Amended => "Amen",
        TaskEvent::Deleted => "Dele",
    }
}

/// What every event makes of every state.
const TABLE: &str = "
                 later     due       waiting   pending   claimed   stopping  overdue   timeout   stop+over last      last+over completed failed    fail@cap  cancelled canc@cap
promote          =         pen:Prom  =         =         =         =         =         =         =         =         =         =         =         =         =         =
unblock          =         =         pen:Unbl  =         =         =         =         =         =         =         =         =         =         =         =         =
claim            NotDue    cla:Clai  Waiting   cla:Clai  =         =         =         =         =         =         =         Finished  Finished  Finished  Finished  Finished
claim/other      NotDue    cla:Clai  Waiting   cla:Clai  Taken     Taken     Taken     Taken     Taken     Taken     Taken     Finished  Finished  Finished  Finished  Finished
renew            -nobody   -nobody   -nobody   -nobody   held      stop      held      held      stop      held      held      -ended    -ended    -ended    -ended    -ended
renew/other      -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
renew/older      -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
complete         -nobody   -nobody   -nobody   -nobody   com:Comp  com:Comp  com:Comp  com:Comp  com:Comp  com:Comp  com:Comp  -ended    -ended    -ended    -ended    -ended
fail             -nobody   -nobody   -nobody   -nobody   sch:Fail  can:Canc  sch:Fail  sch:Fail  can:Canc  fai:Fail  fai:Fail  -ended    -ended    -ended    -ended    -ended
fail-after       -nobody   -nobody   -nobody   -nobody   pen:Fail  can:Canc  pen:Fail  pen:Fail  can:Canc  fai:Fail  fai:Fail  -ended    -ended    -ended    -ended    -ended
fail-fatal       -nobody   -nobody   -nobody   -nobody   fai:Fail  can:Canc  fai:Fail  fai:Fail  can:Canc  fai:Fail  fai:Fail  -ended    -ended    -ended    -ended    -ended
snooze-0s        -nobody   -nobody   -nobody   -nobody   pen:Snoo  can:Canc  pen:Snoo  pen:Snoo  can:Canc  pen:Snoo  pen:Snoo  -ended    -ended    -ended    -ended    -ended
snooze-60s       -nobody   -nobody   -nobody   -nobody   sch:Snoo  can:Canc  sch:Snoo  sch:Snoo  can:Canc  sch:Snoo  sch:Snoo  -ended    -ended    -ended    -ended    -ended
release          -nobody   -nobody   -nobody   -nobody   pen:Rele  can:Canc  pen:Rele  pen:Rele  can:Canc  pen:Rele  pen:Rele  -ended    -ended    -ended    -ended    -ended
interrupt        -nobody   -nobody   -nobody   -nobody   pen:Rele  can:Canc  pen:Rele  pen:Rele  can:Canc  pen:Rele  pen:Rele  -ended    -ended    -ended    -ended    -ended
call-off         -nobody   -nobody   -nobody   -nobody   can:Canc  can:Canc  can:Canc  can:Canc  can:Canc  can:Canc  can:Canc  -ended    -ended    -ended    -ended    -ended
complete/other   -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
fail/other       -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
fail-after/other -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
fail-fatal/other -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
snooze-0s/other  -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
snooze-60s/other -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
release/other    -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
interrupt/other  -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
call-off/other   -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
complete/older   -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
fail/older       -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
fail-after/older -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
fail-fatal/older -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
snooze-0s/older  -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
snooze-60s/older -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
release/older    -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
interrupt/older  -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
call-off/older   -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
amend            -nobody   -nobody   -nobody   -nobody   cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  -ended    -ended    -ended    -ended    -ended
amend/other      -nobody   -nobody   -nobody   -nobody   -worker   -worker   -worker   -worker   -worker   -worker   -worker   -ended    -ended    -ended    -ended    -ended
amend/older      -nobody   -nobody   -nobody   -nobody   -fence    -fence    -fence    -fence    -fence    -fence    -fence    -ended    -ended    -ended    -ended    -ended
expire           =         =         =         =         =         =         sch:Expi  sch:Expi  can:Expi  =         fai:Expi  =         =         =         =         =
expire/older     =         =         =         =         =         =         =         =         =         =         =         =         =         =         =         =
cancel           can:Canc  can:Canc  can:Canc  can:Canc  cla:Stop  =         cla:Stop  cla:Stop  =         cla:Stop  cla:Stop  =         =         =         =         =
retry            pen:Retr  pen:Retr  Waiting   =         pen:Retr  Stopping  pen:Retr  pen:Retr  Stopping  pen:Retr  pen:Retr  Finished  pen:Retr  MaxTries  pen:Retr  MaxTries
retry-60s        sch:Retr  sch:Retr  Waiting   =         sch:Retr  Stopping  sch:Retr  sch:Retr  Stopping  sch:Retr  sch:Retr  Finished  sch:Retr  MaxTries  sch:Retr  MaxTries
force            pen:Retr  pen:Retr  Waiting   =         pen:Retr  Stopping  pen:Retr  pen:Retr  Stopping  pen:Retr  pen:Retr  Finished  pen:Retr  pen:Retr  pen:Retr  pen:Retr
force-60s        sch:Retr  sch:Retr  Waiting   =         sch:Retr  Stopping  sch:Retr  sch:Retr  Stopping  sch:Retr  sch:Retr  Finished  sch:Retr  sch:Retr  sch:Retr  sch:Retr
prioritise-5     =         =         =         =         =         =         =         =         =         =         =         Finished  Finished  Finished  Finished  Finished
prioritise-9     sch:Amen  sch:Amen  sch:Amen  pen:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  cla:Amen  Finished  Finished  Finished  Finished  Finished
delete           NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  NotEnded  gone      gone      gone      gone      gone
";

#[test]
fn the_table_has_every_event_on_every_state_exactly_once() {
    let (states, events) = (states(), events());
    let columns: Vec<&str> = states.iter().map(|state| state.name).collect();
    let rows: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_whole(TABLE, &rows, &columns);
    for status in Status::ALL {
        assert!(
            states.iter().any(|state| state.task.status == status),
            "no state is {status}"
        );
    }
}

#[test]
fn every_event_on_every_state_does_what_the_table_says() {
    let (states, events) = (states(), events());
    for (row, column, expected) in cells(TABLE) {
        let (_, event) = events.iter().find(|(name, _)| name == row).unwrap();
        let state = states.iter().find(|state| state.name == column).unwrap();
        let found = word(&outcome(&state.task, event));
        assert_eq!(found, expected, "{row} on a task that is {column}");
    }
}

#[test]
fn a_refusal_names_the_task_and_what_it_is() {
    for state in states() {
        let before = &state.task;
        for (name, event) in events() {
            let Outcome::Refused(error) = outcome(before, &event) else {
                continue;
            };
            assert_eq!(
                error,
                refusal(before, &event, &error),
                "{name} on {}",
                state.name
            );
        }
    }
}

/// The refusal of the kind of `error`, with everything that it must say.
fn refusal(task: &Task, event: &Event, error: &Error) -> Error {
    let (id, status) = (task.id(), task.status);
    match (error, event) {
        (Error::Conflict(conflict), _) => match conflict.as_ref() {
            Conflict::NotDue { .. } => Conflict::NotDue {
                task: id,
                due_at: task.runnable_at,
            },
            Conflict::Waiting { .. } => Conflict::Waiting {
                task: id,
                on: PREDECESSOR,
            },
            Conflict::AlreadyClaimed { .. } => Conflict::AlreadyClaimed {
                task: id,
                holder: worker("me"),
                until: task.lease.as_ref().unwrap().until,
            },
            Conflict::Finished { .. } => Conflict::Finished { task: id, status },
            Conflict::NotFinished { .. } => Conflict::NotFinished { task: id, status },
            Conflict::Cancelling { .. } => Conflict::Cancelling { task: id },
            Conflict::MaxAttemptsReached { .. } => Conflict::MaxAttemptsReached {
                task: id,
                failures: CAP,
                cap: CAP,
            },
            other => panic!("{other:?}"),
        }
        .into(),
        (Error::LeaseLost(lost), Event::Renew(by) | Event::Settle(_, by) | Event::Amend(by)) => {
            let why = match lost.why {
                Lost::NotClaimed { .. } => Lost::NotClaimed { status },
                Lost::WrongWorker { .. } => Lost::WrongWorker {
                    holder: worker("me"),
                },
                Lost::Superseded { .. } => Lost::Superseded { fence: task.fence },
                Lost::Finished { .. } => Lost::Finished { status },
                Lost::Gone | Lost::AttemptOver => panic!("the task is there"),
            };
            let fence = by.holder(task).fence;
            LeaseLost {
                task: id,
                fence,
                why,
            }
            .into()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_worker_of_another_incarnation_is_another_worker() {
    let task = in_status(Status::Claimed);
    let mut holder = By::Holder.holder(&task);
    holder.worker.incarnation = Incarnation::from_u128(8);
    let lost = task::held(&task, &holder).unwrap_err();
    assert_eq!(
        lost.why,
        Lost::WrongWorker {
            holder: worker("me")
        }
    );
    let verdict = task::claim(&task, &holder.worker, secs(30), &moment(at(NOW)));
    assert!(matches!(verdict, Err(Error::Conflict(_))), "{verdict:?}");
}

#[test]
fn a_task_that_is_not_there_is_gone_for_its_holder() {
    let holder = By::Holder.holder(&in_status(Status::Claimed));
    let gone = LeaseLost {
        task: ID,
        fence: Fence::new(2),
        why: Lost::Gone,
    };
    assert_eq!(task::gone(&holder), gone);
    let renewal = task::renew(None, &holder, secs(30), at(NOW));
    assert_eq!(renewal, Renewal::Lost(gone));
}
