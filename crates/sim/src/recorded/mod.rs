//! Real runs, recorded: many clients in several processes on a store that really works at the same
//! time, in real time. Everything that they ask and are answered is written down in the order in
//! which it happened. When the run is over, the checkers of the simulation go through it.
//!
//! An answer shows that the history had come at least as far as what it tells of, and a question was
//! asked before anything that came of it was in the history. So the checkers are shown the history up
//! to what was answered so far: whatever they miss then is really missing.

mod clerks;
mod clients;
mod jobs;
mod lockers;
mod log;
mod replay;
mod rivals;
mod spoil;
mod store;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::SystemClock;
use plimsoll_core::{Ids, Store};

use self::log::Recorder;
pub use self::spoil::Spoil;
use self::store::RecordedStore;
use crate::check::{Figures, Violation};

/// How to record a run.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// How long clients begin something new.
    pub lasts: Duration,
    /// How many clients of each kind there are.
    pub clients: usize,
    /// A bug to plant between the clients and the store.
    pub spoil: Option<Spoil>,
}

/// Records a run and goes through it. Each store is a process of its own; all have the same empty
/// namespace.
pub async fn record(
    stores: Vec<Arc<dyn Store>>,
    recording: Recording,
) -> plimsoll_core::Result<Result<Figures, Violation>> {
    let clock = Arc::new(SystemClock::new());
    let recorder = Arc::new(Recorder::new(clock.clone()));
    let ids = Ids::random(clock.clone());
    let spoiled = recording
        .spoil
        .map(|spoil| spoil::Spoiler::new(spoil, ids.clone()));
    let spoiled = spoiled.map(Arc::new);
    let recorded = stores.iter().enumerate().map(|(number, store)| {
        let who = format!("process {number}");
        let store = RecordedStore::new(store.clone(), recorder.clone(), spoiled.clone(), who);
        Arc::new(store) as Arc<dyn Store>
    });
    let recorded: Vec<Arc<dyn Store>> = recorded.collect();
    clients::run(&recorded, &recorder, spoiled.as_ref(), &ids, recording).await?;
    let record = replay::what_is_left(stores[0].as_ref(), &recorder).await?;
    Ok(replay::replay(recorder.take(), record))
}
