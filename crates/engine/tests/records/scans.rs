//! Finding records: filters, pages, the stream, and expiry on the way.

use futures::{FutureExt, TryStreamExt};
use plimsoll_core::decorate::Method;
use plimsoll_core::record::{Operator, Record, Value};
use plimsoll_core::{Limits, Result};
use plimsoll_engine::records::Scan;

use crate::world::{MINUTE, World, on_each_store};

on_each_store!(
    filters_are_combined_and_compare_as_their_type,
    pages_go_on_where_the_one_before_ended,
    the_stream_reads_on_as_it_is_polled,
    max_results_end_the_stream_and_the_reading,
    a_scan_across_expiry_shows_no_expired_record,
    a_record_that_stays_is_found_once_while_others_come_and_go,
    a_range_is_read_page_by_page_in_its_order,
    max_results_end_a_range_as_well,
);

fn keys(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.key.as_str()).collect()
}

async fn found(scan: Scan) -> Result<Vec<Record>> {
    scan.stream().try_collect().await
}

async fn ten(w: &World) -> Result<()> {
    for n in 0..10 {
        let key = format!("r.{n}");
        w.others.put(key, [("n", n)], Some(MINUTE)).await?;
    }
    Ok(())
}

async fn filters_are_combined_and_compare_as_their_type(w: World) -> Result<()> {
    for (key, state, n) in [
        ("r.a", "pending", "9"),
        ("r.b", "pending", "10"),
        ("r.c", "done", "9"),
        ("r.d", "done", "soon"),
        ("s.a", "pending", "9"),
    ] {
        w.records
            .put(key, [("state", state), ("n", n)], None)
            .await?;
    }
    w.records.put("r.e", [("other", "1")], None).await?;
    let scan = || w.records.scan("r.");
    let none: [&str; 0] = [];
    let cases = [
        (scan(), vec!["r.a", "r.b", "r.c", "r.d", "r.e"]),
        (scan().eq("state", "done"), vec!["r.c", "r.d"]),
        (scan().ne("state", "done"), vec!["r.a", "r.b"]),
        (scan().lt("n", 10), vec!["r.a", "r.c"]),
        (scan().gt("n", 9), vec!["r.b"]),
        (scan().lt("n", "9"), vec!["r.b"]),
        (scan().lt("n", 10).ne("state", "done"), vec!["r.a"]),
        (
            scan().filter("n", Operator::Greater, Value::Bytes("9".into())),
            vec!["r.d"],
        ),
        (scan().eq("n", 9).eq("n", 10), none.to_vec()),
        (w.records.scan("%"), none.to_vec()),
    ];
    for (scan, expected) in cases {
        assert_eq!(keys(&found(scan).await?), expected);
    }
    assert_eq!(found(w.records.scan("")).await?.len(), 6);
    Ok(())
}

async fn pages_go_on_where_the_one_before_ended(w: World) -> Result<()> {
    ten(&w).await?;
    let scan = w.records.scan("r.").page_size(4);
    let (mut cursor, mut sizes, mut all) = (None, Vec::new(), Vec::new());
    loop {
        let page = scan.page(cursor).await?;
        sizes.push(page.rows.len());
        all.extend(page.rows);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [4, 4, 2]);
    assert_eq!(
        keys(&all),
        (0..10).map(|n| format!("r.{n}")).collect::<Vec<_>>()
    );
    let few = w.records.scan("r.").max_results(3).page(None).await?;
    assert_eq!(few.rows.len(), 3);
    Ok(())
}

async fn the_stream_reads_on_as_it_is_polled(w: World) -> Result<()> {
    ten(&w).await?;
    let mut stream = w.records.scan("r.").page_size(4).stream();
    assert_eq!(w.spy.calls(Method::Scan), 0);
    for n in 0..10 {
        let record = stream.try_next().await?.unwrap();
        assert_eq!(record.key.as_str(), format!("r.{n}"));
        assert_eq!(w.spy.calls(Method::Scan), n / 4 + 1, "after {n}");
    }
    assert_eq!(stream.try_next().await?, None);
    assert_eq!(w.spy.calls(Method::Scan), 3);
    Ok(())
}

async fn max_results_end_the_stream_and_the_reading(w: World) -> Result<()> {
    ten(&w).await?;
    for (max, pages) in [(1, 1), (4, 1), (6, 2), (8, 2), (10, 3), (99, 3)] {
        let before = w.spy.calls(Method::Scan);
        let scan = w.records.scan("r.").page_size(4).max_results(max);
        assert_eq!(found(scan).await?.len(), 10.min(max as usize));
        let read = w.spy.calls(Method::Scan) - before;
        assert_eq!(read, pages, "at most {max}");
    }
    Ok(())
}

