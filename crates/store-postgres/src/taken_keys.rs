//! Whether idempotency keys of new tasks are thought to be free.
//!
//! Mostly they are: then they need not be looked at before they are written, and writing them finds out. Where one
//! is taken, everything was in vain and is done again. So after that some transactions look first, the more the more
//! often it happens.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many transactions look first after one that found a key taken, and how many at most after several.
const LOOKS: u32 = 8;
const LOOKS_MAX: u32 = 64;

/// How many transactions of each namespace are to look first.
#[derive(Debug, Default)]
pub(crate) struct TakenKeys {
    looks: Mutex<BTreeMap<i32, u32>>,
}

impl TakenKeys {
    /// Whether keys are to be looked at first.
    pub(crate) fn are_likely(&self, ns: i32) -> bool {
        self.lock().contains_key(&ns)
    }

    /// Takes in whether one of a transaction's keys was taken.
    pub(crate) fn learn(&self, ns: i32, taken: bool) {
        let mut looks = self.lock();
        let left = looks.get(&ns).copied().unwrap_or(0);
        match after(left, taken) {
            0 => drop(looks.remove(&ns)),
            left => drop(looks.insert(ns, left)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, u32>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many are left to look first.
fn after(left: u32, taken: bool) -> u32 {
    match taken {
        true => (left + LOOKS).min(LOOKS_MAX),
        false => left.saturating_sub(1),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::clock::SystemClock;
    use plimsoll_core::store::{Commit, Write};
    use plimsoll_core::task::{Lane, NewTask};
    use plimsoll_core::{IdempotencyKey, Ids, Namespace, Store};

    use super::*;
    use crate::{Config, Postgres, schema};

    /// How many of so many transactions look first, if a key of every so-manieth one is taken.
    fn looks(transactions: u32, every: u32) -> u32 {
        let keys = TakenKeys::default();
        (0..transactions)
            .map(|n| {
                let looks = keys.are_likely(1);
                keys.learn(1, n % every == 0);
                u32::from(looks)
            })
            .sum()
    }

    #[test]
    fn after_a_key_that_was_taken_some_look_first() {
        assert_eq!(looks(100, 1_000), LOOKS);
        assert_eq!(looks(1_000, 100), 10 * LOOKS);
        assert_eq!(looks(1_000, 4), 999, "if it happens often, all do");
        assert_eq!(looks(1_000, 1), 999);
    }

    #[test]
    fn it_ends_soon_after_keys_are_free_again() {
        let keys = TakenKeys::default();
        (0..1_000).for_each(|_| keys.learn(1, true));
        let looks = (0..1_000).take_while(|_| {
            keys.learn(1, false);
            keys.are_likely(1)
        });
        assert_eq!(looks.count(), LOOKS_MAX as usize - 1);
    }

    #[test]
    fn a_namespace_knows_its_own_keys() {
        let keys = TakenKeys::default();
        keys.learn(1, true);
        assert!(keys.are_likely(1));
        assert!(!keys.are_likely(2));
    }

    #[tokio::test]
    async fn a_store_looks_first_after_a_key_that_was_taken() {
        let config = Config::of_tests();
        schema::migrate(&config).await.expect("a schema");
        let ids = Ids::random(Arc::new(SystemClock::new()));
        let namespace = Namespace::new(ids.task().to_string()).expect("a namespace");
        let postgres = Postgres::open(config).await.expect("a server");
        let store = postgres.namespace(namespace).await.expect("a handle");
        let submit = async |keys: Vec<String>| {
            let lane = Lane::new("queue", "kind").expect("a lane");
            let task = |key| {
                let key = IdempotencyKey::new(key).expect("a key");
                let new = NewTask::new(ids.task(), lane.clone(), "x").key(key);
                Commit::of(Write::Submit(Box::new(new)))
            };
            for answer in store.commit(keys.into_iter().map(task).collect()).await {
                answer.expect("a task");
            }
            store.looks_at_keys()
        };
        let new = || ids.task().to_string();
        assert!(!submit(vec![new()]).await);
        assert!(!submit(vec!["taken".to_owned()]).await);
        let twice = vec!["twice".to_owned(); 2];
        assert!(!submit(twice).await, "nobody had it before");
        // One that is there, and one of many that two transactions write.
        let many = (0..300).map(|_| new()).chain(["taken".to_owned()]);
        for taken in [vec!["taken".to_owned()], many.collect()] {
            assert!(submit(taken).await);
            for _ in 1..LOOKS {
                assert!(submit(vec![new()]).await);
            }
            assert!(!submit(vec![new()]).await);
        }
    }
}
