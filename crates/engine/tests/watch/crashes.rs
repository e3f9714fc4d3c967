//! A pass that is dropped between any two calls of the store, or in the middle of one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use plimsoll_core::decorate::{Around, Decorated, Method};
use plimsoll_core::store::Receipt;
use plimsoll_core::task::{Due, Status};
use plimsoll_core::{Result, StoreExt, TaskId};
use plimsoll_engine::Sweeper;
use plimsoll_engine::registry::WorkerStatus;
use plimsoll_engine::sweeper::Pass;
use tokio::sync::{Notify, Semaphore};

use crate::sinks::Shelf;
use crate::world::{DAY, World, after_a_day, secs, worlds};

/// Holds up the answers of one method until they are let go, one by one.
#[derive(Clone, Debug)]
pub(crate) struct Gatekeeper(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    method: Mutex<Option<Method>>,
    held: Semaphore,
    passes: Semaphore,
}

impl Default for Gatekeeper {
    fn default() -> Self {
        Self(Arc::new(Gate {
            method: Mutex::new(None),
            held: Semaphore::new(0),
            passes: Semaphore::new(0),
        }))
    }
}

impl Gatekeeper {
    pub(crate) fn hold(&self, method: Method) {
        *self.0.method.lock().unwrap() = Some(method);
    }

    /// Waits until an answer is held.
    pub(crate) async fn held(&self) {
        self.0.held.acquire().await.unwrap().forget();
    }

    pub(crate) fn let_one_go(&self) {
        self.0.passes.add_permits(1);
    }
}

impl Around for Gatekeeper {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let answer = call().await;
        if *self.0.method.lock().unwrap() == Some(method) {
            self.0.held.add_permits(1);
            self.0.passes.acquire().await.unwrap().forget();
        }
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

/// Lets so many calls through. Then the process crashes: before the next one reaches the store, or
/// after.
#[derive(Clone, Debug)]
struct Crash {
    left: Arc<AtomicUsize>,
    after: bool,
    crashed: Arc<Notify>,
}

impl Around for Crash {
    async fn around<T, C, F>(&self, _: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        let crashes = self.left.fetch_sub(1, Ordering::SeqCst) == 0;
        if crashes && !self.after {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
        let answer = call().await;
        if crashes {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
        answer
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

struct Scene {
    due: TaskId,
    lost: TaskId,
    to_archive: Vec<TaskId>,
    to_remove: TaskId,
}

async fn scene(world: &World) -> Scene {
    let mut due = world.task("");
    due.due = Due::After(DAY);
    let due = world.submit(due).await;
    let lost = world.submit(world.task("")).await;
    world.claim(lost, DAY).await;
    let mut to_archive = Vec::new();
    for status in [Status::Completed, Status::Failed, Status::Completed] {
        to_archive.push(world.ended("", status).await);
    }
    let to_remove = world.ended("", Status::Cancelled).await;
    world.clock.advance(DAY - secs(30));
    world.register("silent").await;
    world.clock.advance(secs(30));
    Scene {
        due,
        lost,
        to_archive,
        to_remove,
    }
}

/// Every task is in exactly one place, at any time.
async fn nothing_is_half_done(world: &World, scene: &Scene) {
    for id in &scene.to_archive {
        let (exists, archived) = (world.exists(*id).await, world.archived(*id).await);
        assert!(exists != archived, "{id}: {exists} {archived}");
    }
}

async fn everything_is_done(world: &World, scene: &Scene) {
    let status = async |id| world.store.task(id).await.unwrap().map(|task| task.status);
    assert_eq!(status(scene.due).await, Some(Status::Pending));
    let lost = world.store.task(scene.lost).await.unwrap().unwrap();
    assert_eq!((lost.status, lost.failures), (Status::Scheduled, 1));
    for id in &scene.to_archive {
        assert!(world.archived(*id).await);
    }
    assert_eq!(status(scene.to_remove).await, None);
    let workers = world.engine.workers().list().await.unwrap();
    assert_eq!(workers[0].status, WorkerStatus::Offline);
}

/// Runs a pass that crashes at this call. Answers whether it came that far.
async fn crash(world: &World, at: usize, after: bool) -> bool {
    crash_with(world, at, after, |sweeper| sweeper).await
}

async fn crash_with(
    world: &World,
    at: usize,
    after: bool,
    change: impl Fn(Sweeper) -> Sweeper,
) -> bool {
    let crash = Crash {
        left: Arc::new(AtomicUsize::new(at)),
        after,
        crashed: Arc::default(),
    };
    let store = Arc::new(Decorated::new(world.store.clone(), crash.clone()));
    let sweeper = Sweeper::new(world.through(store)).retention(after_a_day());
    let sweeper = change(sweeper);
    futures::select_biased! {
        () = crash.crashed.notified().fuse() => true,
        _ = sweeper.pass().fuse() => false,
    }
}

#[tokio::test]
async fn a_crash_between_any_two_calls_leaves_nothing_half_done() {
    let mut crashes = 0;
    for after in [false, true] {
        for at in 0.. {
            let mut came_that_far = false;
            for world in worlds().await {
                let scene = scene(&world).await;
                came_that_far = crash(&world, at, after).await;
                nothing_is_half_done(&world, &scene).await;
                let next = world.sweeper().retention(after_a_day()).pass().await;
                assert_eq!(next.troubles, []);
                everything_is_done(&world, &scene).await;
                let again = world.sweeper().retention(after_a_day()).pass().await;
                assert_eq!(again, Pass::default());
            }
            if !came_that_far {
                break;
            }
            crashes += 1;
        }
    }
    // Due, its two commits, ping and scan, the mark, two lists and their commits, jobs, compact.
    assert_eq!(crashes, 2 * 12);
}

#[tokio::test]
async fn a_crash_loses_nothing_that_goes_to_a_sink() {
    let (mut crashes, mut twice) = (0, 0);
    for after in [false, true] {
        for at in 0.. {
            let mut came_that_far = false;
            for world in worlds().await {
                let scene = scene(&world).await;
                let shelf = Arc::new(Shelf::default());
                let to_shelf = |sweeper: Sweeper| sweeper.archive_to(shelf.clone());
                came_that_far = crash_with(&world, at, after, to_shelf).await;
                for id in &scene.to_archive {
                    let kept = shelf.count(*id) > 0;
                    assert!(kept || world.exists(*id).await, "{id} is lost");
                }
                let sweeper = to_shelf(world.sweeper().retention(after_a_day()));
                assert_eq!(sweeper.pass().await.troubles, []);
                for id in &scene.to_archive {
                    assert!(!world.exists(*id).await);
                    assert!((1..=2).contains(&shelf.count(*id)));
                    twice += shelf.count(*id) - 1;
                }
            }
            if !came_that_far {
                break;
            }
            crashes += 1;
        }
    }
    assert_eq!(crashes, 2 * 12);
    // At least once is not exactly once.
    assert!(twice > 0);
}
