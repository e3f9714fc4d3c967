//! What is to be committed for states that wait, each as the one before leaves things.

use std::collections::BTreeMap;

use plimsoll_core::record::Fields;
use plimsoll_core::store::{Commit, Guard, Merge, Write};
use plimsoll_core::{Ids, Invalid, Name, Result};

use super::draft::Draft;
use super::known::{Known, Last};
use crate::jobs::info::{Life, Phase};
use crate::jobs::stored::{EVENTS_KEPT, Event, Keys, NONCE, PAYLOAD, Stored, VERSION};

/// What becomes of one state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is written as this version.
    Write(u64),
    /// It was written as this version before.
    Repeat(u64),
}

/// Whether a write was made before; otherwise what this one leaves, but for its nonce.
pub(crate) fn decide(last: Option<&Last>, floor: u64, event_id: &Name) -> (Verdict, Last) {
    let last = last.cloned().unwrap_or_default();
    if let Some(event) = last.events.iter().find(|event| event.id == *event_id) {
        return (Verdict::Repeat(event.version), last);
    }
    let version = last.version.unwrap_or(floor) + 1;
    let mut events = last.events;
    let id = event_id.clone();
    events.push(Event { id, version });
    let surplus = events.len().saturating_sub(EVENTS_KEPT);
    events.drain(..surplus);
    let last = Last {
        version: Some(version),
        nonce: None,
        events,
    };
    (Verdict::Write(version), last)
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
    pub(crate) fn next(&mut self, draft: &Draft) -> Result<(Verdict, Option<Commit>)> {
        let last = match self.ahead.get(&draft.tag) {
            Some(last) => Some(last.clone()),
            None => self.known.last(&draft.tag)?,
        };
        let (verdict, mut after) = decide(last.as_ref(), self.floor, &draft.event_id);
        let commit = match verdict {
            Verdict::Repeat(_) => None,
            Verdict::Write(version) => {
                let nonce = format!("{:x}", self.ids.below(u64::MAX));
                let fields = Stored::fields(draft, version, &after.events, &nonce)?;
                let commit = self.commit(draft, last.as_ref(), fields, &nonce)?;
                after.nonce = Some(nonce);
                Some(commit)
            }
        };
        self.ahead.insert(draft.tag.clone(), after);
        Ok((verdict, commit))
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
        last: Option<&Last>,
        fields: Fields,
        nonce: &str,
    ) -> Result<Commit, Invalid> {
        let mut merge = Merge::new(draft.key.clone()).set(fields).returning();
        if draft.payload.is_none() {
            merge = merge.unset(Name::new(PAYLOAD)?);
        }
        let before = last.and_then(|last| last.version);
        let before = before.map(|version| version.to_string().into());
        let mut commit = Commit::of(Write::Merge(merge)).id(self.ids.commit());
        (commit.guards).extend(self.life.guards(self.keys, Phase::Open)?);
        let version = Guard::Field(draft.key.clone(), Name::new(VERSION)?, before);
        commit.guards.push(version);
        // Others may have written this version as well, if what it was planned for was refused.
        if let Some(last) = last {
            let same = by(draft, last.nonce.as_deref())?;
            if self.before.as_ref() != Some(&same) {
                commit.guards.push(same);
            }
        }
        commit.guards.extend(self.before.take());
        self.before = Some(by(draft, Some(nonce))?);
        Ok(commit)
    }
}

/// That the state was left by this very write.
fn by(draft: &Draft, nonce: Option<&str>) -> Result<Guard, Invalid> {
    let nonce = nonce.map(|nonce| nonce.to_owned().into());
    Ok(Guard::Field(draft.key.clone(), Name::new(NONCE)?, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(version: Option<u64>, events: &[(&str, u64)]) -> Result<Last, Invalid> {
        let events = events.iter().map(|(id, version)| {
            let (id, version) = (Name::new(id)?, *version);
            Ok(Event { id, version })
        });
        let events = events.collect::<Result<_, Invalid>>()?;
        Ok(Last {
            version,
            nonce: None,
            events,
        })
    }

    #[test]
    fn versions_begin_after_the_floor_and_grow_by_one() -> Result<(), Invalid> {
        let id = Name::new("e")?;
        for floor in [0, 7] {
            let (verdict, after) = decide(None, floor, &id);
            assert_eq!(verdict, Verdict::Write(floor + 1));
            assert_eq!(after, last(Some(floor + 1), &[("e", floor + 1)])?);
            for version in [1, 41] {
                let before = last(Some(version), &[("d", version)])?;
                let (verdict, after) = decide(Some(&before), floor, &id);
                assert_eq!(verdict, Verdict::Write(version + 1));
                let events = [("d", version), ("e", version + 1)];
                assert_eq!(after, last(Some(version + 1), &events)?);
            }
        }
        Ok(())
    }

    #[test]
    fn each_of_the_last_sixteen_events_is_a_repeat_and_no_other() -> Result<(), Invalid> {
        let mut before = Last::default();
        for n in 1..=40 {
            let (verdict, after) = decide(Some(&before), 0, &Name::new(n.to_string())?);
            assert_eq!(verdict, Verdict::Write(n));
            before = after;
        }
        for n in 1..=41 {
            let (verdict, after) = decide(Some(&before), 0, &Name::new(n.to_string())?);
            if (25..=40).contains(&n) {
                assert_eq!((verdict, after), (Verdict::Repeat(n), before.clone()));
            } else {
                assert_eq!(verdict, Verdict::Write(41), "{n}");
            }
        }
        Ok(())
    }
}
