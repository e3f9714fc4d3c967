//! What everybody shares: the clock, the store, and those who watch.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::memory::MemoryStore;
use plimsoll_core::{Invalid, Limits, Memory, Namespace};

use crate::check::Checker;
use crate::planted::Planted;
use crate::profile::Profile;
use crate::trace::{Aliases, Trace};

/// A call whose answer was given up on, and that reaches the store all the same.
pub(crate) type Late = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What everybody shares.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) memory: Arc<MemoryStore>,
    pub(crate) profile: Profile,
    pub(crate) planted: Option<Planted>,
    calm: AtomicBool,
    checker: Mutex<Checker>,
    trace: Mutex<Trace>,
    late: Mutex<Post>,
}

/// Calls on their way, by when they arrive.
#[derive(Default)]
struct Post {
    calls: BTreeMap<(Duration, u64), Late>,
    sent: u64,
}

impl std::fmt::Debug for Post {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(
        clock: ManualClock,
        profile: Profile,
        planted: Option<Planted>,
        traced: bool,
    ) -> Result<Self, Invalid> {
        let memory = Memory::with(Arc::new(clock.clone()), Limits::default());
        let memory = Arc::new(memory.open(Namespace::new("sim")?));
        let aliases = Aliases::default();
        let trace = Trace::new(traced, aliases.clone());
        let checker = Checker::new(memory.clone(), aliases, &profile);
        Ok(Self {
            calm: AtomicBool::new(profile.calm),
            clock,
            memory,
            profile,
            planted,
            checker: Mutex::new(checker),
            trace: Mutex::new(trace),
            late: Mutex::default(),
        })
    }

    /// Whether nothing goes wrong now.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Lets nothing go wrong from now on.
    pub(crate) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        let now = self.clock.monotonic();
        self.checker().calm_since.get_or_insert(now);
    }

    /// The checkers, who know what time it is.
    pub(crate) fn checker(&self) -> MutexGuard<'_, Checker> {
        let mut checker = self.checker.lock().unwrap_or_else(PoisonError::into_inner);
        checker.now = self.clock.monotonic();
        checker
    }

    pub(crate) fn trace(&self) -> MutexGuard<'_, Trace> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the trace, which is made only if somebody wants to read it.
    pub(crate) fn say(&self, who: &str, line: impl FnOnce(&Aliases) -> String) {
        self.trace().say(self.clock.monotonic(), who, line);
    }

    /// Lets a call arrive later, though nobody waits for it any more.
    pub(crate) fn post(&self, after: Duration, call: Late) {
        let mut post = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.clock.monotonic() + after, post.sent);
        post.sent += 1;
        post.calls.insert(key, call);
    }

    /// When the next late call arrives.
    pub(crate) fn next_late(&self) -> Option<Duration> {
        let post = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        post.calls.first_key_value().map(|((at, _), _)| *at)
    }

    /// Lets late calls arrive that are due.
    pub(crate) fn deliver(&self) {
        while self
            .next_late()
            .is_some_and(|at| at <= self.clock.monotonic())
        {
            let mut post = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            let call = post.calls.pop_first();
            drop(post);
            // The memory store answers at once.
            call.and_then(|(_, call)| call.now_or_never());
        }
    }
}
