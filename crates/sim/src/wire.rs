//! The way between a process and the store: calls take time, fail, arrive twice or late; wake-ups
//! get lost, held back, or come for nothing. Whatever passes is traced and shown to the checkers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_core::change::Interest;
use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::Method;
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::group::Group;
use plimsoll_core::record::Record;
use plimsoll_core::store::{
    Capabilities, ChangePage, Changes, Claim, Claimed, Commit, Compact, Compacted, Counts,
    DeclareIndex, Declared, DropIndex, Dropped, Due, DueNow, Exchange, Exchanged, Get, Groups,
    LaneCounts, List, LogPage, Logs, Page, Peek, Receipt, Renew, Renewal, Scan, TaskByKey, Tasks,
};
use plimsoll_core::task::Task;
use plimsoll_core::wake::{Hub, Listener, Wake};
use plimsoll_core::{Error, Limits, Namespace, Result, Store, Timestamp};

use crate::check::{JOBS, moves, renewals};
use crate::dice::Dice;
use crate::planted::Planted;
use crate::trace;
use crate::world::World;

/// What the one in a process asks who follows jobs and their states for all.
const FOLLOWS: &str = "what is next";

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It arrives, and so does its answer.
    Well,
    /// It does not arrive.
    Before,
    /// It arrives, its answer does not.
    After,
    /// It arrives twice.
    Twice,
    /// Its caller gives up, and then it arrives.
    Late,
}

/// A store at the other end of a wire.
#[derive(Debug)]
pub(crate) struct Wire {
    world: Arc<World>,
    who: String,
    dice: Dice,
    hub: Hub,
}

impl Wire {
    pub(crate) fn new(world: Arc<World>, who: String, dice: Dice) -> Self {
        Self {
            world,
            who,
            dice,
            hub: Hub::default(),
        }
    }

    /// Passes wake-ups on, for as long as the process lives.
    pub(crate) async fn pass_on_hints(&self) {
        let mut hints = self.world.memory.wakeups();
        let mut held_back = None;
        loop {
            let wake = hints.next().await;
            let rates = &self.world.profile.hints;
            let calm = self.world.is_calm();
            if !calm && self.dice.chance(rates.dropped) {
                continue;
            }
            if !calm && held_back.is_none() && self.dice.chance(rates.held_back) {
                held_back = Some(wake);
                continue;
            }
            self.hub.notify(&wake);
            if let Some(wake) = held_back.take() {
                self.hub.notify(&wake);
            }
            if !calm && self.dice.chance(rates.spurious) {
                self.hub.notify(&Wake {
                    any_lane: true,
                    history: true,
                    leases: true,
                    logs: true,
                    ..Wake::default()
                });
            }
        }
    }

    fn fate(&self, claims: bool) -> Fate {
        let rates = &self.world.profile.calls;
        if self.world.is_calm() {
            return Fate::Well;
        }
        let now = self.world.clock.monotonic();
        let mut outages = self.world.profile.outages.iter();
        if outages.any(|(from, to)| (*from..*to).contains(&now)) {
            return Fate::Before;
        }
        let mut roll = self.dice.below(1_000);
        for (rate, fate) in [
            (rates.before, Fate::Before),
            (rates.after, Fate::After),
            (rates.duplicate, Fate::Twice),
            (rates.late, Fate::Late),
        ] {
            if roll < rate {
                // A claim that found nothing is not remembered, so that one that arrives after
                // its own repetition would take what nobody knows of until the lease ends.
                return if claims && fate == Fate::Late {
                    Fate::After
                } else {
                    fate
                };
            }
            roll -= rate;
        }
        Fate::Well
    }

    /// One way, from here to the store or back.
    async fn travel(&self) {
        let rates = &self.world.profile.calls;
        let slow = !self.world.is_calm() && self.dice.chance(rates.slow);
        let most = if slow {
            rates.slow_max
        } else {
            rates.latency_max
        };
        let time = self.dice.time(Duration::from_micros(10), most);
        self.world.clock.sleep(time).await;
    }

