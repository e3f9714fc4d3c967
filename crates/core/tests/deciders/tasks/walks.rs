//! What holds after any history of events.

use plimsoll_core::lifecycle::{Lifecycle, Stage};

use super::*;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Time moves, also backwards.
    Time(i64),
    Event(Event),
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = [1, 20, 90, -20].map(Step::Time).into();
    steps.extend(events().into_iter().map(|(_, event)| Step::Event(event)));
    steps
}

/// A task on its way, and what its history says it must be.
#[derive(Clone, Debug)]
struct Walk {
    task: Task,
    now: u64,
    revision: u64,
    /// How often it was claimed.
    claims: u32,
    /// How often it was claimed or taken away.
    fences: u64,
    /// How often it failed for good.
    defeats: u32,
    /// The last settle that was applied.
    settled: Option<(Fence, Incarnation, Verb)>,
}

impl Walk {
    fn new(cap: u32, waits: bool) -> Self {
        let retry = RetryPolicy {
            max_attempts: cap,
            backoff: Backoff::Fixed(secs(10)),
            ..RetryPolicy::default()
        };
        let mut new = NewTask::new(ID, Lane::new("media", "encode").unwrap(), "clip").retry(retry);
        new.attempt_timeout = Some(secs(50));
        if cap > 2 {
            let encoding = Stage::new("encoding").unwrap().to("checking").unwrap();
            let checking = Stage::new("checking").unwrap().completes();
            new.lifecycle = Some(Lifecycle::new([encoding, checking]).unwrap());
        }
        let predecessor = waits.then_some(PREDECESSOR);
        Self {
            task: submit::create(&new, predecessor, None, &moment_at(at(NOW), 1)).unwrap(),
            now: NOW,
            revision: 1,
            claims: 0,
            fences: 0,
            defeats: 0,
            settled: None,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Time(seconds) => self.now = self.now.saturating_add_signed(*seconds),
            Step::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: &Event) {
        let before = self.task.clone();
        let m = moment_at(at(self.now), self.revision + 1);
        let found = match event {
            Event::Claim(by) => {
                let worker = by.holder(&before).worker;
                task::claim(&before, &worker, secs(30), &m)
            }
            Event::Settle(how, by) => {
                let holder = self.holder(*by);
                let settled = task::settle(&before, &holder, how, &m);
                if settled.is_ok() {
                    self.settled = Some((holder.fence, holder.worker.incarnation, how.verb()));
                }
                settled.map(|(task, event)| Verdict::Changed(task, event))
            }
            Event::Amend(by) => {
                // To and fro, so that half of the moves are not allowed.
                let stages = ["encoding", "checking", "decoding"];
                let stage = stages[usize::try_from(self.revision).unwrap() % 3];
                let amend = Amend {
                    stage: Some(name(stage)),
                    ..Amend::new(self.holder(*by))
                };
                let amended = task::amend(&before, &amend, &m);
                amended.map(|task| Verdict::Changed(task, TaskEvent::Amended))
            }
            Event::Renew(by) => {
                let renewed = task::renew(Some(&before), &self.holder(*by), secs(30), m.now);
                if let Renewal::Held { until } | Renewal::CancelRequested { until, .. } = renewed {
                    self.task.lease.as_mut().unwrap().until = until;
                }
                return;
            }
            Event::Expire(by) => {
                let fence = self.holder(*by).fence;
                Ok(task::expire(&before, fence, Jitter::default(), &m))
            }
            Event::Promote => Ok(task::promote(&before, &m)),
            Event::Unblock => Ok(task::unblock(&before, waited_for(&before), &m)),
            Event::Cancel => Ok(task::cancel(&before, None, &m)),
            Event::Retry { force, delay } => task::retry(&before, *force, secs(*delay), &m),
            Event::Prioritise(priority) => {
                task::prioritise(&before, Priority::new(*priority).unwrap(), &m)
            }
            Event::Delete => return,
        };
        let Ok(Verdict::Changed(after, happened)) = found else {
            return;
        };
        let revoked = happened == TaskEvent::Retried && before.status == Status::Claimed;
        self.claims += u32::from(happened == TaskEvent::Claimed);
        self.fences += u64::from(revoked || happened == TaskEvent::Claimed);
        let failed = before.status != Status::Failed && after.status == Status::Failed;
        self.defeats += u32::from(failed);
        self.revision += 1;
        self.task = *after;
        assert_eq!(self.task.violations_since(&before), []);
        assert_eq!(self.task.modified_at, m.now);
    }

    /// Whoever holds the task, another worker, or its holder with an older fence.
    fn holder(&self, by: By) -> Holder {
        match (by, self.task.holder()) {
            (By::Holder, Some(holder)) => holder,
            (By::Older, Some(holder)) => Holder {
                fence: Fence::new(holder.fence.get() - 1),
                ..holder
            },
            (By::Other, Some(holder)) => Holder {
                worker: worker("third"),
                ..holder
            },
            (by, None) => by.holder(&self.task),
        }
    }

    /// What holds at all times.
    fn check(&self) {
        let task = &self.task;
        assert_eq!(task.violations(), []);
        assert_eq!(task.attempts, self.claims, "attempts");
        assert_eq!(task.fence, Fence::new(self.fences), "the fence");
        assert_eq!(task.revision, Revision::new(self.revision), "the revision");
        assert_eq!(task.defeats, self.defeats, "defeats");
        let never = task.runnable_at == Timestamp::MAX;
        assert_eq!(task.waiting.is_some(), never, "the place in the line");
        self.check_settled();
    }

    /// A repeated settle is told by fence, by the life of the worker, and by the verb.
    fn check_settled(&self) {
        for worker in ["me", "other", "third"].map(worker) {
            for fence in (0..=self.fences + 1).map(Fence::new) {
                for (_, how) in endings() {
                    let this = (fence, worker.incarnation, how.verb());
                    let holder = Holder {
                        task: ID,
                        worker: worker.clone(),
                        fence,
                    };
                    let before = task::settled_before(&self.task, &holder, &how);
                    assert_eq!(before.is_some(), self.settled == Some(this), "{this:?}");
                }
            }
        }
    }
}

#[test]
fn invariants_hold_after_every_short_history() {
    let steps: Vec<Step> = (steps().into_iter())
        .filter(|step| match step {
            Step::Time(_) => true,
            Step::Event(event) => !matches!(
                event,
                Event::Settle(_, By::Other | By::Older) | Event::Delete
            ),
        })
        .collect();
    let mut frontier = vec![Walk::new(2, false), Walk::new(2, true)];
    for depth in [4, 3, 2, 1] {
        let mut next: Vec<Walk> = Vec::new();
        for walk in &frontier {
            for step in &steps {
                let mut walked = walk.clone();
                walked.step(step);
                let moved = walked.now != walk.now || walked.task != walk.task;
                if moved {
                    walked.check();
                    next.push(walked);
                }
            }
        }
        assert!(!next.is_empty(), "{depth} steps before the end");
        frontier = next;
    }
    assert!(
        Status::ALL
            .iter()
            .all(|s| frontier.iter().any(|w| w.task.status == *s))
    );
}

fn history(length: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(prop::sample::select(steps()), 0..length)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn invariants_hold_after_every_long_history(
        cap in 0u32..5,
        waits in any::<bool>(),
        steps in history(200),
    ) {
        let mut walk = Walk::new(cap, waits);
        walk.check();
        for step in &steps {
            let fence = walk.task.fence;
            walk.step(step);
            walk.check();
            prop_assert!(walk.task.fence >= fence);
        }
    }

    #[test]
    fn a_task_ends_no_earlier_than_it_started_whatever_the_clock_does(steps in history(60)) {
        let mut walk = Walk::new(0, false);
        for step in &steps {
            walk.step(step);
            let (start, end) = (walk.task.started_at, walk.task.finished_at);
            prop_assert!(end.is_none() || start <= end, "{start:?} to {end:?}");
        }
    }
}
