//! A tour in a minute: two workers share three tasks, one worker dies and comes back as a zombie,
//! and the join over all three still fires exactly once. Time is a manual clock, so nothing waits.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::change::Change;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::group::NewGroup;
use plimsoll_core::store::{Changes, Claim, Commit, Ending, Pick, Write};
use plimsoll_core::task::{Lane, NewTask, Task, WorkerId};
use plimsoll_core::{
    GroupId, Ids, Limits, Memory, Name, Namespace, Position, Result, Store, StoreExt,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let ids = Ids::seeded(1, shared.clone());
    let memory = Memory::with(shared, Limits::default());
    let store = memory.open(Namespace::new("tour")?);

    println!("1. Submit three thumbnails and, once all are done, one album: one commit.");
    let thumbnails = Lane::new("media", "thumbnail")?;
    let album = NewTask::new(ids.task(), Lane::new("media", "album")?, "holiday");
    let group = GroupId::new("holiday")?;
    let open = NewGroup::new(group.clone()).then(album.clone());
    let mut commit = Commit::of(Write::OpenGroup(Box::new(open)));
    for photo in ["beach.jpg", "boat.jpg", "sunset.jpg"] {
        let task = NewTask::new(ids.task(), thumbnails.clone(), photo).group(group.clone());
        commit = commit.write(Write::Submit(Box::new(task)));
    }
    store.commit_one(commit.write(Write::Seal(group))).await?;

    println!("2. Ada claims two, Bob claims one and completes it.");
    let ada = worker(&ids, "ada")?;
    let bob = worker(&ids, "bob")?;
    let lost = claim(&store, &ids, &ada, &thumbnails, 2).await?;
    for task in claim(&store, &ids, &bob, &thumbnails, 2).await? {
        complete(&store, &task).await?;
    }

    println!("3. Ada's machine dies. Her leases run out, and her tasks wait for a retry.");
    clock.advance(Duration::from_secs(30));
    let swept = store.sweep(100, &ids).await?;
    println!("   {} leases expired", swept.expired);
    clock.advance(Duration::from_secs(10));
    store.sweep(100, &ids).await?;

    println!("4. Bob claims what Ada lost. Ada wakes up and tries to complete it all the same:");
    let taken = claim(&store, &ids, &bob, &thumbnails, 2).await?;
    for task in &lost {
        match complete(&store, task).await {
            Ok(()) => println!("   accepted?!"),
            Err(error) => println!("   refused: {error}"),
        }
    }

    println!("5. Bob completes them. The last one submits the album, in the same commit.");
    for task in &taken {
        complete(&store, task).await?;
    }
    let album = store.task(album.id).await?;
    println!(
        "   album: {}",
        album.map_or("missing?!".into(), |task| task.status.to_string())
    );

    println!("6. The history, in order, as every reader sees it:");
    for entry in store
        .changes(Changes::after(Position::ZERO, 1_000))
        .await?
        .entries
    {
        for change in entry.changes {
            match change {
                Change::Task(task) => println!(
                    "   {:>2}  {:<9} {:?} → {}",
                    entry.position, task.lane.kind, task.event, task.status
                ),
                Change::Group { id, event, .. } => {
                    println!("   {:>2}  group     {id}: {event:?}", entry.position);
                }
                Change::Put(_) | Change::Removed { .. } => {}
            }
        }
    }
    Ok(())
}

fn worker(ids: &Ids, name: &str) -> Result<WorkerId> {
    Ok(WorkerId {
        name: Name::new(name)?,
        incarnation: ids.incarnation(),
    })
}

async fn claim(
    store: &dyn Store,
    ids: &Ids,
    worker: &WorkerId,
    lane: &Lane,
    limit: usize,
) -> Result<Vec<Task>> {
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane.clone()],
            limit,
        },
        worker: worker.clone(),
        lease: Duration::from_secs(30),
        request: ids.request(),
    };
    Ok(store.claim(claim).await?.tasks)
}

async fn complete(store: &dyn Store, task: &Task) -> Result<()> {
    if let Some(holder) = task.holder() {
        let ending = Ending::Complete { result: None };
        store.settle(holder, ending).await?;
    }
    Ok(())
}
