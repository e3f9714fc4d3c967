//! What one reader asks for, for many who are interested in something.

use std::cmp::Reverse;

use plimsoll_core::change::Interest;
use plimsoll_core::{Invalid, Prefix};

/// Interests that cover all of these, at most about `max`. What is more than they asked for is left to
/// those who read, so that what is closest is asked for together, and everything only if nothing else is
/// left to do.
pub(super) fn narrow(
    interests: impl IntoIterator<Item = Interest>,
    max: usize,
) -> Result<Vec<Interest>, Invalid> {
    let (mut records, mut groups, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for interest in interests {
        match interest {
            Interest::Records(prefix) => records.push(prefix),
            Interest::Groups(prefix) => groups.push(prefix),
            Interest::Tasks { .. } if tasks.contains(&interest) => {}
            Interest::Tasks { .. } => tasks.push(interest),
        }
    }
    outermost(&mut records);
    outermost(&mut groups);
    let room = |others: usize| max.saturating_sub(others);
    merge(&mut records, room(groups.len() + tasks.len()), 1)?;
    merge(&mut groups, room(records.len() + tasks.len()), 1)?;
    if records.len() + groups.len() + tasks.len() > max && !tasks.is_empty() {
        tasks = vec![all_of(&tasks)];
    }
    merge(&mut records, room(groups.len() + tasks.len()), 0)?;
    merge(&mut groups, room(records.len() + tasks.len()), 0)?;
    let records = records.into_iter().map(Interest::Records);
    let groups = groups.into_iter().map(Interest::Groups);
    Ok(tasks.into_iter().chain(records).chain(groups).collect())
}

/// Leaves out what begins with another.
fn outermost(prefixes: &mut Vec<Prefix>) {
    prefixes.sort();
    // Whatever begins with a prefix comes right after it.
    prefixes.dedup_by(|later, kept| kept.matches(later.as_str()));
}

/// Puts prefixes together until at most `max` are left, those with the most in common first, and only
/// those that have at least so much in common. They are in order, and none begins with another.
fn merge(prefixes: &mut Vec<Prefix>, max: usize, least: usize) -> Result<(), Invalid> {
    let mut left = prefixes.len();
    if left <= max {
        return Ok(());
    }
    // What each has in common with the next. In this order, no other two have more.
    let pairs = prefixes.windows(2);
    let shared: Vec<usize> = pairs.map(|pair| common(&pair[0], &pair[1])).collect();
    let mut closest: Vec<usize> = (0..shared.len()).collect();
    closest.sort_by_key(|&at| Reverse(shared[at]));
    // Which of them are asked for together with the next.
    let mut joined = vec![false; shared.len()];
    for at in closest {
        if left <= max || shared[at] < least {
            break;
        }
        if joined[at] {
            continue;
        }
        // All that begin with the same are together now.
        let before = (0..at).rev().take_while(|&one| shared[one] >= shared[at]);
        let after = (at..shared.len()).take_while(|&one| shared[one] >= shared[at]);
        for one in before.chain(after) {
            left -= usize::from(!std::mem::replace(&mut joined[one], true));
        }
    }
    let mut merged: Vec<Prefix> = Vec::with_capacity(left);
    for (at, prefix) in std::mem::take(prefixes).into_iter().enumerate() {
        match merged.last_mut() {
            Some(last) if joined[at - 1] => {
                let end = common(last, &prefix);
                *last = Prefix::new(&last.as_str()[..end])?;
            }
            Some(_) | None => merged.push(prefix),
        }
    }
    *prefixes = merged;
    Ok(())
}

/// How many bytes two prefixes have in common, in whole characters.
fn common(one: &Prefix, other: &Prefix) -> usize {
    let (one, other) = (one.as_str(), other.as_str());
    let same = one.char_indices().zip(other.chars());
    let differ = same.into_iter().find(|((_, a), b)| a != b);
    differ.map_or(one.len().min(other.len()), |((at, _), _)| at)
}

/// All tasks; only those that have ended, if nobody wants others.
fn all_of(tasks: &[Interest]) -> Interest {
    let ended = |interest: &Interest| matches!(interest, Interest::Tasks { terminal: true, .. });
    Interest::Tasks {
        queue: None,
        kind: None,
        id: None,
        group: None,
        terminal: tasks.iter().all(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{Ids, clock::ManualClock};
    use std::sync::Arc;

    fn records(prefixes: &[&str]) -> Vec<Interest> {
        let prefixes = prefixes.iter().map(|text| Prefix::new(text).unwrap());
        prefixes.map(Interest::Records).collect()
    }

    fn task(terminal: bool) -> Interest {
        let ids = Ids::random(Arc::new(ManualClock::new()));
        Interest::Tasks {
            queue: None,
            kind: None,
            id: Some(ids.task()),
            group: None,
            terminal,
        }
    }

    #[test]
    fn what_another_one_covers_is_left_out() {
        let asked = records(&["a.b", "a.", "b", "a.b.c", "a."]);
        assert_eq!(narrow(asked, 64).unwrap(), records(&["a.", "b"]));
        assert_eq!(narrow(records(&["", "x"]), 64).unwrap(), records(&[""]));
    }

    #[test]
    fn more_than_can_be_asked_for_becomes_what_they_have_in_common() {
        let asked = records(&["jobs.é1.", "jobs.é2.", "jobs.è3."]);
        assert_eq!(narrow(asked.clone(), 3).unwrap().len(), 3);
        let closest = records(&["jobs.è3.", "jobs.é"]);
        assert_eq!(narrow(asked.clone(), 2).unwrap(), closest);
        assert_eq!(narrow(asked, 1).unwrap(), records(&["jobs."]));
        assert_eq!(narrow(records(&["x", "y"]), 1).unwrap(), records(&[""]));
    }

    #[test]
    fn the_closest_are_put_together_first() {
        let jobs = ["jobs.a", "jobs.b", "jobs.c", "states.a.", "states.b."];
        let asked = || records(&jobs).into_iter().chain(records(&["config.", "x"]));
        for (max, expected) in [
            (7, None),
            (
                6,
                Some(&["config.", "jobs.a", "jobs.b", "jobs.c", "states.", "x"][..]),
            ),
            (5, Some(&["config.", "jobs.", "states.", "x"])),
            (4, Some(&["config.", "jobs.", "states.", "x"])),
            (3, Some(&[""])),
        ] {
            let narrowed = narrow(asked(), max).unwrap();
            let expected = expected.map_or(narrow(asked(), 99).unwrap(), records);
            assert_eq!(narrowed, expected, "{max}");
        }
        // As many as it takes, and not one more.
        let asked = records(&["a.1", "a.2", "b.1", "b.2"]);
        assert_eq!(narrow(asked, 3).unwrap(), records(&["a.", "b.1", "b.2"]));
        // What is inside goes first, and what is around it takes all of that in.
        let asked = || records(&["p.a", "p.q.a", "p.q.b", "p.r", "z"]);
        assert_eq!(
            narrow(asked(), 4).unwrap(),
            records(&["p.a", "p.q.", "p.r", "z"])
        );
        assert_eq!(narrow(asked(), 3).unwrap(), records(&["p.", "z"]));
    }

    #[test]
    fn forty_watched_jobs_do_not_make_one_read_everything() {
        let jobs = (0..40).flat_map(|n| {
            [
                format!("plimsoll.jobs.{n}"),
                format!("plimsoll.states.{n}."),
            ]
        });
        let asked: Vec<_> = jobs.chain(["config.".to_owned()]).collect();
        let asked: Vec<_> = asked.iter().map(String::as_str).collect();
        let narrowed = narrow(records(&asked), 64).unwrap();
        assert!(narrowed.len() <= 64);
        assert!(narrowed.contains(&records(&["config."])[0]));
        for interest in &narrowed {
            let Interest::Records(prefix) = interest else {
                panic!("{interest:?}");
            };
            let named = ["config.", "plimsoll.jobs.", "plimsoll.states."];
            assert!(named.iter().any(|named| prefix.as_str().starts_with(named)));
        }
        for one in records(&asked) {
            let Interest::Records(one) = &one else {
                continue;
            };
            let covers =
                |of: &Interest| matches!(of, Interest::Records(of) if of.matches(one.as_str()));
            assert!(narrowed.iter().any(covers), "{one:?}");
        }
    }

    #[test]
    fn before_everything_is_read_all_tasks_are() {
        let asked = || {
            [task(true), task(true)]
                .into_iter()
                .chain(records(&["a", "b"]))
        };
        let narrowed = narrow(asked(), 3).unwrap();
        assert_eq!(narrowed[1..], records(&["a", "b"]));
        assert!(matches!(narrowed[0], Interest::Tasks { id: None, .. }));
        assert_eq!(narrow(asked(), 2).unwrap()[1..], records(&[""]));
    }

    #[test]
    fn tasks_stay_named_as_long_as_there_is_room() {
        let tasks = [task(true), task(true), task(true)];
        let asked = || tasks.iter().cloned().chain(records(&["a.1", "a.2"]));
        assert_eq!(narrow(asked(), 5).unwrap().len(), 5);
        assert_eq!(narrow(asked(), 4).unwrap().len(), 4);
        let all = narrow(asked(), 3).unwrap();
        assert_eq!(all.len(), 2);
        assert!(matches!(
            all[0],
            Interest::Tasks {
                id: None,
                terminal: true,
                ..
            }
        ));
        let all = narrow(asked().chain([task(false)]), 3).unwrap();
        assert!(matches!(
            all[0],
            Interest::Tasks {
                id: None,
                terminal: false,
                ..
            }
        ));
    }

    #[test]
    fn nobody_is_interested_in_anything() {
        assert_eq!(narrow([], 64).unwrap(), []);
    }
}
