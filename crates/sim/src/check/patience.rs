//! How patient those are who follow the history of a store that does not answer: nobody may give up before
//! it has asked as often, and waited as long in between, as it was to.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_engine::history::Reconnect;

use super::Checker;

/// What one life of a process has borne.
#[derive(Debug)]
pub(super) struct Borne {
    reconnect: Reconnect,
    /// The questions that were not answered.
    questions: BTreeMap<String, Unanswered>,
    /// When somebody last had reason to give up.
    used_up: Option<Duration>,
    /// How often the history that follows what it was told was not kept.
    overtaken: u32,
}

/// A question that is asked again and again.
#[derive(Debug, Default)]
struct Unanswered {
    /// How often, where only those count that come after the wait before.
    failures: u32,
    /// When the next one counts.
    from: Duration,
}

impl Checker {
    /// A process begins to live, as patient as this.
    pub(crate) fn begins(&mut self, who: &str, reconnect: Reconnect) {
        let borne = Borne {
            reconnect,
            questions: BTreeMap::new(),
            used_up: None,
            overtaken: 0,
        };
        self.borne.insert(who.to_owned(), borne);
    }

    /// A question was not answered. Those who ask the same are not told apart: at most, somebody is
    /// taken for more patient than it was.
    pub(crate) fn unanswered(&mut self, who: &str, question: String) {
        let now = self.now;
        let Some(borne) = self.borne.get_mut(who) else {
            return;
        };
        let asked = borne.questions.entry(question).or_default();
        if now < asked.from {
            return;
        }
        asked.failures = asked.failures.saturating_add(1);
        match borne.reconnect.wait(asked.failures) {
            Some(wait) => asked.from = now + wait,
            None => borne.used_up = Some(now),
        }
    }

    /// The one in a process who asks this for all was answered.
    pub(crate) fn answered_again(&mut self, who: &str, question: &str) {
        let borne = self.borne.get_mut(who);
        if borne.is_some_and(|borne| borne.questions.remove(question).is_some()) {
            self.figures.reconnected += 1;
        }
    }

    /// What a process has to be told next is not kept any more: it sees what there is, and not how it came about.
    pub(crate) fn is_overtaken(&mut self, who: &str) {
        if let Some(borne) = self.borne.get_mut(who) {
            borne.overtaken += 1;
        }
    }

    /// How often that has happened to it.
    pub(crate) fn times_overtaken(&self, who: &str) -> u32 {
        self.borne.get(who).map_or(0, |borne| borne.overtaken)
    }

    /// Whether somebody who began then has had reason to give up.
    pub(super) fn may_give_up(&self, who: &str, since: Duration) -> bool {
        let used_up = self.borne.get(who).and_then(|borne| borne.used_up);
        used_up.is_some_and(|used_up| used_up >= since)
    }
}
