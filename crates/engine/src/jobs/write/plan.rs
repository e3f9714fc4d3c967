//! What is to be committed for states that wait, each as the one before leaves things.

use std::collections::BTreeMap;

use plimsoll_core::record::Fields;
use plimsoll_core::store::{Commit, Guard, Merge, Write};
use plimsoll_core::{Ids, Invalid, Name, Result};

use super::draft::Draft;
use super::known::{Known, Last};
use super::queue::Call;
use crate::jobs::info::{Life, Phase};
use crate::jobs::stored::{Keys, NONCE, PAYLOAD, Stored, VERSION};

/// What becomes of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is written as this version.
    Write(u64),
    /// It was written as this version before.
    Repeat(u64),
}

/// Whether a write was made before.
pub(crate) fn decide(last: &Last, floor: u64, event_id: &Name) -> Verdict {
    match last.events.iter().find(|event| event.id == *event_id) {
        Some(event) => Verdict::Repeat(event.version),
        None => Verdict::Write(last.version.unwrap_or(floor) + 1),
    }
}

/// Makes commits for states, one after another. Each is bound to the one before: if that is refused, so are
/// all that follow, and the order in which they were called is kept.
pub(crate) struct Planner<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) life: &'a Life,
    pub(crate) floor: u64,
    pub(crate) known: &'a Known,
    pub(crate) ids: &'a Ids,
    ahead: BTreeMap<Name, Last>,
    before: Option<Guard>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        keys: &'a Keys,
        life: &'a Life,
        floor: u64,
        known: &'a Known,
        ids: &'a Ids,
    ) -> Self {
        Self {
            keys,
            life,
            floor,
            known,
            ids,
            ahead: BTreeMap::new(),
            before: None,
        }
    }

    /// What becomes of the next state, with the commit for it if it is written.
    pub(crate) fn next(&mut self, call: &mut Call) -> Result<(Verdict, Option<Commit>)> {
        let draft = &call.draft;
        let last = match self.ahead.get(&draft.tag) {
            Some(last) => last.clone(),
            None => self.known.last(&draft.tag)?,
        };
        let verdict = decide(&last, self.floor, &draft.event_id);
        let Verdict::Write(version) = verdict else {
            return Ok((verdict, None));
        };
        let nonce = format!("{:x}", self.ids.below(u64::MAX));
        let before = (last.version, last.nonce.clone());
        let mut after = last;
        after.wrote(draft.event_id.clone(), version, nonce.clone());
        let fields = Stored::fields(draft, version, &after.events, &nonce)?;
        let commit = self.commit(draft, before, fields, &nonce)?;
        self.ahead.insert(draft.tag.clone(), after);
        (call.version, call.nonce) = (version, nonce);
        Ok((verdict, Some(commit)))
    }

    /// A commit that writes nothing, and is refused if the job may not be written.
    pub(crate) fn question(&self) -> Result<Commit, Invalid> {
        let mut commit = Commit::new();
        (commit.guards).extend(self.life.guards(self.keys, Phase::Open)?);
        Ok(commit)
    }

    fn commit(
        &mut self,
        draft: &Draft,
        (version, by): (Option<u64>, Option<String>),
        fields: Fields,
        nonce: &str,
    ) -> Result<Commit, Invalid> {
        let mut merge = Merge::new(draft.key.clone()).set(fields);
        if draft.payload.is_none() {
            merge = merge.unset(Name::new(PAYLOAD)?);
        }
        let before = version.map(|version| version.to_string().into());
        let mut commit = Commit::of(Write::Merge(merge)).id(self.ids.commit());
        (commit.guards).extend(self.life.guards(self.keys, Phase::Open)?);
        let before = Guard::Field(draft.key.clone(), Name::new(VERSION)?, before);
        commit.guards.push(before);
        // Others may have written this version as well, if what it was planned for was refused.
        if version.is_some() {
            let same = left_by(draft, by)?;
            if self.before.as_ref() != Some(&same) {
                commit.guards.push(same);
            }
        }
        commit.guards.extend(self.before.take());
        self.before = Some(left_by(draft, Some(nonce.to_owned()))?);
        Ok(commit)
    }
}

/// That the state was left by this very write.
fn left_by(draft: &Draft, nonce: Option<String>) -> Result<Guard, Invalid> {
    let nonce = nonce.map(Into::into);
    Ok(Guard::Field(draft.key.clone(), Name::new(NONCE)?, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::stored::Event;

    #[test]
    fn versions_begin_after_the_floor_and_grow_by_one() -> Result<(), Invalid> {
        let id = Name::new("e")?;
        for floor in [0, 7] {
            let nothing = Last::default();
            assert_eq!(decide(&nothing, floor, &id), Verdict::Write(floor + 1));
            for version in [1, 41] {
                let mut last = Last::default();
                last.wrote(Name::new("d")?, version, "1f".to_owned());
                assert_eq!(decide(&last, floor, &id), Verdict::Write(version + 1));
            }
        }
        Ok(())
    }

    #[test]
    fn what_was_written_last_is_known() -> Result<(), Invalid> {
        let mut last = Last::default();
        last.wrote(Name::new("d")?, 8, "1f".to_owned());
        last.wrote(Name::new("e")?, 9, "2a".to_owned());
        let events = [("d", 8), ("e", 9)].map(|(id, version)| {
            let id = Name::new(id)?;
            Ok(Event { id, version })
        });
        let expected = Last {
            version: Some(9),
            nonce: Some("2a".to_owned()),
            events: events.into_iter().collect::<Result<_, Invalid>>()?,
        };
        assert_eq!(last, expected);
        Ok(())
    }

    #[test]
    fn each_of_the_last_sixteen_events_is_a_repeat_and_no_other() -> Result<(), Invalid> {
        let mut last = Last::default();
        for n in 1..=40 {
            let id = Name::new(n.to_string())?;
            assert_eq!(decide(&last, 0, &id), Verdict::Write(n));
            last.wrote(id, n, n.to_string());
        }
        for n in 1..=41 {
            let expected = match n {
                25..=40 => Verdict::Repeat(n),
                _ => Verdict::Write(41),
            };
            assert_eq!(decide(&last, 0, &Name::new(n.to_string())?), expected);
        }
        Ok(())
    }
}
