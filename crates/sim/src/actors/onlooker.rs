//! Looks at a job without being a part of it: follows its states, reads them, waits at barriers.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::select_all;
use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name, Result};
use plimsoll_engine::jobs::{
    Cursor, Monitor, Scope, State, StateBatch, StateEvent, SubscribeOptions, Subscription,
};

use super::Station;
use super::partition::{PARTITIONS, TAGS, WANTED};
use crate::check::{Awaited, Began, Sight, Since, Telling, View, Waiter};
use crate::planted::Planted;

/// What somebody has been told of a job by each of its subscriptions. It survives crashes.
#[derive(Debug)]
pub(crate) struct Notebook {
    job: &'static str,
    notes: Vec<Notes>,
}

impl Notebook {
    /// Of subscriptions with these scopes, some of which are slow.
    pub(crate) fn new(job: &'static str, subscriptions: Vec<(Scope, bool)>) -> Self {
        let notes = subscriptions.into_iter();
        let notes = notes.map(|(scope, slow)| Notes::new(job, scope, slow));
        Self {
            job,
            notes: notes.collect(),
        }
    }

    /// What each of them was told.
    pub(crate) fn tellings(&self) -> impl Iterator<Item = Telling> {
        self.notes.iter().map(Notes::telling)
    }
}

/// What one of them has told, and where it goes on.
#[derive(Debug)]
struct Notes {
    job: &'static str,
    scope: Scope,
    slow: bool,
    told: Mutex<Told>,
}

#[derive(Clone, Debug)]
struct Told {
    telling: Telling,
    cursor: Option<Cursor>,
}

