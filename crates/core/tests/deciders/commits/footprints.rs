//! The rows that a commit names.

use plimsoll_core::LineId;
use plimsoll_core::group::NewGroup;
use plimsoll_core::ids::Jitter;
use plimsoll_core::log::{Level, NewLine};
use plimsoll_core::record::Fields;
use plimsoll_core::store::{
    Amend, Cancel, Ending, Expire, Guard, Log, Merge, Put, Retry, Settle, Write,
};
use plimsoll_core::task::Priority;

use super::*;

fn of(rows: impl IntoIterator<Item = RowId>) -> BTreeSet<RowId> {
    rows.into_iter().collect()
}

#[test]
fn each_guard_names_its_row() {
    let (r, t, g) = (
        || RowId::Record(record("r")),
        || RowId::Task(id(1)),
        || RowId::Group(group("g")),
    );
    for (guard, row) in [
        (Guard::RecordAbsent(record("r")), r()),
        (Guard::RecordPresent(record("r")), r()),
        (Guard::RecordAt(record("r"), revision(1)), r()),
        (Guard::Field(record("r"), crate::name("f"), None), r()),
        (Guard::Held(holder(1, 1)), t()),
        (Guard::TaskAt(id(1), revision(1)), t()),
        (Guard::GroupOpen(group("g")), g()),
    ] {
        let commit = Commit::new().guard(guard);
        assert_eq!(decide::footprint(&commit), of([row]), "{commit:?}");
    }
}

#[test]
fn each_write_names_its_rows() {
    let record_row = || of([RowId::Record(record("r"))]);
    let task_row = || of([RowId::Task(id(1))]);
    let group_row = || of([RowId::Group(group("g"))]);
    let everything = of([
        RowId::Task(id(1)),
        RowId::Key(key("k")),
        RowId::Group(group("g")),
    ]);
    let line = NewLine::new(LineId::from_u128(1), Level::Info, "hello");
    let table = [
        (
            Write::Put(Put::new(record("r"), Fields::new())),
            record_row(),
        ),
        (Write::Merge(Merge::new(record("r"))), record_row()),
        (Write::Delete(record("r")), record_row()),
        (Write::Touch(record("r"), None), record_row()),
        (Write::ExpireRecord(record("r")), record_row()),
        (Write::Submit(Box::new(task(1))), task_row()),
        (
            Write::Submit(Box::new(task(1).key(key("k")).group(group("g")))),
            everything,
        ),
        (
            Write::Settle(Settle {
                holder: holder(1, 1),
                how: Ending::Complete { result: None },
            }),
            task_row(),
        ),
        (Write::Amend(Box::new(Amend::new(holder(1, 1)))), task_row()),
        (
            Write::Log(Log {
                holder: holder(1, 1),
                lines: vec![line],
            }),
            task_row(),
        ),
        (
            Write::Cancel(Cancel {
                task: id(1),
                reason: None,
            }),
            task_row(),
        ),
        (
            Write::Retry(Retry {
                task: id(1),
                force: false,
                delay: secs(0),
            }),
            task_row(),
        ),
        (
            Write::Expire(Expire {
                task: id(1),
                fence: Fence::new(1),
                jitter: Jitter::default(),
            }),
            task_row(),
        ),
        (Write::Prioritise(id(1), Priority::HIGHEST), task_row()),
        (Write::Promote(id(1)), task_row()),
        (Write::DeleteTask(id(1)), task_row()),
        (
            Write::OpenGroup(Box::new(NewGroup::new(group("g")))),
            group_row(),
        ),
        (Write::Arrive(group("g"), 1), group_row()),
        (Write::Seal(group("g")), group_row()),
        (Write::Reopen(group("g")), group_row()),
        (Write::Tally(group("g")), group_row()),
        (Write::DeleteGroup(group("g")), group_row()),
    ];
    for (write, rows) in table {
        let commit = Commit::of(write);
        assert_eq!(decide::footprint(&commit), rows, "{commit:?}");
    }
}

#[test]
fn a_commit_names_its_receipt_and_everything_its_parts_name() {
    let commit = Commit::new()
        .id(commit_id(7))
        .guard(Guard::RecordAbsent(record("a")))
        .write(Write::Delete(record("b")))
        .write(Write::Delete(record("b")));
    let rows = of([
        RowId::Commit(commit_id(7)),
        RowId::Record(record("a")),
        RowId::Record(record("b")),
    ]);
    assert_eq!(decide::footprint(&commit), rows);
    assert_eq!(decide::footprint(&Commit::new()), of([]));
}

#[test]
fn what_is_missing_is_first_what_the_commits_name() {
    let commits = ["a", "b"].map(|text| Commit::of(Write::Delete(record(text))));
    let mut rows = Rows::default();
    let m = moment_at(at(1), 1);
    let both = of([RowId::Record(record("a")), RowId::Record(record("b"))]);
    assert_eq!(decide::batch(&commits, &mut rows, m), Err(both));
    rows.records.load(record("a"), None);
    let other = of([RowId::Record(record("b"))]);
    assert_eq!(decide::batch(&commits, &mut rows, m), Err(other));
    rows.records.load(record("b"), None);
    let answers = decide::batch(&commits, &mut rows, m).unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers.len(), 2);
}

#[test]
fn a_commit_over_a_row_that_was_not_loaded_is_not_decided() {
    let mut rows = Rows::default();
    let commit = Commit::of(Write::Promote(id(1)));
    let refused = decide::commit(&commit, &mut rows, moment_at(at(1), 1));
    assert_eq!(refused, Err(Refused::Missing(RowId::Task(id(1)))));
    assert_eq!(written(&rows), written(&Rows::default()));
}
