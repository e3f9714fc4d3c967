//! The conformance suite: what every store must do, as named cases.
//!
//! A store's test target has `harness = false` and calls [`main`]:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use plimsoll_core::clock::Clock;
//! use plimsoll_core::conformance::{self, Harness, Opener};
//! use plimsoll_core::{Limits, Memory, Namespace, Result, Store};
//!
//! struct MemoryHarness;
//!
//! #[async_trait]
//! impl Harness for MemoryHarness {
//!     fn name(&self) -> &'static str {
//!         "memory"
//!     }
//!     async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>> {
//!         Ok(Arc::new(Opened(Memory::with(clock, Limits::default()))))
//!     }
//! }
//!
//! struct Opened(Memory);
//!
//! #[async_trait]
//! impl Opener for Opened {
//!     async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>> {
//!         Ok(Arc::new(self.0.open(namespace)))
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     conformance::main(vec![Arc::new(MemoryHarness)])
//! }
//! ```
//!
//! Every case gets a fresh namespace and a manual clock. A case that needs a capability which the
//! store does not have is reported as ignored, and the reason is printed. The harness decides
//! what a missing server means; it should be a failure.

// A failed assertion is how a case fails.
#![allow(clippy::panic, clippy::expect_used)]

/// Lists the cases of a module: `name` or `name if Capability`.
macro_rules! cases {
    ($module:literal: $($name:ident $(if $capability:ident)?),* $(,)?) => {
        pub(super) fn cases() -> Vec<super::Case> {
            vec![$(super::Case {
                module: $module,
                name: stringify!($name),
                needs: None$(.or(Some(crate::store::Capability::$capability)))?,
                run: |world| Box::pin($name(world)),
            }),*]
        }
    };
}

mod act;
mod bad_input;
mod cancel;
mod cancelling;
mod changes;
mod changes_of_groups;
mod changes_of_records;
mod changes_of_tasks;
mod claim_order;
mod claims;
mod claims_by_id;
mod commit_order;
mod commits;
mod concurrency;
mod concurrent_groups;
mod concurrent_history;
mod concurrent_records;
mod counts;
mod deleting;
mod draining;
mod due;
mod expired_attempts;
mod failure_tasks;
mod filling;
mod group_members;
mod groups;
mod guards;
mod indexes;
mod interests;
mod kept;
mod key_lifetimes;
mod keys;
mod leases;
mod lifecycles;
mod list_filters;
mod lists;
mod logs;
mod lost_replies;
mod lost_replies_to_clients;
mod lost_replies_to_workers;
mod merges;
mod neighbours;
mod nested_groups;
mod observe;
mod peeks;
mod races;
mod random_history;
mod random_ranges;
mod ranges;
mod reading_history;
mod receipts;
mod record_expiry;
mod records;
mod redrives;
mod reopened_groups;
mod replacing;
mod retention;
mod retention_of_groups;
mod retention_of_history;
mod retention_of_logs;
mod retries;
mod retry_delays;
mod scan_filters;
mod scans;
mod settling;
mod settling_in_commits;
mod stale_holders;
mod stale_selections;
mod submits;
mod sweeps;
mod task_ids;
mod text_as_data;
mod wakeups;
mod world;
mod writes;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::{Arguments, Trial};

use crate::clock::{Clock, ManualClock};
use crate::error::Result;
use crate::names::Namespace;
use crate::store::{Capability, Store};

pub use world::World;

/// How to reach the store under test.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The name under which the cases are listed.
    fn name(&self) -> &'static str;

    /// Opens the store with this clock. A server that is missing is an error.
    async fn start(&self, clock: Arc<dyn Clock>) -> Result<Arc<dyn Opener>>;
}

/// Opens handles to namespaces. Two handles to one namespace stand for two processes.
#[async_trait]
pub trait Opener: Send + Sync {
    /// A new handle.
    async fn open(&self, namespace: Namespace) -> Result<Arc<dyn Store>>;
}

type Run = fn(World) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// One case.
#[derive(Clone)]
pub struct Case {
    /// What it is about.
    pub module: &'static str,
    /// What it shows.
    pub name: &'static str,
    /// What it needs of the store.
    pub needs: Option<Capability>,
    run: Run,
}

