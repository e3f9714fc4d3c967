//! Lists, counts and reads by id: what is shown, in which order, in which pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::change::{Change, TaskEvent};
use crate::conformance::world::{
    LEASE, World, complete, fail, fail_with, holder, invalid, lane, name,
};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::limits::PAGE_BYTES_MAX;
use crate::names::{GroupId, IdempotencyKey, Name, Prefix};
use crate::store::{
    Amend, Claim, Counts, Cursor, Ending, FailRetry, Groups, LaneCounts, List, Peek, Pick, Retry,
    Selector, StoreExt, TaskFilter, Tasks, Write,
};
use crate::task::{KeyLifetime, Lane, NewTask, OnConflict, Priority, RetryPolicy, Status, Task};

cases!["lists":
    a_lane_and_status_list_their_tasks_in_id_order,
    a_group_lists_its_members_in_id_order_whatever_their_status,
    an_owner_lists_its_tasks_in_id_order_over_all_lanes,
    a_key_prefix_lists_tasks_in_the_byte_order_of_their_keys,
    a_key_prefix_is_text_whatever_it_means_elsewhere,
    a_key_shows_the_task_it_was_last_given_to,
    pages_of_any_size_show_every_task_exactly_once,
    a_task_that_stays_is_listed_once_while_others_come_and_go,
    a_status_filter_shows_only_the_statuses_it_names,
    all_labels_of_a_filter_must_match,
    a_worker_filter_shows_what_workers_of_that_name_hold_now,
    a_stage_filter_shows_the_tasks_that_are_in_it_now,
    a_range_of_creation_includes_its_start_and_excludes_its_end,
    a_range_of_ending_includes_its_start_and_excludes_its_end,
    all_parts_of_a_filter_must_hold,
    a_listing_whose_rows_are_filtered_out_still_ends,
    a_cursor_that_no_store_made_is_invalid,
    a_cursor_of_a_key_listing_that_no_store_made_is_invalid,
    pages_of_large_tasks_stay_bounded_and_lose_nothing,
    counts_equal_what_lists_find_after_a_mixed_history,
    counts_can_be_asked_for_a_queue_or_a_kind,
    a_lane_that_lost_its_last_task_is_not_counted,
    tasks_are_read_in_the_order_asked,
    groups_are_read_in_the_order_asked,
    a_peek_shows_what_the_next_claim_takes if FirstInFirstOut,
    a_peek_shows_only_pending_tasks_of_its_lanes_and_changes_nothing,
];

/// Reads all pages of a list.
async fn listed(w: &World, mut list: List) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for _ in 0..2_000 {
        let page = w.store.list(list.clone()).await?;
        assert!(page.rows.len() <= list.limit, "a page is too long");
        tasks.extend(page.rows);
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => return Ok(tasks),
        }
    }
    panic!("the listing does not end: {list:?}");
}

async fn listed_ids(w: &World, list: List) -> Result<Vec<TaskId>> {
    Ok(listed(w, list).await?.iter().map(Task::id).collect())
}

/// The ids of what a selector selects and a filter shows.
async fn shown(w: &World, selector: &Selector, filter: TaskFilter) -> Result<Vec<TaskId>> {
    let mut list = List::new(selector.clone(), 1_000);
    list.filter = filter;
    listed_ids(w, list).await
}

fn owned(task: NewTask, owner: &str) -> Result<NewTask> {
    Ok(NewTask {
        owner: Some(name(owner)?),
        ..task
    })
}

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

fn in_lane(task: NewTask, queue: &str, kind: &str) -> Result<NewTask> {
    Ok(NewTask {
        lane: Lane::new(queue, kind)?,
        ..task
    })
}

/// Submits a task and brings it to this status.
async fn brought_to(w: &World, status: Status, task: NewTask) -> Result<TaskId> {
    let id = task.id;
    match status {
        Status::Scheduled => drop(w.submit(task.after(Duration::from_secs(3_600))).await?),
        Status::Pending => drop(w.submit(task).await?),
        Status::Claimed => drop(w.claimed(task).await?),
        Status::Completed => settled(w, task, complete()).await?,
        Status::Failed => settled(w, task, fail_with("no", FailRetry::Fatal)).await?,
        Status::Cancelled => {
            w.submit(task).await?;
            w.store.cancel(id, None).await?;
        }
    }
    assert_eq!(w.status(id).await?, status);
    Ok(id)
}

