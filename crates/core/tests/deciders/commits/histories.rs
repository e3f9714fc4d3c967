//! What holds after any history of commits.

use plimsoll_core::store::Guard;
use plimsoll_core::task::Status;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::random::{
    ALARM, CURRENT, Step, THEN, competing, everything, history, keeping, open, regrouping,
};
use super::*;

impl Maps {
    /// A world in which something can happen: two groups, and tasks that are claimed.
    fn peopled() -> Self {
        let mut maps = Self::new();
        for text in ["outer", "inner"].map(group) {
            maps.done(Commit::of(Write::OpenGroup(Box::new(open(&text, None)))));
        }
        let alarm = Some(Box::new(task(ALARM + 1)));
        let first = NewTask {
            on_failure: alarm,
            ..task(1).group(group("inner"))
        };
        for new in [first, task(2).group(group("inner")), task(3).key(key("k"))] {
            maps.done(Commit::of(Write::Submit(Box::new(new))));
        }
        maps.claim_all();
        maps
    }

    /// The commits with the fences that tasks have now.
    fn resolve(&self, commits: &[Commit]) -> Vec<Commit> {
        let now = |holder: &mut Holder| {
            if holder.fence.get() == CURRENT {
                holder.fence = self
                    .tasks
                    .get(&holder.task)
                    .map_or(Fence::ZERO, |t| t.fence);
            }
        };
        let mut commits = commits.to_vec();
        for commit in &mut commits {
            for guard in &mut commit.guards {
                if let Guard::Held(holder) = guard {
                    now(holder);
                }
            }
            for write in &mut commit.writes {
                match write {
                    Write::Settle(settle) => now(&mut settle.holder),
                    Write::Amend(amend) => now(&mut amend.holder),
                    Write::Expire(expire) if expire.fence.get() == CURRENT => {
                        let task = self.tasks.get(&expire.task);
                        expire.fence = task.map_or(Fence::ZERO, |task| task.fence);
                    }
                    _ => {}
                }
            }
        }
        commits
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Commits(commits) => drop(self.batch(&self.resolve(commits))),
            Step::Claim => self.claim_all(),
            Step::Advance(seconds) => self.now += seconds,
        }
    }

    fn members<'a>(&'a self, of: &'a Group) -> impl Iterator<Item = &'a Arc<Task>> {
        (self.tasks.values()).filter(move |task| {
            task.spec.group.as_ref() == Some(&of.id) && task.spec.group_born == Some(of.born)
        })
    }

    /// The counts of a group equal its members. The outer group counts the `then` of the inner one
    /// as soon as that is open. Answers how many it has counted that will never be members.
    fn check_counts(&self, found: &Group) -> u64 {
        let inner = self.groups.get(&group("inner"));
        let to_come = u64::from(
            found.id == group("outer")
                && inner.is_some_and(|inner| {
                    inner.drained_at.is_none() && inner.outer_born == Some(found.born)
                }),
        );
        let count =
            |keep: fn(&Task) -> bool| self.members(found).filter(|task| keep(task)).count() as u64;
        let begun = count(|_| true) + to_come;
        assert!(found.spawned >= begun, "{begun} of {found:?}");
        let given_up = found.spawned - begun;
        let done = count(|t| t.status.is_terminal()) + found.arrived + given_up;
        let failed = count(|t| t.status == Status::Failed);
        let cancelled = count(|t| t.status == Status::Cancelled) + given_up;
        assert_eq!(
            (found.done, found.failed, found.cancelled),
            (done, failed, cancelled),
            "{found:?}"
        );
        let complete = found.total() == Some(found.done);
        assert_eq!(found.drained_at.is_some(), complete, "{found:?}");
        given_up
    }

    /// What is submitted when a group drains was submitted once a generation.
    fn check_then(&self, found: &Group) {
        let Some(then) = &found.then else { return };
        for generation in 0..=found.generation {
            let fired = self.tasks.contains_key(&then.id.nth(generation));
            let drained = generation < found.generation || found.drained_at.is_some();
            assert_eq!(fired, drained, "generation {generation} of {found:?}");
        }
    }

    /// Whoever waits is waited for, and whoever ended has let its successor go.
    fn check_waiting(&self) {
        for task in self.tasks.values() {
            let Some(waiting) = &task.waiting else {
                continue;
            };
            let on = &self.tasks[&waiting.on];
            assert_eq!(on.status, Status::Claimed, "{} waits for it", task.id());
            assert!(on.cancel.is_some());
            assert_eq!(on.successor, Some(task.id()));
        }
    }

    fn check_keys(&self) {
        for (key, id) in &self.keys {
            let holder = &self.tasks[id];
            assert_eq!(holder.spec.key.as_ref().map(|(key, _)| key), Some(key));
        }
    }

    /// Who runs, who waits for whom, and who has which key.
    fn line_up(&self) -> String {
        let tasks = self.tasks.iter().map(|(id, task)| {
            let state = &task.state;
            let waiting = state.waiting.as_ref().map(|waiting| waiting.on);
            (id, state.status, waiting, state.cancel.is_some())
        });
        format!("{:#?} {:#?}", tasks.collect::<Vec<_>>(), self.keys)
    }

    /// How many tasks of a key run or may be claimed.
    fn running(&self, of: &IdempotencyKey) -> usize {
        let with_key = |task: &&Arc<Task>| task.spec.key.as_ref().map(|(key, _)| key) == Some(of);
        let active = |task: &&Arc<Task>| !task.status.is_terminal() && task.waiting.is_none();
        self.tasks.values().filter(with_key).filter(active).count()
    }
}

