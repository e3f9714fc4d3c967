//! Wake-ups between processes, on a connection of their own.
//!
//! What a process writes goes to its own listeners directly. For others, a writer that is the first
//! for a moment sends it itself, right after its commit. What comes soon after goes into an outbox:
//! one task sends what has gathered there as one statement. None of it waits for the disk. That task
//! takes in what others send, too. It ends with the last handle to the database.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream;
use plimsoll_core::clock::{Clock, SystemClock};
use tokio::sync::{Notify, watch};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Notification};

use crate::call::{Call, Sql, params, quoted};
use crate::config::Config;
use crate::connect::connect;
use crate::error::{Answer, Fault};
use crate::notice::{News, Notice};
use crate::session::in_time;
use crate::spawn::spawn;

/// How long after a notification the next one may follow: so long for each change that it told of,
/// and this at most. About so long whoever heard it has enough to do, and then looks for more by itself.
/// What is written until then goes as one.
const REST_EACH: Duration = Duration::from_micros(200);
const REST_MOST: Duration = Duration::from_millis(5);
/// Likewise where very much is written: everybody is busy then, and each notification is three commits of the server
/// beside those that write.
const REST_EACH_OF_MANY: Duration = Duration::from_micros(50);
const REST_MOST_OF_MANY: Duration = Duration::from_millis(10);
/// How long to wait before the first try to connect again, and the longest such wait.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_MOST: Duration = Duration::from_secs(2);
/// How long nothing is said before it is asked whether anybody is there, and how long that may take.
const SILENCE: Duration = Duration::from_secs(5);
/// How long whoever closes a store waits for its last notifications.
const FAREWELL: Duration = Duration::from_secs(1);

const SEND: &str = "SELECT pg_notify($1, notice) FROM unnest($2) notice";

/// What a writer sends after its commit. A lost notification costs a poll: nobody has to wait for the
/// disk.
static AT_ONCE: Sql = Sql {
    text: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)",
    types: &[Type::TEXT, Type::TEXT],
};

/// Who is told what other processes say.
pub(crate) trait Audience: Send + Sync + 'static {
    /// Hears of one namespace.
    fn hears(&self, ns: i32, notice: &Notice);
    /// Hears that anything may have been missed.
    fn missed(&self);
}

/// The connection that listens and tells. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    outbox: Mutex<Outbox>,
    /// Something is to be sent, or there is nobody left who would.
    bell: Notify,
    /// The outbox is empty.
    all_sent: Notify,
    /// Whether it was tried to listen.
    tried: watch::Sender<bool>,
    /// The number of the backend that listens; 0: none does.
    backend: AtomicI32,
    timer: SystemClock,
}

#[derive(Debug, Default)]
struct Outbox {
    waiting: BTreeMap<i32, News>,
    /// What is on its way, until the server has taken it.
    sending: BTreeMap<i32, News>,
    /// Before this moment of the timer nothing else is sent.
    rests_until: Duration,
    closed: bool,
}

impl Listening {
    /// Begins to listen on behalf of an audience, for as long as that is there.
    pub(crate) fn new<A: Audience>(config: &Config, audience: Weak<A>) -> Self {
        let shared = Arc::new(Shared {
            config: config.clone(),
            outbox: Mutex::default(),
            bell: Notify::new(),
            all_sent: Notify::new(),
            tried: watch::Sender::new(false),
            backend: AtomicI32::new(0),
            timer: SystemClock::new(),
        });
        spawn(run(shared.clone(), audience));
        Self { shared }
    }

    /// Waits until it listens, or cannot for now.
    pub(crate) async fn ready(&self) {
        let mut tried = self.shared.tried.subscribe();
        // The sender is there as long as `self` is.
        let _ = tried.wait_for(|tried| *tried).await;
    }

    /// What a writer is to send after its commit, so that other processes hear at once that there is
    /// work. Nothing, if something was sent just now: then it is to be [told](Self::tell).
    pub(crate) fn at_once(&self, ns: i32, news: &News) -> Option<Call> {
        let sender = self.shared.backend.load(Ordering::Relaxed);
        let now = self.shared.timer.monotonic();
        let is_work = news.wake.any_lane || !news.wake.lanes.is_empty();
        let mut outbox = self.shared.outbox();
        if !is_work || sender == 0 || !outbox.is_empty() || now < outbox.rests_until {
            return None;
        }
        outbox.rests_until = now + rest_after(news.changes);
        let channel = self.shared.config.schema.clone();
        let text = Notice::of(news).text(ns, sender);
        Some(Call::new(&AT_ONCE, params![channel, text]))
    }

