//! What handlers log: gathered, in order, once, and stored before the attempt has ended.

use bytes::Bytes;
use plimsoll_core::decorate::{Fault, FaultPlan, Method};
use plimsoll_core::log::{AttemptStep, Level, Line, NewLine};
use plimsoll_core::store::{Ending, Logs};
use plimsoll_core::task::{FailureKind, Status};
use plimsoll_core::{Limits, Name, StoreExt, TaskId};
use plimsoll_engine::tasks::{JobLog, StepEnd};
use plimsoll_engine::worker::{Answer, Completion, Context, Failure, Settings, State};

use crate::setup::{Bench, Gate, Notes, millis, secs, settle_down, spawn, start};

async fn lines(bench: &Bench, task: TaskId) -> Vec<Line> {
    let (mut lines, mut cursor) = (Vec::new(), None);
    loop {
        let logs = Logs {
            task,
            level: Level::Debug,
            cursor,
            limit: 1_000,
        };
        let page = bench.store.logs(logs).await.unwrap();
        lines.extend(page.lines);
        if !page.more {
            return lines;
        }
        cursor = Some(page.next);
    }
}

async fn said(bench: &Bench, task: TaskId) -> Vec<String> {
    let lines = lines(bench, task).await.into_iter();
    lines.map(|line| line.line.message).collect()
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// Logs as many lines as its payload says.
async fn count(context: Context, payload: Bytes) -> Result<(), Failure> {
    for n in 0..std::str::from_utf8(&payload)?.parse()? {
        let n: usize = n;
        context.log(Level::Info, n.to_string()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn ten_thousand_lines_cost_a_few_commits_and_are_in_order() {
    let bench = Bench::new();
    let id = bench.submit("k", "10000").await;
    let _worker = start(bench.worker().handle("k", count));
    bench.pass(secs(1)).await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    assert_eq!(said(&bench, id).await, numbered(10_000));
    let commits = bench.calls.of(Method::Commit);
    assert!(commits <= 10, "{commits} commits");
}

#[tokio::test]
async fn a_few_lines_travel_with_the_answer() {
    let bench = Bench::new();
    let id = bench.submit("k", "5").await;
    let _worker = start(bench.worker().handle("k", count));
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    assert_eq!(said(&bench, id).await, numbered(5));
    assert_eq!(bench.calls.of(Method::Commit), 0);
}

#[tokio::test]
async fn a_line_is_seen_soon_while_the_handler_goes_on() {
    let bench = Bench::new();
    let gate = Gate::new();
    let talk = async |context: Context, State(gate): State<Gate>| {
        for text in ["one", "two", "three"] {
            context.log(Level::Info, text).await?;
            gate.wait().await;
        }
        Ok::<(), Failure>(())
    };
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(gate.clone()).handle("k", talk));
    settle_down().await;
    assert_eq!(said(&bench, id).await, [""; 0]);
    bench.pass(millis(100)).await;
    assert_eq!(said(&bench, id).await, ["one"]);
    // Others may come before it is stored.
    gate.open(1);
    settle_down().await;
    gate.open(1);
    bench.pass(millis(100)).await;
    assert_eq!(said(&bench, id).await, ["one", "two", "three"]);
    assert_eq!(bench.calls.of(Method::Commit), 2);
}

#[tokio::test]
async fn lines_of_attempts_that_end_badly_are_kept() {
    async fn talk(context: Context, payload: Bytes) -> Result<Answer, Failure> {
        context.log(Level::Warn, "last words").await?;
        match &payload[..] {
            b"panic" => panic!("oh"),
            b"fail" => Err(Failure::new("no")),
            b"snooze" => Ok(Answer::Snooze(secs(1))),
            b"wrong" => Ok(Answer::Complete(Completion::bytes(vec![0; 300_000]))),
            _ => Ok(Answer::Release),
        }
    }
    for (payload, status) in [
        ("panic", Status::Scheduled),
        ("fail", Status::Scheduled),
        ("snooze", Status::Scheduled),
        ("wrong", Status::Failed),
    ] {
        let bench = Bench::new();
        let id = bench.submit("k", payload).await;
        let _worker = start(bench.worker().handle("k", talk));
        settle_down().await;
        assert_eq!(bench.get(id).await.status, status, "{payload}");
        assert_eq!(said(&bench, id).await, ["last words"], "{payload}");
    }
}

#[tokio::test]
async fn lines_of_a_handler_that_is_dropped_are_kept() {
    // It logs up to the last moment before its deadline, and while its worker drains.
    async fn talk(context: Context) {
        loop {
            let clock = context.engine().clock();
            let now = clock.monotonic().as_millis().to_string();
            context.log(Level::Info, now).await.unwrap();
            clock.sleep(millis(30)).await;
        }
    }
    // Whoever sweeps ends the attempt before the worker can be sure that it is over.
    for swept in [false, true] {
        let bench = Bench::new();
        let slowly = Fault::Delay(millis(50));
        bench.faults.next(Method::Exchange, slowly);
        bench.calls.hold(Method::Exchange);
        let mut task = bench.task("k", "");
        task.attempt_timeout = Some(secs(2));
        let overdue = bench.add(task).await;
        let _worker = start(bench.worker().handle("k", talk));
        bench.pass(millis(100)).await;
        bench.calls.let_go(Method::Exchange);
        // It sees the lease with its first look.
        let _sweeper = swept.then(|| bench.start_sweeper());
        bench.pass(secs(3)).await;
        let task = bench.get(overdue).await;
        let kinds: Vec<FailureKind> = task.errors.iter().map(|error| error.kind).collect();
        assert_eq!(kinds, [FailureKind::DeadlineExceeded]);
        let last: u64 = said(&bench, overdue).await.last().unwrap().parse().unwrap();
        assert!(last > 1_950, "{last}, swept: {swept}");
    }

    let bench = Bench::new();
    let cut = bench.submit("k", "").await;
    let hasty = |settings: &mut Settings| {
        settings.drain_soft = secs(1);
        settings.drain_hard = secs(1);
    };
    let worker = start(bench.worker_with(hasty).handle("k", talk));
    settle_down().await;
    worker.stopper.drain();
    bench.pass(millis(2_100)).await;
    assert_eq!(worker.end().await.cut, 1);
    assert_eq!(bench.get(cut).await.status, Status::Pending);
    let last: u64 = said(&bench, cut).await.last().unwrap().parse().unwrap();
    assert!(last > 1_950, "{last}");
}

#[tokio::test]
async fn lines_are_stored_once_and_in_order_whatever_answers_are_lost() {
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
        let bench = Bench::new();
        for _ in 0..3 {
            bench.faults.next(Method::Commit, fault);
        }
        let id = bench.submit("k", "2500").await;
        let worker = start(bench.worker().handle("k", count));
        settle_down().await;
        for _ in 0..3 {
            bench.faults.next(Method::Exchange, fault);
        }
        bench.pass(secs(5)).await;
        assert_eq!(bench.get(id).await.status, Status::Completed, "{fault:?}");
        assert_eq!(said(&bench, id).await, numbered(2_500), "{fault:?}");
        assert_eq!(worker.summary().completed, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn who_logs_faster_than_the_store_takes_it_waits() {
    let bench = Bench::new();
    let counted = Notes::<usize>::new();
    let talk = async |context: Context, State(counted): State<Notes<usize>>| {
        for n in 0..1_500 {
            context.log(Level::Info, n.to_string()).await.unwrap();
            counted.add(n);
        }
    };
    bench.calls.hold(Method::Commit);
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(counted.clone()).handle("k", talk));
    bench.pass(secs(1)).await;
    assert_eq!(counted.all().len(), 1_000);
    bench.calls.let_go(Method::Commit);
    bench.pass(secs(1)).await;
    assert_eq!(said(&bench, id).await, numbered(1_500));
}

#[tokio::test]
async fn lines_are_gathered_within_the_limits_of_the_store() {
    let limits = Limits {
        log_lines_max: 7,
        text_bytes_max: 50,
        commit_bytes_max: 2_000,
        ..Limits::default()
    };
    let bench = Bench::with(FaultPlan::none(), limits, false);
    let talk = async |context: Context| {
        let refused = context.log(Level::Info, "x".repeat(51)).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "invalid input: lines.message: 51 bytes, at most 50 are allowed"
        );
        for n in 0..40 {
            context.log(Level::Info, format!("{n:050}")).await.unwrap();
        }
        // Outputs and messages are cut so that they fit.
        let step = context.step("s", "cat").unwrap().start().await.unwrap();
        let end = StepEnd::exit(0).stdout("y".repeat(100));
        step.end(end).await.unwrap();
    };
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().handle("k", talk));
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    assert_eq!(lines(&bench, id).await.len(), 42);
}

#[tokio::test]
async fn what_is_written_with_the_answer_leaves_no_line_behind() {
    let bench = Bench::new();
    let next = bench.task("other", "");
    let follow = next.clone();
    let talk = move |context: Context| {
        let done = Completion::new().submit(follow.clone());
        async move {
            context.log(Level::Info, "and then").await.unwrap();
            done
        }
    };
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().handle("k", talk));
    settle_down().await;
    assert_eq!(bench.get(next.id).await.status, Status::Pending);
    assert_eq!(said(&bench, id).await, ["and then"]);
}

#[tokio::test]
async fn a_line_has_the_stage_in_which_it_was_logged() {
    let bench = Bench::new();
    let talk = async |context: Context| {
        let own = NewLine {
            stage: Some(Name::new("elsewhere")?),
            metadata: Some("{}".into()),
            ..NewLine::new(context.job_log().line_id(), Level::Debug, "own")
        };
        context.log(Level::Info, "before").await?;
        context.stage(Name::new("late")?).await?;
        context.log(Level::Info, "after").await?;
        context.job_log().append(own).await?;
        Ok::<(), Failure>(())
    };
    let task = bench.task("k", "").first_stage(Name::new("early").unwrap());
    let id = bench.add(task).await;
    let _worker = start(bench.worker().handle("k", talk));
    settle_down().await;
    let found: Vec<(String, Option<String>)> = (lines(&bench, id).await.into_iter())
        .map(|line| (line.line.message, line.line.stage.map(String::from)))
        .collect();
    let expected = [("before", "early"), ("after", "late"), ("own", "elsewhere")];
    let expected = expected.map(|(text, stage)| (text.to_owned(), Some(stage.to_owned())));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_handler_that_lost_its_task_is_told_by_the_log_again_and_again() {
    let bench = Bench::new();
    let (gate, told) = (Gate::new(), Notes::<&'static str>::new());
    let talk = async |context: Context,
                      State(gate): State<Gate>,
                      State(told): State<Notes<&'static str>>| {
        gate.wait().await;
        let log = context.job_log();
        log.log(Level::Info, "accepted").await.unwrap();
        told.add(log.flush().await.unwrap_err().kind());
        told.add(log.flush().await.unwrap_err().kind());
        told.add(log.log(Level::Info, "x").await.unwrap_err().kind());
    };
    let id = bench.submit("k", "").await;
    let builder = bench.worker().state(gate.clone()).state(told.clone());
    let _worker = start(builder.handle("k", talk));
    settle_down().await;
    let holder = bench.get(id).await.holder().unwrap();
    let release = Ending::Release { reason: None };
    bench.store.settle(holder, release).await.unwrap();
    gate.open(1);
    settle_down().await;
    assert_eq!(told.all(), ["lease_lost"; 3]);
    assert_eq!(said(&bench, id).await, [""; 0]);
}

#[tokio::test]
async fn a_step_is_seen_running_and_then_as_it_ended() {
    let bench = Bench::new();
    let gate = Gate::new();
    let work = async |context: Context, State(gate): State<Gate>| {
        let encode = context.step("encode", "ffmpeg")?.command("ffmpeg -i a b");
        let encode = encode.start().await?;
        gate.wait().await;
        context.log(Level::Debug, "between").await?;
        let end = StepEnd::exit(1).stdout(b"\xffout").stderr("a\0b");
        encode.end(end).await?;
        let upload = context.step("upload", "s3")?.start().await?;
        upload.end(StepEnd::ok()).await?;
        let check = context.step("check", "http")?.start().await?;
        check.end(StepEnd::failed("404")).await?;
        Ok::<(), Failure>(())
    };
    let id = bench.submit("k", "").await;
    let tasks = bench.engine.tasks();
    let _worker = start(bench.worker().state(gate.clone()).handle("k", work));
    bench.pass(millis(100)).await;
    let running = tasks.steps(id).await.unwrap();
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].command.as_deref(), Some("ffmpeg -i a b"));
    let end = (running[0].completed_at, running[0].success);
    assert_eq!(end, (None, None));
    bench.pass(millis(1_400)).await;
    gate.open(1);
    settle_down().await;
    let steps = tasks.steps(id).await.unwrap();
    let ids: Vec<&str> = steps.iter().map(|step| step.step_id.as_str()).collect();
    assert_eq!(ids, ["encode", "upload", "check"]);
    let encode = &steps[0];
    assert_eq!(encode.started_at, running[0].started_at);
    assert_eq!(encode.duration_ms, Some(1_500));
    assert_eq!(
        encode.completed_at,
        Some(encode.started_at.saturating_plus(millis(1_500)))
    );
    assert_eq!(encode.stdout.as_deref(), Some("\u{fffd}out"));
    assert_eq!(encode.stderr.as_deref(), Some("a\u{fffd}b"));
    let ends: Vec<_> = (steps.iter())
        .map(|step| (step.exit_code, step.success, step.error.as_deref()))
        .collect();
    assert_eq!(
        ends,
        [
            (Some(1), Some(false), None),
            (None, Some(true), None),
            (None, Some(false), Some("404"))
        ]
    );
    let levels: Vec<Level> = (lines(&bench, id).await.iter())
        .map(|line| line.line.level)
        .collect();
    let (info, error) = (Level::Info, Level::Error);
    let expected = [info, Level::Debug, error, info, info, info, error];
    assert_eq!(levels, expected);
}

