//! Rows that somebody else keeps locked, such as a transaction that a person has left open.
//!
//! Whoever needs such a row must not make others wait. So once a transaction has waited in vain, the
//! rows it waited for are looked for, and commits that name them are answered apart: at once, that
//! they should be tried again, until the rows are free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::decide::{RowId, footprint};
use plimsoll_core::store::Commit;
use plimsoll_core::{GroupId, IdempotencyKey, Key, TaskId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{BEGIN, Call, Sql, params};
use crate::codec::{Id, column};
use crate::error::{Answer, Fault};
use crate::pool::Pool;
use crate::session::Session;
use crate::statement::sql_file;

/// How long a row that was locked is thought to be.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How long a task in an inbox that needs a locked row is passed over. Nobody tries it meanwhile.
const PASSED_OVER: Duration = Duration::from_secs(1);

/// Which rows of a table somebody else has locked.
macro_rules! busy {
    ($table:literal, $key:literal, $type:expr) => {
        Sql {
            text: concat!("-- {table} = ", $table, "\n-- {key} = ", $key, "\n{busy}"),
            types: &[Type::INT4, $type],
        }
    };
}

pub(crate) static RECORDS: Sql = busy!("records", "key", Type::TEXT_ARRAY);
pub(crate) static KEYS: Sql = busy!("keys", "key", Type::TEXT_ARRAY);
pub(crate) static GROUPS: Sql = busy!("groups", "id", Type::TEXT_ARRAY);
/// A task has a row in one of two tables, or a claim holds it.
pub(crate) static TASKS: Sql = Sql {
    text: sql_file!("stuck/tasks"),
    types: &[Type::INT4, Type::UUID_ARRAY],
};

/// Rows that were locked lately, and since when.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    timer: SystemClock,
    rows: Mutex<BTreeMap<(i32, RowId), Duration>>,
    /// Namespaces with a locked row that no commit names: decisions lead to it.
    unnamed: Mutex<BTreeMap<i32, Duration>>,
    /// Numbers of tasks in inboxes that need a locked row, by namespace.
    passed_over: Mutex<BTreeMap<(i32, i64), Duration>>,
}

impl Stuck {
    /// Takes in that these rows are locked.
    pub(crate) fn mark(&self, ns: i32, rows: impl IntoIterator<Item = RowId>) {
        let now = self.timer.monotonic();
        let mut stuck = self.lock();
        stuck.retain(|_, since| now.saturating_sub(*since) < REMEMBERED);
        stuck.extend(rows.into_iter().map(|row| ((ns, row), now)));
    }

    /// Takes in that a row is locked that decisions lead to.
    pub(crate) fn mark_unnamed(&self, ns: i32) {
        let mut unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        unnamed.insert(ns, self.timer.monotonic());
    }

    /// Whether decisions may lead to a row that is locked.
    pub(crate) fn has_unnamed(&self, ns: i32) -> bool {
        let unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.timer.monotonic();
        (unnamed.get(&ns)).is_some_and(|since| now.saturating_sub(*since) < REMEMBERED)
    }

    /// Takes in that these tasks of an inbox need rows that are locked.
    pub(crate) fn pass_over(&self, ns: i32, seqs: impl IntoIterator<Item = i64>) {
        let now = self.timer.monotonic();
        let lock = self.passed_over.lock();
        let mut passed_over = lock.unwrap_or_else(PoisonError::into_inner);
        passed_over.retain(|_, since| now.saturating_sub(*since) < PASSED_OVER);
        passed_over.extend(seqs.into_iter().map(|seq| ((ns, seq), now)));
    }

    /// Tasks of an inbox that are not tried for now.
    pub(crate) fn passed_over(&self, ns: i32) -> Vec<i64> {
        let now = self.timer.monotonic();
        let lock = self.passed_over.lock();
        let passed_over = lock.unwrap_or_else(PoisonError::into_inner);
        let of_ns = passed_over.range((ns, i64::MIN)..=(ns, i64::MAX));
        of_ns
            .filter(|(_, since)| now.saturating_sub(**since) < PASSED_OVER)
            .map(|((_, seq), _)| *seq)
            .collect()
    }

