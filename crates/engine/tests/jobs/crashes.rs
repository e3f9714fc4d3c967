//! Deleting, joining and sweeping, cut off between any two calls of the store, or in the middle of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_core::Result;
use plimsoll_core::decorate::{Around, Decorated, Method};
use plimsoll_core::store::Receipt;
use plimsoll_engine::{Engine, Retention, Sweeper};
use tokio::sync::Notify;

use crate::world::{DAY, World, at, code, finish, worlds};

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

type Deed = fn(Engine) -> BoxFuture<'static, ()>;

fn delete(engine: Engine) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        engine.jobs().delete("import").await.unwrap();
    })
}

fn join(engine: Engine) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(engine.jobs().join("import", 0, 2).await.unwrap()) })
}

fn sweep(engine: Engine) -> BoxFuture<'static, ()> {
    let jobs = Some(DAY);
    sweep_by(
        engine,
        Retention {
            jobs,
            ..Retention::forever()
        },
    )
}

fn sweep_silent(engine: Engine) -> BoxFuture<'static, ()> {
    let silent_jobs = Some(DAY);
    sweep_by(
        engine,
        Retention {
            silent_jobs,
            ..Retention::forever()
        },
    )
}

fn sweep_by(engine: Engine, retention: Retention) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let pass = Sweeper::new(engine).retention(retention).pass_all().await;
        assert_eq!(pass.troubles, []);
    })
}

/// Does a deed that crashes at this call. Answers whether it came that far.
async fn crash(world: &World, deed: Deed, at: usize, after: bool) -> bool {
    let crash = Crash {
        left: Arc::new(AtomicUsize::new(at)),
        after,
        crashed: Arc::default(),
    };
    let store = Arc::new(Decorated::new(world.store.clone(), crash.clone()));
    let deed = deed(world.through(50, store));
    futures::select_biased! {
        () = crash.crashed.notified().fuse() => true,
        () = deed.fuse() => false,
    }
}

/// Each deed that crashes, and each that comes after it.
#[tokio::test]
async fn whatever_a_crash_leaves_is_finished_by_whoever_comes_next() {
    let deeds: [(&str, Deed); 4] = [
        ("delete", delete),
        ("join", join),
        ("sweep", sweep),
        ("sweep silent", sweep_silent),
    ];
    for (crashed, first) in deeds {
        for (next, second) in deeds {
            let mut crashes = 0;
            for after in [false, true] {
                for call in 0.. {
                    let mut came_that_far = false;
                    for world in worlds().await {
                        came_that_far = scene(&world, (crashed, first), second, call, after).await;
                    }
                    if !came_that_far {
                        break;
                    }
                    crashes += 1;
                }
            }
            assert!(crashes >= 2 * 2, "{crashed}, {next}: {crashes}");
        }
    }
}

async fn scene(
    world: &World,
    (crashed, first): (&str, Deed),
    second: Deed,
    call: usize,
    after: bool,
) -> bool {
    let jobs = world.process(1).jobs;
    let old = jobs.join("import", 0, 2).await.unwrap();
    let other = jobs.join("import", 1, 2).await.unwrap();
    for n in 0..3 {
        old.set_state(at("a", n)).await.unwrap();
    }
    match crashed {
        "sweep silent" => drop(old.set_state(at("a", -1)).await.unwrap()),
        _ => finish(&old, "a").await,
    }
    finish(&other, "a").await;
    world.clock.advance(DAY);
    if crashed == "join" {
        // Something to do for one who joins.
        jobs.mark_deleted("import").await.unwrap();
    }
    let came_that_far = crash(world, first, call, after).await;
    second(world.through(60, world.store.clone())).await;

    // Whatever came of it, the job can be used, and versions go on.
    let deleted = jobs.get("import").await.unwrap().unwrap().deleted_at;
    if deleted.is_some() {
        assert_eq!(world.records("plimsoll.states.").await, []);
        assert!(world.job("import").await.unwrap().expires_at.is_some());
    }
    let new = jobs.join("import", 0, 2).await.unwrap();
    let version = new.set_state(at("a", 1)).await.unwrap().version;
    assert_eq!(version, 5, "{crashed} at {call}");
    let generation = jobs.get("import").await.unwrap().unwrap().generation;
    match generation {
        1 => assert_eq!(old.set_state(at("a", 2)).await.unwrap().version, 6),
        _ => assert_eq!(code(old.set_state(at("a", 2)).await), "job_deleted"),
    }
    came_that_far
}
