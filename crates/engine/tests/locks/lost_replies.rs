//! Every verb with a call that is lost before or after it took effect, or is made twice: the same
//! answer as if nothing had happened, and the same locks afterwards.

use futures::TryStreamExt;
use futures::future::BoxFuture;
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Fault, FaultPlan, Method};
use plimsoll_core::store::{Commit, Guard, Put, Write};
use plimsoll_core::{Result, StoreExt};
use plimsoll_engine::locks::LockGuard;
use plimsoll_engine::tasks::Retries;

use crate::wire::Wire;
use crate::world::{Process, TTL, World, code, seconds, spawn};

struct Scene {
    w: World,
    a: Process,
    b: Process,
    fault: Option<Fault>,
}

impl Scene {
    /// From here on, the first call of each method by process `a` goes wrong.
    fn go(&self) {
        if let Some(fault) = self.fault {
            for method in [Method::Commit, Method::Get, Method::Scan, Method::Changes] {
                self.a.plan.next(method, fault);
            }
        }
    }

    async fn held(&self) -> Result<LockGuard> {
        self.a.locks.lock("a").owner("ada").acquire().await
    }

    /// What is told of a guard: tokens are those of the record, and it can be relied upon.
    async fn told(&self, guard: Result<LockGuard>) -> Result<String> {
        let guard = guard?;
        let state = self.b.locks.get("a").await?.unwrap();
        assert_eq!(state.token, guard.token());
        assert!(guard.is_held());
        self.w.pass(seconds(20.0)).await;
        assert!(guard.is_held());
        guard.release().await?;
        Ok(state.owner)
    }
}

type Verb = fn(&Scene) -> BoxFuture<'_, Result<String>>;

const VERBS: [(&str, Verb); 10] = [
    ("try_acquire", |s| {
        Box::pin(async {
            s.go();
            s.told(s.a.locks.lock("a").owner("ada").try_acquire().await)
                .await
        })
    }),
    ("acquire", |s| {
        Box::pin(async {
            s.go();
            s.told(s.held().await).await
        })
    }),
    ("try_acquire of a taken lock", |s| {
        Box::pin(async {
            let guard = s.b.locks.lock("a").acquire().await?;
            s.go();
            let refused = s.a.locks.lock("a").try_acquire().await;
            guard.release().await?;
            Ok(code(refused).into())
        })
    }),
    ("acquire in turn", |s| {
        Box::pin(async {
            let guard = s.b.locks.lock("a").acquire().await?;
            s.go();
            let waiting = s.a.waits("a", "ada");
            s.w.settle().await;
            guard.release().await?;
            // Without the history, it looks by itself.
            let (took, guard) = s.w.time(waiting).await;
            assert!(took <= seconds(1.0), "{took:?}");
            s.told(guard).await
        })
    }),
    ("acquire what is reserved", |s| {
        Box::pin(async {
            let guard = s.b.locks.lock("a").acquire().await?;
            let waiting = s.a.waits("a", "ada");
            s.w.settle().await;
            s.go();
            guard.release().await?;
            let (took, guard) = s.w.time(waiting).await;
            assert!(took <= seconds(1.0), "{took:?}");
            s.told(guard).await
        })
    }),
    ("release", |s| {
        Box::pin(async {
            let guard = s.held().await?;
            s.go();
            Ok(format!("{:?}", guard.release().await))
        })
    }),
    ("release to one who waits", |s| {
        Box::pin(async {
            let guard = s.held().await?;
            let waiting = s.b.waits("a", "bob");
            s.w.settle().await;
            s.go();
            let answer = guard.release().await;
            assert!(s.w.soon(waiting).await?.is_held());
            Ok(format!("{answer:?}"))
        })
    }),
    ("release of a lock that was broken", |s| {
        Box::pin(async {
            let guard = s.held().await?;
            s.b.locks.break_lock("a").await?;
            s.go();
            Ok(code(guard.release().await).into())
        })
    }),
    ("break_lock", |s| {
        Box::pin(async {
            let guard = s.b.locks.lock("a").acquire().await?;
            s.go();
            let broken = s.a.locks.break_lock("a").await?.unwrap();
            assert_eq!(code(guard.release().await), "lock_not_held");
            Ok(broken.owner)
        })
    }),
    ("get and list", |s| {
        Box::pin(async {
            let guard = s.held().await?;
            s.go();
            let got = s.a.locks.get("a").await?;
            let listed: Vec<_> = s.a.locks.list_all().try_collect().await?;
            assert_eq!(
                got.iter().collect::<Vec<_>>(),
                listed.iter().collect::<Vec<_>>()
            );
            guard.release().await?;
            Ok(format!("{}", listed.len()))
        })
    }),
];