async fn a_scan_across_expiry_shows_no_expired_record(w: World) -> Result<()> {
    ten(&w).await?;
    w.others.persist("r.9").await?;
    let mut stream = w.records.scan("r.").page_size(4).stream();
    for _ in 0..4 {
        assert!(stream.try_next().await?.is_some());
    }
    // Nobody has swept yet.
    w.clock.advance(MINUTE);
    let rest: Vec<_> = stream.try_collect().await?;
    assert_eq!(keys(&rest), ["r.9"]);
    Ok(())
}

async fn a_record_that_stays_is_found_once_while_others_come_and_go(w: World) -> Result<()> {
    ten(&w).await?;
    let others = w.others.clone();
    w.spy.after(Method::Scan, move || {
        let others = others.clone();
        async move {
            others.delete("r.1").await.unwrap();
            others.delete("r.5").await.unwrap();
            others.put("r.00", [("n", 0)], None).await.unwrap();
            others.put("r.55", [("n", 0)], None).await.unwrap();
            others.set_field("r.2", "n", 99).await.unwrap();
            others.set_field("r.8", "n", 99).await.unwrap();
        }
        .boxed()
    });
    let all = found(w.records.scan("r.").page_size(4)).await?;
    let expected = [
        "r.0", "r.1", "r.2", "r.3", "r.4", "r.55", "r.6", "r.7", "r.8", "r.9",
    ];
    assert_eq!(keys(&all), expected);
    Ok(())
}

/// In the index, the first is the last, each value is there twice, and one has none.
async fn eleven_backwards(w: &World) -> Result<()> {
    w.records.declare_index("r.", "n").await?;
    for n in 0..10 {
        w.others
            .put(format!("r.{n}"), [("n", -n / 2)], None)
            .await?;
    }
    w.others.put("r.x", [("other", 1)], None).await?;
    Ok(())
}

const BACKWARDS: [&str; 10] = [
    "r.8", "r.9", "r.6", "r.7", "r.4", "r.5", "r.2", "r.3", "r.0", "r.1",
];

async fn a_range_is_read_page_by_page_in_its_order(w: World) -> Result<()> {
    eleven_backwards(&w).await?;
    let mut stream = w.records.scan("r.").range("n", ..).page_size(3).stream();
    assert_eq!(w.spy.calls(Method::Scan), 0);
    for (n, expected) in BACKWARDS.into_iter().enumerate() {
        let record = stream.try_next().await?.unwrap();
        assert_eq!(record.key.as_str(), expected);
        let pages = n as u64 / 3 + 1;
        assert_eq!(w.spy.calls(Method::Scan), pages, "after {n}");
    }
    assert_eq!(stream.try_next().await?, None);
    // The ends of a range within pages, and conditions that leave gaps in them.
    let range = || w.records.scan("r.").page_size(3).range("n", -3..=-1);
    assert_eq!(keys(&found(range()).await?), BACKWARDS[2..8]);
    let some = range().ne("n", -2);
    assert_eq!(keys(&found(some).await?), ["r.6", "r.7", "r.2", "r.3"]);
    Ok(())
}

async fn max_results_end_a_range_as_well(w: World) -> Result<()> {
    eleven_backwards(&w).await?;
    for (max, pages) in [(1, 1), (3, 1), (4, 2), (6, 2), (9, 3), (10, 4), (99, 4)] {
        let before = w.spy.calls(Method::Scan);
        let scan = w.records.scan("r.").range("n", ..).page_size(3);
        let found = found(scan.max_results(max)).await?;
        assert_eq!(keys(&found), BACKWARDS[..10.min(max as usize)]);
        let read = w.spy.calls(Method::Scan) - before;
        assert_eq!(read, pages, "at most {max}");
    }
    Ok(())
}

#[tokio::test]
async fn a_page_is_never_larger_than_the_store_allows() -> Result<()> {
    let w = World::memory();
    let max = Limits::default().page_max;
    let refused = w.records.scan("").page_size(max + 1).page(None).await;
    let said = refused.unwrap_err().to_string();
    assert_eq!(
        said,
        format!(
            "invalid input: limit: {} is not between 1 and {max}",
            max + 1
        )
    );
    Ok(())
}
