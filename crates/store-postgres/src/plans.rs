//! Every statement finds its rows by an index, whatever the server knows about its tables: each is
//! run among many rows, before the server has looked at them and after, and may touch only a few.

#![allow(clippy::expect_used)]

use tokio_postgres::types::Type;

use crate::codec::column;
use crate::config::Config;
use crate::session::{Session, Sql};
use crate::{claims, compact, indexes, load, read, schema};

/// How many rows a step of a statement may touch. Each table has 20,000 at least.
const MOST: u64 = 600;

#[rustfmt::skip]
const FILL: &str = include_str!("plans.sql");

const ANALYZE: &str = "ANALYZE plimsoll.namespaces, plimsoll.records, plimsoll.indexes, \
    plimsoll.index_entries, plimsoll.specs, plimsoll.tasks, plimsoll.tasks_done, plimsoll.counts, \
    plimsoll.keys, plimsoll.groups, plimsoll.logs, plimsoll.orphans, plimsoll.changes, \
    plimsoll.commits, plimsoll.claims";

/// What `$ID` stands for in parameters.
const ID: &str = "'00000000-0000-0000-0000-000000010000'";

/// Likewise, a task that has no row, and the claim that holds it.
const HELD: &str = "'00000000-0000-0000-0000-000000080003'";
const CLAIM: &str = "'00000000-0000-0000-0000-000000020001'";
/// The claim, and the task as it holds it.
const ASSUMED: &str = "1, ARRAY[$CLAIM::uuid], '{NULL}', ARRAY[$HELD::uuid]";

/// A statement, and parameters for it as SQL.
fn cases() -> Vec<(&'static str, &'static Sql, &'static str)> {
    vec![
        ("get", &read::GET, "1, '{k10000,k10001,none}'"),
        ("tasks", &read::TASKS, "1, ARRAY[$ID::uuid]"),
        ("rowless tasks", &read::TASKS, "1, ARRAY[$HELD::uuid]"),
        ("by key", &read::BY_KEY, "1, 'k10000'"),
        ("peek", &read::PEEK, "1, '{1,2}', 33"),
        ("counts", &read::COUNTS, "1, 'q', 'q'"),
        ("groups", &read::GROUPS, "1, '{g10000,none}'"),
        ("scan", &read::scan::RECORDS, "1, 'k10', 'k11', 33"),
        ("scan all", &read::scan::RECORDS, "1, '', 'l', 33"),
        (
            "range",
            &read::scan::RANGE,
            "1, 'k', 'n', 5000, 'k05000', 9000, 33",
        ),
        ("members", &read::list::MEMBERS, "1, 'g', $ID, 33"),
        ("owned", &read::list::OWNED, "1, 'o', $ID, 33"),
        ("pending", &read::list::WAITING, "1, 1, $ID, 33, 1"),
        ("claimed", &read::list::CLAIMED, "1, 1, $ID, 33, 2"),
        ("completed", &read::list::ENDED, "1, 1, $ID, 33, 3"),
        ("failed", &read::list::ENDED_BADLY, "1, 1, $ID, 33, 4"),
        ("keys", &read::list::KEYS, "1, 'k10', 'k11', 33"),
        (
            "kept",
            &read::list::KEPT,
            "1, 3, now(), '2030-01-01', 1, $ID, 33",
        ),
        ("lines", &read::history::LINES, "1, $ID, 5, 33"),
        ("entries", &read::history::ENTRIES, "1, 10000, 33"),
        ("newest", &read::history::NEWEST, "1"),
        ("scheduled", &read::due::SCHEDULED, "1, now(), 33"),
        ("expired", &read::due::EXPIRED, "1, now(), 33"),
        ("expired records", &read::due::RECORDS, "1, now(), 33"),
        ("next", &read::due::NEXT, "1, now()"),
        ("step", &indexes::STEP, "1, 'k10', 'l', 'n', 24, 33"),
        ("entries in", &indexes::ADD, "'{1}', '{5}', '{k00005}'"),
        (
            "entries out",
            &indexes::REMOVE,
            "'{1,1}', '{5,6}', '{k00005,k00006}'",
        ),
        ("dropped", &indexes::REMOVE_DROPPED, "1, 33"),
        ("forgotten", &indexes::FORGET_DROPPED, "1"),
        ("victims", &compact::VICTIMS, "1, 3, now(), 33"),
        ("holders", &compact::KEYS, "1, '{k10000,k10001}'"),
        ("free keys", &compact::FREE_KEYS, "1, '{k10000,k10001}'"),
        ("keys out", &compact::DELETE_KEYS, "1, '{k10000,k10001}'"),
        ("old groups", &compact::GROUPS.removal, "1, now(), 33"),
        ("more groups", &compact::GROUPS.rest, "1, now()"),
        ("old lines", &compact::LINES.removal, "1, now(), 33"),
        ("more lines", &compact::LINES.rest, "1, now()"),
        ("old commits", &compact::COMMITS.removal, "1, now(), 33"),
        ("more commits", &compact::COMMITS.rest, "1, now()"),
        ("old claims", &compact::CLAIMS.removal, "1, now(), 33"),
        ("more claims", &compact::CLAIMS.rest, "1, now()"),
        ("old entries", &compact::ENTRIES, "1, 100, 33"),
        ("entries gone", &compact::DELETE_ENTRIES, "1, 100"),
        ("orphans", &compact::REMOVE_ORPHANS, "1, 33"),
        ("orphans gone", &compact::FORGET_ORPHANS, "1, 33"),
        ("fold", &compact::FOLD, "1, 33"),
        ("holders", &load::HOLDERS, "1, ARRAY[$HELD::uuid]"),
        (
            "held",
            &load::HELD_TASKS,
            "1, ARRAY[$HELD::uuid], ARRAY[$CLAIM::uuid]",
        ),
        ("share", &claims::SHARE, ASSUMED),
        ("lock", &claims::LOCK, ASSUMED),
        ("close", &claims::CLOSE, ASSUMED),
        ("spent", &claims::CLOSE_SPENT, "1, ARRAY[$CLAIM::uuid]"),
        ("prolong", &claims::PROLONG, "1, ARRAY[$CLAIM::uuid], now()"),
        (
            "take out",
            &claims::TAKE_OUT,
            "1, ARRAY[$CLAIM::uuid], ARRAY[$HELD::uuid]",
        ),
        (
            "take out removed",
            &claims::TAKE_OUT_REMOVED,
            "1, ARRAY[$HELD::uuid], '{2020-01-01}'",
        ),
        ("over", &compact::CLOSE_OVER, "1, now(), 33"),
    ]
}