#[tokio::test]
async fn every_verb_is_repeated_safely() -> Result<()> {
    let faults = [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate];
    for (name, verb) in VERBS {
        let mut first = None;
        for fault in [None].into_iter().chain(faults.map(Some)) {
            let w = World::new();
            let (a, b) = (w.process(1), w.process(2));
            let scene = Scene { w, a, b, fault };
            let answer = verb(&scene).await?;
            let lost: u64 = scene.a.plan.injected().into_values().sum();
            assert_eq!(lost > 0, fault.is_some(), "{name}");
            assert_eq!(
                first.get_or_insert(answer.clone()),
                &answer,
                "{name}, {fault:?}"
            );
            scene.w.settle().await;
            let left = scene.b.locks.lock("a").try_acquire().await;
            assert!(left.is_ok(), "{name}, {fault:?}: {left:?}");
        }
    }
    Ok(())
}

/// The first copy of a commit arrives when its second was made, and everything is over.
#[tokio::test]
async fn a_commit_that_arrives_late_leaves_nothing_behind() -> Result<()> {
    // The one that takes the lock, and the one that takes a place in the line: after one that is
    // refused, and the ticket.
    for nth in [1, 3] {
        let (w, wire) = (World::new(), Wire::default());
        let (a, b) = (w.process(1), w.process_over(2, FaultPlan::none(), &wire));
        let other = match nth {
            1 => None,
            _ => Some(a.locks.lock("a").acquire().await?),
        };
        wire.hold_up(nth);
        let waiting = b.waits("a", "bob");
        w.settle().await;
        if let Some(other) = other {
            other.release().await?;
        }
        w.soon(waiting).await?.release().await?;
        let before = w.records().await;
        assert!(before.len() <= 1, "a line may be left: {before:?}");
        assert_eq!(wire.arrive(w.store().as_ref()).await, 1);
        assert_eq!(w.records().await, before, "{nth}");
    }
    Ok(())
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_is_repeated() -> Result<()> {
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Duplicate] {
        let w = World::new();
        let a = w.process(1);
        let guard = a.locks.lock("a").acquire().await?;
        for _ in 0..3 {
            a.plan.next(Method::Commit, fault);
            w.pass(seconds(30.0)).await;
            let state = a.locks.get("a").await?.unwrap();
            assert_eq!(state.token, guard.token());
        }
        assert_eq!(a.plan.injected()[&Method::Commit], 3);
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_took_a_lock_twice_without_hearing_of_it_has_the_later_token() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    // Taken, but the answer is lost; what makes sure of it arrives when its time is over.
    for fault in [
        Fault::ErrorAfter,
        Fault::Delay(seconds(0.0)),
        Fault::Delay(seconds(40.0)),
    ] {
        a.plan.next(Method::Commit, fault);
    }
    let waiting = a.waits("a", "ada");
    w.pass(seconds(1.0)).await;
    let [taken] = &w.records().await[..] else {
        panic!("there is more than the lock");
    };
    w.pass(seconds(35.0)).await;
    let between = b.locks.lock("a").try_acquire().await?;
    let token = between.token();
    between.release().await?;
    // The first call reaches the store once more, late.
    let put = Put::new(taken.key.clone(), taken.fields.clone()).ttl(TTL);
    let again = Commit::of(Write::Put(put)).guard(Guard::RecordAbsent(taken.key.clone()));
    w.store().commit_one(again).await?;
    let (_, guard) = w.time(waiting).await;
    let guard = guard?;
    assert!(guard.token() > token, "{} after {token}", guard.token());
    assert_eq!(b.locks.get("a").await?.unwrap().token, guard.token());
    guard.release().await
}

#[tokio::test]
async fn who_took_a_lock_without_hearing_of_it_relies_on_it_only_once_it_is_sure() -> Result<()> {
    let w = World::new();
    let a = w.process(1);
    // Taken at once; but the answer is lost, and the store is away for most of its life.
    a.plan.next(Method::Commit, Fault::ErrorAfter);
    a.cut_off();
    let waiting = a.waits("a", "ada");
    w.pass(seconds(28.5)).await;
    assert!(!waiting.is_finished());
    a.plan.calm();
    let (_, guard) = w.time(waiting).await;
    let guard = guard?;
    assert_eq!(guard.token().get(), 1, "it was taken by the first commit");
    w.pass(seconds(10.0)).await;
    assert!(guard.is_held());
    guard.release().await
}

#[tokio::test]
async fn who_hears_late_that_it_took_a_lock_does_not_rely_on_it_for_too_long() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let slow = Retries {
        first: seconds(20.0),
        cap: seconds(20.0),
        ..Retries::default()
    };
    let lock = a.locks.clone().with_retries(slow).lock("a");
    a.plan.next(Method::Commit, Fault::ErrorAfter);
    let (took, guard) = w.time(spawn(async move { lock.acquire().await })).await;
    assert!(took >= seconds(10.0), "asked again after {took:?}");
    a.cut_off();
    w.time(spawn(guard?.tenure().lost())).await;
    let left = b.locks.get("a").await?.unwrap().until.since(w.clock.now());
    assert_eq!(left, seconds(3.0));
    Ok(())
}
