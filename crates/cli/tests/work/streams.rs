//! What goes into a command and what comes out of it.

use plimsoll::log::Level;
use plimsoll::task::Status;
use rustix::process::Signal;

use crate::setup::{Working, World};

#[tokio::test]
async fn payload_and_result_are_any_bytes() {
    let world = World::new().await;
    let bytes: Vec<u8> = (0..200_000u32).map(|n| (n * 7 / 3) as u8).collect();
    let large = world.submit(bytes.clone()).await;
    let nul = world.submit("\0\n\0").await;
    let empty = world.submit("").await;
    world.run("cat");
    assert_eq!(world.get(large).await.result.as_deref(), Some(&bytes[..]));
    assert_eq!(world.get(nul).await.result.as_deref(), Some(&b"\0\n\0"[..]));
    let empty = world.get(empty).await;
    assert_eq!((empty.status, &empty.result), (Status::Completed, &None));
}

#[tokio::test]
async fn a_result_has_a_limit_and_what_is_beyond_is_no_result() {
    let world = World::new().await;
    let limit = world.engine.store().limits().payload_bytes_max;
    let (just, over) = (limit.to_string(), (limit + 1).to_string());
    let (just, over) = (world.submit(just).await, world.submit(over).await);
    let much = world.submit("50000000").await;
    world.run("head -c $(cat) /dev/zero");
    assert_eq!(world.get(just).await.result.as_ref().unwrap().len(), limit);
    for id in [over, much] {
        let task = world.get(id).await;
        assert_eq!((task.status, task.attempts), (Status::Failed, 1));
        let error = &task.errors[0].message;
        assert!(error.contains(&format!("{limit} bytes")), "{error}");
        assert!(error.contains("result_ref"), "{error}");
    }
}

#[tokio::test]
async fn a_command_need_not_read_and_need_not_write() {
    let world = World::new().await;
    let payload = vec![b'x'; 256 * 1024];
    let deaf = world.submit(payload.clone()).await;
    world.run("true");
    assert_eq!(world.get(deaf).await.status, Status::Completed);
    let mute = world.submit(payload).await;
    world.run("exec <&- >&- 2>&-; true");
    assert_eq!(world.get(mute).await.status, Status::Completed);
}

#[tokio::test]
async fn standard_error_goes_to_the_log_line_by_line() {
    let world = World::new().await;
    let id = world.submit("").await;
    world.run(
        "echo plain >&2; echo 'WARN: disk' >&2; echo 'error: x' >&2; echo 'debug: y' >&2
         echo >&2; printf 'a\\0b' >&2",
    );
    let expected = [
        (Level::Info, "plain"),
        (Level::Warn, "disk"),
        (Level::Error, "x"),
        (Level::Debug, "y"),
        (Level::Info, ""),
        (Level::Info, "a\u{fffd}b"),
    ];
    let expected = expected.map(|(level, text)| (level, text.to_owned()));
    assert_eq!(world.said(id).await, expected);
}

#[tokio::test]
async fn every_run_is_a_step_in_the_log() {
    let world = World::new().await;
    let id = world.submit("").await;
    world.run("echo out; echo err >&2; [ $PLIMSOLL_ATTEMPT = 2 ]");
    let lines = world.log(id).await;
    let steps: Vec<_> = lines
        .iter()
        .filter_map(|line| line.line.step.as_ref())
        .collect();
    assert_eq!(steps.len(), 2);
    for (step, n) in steps.iter().zip([1, 2]) {
        assert_eq!(step.step_id.as_str(), format!("attempt-{n}"));
        assert_eq!(step.exit_code, Some(2 - n));
        assert_eq!(step.success, Some(n == 2));
        assert_eq!(step.error.is_some(), n == 1);
        assert_eq!(step.stdout.as_deref(), Some("out\n"));
        assert_eq!(step.stderr.as_deref(), Some("err\n"));
        assert!(step.command.as_ref().unwrap().starts_with("sh -c echo out"));
        assert!(step.completed_at.unwrap() >= step.started_at);
        assert!(step.duration_ms.is_some());
    }
    // Of each run, what it said comes before how it ended.
    let order: Vec<bool> = lines.iter().map(|line| line.line.step.is_some()).collect();
    assert_eq!(order, [false, true, false, true]);
}

#[tokio::test]
async fn long_lines_are_cut_and_a_flood_is_left_out_and_both_say_so() {
    let world = World::new().await;
    let long = world.submit("head -c 10000 /dev/zero | tr '\\0' x").await;
    let flood = world.submit("yes 0123456789 | head -n 500000").await;
    world.run("eval \"$(cat)\" >&2");
    let said = world.said(long).await;
    assert_eq!(said.len(), 1);
    assert!(said[0].1.starts_with("xxxx"));
    assert!(said[0].1.ends_with(" … and 5904 more bytes"), "{said:?}");

    let step = |lines: Vec<plimsoll::log::Line>| lines.into_iter().find_map(|line| line.line.step);
    let mut lines = Vec::new();
    let mut cursor = None;
    loop {
        let page = world.tasks.logs(plimsoll::store::Logs {
            task: flood,
            level: Level::Debug,
            cursor,
            limit: 1_000,
        });
        let page = page.await.unwrap();
        lines.extend(page.lines);
        cursor = Some(page.next);
        if !page.more {
            break;
        }
    }
    // Eleven bytes a line with its end, in a mebibyte.
    let kept = 1024 * 1024 / 11;
    assert_eq!(lines.len(), kept + 2);
    let note = &lines[kept].line;
    assert_eq!(note.level, Level::Warn);
    let left_out = format!("{} more lines", 500_000 - kept);
    assert!(note.message.starts_with(&left_out), "{}", note.message);
    assert!(
        step(lines)
            .unwrap()
            .stderr
            .unwrap()
            .ends_with("0123456789\n")
    );
}

/// How much memory a process had at most, in kilobytes.
fn peak(pid: rustix::process::Pid) -> u64 {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(path).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = peak.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[tokio::test]
async fn a_hundred_megabytes_of_standard_error_are_never_in_memory() {
    let world = World::new().await;
    let mut worker = Working::start(&world, &[], &["sh", "-c", "eval \"$(cat)\" >&2"]);
    let little = world.submit("echo little").await;
    worker.event("ended");
    let before = peak(worker.pid());
    let lines = "yes 0123456789012345678901234567890123456789 | head -c 50000000";
    let one_line = "head -c 50000000 /dev/zero";
    let much = world
        .submit(format!("{lines}; {one_line}; {one_line} | tr '\\0' '\\n'"))
        .await;
    worker.event("ended");
    let after = peak(worker.pid());
    worker.signal(Signal::TERM);
    assert_eq!(worker.end(), 0);
    for id in [little, much] {
        assert_eq!(world.get(id).await.status, Status::Completed);
    }
    // Less than half of what was said: pipes and parts of it are.
    assert!(after - before < 64 * 1024, "{before} kB, then {after} kB");
}
