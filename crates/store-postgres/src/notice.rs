//! What processes tell each other: text that is small enough for one notification.

use plimsoll_core::task::Lane;
use plimsoll_core::wake::Wake;
use serde::{Deserialize, Serialize};

/// PostgreSQL takes less than 8,000 bytes.
const BYTES_MAX: usize = 7_900;

/// What may be worth a look in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) wake: Wake,
    /// Tasks were submitted in somebody's transaction.
    pub(crate) inbox: bool,
}

/// Namespace, flags, lanes, sender. `plimsoll.submit` writes it, too.
#[derive(Debug, Serialize, Deserialize)]
struct Stored(
    i32,
    String,
    #[serde(default)] Vec<(String, String)>,
    #[serde(default)] i32,
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
            inbox: true,
        }
    }

    /// Its text. What does not fit becomes "any lane". The sender is the number of the backend that
    /// listens for this process, which has heard of it already; 0: it has not.
    pub(crate) fn text(&self, ns: i32, sender: i32) -> String {
        let lanes = self.wake.lanes.iter();
        let lanes = lanes.map(|lane| (lane.queue.to_string(), lane.kind.to_string()));
        let text = stored(ns, self.flags(), lanes.collect(), sender);
        match text.len() <= BYTES_MAX {
            true => text,
            false => stored(ns, self.flags() + "a", Vec::new(), sender),
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
        let Stored(ns, flags, lanes, sender) = serde_json::from_str(text).ok()?;
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
            inbox: has('i'),
        };
        Some((ns, notice, sender))
    }
}

fn stored(ns: i32, flags: String, lanes: Vec<(String, String)>, sender: i32) -> String {
    // Numbers and text are always written.
    serde_json::to_string(&Stored(ns, flags, lanes, sender)).unwrap_or_default()
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
            inbox: false,
        }
    }

    #[test]
    fn every_combination_comes_back() {
        for bits in 0..32_u8 {
            let has = |bit: u8| bits & (1 << bit) != 0;
            let notice = Notice {
                wake: Wake {
                    any_lane: has(0),
                    history: has(1),
                    leases: has(2),
                    logs: has(3),
                    ..lanes(usize::from(!has(0)) * 3, 1).wake
                },
                inbox: has(4),
            };
            assert_eq!(Notice::read(&notice.text(7, 5)), Some((7, notice, 5)));
        }
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
