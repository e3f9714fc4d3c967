//! Two transactions beside each other, one of which takes effect after the other.
//!
//! Many tasks that are new and have nothing to do with each other are written by two connections: while the server
//! works on one half, the other is on its way, and it has more than one processor. What was promised still holds:
//! commits of one call take effect in order. So the second half is written, but its end waits for the end of the first.

use std::collections::BTreeSet;

use futures::future::join;
use plimsoll_core::Timestamp;
use plimsoll_core::error::Applied;
use plimsoll_core::store::{Commit, Write};
use plimsoll_core::task::NewTask;
use tokio::sync::watch;

use super::{About, Done, Failed, Part, tries};
use crate::apply::MANY;
use crate::error::Fault;
use crate::pool::Pool;

/// The place of a transaction beside another one.
#[derive(Debug)]
pub(crate) struct Beside {
    /// When both are said to happen: which tasks are first in line does not depend on who was faster.
    pub(super) now: Timestamp,
    /// Of the second one: the end of the first.
    pub(super) first: Option<End>,
}

/// Whether a transaction has happened, as soon as that is known.
type End = watch::Receiver<Option<bool>>;

/// Waits for the end of a transaction. Answers whether it has happened.
pub(super) async fn has_happened(end: &End) -> bool {
    let mut end = end.clone();
    let known = end.wait_for(Option::is_some).await;
    known.is_ok_and(|happened| *happened == Some(true))
}

/// The task that a commit submits, if that is all it does, and it has nothing to do with others.
fn lone(commit: &Commit) -> Option<&NewTask> {
    match &commit.writes[..] {
        [Write::Submit(new)] if commit.id.is_none() && commit.guards.is_empty() => {
            (new.key.is_none() && new.group.is_none()).then_some(new)
        }
        _ => None,
    }
}

/// Takes the second half out of a part, if it can be carried out beside the first.
pub(super) fn second_half(part: &mut Part) -> Option<Part> {
    let others = part.renew.is_some() || part.claim.is_some() || part.inbox.is_some();
    if others || part.commits.len() < 2 * MANY {
        return None;
    }
    let lone = part.commits.iter().map_while(lone);
    let ids: BTreeSet<_> = lone.map(|task| task.id).collect();
    // Of tasks with the same id the first counts.
    (ids.len() == part.commits.len()).then(|| Part {
        commits: part.commits.split_off(part.commits.len().div_ceil(2)),
        ..Part::default()
    })
}

/// Carries out two parts beside each other. What has to be tried again is carried out one after the other; if nothing
/// is known of the first, the second does not happen.
pub(super) async fn carry_out(
    pool: &Pool,
    about: About<'_>,
    mut first: Part,
    mut second: Part,
) -> [Result<Done, Failed>; 2] {
    let (tell, told) = watch::channel(None);
    let now = about.clock.now();
    let beside = |first| Some(Beside { now, first });
    (first.beside, second.beside) = (beside(None), beside(Some(told)));
    let one = async {
        let tried = tries::once(pool, about, &first).await;
        tell.send_replace(Some(tried.is_ok()));
        tried
    };
    let (one, two) = join(one, tries::once(pool, about, &second)).await;
    (first.beside, second.beside) = (None, None);
    let one = again(pool, about, first, one).await;
    let two = match (&one, two) {
        (Err(_), Err(_)) => {
            let why = "not tried: those before it in the same call failed";
            Err((Fault::Unreachable(why.into()), Applied::No))
        }
        (_, two) => again(pool, about, second, two).await,
    };
    [one, two]
}

/// Carries out what has not happened, if that is of use.
async fn again(
    pool: &Pool,
    about: About<'_>,
    part: Part,
    tried: Result<Done, Failed>,
) -> Result<Done, Failed> {
    match tried {
        Err((fault, Applied::No)) if !fault.is_final() => tries::carry_out(pool, about, part).await,
        tried => tried,
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use plimsoll_core::clock::SystemClock;
    use plimsoll_core::store::Guard;
    use plimsoll_core::task::Lane;
    use plimsoll_core::{Ids, Key};

    use super::*;

    fn tasks(count: usize) -> Vec<NewTask> {
        let ids = Ids::random(std::sync::Arc::new(SystemClock::new()));
        let lane = Lane::new("queue", "kind").expect("a lane");
        let task = |_| NewTask::new(ids.task(), lane.clone(), "payload");
        (0..count).map(task).collect()
    }

    fn submit(task: NewTask) -> Commit {
        Commit::of(Write::Submit(Box::new(task)))
    }

    fn key() -> Key {
        Key::new("key").expect("a key")
    }

    /// How many commits each half has, if there are two.
    fn cut(commits: Vec<Commit>) -> Option<(usize, usize)> {
        let mut first = Part {
            commits,
            ..Part::default()
        };
        let second = second_half(&mut first)?;
        Some((first.commits.len(), second.commits.len()))
    }

    #[test]
    fn many_new_tasks_are_two_transactions() {
        let all = |count| tasks(count).into_iter().map(submit).collect();
        assert_eq!(cut(all(2 * MANY - 1)), None);
        assert_eq!(cut(all(2 * MANY)), Some((MANY, MANY)));
        assert_eq!(cut(all(2 * MANY + 1)), Some((MANY + 1, MANY)));
    }

    #[test]
    fn what_depends_on_others_stays_in_one() {
        let but = |change: fn(&mut Vec<NewTask>)| {
            let mut tasks = tasks(2 * MANY);
            change(&mut tasks);
            cut(tasks.into_iter().map(submit).collect())
        };
        assert!(but(|_| ()).is_some());
        assert_eq!(but(|tasks| tasks[9].id = tasks[MANY + 9].id), None);
        let key = |tasks: &mut Vec<NewTask>| {
            let key = "key".try_into().expect("a key");
            tasks[MANY] = tasks[MANY].clone().key(key);
        };
        assert_eq!(but(key), None);
        let group = |tasks: &mut Vec<NewTask>| {
            tasks[MANY].group = Some("group".try_into().expect("a group"));
        };
        assert_eq!(but(group), None);
    }

    #[test]
    fn other_commits_stay_in_one() {
        let but = |change: fn(Commit) -> Commit| {
            let mut all: Vec<_> = tasks(2 * MANY).into_iter().map(submit).collect();
            let one = all.pop().expect("a commit");
            all.push(change(one));
            cut(all)
        };
        assert!(but(|commit| commit).is_some());
        assert_eq!(but(|commit| commit.guard(Guard::RecordAbsent(key()))), None);
        assert_eq!(but(|commit| commit.write(Write::Delete(key()))), None);
        assert_eq!(but(|_| Commit::new()), None);
    }
}
