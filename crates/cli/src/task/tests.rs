//! What people see of tasks, at a moment that never changes.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::clock::{Clock, ManualClock};
use plimsoll::task::{Priority, Progress, Task};
use plimsoll::{Engine, Ids, Limits, Memory, Name, Namespace, TaskId, Tasks};

use super::details::details;
use super::list::Table;
use crate::screen::Screen;

struct World {
    clock: ManualClock,
    tasks: Tasks,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let memory = Memory::with(shared.clone(), Limits::default());
        let store = memory.open(Namespace::new("people").expect("a namespace"));
        let engine = Engine::with(Arc::new(store), shared.clone(), Ids::seeded(1, shared));
        let tasks = engine.tasks();
        Self { clock, tasks }
    }

    async fn submit(
        &self,
        number: u128,
        change: impl FnOnce(plimsoll::task::NewTask) -> plimsoll::task::NewTask,
    ) {
        let task = self
            .tasks
            .task("media", "transcode", r#"{"clip":7,"to":["mp4"]}"#);
        let mut task = change(task.expect("a task"));
        task.id = TaskId::from_u128(number);
        self.tasks.submit(task).await.expect("it is submitted");
    }

    async fn claim(&self, number: u128, worker: &str) -> plimsoll::tasks::Held {
        let worker = self.tasks.worker(worker).expect("a worker");
        let held = self
            .tasks
            .claim(TaskId::from_u128(number), &worker, seconds(30));
        held.await.expect("it is claimed")
    }

    async fn get(&self, number: u128) -> Task {
        let task = self.tasks.get(TaskId::from_u128(number)).await;
        task.expect("it is there")
    }

    /// One task in each status, an hour after the first was submitted.
    async fn of_every_status(&self) -> Vec<Task> {
        self.submit(1, |task| task.max_attempts(1)).await;
        self.submit(2, |task| task.owner(name("ada"))).await;
        self.submit(3, |task| task.key("clip-7".try_into().expect("a key")))
            .await;
        self.clock.advance(seconds(3_540));
        let failing = self.claim(1, "host-1").await;
        let error = "no codec for\nthe stream \x1b[31mat all";
        failing.fail(error).await.expect("it fails");
        let done = self.claim(2, "host-1").await;
        self.clock.advance(Duration::from_millis(2_500));
        done.complete("{}").await.expect("it completes");
        let held = self.claim(3, "host-2").await;
        let progress = Progress {
            percent: Some(40),
            message: Some("encoding".into()),
            current_step: Some(2),
            step_count: Some(5),
        };
        held.progress(progress).await.expect("it is held");
        self.submit(4, |task| task.priority(Priority::HIGHEST))
            .await;
        self.submit(5, |task| task.after(seconds(10_800))).await;
        self.submit(6, |task| task).await;
        let cancelled = self
            .tasks
            .cancel(TaskId::from_u128(6), Some("wrong clip".into()));
        cancelled.await.expect("it is cancelled");
        self.clock.advance(seconds(12));
        let mut tasks = Vec::new();
        for number in [3, 4, 5, 1, 6, 2] {
            tasks.push(self.get(number).await);
        }
        tasks
    }

    fn table(&self, tasks: &[Task], width: usize) -> String {
        let screen = Screen::plain(Some(width));
        let mut table = Table::default();
        for task in tasks {
            table
                .push(task, self.clock.now(), &screen)
                .expect("it is shown");
        }
        table.0.block(&screen)
    }
}

#[tokio::test]
async fn a_list_fits_80_columns() {
    let world = World::new();
    let tasks = world.of_every_status().await;
    let expected = "\
ID                                    STATUS     LANE          AGE  WHAT
00000000-0000-0000-0000-000000000003  claimed    media/trans…  59m  host-2, 40 …
00000000-0000-0000-0000-000000000004  pending    media/trans…  12s
00000000-0000-0000-0000-000000000005  scheduled  media/trans…  12s  in 2h
00000000-0000-0000-0000-000000000001  failed     media/trans…  59m  no codec fo…
00000000-0000-0000-0000-000000000006  cancelled  media/trans…  12s  wrong clip
00000000-0000-0000-0000-000000000002  completed  media/trans…  59m  took 2.5s
";
    assert_eq!(world.table(&tasks, 80), expected);
}

#[tokio::test]
async fn a_list_uses_120_columns() {
    let world = World::new();
    let tasks = world.of_every_status().await;
    let expected = "\
ID                                    STATUS     LANE             PRIO  AGE  KEY     OWNER  WHAT
00000000-0000-0000-0000-000000000003  claimed    media/transcode        59m  clip-7         host-2, 40 %, step 2 of 5, …
00000000-0000-0000-0000-000000000004  pending    media/transcode    10  12s
00000000-0000-0000-0000-000000000005  scheduled  media/transcode        12s                 in 2h
00000000-0000-0000-0000-000000000001  failed     media/transcode        59m                 no codec for the stream �[3…
00000000-0000-0000-0000-000000000006  cancelled  media/transcode        12s                 wrong clip
00000000-0000-0000-0000-000000000002  completed  media/transcode        59m          ada    took 2.5s
";
    assert_eq!(world.table(&tasks, 120), expected);
}

#[tokio::test]
async fn a_task_that_is_held_is_shown_with_its_worker_and_progress() {
    let world = World::new();
    world.of_every_status().await;
    let shown = details(
        &world.get(3).await,
        world.clock.now(),
        false,
        &Screen::plain(Some(80)),
    );
    let expected = "\
00000000-0000-0000-0000-000000000003  claimed
  queue       media
  kind        transcode
  priority    5
  key         clip-7 (until it is deleted)
  attempts    1, 0 failed of at most 4; retried after 10s to 5m
  lease       host-2, until 2030-01-01T00:59:32Z (in 18s)
  progress    ━━━━━━━━━─────────────── 40 %, step 2 of 5, encoding
  submitted   2030-01-01T00:00:00Z (59m ago)
  started     2030-01-01T00:59:02Z (12s ago)

Payload, 23 B
  {
    \"clip\": 7,
    \"to\": [
      \"mp4\"
    ]
  }
";
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_task_that_failed_is_shown_with_its_errors() {
    let world = World::new();
    world.of_every_status().await;
    let shown = details(
        &world.get(1).await,
        world.clock.now(),
        false,
        &Screen::plain(Some(80)),
    );
    let expected = "\
00000000-0000-0000-0000-000000000001  failed
  queue       media
  kind        transcode
  priority    5
  attempts    1, 1 failed of at most 1
  settled by  host-1
  reason      no codec for the stream �[31mat all
  submitted   2030-01-01T00:00:00Z (59m ago)
  started     2030-01-01T00:59:00Z (14s ago)
  ended       2030-01-01T00:59:00Z (14s ago)

Errors
  FENCE  WHEN     WORKER  HOW    MESSAGE
      1  14s ago  host-1  error  no codec for the stream �[31mat all

Payload, 23 B
  {
    \"clip\": 7,
    \"to\": [
      \"mp4\"
    ]
  }
";
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_long_payload_is_cut_with_a_note() {
    let world = World::new();
    let numbers: Vec<u32> = (0..40).collect();
    let task = world.tasks.json("media", "transcode", &numbers);
    let id = world.tasks.submit(task.expect("a task")).await;
    let id = id.expect("it is submitted").id;
    let task = world.tasks.get(id).await.expect("it is there");
    let shown = |full| details(&task, world.clock.now(), full, &Screen::plain(Some(80)));
    assert!(shown(false).ends_with("    18,\n  … 22 more lines: --full shows all\n"));
    assert!(shown(true).ends_with("    39\n  ]\n"));
}
