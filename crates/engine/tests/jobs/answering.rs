//! What readers of the process see in the moment in which a manager is answered.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures::FutureExt;
use plimsoll_core::{Memory, Namespace, Result};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{Manager, Monitor, NewState, Scope, SubscribeOptions};

/// Reads in the moment in which somebody is answered: whoever answers goes on only after that.
struct Look {
    monitor: Monitor,
    statuses: Mutex<Vec<i32>>,
    waker: Mutex<Option<Waker>>,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        // Once the job is deleted there is nothing in memory to look at.
        let state = self.monitor.get_state(&Scope::all()).now_or_never();
        if let Some(Ok(state)) = state {
            self.statuses.lock().unwrap().push(state.status);
        }
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}

/// A job with one partition, and who looks at it.
async fn job() -> Result<(Manager, Arc<Look>)> {
    let memory = Memory::new();
    let engine = Engine::new(Arc::new(memory.open(Namespace::new("test")?)));
    let manager = engine.jobs().join("import", 0, 1).await?;
    let monitor = engine.jobs().monitor("import").await?;
    monitor.get_state(&Scope::all()).await?;
    let look = Arc::new(Look {
        monitor,
        statuses: Mutex::default(),
        waker: Mutex::default(),
    });
    Ok((manager, look))
}

impl Look {
    /// Waits for something, and looks whenever that goes on.
    async fn at<T>(self: Arc<Self>, something: impl Future<Output = T>) -> T {
        let waker = Waker::from(self.clone());
        let mut something = pin!(something);
        poll_fn(|context| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            something.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

#[tokio::test]
async fn whoever_is_answered_finds_that_readers_see_what_it_wrote() -> Result<()> {
    let (manager, look) = job().await?;
    // Both in one round.
    let first = manager.set_state(NewState::new("a", 3)?);
    let second = manager.set_state(NewState::new("a", 5)?);
    (look.clone().at(futures::future::try_join(first, second))).await?;
    assert_eq!(look.statuses.lock().unwrap().last(), Some(&5));
    Ok(())
}

/// Nobody is woken while the states are held: it would wait for itself.
#[tokio::test]
async fn whoever_is_woken_by_a_barrier_or_by_the_end_of_a_job_may_look_at_once() -> Result<()> {
    let (manager, look) = job().await?;
    let barrier = manager.barrier("a", 5)?.into_future();
    let set = manager.set_state(NewState::new("a", 5)?);
    let (reached, set) = futures::join!(look.clone().at(barrier), set);
    assert_eq!((reached?.status, set?.version), (5, 1));
    assert_eq!(look.statuses.lock().unwrap().last(), Some(&5));

    look.statuses.lock().unwrap().clear();
    let options = SubscribeOptions::default();
    let mut events = look.monitor.subscribe(Scope::all(), options).await?;
    let end = async { while let Some(Ok(_)) = events.next().await {} };
    let barrier = look.monitor.barrier("a", 6)?.into_future();
    let (ended, _, deleted) = futures::join!(
        look.clone().at(barrier),
        look.clone().at(end),
        manager.delete_job()
    );
    assert_eq!(ended.unwrap_err().code(), "job_deleted");
    assert!(deleted?);
    Ok(())
}