    /// Makes a call, as fate has it.
    async fn call<T, C, F>(&self, method: Method, claims: bool, call: C) -> Result<T>
    where
        T: Send + 'static,
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let fate = self.fate(claims);
        if fate != Fate::Well {
            self.world
                .say(&self.who, |_| format!("  {method}: {fate:?}"));
        }
        self.travel().await;
        match fate {
            Fate::Before => Err(unavailable(method, Applied::No)),
            Fate::After => {
                drop(call().await);
                self.travel().await;
                Err(unavailable(method, Applied::Unknown))
            }
            Fate::Late => {
                let after = self.dice.millis(1, 20_000);
                self.world
                    .post(after, Box::pin(async move { drop(call().await) }));
                Err(unavailable(method, Applied::Unknown))
            }
            Fate::Twice => {
                drop(call().await);
                self.travel().await;
                let answer = call().await;
                self.travel().await;
                answer
            }
            Fate::Well => {
                let answer = call().await;
                self.travel().await;
                answer
            }
        }
    }

    /// Notes for the checkers that a question was answered or not that those ask who follow states.
    fn asked<T>(&self, question: impl FnOnce() -> String, answer: &Result<T>) {
        if matches!(answer, Err(Error::Unavailable(_))) {
            let mut checker = self.world.checker();
            checker.unanswered(&self.who, question());
        }
    }

    /// Makes an exchange, of which the other writing calls are parts.
    async fn exchanging(&self, method: Method, exchange: Exchange) -> Result<Exchanged> {
        let claims = exchange.claim.is_some();
        self.world.checker().asked(&self.who, &exchange.commits);
        self.world.say(&self.who, |aliases| {
            let renews = exchange
                .renew
                .as_ref()
                .map_or(0, |renew| renew.holders.len());
            let claim = exchange
                .claim
                .as_ref()
                .map(trace::claim)
                .unwrap_or_default();
            let commits = trace::commits(&exchange.commits, aliases);
            format!("{method} {commits} renew {renews} {claim}")
        });
        let (world, dice, sent) = (self.world.clone(), self.dice.clone(), exchange.clone());
        let call = move || {
            let (world, dice, exchange) = (world.clone(), dice.clone(), sent.clone());
            async move { Ok(deliver(&world, &dice, exchange).await) }
        };
        let answer = self.call(method, claims, call).await;
        match &answer {
            Ok(exchanged) => self.told(method, &exchange, exchanged),
            Err(error) => {
                let word = trace::error_word(error);
                self.world.say(&self.who, |_| format!("{method} -> {word}"));
            }
        }
        answer
    }

    fn told(&self, method: Method, exchange: &Exchange, exchanged: &Exchanged) {
        let mut checker = self.world.checker();
        checker.answered(&exchange.commits, &exchanged.commits);
        if let (Some(claim), Some(Ok(claimed))) = (&exchange.claim, &exchanged.claimed) {
            checker.claimed(claim, claimed);
        }
        drop(checker);
        self.world.say(&self.who, |aliases| {
            let receipts = trace::receipts(&exchanged.commits);
            let taken = exchanged.claimed.as_ref().map(|claimed| match claimed {
                Ok(claimed) => trace::claimed(claimed, aliases),
                Err(error) => trace::error_word(error),
            });
            format!("{method} -> {receipts} {}", taken.unwrap_or_default())
        });
    }
}

