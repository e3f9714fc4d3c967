//! Clerks: compare, swap, add, put, delete and read a few records.

use plimsoll_core::record::{Record, integer};
use plimsoll_core::store::Merge;
use plimsoll_core::{Error, Key, Name, Result, Revision};
use plimsoll_engine::records::{Swap, Swapped};

use super::clients::Desk;
use super::log::Event;
use crate::check::{Answer, Deed, Held, Question, SHELF};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Writes and reads until it is time.
pub(super) async fn write(desk: Desk) -> Result<()> {
    let mut seen: Option<String> = None;
    while !desk.is_over() {
        let name = NAMES[usize::try_from(desk.ids.below(3)).unwrap_or(0)];
        let key = Key::new(format!("{SHELF}{name}"))?;
        match desk.ids.below(12) {
            0 => delete(&desk, &key).await?,
            1 => put(&desk, &key).await?,
            2..5 => seen = read(&desk, &key).await?,
            5..8 => {
                seen = read(&desk, &key).await?;
                desk.pause(2).await;
                swap(&desk, &key, seen.take()).await?;
            }
            8 => swap(&desk, &key, seen.take()).await?,
            _ => add(&desk, &key).await?,
        }
    }
    Ok(())
}

fn held(record: &Record) -> Held {
    let by = record.field("by").map(|by| String::from_utf8_lossy(by));
    let count = record.field("count").and_then(|count| integer(count));
    Held {
        by: by.unwrap_or_default().into_owned(),
        count: count.unwrap_or(0),
        revision: Some(record.revision),
    }
}

/// What a call came to, if anybody knows.
fn known<T>(answer: Result<T>, told: impl FnOnce(&T) -> Answer) -> (Answer, Result<Option<T>>) {
    match answer {
        Ok(answer) => (told(&answer), Ok(Some(answer))),
        Err(Error::Unavailable(_)) => (Answer::Unknown, Ok(None)),
        Err(error) => (Answer::Unknown, Err(error)),
    }
}

async fn read(desk: &Desk, key: &Key) -> Result<Option<String>> {
    let records = desk.engine.records();
    let call = async {
        known(records.get(key).await, |found| {
            Answer::Found(found.as_ref().map(held))
        })
    };
    let found = desk.recorder.asks(key, Question::Read, call).await?;
    Ok(found.flatten().map(|record| held(&record).by))
}

async fn delete(desk: &Desk, key: &Key) -> Result<()> {
    let records = desk.engine.records();
    let call = async { known(records.delete(key).await, |was| Answer::Gone(*was)) };
    desk.recorder.asks(key, Question::Delete, call).await?;
    Ok(())
}

async fn put(desk: &Desk, key: &Key) -> Result<()> {
    let (records, deed) = (
        desk.engine.records(),
        desk.recorder.count(Event::Does(Deed::Put)),
    );
    let by = deed.to_string();
    let fields = [("by", by.clone()), ("count", "0".to_owned())];
    let call = async {
        known(records.put(key, fields, None).await, |revision| {
            Answer::Written(*revision)
        })
    };
    let revision = desk.recorder.asks(key, Question::Put { by }, call).await?;
    did(desk, deed, revision.map(Some));
    Ok(())
}

async fn add(desk: &Desk, key: &Key) -> Result<()> {
    let number = i64::try_from(1 + desk.ids.below(9)).unwrap_or(1);
    let deed = desk.recorder.count(Event::Does(Deed::Add(number)));
    let (records, by) = (desk.engine.records(), deed.to_string());
    let mut merge = Merge::new(key.clone()).add(Name::new("count")?, number);
    merge.set.insert(Name::new("by")?, by.clone().into());
    let call = async {
        known(records.merge(merge).await, |record| {
            Answer::Now(held(record))
        })
    };
    let question = Question::Add { by, number };
    let record = desk.recorder.asks(key, question, call).await?;
    did(desk, deed, record.map(|record| Some(record.revision)));
    Ok(())
}

async fn swap(desk: &Desk, key: &Key, seen: Option<String>) -> Result<()> {
    let deed = Deed::After(seen.clone());
    let deed = desk.recorder.count(Event::Does(deed));
    let (records, by) = (desk.engine.records(), deed.to_string());
    let swap = match &seen {
        Some(seen) => Swap::new(key).when("by", seen.clone()),
        None => Swap::new(key).when_absent(),
    };
    let swap = swap.set("by", by.clone());
    let call = async {
        known(records.swap(swap).await, |swapped| match swapped {
            Swapped::Done(revision) => Answer::Written(revision.unwrap_or(Revision::ZERO)),
            Swapped::Refused(_) => Answer::Refused,
        })
    };
    let question = Question::Swap { seen, by };
    let swapped = desk.recorder.asks(key, question, call).await?;
    did(
        desk,
        deed,
        swapped.map(|swapped| match swapped {
            Swapped::Done(revision) => revision,
            Swapped::Refused(_) => None,
        }),
    );
    Ok(())
}

/// What became of a deed, if anybody knows.
fn did(desk: &Desk, deed: usize, came: Option<Option<Revision>>) {
    if let Some(came) = came {
        desk.recorder.note(Event::Did(deed, came));
    }
}
