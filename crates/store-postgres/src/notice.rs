//! What processes tell each other: text that is small enough for one notification.

use plimsoll_core::Timestamp;
use plimsoll_core::task::Lane;
use plimsoll_core::wake::Wake;
use serde::{Deserialize, Serialize};

/// PostgreSQL takes less than 8,000 bytes.
const BYTES_MAX: usize = 7_900;

/// What transactions have to tell, and of how many changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    pub(crate) wake: Wake,
    pub(crate) changes: usize,
    /// Since when tasks wait that nobody has seen before, if that is not now: they were given back, or
    /// their transaction took long.
    pub(crate) back_to: Option<Timestamp>,
}

impl News {
    /// Takes in other news.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.wake.absorb(&other.wake);
        self.changes += other.changes;
        self.back_to = earlier(self.back_to, other.back_to);
    }
}

pub(crate) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// What may be worth a look in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) wake: Wake,
    /// Since when tasks wait that nobody has seen before, if that is not now.
    pub(crate) back_to: Option<Timestamp>,
    /// Tasks were submitted in somebody's transaction.
    pub(crate) inbox: bool,
}

/// Namespace, flags, lanes, sender, and since when. `plimsoll.submit` writes it, too.
#[derive(Debug, Serialize, Deserialize)]
struct Stored(
    i32,
    String,
    #[serde(default)] Vec<(String, String)>,
    #[serde(default)] i32,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<i64>,
);

impl Notice {
    /// That everything may have changed.
    pub(crate) fn everything() -> Self {
        Self {
            wake: Wake {
                any_lane: true,
                history: true,
                leases: true,
                logs: true,
                ..Wake::default()
            },
            back_to: Some(Timestamp::MIN),
            inbox: true,
        }
    }

    /// What transactions have to tell.
    pub(crate) fn of(news: &News) -> Self {
        Self {
            wake: news.wake.clone(),
            back_to: news.back_to,
            inbox: false,
        }
    }

    /// Its text. What does not fit becomes "any lane". The sender is the number of the backend that
    /// listens for this process, which has heard of it already; 0: it has not.
    pub(crate) fn text(&self, ns: i32, sender: i32) -> String {
        let lanes = self.wake.lanes.iter();
        let lanes = lanes.map(|lane| (lane.queue.to_string(), lane.kind.to_string()));
        let since = self.back_to.map(Timestamp::as_micros);
        // Numbers and text are always written.
        let stored = |flags, lanes| {
            serde_json::to_string(&Stored(ns, flags, lanes, sender, since)).unwrap_or_default()
        };
        let text = stored(self.flags(), lanes.collect());
        match text.len() <= BYTES_MAX {
            true => text,
            false => stored(self.flags() + "a", Vec::new()),
        }
    }

    fn flags(&self) -> String {
        let wake = &self.wake;
        let flags = [
            (wake.any_lane, 'a'),
            (wake.history, 'h'),
            (wake.leases, 'l'),
            (wake.logs, 'g'),
            (self.inbox, 'i'),
        ];
        flags
            .iter()
            .filter_map(|(set, flag)| set.then_some(*flag))
            .collect()
    }

    /// The namespace, what is told of it, and by whom; `None`: it is not understood.
    pub(crate) fn read(text: &str) -> Option<(i32, Self, i32)> {
        let Stored(ns, flags, lanes, sender, since) = serde_json::from_str(text).ok()?;
        let lanes = lanes
            .iter()
            .map(|(queue, kind)| Lane::new(queue, kind).ok());
        let has = |flag| flags.contains(flag);
        let notice = Self {
            wake: Wake {
                lanes: lanes.collect::<Option<_>>()?,
                any_lane: has('a'),
                history: has('h'),
                leases: has('l'),
                logs: has('g'),
            },
            back_to: since.map(Timestamp::from_micros).transpose().ok()?,
            inbox: has('i'),
        };
        Some((ns, notice, sender))
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn lanes(count: usize, length: usize) -> Notice {
        let lane = |n| Lane::new("q\"\n".repeat(length), format!("k{n}")).expect("a lane");
        Notice {
            wake: Wake {
                lanes: (0..count).map(lane).collect(),
                ..Wake::default()
            },
            ..Notice::default()
        }
    }

    #[test]
    fn every_combination_comes_back() {
        let since = Timestamp::from_micros(7).expect("a moment");
        for bits in 0..64_u8 {
            let has = |bit: u8| bits & (1 << bit) != 0;
            let notice = Notice {
                wake: Wake {
                    any_lane: has(0),
                    history: has(1),
                    leases: has(2),
                    logs: has(3),
                    ..lanes(usize::from(!has(0)) * 3, 1).wake
                },
                back_to: has(5).then_some(since),
                inbox: has(4),
            };
            assert_eq!(Notice::read(&notice.text(7, 5)), Some((7, notice, 5)));
        }
    }

    #[test]
    fn news_go_back_to_the_earliest() {
        let at = |micros| Timestamp::from_micros(micros).expect("a moment");
        let news = |back_to| News {
            changes: 2,
            back_to,
            ..News::default()
        };
        let both = |one: Option<i64>, other: Option<i64>| {
            let mut one = news(one.map(at));
            one.absorb(&news(other.map(at)));
            (one.changes, one.back_to)
        };
        assert_eq!(both(None, None), (4, None));
        assert_eq!(both(Some(3), None), (4, Some(at(3))));
        assert_eq!(both(None, Some(3)), (4, Some(at(3))));
        assert_eq!(both(Some(5), Some(3)), (4, Some(at(3))));
    }

    #[test]
    fn lanes_that_do_not_fit_become_any() {
        let text = lanes(64, 42).text(1, 0);
        assert!(text.len() <= BYTES_MAX);
        let (_, notice, _) = Notice::read(&text).expect("a notice");
        assert!(notice.wake.any_lane && notice.wake.lanes.is_empty());
    }

    #[test]
    fn sql_may_leave_the_lanes_out_and_noise_is_not_understood() {
        let (ns, notice, sender) = Notice::read(r#"[3,"i"]"#).expect("a notice");
        assert_eq!((ns, notice.inbox, sender), (3, true, 0));
        assert_eq!(notice.wake, Wake::default());
        for noise in ["", "hello", "[]", r#"[1,"",[["",""]]]"#] {
            assert_eq!(Notice::read(noise), None);
        }
    }
}
