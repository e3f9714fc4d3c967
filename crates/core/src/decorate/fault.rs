//! Faults on purpose, by chance or by plan, the same again for the same seed.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::decorate::{Around, Method};
use crate::error::{Applied, Error, Result, Unavailable};
use crate::ids::Ids;
use crate::store::Receipt;

/// What can go wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The store is not reached: `Unavailable`, nothing applied.
    ErrorBefore,
    /// The store does it, but the answer is lost: `Unavailable`, nobody knows.
    ErrorAfter,
    /// The call takes this much longer.
    Delay(Duration),
    /// The call reaches the store twice; the second answer is seen.
    Duplicate,
}

/// How often faults happen by chance, of a thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// Errors before.
    pub before_permille: u16,
    /// Errors after.
    pub after_permille: u16,
    /// Duplicates.
    pub duplicate_permille: u16,
    /// Delays.
    pub delay_permille: u16,
    /// The longest delay.
    pub delay_max: Duration,
}

/// Decides which calls go wrong. Clones share the plan.
///
/// ```
/// # use std::sync::Arc;
/// use plimsoll_core::clock::SystemClock;
/// use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
/// use plimsoll_core::{Memory, Namespace, Store};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = Arc::new(SystemClock::new());
/// let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// let plan = FaultPlan::none();
/// let store = Decorated::new(store, Faults::new(plan.clone(), clock));
/// plan.next(Method::Ping, Fault::ErrorBefore);
/// assert!(store.ping().await.is_err());
/// assert!(store.ping().await.is_ok());
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct FaultPlan {
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug)]
struct Plan {
    planned: BTreeMap<Method, VecDeque<Fault>>,
    chance: Option<(FaultRates, Ids)>,
    injected: BTreeMap<Method, u64>,
}

impl FaultPlan {
    /// Nothing goes wrong unless it is planned.
    pub fn none() -> Self {
        Self::with(None)
    }

    /// Things go wrong by chance, drawn from `ids`.
    pub fn by_chance(rates: FaultRates, ids: Ids) -> Self {
        Self::with(Some((rates, ids)))
    }

    fn with(chance: Option<(FaultRates, Ids)>) -> Self {
        let plan = Plan {
            planned: BTreeMap::new(),
            chance,
            injected: BTreeMap::new(),
        };
        Self {
            plan: Arc::new(Mutex::new(plan)),
        }
    }

    /// Plans a fault for the next call of `method` that has none planned.
    pub fn next(&self, method: Method, fault: Fault) {
        let mut plan = self.plan();
        plan.planned.entry(method).or_default().push_back(fault);
    }

    /// Lets nothing go wrong from now on.
    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.planned.clear();
        plan.chance = None;
    }

    /// How many faults each method has had.
    pub fn injected(&self) -> BTreeMap<Method, u64> {
        self.plan().injected.clone()
    }

    fn draw(&self, method: Method) -> Option<Fault> {
        let mut plan = self.plan();
        let planned = plan.planned.get_mut(&method).and_then(VecDeque::pop_front);
        let fault = planned.or_else(|| plan.by_chance());
        if fault.is_some() {
            *plan.injected.entry(method).or_default() += 1;
        }
        fault
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    fn by_chance(&self) -> Option<Fault> {
        let (rates, ids) = self.chance.as_ref()?;
        let mut roll = ids.below(1_000);
        let mut falls_within = |permille: u16| {
            let within = roll < u64::from(permille);
            roll = roll.saturating_sub(u64::from(permille));
            within
        };
        if falls_within(rates.before_permille) {
            Some(Fault::ErrorBefore)
        } else if falls_within(rates.after_permille) {
            Some(Fault::ErrorAfter)
        } else if falls_within(rates.duplicate_permille) {
            Some(Fault::Duplicate)
        } else if falls_within(rates.delay_permille) {
            let micros = u64::try_from(rates.delay_max.as_micros()).unwrap_or(u64::MAX);
            Some(Fault::Delay(Duration::from_micros(ids.below(micros))))
        } else {
            None
        }
    }
}

/// Makes calls go wrong as a plan says.
#[derive(Clone, Debug)]
pub struct Faults {
    plan: FaultPlan,
    clock: Arc<dyn Clock>,
}

impl Faults {
    /// Faults by this plan; delays by this clock.
    pub fn new(plan: FaultPlan, clock: Arc<dyn Clock>) -> Self {
        Self { plan, clock }
    }
}

impl Around for Faults {
    async fn around<T, C, F>(&self, method: Method, call: C) -> Result<T>
    where
        T: Send,
        C: Fn() -> F + Send + Sync,
        F: Future<Output = Result<T>> + Send,
    {
        match self.plan.draw(method) {
            None => call().await,
            Some(Fault::ErrorBefore) => Err(injected(method, Applied::No)),
            Some(Fault::ErrorAfter) => {
                // Whatever the store answered, the caller never hears it.
                drop(call().await);
                Err(injected(method, Applied::Unknown))
            }
            Some(Fault::Delay(delay)) => {
                self.clock.sleep(delay).await;
                call().await
            }
            Some(Fault::Duplicate) => {
                drop(call().await);
                call().await
            }
        }
    }

    fn committed(&self, _: &[Result<Receipt>]) {}
}

fn injected(method: Method, applied: Applied) -> Error {
    Error::Unavailable(Unavailable {
        applied,
        cause: format!("injected fault in {method}"),
    })
}