async fn settled(w: &World, task: NewTask, how: Ending) -> Result<()> {
    let (_, held) = w.claimed(task).await?;
    w.store.settle(held, how).await?;
    Ok(())
}

async fn open_group(w: &World, id: &str) -> Result<GroupId> {
    let id = GroupId::new(id)?;
    let group = Box::new(NewGroup::new(id.clone()));
    w.store.write(Write::OpenGroup(group)).await?;
    Ok(id)
}

async fn a_lane_and_status_list_their_tasks_in_id_order(w: World) -> Result<()> {
    let new: Vec<NewTask> = (0..5).map(|_| w.new_task("work")).collect();
    for (index, priority) in [(3, 1), (0, 0), (4, 9), (1, 5), (2, 10)] {
        let task = new[index].clone().priority(Priority::new(priority)?);
        w.submit(task).await?;
    }
    w.submit(in_lane(w.new_task("work"), "queue", "kind2")?)
        .await?;
    w.submit(in_lane(w.new_task("work"), "queue2", "kind")?)
        .await?;
    let scheduled = brought_to(&w, Status::Scheduled, w.new_task("later")).await?;
    let cancelled = brought_to(&w, Status::Cancelled, w.new_task("not at all")).await?;
    let in_order: Vec<TaskId> = new.iter().map(|task| task.id).collect();
    let pending = listed(&w, List::new(Selector::Lane(lane(), Status::Pending), 10)).await?;
    let ids = Tasks { ids: in_order };
    let read: Vec<Task> = w.store.tasks(ids).await?.into_iter().flatten().collect();
    assert_eq!(pending, read);
    for (status, expected) in [
        (Status::Scheduled, vec![scheduled]),
        (Status::Cancelled, vec![cancelled]),
        (Status::Claimed, vec![]),
    ] {
        let selector = Selector::Lane(lane(), status);
        assert_eq!(
            shown(&w, &selector, TaskFilter::default()).await?,
            expected,
            "{status}"
        );
    }
    Ok(())
}

async fn a_group_lists_its_members_in_id_order_whatever_their_status(w: World) -> Result<()> {
    let group = open_group(&w, "g").await?;
    let longer = open_group(&w, "g2").await?;
    let mut members: Vec<NewTask> = Status::ALL
        .iter()
        .map(|_| w.new_task("member").group(group.clone()))
        .collect();
    members[2] = in_lane(members[2].clone(), "other", "lane")?;
    let other = w.submit(w.new_task("other").group(longer.clone())).await?;
    w.submit(w.new_task("of no group")).await?;
    for (member, status) in members.iter().zip(Status::ALL).rev() {
        brought_to(&w, status, member.clone()).await?;
    }
    let found = listed(&w, List::new(Selector::Group(group), 10)).await?;
    let found: Vec<(TaskId, Status)> = found.iter().map(|task| (task.id(), task.status)).collect();
    let expected: Vec<(TaskId, Status)> = (members.iter().zip(Status::ALL))
        .map(|(member, status)| (member.id, status))
        .collect();
    assert_eq!(found, expected);
    let found = shown(&w, &Selector::Group(longer), TaskFilter::default()).await?;
    assert_eq!(found, [other.id()]);
    Ok(())
}

async fn an_owner_lists_its_tasks_in_id_order_over_all_lanes(w: World) -> Result<()> {
    let mut new = Vec::new();
    for n in 0..4 {
        let task = in_lane(w.new_task("work"), "queue", &format!("kind{n}"))?;
        new.push(owned(task, "ada")?);
    }
    let other = owned(w.new_task("work"), "adam")?;
    w.submit(other).await?;
    w.submit(w.new_task("nobody's")).await?;
    let statuses = [
        Status::Failed,
        Status::Pending,
        Status::Claimed,
        Status::Completed,
    ];
    for (task, status) in new.iter().zip(statuses).rev() {
        brought_to(&w, status, task.clone()).await?;
    }
    let found = shown(&w, &Selector::Owner(name("ada")?), TaskFilter::default()).await?;
    let expected: Vec<TaskId> = new.iter().map(|task| task.id).collect();
    assert_eq!(found, expected);
    Ok(())
}

