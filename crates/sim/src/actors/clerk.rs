//! Those who keep records: clerks who write them, and those who watch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::record::Record;
use plimsoll_core::store::Merge;
use plimsoll_core::{Error, Key, Name, Position, Result, Revision};
use plimsoll_engine::history::Place;
use plimsoll_engine::records::{Swap, Swapped, WatchEvent};

use super::Station;
use crate::check::{Deed, SHELF, Watched};
use crate::planted::Planted;

const NAMES: [&str; 3] = ["a", "b", "b.c"];

/// Writes records for as long as it lives.
pub(crate) async fn write(station: Station) -> Result<()> {
    let dice = &station.dice;
    loop {
        // Now and then so long that what was written last is not kept any more.
        let most = if dice.chance(100) { 40_000 } else { 4_000 };
        station.pause(50, most).await;
        let key = Key::new(format!("{SHELF}{}", dice.pick(&NAMES)))?;
        let answer = match dice.below(8) {
            0 => match station.records.delete(&key).await {
                Ok(_) | Err(Error::Unavailable(_)) => continue,
                Err(error) => return Err(error),
            },
            1 => put(&station, &key).await,
            2 | 3 => swap(&station, &key).await,
            _ => merge(&station, &key).await,
        };
        match answer {
            Ok((deed, Some(revision))) => station.world.checker().did(deed, revision),
            Ok((deed, None)) => station.world.checker().did_not(deed),
            // It may be done or not, and nobody asks again.
            Err(Error::Unavailable(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// What was done, and the revision that it came to.
type Done = Result<(usize, Option<Revision>)>;

async fn put(station: &Station, key: &Key) -> Done {
    let deed = station.world.checker().does(Deed::Put);
    let ttl = station.dice.millis(100, 20_000);
    let ttl = station.dice.chance(600).then_some(ttl);
    let fields = [("by", deed.to_string()), ("count", "0".to_owned())];
    let revision = station.records.put(key, fields, ttl).await?;
    Ok((deed, Some(revision)))
}

/// Writes if nobody has written since it was seen.
async fn swap(station: &Station, key: &Key) -> Done {
    let seen = match station.dice.chance(800) {
        true => station.world.checker().last_deed(key),
        false => None,
    };
    station.pause(0, 300).await;
    let deed = station.world.checker().does(Deed::After(seen.clone()));
    let swap = match seen {
        Some(seen) => Swap::new(key).when("by", seen),
        None => Swap::new(key).when_absent(),
    };
    let swapped = station.records.swap(swap.set("by", deed.to_string()));
    match swapped.await? {
        Swapped::Done(revision) => Ok((deed, revision)),
        Swapped::Refused(_) => Ok((deed, None)),
    }
}

/// Adds to a count, or raises a mark.
async fn merge(station: &Station, key: &Key) -> Done {
    let dice = &station.dice;
    let by = i64::try_from(dice.range(1, 9)).unwrap_or(1);
    let adds = dice.chance(500);
    let deed = match adds {
        true => Deed::Add(by),
        false => Deed::Raise(by * 10),
    };
    let deed = station.world.checker().does(deed);
    let mut merge = Merge::new(key.clone());
    merge.set.insert(Name::new("by")?, deed.to_string().into());
    let merge = match adds {
        true => merge.add(Name::new("count")?, by),
        false => merge.raise(Name::new("mark")?, by * 10),
    };
    let record: Record = station.records.merge(merge).await?;
    Ok((deed, Some(record.revision)))
}

/// What a watch has told, and where it goes on. It survives crashes.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// It goes on from where the watch is, and not from the last event.
    asks_watch: bool,
    told: Mutex<(Watched, Option<Place>)>,
}

impl Ledger {
    pub(crate) fn new(asks_watch: bool) -> Self {
        let nothing = Watched::begun(Position::ZERO);
        Self {
            asks_watch,
            told: Mutex::new((nothing, None)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Watched, Option<Place>)> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it was told.
    pub(crate) fn watched(&self) -> Watched {
        self.lock().0.clone()
    }
}

/// Watches the records for as long as it lives.
pub(crate) async fn watch(station: Station, ledger: Arc<Ledger>) -> Result<()> {
    let (dice, world) = (&station.dice, &station.world);
    loop {
        let mut watch = station.records.watch(SHELF)?;
        let cursor = ledger.lock().1.filter(|_| dice.chance(700));
        match cursor {
            Some(cursor) => watch = watch.after(cursor),
            None => *ledger.lock() = (world.checker().watches(), None),
        }
        loop {
            let event = tokio::select! {
                biased;
                event = watch.next() => event,
                // It gets further although it has nothing to tell.
                () = station.pause(500, 10_000), if ledger.asks_watch => {
                    let (watched, place) = &mut *ledger.lock();
                    if let Some(cursor) = watch.cursor() {
                        watched.goes_on(cursor);
                        *place = match world.planted {
                            Some(Planted::StaleCursor) => *place,
                            _ => Some(cursor),
                        };
                    }
                    match dice.chance(300) {
                        true => break,
                        false => continue,
                    }
                }
            };
            let event = match event {
                Ok(event) => event,
                // It may be asked again, or begin again.
                Err(Error::Unavailable(_)) if dice.chance(500) => continue,
                Err(Error::Unavailable(_)) => break,
                Err(error) => return Err(error),
            };
            world.say(&station.who, |_| format!("is told {event:?}"));
            let (watched, place) = &mut *ledger.lock();
            world.checker().watched(watched, &event);
            match event {
                WatchEvent::ReplayComplete { cursor } => *place = Some(cursor),
                WatchEvent::Put { cursor, .. } | WatchEvent::Removed { cursor, .. } => {
                    // Before the marker it can only begin again.
                    *place = place.and(Some(cursor));
                }
                WatchEvent::Snapshot(_) | WatchEvent::Restarted => *place = None,
            }
            if ledger.asks_watch {
                *place = watch.cursor();
            }
            if let Some(place) = *place {
                watched.goes_on(place);
            }
        }
        station.pause(10, 2_000).await;
    }
}