    /// Takes in that these rows are free.
    pub(crate) fn clear(&self, ns: i32, commit: &Commit) {
        let mut stuck = self.lock();
        if !stuck.is_empty() {
            for row in footprint(commit) {
                stuck.remove(&(ns, row));
            }
        }
    }

    /// Rows of this namespace that are thought to be locked.
    pub(crate) fn rows(&self, ns: i32) -> BTreeSet<RowId> {
        let now = self.timer.monotonic();
        let stuck = self.lock();
        let of_ns = stuck
            .iter()
            .filter(|((of, _), since)| *of == ns && now.saturating_sub(**since) < REMEMBERED);
        of_ns.map(|((_, row), _)| row.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(i32, RowId), Duration>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which commits name one of these rows, or a row of a commit before them that does: they must not
/// go ahead of it.
pub(crate) fn held_up(commits: &[Commit], mut rows: BTreeSet<RowId>) -> Vec<bool> {
    if rows.is_empty() {
        return vec![false; commits.len()];
    }
    (commits.iter())
        .map(|commit| {
            let named = footprint(commit);
            let held_up = !named.is_disjoint(&rows);
            if held_up {
                rows.extend(named);
            }
            held_up
        })
        .collect()
}

/// Which of the rows that these commits name are locked by somebody else. With a connection of its own:
/// whoever has waited in vain may have none that is of use.
pub(crate) async fn look(pool: &Pool, ns: i32, commits: &[Commit]) -> Answer<BTreeSet<RowId>> {
    let mut pooled = pool.session().await?;
    find(pooled.session()?, ns, commits).await
}

async fn find(session: &mut Session, ns: i32, commits: &[Commit]) -> Answer<BTreeSet<RowId>> {
    let (mut records, mut keys, mut tasks, mut groups) = (vec![], vec![], vec![], vec![]);
    for row in commits.iter().flat_map(footprint) {
        match row {
            RowId::Record(key) => records.push(key.to_string()),
            RowId::Key(key) => keys.push(key.to_string()),
            RowId::Task(id) => tasks.push(Id::from(id)),
            RowId::Group(id) => groups.push(id.to_string()),
            RowId::Commit(_) => {}
        }
    }
    let calls = [
        Call::from(&BEGIN),
        Call::new(&RECORDS, params![ns, records]),
        Call::new(&KEYS, params![ns, keys]),
        Call::new(&TASKS, params![ns, tasks]),
        Call::new(&GROUPS, params![ns, groups]),
    ];
    let found = session.run(&calls).await;
    session.roll_back().await;
    let found = found?;
    let mut busy = BTreeSet::new();
    let corrupt = |error: plimsoll_core::Invalid| Fault::Corrupt(error.to_string());
    let text = |row: &Row| column::<String>(row, 0);
    for row in &found[1] {
        busy.insert(RowId::Record(Key::new(text(row)?).map_err(corrupt)?));
    }
    for row in &found[2] {
        busy.insert(RowId::Key(
            IdempotencyKey::new(text(row)?).map_err(corrupt)?,
        ));
    }
    for row in &found[3] {
        let id: TaskId = column::<Id>(row, 0)?.task();
        busy.insert(RowId::Task(id));
    }
    for row in &found[4] {
        busy.insert(RowId::Group(GroupId::new(text(row)?).map_err(corrupt)?));
    }
    Ok(busy)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::ids::Ids;
    use plimsoll_core::store::{Amend, Claim, Pick, Write};
    use plimsoll_core::task::{Lane, NewTask, WorkerId};
    use plimsoll_core::{Name, Namespace, Store};

    use super::*;
    use crate::{Config, Postgres, PostgresStore, schema};

    fn delete(keys: &[&str]) -> Commit {
        let key = |key: &&str| Write::Delete(Key::new(key).expect("a key"));
        keys.iter().map(key).fold(Commit::new(), Commit::write)
    }

    fn row(key: &str) -> RowId {
        RowId::Record(Key::new(key).expect("a key"))
    }

    #[test]
    fn commits_wait_for_locked_rows_and_for_those_before_them() {
        let commits = [
            delete(&["a"]),
            delete(&["b", "c"]),
            delete(&["c"]),
            delete(&["d"]),
        ];
        let of = |rows: &[&str]| held_up(&commits, rows.iter().map(|key| row(key)).collect());
        assert_eq!(of(&[]), [false, false, false, false]);
        assert_eq!(of(&["a"]), [true, false, false, false]);
        assert_eq!(of(&["b"]), [false, true, true, false]);
        assert_eq!(of(&["c"]), [false, true, true, false]);
        assert_eq!(of(&["x"]), [false, false, false, false]);
    }

    #[test]
    fn what_was_locked_is_known_for_its_namespace_until_it_is_free() {
        let stuck = Stuck::default();
        stuck.mark(1, [row("a"), row("b")]);
        assert_eq!(stuck.rows(1).len(), 2);
        assert!(stuck.rows(2).is_empty());
        stuck.clear(1, &delete(&["a"]));
        assert_eq!(stuck.rows(1), BTreeSet::from([row("b")]));
    }

    struct World {
        ids: Ids,
        config: Config,
        store: PostgresStore,
    }

    impl World {
        async fn new() -> Self {
            let config = Config::of_tests();
            schema::migrate(&config).await.expect("a schema");
            let ids = Ids::random(Arc::new(SystemClock::new()));
            let namespace = Namespace::new(ids.task().to_string()).expect("a namespace");
            let postgres = Postgres::open(config.clone()).await.expect("a server");
            let store = postgres.namespace(namespace).await.expect("a handle");
            Self { ids, config, store }
        }

        async fn write(&self, write: Write) {
            let mut done = self.store.commit(vec![Commit::of(write)]).await;
            done.remove(0).expect("a receipt");
        }

        /// Submits two tasks, and claims them together.
        async fn claimed(&self) -> [plimsoll_core::task::Task; 2] {
            let lane = Lane::new("queue", "kind").expect("a lane");
            for _ in 0..2 {
                let new = NewTask::new(self.ids.task(), lane.clone(), "x");
                self.write(Write::Submit(Box::new(new))).await;
            }
            let (lanes, limit) = (vec![lane], 2);
            let claim = Claim {
                pick: Pick::Next { lanes, limit },
                worker: WorkerId {
                    name: Name::new("worker").expect("a name"),
                    incarnation: self.ids.incarnation(),
                },
                lease: Duration::from_secs(60),
                request: self.ids.request(),
            };
            let claimed = self.store.claim(claim).await.expect("a claim");
            claimed.tasks.try_into().expect("two tasks")
        }

        async fn session(&self) -> Session {
            Session::connect(&self.config).await.expect("a session")
        }

        /// Which of these tasks are found to be locked while a stranger locks rows.
        async fn found(&self, tasks: &[TaskId], table: &str, condition: &str) -> Vec<TaskId> {
            let (mut stranger, mut session) = (self.session().await, self.session().await);
            let lock =
                format!("BEGIN; SELECT 1 FROM plimsoll.{table} WHERE {condition} FOR UPDATE");
            stranger.execute(&lock).await.expect("locked");
            let promote = |task: &TaskId| Commit::of(Write::Promote(*task));
            let commits: Vec<Commit> = tasks.iter().map(promote).collect();
            let found = find(&mut session, self.store.place().1, &commits).await;
            stranger.execute("ROLLBACK").await.expect("free");
            let id = |row| match row {
                RowId::Task(id) => id,
                other => panic!("{other:?}"),
            };
            found.expect("rows").into_iter().map(id).collect()
        }
    }

    #[tokio::test]
    async fn a_task_is_locked_where_its_state_is() {
        let world = World::new().await;
        let [one, other] = world.claimed().await;
        let [third, _] = world.claimed().await;
        // It has a row of its own now, and its claim goes on holding the other one.
        let amend = Amend {
            checkpoint: Some("here".into()),
            ..Amend::new(one.holder().expect("a holder"))
        };
        world.write(Write::Amend(Box::new(amend))).await;
        let all = [one.id(), other.id(), third.id(), world.ids.task()];
        let found = async |table, condition: String| world.found(&all, table, &condition).await;
        assert_eq!(found("tasks", "false".into()).await, []);
        let row = format!("id = '{}'", one.id());
        assert_eq!(found("tasks", row).await, [one.id()]);
        for (of, locked) in [(one.id(), other.id()), (third.id(), third.id())] {
            let claim = format!("'{of}' = ANY(tasks)");
            assert_eq!(found("claims", claim).await, [locked]);
        }
    }
}