/// Every case of the suite.
pub fn cases() -> Vec<Case> {
    [
        records::cases(),
        merges::cases(),
        record_expiry::cases(),
        text_as_data::cases(),
        scans::cases(),
        scan_filters::cases(),
        indexes::cases(),
        ranges::cases(),
        filling::cases(),
        random_ranges::cases(),
        commits::cases(),
        commit_order::cases(),
        guards::cases(),
        receipts::cases(),
        submits::cases(),
        neighbours::cases(),
        task_ids::cases(),
        failure_tasks::cases(),
        keys::cases(),
        key_lifetimes::cases(),
        replacing::cases(),
        claims::cases(),
        claim_order::cases(),
        claims_by_id::cases(),
        peeks::cases(),
        leases::cases(),
        stale_holders::cases(),
        settling::cases(),
        settling_in_commits::cases(),
        retries::cases(),
        retry_delays::cases(),
        expired_attempts::cases(),
        redrives::cases(),
        cancel::cases(),
        cancelling::cases(),
        deleting::cases(),
        groups::cases(),
        group_members::cases(),
        draining::cases(),
        nested_groups::cases(),
        reopened_groups::cases(),
        lifecycles::cases(),
        logs::cases(),
        lists::cases(),
        list_filters::cases(),
        kept::cases(),
        counts::cases(),
        changes::cases(),
        changes_of_records::cases(),
        changes_of_tasks::cases(),
        changes_of_groups::cases(),
        reading_history::cases(),
        interests::cases(),
        due::cases(),
        sweeps::cases(),
        stale_selections::cases(),
        retention::cases(),
        retention_of_groups::cases(),
        retention_of_history::cases(),
        retention_of_logs::cases(),
        lost_replies::cases(),
        lost_replies_to_clients::cases(),
        lost_replies_to_workers::cases(),
        concurrency::cases(),
        concurrent_records::cases(),
        concurrent_groups::cases(),
        concurrent_history::cases(),
        races::cases(),
        random_history::cases(),
        wakeups::cases(),
        bad_input::cases(),
    ]
    .concat()
}

/// Runs the suite against these stores, as a test binary does: it takes the usual arguments.
#[allow(clippy::print_stderr)]
pub fn main(harnesses: Vec<Arc<dyn Harness>>) -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for harness in harnesses {
        let store = match runtime().and_then(|runtime| {
            runtime
                .block_on(probe(harness.as_ref()))
                .map_err(|error| error.to_string())
        }) {
            Ok(store) => store,
            Err(error) => {
                eprintln!("conformance: {} cannot be opened: {error}", harness.name());
                return ExitCode::FAILURE;
            }
        };
        for case in cases() {
            let missing = case.needs.filter(|need| !store.capabilities().has(*need));
            if let (Some(need), false) = (missing, arguments.list) {
                eprintln!(
                    "conformance: {}::{}::{} is left out: the store lacks {need:?}",
                    harness.name(),
                    case.module,
                    case.name
                );
            }
            trials.push(trial(&harness, case).with_ignored_flag(missing.is_some()));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(harness: &Arc<dyn Harness>, case: Case) -> Trial {
    let name = format!(
        "conformance::{}::{}::{}",
        harness.name(),
        case.module,
        case.name
    );
    let harness = harness.clone();
    Trial::test(name, move || {
        runtime()?.block_on(async {
            let world = World::start(harness.as_ref(), case.name).await?;
            (case.run)(world).await
        })?;
        Ok(())
    })
}

async fn probe(harness: &dyn Harness) -> Result<Arc<dyn Store>> {
    let opener = harness.start(Arc::new(ManualClock::new())).await?;
    opener.open(Namespace::new("conformance_probe")?).await
}

fn runtime() -> std::result::Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

/// Runs futures in parallel, on all threads of the runtime, and answers in their order.
#[allow(clippy::disallowed_methods)]
pub(crate) async fn parallel<T, F>(futures: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(answer) => answers.push(answer),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    answers
}