async fn a_key_prefix_lists_tasks_in_the_byte_order_of_their_keys(w: World) -> Result<()> {
    let sorted = ["A", "a", "a-1", "a.1", "aB", "a_1", "ab", "b", "é", "日"];
    let mut by_key = BTreeMap::new();
    for key in sorted.iter().rev() {
        let task = w.new_task("work").key(IdempotencyKey::new(key)?);
        by_key.insert(*key, w.submit(task).await?.id());
    }
    w.submit(w.new_task("without a key")).await?;
    for (prefix, expected) in [
        ("", &sorted[..]),
        ("a", &sorted[1..7]),
        ("a.", &sorted[3..4]),
        ("é", &sorted[8..9]),
        ("c", &[]),
    ] {
        let selector = Selector::Key(Prefix::new(prefix)?);
        let expected: Vec<TaskId> = expected.iter().map(|key| by_key[key]).collect();
        for limit in [1, 3, 100] {
            let found = listed_ids(&w, List::new(selector.clone(), limit)).await?;
            assert_eq!(found, expected, "prefix {prefix:?}, pages of {limit}");
        }
    }
    Ok(())
}

async fn a_key_prefix_is_text_whatever_it_means_elsewhere(w: World) -> Result<()> {
    let odd = [
        "%", "_", "*", "?", "[a-z]", ">", ".", "\\", "'", "\"", ":", "{x}", "^", "$", "/", "--",
    ];
    w.submit(w.new_task("decoy").key(IdempotencyKey::new("xa1")?))
        .await?;
    let mut by_prefix = BTreeMap::new();
    for text in odd {
        let key = IdempotencyKey::new(format!("x{text}1"))?;
        by_prefix.insert(text, w.submit(w.new_task("work").key(key)).await?.id());
    }
    for (text, id) in by_prefix {
        let selector = Selector::Key(Prefix::new(format!("x{text}"))?);
        for limit in [1, 10] {
            let found = listed_ids(&w, List::new(selector.clone(), limit)).await?;
            assert_eq!(found, [id], "prefix x{text}");
        }
    }
    Ok(())
}

async fn a_key_shows_the_task_it_was_last_given_to(w: World) -> Result<()> {
    let key = IdempotencyKey::new("report")?;
    let keyed = || {
        let key = key.clone();
        (w.new_task("work")).key_with(key, KeyLifetime::WhileActive, OnConflict::Attach)
    };
    let selector = Selector::Key(Prefix::new("rep")?);
    let found = async || shown(&w, &selector, TaskFilter::default()).await;
    let first = brought_to(&w, Status::Completed, keyed()).await?;
    assert_eq!(found().await?, [first]);
    let second = brought_to(&w, Status::Completed, keyed()).await?;
    assert_eq!(found().await?, [second]);
    w.store.write(Write::DeleteTask(first)).await?;
    assert_eq!(found().await?, [second]);
    w.store.write(Write::DeleteTask(second)).await?;
    assert_eq!(found().await?, []);
    Ok(())
}

async fn pages_of_any_size_show_every_task_exactly_once(w: World) -> Result<()> {
    let group = open_group(&w, "all").await?;
    let mut expected = Vec::new();
    for n in 0..10 {
        let key = IdempotencyKey::new(format!("key-{n}"))?;
        let task = owned(w.new_task("work"), "ada")?
            .key(key)
            .group(group.clone());
        expected.push(w.submit(task).await?.id());
    }
    for selector in [
        Selector::Lane(lane(), Status::Pending),
        Selector::Group(group),
        Selector::Owner(name("ada")?),
        Selector::Key(Prefix::new("key-")?),
    ] {
        for limit in [1, 3, 9, 10, 11, 1_000] {
            let found = listed_ids(&w, List::new(selector.clone(), limit)).await?;
            assert_eq!(found, expected, "{selector:?} in pages of {limit}");
        }
    }
    Ok(())
}

