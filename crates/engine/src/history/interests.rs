//! What one reader asks for, for many who are interested in something.

use plimsoll_core::change::Interest;
use plimsoll_core::{Invalid, Prefix};

/// Interests that cover all of these, at most about `max`. What is more than they asked for is left to
/// those who read.
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
    if records.len() + groups.len() + tasks.len() > max {
        records = common(&records)?.into_iter().collect();
        groups = common(&groups)?.into_iter().collect();
    }
    if records.len() + groups.len() + tasks.len() > max {
        tasks = vec![all_of(&tasks)];
    }
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

/// What all of them begin with.
fn common(prefixes: &[Prefix]) -> Result<Option<Prefix>, Invalid> {
    // They are in order: what the first and the last have in common, all have.
    let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else {
        return Ok(None);
    };
    let (first, last) = (first.as_str(), last.as_str());
    let same = first.char_indices().zip(last.chars());
    let differ = same.into_iter().find(|((_, a), b)| a != b);
    let end = differ.map_or(first.len().min(last.len()), |((at, _), _)| at);
    Prefix::new(&first[..end]).map(Some)
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
        assert_eq!(narrow(asked, 2).unwrap(), records(&["jobs."]));
        assert_eq!(narrow(records(&["x", "y"]), 1).unwrap(), records(&[""]));
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
