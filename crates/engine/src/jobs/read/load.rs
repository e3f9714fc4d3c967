//! How the states of a job get into memory, and how they are compared after a disconnection.

use std::sync::Arc;

use plimsoll_core::record::Record;
use plimsoll_core::store::Scan;
use plimsoll_core::{Result, StoreExt};
use tracing::warn;

use super::cache::{Cache, Inner};
use crate::history::{self, Place, Told};
use crate::jobs::State;

/// Loads or refreshes, unless something newer begins meanwhile.
pub(crate) async fn run(cache: Arc<Cache>, refresh: bool, epoch: u64) {
    let done = match refresh {
        true => reconcile(&cache, epoch).await,
        false => load(&cache, epoch).await,
    };
    if let Err(error) = done {
        let mut inner = cache.inner();
        if inner.epoch == epoch {
            cache.close(&mut inner, error);
        }
    }
}

/// Whoever was told up to here knows everything that was acknowledged by now, or could be read.
pub(crate) async fn newest(cache: &Cache) -> Result<Place> {
    let engine = &cache.engine;
    let call = || history::end(engine.store().as_ref());
    let clock = engine.clock().as_ref();
    let end = engine.reconnect().patiently(clock, call).await?;
    Ok(end.newest)
}

/// Reads everything while the history goes on to be told. Each page shows at least what was told when it
/// was asked for, and whatever is newer in it has been told by the time that the end of the history
/// as of after the last page has been.
async fn load(cache: &Cache, epoch: u64) -> Result<()> {
    loop {
        let job = read_job(cache).await?;
        let mut inner = cache.inner();
        if inner.epoch != epoch {
            return Ok(());
        }
        // What was told while this was read may be newer.
        if cache.is_fresh(&inner, job.as_ref()) {
            cache.job(&mut inner, job.as_ref())?;
            break;
        }
    }
    scan(cache, epoch, |inner, record| {
        cache.put(inner, &record);
    })
    .await?;
    caught_up(cache, epoch, |inner| cache.serve(inner)).await
}

/// Reads everything again, and adopts what the history should have told and has not.
async fn reconcile(cache: &Cache, epoch: u64) -> Result<()> {
    let job = read_job(cache).await?;
    let mut unseen = cache.inner().fold.revisions();
    let mut newer = Vec::new();
    scan(cache, epoch, |inner, record| {
        unseen.remove(&record.key);
        if inner.fold.is_news(&record) {
            newer.push(record);
        }
    })
    .await?;
    caught_up(cache, epoch, |inner| {
        let missed = newer
            .iter()
            .filter_map(|record| adopt(cache, inner, record));
        let missed: Vec<_> = missed.collect();
        // Each has a place of its own, so that whoever goes on after one of them is told those behind it.
        let places = inner.upto.unheard(missed.len());
        let events = places.zip(missed).map(|(place, (event, bytes))| Told {
            place,
            bytes,
            event,
        });
        cache.tell(inner, events.collect());
        for (key, revision) in unseen {
            // It was there before, and was not told of again: it ended unheard.
            if inner.fold.still(&key, revision) && inner.fold.remove(&key, revision) {
                cache.engine.telemetry().states.drifted();
                let (partition, tag) = cache.keys.parse(&key).unzip();
                warn!(
                    jobID = %cache.keys.name,
                    taskID = partition,
                    tag = tag.as_ref().map(|tag| tag.as_str()),
                    "🟡 end of a state was missed"
                );
            }
        }
        cache.adopted(inner);
        // Not before: whoever follows a job that ended is told what came before that.
        if cache.is_fresh(inner, job.as_ref())
            && let Err(error) = cache.job(inner, job.as_ref())
        {
            cache.close(inner, error);
        }
    })
    .await?;
    cache.wake();
    Ok(())
}

/// A record that nobody told of, and about how many bytes it takes.
fn adopt(cache: &Cache, inner: &mut Inner, record: &Record) -> Option<(Arc<State>, usize)> {
    let event = cache.put(inner, record)?;
    cache.engine.telemetry().states.drifted();
    warn!(
        jobID = %event.job,
        taskID = event.partition,
        tag = event.tag.as_ref().map(|tag| tag.as_str()),
        version = event.version,
        eventID = event.event_id.as_ref().map(|id| id.as_str()),
        "🟡 state was missed"
    );
    Some((event, record.size()))
}

async fn read_job(cache: &Cache) -> Result<Option<Record>> {
    let engine = &cache.engine;
    let call = || engine.store().record(&cache.keys.job);
    let clock = engine.clock().as_ref();
    engine.reconnect().patiently(clock, call).await
}

/// Looks at every state in the store, page by page.
async fn scan(cache: &Cache, epoch: u64, mut look: impl FnMut(&mut Inner, Record)) -> Result<()> {
    let engine = &cache.engine;
    let store = engine.store().as_ref();
    let mut scan = Scan::new(cache.keys.states.clone(), store.limits().page_max);
    while cache.inner().epoch == epoch {
        let call = || store.scan(scan.clone());
        let clock = engine.clock().as_ref();
        let page = engine.reconnect().patiently(clock, call).await?;
        let mut inner = cache.inner();
        if inner.epoch == epoch {
            page.rows.into_iter().for_each(|row| look(&mut inner, row));
        }
        match page.next {
            Some(next) => scan.cursor = Some(next),
            None => break,
        }
    }
    Ok(())
}

/// Does something as soon as everything is told that was acknowledged by now.
async fn caught_up(cache: &Cache, epoch: u64, act: impl FnOnce(&mut Inner)) -> Result<()> {
    let newest = newest(cache).await?;
    cache.engine.tail().look();
    let mut act = Some(act);
    let acted = cache.until(|inner| {
        if inner.epoch != epoch {
            return Some(());
        }
        let act = (inner.upto >= newest).then(|| act.take())??;
        act(inner);
        Some(())
    });
    acted.await;
    Ok(())
}
