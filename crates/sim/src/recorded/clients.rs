//! Those who take part in a run, all at the same time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::{Error, Ids, Position, Result, Store};
use plimsoll_engine::Engine;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::log::Recorder;
use super::spoil::Spoiler;
use super::{Recording, clerks, jobs, lockers, rivals, workers};

/// What a client has.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    pub(super) engine: Engine,
    pub(super) recorder: Arc<Recorder>,
    pub(super) ids: Ids,
    pub(super) number: usize,
    pub(super) spoiler: Option<Arc<Spoiler>>,
    ends: Duration,
}

impl Desk {
    pub(super) fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    /// Whether it is time to begin nothing new.
    pub(super) fn is_over(&self) -> bool {
        self.engine.clock().monotonic() >= self.ends
    }

    /// Lets a while pass, up to so many milliseconds.
    pub(super) async fn pause(&self, most: u64) {
        let micros = self.ids.below(most * 1_000 + 1);
        self.engine
            .clock()
            .sleep(Duration::from_micros(micros))
            .await;
    }
}

/// Lets everybody do what they do, until it is time.
pub(super) async fn run(
    stores: &[Arc<dyn Store>],
    recorder: &Arc<Recorder>,
    spoiler: Option<&Arc<Spoiler>>,
    ids: &Ids,
    recording: Recording,
) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let ends = clock.monotonic() + recording.lasts;
    let engines: Vec<Engine> = (stores.iter())
        .map(|store| Engine::with(store.clone(), clock.clone(), ids.clone()))
        .collect();
    let desk = |number: usize| Desk {
        engine: engines[number % engines.len()].clone(),
        recorder: recorder.clone(),
        ids: ids.clone(),
        number,
        spoiler: spoiler.cloned(),
        ends,
    };
    let (done, is_done) = watch::channel(false);
    let (mut clients, mut readers) = (JoinSet::new(), JoinSet::new());
    for number in 0..recording.clients {
        spawn(&mut clients, clerks::write(desk(number)));
        spawn(&mut clients, workers::work(desk(number)));
        spawn(&mut clients, rivals::submit(desk(number)));
        spawn(&mut clients, lockers::contend(desk(number)));
        spawn(&mut clients, jobs::report(desk(number)));
        spawn(&mut readers, jobs::follow(desk(number), is_done.clone()));
    }
    for number in 0..stores.len() {
        spawn(&mut clients, workers::sweep(desk(number)));
        spawn(&mut readers, read(desk(number), is_done.clone()));
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(panicked)??;
    }
    jobs::finish(desk(0)).await?;
    done.send_replace(true);
    while let Some(ended) = readers.join_next().await {
        ended.map_err(panicked)??;
    }
    Ok(())
}

fn panicked(error: tokio::task::JoinError) -> Error {
    Error::Corrupt(error.to_string().into())
}

/// Real runs are really run beside each other.
#[allow(clippy::disallowed_methods)]
fn spawn(set: &mut JoinSet<Result<()>>, client: impl Future<Output = Result<()>> + Send + 'static) {
    set.spawn(client);
}

/// Reads the history as it grows, in pages of any size.
async fn read(desk: Desk, mut done: watch::Receiver<bool>) -> Result<()> {
    let mut start = Start::After(Position::ZERO);
    loop {
        let last = *done.borrow_and_update();
        let limit = usize::try_from(1 + desk.ids.below(40)).unwrap_or(1);
        let asked = Changes {
            start,
            interests: Vec::new(),
            limit,
        };
        let page = desk.store().changes(asked).await?;
        start = Start::After(page.next);
        match page.more {
            true => {}
            false if last => return Ok(()),
            false => desk.pause(10).await,
        }
    }
}
