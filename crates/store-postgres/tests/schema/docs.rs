//! The snippets of the guide.

use std::process::Command;

use crate::server::Place;

const GUIDE: &str = include_str!("../../../../docs/postgres.md");

/// The snippets in a language, in order.
fn snippets(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let parts = GUIDE.split(&fence).skip(1);
    parts
        .map(|part| part.split("\n```").next().unwrap_or(part))
        .collect()
}

/// Python with psycopg. It is fetched once, by the name of its package.
fn python() -> std::path::PathBuf {
    let home = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("psycopg");
    let python = home.join("bin/python");
    let has = |module: &str| {
        let import = format!("import {module}");
        let done = Command::new(&python).args(["-c", &import]).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !has("psycopg") {
        run(Command::new("python3").args(["-m", "venv"]).arg(&home));
        run(Command::new(&python).args(["-m", "pip", "-q", "install", "psycopg[binary]"]));
    }
    python
}

fn run(command: &mut Command) -> String {
    let done = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// The guide writes the usual name of the schema, and here it has another one.
fn here(place: &Place, snippet: &str) -> String {
    let schema = &place.config.schema;
    let snippet = snippet.replace("plimsoll.", &format!("{schema}."));
    let snippet = snippet.replace("SCHEMA plimsoll", &format!("SCHEMA {schema}"));
    let snippet = snippet.replace("'plimsoll'", &format!("'{schema}'"));
    snippet.replace("search_path = plimsoll", &format!("search_path = {schema}"))
}

#[tokio::test]
async fn the_guides_snippets_do_what_it_says() {
    let place = Place::new("test_guide").await;
    place
        .run("SET client_min_messages = warning; DROP ROLE IF EXISTS shop")
        .await;
    let sql = snippets("sql");
    assert!(sql.len() >= 5, "{sql:?}");
    for snippet in sql {
        place.run(&here(&place, snippet)).await;
    }
    let python_snippet = here(&place, &snippets("python").concat());
    let mut command = Command::new(python());
    command
        .args(["-c", &python_snippet])
        .env("DATABASE_URL", crate::server::url());
    let id = run(&mut command);

    let submitted = "SELECT key || ' ' || id FROM inbox ORDER BY seq";
    let submitted = place.column(submitted).await;
    let keys: Vec<_> = submitted
        .iter()
        .filter_map(|row| row.split(' ').next())
        .collect();
    assert_eq!(keys, ["receipt-7", "receipt-8", "receipt-9"]);
    assert!(submitted[2].ends_with(&id), "{submitted:?} {id}");

    // The role of the guide can submit, and nothing else.
    let submit = format!(
        "SET ROLE shop; SELECT {}.submit('mail', 'receipt', '{{}}')",
        place.quoted()
    );
    place.run(&submit).await;
    assert!(
        place
            .sql
            .batch_execute("SELECT * FROM inbox")
            .await
            .is_err()
    );
    place.run("RESET ROLE").await;
    place.drop().await;
    place.run("DROP ROLE shop").await;
}
