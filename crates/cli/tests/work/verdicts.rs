//! What becomes of a task by the exit code of its command.

use std::time::Duration;

use plimsoll::task::Status;

use crate::setup::World;

#[tokio::test]
async fn exit_codes_decide() {
    let world = World::new().await;
    let mut tasks = Vec::new();
    for code in [0, 1, 3, 65, 75, 126, 127, 137] {
        let task = world.task(format!("echo last words >&2; exit {code}"));
        tasks.push((code, world.add(task.max_attempts(1)).await));
    }
    world.run("eval \"$(cat)\"");
    for (code, id) in tasks {
        let task = world.get(id).await;
        let expected = match code {
            0 => Status::Completed,
            75 => Status::Scheduled,
            _ => Status::Failed,
        };
        assert_eq!(task.status, expected, "{code}");
        assert_eq!(task.attempts, 1, "{code}");
        if expected == Status::Failed {
            let error = &task.errors[0].message;
            assert!(error.contains(&format!("exit code {code}")), "{error}");
            assert!(error.ends_with("last words"), "{error}");
        }
        match code {
            75 => {
                assert_eq!((task.failures, task.errors.len()), (0, 0));
                let wait = task.runnable_at.since(task.modified_at);
                assert_eq!(wait, Duration::from_secs(60));
            }
            126 => assert!(task.errors[0].message.contains("cannot be run")),
            127 => assert!(task.errors[0].message.contains("was not found")),
            137 => assert!(task.errors[0].message.contains("killed by SIGKILL")),
            _ => {}
        }
    }
}

#[tokio::test]
async fn data_errors_are_final_and_others_are_tried_again() {
    let world = World::new().await;
    let (fatal, again) = (world.submit("65").await, world.submit("1").await);
    world.run("exit $(cat)");
    let (fatal, again) = (world.get(fatal).await, world.get(again).await);
    assert_eq!((fatal.status, fatal.attempts), (Status::Failed, 1));
    assert_eq!((again.status, again.attempts), (Status::Failed, 4));
}

#[tokio::test]
async fn a_command_that_a_signal_kills_has_failed_by_its_name() {
    let world = World::new().await;
    let id = world.add(world.task("").max_attempts(1)).await;
    world.run("kill -SEGV $$");
    let task = world.get(id).await;
    assert_eq!(task.status, Status::Failed);
    assert!(task.errors[0].message.contains("SIGSEGV"), "{task:?}");
}

#[tokio::test]
async fn a_machine_without_what_a_task_needs_puts_it_off_and_works_on_others() {
    let world = World::new().await;
    let not_here = world.add(world.task("69").max_attempts(1)).await;
    let here = world.submit("0").await;
    let work = ["--until-empty", "--concurrency", "1"];
    let mut work = world.work(&work, &["sh", "-c", "exit $(cat)"]);
    assert!(work.status().unwrap().success());
    assert_eq!(world.get(here).await.status, Status::Completed);
    let task = world.get(not_here).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 0));
    let wait = task.runnable_at.since(task.modified_at);
    assert_eq!(wait, Duration::from_secs(60));
}

#[tokio::test]
async fn a_command_may_say_when_it_wants_to_be_tried_again() {
    let world = World::new().await;
    let ids = [world.submit("75").await, world.submit("1").await];
    world.run("echo retry-after 2h >> $PLIMSOLL_CONTROL; exit $(cat)");
    for (id, failures) in ids.into_iter().zip([0, 1]) {
        let task = world.get(id).await;
        assert_eq!((task.status, task.failures), (Status::Scheduled, failures));
        let wait = task.runnable_at.since(task.modified_at);
        assert_eq!(wait, Duration::from_secs(7_200));
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_noticed_before_anything_is_claimed() {
    let world = World::new().await;
    let id = world.submit("").await;
    std::fs::write(world.path().join("text"), "no program").unwrap();
    for program in ["no-such-program", "./no-such-program", "./text", "/"] {
        let output = world.work(&["--until-empty"], &[program]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{program}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains(program) && said.contains("no such program"),
            "{said}"
        );
    }
    assert_eq!(world.get(id).await.attempts, 0);
}

#[tokio::test]
async fn a_program_that_goes_away_is_a_failed_attempt_that_says_so() {
    let world = World::new().await;
    let program = world.path().join("program");
    std::fs::write(&program, "#!/no/such/shell\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    let id = world.add(world.task("").max_attempts(1)).await;
    let output = world
        .work(&["--until-empty"], &["./program"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let task = world.get(id).await;
    assert_eq!(task.status, Status::Failed);
    let error = &task.errors[0].message;
    assert!(
        error.contains("not found") && error.contains("./program"),
        "{error}"
    );
}
