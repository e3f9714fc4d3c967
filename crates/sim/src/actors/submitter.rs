//! Submits tasks and groups. What it has been told is done, it has written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Result};

use super::Station;
use super::orders::Order;

/// What a submitter has to do, and how far it is. It survives crashes.
#[derive(Debug)]
pub(crate) struct ToDo {
    orders: Vec<Order>,
    done: AtomicUsize,
}

impl ToDo {
    pub(crate) fn new(orders: Vec<Order>) -> Self {
        Self {
            orders,
            done: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> Option<&Order> {
        self.orders.get(self.done.load(Ordering::Relaxed))
    }
}

/// Does one thing after another. What has no answer is repeated as it was, also after a crash.
pub(crate) async fn submit(station: Station, to_do: Arc<ToDo>) -> Result<()> {
    for (id, then) in to_do.orders.iter().filter_map(|order| order.opens.as_ref()) {
        station.world.checker().expect_group(id, *then);
    }
    while let Some(order) = to_do.next() {
        station.pause(0, 3_000).await;
        match station.commit(&order.commit).await {
            Ok(_) => {
                if let Some(group) = &order.completes {
                    station.world.checker().group_complete(group);
                }
            }
            Err(Error::Conflict(conflict)) if matches!(*conflict, Conflict::KeyTaken { .. }) => {}
            Err(error) => return Err(error),
        }
        to_do.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
