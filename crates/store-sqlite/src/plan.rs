//! For tests: how SQLite goes about a statement.

use rusqlite::Connection;

/// A database in memory with all tables.
pub(crate) fn tables() -> Connection {
    let connection = Connection::open_in_memory().expect("a database");
    let schema = include_str!("../sql/schema.sql");
    connection.execute_batch(schema).expect("the tables");
    connection
}

/// Its searches, what it reads from one end to the other, and what it sorts.
pub(crate) fn plan(connection: &Connection, query: &str) -> Vec<String> {
    let explain = format!("EXPLAIN QUERY PLAN {query}");
    let mut plan = connection.prepare(&explain).expect("a statement");
    let inputs = vec![0; plan.parameter_count()];
    let steps = plan
        .query_map(rusqlite::params_from_iter(inputs), |row| row.get(3))
        .expect("a plan");
    let steps: Vec<String> = steps.collect::<Result<_, _>>().expect("its steps");
    let found = |step: &String| match step.as_str() {
        "SCAN CONSTANT ROW" => false,
        step => step.starts_with("SEARCH") || step.starts_with("SCAN") || step.contains(" B-TREE "),
    };
    steps.into_iter().filter(found).collect()
}
