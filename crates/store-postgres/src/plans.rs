//! Every statement finds its rows by an index, whatever the server knows about its tables: each is
//! run among many rows and may touch only a few, whether it was planned when there were none, before
//! the server has looked at them, or after.

#![allow(clippy::expect_used)]

use tokio_postgres::types::Type;

use crate::call::{Call, Part, Sql};
use crate::codec::column;
use crate::config::Config;
use crate::session::Session;
use crate::statement::sent;
use crate::{
    apply, claim, claims, compact, floors, inbox, indexes, joint, load, read, schema, stuck,
};

/// How many rows a step of a statement may touch. Each table has 20,000 at least.
const MOST: u64 = 600;

#[rustfmt::skip]
const FILL: &str = include_str!("plans.sql");

/// Where the tables end in it, and the rows begin.
const ROWS: &str = "-- Rows.\n";

const VACUUM: &str = "VACUUM ANALYZE plimsoll.namespaces, plimsoll.records, plimsoll.indexes, \
    plimsoll.index_entries, plimsoll.specs, plimsoll.tasks, plimsoll.tasks_done, plimsoll.counts, \
    plimsoll.keys, plimsoll.groups, plimsoll.logs, plimsoll.orphans, plimsoll.changes, \
    plimsoll.commits, plimsoll.claims, plimsoll.inbox, plimsoll.inbox_refused";
const ANALYZE: &str = "ANALYZE plimsoll.namespaces, plimsoll.records, plimsoll.indexes, \
    plimsoll.index_entries, plimsoll.specs, plimsoll.tasks, plimsoll.tasks_done, plimsoll.counts, \
    plimsoll.keys, plimsoll.groups, plimsoll.logs, plimsoll.orphans, plimsoll.changes, \
    plimsoll.commits, plimsoll.claims, plimsoll.inbox, plimsoll.inbox_refused";

/// What `$ID` stands for in parameters.
const ID: &str = "'00000000-0000-0000-0000-000000010000'";

/// Likewise, a task that has no row, and the claim that holds it.
const HELD: &str = "'00000000-0000-0000-0000-000000080003'";
const CLAIM: &str = "'00000000-0000-0000-0000-000000020001'";
/// The claim, and the task as it holds it.
const ASSUMED: &str = "1, ARRAY[$CLAIM::uuid], '{NULL}', ARRAY[$HELD::uuid]";

