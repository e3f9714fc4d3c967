//! Locks as the history tells them: one holder at a time, tokens that grow, a line that moves.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::change::{Change, Entry, Removal};
use plimsoll_core::record::{Record, integer};
use plimsoll_core::store::{Commit, Get, Guard, Scan, Write};
use plimsoll_core::{Key, Prefix, Result, Store, Timestamp};

use super::Checker;

pub(crate) const LOCKS: &str = "plimsoll.locks.";
pub(crate) const WAITERS: &str = "plimsoll.lock-waiters.";
const LINES: &str = "plimsoll.lock-lines.";

/// How often somebody in the line may be passed over by those who came later: those who hand a lock
/// over may have looked at the line before.
const PASSED_MAX: u64 = 3;
/// How long what is not a lock that is held may live without a sign of life.
const RECORD_TTL_MAX: Duration = Duration::from_secs(30);

/// What is known of locks.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) locks: BTreeMap<Key, Lock>,
    /// Whether an operator asked to end what this holder has; who is not named, nobody asked for.
    given_up: BTreeMap<String, bool>,
    /// Those in the lines, and how often each was passed over.
    line: BTreeMap<Key, u64>,
}

/// A lock as the history tells it.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) holder: Option<Holder>,
    /// Everybody who had it, by token.
    pub(super) terms: BTreeMap<u64, Term>,
    /// The highest token that what it protects has seen.
    pub(super) seen: u64,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) id: String,
    /// `None` while it is only reserved.
    pub(super) token: Option<u64>,
}

/// The time for which somebody had a lock.
#[derive(Debug, Default)]
pub(super) struct Term {
    holder: String,
    /// Who was told that it is theirs.
    pub(super) told: Option<u64>,
    pub(super) ended: Option<(Duration, End)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    GivenUp,
    Broken,
    Expired,
}

impl Checker {
    /// An actor is about to give locks up: its own, or as an operator those of others.
    pub(super) fn asked_of_locks(&mut self, who: &str, commit: &Commit) {
        for guard in &commit.guards {
            let Guard::Field(key, _, Some(holder)) = guard else {
                continue;
            };
            let ends = |write: &Write| match write {
                Write::Delete(gone) => gone == key,
                Write::Put(put) => put.key == *key,
                _ => false,
            };
            if key.as_str().starts_with(LOCKS) && commit.writes.iter().any(ends) {
                let holder = String::from_utf8_lossy(holder).into_owned();
                *self.locks.given_up.entry(holder).or_default() |= who == "operator";
            }
        }
    }

    /// Goes through what an entry says of locks and of those who wait for them.
    pub(super) fn look_at_locks(&mut self, entry: &Entry) {
        for change in &entry.changes {
            match change {
                Change::Put(record) if record.key.as_str().starts_with(LOCKS) => {
                    self.look_at_lock(record, entry);
                }
                Change::Removed { key, how, .. } if key.as_str().starts_with(LOCKS) => {
                    let end = match how {
                        Removal::Deleted => self.given_up(key),
                        Removal::Expired => End::Expired,
                    };
                    self.end_term(key, end);
                }
                Change::Put(record) if record.key.as_str().starts_with(WAITERS) => {
                    self.locks.line.insert(record.key.clone(), 0);
                    self.look_at_ttl(record, record.modified_at);
                }
                Change::Put(record) if record.key.as_str().starts_with(LINES) => {
                    self.look_at_ttl(record, record.modified_at);
                }
                Change::Removed { key, .. } => {
                    self.locks.line.remove(key);
                }
                _ => {}
            }
        }
    }

    fn look_at_lock(&mut self, record: &Record, entry: &Entry) {
        let text =
            |field| String::from_utf8_lossy(record.field(field).map_or(&[], |v| v)).into_owned();
        let (id, reserved) = (text("holder"), record.field("reserved").is_some());
        let lock = self.locks.locks.entry(record.key.clone()).or_default();
        let wrong = match &lock.holder {
            Some(held) if held.id == id && held.token.is_some() && !reserved => {
                let told = record.field("token").and_then(|token| integer(token));
                let told = told.and_then(|token| u64::try_from(token).ok());
                // A call that took it may arrive once more when its time is over, and then what
                // renewed it before: nobody relies on that.
                let term = told.and_then(|token| lock.terms.get(&token));
                let own = term.is_some_and(|term| term.holder == id);
                (!own).then(|| format!("was renewed with token {told:?}"))
            }
            had if reserved => {
                // Its holder has given it up, or has died: then whoever finds that reserves it.
                if had.is_some() {
                    let end = self.given_up(&record.key);
                    self.end_term(&record.key, end);
                }
                self.look_at_ttl(record, record.modified_at);
                self.look_at_line(&record.key, entry);
                let lock = self.locks.locks.entry(record.key.clone()).or_default();
                lock.holder = Some(Holder { id, token: None });
                None
            }
            Some(held) if held.id != id => Some("was taken from another".into()),
            Some(_) | None => {
                let token = record.revision.get();
                let highest = lock.terms.last_key_value().map_or(0, |(token, _)| *token);
                let term = Term {
                    holder: id.clone(),
                    ..Term::default()
                };
                lock.terms.insert(token, term);
                lock.holder = Some(Holder {
                    id,
                    token: Some(token),
                });
                self.figures.locks_taken += 1;
                self.count_taken(&record.key);
                (token <= highest).then(|| format!("has token {token} after {highest}"))
            }
        };
        if let Some(wrong) = wrong {
            self.blame("locks", format!("{} {wrong}", record.key));
        }
    }

