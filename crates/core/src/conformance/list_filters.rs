//! Filters of lists: what each part shows, and that all parts must hold.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::conformance::lists::{brought_to, listed_ids, owned, shown};
use crate::conformance::world::{World, complete, holder, lane, name};
use crate::error::Result;
use crate::ids::TaskId;
use crate::names::Name;
use crate::store::{Amend, Ending, List, Selector, StoreExt, TaskFilter, Write};
use crate::task::{NewTask, Status};

cases!["list_filters":
    a_status_filter_shows_only_the_statuses_it_names,
    all_labels_of_a_filter_must_match,
    a_worker_filter_shows_what_workers_of_that_name_hold_now,
    a_stage_filter_shows_the_tasks_that_are_in_it_now,
    a_range_of_creation_includes_its_start_and_excludes_its_end,
    a_range_of_ending_includes_its_start_and_excludes_its_end,
    all_parts_of_a_filter_must_hold,
    a_listing_whose_rows_are_filtered_out_still_ends,
];

fn labelled(task: NewTask, labels: &[(&str, &str)]) -> Result<NewTask> {
    Ok(NewTask {
        labels: pairs(labels)?,
        ..task
    })
}

fn pairs(labels: &[(&str, &str)]) -> Result<BTreeMap<Name, Name>> {
    labels
        .iter()
        .map(|(label, value)| Ok((name(label)?, name(value)?)))
        .collect()
}

async fn a_status_filter_shows_only_the_statuses_it_names(w: World) -> Result<()> {
    let mut ids = BTreeMap::new();
    for status in Status::ALL {
        let task = owned(w.new_task("work"), "ada")?;
        ids.insert(status, brought_to(&w, status, task).await?);
    }
    let selector = Selector::Owner(name("ada")?);
    for statuses in [
        vec![Status::Pending],
        vec![Status::Scheduled, Status::Failed],
        vec![Status::Claimed, Status::Completed, Status::Cancelled],
        Status::ALL.to_vec(),
    ] {
        let expected: Vec<TaskId> = statuses.iter().map(|status| ids[status]).collect();
        let filter = TaskFilter {
            statuses: statuses.clone(),
            ..TaskFilter::default()
        };
        assert_eq!(
            shown(&w, &selector, filter).await?,
            expected,
            "{statuses:?}"
        );
    }
    Ok(())
}

async fn all_labels_of_a_filter_must_match(w: World) -> Result<()> {
    let mut submit = Vec::new();
    for labels in [
        &[("tenant", "a"), ("region", "north")][..],
        &[("tenant", "a"), ("region", "south")],
        &[("tenant", "a")],
        &[("tenant", "b"), ("region", "north")],
        &[("region", "a"), ("tenant", "north")],
        &[],
    ] {
        let task = labelled(w.new_task("work"), labels)?;
        submit.push(w.submit(task).await?.id());
    }
    let selector = Selector::Lane(lane(), Status::Pending);
    for (labels, expected) in [
        (&[("tenant", "a")][..], &submit[0..3]),
        (&[("tenant", "a"), ("region", "north")], &submit[0..1]),
        (&[("region", "north"), ("tenant", "b")], &submit[3..4]),
        (&[("tenant", "c")], &[]),
        (&[("colour", "a")], &[]),
        (&[], &submit[..]),
    ] {
        let filter = TaskFilter {
            labels: pairs(labels)?,
            ..TaskFilter::default()
        };
        assert_eq!(shown(&w, &selector, filter).await?, expected, "{labels:?}");
    }
    Ok(())
}

async fn a_worker_filter_shows_what_workers_of_that_name_hold_now(w: World) -> Result<()> {
    let ids = w.submit_many(4).await?;
    let (ada, again, bob) = (w.worker("ada")?, w.worker("ada")?, w.worker("bob")?);
    w.claim_ids(&ada, &ids[0..1]).await?;
    let second = w.claim_ids(&again, &ids[1..2]).await?;
    w.claim_ids(&bob, &ids[2..3]).await?;
    let selector = Selector::Lane(lane(), Status::Claimed);
    let held_by = async |worker: &str| {
        let filter = TaskFilter {
            worker: Some(name(worker)?),
            ..TaskFilter::default()
        };
        shown(&w, &selector, filter).await
    };
    assert_eq!(held_by("ada").await?, ids[0..2]);
    assert_eq!(held_by("bob").await?, ids[2..3]);
    assert_eq!(held_by("ad").await?, []);
    let held = holder(&second.tasks[0]);
    w.store.settle(held, complete()).await?;
    assert_eq!(held_by("ada").await?, ids[0..1]);
    Ok(())
}

