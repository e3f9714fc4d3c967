//! Connections that are shared by turns.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use plimsoll_core::clock::{Clock, SystemClock};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

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

/// How many connections are made at the same time. A server that has just started, or ended them all, is busy with
/// the first ones, and those are of use before the last ones are there.
const MADE_AT_ONCE: usize = 2;
/// Whoever has waited so long for others who make one makes its own nevertheless: they may wait for a server that does
/// not answer.
const MADE_ALONE: Duration = Duration::from_millis(250);

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
    /// One was given back.
    given_back: Notify,
    making: Semaphore,
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
            given_back: Notify::new(),
            making: Semaphore::new(MADE_AT_ONCE),
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
        let session = match self.shared.take() {
            Some(session) => session,
            None => self.make().await?,
        };
        Ok(Pooled {
            session: Some(session),
            shared: self.shared.clone(),
            _turn: turn,
        })
    }

    /// Makes a connection, unless one is given back before it can begin.
    async fn make(&self) -> Answer<Session> {
        let shared = &self.shared;
        let mut patience = pin!(shared.timer.sleep(MADE_ALONE));
        let mut making = pin!(shared.making.acquire());
        let _making = loop {
            let given_back = pin!(shared.given_back.notified());
            match select(select(&mut making, &mut patience), given_back).await {
                Either::Left((Either::Left((making, _)), _)) => break making.ok(),
                Either::Left((Either::Right(_), _)) => break None,
                Either::Right(_) => {
                    if let Some(session) = shared.take() {
                        return Ok(session);
                    }
                }
            }
        };
        if let Some(session) = shared.take() {
            return Ok(session);
        }
        let mut session = Session::connect(&shared.config).await?;
        schema::known(&mut session, &shared.config).await?;
        Ok(session)
    }
}

impl Shared {
    /// One that nobody uses, if it can be relied on.
    fn take(&self) -> Option<Session> {
        let doubts = self.doubts.now();
        loop {
            let (then, session) = self.idle().pop()?;
            if session.is_usable() && then == doubts {
                return Some(session);
            }
        }
    }

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
            drop(idle);
            self.shared.given_back.notify_one();
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use std::task::Poll;

    use futures::poll;

    use super::*;

    async fn pool() -> Pool {
        let config = Config::of_tests();
        schema::migrate(&config).await.expect("a schema");
        Pool::new(&config, 8, &Doubts::default())
    }

    #[tokio::test]
    async fn few_connections_are_made_at_once_and_who_waits_takes_what_is_given_back() {
        let pool = pool().await;
        let first = pool.session().await.expect("a connection");
        let making = &pool.shared.making;
        {
            let (mut one, mut other) = (pin!(pool.session()), pin!(pool.session()));
            assert!(poll!(&mut one).is_pending() && poll!(&mut other).is_pending());
            assert_eq!(making.available_permits(), 0);
            let mut third = pin!(pool.session());
            assert!(poll!(&mut third).is_pending());
            drop(first);
            assert!(matches!(poll!(&mut third), Poll::Ready(Ok(_))));
        }
        assert_eq!(making.available_permits(), MADE_AT_ONCE);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever_for_others_who_do_not_get_a_connection() {
        let pool = pool().await;
        let making = pool.shared.making.acquire_many(MADE_AT_ONCE as u32).await;
        let mut session = pool.session().await.expect("a connection");
        assert!(session.session().is_ok_and(|session| session.is_usable()));
        assert!(making.is_ok());
    }
}
