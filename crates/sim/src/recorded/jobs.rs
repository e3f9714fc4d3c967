//! Job states: partitions that say how far they are, and those who subscribe.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use plimsoll_core::{Error, Name, Result};
use plimsoll_engine::jobs::{
    FINISHED, Manager, NewState, Scope, StateEvent, SubscribeOptions, Subscription,
};
use tokio::sync::watch;

use super::clients::Desk;
use super::log::Event;

const JOBS: [&str; 2] = ["import", "import.b"];
const TAGS: [&str; 2] = ["load", "check"];
const PARTITIONS: u32 = 2;
/// The event that comes last at every tag.
const LAST: &str = "last";
/// How long somebody who subscribes waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who subscribes stays for up to so many events.
const STAYS_FOR: u64 = 100;
/// Of those who come back, one of so many begins from the start.
const FRESH_ONE_OF: u64 = 4;
/// How many events are buffered for one, at most.
const DEPTH_MAX: u64 = 64;

/// What a client takes part in. There are more clients than partitions: some are the same.
fn part(number: usize) -> (&'static str, u32) {
    let partition = u32::try_from(number / 2).unwrap_or(0) % PARTITIONS;
    (JOBS[number % 2], partition)
}

async fn join(desk: &Desk, job: &'static str, partition: u32) -> Result<(Manager, usize)> {
    let joins = desk.recorder.note(Event::Joins(job));
    let manager = desk.engine.jobs().join(job, partition, PARTITIONS).await?;
    let number = desk.recorder.count(Event::Joined(job, joins));
    Ok((manager, number))
}

/// Says how far a partition is, until it is time.
pub(super) async fn report(desk: Desk) -> Result<()> {
    let (job, partition) = part(desk.number);
    let (manager, number) = join(&desk, job, partition).await?;
    let mut step = 0;
    while !desk.is_over() {
        let several = (0..1 + desk.ids.below(3)).map(|more| {
            let (tag, status) = (TAGS[usize::from(desk.ids.below(2) == 0)], step + more);
            say(
                &desk,
                &manager,
                number,
                (tag, status, format!("{number} step {}", step + more)),
            )
        });
        for said in join_all(several).await {
            said?;
        }
        step += 1;
        desk.pause(20).await;
    }
    manager.close().await;
    Ok(())
}

/// Says one thing, and reads it after that.
async fn say(
    desk: &Desk,
    manager: &Manager,
    number: usize,
    (tag, status, event): (&'static str, u64, String),
) -> Result<()> {
    let name = Name::new(tag)?;
    let call = desk.recorder.count(Event::Sets {
        manager: number,
        partition: manager.partition(),
        tag: name.clone(),
        event: event.clone(),
    });
    let status = match event == LAST {
        true => FINISHED,
        false => i32::try_from(status % 90).unwrap_or(0),
    };
    let state = NewState::new(&name, status)?.event_id(&event)?;
    let answer = manager.set_state(state.message(call.to_string())).await;
    desk.recorder.note(Event::Set(call, answer.clone()));
    let written = match answer {
        Ok(written) => written,
        Err(Error::Conflict(_) | Error::Unavailable(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let scope = Scope::all().partition(manager.partition()).tag(tag)?;
    let own = manager.get_state(&scope).await;
    (desk.recorder).note(Event::ReadsOwn(call, written.version, own));
    Ok(())
}

/// Says the last thing at every tag of every partition.
pub(super) async fn finish(desk: Desk) -> Result<()> {
    for job in JOBS {
        for partition in 0..PARTITIONS {
            let (manager, number) = join(&desk, job, partition).await?;
            for tag in TAGS {
                say(&desk, &manager, number, (tag, 0, LAST.to_owned())).await?;
            }
            manager.close().await;
        }
    }
    Ok(())
}

/// Subscribes to a job, and follows it until everything is said. Now and then it goes away, and comes
/// back to where it was, or to the start.
pub(super) async fn follow(desk: Desk, mut done: watch::Receiver<bool>) -> Result<()> {
    let (job, partition) = part(desk.number);
    let scope = match desk.number / 2 % 4 {
        0 => Scope::all(),
        1 => Scope::all().partition(partition),
        2 => Scope::all().tag(TAGS[0])?,
        _ => Scope::all().partition(partition).tag(TAGS[1])?,
    };
    let monitor = loop {
        match desk.engine.jobs().monitor(job).await {
            Ok(monitor) => break monitor,
            Err(Error::NotFound(_)) if !*done.borrow_and_update() => desk.pause(5).await,
            Err(error) => return Err(error),
        }
    };
    let (mut cursor, mut left) = (None, BTreeSet::new());
    loop {
        let after = (cursor.take()).filter(|_| desk.ids.below(FRESH_ONE_OF) > 0);
        let again = match &after {
            Some(_) => Event::Resumes,
            None => {
                left = lasts(&scope);
                Event::Subscribes(desk.number, job, scope.clone())
            }
        };
        desk.recorder.note(again);
        cursor.clone_from(&after);
        let depth = usize::try_from(1 + desk.ids.below(DEPTH_MAX)).unwrap_or(1);
        let options = SubscribeOptions { depth, after };
        let mut subscription = monitor.subscribe(scope.clone(), options).await?;
        let leaves_after = desk.ids.below(STAYS_FOR);
        for _ in 0..=leaves_after {
            let Some(event) = next(&desk, &mut subscription, &mut done).await? else {
                return Ok(());
            };
            let forgets = (desk.spoiler.as_ref()).is_some_and(|spoiler| spoiler.forgets());
            // Before the marker there is no cursor: it can only begin again.
            if !(forgets && cursor.is_some()) {
                cursor = event.cursor();
            }
            heard(&event, &mut left);
            desk.recorder.note(Event::Told(desk.number, event));
            if left.is_empty() && cursor.is_some() {
                return Ok(());
            }
        }
    }
}

/// Where the last thing has yet to be told, of a scope.
fn lasts(scope: &Scope) -> BTreeSet<(u32, &'static str)> {
    let all = (0..PARTITIONS).flat_map(|partition| TAGS.map(|tag| (partition, tag)));
    all.filter(|(of, tag)| {
        scope.partition.is_none_or(|one| one == *of)
            && scope.tag.as_ref().is_none_or(|one| one.as_str() == *tag)
    })
    .collect()
}

/// Something was told; it may be the last thing.
fn heard(event: &StateEvent, left: &mut BTreeSet<(u32, &'static str)>) {
    let StateEvent::State(state) = event else {
        return;
    };
    if (state.event_id.as_ref()).is_some_and(|event| event.as_str() == LAST) {
        left.retain(|(partition, tag)| {
            *partition != state.partition || state.tag.as_ref().is_none_or(|of| of.as_str() != *tag)
        });
    }
}

/// What it is told next; `None`: nothing, though everything was said a while ago.
async fn next(
    desk: &Desk,
    subscription: &mut Subscription,
    done: &mut watch::Receiver<bool>,
) -> Result<Option<StateEvent>> {
    let clock = desk.engine.clock().clone();
    let over = async {
        done.wait_for(|done| *done).await.ok();
        clock.sleep(PATIENCE).await;
    };
    match select(std::pin::pin!(subscription.next()), std::pin::pin!(over)).await {
        Either::Left((event, _)) => Ok(event.transpose()?.map(StateEvent::keep)),
        Either::Right(_) => Ok(None),
    }
}
