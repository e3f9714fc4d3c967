//! What is hinted at when a call is answered.

// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use plimsoll_core::clock::SystemClock;
use plimsoll_core::ids::Ids;
use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::{Lane, NewTask};
use plimsoll_core::wake::{Listener, Wake as Hint};
use plimsoll_core::{Namespace, Result, Store};
use plimsoll_store_sqlite::{Config, Sqlite};

/// How often a commit is tried: a thread that is interrupted may come too late to wait for its answer.
const TRIES: usize = 20;

/// Hears what is hinted at in the moment in which a call is answered: the writer goes on only after that.
struct Ear {
    listener: Mutex<Listener>,
    heard: Mutex<Option<Hint>>,
    waker: Mutex<Option<Waker>>,
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        let heard = self.listener.lock().unwrap().take();
        *self.heard.lock().unwrap() = Some(heard);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}

impl Ear {
    fn new(listener: Listener) -> Arc<Self> {
        Arc::new(Self {
            listener: Mutex::new(listener),
            heard: Mutex::default(),
            waker: Mutex::default(),
        })
    }
}

/// What was hinted at when a task is submitted. `None`: that was answered before anybody waited for it.
async fn heard_of(store: &dyn Store, task: NewTask) -> Result<Option<Hint>> {
    let (ear, mut later) = (Ear::new(store.wakeups()), store.wakeups());
    let mut answer = store.commit(vec![Commit::of(Write::Submit(Box::new(task)))]);
    let waker = Waker::from(ear.clone());
    let answers = poll_fn(|context| -> Poll<_> {
        *ear.waker.lock().unwrap() = Some(context.waker().clone());
        answer.as_mut().poll(&mut Context::from_waker(&waker))
    });
    answers.await.remove(0)?;
    let heard = ear.heard.lock().unwrap().take();
    while !later.next().await.history {}
    Ok(heard)
}

#[tokio::test]
async fn who_is_answered_has_been_told_what_there_is_to_do_and_of_the_history_after_that()
-> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path().join("hints.db"));
    // Whoever watches the file would hint at everything.
    config.poll = Duration::from_secs(600);
    let sqlite = Sqlite::open(config)?;
    let store = sqlite.namespace(Namespace::new("test")?).await?;
    let lane = Lane::new("q", "k")?;
    let ids = Ids::seeded(1, Arc::new(SystemClock::new()));
    let (mut heard, mut tries) = (None, 0);
    while heard.is_none() {
        assert!(tries < TRIES, "nobody ever waited for an answer");
        let task = NewTask::new(ids.task(), lane.clone(), "x");
        heard = heard_of(&store, task).await?;
        tries += 1;
    }
    let heard = heard.expect("it was waited for");
    assert!(heard.lanes.contains(&lane), "{heard:?}");
    assert!(!heard.history, "{heard:?}");
    Ok(())
}
