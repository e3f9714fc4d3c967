//! Wake-ups: hints that a look may be worth it, for what this handle itself does.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::conformance::world::{World, complete, lane};
use crate::conformance::writes::{log, retry};
use crate::error::Result;
use crate::log::{Level, NewLine};
use crate::store::StoreExt;
use crate::wake::{Listener, Wake};

cases!["wakeups":
    a_listener_hears_that_a_task_became_runnable,
    who_is_answered_has_been_told_what_it_made_runnable,
    a_listener_hears_that_a_holder_was_asked_to_stop_or_lost_its_task,
    a_listener_hears_of_new_history,
    a_listener_hears_of_new_lines_in_a_log,
    every_listener_hears_for_itself,
];

/// Waits for a hint that matches. Hints of what came before may arrive first.
async fn hear(listener: &mut Listener, what: impl Fn(&Wake) -> bool) {
    while !what(&listener.next().await) {}
}

fn names_the_lane(wake: &Wake) -> bool {
    wake.any_lane || wake.lanes == BTreeSet::from([lane()])
}

async fn a_listener_hears_that_a_task_became_runnable(w: World) -> Result<()> {
    let mut listener = w.store.wakeups();
    w.submit(w.new_task("now")).await?;
    hear(&mut listener, names_the_lane).await;
    let later = w.new_task("later").after(Duration::from_secs(1));
    w.submit(later).await?;
    hear(&mut listener, names_the_lane).await;
    w.advance(Duration::from_secs(1));
    let mut listener = w.store.wakeups();
    assert_eq!(w.sweep().await?.promoted, 1);
    hear(&mut listener, names_the_lane).await;
    Ok(())
}

async fn who_is_answered_has_been_told_what_it_made_runnable(w: World) -> Result<()> {
    let mut listener = w.store.wakeups();
    for _ in 0..20 {
        w.submit(w.new_task("now")).await?;
        let told = listener.take();
        assert!(names_the_lane(&told), "{told:?}");
    }
    Ok(())
}

async fn a_listener_hears_that_a_holder_was_asked_to_stop_or_lost_its_task(w: World) -> Result<()> {
    let (task, _) = w.claimed(w.new_task("asked")).await?;
    let (other, _) = w.claimed(w.new_task("taken away")).await?;
    let mut listener = w.store.wakeups();
    w.store.cancel(task.id(), None).await?;
    hear(&mut listener, |wake| wake.leases).await;
    let mut listener = w.store.wakeups();
    w.write_with_id(retry(other.id(), false)).await?;
    hear(&mut listener, |wake| wake.leases).await;
    Ok(())
}

async fn a_listener_hears_of_new_history(w: World) -> Result<()> {
    let mut listener = w.store.wakeups();
    w.put("k", [("f", "v")]).await?;
    hear(&mut listener, |wake| wake.history).await;
    let (_, held) = w.claimed(w.new_task("work")).await?;
    let mut listener = w.store.wakeups();
    w.store.settle(held, complete()).await?;
    hear(&mut listener, |wake| wake.history).await;
    Ok(())
}

async fn a_listener_hears_of_new_lines_in_a_log(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("work")).await?;
    let mut listener = w.store.wakeups();
    let line = NewLine::new(w.ids.line(), Level::Info, "new");
    w.store.write(log(&held, &[line])).await?;
    hear(&mut listener, |wake| wake.logs).await;
    Ok(())
}

async fn every_listener_hears_for_itself(w: World) -> Result<()> {
    let mut early = w.store.wakeups();
    w.put("k", [("f", "1")]).await?;
    let mut late = w.store.wakeups();
    w.submit(w.new_task("work")).await?;
    hear(&mut late, names_the_lane).await;
    hear(&mut early, |wake| wake.history).await;
    Ok(())
}
