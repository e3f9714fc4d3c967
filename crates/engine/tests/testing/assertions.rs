//! What a failed assertion says.

use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::Json;

use crate::setup::{HOUR, SECOND, failure, submit, task};

#[tokio::test]
async fn submissions_are_found_by_lane_payload_and_number() {
    let kit = Kit::new();
    for payload in ["{\"to\": \"ada\"}", "{\"to\": \"bob\"}", "{\"to\":\"ada\"}"] {
        submit(&kit, task(&kit, "send", payload)).await;
    }
    let ada = serde_json::json!({ "to": "ada" });
    kit.assert_submitted("q", "send").times(3);
    kit.assert_submitted("q", "send").with(&ada).times(2);
    kit.assert_submitted("q", "send")
        .with_bytes("{\"to\":\"ada\"}")
        .times(1);
    kit.assert_not_submitted("q", "receive");

    let says = async |assertion: &dyn Fn()| failure(async { assertion() }).await;
    let missing = says(&|| drop(kit.assert_submitted("q", "receive"))).await;
    assert!(missing.starts_with("no task q/receive was submitted. There are:\n  q/send "));
    assert_eq!(missing.lines().count(), 4, "{missing}");
    let payload = says(&|| drop(kit.assert_submitted("q", "send").with("eve"))).await;
    assert!(payload.starts_with("no task q/send with payload \"eve\" was submitted. There are:"));
    let times = says(&|| drop(kit.assert_submitted("q", "send").with(&ada).times(3))).await;
    let begin =
        "task q/send with payload {\"to\":\"ada\"} was submitted 2 times, not 3. There are:";
    assert!(times.starts_with(begin), "{times}");
    let not = says(&|| kit.assert_not_submitted("q", "send")).await;
    assert!(
        not.starts_with("a task q/send was submitted:\n  q/send "),
        "{not}"
    );
    let nothing = says(&|| drop(Kit::new().assert_submitted("q", "send"))).await;
    assert_eq!(
        nothing,
        "no task q/send was submitted. There are no tasks at all"
    );
}

#[tokio::test]
async fn a_wrong_status_is_told_with_what_the_task_is() {
    let kit = Kit::new();
    let fail = kit.worker("w").queue("q");
    let fail = fail.handle("k", async || Err::<(), _>("no route"));
    let id = kit.perform(fail, task(&kit, "k", "hello")).await.id();
    let said = failure(async { kit.assert_completed(id) }).await;
    let begin = format!(
        "expected a task that is completed, but it is:\n  q/k {id}: scheduled, payload hello, due in "
    );
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with("1 failures, the last: no route"), "{said}");
    let said = failure(async { kit.assert_retrying(id, "no bread") }).await;
    assert!(said.starts_with("the last error does not contain \"no bread\":"));
    let later = submit(&kit, task(&kit, "k", "").after(HOUR)).await;
    let said = failure(async { kit.assert_due_in(later, SECOND) }).await;
    assert_eq!(said, format!("task {later} is due in 3600s, not in 1s"));
}

#[tokio::test]
async fn a_wrong_result_is_told_with_what_it_is() {
    let kit = Kit::new();
    let add = async |Json((a, b)): Json<(u32, u32)>| Json(a + b);
    let add = kit.worker("w").queue("q").handle("add", add);
    let id = kit.perform(add, task(&kit, "add", "[1, 2]")).await.id();
    kit.assert_completed_with(id, &3);
    let said = failure(async { kit.assert_completed_with(id, &4) }).await;
    assert_eq!(said, format!("task {id} is completed with 3, not with 4"));
}

#[tokio::test]
async fn long_and_binary_payloads_and_many_tasks_are_shortened() {
    let kit = Kit::new();
    for n in 0..25 {
        let payload = if n == 0 {
            vec![b'x'; 1_000]
        } else {
            vec![0xff; n]
        };
        let task = kit.tasks().task("q", "k", payload).unwrap();
        submit(&kit, task).await;
    }
    let said = failure(async { kit.assert_submitted("q", "other") }).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 22, "{said}");
    assert!(lines[1].ends_with(&format!("payload {}…", "x".repeat(120))));
    assert!(lines[2].ends_with("payload (1 bytes)"));
    assert_eq!(lines[21], "  and 5 more");
}
