//! Connections that are shared by turns.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use plimsoll_core::clock::{Clock, SystemClock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::Config;
use crate::error::{Answer, Fault};
use crate::schema;
use crate::session::Session;
use crate::tls::Tls;

/// How often a connection of this process fell silent. Then those that were idle meanwhile are no
/// better, probably, and each would have to be waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts(Arc<AtomicU64>);

impl Doubts {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn arise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A few connections. Each call has one for itself.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    most: usize,
    turns: Arc<Semaphore>,
    /// With the doubts that there were when they were used last.
    idle: Mutex<Vec<(u64, Session)>>,
    doubts: Doubts,
    timer: SystemClock,
}

impl Pool {
    pub(crate) fn new(config: &Config, most: usize, doubts: &Doubts) -> Self {
        let most = most.max(1);
        let shared = Shared {
            config: config.clone(),
            most,
            turns: Arc::new(Semaphore::new(most)),
            idle: Mutex::default(),
            doubts: doubts.clone(),
            timer: SystemClock::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// How its connections are encrypted.
    pub(crate) fn tls(&self) -> &Tls {
        &self.shared.config.tls
    }

    /// A connection, when it is the caller's turn.
    pub(crate) async fn session(&self) -> Answer<Pooled> {
        let turn = pin!(self.shared.turns.clone().acquire_owned());
        let patience = self.shared.timer.sleep(self.shared.config.call_timeout);
        let turn = match select(turn, patience).await {
            Either::Left((Ok(turn), _)) => turn,
            Either::Left((Err(_), _)) | Either::Right(_) => {
                return Err(Fault::Unreachable(format!(
                    "all {} connections were busy for {:?}: open with more, or look for what \
                     takes so long",
                    self.shared.most, self.shared.config.call_timeout
                )));
            }
        };
        let idle = loop {
            match self.shared.idle().pop() {
                Some((doubts, session))
                    if session.is_usable() && doubts == self.shared.doubts.now() =>
                {
                    break Some(session);
                }
                Some(_) => {}
                None => break None,
            }
        };
        let session = match idle {
            Some(session) => session,
            None => {
                let mut session = Session::connect(&self.shared.config).await?;
                schema::known(&mut session, &self.shared.config).await?;
                session
            }
        };
        Ok(Pooled {
            session: Some(session),
            shared: self.shared.clone(),
            _turn: turn,
        })
    }
}

impl Shared {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Session)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection on loan. One that a caller left in the middle of something is not used again.
#[derive(Debug)]
pub(crate) struct Pooled {
    session: Option<Session>,
    shared: Arc<Shared>,
    _turn: OwnedSemaphorePermit,
}

impl Pooled {
    /// The connection.
    pub(crate) fn session(&mut self) -> Answer<&mut Session> {
        // It is there until the loan ends.
        (self.session.as_mut()).ok_or_else(|| Fault::Unreachable("the loan has ended".into()))
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        if session.is_silent() {
            self.shared.doubts.arise();
        } else if session.is_usable() {
            let now = self.shared.doubts.now();
            let mut idle = self.shared.idle();
            // Those that nobody would take any more are closed.
            idle.retain(|(doubts, session)| *doubts == now && session.is_usable());
            idle.push((now, session));
        }
    }
}
