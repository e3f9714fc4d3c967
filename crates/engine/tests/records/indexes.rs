//! Indexes that are declared and dropped: patience over many steps, and what is not to be indexed.

use futures::FutureExt;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::Index;
use plimsoll_core::{Error, Name, Prefix, Result, StoreExt};
use plimsoll_engine::records::Swap;

use crate::world::{World, on_each_store};

on_each_store!(
    each_step_that_gets_somewhere_renews_the_patience,
    who_gives_up_after_a_step_says_that_it_may_have_been_declared,
    an_index_that_is_dropped_while_it_is_filled_is_declared_again,
    an_index_on_what_belongs_to_the_engine_can_be_dropped,
);

/// More records than two steps take in.
const RECORDS: usize = 2_200;

async fn many(w: &World) -> Result<()> {
    for hundred in 0..RECORDS / 100 {
        let key = |n| format!("r.{}", hundred * 100 + n);
        let swaps = (0..100).map(|n| Swap::new(key(n)).set("n", 1));
        assert!(w.others.commit(swaps).await?.is_done());
    }
    Ok(())
}

/// So many tries in vain, and then one that is answered.
fn fails(w: &World, times: u32) {
    for _ in 0..times {
        w.plan.next(Method::DeclareIndex, Fault::ErrorBefore);
    }
    let answered = Fault::Delay(std::time::Duration::ZERO);
    w.plan.next(Method::DeclareIndex, answered);
}

async fn each_step_that_gets_somewhere_renews_the_patience(w: World) -> Result<()> {
    many(&w).await?;
    // One try less than it takes to give up, before each of the three steps.
    (0..3).for_each(|_| fails(&w, 4));
    w.records.declare_index("r.", "n").await?;
    assert_eq!(w.plan.injected()[&Method::DeclareIndex], 15, "all of them");
    assert!(w.others.indexes().await?[0].ready);
    let range = w.others.scan("r.").range("n", ..).page_size(1_000);
    let mut found = (0, None);
    loop {
        let page = range.page(found.1).await?;
        found = (found.0 + page.rows.len(), page.next);
        if found.1.is_none() {
            break;
        }
    }
    assert_eq!(found.0, RECORDS);
    Ok(())
}

async fn an_index_that_is_dropped_while_it_is_filled_is_declared_again(w: World) -> Result<()> {
    many(&w).await?;
    let others = w.others.clone();
    w.spy.after(Method::DeclareIndex, move || {
        let others = others.clone();
        async move { assert!(others.drop_index("r.", "n").await.unwrap()) }.boxed()
    });
    w.records.declare_index("r.", "n").await?;
    assert_eq!(w.spy.calls(Method::DeclareIndex), 4, "from the beginning");
    assert!(w.others.indexes().await?[0].ready);
    Ok(())
}

async fn who_gives_up_after_a_step_says_that_it_may_have_been_declared(w: World) -> Result<()> {
    many(&w).await?;
    for (steps, expected) in [(0, Applied::No), (1, Applied::Unknown)] {
        (0..steps).for_each(|_| fails(&w, 0));
        fails(&w, 5);
        let answer = w.records.declare_index("r.", "n").await;
        let Err(Error::Unavailable(Unavailable { applied, .. })) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(applied, expected);
        w.plan.calm();
        assert_eq!(w.others.indexes().await?.len(), steps);
    }
    w.records.declare_index("r.", "n").await?;
    assert!(w.others.indexes().await?[0].ready);
    Ok(())
}

async fn an_index_on_what_belongs_to_the_engine_can_be_dropped(w: World) -> Result<()> {
    let index = Index {
        prefix: Prefix::new("plimsoll.jobs.")?,
        field: Name::new("partitions")?,
    };
    let refused = w.records.declare_index(&index.prefix, &index.field).await;
    assert_eq!(refused.unwrap_err().code(), "invalid");
    w.bare.ensure_index(&index).await?;
    assert_eq!(w.others.indexes().await?.len(), 1);
    assert!(w.records.drop_index(&index.prefix, &index.field).await?);
    assert_eq!(w.others.indexes().await?, []);
    // All records are everybody's, the engine's among them.
    w.records.declare_index("", "partitions").await?;
    Ok(())
}