/// A statement, and parameters for it as SQL.
pub(crate) fn cases() -> Vec<(&'static str, &'static Sql, &'static str)> {
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
            "1, 3, now(), '2020-01-01', 1, $ID, 33",
        ),
        ("lines", &read::history::LINES, "1, $ID, 5, 33"),
        ("entries", &read::history::ENTRIES, "1, 10000, 33"),
        ("newest", &read::history::NEWEST, "1"),
        ("scheduled", &read::due::SCHEDULED, "1, now(), 33"),
        ("expired", &read::due::EXPIRED, "1, now(), 33, 32"),
        ("expired records", &read::due::RECORDS, "1, now(), 33"),
        ("next", &read::due::NEXT, "1, now(), 32"),
        ("how many over", &read::due::OVER, "1, now(), 32"),
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
        ("free holders", &load::FREE_HOLDERS, "1, ARRAY[$HELD::uuid]"),
        (
            "held",
            &load::HELD_TASKS,
            "1, ARRAY[$HELD::uuid], ARRAY[$CLAIM::uuid]",
        ),
        ("share", &claims::SHARE.sql, ASSUMED),
        ("lock", &claims::LOCK.sql, ASSUMED),
        ("close", &claims::CLOSE.sql, ASSUMED),
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
        ("over", &read::due::CLOSE_OVER, "1, now(), 33"),
        ("next of lane", &claim::line::NEXT_OF_LANE, "1, 1, 33"),
        (
            "next of lanes",
            &claim::line::NEXT_OF_LANES,
            "1, '{1,2}', 33, 97",
        ),
        (
            "next above",
            &claim::line::NEXT_ABOVE,
            "1, 1, 33, '{4,3,2,1,0}', '{2020-01-01,2020-01-01,2020-01-01,2020-01-01,2020-01-01}'",
        ),
        (
            "next above of lanes",
            &claim::line::NEXT_ABOVE_OF_LANES,
            "1, '{1,2}', 33, 97, '{1,1,1,2,2}', '{4,3,2,1,0}', \
             '{2020-01-01,2020-01-01,2020-01-01,2020-01-01,2020-01-01}'",
        ),
        ("heads", &claim::line::HEADS_OF_LANES, "1, '{1,2}', 33, 97"),
        (
            "heads above",
            &claim::line::HEADS_ABOVE,
            "1, '{1,2}', 33, 97, '{1,1,1,2,2}', '{4,3,2,1,0}', \
             '{2020-01-01,2020-01-01,2020-01-01,2020-01-01,2020-01-01}'",
        ),
        (
            "below",
            &floors::below::FIRST_BELOW,
            "1, '{4,3,2,1,0}', '{2020-01-01,2020-01-01,2020-01-01,2030-01-01,2030-01-01}'",
        ),
        ("next due", &claim::line::NEXT_DUE, "'{1,2}', 1"),
        ("remembered", &claim::line::REMEMBERED, "1, $CLAIM"),
        ("records", &load::RECORDS, "1, '{k10000,k10001,none}'"),
        ("created", &load::CREATED, "1, '{none,nothing}'"),
        ("keys", &load::KEYS, "1, '{k10000,k10001,none}'"),
        ("live tasks", &load::LIVE_TASKS, "1, ARRAY[$ID::uuid]"),
        ("free tasks", &load::FREE_TASKS, "1, ARRAY[$ID::uuid]"),
        ("done tasks", &load::DONE_TASKS, "1, ARRAY[$ID::uuid]"),
        ("specs", &load::SPECS, "1, ARRAY[$ID::uuid]"),
        ("groups", &load::GROUPS, "1, '{g10000,none}'"),
        ("commits", &load::COMMITS, "1, ARRAY[$ID::uuid]"),
        (
            "specs out",
            &apply::specs::DELETE_SPECS,
            "1, ARRAY[$ID::uuid]",
        ),
        (
            "change",
            &apply::tasks::UPDATE_LIVE,
            "1, '{1}', ARRAY[$ID::uuid], '{1}', '{1}', '{2030-01-01}', '{2030-01-01}', '{10001}', \
             '{1}', '{1}', '{0}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', \
             '{NULL}', '{NULL}', '{NULL}', '{10000}'",
        ),
        (
            "live out",
            &apply::tasks::DELETE_LIVE,
            "'{1}', ARRAY[$ID::uuid], '{10000}'",
        ),
        (
            "renew",
            &apply::tasks::RENEW,
            "'{1}', '{00000000-0000-0000-0000-000000010200}', '{2030-01-01}'",
        ),
        (
            "done out",
            &apply::tasks::DELETE_DONE,
            "'{1}', '{00000000-0000-0000-0000-000000050000}', '{50000}'",
        ),
        (
            "records change",
            &apply::records::UPDATE_RECORDS,
            "1, '{k10000}', '{\"{}\"}', '{2}', '{2030-01-01}', '{NULL}', '{1}'",
        ),
        (
            "records out",
            &apply::records::DELETE_RECORDS,
            "1, '{k10000}', '{1}'",
        ),
        (
            "keys change",
            &apply::records::UPDATE_KEYS,
            "1, '{k10000}', ARRAY[$HELD::uuid], ARRAY[$ID::uuid]",
        ),
        (
            "keys removed",
            &apply::records::DELETE_KEYS,
            "1, '{k10000}', ARRAY[$ID::uuid]",
        ),
        (
            "groups out",
            &apply::records::DELETE_GROUPS,
            "1, '{g10000}'",
        ),
        (
            "logs out",
            &apply::logs::DELETE_LOGS,
            "1, ARRAY[$ID::uuid], 33",
        ),
        ("inbox", &inbox::WAITING, "1"),
        ("first of inbox", &inbox::FIRST, "1, 33, 1000000, '{1,2}'"),
        (
            "inbox out",
            &inbox::REMOVE,
            "1, '{10000,10001}', now(), '{10001}', '{no}'",
        ),
        ("refused", &inbox::FORGET, "1, '2020-01-01 00:01'"),
        ("share jointly", joint(&claims::SHARE), ASSUMED),
        ("lock jointly", joint(&claims::LOCK), ASSUMED),
        ("close jointly", joint(&claims::CLOSE), ASSUMED),
        (
            "places out",
            joint(&apply::tasks::DELETE_PLACES),
            "'{\"(0,1)\",\"(0,2)\"}'",
        ),
        ("busy records", &stuck::RECORDS, "1, '{k10000,none}'"),
        ("busy keys", &stuck::KEYS, "1, '{k10000,none}'"),
        ("busy groups", &stuck::GROUPS, "1, '{g10000,none}'"),
        ("busy tasks", &stuck::TASKS, "1, ARRAY[$ID::uuid]"),
    ]
}