    /// Tells other processes, soon.
    pub(crate) fn tell(&self, ns: i32, news: &News) {
        if !news.wake.is_empty() {
            let mut outbox = self.shared.outbox();
            outbox.waiting.entry(ns).or_default().absorb(news);
            drop(outbox);
            self.shared.bell.notify_one();
        }
    }

    /// Waits until everything is told, but not for long.
    pub(crate) async fn flush(&self) {
        let shared = &self.shared;
        let all_sent = pin!(async {
            loop {
                let sent = shared.all_sent.notified();
                if shared.outbox().is_empty() {
                    break;
                }
                sent.await;
            }
        });
        select(all_sent, shared.timer.sleep(FAREWELL)).await;
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.shared.outbox().closed = true;
        self.shared.bell.notify_one();
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sending.is_empty()
    }
}

impl Shared {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.outbox().closed
    }

    /// Waits for something to send, and takes all of it. `None`: there is nothing left to do.
    async fn take(&self) -> Option<Vec<String>> {
        loop {
            let now = self.timer.monotonic();
            let rest = {
                let mut outbox = self.outbox();
                let rest = outbox.rests_until.saturating_sub(now);
                if !outbox.waiting.is_empty() && (rest.is_zero() || outbox.closed) {
                    outbox.sending = std::mem::take(&mut outbox.waiting);
                    let changes = outbox.sending.values().map(|news| news.changes).sum();
                    outbox.rests_until = now + rest_after(changes);
                    let sending = outbox.sending.iter();
                    let notices = sending.map(|(ns, news)| Notice::of(news).text(*ns, 0));
                    return Some(notices.collect());
                }
                if outbox.closed {
                    return None;
                }
                (!outbox.waiting.is_empty()).then_some(rest)
            };
            match rest {
                Some(rest) => self.sleep_while_open(rest).await,
                None => self.bell.notified().await,
            }
        }
    }

    /// Likewise, but answers nothing to send after a while: a connection may end without a word.
    async fn take_or_nothing(&self) -> Option<Vec<String>> {
        match select(pin!(self.take()), self.timer.sleep(SILENCE)).await {
            Either::Left((notices, _)) => notices,
            Either::Right(_) => Some(Vec::new()),
        }
    }

    /// How long an answer may take.
    fn patience(&self) -> Duration {
        SILENCE.min(self.config.call_timeout)
    }

    /// What was taken has been sent.
    fn sent(&self) {
        let mut outbox = self.outbox();
        outbox.sending.clear();
        if outbox.is_empty() {
            self.all_sent.notify_waiters();
        }
    }

    /// What was taken may not have been sent, and is sent again.
    fn unsent(&self) {
        let mut outbox = self.outbox();
        for (ns, news) in std::mem::take(&mut outbox.sending) {
            outbox.waiting.entry(ns).or_default().absorb(&news);
        }
    }

    /// Sleeps, unless there is nobody left to work for.
    async fn sleep_while_open(&self, pause: Duration) {
        let closed = pin!(async {
            while !self.is_closed() {
                self.bell.notified().await;
            }
        });
        select(closed, self.timer.sleep(pause)).await;
        // Whoever rang meanwhile wanted something sent.
        self.bell.notify_one();
    }
}

/// How long nothing else is sent after a notification that told of so many changes.
fn rest_after(changes: usize) -> Duration {
    let changes = u32::try_from(changes).unwrap_or(u32::MAX);
    let few = (REST_EACH.saturating_mul(changes)).clamp(REST_EACH, REST_MOST);
    let many = REST_EACH_OF_MANY.saturating_mul(changes);
    few.max(many.min(REST_MOST_OF_MANY))
}

/// Listens and tells until nobody is left.
async fn run<A: Audience>(shared: Arc<Shared>, audience: Weak<A>) {
    let mut pause = RECONNECT_FIRST;
    loop {
        let mut connected = false;
        match talk(&shared, &audience, &mut connected).await {
            Ok(()) => return,
            Err(fault) => tracing::warn!(?fault, "no wake-ups from other processes for now"),
        }
        shared.backend.store(0, Ordering::Relaxed);
        shared.unsent();
        shared.tried.send_replace(true);
        pause = pause_after(pause, connected);
        shared.sleep_while_open(pause).await;
        if shared.is_closed() {
            return;
        }
    }
}

/// How long to wait before the next try to connect: after a connection that broke not for long,
/// after a try that failed longer than before. What ends in between is noticed after this at most.
fn pause_after(pause: Duration, connected: bool) -> Duration {
    match connected {
        true => RECONNECT_FIRST,
        false => (pause * 2).min(RECONNECT_MOST),
    }
}

