//! Submits tasks and groups, and waits for some of the tasks. What it has been told is done, it has
//! written down.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use plimsoll_core::error::Conflict;
use plimsoll_core::store::Submitted;
use plimsoll_core::task::NewTask;
use plimsoll_core::{Error, Result, TaskId};

use super::Station;
use super::orders::{Deed, Order};
use crate::trace::error_word;

/// What a submitter has to do, and how far it is. It survives crashes.
#[derive(Debug)]
pub(crate) struct ToDo {
    orders: Vec<Order>,
    done: AtomicUsize,
    /// The tasks that it waits for.
    awaited: Mutex<BTreeSet<TaskId>>,
}

impl ToDo {
    pub(crate) fn new(orders: Vec<Order>) -> Self {
        Self {
            orders,
            done: AtomicUsize::new(0),
            awaited: Mutex::default(),
        }
    }

    fn next(&self) -> Option<&Order> {
        self.orders.get(self.done.load(Ordering::Relaxed))
    }

    fn awaited(&self) -> MutexGuard<'_, BTreeSet<TaskId>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does one thing after another, and waits meanwhile. What has no answer is repeated as it was, also
/// after a crash.
pub(crate) async fn submit(station: Station, to_do: Arc<ToDo>) -> Result<()> {
    for (id, then) in to_do.orders.iter().filter_map(|order| order.opens.as_ref()) {
        station.world.checker().expect_group(id, *then);
    }
    let awaited = to_do.awaited().clone();
    let mut waits: FuturesUnordered<_> =
        (awaited.into_iter().map(|id| wait(&station, &to_do, id))).collect();
    while let Some(order) = to_do.next() {
        for id in beside(&mut waits, fulfil(&station, order)).await? {
            if station.dice.chance(400) && to_do.awaited().insert(id) {
                waits.push(wait(&station, &to_do, id));
            }
        }
        to_do.done.fetch_add(1, Ordering::Relaxed);
    }
    while waits.next().await.is_some() {}
    Ok(())
}

/// Does something while others wait.
async fn beside<T>(
    waits: &mut FuturesUnordered<impl Future<Output = ()>>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(()) = waits.next() => {}
        }
    }
}

/// Does one thing. Answers the tasks that the client was told of.
async fn fulfil(station: &Station, order: &Order) -> Result<Vec<TaskId>> {
    station.pause(0, 3_000).await;
    let told = match &order.deed {
        Deed::Submit(tasks) => submit_each(station, tasks.clone()).await?,
        Deed::Commit(commit) => match station.commit(commit).await {
            Ok(_) => Vec::new(),
            Err(error) if is_key_taken(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        },
    };
    if let Some(group) = &order.completes {
        station.world.checker().group_complete(group);
    }
    Ok(told)
}

/// Submits tasks with the client, and those again that it had no answer for.
async fn submit_each(station: &Station, mut tasks: Vec<NewTask>) -> Result<Vec<TaskId>> {
    let mut told = Vec::new();
    loop {
        let answers: Vec<Result<Submitted>> = match tasks.as_slice() {
            [one] => vec![station.tasks.submit(one.clone()).await],
            _ => station.tasks.submit_all(tasks.clone()).await,
        };
        let mut unanswered = Vec::new();
        for (task, answer) in tasks.into_iter().zip(answers) {
            match answer {
                Ok(submitted) => {
                    station.world.checker().submitted(task.id, &submitted);
                    told.push(submitted.id);
                }
                Err(Error::Unavailable(_)) => unanswered.push(task),
                Err(error) if is_key_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if unanswered.is_empty() {
            return Ok(told);
        }
        tasks = unanswered;
        station.pause(10, 2_000).await;
    }
}

fn is_key_taken(error: &Error) -> bool {
    matches!(error, Error::Conflict(conflict) if matches!(**conflict, Conflict::KeyTaken { .. }))
}

/// Waits until the task has ended. Some lose patience at times, and begin again; a few come so late
/// that it may have been removed.
async fn wait(station: &Station, to_do: &ToDo, id: TaskId) {
    if station.dice.chance(10) {
        station.pause(0, 600_000).await;
    }
    let impatient = station.dice.chance(300);
    loop {
        let since = station.world.checker().waits(id);
        tokio::select! {
            biased;
            answer = station.tasks.wait(id) => {
                station.world.say(&station.who, |aliases| {
                    let end = answer.as_ref().map_or_else(error_word, |task| task.status.to_string());
                    format!("waited for {} -> {end}", aliases.of(id))
                });
                station.world.checker().waited(id, since, &answer);
                to_do.awaited().remove(&id);
                return;
            }
            () = station.pause(500, 10_000), if impatient => {}
        }
    }
}
