//! Whether what many clients did to one record could have been done one after another: the search of
//! Wing and Gong, which remembers where it has been (Lowe). Records are independent of each other.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use plimsoll_core::{Key, Revision};

/// What a record holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    /// Who wrote it last.
    pub(crate) by: String,
    pub(crate) count: i64,
    /// `None`: nobody was told.
    pub(crate) revision: Option<Revision>,
}

/// What a client asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Read,
    /// Replaces what there is.
    Put {
        by: String,
    },
    /// Adds to the count.
    Add {
        by: String,
        number: i64,
    },
    /// Changes who wrote it, if that was this one; `None`: if there is no record.
    Swap {
        seen: Option<String>,
        by: String,
    },
    Delete,
}

/// What it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// This is, or was, there.
    Found(Option<Held>),
    /// It is written.
    Written(Revision),
    /// It is written, and this is there now.
    Now(Held),
    /// It is not what was expected.
    Refused,
    /// It is gone; whether it was there.
    Gone(bool),
    /// Nobody knows whether it happened.
    Unknown,
}

/// One call: when it was sent and answered, in steps that everybody shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) key: Key,
    pub(crate) sent: usize,
    pub(crate) answered: usize,
    pub(crate) question: Question,
    pub(crate) answer: Answer,
}

/// A record, and the highest revision that it ever had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Register {
    held: Option<Held>,
    newest: Option<Revision>,
}

impl Register {
    fn write(&self, by: &str, count: i64, revision: Option<Revision>) -> Option<Self> {
        let grows = revision.is_none() || revision > self.newest;
        grows.then(|| Self {
            held: Some(Held {
                by: by.to_owned(),
                count,
                revision,
            }),
            newest: revision.max(self.newest),
        })
    }

    /// Whether this was read here: who does not know a revision takes any.
    fn shows(&self, found: Option<&Held>) -> bool {
        match (&self.held, found) {
            (None, None) => true,
            (Some(held), Some(found)) => {
                let known = held.revision.is_none_or(|at| Some(at) == found.revision);
                (&held.by, held.count) == (&found.by, found.count) && known
            }
            _ => false,
        }
    }

    /// What it is after this call; `None`: it cannot have been answered like this.
    fn after(&self, question: &Question, answer: &Answer) -> Option<Self> {
        let count = self.held.as_ref().map_or(0, |held| held.count);
        let by = self.held.as_ref().map(|held| held.by.as_str());
        match (question, answer) {
            (Question::Read, Answer::Found(found)) => {
                self.shows(found.as_ref()).then(|| self.clone())
            }
            (Question::Put { by }, Answer::Written(at)) => self.write(by, 0, Some(*at)),
            (Question::Put { by }, Answer::Unknown) => self.write(by, 0, None),
            (Question::Add { by, number }, Answer::Now(now)) => {
                let fits = (&now.by, now.count) == (by, count + number);
                fits.then(|| self.write(by, now.count, now.revision))?
            }
            (Question::Add { by, number }, Answer::Unknown) => self.write(by, count + number, None),
            (Question::Swap { seen, by: new }, Answer::Written(at)) if by == seen.as_deref() => {
                self.write(new, count, Some(*at))
            }
            (Question::Swap { seen, .. }, Answer::Refused) if by != seen.as_deref() => {
                Some(self.clone())
            }
            (Question::Swap { seen, by: new }, Answer::Unknown) => match by == seen.as_deref() {
                true => self.write(new, count, None),
                false => Some(self.clone()),
            },
            (Question::Delete, Answer::Gone(was)) if *was != self.held.is_some() => None,
            (Question::Delete, Answer::Gone(_) | Answer::Unknown) => Some(Self {
                held: None,
                newest: self.newest,
            }),
            (Question::Read, Answer::Unknown) => Some(self.clone()),
            _ => None,
        }
    }
}

/// What cannot have been done one after another, in words.
pub(crate) fn linearizable(operations: Vec<Operation>) -> Result<(), String> {
    let mut by_key: BTreeMap<Key, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        (by_key.entry(operation.key.clone()).or_default()).push(operation);
    }
    for (key, mut operations) in by_key {
        operations.sort_by_key(|operation| operation.sent);
        if let Err(reached) = search(&operations) {
            let stuck = operations.iter().skip(reached.saturating_sub(2)).take(6);
            let stuck: Vec<&Operation> = stuck.collect();
            return Err(format!("{key}: no order explains {stuck:#?}"));
        }
    }
    Ok(())
}

/// A way that leads on: what was done, and what the record was before.
struct Step {
    done: usize,
    before: Register,
}

/// Looks for an order. Without one, how many were in order at most. The operations are in the order
/// in which they were sent.
fn search(operations: &[Operation]) -> Result<(), usize> {
    let is_known = |at: usize| operations[at].answer != Answer::Unknown;
    let all = (0..operations.len()).filter(|at| is_known(*at)).count();
    let mut done = BTreeSet::new();
    let (mut answered, mut furthest, mut from) = (0, 0, 0);
    let mut register = Register::default();
    let mut been: HashSet<(usize, Vec<usize>, Register)> = HashSet::new();
    let mut steps: Vec<Step> = Vec::new();
    // Up to here everything is done.
    let mut first = 0;
    while answered < all {
        while done.contains(&first) {
            first += 1;
        }
        // Whoever was sent after another was answered comes after it.
        let mut earliest = usize::MAX;
        let waiting = (first..operations.len()).filter(|at| !done.contains(at));
        let may_be_next: Vec<usize> = waiting
            .take_while(|at| {
                let operation = &operations[*at];
                let early = operation.sent < earliest;
                if is_known(*at) {
                    earliest = earliest.min(operation.answered);
                }
                early
            })
            .collect();
        let next = may_be_next.into_iter().filter(|at| *at >= from);
        let next = next.filter_map(|at| {
            let operation = &operations[at];
            Some((at, register.after(&operation.question, &operation.answer)?))
        });
        let next = next.filter(|(at, after)| been.insert(place(&done, first, *at, after)));
        match { next }.next() {
            Some((at, after)) => {
                done.insert(at);
                answered += usize::from(is_known(at));
                furthest = furthest.max(answered);
                let before = std::mem::replace(&mut register, after);
                steps.push(Step { done: at, before });
                from = 0;
            }
            None => {
                let Some(step) = steps.pop() else {
                    return Err(furthest);
                };
                done.remove(&step.done);
                answered -= usize::from(is_known(step.done));
                first = first.min(step.done);
                register = step.before;
                from = step.done + 1;
            }
        }
    }
    Ok(())
}