    /// Why a lock ended that was not left to expire.
    fn given_up(&mut self, key: &Key) -> End {
        let holder = (self.locks.locks.get(key)).and_then(|lock| lock.holder.as_ref());
        let asked = holder.and_then(|holder| self.locks.given_up.get(&holder.id));
        match asked {
            Some(true) => End::Broken,
            Some(false) => End::GivenUp,
            None => {
                self.blame("locks", format!("{key} was released by another"));
                End::GivenUp
            }
        }
    }

    fn end_term(&mut self, key: &Key, end: End) {
        let (now, lock) = (self.now, self.locks.locks.entry(key.clone()).or_default());
        let token = lock.holder.take().and_then(|holder| holder.token);
        if let Some(term) = token.and_then(|token| lock.terms.get_mut(&token)) {
            term.ended = Some((now, end));
            self.figures.locks_expired += u64::from(end == End::Expired);
            self.figures.locks_broken += u64::from(end == End::Broken);
        }
    }

    /// A lock was handed over: not often to somebody who came later than others.
    fn look_at_line(&mut self, lock: &Key, entry: &Entry) {
        self.figures.hand_overs += 1;
        let served = entry.changes.iter().find_map(|change| match change {
            Change::Removed { key, .. } if key.as_str().starts_with(WAITERS) => Some(key.clone()),
            _ => None,
        });
        let Some(served) = served else {
            return self.blame("line", format!("{lock} was handed to nobody in the line"));
        };
        let name = lock.as_str().strip_prefix(LOCKS).unwrap_or_default();
        let before = format!("{WAITERS}{}.{name}.", name.len());
        let earlier = (self
            .locks
            .line
            .range::<Key, _>(..&served)
            .map(|(key, _)| key.clone()))
        .filter(|key| key.as_str().starts_with(&before));
        let keys: Vec<Key> = earlier.collect();
        if keys.is_empty() {
            return;
        }
        // Those who are gone count for nothing.
        let live = self.source.live();
        let rows = live.and_then(|store| store.get(Get { keys }).now_or_never());
        for waiter in rows.and_then(Result::ok).into_iter().flatten().flatten() {
            let passed = self.locks.line.entry(waiter.key.clone()).or_default();
            *passed += 1;
            if *passed > PASSED_MAX {
                let wrong = format!("{} was passed over {PASSED_MAX} times", waiter.key);
                self.blame("line", wrong);
            }
        }
    }

    /// Nothing about those who wait is there for long after the last sign of life.
    fn look_at_ttl(&mut self, record: &Record, heard: Timestamp) {
        let latest = heard.saturating_plus(RECORD_TTL_MAX);
        if record.expires_at.is_none_or(|at| at > latest) {
            let until = record.expires_at;
            self.blame("locks", format!("{} stays until {until:?}", record.key));
        }
    }

    /// Whoever waited is gone, so nothing may stay of it.
    pub(super) fn compare_lines(&mut self) {
        // Where clocks jump, it may have been heard of at another time.
        let now = match self.clock_jumps {
            true => Timestamp::MAX,
            false => self.store_time(),
        };
        for prefix in [WAITERS, LINES] {
            for record in self.records(prefix) {
                self.look_at_ttl(&record, now);
            }
        }
    }

    /// The records whose keys begin like this.
    pub(super) fn records(&self, prefix: &str) -> Vec<Record> {
        let scan = Prefix::new(prefix).map(|prefix| Scan::new(prefix, 1_000));
        let page = scan
            .ok()
            .and_then(|scan| self.source.live()?.scan(scan).now_or_never());
        page.and_then(Result::ok)
            .map_or_else(Vec::new, |page| page.rows)
    }
}