async fn a_stage_filter_shows_the_tasks_that_are_in_it_now(w: World) -> Result<()> {
    let staged = || -> Result<NewTask> {
        Ok(NewTask {
            first_stage: Some(name("validating")?),
            ..owned(w.new_task("work"), "ada")?
        })
    };
    let (first, _) = w.claimed(staged()?).await?;
    let (second, moved) = w.claimed(staged()?).await?;
    let (_, back) = w.claimed(staged()?).await?;
    w.submit(staged()?).await?;
    let amend = Amend {
        stage: Some(name("processing")?),
        ..Amend::new(moved)
    };
    w.store.write(Write::Amend(Box::new(amend))).await?;
    let release = Ending::Release { reason: None };
    w.store.settle(back, release).await?;
    let selector = Selector::Owner(name("ada")?);
    for (stage, expected) in [
        ("validating", vec![first.id()]),
        ("processing", vec![second.id()]),
        ("uploading", vec![]),
    ] {
        let filter = TaskFilter {
            stage: Some(name(stage)?),
            ..TaskFilter::default()
        };
        assert_eq!(shown(&w, &selector, filter).await?, expected, "{stage}");
    }
    Ok(())
}

async fn a_range_of_creation_includes_its_start_and_excludes_its_end(w: World) -> Result<()> {
    let start = w.now();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(w.submit(w.new_task("work")).await?.id());
        w.advance(Duration::from_secs(1));
    }
    let at = |second: u64| Some(start.saturating_plus(Duration::from_secs(second)));
    let selector = Selector::Lane(lane(), Status::Pending);
    for (from, before, expected) in [
        (at(1), None, &ids[1..]),
        (None, at(1), &ids[..1]),
        (at(1), at(3), &ids[1..3]),
        (at(2), at(2), &[]),
        (at(4), None, &[]),
    ] {
        let filter = TaskFilter {
            created_from: from,
            created_before: before,
            ..TaskFilter::default()
        };
        let found = shown(&w, &selector, filter).await?;
        assert_eq!(found, expected, "{from:?} to {before:?}");
    }
    Ok(())
}

async fn a_range_of_ending_includes_its_start_and_excludes_its_end(w: World) -> Result<()> {
    let start = w.now();
    let mut ids = Vec::new();
    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        let task = owned(w.new_task("work"), "ada")?;
        ids.push(brought_to(&w, status, task).await?);
        w.advance(Duration::from_secs(1));
    }
    for status in [Status::Scheduled, Status::Pending, Status::Claimed] {
        brought_to(&w, status, owned(w.new_task("work"), "ada")?).await?;
    }
    let at = |second: u64| Some(start.saturating_plus(Duration::from_secs(second)));
    let selector = Selector::Owner(name("ada")?);
    for (from, before, expected) in [
        (at(0), None, &ids[..]),
        (None, at(60), &ids[..]),
        (at(1), None, &ids[1..]),
        (None, at(1), &ids[..1]),
        (at(1), at(2), &ids[1..2]),
        (at(3), None, &[]),
    ] {
        let filter = TaskFilter {
            finished_from: from,
            finished_before: before,
            ..TaskFilter::default()
        };
        let found = shown(&w, &selector, filter).await?;
        assert_eq!(found, expected, "{from:?} to {before:?}");
    }
    Ok(())
}

async fn all_parts_of_a_filter_must_hold(w: World) -> Result<()> {
    let make = |tenant: &str| labelled(owned(w.new_task("work"), "ada")?, &[("tenant", tenant)]);
    let early = brought_to(&w, Status::Failed, make("a")?).await?;
    w.advance(Duration::from_secs(1));
    let from = w.now();
    brought_to(&w, Status::Failed, make("b")?).await?;
    brought_to(&w, Status::Completed, make("a")?).await?;
    let late = brought_to(&w, Status::Failed, make("a")?).await?;
    let mut filter = TaskFilter {
        statuses: vec![Status::Failed],
        labels: pairs(&[("tenant", "a")])?,
        created_from: Some(from),
        finished_from: Some(from),
        ..TaskFilter::default()
    };
    let selector = Selector::Owner(name("ada")?);
    assert_eq!(shown(&w, &selector, filter.clone()).await?, [late]);
    filter.created_from = None;
    filter.finished_from = None;
    assert_eq!(shown(&w, &selector, filter.clone()).await?, [early, late]);
    filter.worker = Some(name("worker")?);
    assert_eq!(shown(&w, &selector, filter).await?, []);
    Ok(())
}

async fn a_listing_whose_rows_are_filtered_out_still_ends(w: World) -> Result<()> {
    w.submit_many(40).await?;
    let rare = labelled(w.new_task("work"), &[("rare", "yes")])?;
    let rare = w.submit(rare).await?.id();
    w.submit_many(10).await?;
    for (value, expected) in [("yes", vec![rare]), ("no", vec![])] {
        for limit in [1, 3, 1_000] {
            let mut list = List::new(Selector::Lane(lane(), Status::Pending), limit);
            list.filter.labels = pairs(&[("rare", value)])?;
            let found = listed_ids(&w, list).await?;
            assert_eq!(found, expected, "rare = {value} in pages of {limit}");
        }
    }
    Ok(())
}