/// An exchange arrives at the store. The checkers look at once.
async fn deliver(world: &World, dice: &Dice, mut exchange: Exchange) -> Exchanged {
    let memory = &world.memory;
    let (moves, renewals) = (moves(&exchange.commits), renewals(&exchange.commits));
    let mut forgotten = Vec::new();
    if let Some(planted) = world.planted {
        let sent = std::mem::take(&mut exchange.commits);
        for (place, commit) in sent.into_iter().enumerate() {
            match planted.forgets(&commit, dice) {
                Some(receipt) => forgotten.push((place, receipt)),
                None => exchange.commits.push(commit),
            }
        }
        exchange.commits = planted.commits(exchange.commits, dice.ids(), memory);
        exchange.renew = exchange.renew.map(|renew| planted.renew(renew));
        exchange.claim = (exchange.claim).map(|claim| planted.claim(claim, dice.ids(), memory));
    }
    let misled = (world.planted).map(|planted| planted.misleads(&exchange.commits));
    let mut commits = memory.commit(exchange.commits).await;
    Planted::mislead(&misled.unwrap_or_default(), &mut commits);
    for (place, receipt) in forgotten {
        commits.insert(place, Ok(receipt));
    }
    world.checker().moved(moves, &commits);
    let stale = world.checker().stale(renewals, &commits);
    let renewals = match exchange.renew {
        Some(renew) => Some(memory.renew(renew).await),
        None => None,
    };
    let claimed = match exchange.claim {
        Some(claim) => Some(memory.claim(claim).await),
        None => None,
    };
    let mut checker = world.checker();
    checker.look();
    checker.renewed(stale);
    drop(checker);
    Exchanged {
        commits,
        renewals,
        claimed,
    }
}

fn unavailable(method: Method, applied: Applied) -> Error {
    Error::Unavailable(Unavailable {
        applied,
        cause: format!("{method} did not come through"),
    })
}

fn unanswered<T>() -> Result<T> {
    Err(Error::Corrupt(
        "the store did not answer what was asked".into(),
    ))
}

/// Forwards a method that the checkers need not see.
macro_rules! read {
    ($self:ident, $method:ident, $name:ident, $request:ident) => {{
        let memory = $self.world.memory.clone();
        let call = move || {
            let (memory, request) = (memory.clone(), $request.clone());
            async move { memory.$name(request).await }
        };
        $self.call(Method::$method, false, call).await
    }};
}

#[async_trait]
impl Store for Wire {
    fn namespace(&self) -> &Namespace {
        self.world.memory.namespace()
    }

