//! What readers of the process see in the moment in which a manager is answered.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures::FutureExt;
use plimsoll_core::{Memory, Namespace, Result};
use plimsoll_engine::Engine;
use plimsoll_engine::jobs::{Monitor, NewState, Scope};

/// Reads in the moment in which somebody is answered: whoever answers goes on only after that.
struct Look {
    monitor: Monitor,
    statuses: Mutex<Vec<i32>>,
    waker: Mutex<Option<Waker>>,
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        let state = self.monitor.get_state(&Scope::all()).now_or_never();
        let status = state.expect("it is in memory").unwrap().status;
        self.statuses.lock().unwrap().push(status);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}

#[tokio::test]
async fn whoever_is_answered_finds_that_readers_see_what_it_wrote() -> Result<()> {
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
    // Both in one round.
    let waker = Waker::from(look.clone());
    let first = manager.set_state(NewState::new("a", 3)?);
    let second = manager.set_state(NewState::new("a", 5)?);
    let mut both = pin!(futures::future::try_join(first, second));
    poll_fn(|context| {
        *look.waker.lock().unwrap() = Some(context.waker().clone());
        both.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await?;
    assert_eq!(look.statuses.lock().unwrap().last(), Some(&5));
    Ok(())
}