impl Notes {
    fn new(job: &'static str, scope: Scope, slow: bool) -> Self {
        let telling = Telling::new(job, scope.clone());
        let told = Mutex::new(Told {
            telling,
            cursor: None,
        });
        Self {
            job,
            scope,
            slow,
            told,
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it was told.
    fn telling(&self) -> Telling {
        self.told().telling.clone()
    }
}

/// What it is told, and where it goes on after that.
type News = Result<(Vec<StateEvent>, Option<Cursor>)>;

/// Looks for as long as it lives.
pub(crate) async fn look(station: Station, notebook: Arc<Notebook>) -> Result<()> {
    loop {
        station.pause(10, 2_000).await;
        let sight = station.world.checker().looks(notebook.job);
        let monitor = station.jobs.monitor(notebook.job).await;
        let Some(monitor) = unless_refused(&station, notebook.job, sight, monitor)? else {
            continue;
        };
        let sight = sight.goes_on();
        // As soon as one of them has seen enough, all begin again.
        let notes = notebook.notes.iter();
        let follow_all = notes.map(|notes| follow(&station, notes, &monitor, sight).boxed_local());
        tokio::select! {
            biased;
            (followed, ..) = select_all(follow_all) => followed?,
            asked = ask(&station, notebook.job, &monitor, sight) => asked?,
        }
    }
}

/// Follows the states until something is wrong, or enough is seen.
async fn follow(station: &Station, notes: &Notes, monitor: &Monitor, sight: Sight) -> Result<()> {
    let (dice, world) = (&station.dice, &station.world);
    let began = Began {
        who: station.who.as_str(),
        at: station.engine.clock().monotonic(),
        sight,
    };
    let after = notes.told().cursor.clone().filter(|_| dice.chance(700));
    let resumes = after.is_some();
    let history_is_removed = world.profile.history.is_some();
    let planted = world.planted;
    let goes_on = planted.is_none_or(|planted| planted.resumes(history_is_removed));
    let after = after.filter(|_| goes_on);
    let depth = usize::try_from(dice.range(1, 8)).unwrap_or(4);
    let options = SubscribeOptions { depth, after };
    let subscribed = monitor.subscribe(notes.scope.clone(), options).await;
    let subscribed = unless_refused(station, notes.job, sight, subscribed)?;
    let Some(mut subscription) = subscribed else {
        return Ok(());
    };
    if resumes {
        world.checker().figures.resumed += 1;
        if !goes_on {
            let mut told = notes.told();
            (world.checker()).told(&mut told.telling, &StateEvent::Restarted);
        }
    } else {
        let telling = Telling::new(notes.job, notes.scope.clone());
        let cursor = None;
        *notes.told() = Told { telling, cursor };
    }
    // Who goes on may be behind from the start: that does not count.
    let mut live = false;
    loop {
        let (mut told, waits) = next(station, &mut subscription).await;
        if let Some(planted) = world.planted
            && notes.told().telling.is_replaying()
        {
            told = told.map(|told| planted.hides(notes.job, told, dice, 5));
        }
        live |= waits.for_news;
        world.say(&station.who, |_| format!("is told {told:?}"));
        match &told {
            Some(Ok((events, cursor))) => {
                let mut checker = world.checker();
                checker.figures.lagged += u64::from(live && waits.behind);
                let restarted = matches!(events[..], [StateEvent::Restarted]);
                checker.figures.overtaken += u64::from(live && restarted);
                drop(checker);
                let marker = matches!(events[..], [StateEvent::ReplayComplete { .. }]);
                live = (live || marker) && !restarted;
                note(station, notes, events, cursor.as_ref());
            }
            end => {
                let error = end.as_ref().and_then(|end| end.as_ref().err());
                let mut checker = world.checker();
                checker.told_of_end(&notes.telling(), began, error);
                return Ok(());
            }
        }
        if !world.is_calm() && dice.chance(30) {
            leave(station, notes, &mut subscription);
            return Ok(());
        }
        if notes.slow && !world.is_calm() {
            // Now and then so slow that what it has not read is not kept any more.
            let most = if dice.chance(150) { 60_000 } else { 10_000 };
            station.pause(100, most).await;
        }
    }
}

/// What somebody had to wait for.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    /// What nobody was told yet.
    for_news: bool,
    /// What others were told long ago, and is not kept for it.
    behind: bool,
}

/// The next event or all that are ready, and where it goes on after that.
async fn next(station: &Station, subscription: &mut Subscription) -> (Option<News>, Waits) {
    let one = |event: StateEvent| {
        let cursor = event.cursor();
        (vec![event], cursor)
    };
    let all = |batch: StateBatch| match batch {
        StateBatch::States(states) => (
            states.events().map(StateEvent::keep).collect(),
            states.cursor(),
        ),
        StateBatch::ReplayComplete { cursor } => one(StateEvent::ReplayComplete { cursor }),
        StateBatch::Restarted => one(StateEvent::Restarted),
    };
    let (single, mut waits) = (station.dice.chance(500), Waits::default());
    let told = poll_fn(|context| {
        let polled = match single {
            true => pin!(subscription.next())
                .poll(context)
                .map(|told| told.map(|told| told.map(|event| one(event.keep())))),
            false => pin!(subscription.next_batch())
                .poll(context)
                .map(|told| told.map(|told| told.map(all))),
        };
        waits.for_news |= polled.is_pending() && subscription.is_waiting();
        waits.behind |= polled.is_pending() && !subscription.is_waiting();
        polled
    })
    .await;
    (told, waits)
}

/// Writes down what it was told, and where it goes on.
fn note(station: &Station, notes: &Notes, events: &[StateEvent], cursor: Option<&Cursor>) {
    let (dice, world) = (&station.dice, &station.world);
    let mut told = notes.told();
    let spoilt = world.planted.map(|planted| planted.tells(events));
    for event in spoilt.as_deref().unwrap_or(events) {
        world.checker().told(&mut told.telling, event);
    }
    let is_live = matches!(events, [StateEvent::State(state), ..] if !state.is_replay());
    let repeats = world.planted == Some(Planted::RepeatedState) && dice.chance(400);
    // After a part of the replay there is none: it can only begin again from the start.
    if !(is_live && repeats) {
        told.cursor = cursor.cloned();
    }
}

/// Goes away, and goes on later from where it is by now or from what it was told last.
fn leave(station: &Station, notes: &Notes, subscription: &mut Subscription) {
    if station.world.planted == Some(Planted::EarlyCursor) {
        while let Some(Some(Ok(_))) = subscription.next().now_or_never() {}
    }
    if station.dice.chance(500)
        && let Some(cursor) = subscription.cursor()
    {
        notes.told().cursor = Some(cursor);
    }
}

/// Reads the states and waits for them, again and again.
async fn ask(
    station: &Station,
    job: &'static str,
    monitor: &Monitor,
    mut sight: Sight,
) -> Result<()> {
    let dice = &station.dice;
    loop {
        station.pause(500, 6_000).await;
        if dice.chance(400) {
            if !wait(station, job, monitor, sight).await? {
                return Ok(());
            }
            continue;
        }
        let since = station.world.checker().reads();
        let refreshed = monitor.refresh().await;
        if unless_refused(station, job, sight, refreshed)?.is_none() {
            return Ok(());
        }
        sight = Sight::found(since);
        // What is in memory is answered at once, so that nothing happens in between.
        let Some(view) = read(monitor).now_or_never() else {
            continue;
        };
        let Some(mut view) = unless_refused(station, job, sight, view)? else {
            return Ok(());
        };
        if let Some(planted) = station.world.planted {
            planted.view(&mut view);
        }
        station.world.checker().read(job, since, &view);
    }
}

/// What a reader was answered, unless it was refused as it has to reckon with: the checkers see whether that is so.
fn unless_refused<T>(
    station: &Station,
    job: &str,
    sight: Sight,
    mut answer: Result<T>,
) -> Result<Option<T>> {
    if let Some(planted) = station.world.planted {
        answer = planted.hides(job, answer, &station.dice, 20);
    }
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error @ (Error::NotFound(_) | Error::Conflict(_) | Error::Unavailable(_))) => {
            let mut checker = station.world.checker();
            checker.refused(job, sight, &error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Everything about a job that can be read.
async fn read(monitor: &Monitor) -> Result<View> {
    let mut scopes = vec![Scope::all()];
    for tag in TAGS {
        scopes.push(Scope::all().tag(tag)?);
    }
    for partition in 0..u32::try_from(PARTITIONS).unwrap_or(1) {
        scopes.push(Scope::all().partition(partition));
        for tag in TAGS {
            scopes.push(Scope::all().partition(partition).tag(tag)?);
        }
    }
    let mut spoke = Vec::new();
    for scope in scopes {
        let state = monitor.get_state(&scope).await?;
        spoke.push((scope, state));
    }
    Ok(View {
        partitions: monitor.partitions().await?,
        states: monitor.states(&Scope::all()).await?,
        spoke,
    })
}

/// Waits at a barrier, and looks now and then whether it waits rightly. Answers whether the store could be reached.
async fn wait(
    station: &Station,
    job: &'static str,
    monitor: &Monitor,
    sight: Sight,
) -> Result<bool> {
    let (dice, world) = (&station.dice, &station.world);
    let tag = Name::new(*dice.pick(&TAGS))?;
    let (who, told) = (station.who.as_str(), world.checker().reads());
    let overtaken = world.checker().times_overtaken(who);
    let refreshed = monitor.refresh().await;
    if unless_refused(station, job, sight, refreshed)?.is_none() {
        return Ok(false);
    }
    let sight = Sight::found(told);
    let begun = world.checker().reads();
    let awaited = Awaited {
        job,
        tag: &tag,
        wanted: *dice.pick(&WANTED),
        despite_warnings: dice.chance(300),
        by: Waiter::Onlooker(Since {
            who,
            overtaken,
            told,
            begun,
        }),
    };
    let begin = || {
        let barrier = monitor.barrier(&tag, awaited.wanted)?;
        Ok::<_, Error>(match awaited.despite_warnings {
            true => barrier.despite_warnings(),
            false => barrier,
        })
    };
    if dice.chance(300) {
        let answer = begin()?.within(dice.millis(0, 8_000)).await;
        answered(station, &awaited, answer)?;
        return Ok(true);
    }
    let mut waiting = begin()?.into_future();
    for _ in 0..dice.range(1, 8) {
        let mut answer = (&mut waiting).now_or_never();
        if let Some(planted) = world.planted
            && planted.forgives(&answer)
        {
            (waiting, answer) = (begin()?.into_future(), None);
        } else if let Some(planted) = world.planted {
            let before = world.checker().error_before(&awaited);
            answer = answer.or_else(|| planted.past_error(before, &awaited));
        }
        if let Some(answer) = answer {
            answered(station, &awaited, answer)?;
            return Ok(true);
        }
        station.pause(10, 3_000).await;
        let upto = world.checker().reads();
        let refreshed = monitor.refresh().await;
        if unless_refused(station, job, sight, refreshed)?.is_none() {
            return Ok(false);
        }
        let sleeps = world.planted == Some(Planted::SleepyBarrier);
        let still = (!sleeps).then(|| (&mut waiting).now_or_never());
        match still.flatten() {
            Some(answer) => {
                answered(station, &awaited, answer)?;
                return Ok(true);
            }
            None => world.checker().still_waits(&awaited, upto),
        }
    }
    Ok(true)
}

/// A barrier was answered.
pub(crate) fn answered(
    station: &Station,
    awaited: &Awaited<'_>,
    mut answer: Result<State>,
) -> Result<()> {
    let world = &station.world;
    if let (Some(Planted::DeafBarrier), Err(Error::Conflict(conflict))) = (world.planted, &answer)
        && let Conflict::PartitionFailed { job, tag, .. } = conflict.as_ref()
    {
        let state = State::not_started(job.clone(), 0, Some(tag.clone()));
        let status = awaited.wanted;
        answer = Ok(State { status, ..state });
    }
    if let Some(planted) = world.planted {
        planted.late(&mut answer);
        answer = planted.hides(awaited.job, answer, &station.dice, 300);
    }
    world.say(&station.who, |_| format!("{awaited:?} -> {answer:?}"));
    world.checker().waited_at(awaited, &answer);
    match answer {
        Ok(_) | Err(Error::NotFound(_) | Error::Conflict(_) | Error::Unavailable(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
