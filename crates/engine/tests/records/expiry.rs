//! Time to live: who wins when a record expires while it is used, on each store.

use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::decorate::Method;
use plimsoll_core::record::fields;
use plimsoll_core::store::Guard;
use plimsoll_core::{Key, Result};
use plimsoll_engine::records::{Swap, Swapped};
use serde::{Deserialize, Serialize};

use crate::world::{MINUTE, World, code, on_each_store};

on_each_store!(
    time_to_live_counts_down_and_is_prolonged,
    an_expired_record_is_absent_for_every_verb,
    compare_and_swap_on_an_expired_record_is_refused,
    an_update_that_expiry_overtakes_begins_anew,
    a_field_that_is_set_as_the_record_expires_is_alone,
    a_record_that_expires_while_its_time_is_asked_for_is_gone,
);

const MOMENT: Duration = Duration::from_micros(1);

async fn time_to_live_counts_down_and_is_prolonged(w: World) -> Result<()> {
    w.records.put("a", [("x", "1")], Some(MINUTE)).await?;
    w.clock.advance(MINUTE / 2);
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE / 2));
    w.records.set_field("a", "x", "2").await?;
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE / 2));
    w.records.touch("a", MINUTE).await?;
    assert_eq!(w.records.ttl("a").await?, Some(MINUTE));
    w.clock.advance(MINUTE - MOMENT);
    assert!(w.records.get("a").await?.is_some());
    w.clock.advance(MOMENT);
    assert_eq!(w.records.get("a").await?, None);
    Ok(())
}

async fn an_expired_record_is_absent_for_every_verb(w: World) -> Result<()> {
    w.records
        .put("a", [("n", "1"), ("x", "1")], Some(MINUTE))
        .await?;
    w.clock.advance(MINUTE);
    assert_eq!(w.records.get_many(["a"]).await?, [None]);
    assert_eq!(w.records.get_field("a", "x").await?, None);
    for answer in [
        w.records.touch("a", MINUTE).await,
        w.records.persist("a").await,
    ] {
        assert_eq!(code(answer), "record_not_found");
    }
    assert_eq!(code(w.records.ttl("a").await), "record_not_found");
    assert!(!w.records.delete("a").await?);
    // What is counted now begins anew, and lives for ever.
    assert_eq!(w.records.increment("a", "n", 1).await?, 1);
    assert_eq!(w.records.ttl("a").await?, None);
    let found = w.records.get("a").await?.unwrap().fields;
    assert_eq!(found, fields([("n", "1")])?);
    Ok(())
}

async fn compare_and_swap_on_an_expired_record_is_refused(w: World) -> Result<()> {
    let at = w
        .records
        .put("a", [("state", "pending")], Some(MINUTE))
        .await?;
    w.clock.advance(MINUTE);
    assert!(
        !w.records
            .compare_and_swap("a", "state", "pending", "claimed")
            .await?
    );
    let refused = w
        .records
        .swap(Swap::new("a").when_at(at).set("x", "1"))
        .await?;
    assert_eq!(
        refused,
        Swapped::Refused(Guard::RecordAt(Key::new("a")?, at))
    );
    assert_eq!(w.records.get("a").await?, None);
    let absent = Swap::new("a").when_absent().set("state", "new");
    assert!(w.records.swap(absent).await?.is_done());
    Ok(())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Counter {
    n: u32,
}

async fn an_update_that_expiry_overtakes_begins_anew(w: World) -> Result<()> {
    let counters = w.records.typed::<Counter>();
    counters.put("a", &Counter { n: 41 }, Some(MINUTE)).await?;
    let clock = w.clock.clone();
    w.spy.before(Method::Commit, move || {
        clock.advance(MINUTE);
        async {}.boxed()
    });
    let mut seen = Vec::new();
    let update = counters.update("a", |before| {
        seen.push(before.as_ref().map(|counter| counter.n));
        Some(Counter {
            n: before.map_or(0, |counter| counter.n) + 1,
        })
    });
    assert_eq!(w.drive(update).await?, Some(Counter { n: 1 }));
    assert_eq!(
        seen,
        [Some(41), None],
        "nothing of what had expired is kept"
    );
    assert_eq!(w.records.ttl("a").await?, None);
    Ok(())
}

async fn a_field_that_is_set_as_the_record_expires_is_alone(w: World) -> Result<()> {
    w.records.put("a", [("x", "1")], Some(MINUTE)).await?;
    let clock = w.clock.clone();
    w.spy.before(Method::Commit, move || {
        clock.advance(MINUTE);
        async {}.boxed()
    });
    w.records.set_field("a", "y", "2").await?;
    let found = w.records.get("a").await?.unwrap().fields;
    assert_eq!(found, fields([("y", "2")])?);
    Ok(())
}

async fn a_record_that_expires_while_its_time_is_asked_for_is_gone(w: World) -> Result<()> {
    w.records.put("a", [("x", "1")], Some(MINUTE)).await?;
    let clock = w.clock.clone();
    w.spy.before(Method::Ping, move || {
        clock.advance(MINUTE);
        async {}.boxed()
    });
    assert_eq!(code(w.records.ttl("a").await), "record_not_found");
    Ok(())
}