/// Asserts that a commit loads nothing that it does not need, and that a refused one leaves the
/// rows as they were.
fn decide_strictly(maps: &Maps, commit: &Commit, rows: &Rows) -> Result<(), TestCaseError> {
    let mut decided_rows = rows.clone();
    let (answer, loaded) = maps.decide_alone(commit, &mut decided_rows);
    let named = decide::footprint(commit);
    for extra in loaded.difference(&named) {
        let mut without = rows.clone();
        (loaded.iter())
            .filter(|id| *id != extra)
            .for_each(|id| maps.load(id, &mut without));
        let before = written(&without);
        let refused = decide::commit(commit, &mut without, maps.moment());
        prop_assert_eq!(refused, Err(Refused::Missing(extra.clone())));
        prop_assert_eq!(written(&without), before);
    }
    let unwritten = written(rows) == written(&decided_rows);
    match answer {
        Ok(applied) if applied.receipt.repeated => {
            prop_assert!(unwritten);
            prop_assert_eq!(applied.changes, vec![]);
            prop_assert_eq!(applied.lines, vec![]);
        }
        Ok(applied) => prop_assert_eq!(applied.receipt.outcomes.len(), commit.writes.len()),
        Err(_) => prop_assert!(unwritten),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_batch_is_a_sequence_of_singles(steps in history(everything)) {
        let (mut batches, mut singles) = (Maps::peopled(), Maps::peopled());
        for step in &steps {
            if let Step::Commits(commits) = step {
                let commits = batches.resolve(commits);
                let one_by_one: Vec<_> = (commits.iter())
                    .map(|commit| singles.commit(commit))
                    .collect();
                let mut at_once = batches.batch(&commits);
                for applied in at_once.iter_mut().flatten() {
                    // Only a batch can tell which of its own commits one repeats.
                    applied.repeats = None;
                }
                prop_assert_eq!(at_once, one_by_one);
            } else {
                batches.step(step);
                singles.step(step);
            }
            prop_assert_eq!(&batches, &singles);
        }
    }

    #[test]
    fn a_commit_loads_only_what_it_needs_and_a_refused_one_leaves_nothing(
        steps in history(everything),
    ) {
        let mut maps = Maps::peopled();
        for step in &steps {
            let Step::Commits(commits) = step else {
                maps.step(step);
                continue;
            };
            let mut rows = Rows::default();
            for commit in &maps.resolve(commits) {
                decide_strictly(&maps, commit, &rows)?;
                let _ = maps.decide_alone(commit, &mut rows);
                maps.revision += 1;
            }
            maps.apply(rows);
        }
    }

    #[test]
    fn a_batch_is_decided_after_a_few_rounds(steps in history(everything)) {
        let mut maps = Maps::peopled();
        for step in &steps {
            if let Step::Commits(commits) = step {
                let rounds = maps.decide(&maps.resolve(commits)).rounds;
                prop_assert!(rounds.len() <= 4, "{:?}", rounds);
            }
            maps.step(step);
        }
    }

    #[test]
    fn counts_equal_members_and_nobody_waits_in_vain(steps in history(keeping)) {
        let mut maps = Maps::peopled();
        for step in &steps {
            maps.step(step);
            for group in maps.groups.values() {
                prop_assert_eq!(maps.check_counts(group), 0);
                maps.check_then(group);
            }
            maps.check_waiting();
            maps.check_keys();
        }
    }

    #[test]
    fn a_group_counts_no_members_of_another_one_that_had_its_id(steps in history(regrouping)) {
        let mut maps = Maps::peopled();
        for step in &steps {
            maps.step(step);
            for group in maps.groups.values() {
                let _ = maps.check_counts(group);
            }
        }
    }

    #[test]
    fn two_tasks_of_one_key_never_run_at_once(steps in history(competing)) {
        let mut maps = Maps::new();
        for step in &steps {
            maps.step(step);
            prop_assert!(maps.running(&key("k")) <= 1, "{:#?}", maps.tasks.values());
            maps.check_waiting();
            maps.check_keys();
        }
    }

    #[test]
    fn a_write_sees_what_the_writes_before_it_did_to_tasks_and_keys(steps in history(competing)) {
        let mut maps = Maps::new();
        for step in &steps {
            let Step::Commits(commits) = step else {
                maps.step(step);
                continue;
            };
            for commit in &maps.resolve(commits) {
                let mut apart = maps.clone();
                let Ok(applied) = maps.commit(commit) else {
                    continue;
                };
                if applied.receipt.repeated {
                    continue;
                }
                for write in &commit.writes {
                    let answer = apart.commit(&Commit::of(write.clone()));
                    prop_assert!(answer.is_ok(), "{:?} in {:#?}", answer, commit);
                }
                prop_assert_eq!(apart.line_up(), maps.line_up(), "{:#?}", commit);
            }
        }
    }
}

#[test]
fn random_histories_reach_what_they_are_about() {
    let mut runner = TestRunner::deterministic();
    let strategy = history(everything);
    let mut reached = BTreeMap::new();
    for _ in 0..400 {
        let steps = strategy.new_tree(&mut runner).unwrap().current();
        let mut maps = Maps::peopled();
        for step in &steps {
            maps.step(step);
            let generation = maps.groups.values().map(|group| group.generation).max();
            let tasks = || maps.tasks.values();
            for (what, found) in [
                (
                    "a task that waits for another",
                    tasks().any(|t| t.waiting.is_some()),
                ),
                ("a revived task", tasks().any(|t| t.redrives > 0)),
                ("a failure task", maps.tasks.contains_key(&id(ALARM + 1))),
                ("a task after a group", maps.tasks.contains_key(&id(THEN))),
                ("a second generation", generation >= Some(1)),
                ("a record", !maps.records.is_empty()),
            ] {
                *reached.entry(what).or_insert(0) += u32::from(found);
            }
        }
    }
    assert!(reached.values().all(|times| *times >= 10), "{reached:?}");
}
