//! Pages, filters and cursors.

use super::{BYTES_MAX, FIELDS_MAX, bytes, list, names, out_of_range, submit, too_long, too_many};
use crate::change::Interest;
use crate::conformance::world::{World, invalid, lane, name};
use crate::error::{Error, Invalid, Problem, Result};
use crate::ids::{Position, TaskId};
use crate::log::Level;
use crate::names::{GroupId, Key, Prefix};
use crate::record::{Filter, Operator, Value};
use crate::store::{
    Changes, Compact, Cursor, Due, Get, Groups, List, Logs, Peek, Scan, Selector, StoreExt, Tasks,
};
use crate::task::{NewTask, Status};

cases!["bad_input":
    every_page_has_a_limit_from_one_to_a_thousand,
    a_read_names_a_thousand_keys_or_ids_at_most,
    filters_are_limited_in_number_and_size,
    a_cursor_that_no_store_makes_is_refused,
    a_cursor_that_is_plain_text_is_refused,
    a_cursor_of_another_scan_skips_nothing,
    a_page_of_tasks_counts_the_tasks_nested_in_them,
];

async fn every_page_has_a_limit_from_one_to_a_thousand(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let task = w.ids.task();
    let logs = |limit| Logs {
        task,
        level: Level::Debug,
        cursor: None,
        limit,
    };
    let peek = |limit| Peek {
        lanes: vec![lane()],
        limit,
    };
    let compact = |limit| Compact {
        limit,
        ..Compact::default()
    };
    let group = Selector::Group(GroupId::new("g")?);
    let (store, id) = (&w.store, submit(w.new_task("work")));
    store.write(id).await?;
    let before = w.history().await?;
    for limit in [0, 1_001, usize::MAX] {
        let problem = out_of_range("limit", limit, "1", "1000");
        let scan = Scan::new(Prefix::any(), limit);
        assert_eq!(invalid(store.scan(scan).await), problem);
        let list = list(None, limit, group.clone());
        assert_eq!(invalid(store.list(list).await), problem);
        assert_eq!(invalid(store.logs(logs(limit)).await), problem);
        let changes = Changes::after(Position::ZERO, limit);
        assert_eq!(invalid(store.changes(changes).await), problem);
        assert_eq!(invalid(store.peek(peek(limit)).await), problem);
        let claim = w.next(&worker, limit);
        assert_eq!(invalid(store.claim(claim).await), problem);
        assert_eq!(invalid(store.due(Due { limit }).await), problem);
        assert_eq!(invalid(store.compact(compact(limit)).await), problem);
    }
    assert_eq!(w.history().await?, before);
    for limit in [1, 1_000] {
        store.scan(Scan::new(Prefix::any(), limit)).await?;
        store.list(list(None, limit, group.clone())).await?;
        store.logs(logs(limit)).await?;
        store.changes(Changes::after(Position::ZERO, limit)).await?;
        assert_eq!(store.peek(peek(limit)).await?.len(), 1);
        store.due(Due { limit }).await?;
        store.compact(compact(limit)).await?;
    }
    assert_eq!(w.claim(&worker, 1_000).await?.len(), 1);
    Ok(())
}

async fn a_read_names_a_thousand_keys_or_ids_at_most(w: World) -> Result<()> {
    let keys = |count| Ok::<_, Error>(vec![Key::new("k")?; count]);
    let ids = |count| vec![TaskId::from_u128(7); count];
    let groups = |count| Ok::<_, Error>(vec![GroupId::new("g")?; count]);
    let bad = Get { keys: keys(1_001)? };
    let problem = too_many("keys", 1_001, 1_000);
    assert_eq!(invalid(w.store.get(bad).await), problem);
    let problem = too_many("ids", 1_001, 1_000);
    let bad = Tasks { ids: ids(1_001) };
    assert_eq!(invalid(w.store.tasks(bad).await), problem);
    let bad = Groups {
        ids: groups(1_001)?,
    };
    assert_eq!(invalid(w.store.groups(bad).await), problem);
    for count in [0, 1_000] {
        let good = Get { keys: keys(count)? };
        assert_eq!(w.store.get(good).await?, vec![None; count]);
        let good = Tasks { ids: ids(count) };
        assert_eq!(w.store.tasks(good).await?, vec![None; count]);
        let good = Groups {
            ids: groups(count)?,
        };
        assert_eq!(w.store.groups(good).await?, vec![None; count]);
    }
    Ok(())
}

