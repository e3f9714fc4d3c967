//! Who is told, and what becomes of those who follow when their reader ends.

use std::sync::OnceLock;

use plimsoll_core::clock::ManualClock;
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::{Ids, Limits, Memory, Namespace, Prefix};

use super::*;

/// Counts what it is told, ends what others follow when it is told, and notes whether anybody read when it
/// heard of the end.
#[derive(Debug, Default)]
struct Ear {
    told: Mutex<u32>,
    ends: Mutex<Option<Following>>,
    tail: OnceLock<Arc<Tail>>,
    read_at_the_end: Mutex<Option<bool>>,
    patience: Duration,
    rest: Duration,
    gives_way: bool,
}

impl Ear {
    fn told(&self) -> u32 {
        *self.told.lock().unwrap()
    }
}

impl Follower for Ear {
    fn interests(&self) -> Vec<Interest> {
        vec![Interest::Records(Prefix::any())]
    }

    fn poll(&self) -> Duration {
        POLL
    }

    fn rest(&self) -> Duration {
        self.rest
    }

    fn gives_way(&self) -> bool {
        self.gives_way
    }

    fn begins(&self, _: Position) {
        *self.told.lock().unwrap() += 1;
        let ended = self.ends.lock().unwrap().take();
        drop(ended);
    }

    fn told(&self, _: &[Entry], _: Position) {
        *self.told.lock().unwrap() += 1;
    }

    fn gone(&self) {}

    fn failing(&self, _: u32, _: &Error) -> Option<Duration> {
        Some(self.patience)
    }

    fn back(&self) {}

    fn over(&self, _: Option<&Error>) {
        let read = self.tail.get().map(|tail| tail.followers().read);
        *self.read_at_the_end.lock().unwrap() = read;
    }
}

struct World {
    clock: ManualClock,
    plan: FaultPlan,
    engine: Engine,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new();
        let shared: Arc<dyn plimsoll_core::clock::Clock> = Arc::new(clock.clone());
        let memory = Memory::with(shared.clone(), Limits::default());
        let store = Arc::new(memory.open(Namespace::new("test").unwrap()));
        let plan = FaultPlan::none();
        let faulty = Decorated::new(store, Faults::new(plan.clone(), shared.clone()));
        let ids = Ids::seeded(1, shared.clone());
        let engine = Engine::with(Arc::new(faulty), shared, ids);
        Self {
            clock,
            plan,
            engine,
        }
    }

    async fn write(&self) {
        let records = self.engine.records();
        let put = records.put("key", [("field", "text")], None);
        put.await.unwrap();
        settle().await;
    }

    fn follow(&self, ear: &Arc<Ear>) -> Following {
        self.engine.tail().follow(&self.engine, ear.clone())
    }
}

async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_has_left_meanwhile_is_not_told() {
    let world = World::new();
    let (first, second) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    let _following = world.follow(&first);
    *first.ends.lock().unwrap() = Some(world.follow(&second));
    settle().await;
    assert!(first.told() >= 2);
    assert_eq!(second.told(), 0);
}

#[test]
fn when_they_hear_of_the_end_of_a_runtime_nobody_reads_any_more() {
    let world = World::new();
    let ear = Arc::new(Ear::default());
    ear.tail.set(world.engine.tail().clone()).unwrap();
    let builder = || tokio::runtime::Builder::new_current_thread();
    let runtime = builder().build().unwrap();
    let _following = runtime.block_on(async {
        let following = world.follow(&ear);
        settle().await;
        following
    });
    drop(runtime);
    assert_eq!(*ear.read_at_the_end.lock().unwrap(), Some(false));
}

/// An hour's wait of one who follows is not for those who come later, nor does it keep the engine when
/// nobody is left. A mere look does not end it.
#[tokio::test]
async fn a_wait_ends_when_somebody_comes_or_all_have_left() {
    let world = World::new();
    let patient = || {
        Arc::new(Ear {
            patience: Duration::from_secs(3_600),
            ..Ear::default()
        })
    };
    let (first, second) = (patient(), patient());
    world.plan.next(Method::Changes, Fault::ErrorBefore);
    let following = world.follow(&first);
    settle().await;
    world.engine.tail().look();
    settle().await;
    assert_eq!(first.told(), 0);
    assert!(world.clock.next_sleep().is_some());
    let other = world.follow(&second);
    settle().await;
    assert_eq!((first.told(), second.told()), (2, 2));

    world.plan.next(Method::Changes, Fault::ErrorBefore);
    world.engine.tail().look();
    settle().await;
    assert!(world.engine.tail().followers().read);
    drop((following, other));
    settle().await;
    assert!(!world.engine.tail().followers().read);
}

/// The history is not read for those who rest, until somebody asks for it or needs it at once.
#[tokio::test]
async fn those_who_rest_are_told_when_that_is_over() {
    let world = World::new();
    let rest = Duration::from_millis(2);
    let ear = Arc::new(Ear {
        rest,
        ..Ear::default()
    });
    let _following = world.follow(&ear);
    settle().await;
    let before = ear.told();
    world.write().await;
    world.write().await;
    assert_eq!(ear.told(), before);
    world.clock.advance(rest);
    settle().await;
    assert_eq!(ear.told(), before + 1, "both at once");

    world.write().await;
    world.engine.tail().look();
    settle().await;
    assert_eq!(ear.told(), before + 2, "a look");

    let _eager = world.follow(&Arc::new(Ear::default()));
    settle().await;
    let before = ear.told();
    world.write().await;
    assert_eq!(ear.told(), before + 1, "another has no rest");
}

/// How many turns others have between a write and what is told of it to one who gives way or not, beside one who
/// does not.
async fn turns(gives_way: bool, beside: bool) -> usize {
    let world = World::new();
    let ear = Arc::new(Ear {
        gives_way,
        ..Ear::default()
    });
    let _following = world.follow(&ear);
    let _eager = beside.then(|| world.follow(&Arc::new(Ear::default())));
    settle().await;
    let (before, mut turns) = (ear.told(), 0);
    let records = world.engine.records();
    let put = records.put("key", [("field", "text")], None);
    put.await.unwrap();
    while ear.told() == before {
        tokio::task::yield_now().await;
        turns += 1;
    }
    turns
}

/// Whatever the clock does: it stands still here.
#[tokio::test]
async fn those_who_give_way_are_told_after_others_had_their_turns() {
    let at_once = turns(false, false).await;
    assert!(at_once < TURNS, "{at_once}");
    assert_eq!(turns(true, false).await, at_once + TURNS);
    assert_eq!(turns(true, true).await, turns(false, true).await);
}