/// What a part is where it is sent together with others.
fn joint(part: &'static Part) -> &'static Sql {
    static LAST: Sql = Sql {
        text: "SELECT 1",
        types: &[],
    };
    let calls = [Call::part(part, Vec::new()), Call::last(&LAST, Vec::new())];
    Box::leak(Box::new(Sql {
        text: joint::text(&calls).leak(),
        types: joint::types(&calls).leak(),
    }))
}

#[tokio::test]
async fn every_statement_touches_few_rows() {
    let mut failures = Vec::new();
    for vacuumed in [false, true] {
        let config = empty_schema().await;
        let mut session = Session::connect(&config).await.expect("a session");
        if vacuumed {
            session.execute(VACUUM).await.expect("an empty table");
        }
        // These plans are kept, and serve when there is more.
        let mut early = Session::connect(&config).await.expect("a session");
        for (number, (_, sql, params)) in cases().into_iter().enumerate() {
            plan(&mut early, number, sql, params).await;
        }
        session.execute(rows()).await.expect("rows");
        let emptiness = match vacuumed {
            true => "planned when tables were known to be empty",
            false => "planned before there was anything",
        };
        failures.extend(failures_of(&mut early, emptiness).await);
        for (knowledge, analyze) in [("unknown", ""), ("known", ANALYZE)] {
            session.execute(analyze).await.expect("statistics");
            let mut late = Session::connect(&config).await.expect("a session");
            for (number, (_, sql, params)) in cases().into_iter().enumerate() {
                plan(&mut late, number, sql, params).await;
            }
            failures.extend(failures_of(&mut late, knowledge).await);
        }
        session.execute(DROP).await.expect("a clean end");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

const DROP: &str = "DROP SCHEMA IF EXISTS plimsoll_plans CASCADE";

/// Tables without rows, in a schema that nobody else uses.
async fn empty_schema() -> Config {
    let config = Config {
        schema: "plimsoll_plans".into(),
        ..Config::of_tests()
    };
    let mut session = Session::connect(&config).await.expect("a session");
    session.execute(DROP).await.expect("a clean start");
    schema::migrate(&config).await.expect("a schema");
    let (tables, _) = FILL.split_once(ROWS).expect("tables and rows");
    session.execute(tables).await.expect("tables");
    config
}

fn rows() -> &'static str {
    FILL.split_once(ROWS).expect("tables and rows").1
}

/// The statements that touch many rows, with their plans.
async fn failures_of(session: &mut Session, when: &str) -> Vec<String> {
    let mut failures = Vec::new();
    for (number, (name, sql, params)) in cases().into_iter().enumerate() {
        let plan = explain(session, number, sql, params).await;
        let touched = plan.iter().map(touched(1)).max().unwrap_or(0);
        let whole = plan.iter().any(|line| line.contains("Seq Scan on"));
        if touched > MOST || whole {
            failures.push(format!("{name}, {when}:\n{}", plan.join("\n")));
        }
    }
    failures
}

/// Plans a statement once for all parameters.
async fn plan(session: &mut Session, number: usize, sql: &'static Sql, params: &str) {
    let types: Vec<&str> = sql.types.iter().map(Type::name).collect();
    let types = match types.is_empty() {
        true => String::new(),
        false => format!("({})", types.join(", ")),
    };
    let prepare = format!("PREPARE planned_{number}{types} AS {}", sent(sql.text));
    session.execute(&prepare).await.expect(sql.text);
    let params = with_ids(params);
    let execute = format!("EXPLAIN EXECUTE planned_{number}({params})");
    session.execute(&execute).await.expect(sql.text);
}

fn with_ids(params: &str) -> String {
    let ids = [("$ID", ID), ("$HELD", HELD), ("$CLAIM", CLAIM)];
    (ids.iter()).fold(params.to_owned(), |params, (name, id)| {
        params.replace(name, id)
    })
}

/// How a planned statement is run with these parameters.
async fn explain(
    session: &mut Session,
    number: usize,
    sql: &'static Sql,
    params: &str,
) -> Vec<String> {
    let params = with_ids(params);
    let text =
        format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) EXECUTE planned_{number}({params})");
    let explain: &'static Sql = Box::leak(Box::new(Sql {
        text: text.leak(),
        types: &[],
    }));
    session.execute("BEGIN").await.expect("a transaction");
    let found = session.run(&[explain.into()]).await.expect(sql.text);
    session.execute("ROLLBACK").await.expect("an end");
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