async fn filters_are_limited_in_number_and_size(w: World) -> Result<()> {
    let scan = |value: Value, count| -> Result<Scan> {
        let filter = Filter {
            field: name("f")?,
            operator: Operator::Equal,
            value,
        };
        Ok(Scan {
            filters: vec![filter; count],
            ..Scan::new(Prefix::any(), 1)
        })
    };
    let problem = too_many("filters", FIELDS_MAX + 1, FIELDS_MAX);
    let bad = scan(Value::Integer(1), FIELDS_MAX + 1)?;
    assert_eq!(invalid(w.store.scan(bad).await), problem);
    let problem = too_long("filters.value", BYTES_MAX + 1, BYTES_MAX);
    for long in [
        Value::Text("x".repeat(BYTES_MAX + 1)),
        Value::Bytes(bytes(BYTES_MAX + 1)),
    ] {
        assert_eq!(invalid(w.store.scan(scan(long, 1)?).await), problem);
    }
    w.store.scan(scan(Value::Integer(1), FIELDS_MAX)?).await?;
    let longest = Value::Bytes(bytes(BYTES_MAX));
    w.store.scan(scan(longest, 1)?).await?;

    let labelled = |count| -> Result<List> {
        let mut list = List::new(Selector::Owner(name("owner")?), 1);
        let labels = names(count)?.into_iter().map(|name| (name.clone(), name));
        list.filter.labels = labels.collect();
        Ok(list)
    };
    let problem = too_many("filter.labels", FIELDS_MAX + 1, FIELDS_MAX);
    let answer = w.store.list(labelled(FIELDS_MAX + 1)?).await;
    assert_eq!(invalid(answer), problem);
    w.store.list(labelled(FIELDS_MAX)?).await?;

    let interested = |count| Changes {
        interests: vec![Interest::tasks(); count],
        ..Changes::after(Position::ZERO, 1)
    };
    let problem = too_many("interests", 65, 64);
    assert_eq!(invalid(w.store.changes(interested(65)).await), problem);
    w.store.changes(interested(64)).await?;
    Ok(())
}

/// What each paged method says about a cursor with this text.
async fn bad_cursors(w: &World, text: &str) -> Result<Vec<(&'static str, Option<Error>)>> {
    let cursor = Some(Cursor::from_text(text));
    let scan = Scan {
        cursor: cursor.clone(),
        ..Scan::new(Prefix::any(), 10)
    };
    let logs = Logs {
        task: w.ids.task(),
        level: Level::Debug,
        cursor: cursor.clone(),
        limit: 10,
    };
    let mut answers = vec![
        ("scan", w.store.scan(scan).await.err()),
        ("logs", w.store.logs(logs).await.err()),
    ];
    for (method, selector) in [
        ("list by lane", Selector::Lane(lane(), Status::Pending)),
        ("list by group", Selector::Group(GroupId::new("g")?)),
        ("list by owner", Selector::Owner(name("owner")?)),
        ("list by key", Selector::Key(Prefix::any())),
    ] {
        let answer = w.store.list(list(cursor.clone(), 10, selector)).await;
        answers.push((method, answer.err()));
    }
    let problem = Problem::Malformed {
        expected: "a cursor that was answered for the same question".into(),
    };
    let expected = Some(Error::from(Invalid::new("cursor", problem)));
    answers.retain(|(_, answer)| *answer != expected);
    Ok(answers)
}

async fn a_cursor_that_no_store_makes_is_refused(w: World) -> Result<()> {
    w.put("k", [("f", "v")]).await?;
    for text in ["", "\0", "a\0b", &"x".repeat(10_000)] {
        assert_eq!(bad_cursors(&w, text).await?, []);
    }
    Ok(())
}

async fn a_cursor_that_is_plain_text_is_refused(w: World) -> Result<()> {
    w.put("k", [("f", "v")]).await?;
    for text in ["not a cursor", "'; DROP TABLE tasks; --", "%"] {
        assert_eq!(bad_cursors(&w, text).await?, []);
    }
    Ok(())
}

async fn a_cursor_of_another_scan_skips_nothing(w: World) -> Result<()> {
    for key in ["a.1", "a.2", "b.1", "b.2"] {
        w.put(key, [("f", "v")]).await?;
    }
    let first = w.store.scan(Scan::new(Prefix::new("a")?, 1)).await?;
    let other = Scan {
        cursor: first.next,
        ..Scan::new(Prefix::new("b")?, 10)
    };
    match w.store.scan(other).await {
        Err(Error::Invalid(invalid)) => assert_eq!(invalid.field, "cursor"),
        Err(error) => return Err(error),
        Ok(page) => {
            let keys: Vec<&str> = page.rows.iter().map(|r| r.key.as_str()).collect();
            assert_eq!(keys, ["b.1", "b.2"]);
        }
    }
    Ok(())
}

async fn a_page_of_tasks_counts_the_tasks_nested_in_them(w: World) -> Result<()> {
    for _ in 0..24 {
        let task = NewTask {
            on_failure: Some(Box::new(w.new_task(bytes(BYTES_MAX)))),
            ..w.new_task("work")
        };
        w.store.submit(task).await?;
    }
    let selector = Selector::Lane(lane(), Status::Pending);
    let page = w.store.list(List::new(selector, 1_000)).await?;
    // About 4 MiB, and a row more.
    assert!(page.rows.len() <= 17, "{} rows", page.rows.len());
    assert!(page.next.is_some());
    Ok(())
}