/// Listens and tells with one connection. An error says that it broke.
async fn talk<A: Audience>(
    shared: &Shared,
    audience: &Weak<A>,
    connected: &mut bool,
) -> Answer<()> {
    let mut server = shared.config.server.clone();
    let name = server.get_application_name().unwrap_or("plimsoll");
    server.application_name(format!("{name} listener"));
    let connect = connect(&server, &shared.config.tls);
    let (client, mut connection) = in_time(shared.config.connect_timeout(), connect).await?;
    let mut messages = stream::poll_fn(|context| connection.poll_message(context));
    let hear = pin!(async {
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(told) = message? {
                take_in(&told, shared.backend.load(Ordering::Relaxed), audience);
            }
        }
        Err(Fault::Unreachable("PostgreSQL ended the connection".into()))
    });
    let tell = pin!(async {
        let pid = in_time(shared.patience(), begin(&client, &shared.config)).await?;
        shared.backend.store(pid, Ordering::Relaxed);
        *connected = true;
        // Nobody knows what was said while nobody listened.
        if let Some(audience) = audience.upgrade() {
            audience.missed();
        }
        shared.tried.send_replace(true);
        tell(shared, &client).await
    });
    match select(hear, tell).await {
        Either::Left((ended, _)) => ended,
        Either::Right((ended, _)) => ended,
    }
}

/// Prepares a connection. Answers the number of its backend.
async fn begin(client: &Client, config: &Config) -> Answer<i32> {
    let pid = client.query_typed("SELECT pg_backend_pid()", &[]).await?;
    let channel = quoted(&config.schema);
    // A lost notification costs a poll: nobody has to wait for the disk.
    let listen = format!("SET synchronous_commit = off; LISTEN {channel}");
    client.batch_execute(&listen).await?;
    let pid = pid.first().map(|row| row.try_get(0)).transpose()?;
    pid.ok_or_else(|| Fault::Corrupt("a backend without a number".into()))
}

/// Passes on what somebody else said. This process has told its own listeners already.
fn take_in<A: Audience>(told: &Notification, own: i32, audience: &Weak<A>) {
    let Some(audience) = audience.upgrade().filter(|_| told.process_id() != own) else {
        return;
    };
    match Notice::read(told.payload()) {
        Some((_, _, sender)) if sender == own => {}
        Some((ns, notice, _)) => audience.hears(ns, &notice),
        None => audience.missed(),
    }
}

/// Sends what gathers in the outbox, until there is nobody left to fill it.
async fn tell(shared: &Shared, client: &Client) -> Answer<()> {
    while let Some(notices) = shared.take_or_nothing().await {
        in_time(shared.patience(), send(shared, client, notices)).await?;
        shared.sent();
    }
    Ok(())
}

async fn send(shared: &Shared, client: &Client, notices: Vec<String>) -> Answer<()> {
    let channel = &shared.config.schema;
    let params: [(&(dyn ToSql + Sync), Type); 2] =
        [(channel, Type::TEXT), (&notices, Type::TEXT_ARRAY)];
    Ok(client.query_typed(SEND, &params).await.map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_was_told_the_later_comes_more() {
        assert_eq!(rest_after(0), REST_EACH);
        assert_eq!(rest_after(1), REST_EACH);
        assert_eq!(rest_after(7), REST_EACH * 7);
        assert_eq!(rest_after(25), REST_MOST);
        assert_eq!(rest_after(100), REST_MOST);
        assert_eq!(rest_after(101), REST_EACH_OF_MANY * 101);
        assert_eq!(rest_after(200), REST_MOST_OF_MANY);
        assert_eq!(rest_after(usize::MAX), REST_MOST_OF_MANY);
    }

    /// How soon all is well after the cause of a fault has ended.
    const WELL_WITHIN: Duration = Duration::from_secs(5);

    /// The next try after the cause has ended succeeds, so one pause is all that is left of it.
    #[test]
    fn no_pause_leaves_too_little_of_the_time_to_be_well_again() {
        // Whichever of twelve tries connect.
        for connects in 0..1_u32 << 12 {
            let mut pause = RECONNECT_FIRST;
            for n in 0..12 {
                let (before, connected) = (pause, connects >> n & 1 == 1);
                pause = pause_after(pause, connected);
                assert!(pause >= RECONNECT_FIRST && pause <= WELL_WITHIN / 2);
                assert!(connected || pause > before || pause == RECONNECT_MOST);
                assert!(!connected || pause == RECONNECT_FIRST);
            }
        }
    }
}