#[tokio::test]
async fn every_statement_touches_few_rows() {
    let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
    let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
    let config = Config {
        schema: "plimsoll_plans".into(),
        ..Config::new(&url).expect("a URL")
    };
    let mut session = Session::connect(&config).await.expect("a session");
    let clean = "DROP SCHEMA IF EXISTS plimsoll_plans CASCADE";
    session.execute(clean).await.expect("a clean start");
    schema::migrate(&config).await.expect("a schema");
    session.execute(FILL).await.expect("rows");
    let mut failures = Vec::new();
    for known in ["nothing", "everything"] {
        for (name, sql, params) in cases() {
            let plan = explain(&mut session, sql, params).await;
            let touched = plan.iter().map(touched(1)).max().unwrap_or(0);
            let whole = plan.iter().any(|line| line.contains("Seq Scan on"));
            if touched > MOST || whole {
                let plan = plan.join("\n");
                failures.push(format!("{name}, of which {known} is known:\n{plan}"));
            }
        }
        session.execute(ANALYZE).await.expect("statistics");
    }
    session.execute(clean).await.expect("a clean end");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// How a statement is run with these parameters, by the plan that serves all parameters.
async fn explain(session: &mut Session, sql: &'static Sql, params: &str) -> Vec<String> {
    let types: Vec<&str> = sql.types.iter().map(Type::name).collect();
    let prepare = format!(
        "BEGIN; PREPARE explained({}) AS {}",
        types.join(", "),
        sql.text
    );
    session.execute(&prepare).await.expect(sql.text);
    let params = [("$ID", ID), ("$HELD", HELD), ("$CLAIM", CLAIM)]
        .iter()
        .fold(params.to_owned(), |params, (name, id)| {
            params.replace(name, id)
        });
    let text = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE explained({params})");
    let text = text.leak();
    let explain: &'static Sql = Box::leak(Box::new(Sql { text, types: &[] }));
    let found = session.run(&[explain.into()]).await.expect(sql.text);
    session
        .execute("ROLLBACK; DEALLOCATE explained")
        .await
        .expect("an end");
    let line = |row| column(row, 0).expect("a line");
    found[0].iter().map(line).collect()
}

/// How many rows a line of a plan says were touched. What was filtered out belongs to the step
/// before, which ran so many times.
fn touched(mut loops: u64) -> impl FnMut(&String) -> u64 {
    move |line| {
        let number = |after: &str| {
            let (_, rest) = line.split_once(after)?;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        loops = number(" loops=").unwrap_or(loops);
        let removed = number("Rows Removed by Filter: ");
        let removed = removed.or_else(|| number("Rows Removed by Join Filter: "));
        number("actual rows=").or(removed).unwrap_or(0) * loops
    }
}
