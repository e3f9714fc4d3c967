//! What a session makes of the statements that it is given together.

use super::*;

static WRITE: Sql = Sql {
    text: "CREATE TABLE written ()",
    types: &[],
};
static WRITTEN: Sql = Sql {
    text: "SELECT to_regclass('pg_temp.written') IS NOT NULL",
    types: &[],
};
static FAIL: Sql = Sql {
    text: "SELECT 1 / (random() * 0)::integer",
    types: &[],
};

async fn session() -> Session {
    let config = Config::of_tests();
    let mut session = Session::connect(&config).await.expect("a session");
    let temporary = "SET search_path = pg_temp";
    session.execute(temporary).await.expect("a schema");
    session
}

async fn committed(calls: &[&'static Sql]) -> (bool, bool) {
    let mut session = session().await;
    let calls: Vec<Call> = calls.iter().map(|sql| Call::from(*sql)).collect();
    let answered = session.commit(&calls).await.is_ok();
    assert!(session.is_usable());
    let found = session.run(&[(&WRITTEN).into()]).await.expect("a look");
    (answered, column(&found[0][0], 0).expect("an answer"))
}

#[tokio::test]
async fn what_was_committed_is_so_whatever_becomes_of_what_was_asked_after_it() {
    let after = committed(&[&BEGIN, &WRITE, &COMMIT, &FAIL]).await;
    assert_eq!(after, (true, true));
    let before = committed(&[&BEGIN, &WRITE, &FAIL, &COMMIT]).await;
    assert_eq!(before, (false, false));
}

/// Behind a pooler, also what is not part of a transaction has our settings, and leaves none of them.
#[tokio::test]
async fn without_prepared_statements_a_read_brings_its_settings() {
    static SETTINGS: Sql = Sql {
        text: "SELECT current_setting('enable_seqscan'), current_setting('statement_timeout')",
        types: &[],
    };
    let config = Config {
        prepare: false,
        ..Config::of_tests()
    };
    let mut session = Session::connect(&config).await.expect("a session");
    let has = |row: &Row| (row.get::<_, String>(0), row.get::<_, String>(1));
    let calls = [(&SETTINGS).into(), (&SETTINGS).into()];
    for answer in session.run(&calls).await.expect("settings") {
        assert_eq!(has(&answer[0]), ("off".into(), "27s".into()));
    }
    let failed = session.run(&[(&SETTINGS).into(), (&FAIL).into()]).await;
    assert!(failed.is_err() && session.is_usable());
    let left = session.client.query_one(SETTINGS.text, &[]).await;
    assert_eq!(has(&left.expect("settings")), ("on".into(), "0".into()));
}

/// What is sent together outside of a transaction is one then: as a whole or not at all, and the answer says which.
#[tokio::test]
async fn without_prepared_statements_what_is_sent_together_happens_together() {
    static LATE: Sql = Sql {
        text: "CREATE TABLE late (n integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
        types: &[],
    };
    static TWICE: Sql = Sql {
        text: "INSERT INTO late VALUES (1), (1)",
        types: &[],
    };
    let config = Config {
        prepare: false,
        ..Config::of_tests()
    };
    let mut session = Session::connect(&config).await.expect("a session");
    let temporary = "SET search_path = pg_temp";
    session.execute(temporary).await.expect("a schema");
    let failed = session.run(&[(&WRITE).into(), (&FAIL).into()]).await;
    assert!(failed.is_err() && session.is_usable());
    let found = session.run(&[(&WRITTEN).into()]).await.expect("a look");
    assert!(!column::<bool>(&found[0][0], 0).expect("an answer"));
    session.run(&[(&LATE).into()]).await.expect("a table");
    let failed = session.run(&[(&TWICE).into()]).await;
    assert!(matches!(failed, Err(Fault::Moved)), "{failed:?}");
    assert!(session.is_usable());
}

/// Whoever has the session next is not within a transaction that has failed.
#[tokio::test]
async fn what_cannot_be_prepared_ends_the_transaction() {
    static MISSING: Sql = Sql {
        text: "SELECT * FROM there_is_no_such_table",
        types: &[],
    };
    let mut session = session().await;
    let begin = [(&BEGIN).into(), (&NOTHING).into()];
    session.run(&begin).await.expect("begun");
    let failed = session.commit(&[(&MISSING).into(), (&COMMIT).into()]).await;
    assert_eq!(failed.expect_err("missing").1, Applied::No);
    assert!(session.is_usable());
    session.run(&[(&NOTHING).into()]).await.expect("an answer");
}

static NOTHING: Sql = Sql {
    text: "SELECT 1",
    types: &[],
};

static NUMBERS: Sql = Sql {
    text: "CREATE TABLE numbers (n integer PRIMARY KEY CHECK (n > 0))",
    types: &[],
};
static COPY: Sql = Sql {
    text: "COPY numbers FROM STDIN",
    types: &[],
};
static COPIED: Sql = Sql {
    text: "SELECT count(*) FROM numbers",
    types: &[],
};

/// Copies these lines between statements. Answers whether that was committed, whether the session
/// is of use, and how many rows there are then.
async fn copied(
    before: &'static Sql,
    lines: &'static str,
    after: &'static Sql,
) -> (bool, bool, Option<i64>) {
    let mut session = session().await;
    session.run(&[(&NUMBERS).into()]).await.expect("a table");
    let copy = Call::copy(&COPY, Bytes::from_static(lines.as_bytes()));
    let calls = [
        (&BEGIN).into(),
        before.into(),
        copy,
        after.into(),
        (&COMMIT).into(),
    ];
    let answered = match session.commit(&calls).await {
        Ok(answers) => answers.len() == calls.len(),
        Err((_, applied)) => {
            assert_eq!(applied, Applied::No);
            false
        }
    };
    if !session.is_usable() {
        return (answered, false, None);
    }
    let found = session.run(&[(&COPIED).into()]).await.expect("a look");
    (answered, true, column(&found[0][0], 0).ok())
}

#[tokio::test]
async fn rows_are_copied_among_statements() {
    assert_eq!(
        copied(&COPIED, "1\n2\n", &COPIED).await,
        (true, true, Some(2))
    );
}

/// Wherever it fails, the transaction has ended, and the next one gets its own answers.
#[tokio::test]
async fn what_fails_around_a_copy_leaves_nothing() {
    let nothing = (false, true, Some(0));
    assert_eq!(copied(&FAIL, "1\n", &COPIED).await, nothing);
    assert_eq!(copied(&COPIED, "1\n", &FAIL).await, nothing);
    assert_eq!(copied(&COPIED, "1\n1\n", &COPIED).await, nothing);
    assert_eq!(copied(&COPIED, "1\nodd\n", &COPIED).await, nothing);
}

/// It was not told to commit: so it has not.
#[tokio::test]
async fn a_session_that_ends_before_a_copy_has_written_nothing() {
    static KILL: Sql = Sql {
        text: "SELECT pg_terminate_backend(pg_backend_pid())",
        types: &[],
    };
    assert_eq!(copied(&KILL, "1\n", &COPIED).await, (false, false, None));
}

/// The server answers such a copy twice: nobody else may get the second one.
#[tokio::test]
async fn a_session_whose_copy_did_not_begin_is_of_no_more_use() {
    static DROP: Sql = Sql {
        text: "DROP TABLE numbers",
        types: &[],
    };
    assert_eq!(copied(&DROP, "1\n", &COPIED).await, (false, false, None));
}