    fn limits(&self) -> &Limits {
        self.world.memory.limits()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            concurrent_writes: self.world.profile.concurrent,
            ..self.world.memory.capabilities()
        }
    }

    async fn get(&self, get: Get) -> Result<Vec<Option<Record>>> {
        let question = get.clone();
        let found = read!(self, Get, get, get);
        self.asked(|| format!("{question:?}"), &found);
        found
    }

    async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        let question = scan.clone();
        let scan = match self.world.planted {
            Some(planted) => planted.scan(scan),
            None => scan,
        };
        let prefix = scan.prefix.clone();
        let page: Result<Page<Record>> = read!(self, Scan, scan, scan);
        self.asked(|| format!("{question:?}"), &page);
        match self.world.planted {
            Some(planted) => page.map(|page| {
                let page = planted.aged(page, prefix.as_str(), &self.who);
                planted.records(page, prefix.as_str(), &self.dice)
            }),
            None => page,
        }
    }

    async fn declare_index(&self, declare: DeclareIndex) -> Result<Declared> {
        read!(self, DeclareIndex, declare_index, declare)
    }

    async fn drop_index(&self, drop: DropIndex) -> Result<Dropped> {
        read!(self, DropIndex, drop_index, drop)
    }

    async fn indexes(&self) -> Result<Vec<Declared>> {
        let memory = self.world.memory.clone();
        let call = move || {
            let memory = memory.clone();
            async move { memory.indexes().await }
        };
        self.call(Method::Indexes, false, call).await
    }

    async fn tasks(&self, tasks: Tasks) -> Result<Vec<Option<Task>>> {
        let rows: Result<Vec<Option<Task>>> = read!(self, Tasks, tasks, tasks);
        let Some(planted) = self.world.planted else {
            return rows;
        };
        let shown = |row: Option<Task>| row.map(|task| planted.task(task));
        Ok(rows?.into_iter().map(shown).collect())
    }

    async fn task_by_key(&self, by: TaskByKey) -> Result<Option<Task>> {
        read!(self, TaskByKey, task_by_key, by)
    }

    async fn list(&self, list: List) -> Result<Page<Task>> {
        let list = match self.world.planted {
            Some(planted) => planted.list(list),
            None => list,
        };
        read!(self, List, list, list)
    }

    async fn peek(&self, peek: Peek) -> Result<Vec<Task>> {
        read!(self, Peek, peek, peek)
    }

    async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        read!(self, Counts, counts, counts)
    }

    async fn groups(&self, groups: Groups) -> Result<Vec<Option<Group>>> {
        read!(self, Groups, groups, groups)
    }

    async fn logs(&self, logs: Logs) -> Result<LogPage> {
        read!(self, Logs, logs, logs)
    }

    async fn changes(&self, changes: Changes) -> Result<ChangePage> {
        let asked = changes.clone();
        let page: Result<ChangePage> = read!(self, Changes, changes, changes);
        if matches!(page, Err(Error::Unavailable(_))) {
            self.world.checker().figures.histories_unread += 1;
        }
        // One in each process follows for all, from one place to the next.
        let follows = |interest: &Interest| matches!(interest, Interest::Records(prefix) if prefix.as_str().starts_with(JOBS));
        match (asked.interests.iter().any(follows), &page) {
            (true, Ok(_)) => self.world.checker().answered_again(&self.who, FOLLOWS),
            (true, Err(Error::NotFound(_))) => self.world.checker().is_overtaken(&self.who),
            (true, _) => self.asked(|| FOLLOWS.to_owned(), &page),
            (false, _) => self.asked(|| format!("{asked:?}"), &page),
        }
        match self.world.planted {
            Some(planted) => page.map(|page| planted.page(page, &asked, &self.dice)),
            None => page,
        }
    }

    async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<Receipt>> {
        let count = commits.len();
        let exchange = Exchange {
            commits,
            ..Exchange::default()
        };
        match self.exchanging(Method::Commit, exchange).await {
            Ok(exchanged) => exchanged.commits,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let exchange = Exchange {
            claim: Some(claim),
            ..Exchange::default()
        };
        let exchanged = self.exchanging(Method::Claim, exchange).await?;
        exchanged.claimed.unwrap_or_else(unanswered)
    }

    async fn renew(&self, renew: Renew) -> Result<Vec<Renewal>> {
        let exchange = Exchange {
            renew: Some(renew),
            ..Exchange::default()
        };
        let exchanged = self.exchanging(Method::Renew, exchange).await?;
        exchanged.renewals.unwrap_or_else(unanswered)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<Exchanged> {
        self.exchanging(Method::Exchange, exchange).await
    }

    async fn due(&self, due: Due) -> Result<DueNow> {
        let memory = self.world.memory.clone();
        let call = move || {
            let memory = memory.clone();
            async move { memory.due(due).await }
        };
        self.call(Method::Due, false, call).await
    }

    async fn compact(&self, compact: Compact) -> Result<Compacted> {
        self.world.say(&self.who, |_| "compact".to_owned());
        let world = self.world.clone();
        let call = move || {
            let (world, compact) = (world.clone(), compact.clone());
            async move {
                let answer = world.memory.compact(compact.clone()).await;
                world.checker().compacted(&compact);
                answer
            }
        };
        self.call(Method::Compact, false, call).await
    }

    async fn ping(&self) -> Result<Timestamp> {
        let memory = self.world.memory.clone();
        let call = move || {
            let memory = memory.clone();
            async move { memory.ping().await }
        };
        self.call(Method::Ping, false, call).await
    }

    fn wakeups(&self) -> Listener {
        self.hub.listen()
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