#[tokio::test]
async fn what_is_logged_after_the_answer_is_refused_and_not_lost() {
    let bench = Bench::new();
    let left = Notes::<JobLog>::new();
    let leave = async |context: Context, State(left): State<Notes<JobLog>>| {
        left.add(context.job_log().clone());
    };
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().state(left.clone()).handle("k", leave));
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    let log = &left.all()[0];
    let refused = log.log(Level::Info, "late").await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.code()),
        ("lease_lost", "attempt_over")
    );
    assert_eq!(log.flush().await.unwrap_err(), refused);
}

#[tokio::test]
async fn a_flush_under_way_when_the_handler_answers_loses_and_doubles_nothing() {
    let bench = Bench::new();
    let talk = async |context: Context| {
        context.log(Level::Info, "one").await.unwrap();
        let log = context.job_log().clone();
        let flush = spawn(async move { log.flush().await });
        tokio::task::yield_now().await;
        context.log(Level::Info, "two").await.unwrap();
        drop(flush);
    };
    bench.calls.hold(Method::Commit);
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().handle("k", talk));
    settle_down().await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    bench.calls.let_go(Method::Commit);
    settle_down().await;
    assert_eq!(said(&bench, id).await, ["one", "two"]);
}

#[tokio::test]
async fn each_attempt_has_steps_of_its_own_and_those_of_a_crash_are_cut_off() {
    let bench = Bench::new();
    let tasks = bench.engine.tasks();
    let id = bench.submit("k", "").await;
    let held = tasks
        .claim(id, &tasks.worker("w1").unwrap(), secs(30))
        .await
        .unwrap();
    let log = held.job_log();
    let failed = log.step("encode", "ffmpeg").unwrap().start().await.unwrap();
    failed.end(StepEnd::exit(1)).await.unwrap();
    let crashed = log.step("upload", "s3").unwrap().start().await.unwrap();
    log.flush().await.unwrap();
    drop(crashed);
    let seen = async || {
        let steps = tasks.steps(id).await.unwrap().into_iter();
        let told = |step: AttemptStep| {
            (
                step.fence.get(),
                step.step_id.to_string(),
                step.success,
                step.cut_off,
            )
        };
        steps.map(told).collect::<Vec<_>>()
    };
    let step = |fence, id: &str, success, cut_off| (fence, id.to_owned(), success, cut_off);
    let first = step(1, "encode", Some(false), false);
    assert_eq!(
        seen().await,
        [first.clone(), step(1, "upload", None, false)]
    );
    held.fail("crash").await.unwrap();
    let cut = step(1, "upload", None, true);
    assert_eq!(seen().await, [first.clone(), cut.clone()]);
    bench.clock.advance(secs(60));
    bench.sweep().await;
    let held = tasks
        .claim(id, &tasks.worker("w1").unwrap(), secs(30))
        .await
        .unwrap();
    let log = held.job_log();
    let again = log.step("encode", "ffmpeg").unwrap().start().await.unwrap();
    log.flush().await.unwrap();
    let running = step(2, "encode", None, false);
    assert_eq!(seen().await, [first.clone(), cut.clone(), running]);
    again.end(StepEnd::ok()).await.unwrap();
    log.flush().await.unwrap();
    held.complete("").await.unwrap();
    let ended = step(2, "encode", Some(true), false);
    assert_eq!(seen().await, [first, cut, ended]);
}

#[tokio::test]
async fn a_holder_s_lines_have_the_stage_in_which_they_were_logged() {
    let bench = Bench::new();
    let tasks = bench.engine.tasks();
    let early = Name::new("early").unwrap();
    let id = bench.add(bench.task("k", "").first_stage(early)).await;
    let held = tasks
        .claim(id, &tasks.worker("w1").unwrap(), secs(30))
        .await
        .unwrap();
    // One that went on elsewhere does not know the stage at first.
    let elsewhere = tasks.hold(held.holder().clone());
    let log = elsewhere.job_log();
    log.log(Level::Info, "before").await.unwrap();
    elsewhere.stage(Name::new("late").unwrap()).await.unwrap();
    log.log(Level::Info, "after").await.unwrap();
    log.flush().await.unwrap();
    let own = held.job_log();
    own.log(Level::Info, "own").await.unwrap();
    held.stage(Name::new("last").unwrap()).await.unwrap();
    own.flush().await.unwrap();
    let stages: Vec<_> = (lines(&bench, id).await.into_iter())
        .map(|line| line.line.stage.unwrap().to_string())
        .collect();
    assert_eq!(stages, ["early", "late", "early"]);
}