/// Where a search is that does this next.
fn place(
    done: &BTreeSet<usize>,
    mut first: usize,
    next: usize,
    after: &Register,
) -> (usize, Vec<usize>, Register) {
    while done.contains(&first) || first == next {
        first += 1;
    }
    let mut beyond: Vec<usize> = done.range(first..).copied().collect();
    beyond.extend((next > first).then_some(next));
    beyond.sort_unstable();
    (first, beyond, after.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, count: i64, revision: u64) -> Held {
        Held {
            by: by.to_owned(),
            count,
            revision: Some(Revision::new(revision)),
        }
    }

    fn add(sent: usize, answered: usize, by: &str, now: (i64, u64)) -> Operation {
        let question = Question::Add {
            by: by.to_owned(),
            number: 1,
        };
        let answer = Answer::Now(held(by, now.0, now.1));
        operation(sent, answered, question, answer)
    }

    fn swap(
        sent: usize,
        answered: usize,
        by: &str,
        seen: Option<&str>,
        answer: Answer,
    ) -> Operation {
        let (seen, by) = (seen.map(str::to_owned), by.to_owned());
        operation(sent, answered, Question::Swap { seen, by }, answer)
    }

    fn read(sent: usize, answered: usize, found: Option<Held>) -> Operation {
        operation(sent, answered, Question::Read, Answer::Found(found))
    }

    fn operation(sent: usize, answered: usize, question: Question, answer: Answer) -> Operation {
        Operation {
            key: Key::new("key").unwrap(),
            sent,
            answered,
            question,
            answer,
        }
    }

    fn written(revision: u64) -> Answer {
        Answer::Written(Revision::new(revision))
    }

    #[test]
    fn what_overlaps_may_have_come_in_any_order() {
        let overlapping = vec![
            add(0, 9, "a", (2, 20)),
            add(1, 8, "b", (1, 10)),
            read(2, 7, Some(held("b", 1, 10))),
            read(3, 6, None),
            swap(4, 10, "c", Some("a"), written(30)),
            swap(5, 11, "d", Some("a"), Answer::Refused),
        ];
        assert_eq!(linearizable(overlapping), Ok(()));
    }

    #[test]
    fn a_stale_read_is_found() {
        let stale = vec![
            add(0, 1, "a", (1, 10)),
            add(2, 3, "b", (2, 20)),
            read(4, 5, Some(held("a", 1, 10))),
        ];
        assert!(linearizable(stale).is_err());
    }

    #[test]
    fn two_swaps_of_the_same_are_found() {
        let both = vec![
            swap(0, 3, "a", None, written(10)),
            swap(1, 2, "b", None, written(20)),
        ];
        assert!(linearizable(both).is_err());
    }

    #[test]
    fn an_add_that_counts_twice_or_not_at_all_is_found() {
        for count in [1, 3] {
            let wrong = vec![add(0, 1, "a", (1, 10)), add(2, 3, "b", (count, 20))];
            assert!(linearizable(wrong).is_err(), "{count}");
        }
    }

    #[test]
    fn a_revision_that_falls_over_deletion_is_found() {
        let gone = operation(2, 3, Question::Delete, Answer::Gone(true));
        let falls = |last| {
            let first = swap(0, 1, "a", None, written(10));
            vec![first, gone.clone(), swap(4, 5, "b", None, written(last))]
        };
        assert_eq!(linearizable(falls(11)), Ok(()));
        assert!(linearizable(falls(9)).is_err());
    }

    #[test]
    fn a_swap_that_is_refused_wrongly_is_found() {
        let wrong = vec![swap(0, 1, "a", None, Answer::Refused)];
        assert!(linearizable(wrong).is_err());
    }

    #[test]
    fn what_nobody_knows_of_may_have_happened_late_or_never() {
        let lost = Question::Add {
            by: "lost".to_owned(),
            number: 5,
        };
        let lost = operation(0, 1, lost, Answer::Unknown);
        for counts in [[1, 2], [1, 7], [6, 7]] {
            let (one, two) = (counts[0], counts[1]);
            let told = vec![
                lost.clone(),
                add(2, 3, "a", (one, 10)),
                add(4, 5, "b", (two, 20)),
            ];
            assert_eq!(linearizable(told), Ok(()), "{counts:?}");
        }
        let twice = vec![lost, add(2, 3, "a", (6, 10)), add(4, 5, "b", (12, 20))];
        assert!(linearizable(twice).is_err());
    }

    #[test]
    fn many_at_once_are_searched_soon() {
        let adds = (0..2_000).map(|n: usize| {
            let turn = 16 * (n / 16);
            let count = i64::try_from(turn + (15 - n % 16) + 1).unwrap();
            add(
                2 * turn + n % 16,
                2 * turn + 16 + n % 16,
                &n.to_string(),
                (count, count as u64),
            )
        });
        assert_eq!(linearizable(adds.collect()), Ok(()));
    }
}
