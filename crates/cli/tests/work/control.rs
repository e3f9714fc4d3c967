//! What a command is told, and what it may say by lines.

use std::time::Duration;

use plimsoll::log::Level;
use plimsoll::task::{NewTask, Status};
use plimsoll::{IdempotencyKey, Name};

use crate::setup::World;

fn environment(task: &plimsoll::task::Task) -> Vec<String> {
    let text = String::from_utf8(task.result.clone().unwrap().to_vec()).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn a_command_knows_its_task() {
    let world = World::new().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let task = NewTask {
        first_stage: Some(Name::new("planning").unwrap()),
        ..world.task("")
    };
    let task = task
        .key(IdempotencyKey::new("order 7").unwrap())
        .trace(format!("{trace} vendor=1"));
    let full = world
        .add(task.attempt_timeout(Duration::from_secs(60)))
        .await;
    let bare = world.submit("").await;
    let work = &["--until-empty", "--name", "w 1", "--concurrency", "1"];
    // A worker that is run by another one must not hand on what is not its.
    let mut work = world.work(work, &["env"]);
    work.env("PLIMSOLL_KEY", "stale")
        .env("TRACEPARENT", "stale")
        .env("TRACESTATE", "stale");
    work.env("PLIMSOLL_CHECKPOINT", "stale")
        .env("PLIMSOLL_DEADLINE", "stale");
    assert!(work.status().unwrap().success());
    let task = world.get(full).await;
    let seen = environment(&task);
    let claimed = task.claimed_at.unwrap().as_micros();
    for expected in [
        format!("PLIMSOLL_TASK_ID={full}"),
        format!("PLIMSOLL_FENCE={}", task.fence),
        "PLIMSOLL_ATTEMPT=1".into(),
        "PLIMSOLL_QUEUE=q".into(),
        "PLIMSOLL_KIND=k".into(),
        "PLIMSOLL_KEY=order 7".into(),
        "PLIMSOLL_STAGE=planning".into(),
        format!("PLIMSOLL_STORE={}", world.store[0]),
        format!("PLIMSOLL_NAMESPACE={}", world.store[1]),
        "PLIMSOLL_WORKER=w 1".into(),
        format!("PLIMSOLL_DEADLINE={}", claimed / 1_000_000 + 60),
        format!("PLIMSOLL_TRACEPARENT={trace}"),
        format!("TRACEPARENT={trace}"),
        "TRACESTATE=vendor=1".into(),
    ] {
        assert!(seen.contains(&expected), "{expected} in {seen:#?}");
    }
    let bare = environment(&world.get(bare).await);
    for missing in ["KEY", "STAGE", "DEADLINE", "TRACEPARENT", "CHECKPOINT"] {
        let missing = format!("PLIMSOLL_{missing}=");
        assert!(
            !bare.iter().any(|line| line.starts_with(&missing)),
            "{bare:#?}"
        );
    }
    for missing in ["TRACEPARENT=", "TRACESTATE="] {
        assert!(!bare.iter().any(|line| line.starts_with(missing)));
    }
}

#[tokio::test]
async fn lines_say_how_far_it_is_and_more() {
    let world = World::new().await;
    let id = world.submit("").await;
    world.run(
        "say() { echo \"$@\" >> \"$PLIMSOLL_CONTROL\"; }
         say progress 10 begun; say stage planning; say log warn careful
         say set output_files a.png b.png; say set plan two passes; say checkpoint page 7
         say progress 3/4 copying",
    );
    let task = world.get(id).await;
    assert_eq!(task.status, Status::Completed);
    let progress = task.progress.clone().unwrap();
    assert_eq!(
        (progress.percent, progress.current_step),
        (Some(75), Some(3))
    );
    assert_eq!(progress.message.as_deref(), Some("copying"));
    assert_eq!(task.checkpoint.as_deref(), Some(&b"page 7"[..]));
    let attribute = |name: &str| task.attributes[&Name::new(name).unwrap()].clone();
    assert_eq!(attribute("output_files"), "a.png b.png");
    assert_eq!(attribute("plan"), "two passes");
    let lines = world.log(id).await;
    let careful = lines
        .iter()
        .find(|line| line.line.message == "careful")
        .unwrap();
    assert_eq!(careful.line.level, Level::Warn);
    // A task that has ended is in no stage; its lines were.
    assert_eq!(careful.line.stage, Some(Name::new("planning").unwrap()));
}

#[tokio::test]
async fn a_checkpoint_is_there_for_the_next_attempt() {
    let world = World::new().await;
    let id = world.submit("").await;
    world.run(
        "last=$(cat \"${PLIMSOLL_CHECKPOINT:-/dev/null}\")
         echo \"checkpoint ${last}x\" >> \"$PLIMSOLL_CONTROL\"
         echo \"$last\"; [ $PLIMSOLL_ATTEMPT = 3 ]",
    );
    let task = world.get(id).await;
    assert_eq!(task.result.as_deref(), Some(&b"xx\n"[..]));
    assert_eq!(task.checkpoint.as_deref(), Some(&b"xxx"[..]));
}

#[tokio::test]
async fn follow_ups_are_submitted_with_the_end_of_their_task_and_not_without_it() {
    let world = World::new().await;
    let id = world.submit("parent").await;
    let failed = world.add(world.task("no parent").max_attempts(1)).await;
    world.run(
        "payload=$(cat); echo \"$payload\"
         case $payload in child*) exit 0;; esac
         for n in 1 2 3; do echo submit q born child $n >> \"$PLIMSOLL_CONTROL\"; done
         [ \"$payload\" = parent ]",
    );
    assert_eq!(world.get(id).await.status, Status::Completed);
    assert_eq!(world.get(failed).await.status, Status::Failed);
    let counts = world.tasks.counts(plimsoll::store::Counts {
        kind: Some(Name::new("born").unwrap()),
        ..Default::default()
    });
    let counts = counts.await.unwrap();
    assert_eq!(counts[0].by_status[&Status::Completed], 3);
}

#[tokio::test]
async fn a_task_is_not_completed_without_its_next_step() {
    let world = World::new().await;
    let limit = world.engine.store().limits().payload_bytes_max;
    let born = |size| format!("printf 'submit q born '; head -c {size} /dev/zero | tr '\\0' x");
    let long = format!("printf 'submit {} k'", "q".repeat(200));
    let mut tasks = Vec::new();
    for (says, why) in [
        ("printf 'submit q'", "`submit q`"),
        (&long, "queue"),
        (&born(limit + 1), "larger than"),
        (&born(limit + 999), "longer than"),
        ("mkdir folder; printf 'submit q born @folder'", "is no file"),
    ] {
        let task = world.task(says.to_owned()).max_attempts(1);
        tasks.push((world.add(task).await, why));
    }
    let just = world.submit(born(limit)).await;
    world.run(
        "case $PLIMSOLL_KIND in born) exit;; esac
         { eval \"$(cat)\"; echo; } >> \"$PLIMSOLL_CONTROL\"",
    );
    for (id, why) in tasks {
        let task = world.get(id).await;
        assert_eq!(task.status, Status::Failed, "{why}");
        let error = &task.errors[0].message;
        assert!(error.contains(why), "{why}: {error}");
    }
    assert_eq!(world.get(just).await.status, Status::Completed);
}

#[tokio::test]
async fn a_next_step_may_have_its_payload_in_a_file() {
    let world = World::new().await;
    world.submit("").await;
    world.run(
        "case $PLIMSOLL_KIND in born) cat >> got; exit;; esac
         echo 'submit q born @next.json' >> \"$PLIMSOLL_CONTROL\"
         printf 'two\nlines\n' > next.json",
    );
    let got = std::fs::read_to_string(world.path().join("got")).unwrap();
    assert_eq!(got, "two\nlines\n");
}

#[tokio::test]
async fn what_is_malformed_or_refused_is_a_warning_and_no_failure() {
    let world = World::new().await;
    let id = world.submit("").await;
    world.run(
        "say() { echo \"$@\" >> \"$PLIMSOLL_CONTROL\"; }
         say progress soon; say dance; say set plan ok
         for n in $(seq 300); do say set a$n x; done
         printf 'log info no end' >> \"$PLIMSOLL_CONTROL\"",
    );
    assert_eq!(world.get(id).await.status, Status::Completed);
    let said = world.said(id).await;
    let warned = |text: &str| {
        let found = said.iter().find(|(_, line)| line.contains(text));
        let (level, _) = found.unwrap_or_else(|| panic!("{text} in {said:#?}"));
        assert_eq!(*level, Level::Warn);
    };
    warned("`progress soon`");
    warned("`dance`");
    // There may be 256 attributes. Those that are too many do not keep the others from it.
    let refused = said.iter().filter(|(_, line)| line.contains("was refused"));
    assert_eq!(refused.count(), 301 - 256);
    warned("`set a");
    assert_eq!(world.get(id).await.attributes.len(), 256);
    assert!(said.contains(&(Level::Info, "no end".into())), "{said:#?}");
}
