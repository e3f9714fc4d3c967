//! Finished tasks by how long they were kept: the same ones that retention would remove.

use std::time::Duration;

use crate::conformance::act::{retry_now, run};
use crate::conformance::lists::listed_ids;
use crate::conformance::retention::{DAY, TICK, ended, nothing_but_a_limit};
use crate::conformance::world::{World, complete, invalid};
use crate::error::Result;
use crate::ids::TaskId;
use crate::limits::DURATION_MAX;
use crate::store::{Compact, Cursor, List, Selector, StoreExt, TaskFilter, Write};
use crate::task::{KeyLifetime, OnConflict, Status};

cases!["kept":
    a_task_is_kept_long_enough_exactly_when_retention_would_remove_it,
    the_longest_kept_come_first_over_all_lanes,
    a_task_whose_key_stands_for_it_is_kept_from_the_end_of_that,
    a_task_that_runs_again_has_not_been_kept,
    pages_of_any_size_show_each_kept_task_once,
    a_page_goes_on_after_what_was_removed_meanwhile,
    only_finished_tasks_and_possible_ages_can_be_asked_for,
    a_cursor_of_another_question_is_invalid,
];

fn kept_for(status: Status, age: Duration) -> List {
    List::new(Selector::KeptFor(status, age), 1_000)
}

const FINISHED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

async fn a_task_is_kept_long_enough_exactly_when_retention_would_remove_it(w: World) -> Result<()> {
    for status in FINISHED {
        let id = ended(&w, status).await?;
        let list = kept_for(status, DAY);
        w.advance(DAY - TICK);
        assert_eq!(listed_ids(&w, list.clone()).await?, []);
        w.advance(TICK);
        assert_eq!(listed_ids(&w, list.clone()).await?, [id]);
        for other in FINISHED.into_iter().filter(|other| *other != status) {
            assert_eq!(listed_ids(&w, kept_for(other, DAY)).await?, []);
        }
        let compact = Compact {
            tasks: [(status, DAY)].into(),
            ..nothing_but_a_limit()
        };
        assert_eq!(w.store.compact(compact).await?.tasks, 1);
        assert_eq!(listed_ids(&w, list).await?, []);
    }
    Ok(())
}

/// Ends tasks of different lanes at different times, in no order of ids.
async fn ended_in_turn(w: &World, count: usize) -> Result<Vec<TaskId>> {
    let mut held = Vec::new();
    for n in 0..count {
        let kind = ["work", "other"][n % 2];
        held.push(w.claimed(w.new_task(kind)).await?.1);
    }
    let mut ids = Vec::new();
    for holder in held.into_iter().rev() {
        ids.push(holder.task);
        w.store.settle(holder, complete()).await?;
        w.advance(TICK);
    }
    Ok(ids)
}

async fn the_longest_kept_come_first_over_all_lanes(w: World) -> Result<()> {
    let ids = ended_in_turn(&w, 6).await?;
    let list = kept_for(Status::Completed, Duration::ZERO);
    assert_eq!(listed_ids(&w, list).await?, ids);
    let list = kept_for(Status::Completed, TICK * 4);
    assert_eq!(listed_ids(&w, list).await?, ids[..3]);
    Ok(())
}

async fn a_task_whose_key_stands_for_it_is_kept_from_the_end_of_that(w: World) -> Result<()> {
    let lifetime = KeyLifetime::For(DAY * 2);
    let new = (w.new_task("work")).key_with("order".try_into()?, lifetime, OnConflict::Attach);
    let id = run(&w, new, complete()).await?;
    let list = kept_for(Status::Completed, DAY);
    w.advance(DAY * 3 - TICK);
    assert_eq!(listed_ids(&w, list.clone()).await?, []);
    w.advance(TICK);
    assert_eq!(listed_ids(&w, list).await?, [id]);
    Ok(())
}

async fn a_task_that_runs_again_has_not_been_kept(w: World) -> Result<()> {
    let id = ended(&w, Status::Failed).await?;
    w.advance(DAY);
    retry_now(&w, id, true).await?;
    assert_eq!(listed_ids(&w, kept_for(Status::Failed, DAY)).await?, []);
    Ok(())
}

async fn pages_of_any_size_show_each_kept_task_once(w: World) -> Result<()> {
    // Some ended at the same moment.
    let mut ids = ended_in_turn(&w, 4).await?;
    for _ in 0..5 {
        ids.push(ended(&w, Status::Completed).await?);
    }
    for limit in 1..=10 {
        let list = List {
            limit,
            ..kept_for(Status::Completed, Duration::ZERO)
        };
        let mut found = listed_ids(&w, list).await?;
        assert_eq!(found[..4], ids[..4], "pages of {limit}");
        found.sort_unstable();
        let mut expected = ids.clone();
        expected.sort_unstable();
        assert_eq!(found, expected, "pages of {limit}");
    }
    let mut list = kept_for(Status::Completed, Duration::ZERO);
    list.filter = TaskFilter {
        statuses: vec![Status::Failed],
        ..TaskFilter::default()
    };
    assert_eq!(listed_ids(&w, list).await?, []);
    Ok(())
}

async fn a_page_goes_on_after_what_was_removed_meanwhile(w: World) -> Result<()> {
    let ids = ended_in_turn(&w, 5).await?;
    let mut list = List {
        limit: 2,
        ..kept_for(Status::Completed, Duration::ZERO)
    };
    let first = w.store.list(list.clone()).await?;
    for task in &first.rows {
        w.store.write(Write::DeleteTask(task.id())).await?;
    }
    list.cursor = first.next;
    let second = w.store.list(list).await?;
    let found: Vec<TaskId> = second.rows.iter().map(|task| task.id()).collect();
    assert_eq!(found, ids[2..4]);
    Ok(())
}

async fn only_finished_tasks_and_possible_ages_can_be_asked_for(w: World) -> Result<()> {
    for status in [Status::Scheduled, Status::Pending, Status::Claimed] {
        let answer = w.store.list(kept_for(status, DAY)).await;
        assert_eq!(invalid(answer).field, "selector.status");
    }
    let too_long = DURATION_MAX + TICK;
    let answer = w.store.list(kept_for(Status::Failed, too_long)).await;
    assert_eq!(invalid(answer).field, "selector.age");
    let answer = w.store.list(kept_for(Status::Failed, DURATION_MAX)).await;
    assert_eq!(answer?.rows, []);
    Ok(())
}

async fn a_cursor_of_another_question_is_invalid(w: World) -> Result<()> {
    ended_in_turn(&w, 3).await?;
    let mut list = List {
        limit: 1,
        ..kept_for(Status::Completed, Duration::ZERO)
    };
    let made = w.store.list(list.clone()).await?.next;
    assert!(made.is_some());
    let of_another = List {
        cursor: made,
        ..kept_for(Status::Completed, TICK)
    };
    assert_eq!(invalid(w.store.list(of_another).await).field, "cursor");
    for text in ["1 2 3", "", "-1 x"] {
        list.cursor = Some(Cursor::new(&list.scope(), text));
        assert_eq!(invalid(w.store.list(list.clone()).await).field, "cursor");
    }
    Ok(())
}
