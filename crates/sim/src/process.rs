//! One process: a runtime of its own, so that it can be stopped where it stands, with everything
//! that it has spawned.
//!
//! A process gets turns. In a turn it runs until it has nothing left to do at this moment. A paused
//! process gets none; what it waits for goes on meanwhile. A crash drops the runtime.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use plimsoll_core::Result;
use tokio::runtime::{Builder, Runtime};

/// What a process runs.
pub(crate) type Root = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Polls in one turn after which a process is taken to spin.
const POLLS_MAX: u64 = 100_000;

/// A turn is over when the root has nothing to do and what it spawned has had so many chances to
/// run after yielding: nothing in the engine yields more often without waiting for something.
const QUIET: u32 = 3;

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The process waits for something.
    Waits,
    /// It has done what it is for.
    Ended(Result<()>),
    /// It is to be killed.
    Killed,
    /// It panicked.
    Panicked(String),
    /// It never stops running.
    Spins,
}

/// Kills the process that it belongs to, from inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doom(Arc<AtomicBool>);

impl Doom {
    pub(crate) fn seal(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_sealed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// When a process went on last after a pause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resumed(Arc<AtomicU64>);

impl Resumed {
    pub(crate) fn set(&self, at: Duration) {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One life of a process.
pub(crate) struct Life {
    // The root goes before the runtime that it spawned into.
    root: Root,
    runtime: Runtime,
    woken: Arc<Woken>,
    doom: Doom,
    /// How often the root may be polled before the process crashes.
    polls_left: Option<u64>,
}

impl Life {
    /// Starts a process.
    pub(crate) fn start(
        root: impl FnOnce() -> Root,
        doom: Doom,
        polls_left: Option<u64>,
    ) -> std::io::Result<Self> {
        // Without timers, I/O or a second thread; all that is runnable runs before a turn ends.
        let runtime = Builder::new_current_thread()
            .event_interval(u32::MAX)
            .build()?;
        let inside = runtime.enter();
        let root = root();
        drop(inside);
        Ok(Self {
            root,
            runtime,
            woken: Arc::new(Woken(AtomicBool::new(true))),
            doom,
            polls_left,
        })
    }

    /// Lets it live.
    pub(crate) fn spare(&mut self) {
        self.polls_left = None;
    }

    /// Whether there is anything to do now.
    pub(crate) fn is_runnable(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
            // What others wake in here arrives in the global queue.
            || self.runtime.metrics().global_queue_depth() > 0
    }

    /// Runs until nothing is left to do.
    pub(crate) fn turn(&mut self) -> Turn {
        let Self {
            root,
            runtime,
            woken,
            doom,
            polls_left,
        } = self;
        let waker = Waker::from(woken.clone());
        let run = async {
            let (mut polls, mut quiet) = (0, 0);
            loop {
                if woken.0.swap(false, Ordering::Relaxed) {
                    let polled = root.as_mut().poll(&mut Context::from_waker(&waker));
                    if let Poll::Ready(result) = polled {
                        return Turn::Ended(result);
                    }
                    if let Some(left) = polls_left {
                        *left = left.saturating_sub(1);
                        if *left == 0 {
                            return Turn::Killed;
                        }
                    }
                    quiet = 0;
                    polls += 1;
                    if polls == POLLS_MAX {
                        return Turn::Spins;
                    }
                }
                // Everything that was spawned runs until it waits, or yields in its turn.
                tokio::task::yield_now().await;
                if doom.is_sealed() {
                    return Turn::Killed;
                }
                quiet += 1;
                if quiet >= QUIET && !woken.0.load(Ordering::Relaxed) {
                    return Turn::Waits;
                }
            }
        };
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(run)))
            .unwrap_or_else(|panic| Turn::Panicked(words(panic.as_ref())))
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a word".into())
}
