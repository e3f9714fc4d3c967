//! Lists and reads by id: what is shown, in which order, in which pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::conformance::act::run;
use crate::conformance::observe::listed;
use crate::conformance::world::{World, complete, fail_with, invalid, lane, name};
use crate::conformance::writes::open;
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::limits::PAGE_BYTES_MAX;
use crate::names::{GroupId, IdempotencyKey, Prefix};
use crate::store::{Cursor, FailRetry, Groups, List, Selector, StoreExt, TaskFilter, Tasks, Write};
use crate::task::{KeyLifetime, Lane, NewTask, OnConflict, Priority, Status, Task};

cases!["lists":
    a_lane_and_status_list_their_tasks_in_id_order,
    a_group_lists_its_members_in_id_order_whatever_their_status,
    an_owner_lists_its_tasks_in_id_order_over_all_lanes,
    a_key_prefix_lists_tasks_in_the_byte_order_of_their_keys,
    a_key_prefix_is_text_whatever_it_means_elsewhere,
    a_key_shows_the_task_it_was_last_given_to,
    pages_of_any_size_show_every_task_exactly_once,
    a_task_that_stays_is_listed_once_while_others_come_and_go,
    a_cursor_that_no_store_made_is_invalid,
    a_cursor_of_a_key_listing_that_no_store_made_is_invalid,
    pages_of_large_tasks_stay_bounded_and_lose_nothing,
    tasks_are_read_in_the_order_asked,
    groups_are_read_in_the_order_asked,
];

pub(super) async fn listed_ids(w: &World, list: List) -> Result<Vec<TaskId>> {
    Ok(listed(w, list).await?.iter().map(Task::id).collect())
}

/// The ids of what a selector selects and a filter shows.
pub(super) async fn shown(
    w: &World,
    selector: &Selector,
    filter: TaskFilter,
) -> Result<Vec<TaskId>> {
    let mut list = List::new(selector.clone(), 1_000);
    list.filter = filter;
    listed_ids(w, list).await
}

pub(super) fn owned(task: NewTask, owner: &str) -> Result<NewTask> {
    Ok(NewTask {
        owner: Some(name(owner)?),
        ..task
    })
}

pub(super) fn in_lane(task: NewTask, queue: &str, kind: &str) -> Result<NewTask> {
    Ok(NewTask {
        lane: Lane::new(queue, kind)?,
        ..task
    })
}

/// Submits a task and brings it to this status.
pub(super) async fn brought_to(w: &World, status: Status, task: NewTask) -> Result<TaskId> {
    let id = task.id;
    match status {
        Status::Scheduled => drop(w.submit(task.after(Duration::from_secs(3_600))).await?),
        Status::Pending => drop(w.submit(task).await?),
        Status::Claimed => drop(w.claimed(task).await?),
        Status::Completed => {
            run(w, task, complete()).await?;
        }
        Status::Failed => {
            run(w, task, fail_with("no", FailRetry::Fatal)).await?;
        }
        Status::Cancelled => {
            w.submit(task).await?;
            w.store.cancel(id, None).await?;
        }
    }
    assert_eq!(w.status(id).await?, status);
    Ok(id)
}

async fn open_group(w: &World, id: &str) -> Result<GroupId> {
    let id = GroupId::new(id)?;
    w.store.write(open(NewGroup::new(id.clone()))).await?;
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
