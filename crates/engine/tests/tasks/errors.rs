//! Every error of the table in the module's documentation, reached through an operation.

use plimsoll_core::task::Holder;
use plimsoll_core::{Result, TaskId};

use crate::world::{LEASE, World, code};

const CODES: [(&str, &str); 10] = [
    ("AlreadyClaimed", "already_claimed"),
    ("InvalidTask", "invalid_task"),
    ("InvalidWorkerId", "invalid_worker_id"),
    ("MaxAttemptsReached", "max_attempts_reached"),
    ("NotClaimed", "not_claimed"),
    ("StoreClosed", "closed"),
    ("TaskCompleted", "task_completed"),
    ("TaskFailed", "task_failed"),
    ("TaskNotFound", "task_not_found"),
    ("WrongWorker", "wrong_worker"),
];

#[tokio::test]
async fn each_of_the_ten_errors_has_its_code() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.worker("a"), w.worker("b"));
    let mut told = Vec::new();
    told.push((
        "TaskNotFound",
        code(w.tasks.get(TaskId::from_u128(7)).await),
    ));

    let id = w.submitted().await?;
    let unclaimed = w.tasks.hold(Holder {
        task: id,
        worker: a.clone(),
        fence: Default::default(),
    });
    told.push(("NotClaimed", code(unclaimed.complete("").await)));

    let held = w.tasks.claim(id, &a, LEASE).await?;
    told.push(("AlreadyClaimed", code(w.tasks.claim(id, &b, LEASE).await)));
    let stranger = w.tasks.hold(Holder {
        worker: b.clone(),
        ..held.holder().clone()
    });
    told.push(("WrongWorker", code(stranger.complete("").await)));
    held.complete("").await?;
    told.push(("TaskCompleted", code(w.tasks.claim(id, &b, LEASE).await)));

    let failed = w.hold(w.task("once").max_attempts(1)).await?;
    failed.fail("no").await?;
    let id = failed.task().id();
    told.push(("TaskFailed", code(w.tasks.claim(id, &b, LEASE).await)));
    told.push(("MaxAttemptsReached", code(w.tasks.retry(id).await)));

    let large = w.task(&"x".repeat(300_000));
    told.push(("InvalidTask", code(w.tasks.submit(large).await)));
    told.push(("InvalidWorkerId", code(w.tasks.worker(""))));
    w.tasks.close().await?;
    told.push(("StoreClosed", code(w.tasks.get(id).await)));
    told.sort_unstable();
    assert_eq!(told, CODES);
    Ok(())
}

#[tokio::test]
async fn the_table_in_the_documentation_has_these_codes() {
    let table = include_str!("../../src/tasks/mod.rs");
    for (name, code) in CODES {
        let row = (table.lines()).find(|line| line.starts_with(&format!("//! | `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        assert!(row.contains(&format!("| `{code}` |")), "{row}");
    }
}

#[tokio::test]
async fn everything_after_close_is_closed_and_closing_again_is_not_an_error() -> Result<()> {
    let w = World::new();
    let held = w.held().await?;
    let id = held.task().id();
    w.tasks.close().await?;
    w.tasks.close().await?;
    let answers = [
        code(w.tasks.submit(w.task("x")).await),
        code(w.tasks.submit_all([w.task("x")]).await.remove(0)),
        code(w.tasks.claim(id, &w.worker("w"), LEASE).await),
        code(held.complete("").await),
        code(held.renew(LEASE).await),
        code(w.tasks.retry(id).await),
        code(w.tasks.find(id).await),
        code(w.soon(w.tasks.wait(id)).await),
    ];
    assert!(answers.iter().all(|code| *code == "closed"), "{answers:?}");
    Ok(())
}
