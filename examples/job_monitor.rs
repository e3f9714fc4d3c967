//! A monitor looks at a job from another process. First it is told what there is, then what changes, as it
//! changes. It goes away, comes back, and goes on from its cursor: nothing is missing, and nothing comes twice.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use plimsoll::jobs::{Cursor, Manager, NewState, Scope, StateEvent};
use plimsoll::jobs::{SubscribeOptions, Subscription};
use plimsoll::{Invalid, Jobs, Plimsoll, Result};

const JOB: &str = "reindex";

/// Opens the file, as every process does for itself.
async fn open(url: &str) -> Result<Jobs> {
    Ok(Plimsoll::open(url)?.engine("search").await?.jobs())
}

/// What the monitor keeps: how far each partition is, and where it was in the history. It would fit in a
/// file.
#[derive(Default)]
struct Board {
    versions: BTreeMap<u32, u64>,
    cursor: Option<String>,
}

impl Board {
    /// From the beginning, or from where it was.
    fn options(&self) -> Result<SubscribeOptions, Invalid> {
        let cursor = self.cursor.as_deref().map(str::parse::<Cursor>);
        Ok(SubscribeOptions {
            after: cursor.transpose()?,
            ..SubscribeOptions::default()
        })
    }

    /// Shows what it is told, until partition 0 has this version. Answers how much of it was there before.
    async fn follow(&mut self, events: &mut Subscription, version: u64) -> Result<usize> {
        let mut replayed = 0;
        while self.versions.get(&0) != Some(&version) || self.cursor.is_none() {
            let Some(event) = events.next().await.transpose()? else {
                break;
            };
            match event {
                StateEvent::State(state) => {
                    let replay = state.is_replay();
                    replayed += usize::from(replay);
                    let how = if replay { "there" } else { "new" };
                    let (partition, version) = (state.partition, state.version);
                    println!("  {how:<6} {partition} {:<12} v{version}", state.message);
                    let before = self.versions.insert(partition, version);
                    // In the replay, only the newest version of each state is told.
                    assert!(replay || version == before.unwrap_or(0) + 1, "a gap");
                    let cursor = state.cursor().map(|cursor| cursor.to_string());
                    self.cursor = cursor.or(self.cursor.take());
                }
                StateEvent::ReplayComplete { cursor } => {
                    println!("  ------ that is what there was");
                    self.cursor = Some(cursor.to_string());
                }
                // Had it been away for longer than the history is kept.
                StateEvent::Restarted => self.versions.clear(),
            }
        }
        Ok(replayed)
    }
}

/// Answers the version, which the store has set.
async fn report(partition: &Manager, files: i32) -> Result<u64> {
    let state = NewState::new("index", files)?.message(format!("{files} files"));
    Ok(partition.set_state(state).await?.version)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite:{}", folder.path().join("search.db").display());
    let url = std::env::var("PLIMSOLL_STORE").unwrap_or(file);
    let workers = open(&url).await?;
    let (zero, one) = (
        workers.join(JOB, 0, 2).await?,
        workers.join(JOB, 1, 2).await?,
    );
    for files in [10, 20] {
        report(&zero, files).await?;
    }
    // The first is 1, unless there was a job of this name before: then they go on.
    let (third, first) = (report(&zero, 30).await?, report(&one, 5).await?);

    println!("The monitor comes, and sees what there is, then what changes:");
    let mut board = Board::default();
    let monitor = open(&url).await?.monitor(JOB).await?;
    let mut events = monitor.subscribe(Scope::all(), board.options()?).await?;
    assert_eq!(board.follow(&mut events, third).await?, 2);
    assert_eq!(board.versions, BTreeMap::from([(0, third), (1, first)]));
    report(&one, 15).await?;
    let fourth = report(&zero, 40).await?;
    assert_eq!(board.follow(&mut events, fourth).await?, 0);

    println!("It goes away, and the job goes on.");
    drop((events, monitor));
    for files in [50, 60] {
        report(&zero, files).await?;
        report(&one, files).await?;
    }

    let cursor = board.cursor.as_deref().unwrap_or_default();
    println!("It comes back with its cursor, {cursor}:");
    let monitor = open(&url).await?.monitor(JOB).await?;
    let mut events = monitor.subscribe(Scope::all(), board.options()?).await?;
    let last = zero.set_finished(NewState::of("index")?).await?.version;
    let replayed = board.follow(&mut events, last).await?;
    assert_eq!(replayed, 0, "it goes on where it was");
    assert_eq!(
        board.versions,
        BTreeMap::from([(0, third + 4), (1, first + 3)])
    );

    println!("The job is deleted, and the monitor is told so:");
    zero.delete_job().await?;
    let Some(Err(over)) = events.next().await else {
        return Err("the subscription should have ended with an error".into());
    };
    println!("  {over}");
    assert_eq!(over.code(), "job_deleted");
    assert!(events.next().await.is_none());
    Ok(())
}
