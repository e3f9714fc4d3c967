//! Retention of history and of commit ids: both go from their old end.

use std::time::Duration;

use crate::conformance::act::open_group;
use crate::conformance::retention::{DAY, TICK, all_tasks, ended, nothing_but_a_limit, write};
use crate::conformance::retention_of_groups::has_group;
use crate::conformance::world::World;
use crate::error::{Error, NotFound, Result};
use crate::group::NewGroup;
use crate::ids::Position;
use crate::names::{GroupId, Key};
use crate::store::{Changes, Commit, Compact, Compacted, Merge, Start, StoreExt, Write};
use crate::task::Status;

cases!["retention_of_history":
    history_goes_from_its_old_end_by_age,
    history_goes_up_to_the_limit,
    history_written_after_the_clock_went_back_waits_for_what_is_before_it,
    compaction_appends_nothing_to_the_history,
    commit_ids_are_remembered_for_ten_minutes_and_then_forgotten,
];

fn history_of_a_day() -> Compact {
    Compact {
        history: Some(DAY),
        ..nothing_but_a_limit()
    }
}

/// The oldest position that a reader may go on from, as a reader who comes too late is told.
async fn oldest(w: &World, from: Position) -> Position {
    match w.store.changes(Changes::after(from, 10)).await {
        Err(Error::NotFound(NotFound::History { oldest })) => oldest,
        other => panic!("expected to be told where to go on, got {other:?}"),
    }
}

async fn history_goes_from_its_old_end_by_age(w: World) -> Result<()> {
    let first = write(&w).await?;
    w.advance(Duration::from_secs(1));
    let second = write(&w).await?;
    w.advance(Duration::from_secs(1));
    let third = write(&w).await?;
    let before = w.history().await?;
    w.advance(DAY - Duration::from_secs(1) - TICK);
    let removed = |entries| Compacted {
        entries,
        ..Compacted::default()
    };
    let compact = || w.store.compact(history_of_a_day());
    assert_eq!(compact().await?, removed(1));
    w.advance(TICK);
    assert_eq!(compact().await?, removed(1));
    assert_eq!(compact().await?, removed(0));
    let young: Vec<_> = before.entries[2..].to_vec();
    assert_eq!(young[0].position, third);
    assert_eq!(w.history().await?.entries, young);
    let told = oldest(&w, Position::ZERO).await;
    assert_eq!(oldest(&w, first).await, told);
    assert!(second <= told && told < third, "{told} is not in between");
    for start in [told, second] {
        // The second entry itself is gone, but who has read it has missed nothing.
        let page = w.history_from(Start::After(start)).await?;
        assert_eq!(page.entries, young);
    }
    w.advance(DAY);
    assert_eq!(compact().await?, removed(1));
    assert_eq!(w.history().await?.entries, []);
    assert!(oldest(&w, second).await >= third);
    let fourth = write(&w).await?;
    assert!(fourth > third);
    let after = w.history_from(Start::After(third)).await?;
    let positions: Vec<Position> = after.entries.iter().map(|e| e.position).collect();
    assert_eq!(positions, [fourth]);
    Ok(())
}

async fn history_goes_up_to_the_limit(w: World) -> Result<()> {
    let mut positions = Vec::new();
    for _ in 0..5 {
        positions.push(write(&w).await?);
    }
    w.advance(DAY);
    let compact = Compact {
        limit: 2,
        ..history_of_a_day()
    };
    for (entries, more) in [(2, true), (2, true), (1, false)] {
        let expected = Compacted {
            entries,
            more,
            ..Compacted::default()
        };
        assert_eq!(w.store.compact(compact.clone()).await?, expected);
        positions.drain(..entries as usize);
        let left = w.history().await?.entries;
        let left: Vec<Position> = left.iter().map(|entry| entry.position).collect();
        assert_eq!(left, positions);
    }
    Ok(())
}

async fn history_written_after_the_clock_went_back_waits_for_what_is_before_it(
    w: World,
) -> Result<()> {
    let start = w.now();
    w.advance(DAY);
    write(&w).await?;
    w.clock.jump_to(start);
    write(&w).await?;
    let before = w.history().await?;
    w.clock.jump_to(start.saturating_plus(DAY + DAY / 2));
    let compact = || w.store.compact(history_of_a_day());
    assert_eq!(compact().await?, Compacted::default());
    assert_eq!(w.history().await?, before);
    w.clock.jump_to(start.saturating_plus(DAY * 2));
    assert_eq!(compact().await?.entries, 2);
    assert_eq!(w.history().await?.entries, []);
    Ok(())
}

async fn compaction_appends_nothing_to_the_history(w: World) -> Result<()> {
    ended(&w, Status::Completed).await?;
    open_group(&w, NewGroup::new(GroupId::new("g")?).expecting(0)).await?;
    assert!(has_group(&w, "g").await?);
    let before = w.history().await?;
    w.advance(DAY);
    let compact = Compact {
        groups: Some(DAY),
        ..all_tasks()
    };
    let done = w.store.compact(compact).await?;
    assert_eq!((done.tasks, done.groups, done.entries), (1, 1, 0));
    assert_eq!(w.history().await?, before);
    w.advance(TICK);
    let done = w.store.compact(history_of_a_day()).await?;
    assert_eq!(done.entries, before.entries.len() as u64);
    let empty = w.history().await?;
    assert_eq!((empty.entries, empty.next), (Vec::new(), before.next));
    Ok(())
}

async fn commit_ids_are_remembered_for_ten_minutes_and_then_forgotten(w: World) -> Result<()> {
    let add = |key: &str| -> Result<Commit> {
        let merge = Merge::new(Key::new(key)?).add("n".try_into()?, 1);
        Ok(Commit::of(Write::Merge(merge)).id(w.ids.commit()))
    };
    let commits = [add("a")?, add("b")?, add("c")?];
    for commit in &commits {
        w.store.commit_one(commit.clone()).await?;
    }
    w.advance(Duration::from_secs(10 * 60) - TICK);
    let compact = |limit| Compact {
        limit,
        ..Compact::default()
    };
    let done = w.store.compact(compact(100)).await?;
    assert_eq!(done, Compacted::default());
    for commit in &commits {
        assert!(w.store.commit_one(commit.clone()).await?.repeated);
    }
    w.advance(DAY);
    let forgotten = |remembered, more| Compacted {
        remembered,
        more,
        ..Compacted::default()
    };
    assert_eq!(w.store.compact(compact(2)).await?, forgotten(2, true));
    assert_eq!(w.store.compact(compact(2)).await?, forgotten(1, false));
    for commit in &commits {
        assert!(!w.store.commit_one(commit.clone()).await?.repeated);
        assert!(w.store.commit_one(commit.clone()).await?.repeated);
    }
    for key in ["a", "b", "c"] {
        let record = w.record(key).await?;
        let number = record.and_then(|record| record.field("n").cloned());
        assert_eq!(number, Some("2".into()));
    }
    Ok(())
}