async fn a_task_that_stays_is_listed_once_while_others_come_and_go(w: World) -> Result<()> {
    let new: Vec<NewTask> = (0..20).map(|_| w.new_task("work")).collect();
    for task in new.iter().skip(1).step_by(2) {
        w.submit(task.clone()).await?;
    }
    let staying: BTreeSet<TaskId> = new.iter().skip(3).step_by(4).map(|task| task.id).collect();
    let mut leaving = new.iter().skip(1).step_by(4).map(|task| task.id);
    let mut coming = new.iter().step_by(2);
    let mut list = List::new(Selector::Lane(lane(), Status::Pending), 2);
    let mut found = Vec::new();
    for _ in 0..100 {
        let page = w.store.list(list.clone()).await?;
        found.extend(page.rows.iter().map(Task::id));
        if let Some(id) = leaving.next() {
            w.store.cancel(id, None).await?;
        }
        for task in coming.by_ref().take(2) {
            w.submit(task.clone()).await?;
        }
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => break,
        }
    }
    assert!(found.is_sorted_by(|a, b| a < b), "once, in order {found:?}");
    let found: BTreeSet<TaskId> = found.into_iter().collect();
    assert!(staying.is_subset(&found), "{staying:?} in {found:?}");
    Ok(())
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

const FORGED: [&str; 4] = ["", "nonsense", "\0", "🦀 \" or 1=1 --"];

async fn a_cursor_that_no_store_made_is_invalid(w: World) -> Result<()> {
    let group = open_group(&w, "g").await?;
    w.submit(owned(w.new_task("work"), "ada")?.group(group.clone()))
        .await?;
    for selector in [
        Selector::Lane(lane(), Status::Pending),
        Selector::Group(group),
        Selector::Owner(name("ada")?),
    ] {
        for forged in FORGED {
            let mut list = List::new(selector.clone(), 10);
            list.cursor = Some(Cursor::from_text(forged));
            let field = invalid(w.store.list(list).await).field;
            assert_eq!(field, "cursor", "{forged:?} for {selector:?}");
        }
    }
    Ok(())
}

async fn a_cursor_of_a_key_listing_that_no_store_made_is_invalid(w: World) -> Result<()> {
    w.submit(w.new_task("work").key(IdempotencyKey::new("key")?))
        .await?;
    for forged in FORGED {
        let mut list = List::new(Selector::Key(Prefix::any()), 10);
        list.cursor = Some(Cursor::from_text(forged));
        let field = invalid(w.store.list(list).await).field;
        assert_eq!(field, "cursor", "{forged:?}");
    }
    Ok(())
}

async fn pages_of_large_tasks_stay_bounded_and_lose_nothing(w: World) -> Result<()> {
    const PAYLOAD: usize = 200 * 1024;
    let payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let mut submitted = Vec::new();
    for _ in 0..30 {
        let task = owned(w.new_task(payload.clone()), "ada")?;
        submitted.push(w.store.submit(task).await?.id);
    }
    let mut list = List::new(Selector::Owner(name("ada")?), 1_000);
    let mut found = Vec::new();
    for _ in 0..=submitted.len() {
        let page = w.store.list(list.clone()).await?;
        let bytes: usize = page.rows.iter().map(|task| task.spec.payload.len()).sum();
        assert!(bytes < PAGE_BYTES_MAX + PAYLOAD, "{bytes} bytes in a page");
        assert!(page.rows.iter().all(|task| task.spec.payload == payload));
        found.extend(page.rows.iter().map(Task::id));
        match page.next {
            Some(next) => list.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(found, submitted);
    Ok(())
}

/// Tasks in several lanes and every status, some of which went there by a long way.
async fn mixed_history(w: &World) -> Result<Vec<Lane>> {
    let lanes = [("a", "x"), ("a", "y"), ("b", "x")];
    for (index, (queue, kind)) in lanes.into_iter().enumerate() {
        let make = || in_lane(w.new_task("work"), queue, kind);
        for (position, status) in Status::ALL.into_iter().enumerate() {
            for _ in 0..(position + index) % 3 {
                brought_to(w, status, make()?).await?;
            }
        }
        let (_, held) = w.claimed(make()?).await?;
        w.store.settle(held, fail("once")).await?;
        let (_, held) = w.claimed(make()?).await?;
        let release = Ending::Release { reason: None };
        w.store.settle(held, release).await?;
        let again = brought_to(w, Status::Failed, make()?.retry(RetryPolicy::never())).await?;
        let retry = Retry {
            task: again,
            force: true,
            delay: Duration::ZERO,
        };
        w.write_with_id(Write::Retry(retry)).await?;
        w.claimed(make()?.retry(RetryPolicy::never())).await?;
        let gone = brought_to(w, Status::Completed, make()?).await?;
        w.store.write(Write::DeleteTask(gone)).await?;
    }
    w.advance(LEASE);
    w.sweep().await?;
    let held = in_lane(w.new_task("work"), "a", "y")?;
    brought_to(w, Status::Claimed, held).await?;
    lanes
        .into_iter()
        .map(|(queue, kind)| Ok(Lane::new(queue, kind)?))
        .collect()
}

/// What lists find, as counts would say it.
async fn counted_by_listing(w: &World, lanes: &[Lane]) -> Result<Vec<LaneCounts>> {
    let mut counts = Vec::new();
    for lane in lanes {
        let mut by_status = BTreeMap::new();
        for status in Status::ALL {
            let selector = Selector::Lane(lane.clone(), status);
            let found = listed(w, List::new(selector, 1_000)).await?;
            assert!(found.iter().all(|task| task.status == status));
            if !found.is_empty() {
                by_status.insert(status, found.len() as u64);
            }
        }
        counts.push(LaneCounts {
            lane: lane.clone(),
            by_status,
        });
    }
    Ok(counts)
}

async fn counts_equal_what_lists_find_after_a_mixed_history(w: World) -> Result<()> {
    let lanes = mixed_history(&w).await?;
    let counts = w.store.counts(Counts::default()).await?;
    assert_eq!(counts, counted_by_listing(&w, &lanes).await?);
    let statuses: BTreeSet<Status> = (counts.iter())
        .flat_map(|lane| lane.by_status.keys().copied())
        .collect();
    assert_eq!(statuses, BTreeSet::from(Status::ALL));
    let total: u64 = counts.iter().flat_map(|lane| lane.by_status.values()).sum();
    let history = w.history().await?;
    let mut alive = BTreeSet::new();
    for change in history.entries.iter().flat_map(|entry| &entry.changes) {
        if let Change::Task(task) = change {
            match task.event {
                TaskEvent::Deleted => alive.remove(&task.id),
                _ => alive.insert(task.id),
            };
        }
    }
    assert_eq!(total, alive.len() as u64);
    Ok(())
}

async fn counts_can_be_asked_for_a_queue_or_a_kind(w: World) -> Result<()> {
    let lanes = mixed_history(&w).await?;
    let all = counted_by_listing(&w, &lanes).await?;
    for (queue, kind) in [
        (Some("a"), None),
        (None, Some("x")),
        (Some("b"), Some("x")),
        (Some("b"), Some("y")),
        (Some("c"), None),
    ] {
        let expected: Vec<LaneCounts> = (all.iter())
            .filter(|counts| queue.is_none_or(|queue| counts.lane.queue.as_str() == queue))
            .filter(|counts| kind.is_none_or(|kind| counts.lane.kind.as_str() == kind))
            .cloned()
            .collect();
        let counts = Counts {
            queue: queue.map(name).transpose()?,
            kind: kind.map(name).transpose()?,
        };
        assert_eq!(
            w.store.counts(counts).await?,
            expected,
            "{queue:?} {kind:?}"
        );
    }
    Ok(())
}

async fn a_lane_that_lost_its_last_task_is_not_counted(w: World) -> Result<()> {
    assert_eq!(w.store.counts(Counts::default()).await?, []);
    let gone = brought_to(&w, Status::Cancelled, w.new_task("work")).await?;
    let other = in_lane(w.new_task("work"), "other", "kind")?;
    w.submit(other.clone()).await?;
    w.store.write(Write::DeleteTask(gone)).await?;
    let left = LaneCounts {
        lane: other.lane,
        by_status: BTreeMap::from([(Status::Pending, 1)]),
    };
    assert_eq!(w.store.counts(Counts::default()).await?, [left]);
    Ok(())
}

async fn tasks_are_read_in_the_order_asked(w: World) -> Result<()> {
    let ids = w.submit_many(3).await?;
    let (first, last) = (w.task(ids[0]).await?, w.task(ids[2]).await?);
    let missing = w.ids.task();
    let tasks = Tasks {
        ids: vec![ids[2], missing, ids[0], ids[2]],
    };
    assert_eq!(
        w.store.tasks(tasks).await?,
        [Some(last.clone()), None, Some(first), Some(last)]
    );
    assert_eq!(w.store.tasks(Tasks { ids: vec![] }).await?, []);
    Ok(())
}

async fn groups_are_read_in_the_order_asked(w: World) -> Result<()> {
    let (a, b) = (open_group(&w, "a").await?, open_group(&w, "b").await?);
    let (first, last) = (w.group("a").await?, w.group("b").await?);
    let groups = Groups {
        ids: vec![b.clone(), GroupId::new("c")?, a, b],
    };
    assert_eq!(
        w.store.groups(groups).await?,
        [Some(last.clone()), None, Some(first), Some(last)]
    );
    assert_eq!(w.store.groups(Groups { ids: vec![] }).await?, []);
    Ok(())
}

async fn a_peek_shows_what_the_next_claim_takes(w: World) -> Result<()> {
    let lanes = vec![lane(), Lane::new("queue", "kind2")?];
    let mut expected = BTreeMap::new();
    for n in 0..8_u8 {
        let priority = [5, 9, 5, 0][usize::from(n % 4)];
        let mut task = w.new_task("work").priority(Priority::new(priority)?);
        task.lane = lanes[usize::from(n % 2)].clone();
        expected.insert((10 - priority, n), w.submit(task).await?.id());
        if n == 3 {
            w.advance(Duration::from_secs(1));
        }
    }
    let expected: Vec<TaskId> = expected.into_values().collect();
    for limit in [1, 3, 8, 20] {
        let peek = Peek {
            lanes: lanes.clone(),
            limit,
        };
        let peeked: Vec<TaskId> = w.store.peek(peek).await?.iter().map(Task::id).collect();
        assert_eq!(peeked, expected[..limit.min(8)], "limit {limit}");
    }
    let claim = Claim {
        pick: Pick::Next { lanes, limit: 5 },
        ..w.next(&w.worker("worker")?, 5)
    };
    let claimed = w.store.claim(claim).await?.tasks;
    let claimed: Vec<TaskId> = claimed.iter().map(Task::id).collect();
    assert_eq!(claimed, expected[..5]);
    Ok(())
}

async fn a_peek_shows_only_pending_tasks_of_its_lanes_and_changes_nothing(w: World) -> Result<()> {
    let mut ids = BTreeMap::new();
    for status in Status::ALL {
        ids.insert(status, brought_to(&w, status, w.new_task("work")).await?);
    }
    w.submit(in_lane(w.new_task("work"), "queue", "other")?)
        .await?;
    w.submit(in_lane(w.new_task("work"), "other", "kind")?)
        .await?;
    let (before, history) = (w.task(ids[&Status::Pending]).await?, w.history().await?);
    let peek = Peek {
        lanes: vec![lane(), Lane::new("empty", "lane")?],
        limit: 10,
    };
    for _ in 0..2 {
        let peeked = w.store.peek(peek.clone()).await?;
        assert_eq!(peeked.as_slice(), std::slice::from_ref(&before));
    }
    assert_eq!(w.history().await?, history);
    w.claim(&w.worker("second")?, 10).await?;
    assert_eq!(w.store.peek(peek).await?, []);
    Ok(())
}
