//! What the figures of a store mean: pure functions, so that each threshold can be tested.

use std::time::Duration;

use plimsoll::TaskId;
use plimsoll::store::Durability;
use plimsoll::task::{Lane, Violation};
use serde::Serialize;

use crate::table::grouped;
use crate::text::{bytes, count, rough, span};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Ok,
    Warning,
    Problem,
}

impl Verdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// What was looked at, what was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<&'static str>,
}

impl Check {
    pub(super) fn new(check: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            found: found.into(),
            advice: None,
        }
    }

    /// What to do, unless all is well.
    pub(super) fn advise(mut self, advice: &'static str) -> Self {
        self.advice = (self.verdict > Verdict::Ok).then_some(advice);
        self
    }
}

/// The verdict on a figure that should stay below the first limit, and must below the second.
fn below<T: PartialOrd>(figure: T, warning: T, problem: T) -> Verdict {
    match figure {
        figure if figure >= problem => Verdict::Problem,
        figure if figure >= warning => Verdict::Warning,
        _ => Verdict::Ok,
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Where somebody sweeps, nothing is overdue for longer: a pass comes at least every ten seconds.
const SWEPT_WITHIN: Duration = Duration::from_secs(30);

pub(super) fn reached(store: &str, latency: Duration) -> Check {
    let verdict = below(latency, SECOND / 10, SECOND);
    let found = format!("{store} answers within {}", span(latency));
    Check::new("store", verdict, found).advise("The machine or its disk is busy: look at its load.")
}

/// The schema of the file, and what this program knows. A file that nobody has written to has none.
pub(super) fn schema(found: i64, known: i64, writes: bool) -> Check {
    let older = "Programs that know only the older one refuse the file from now on: update them.";
    let unopened =
        "Look without --no-write, which brings it up to date; older programs refuse it then.";
    let (verdict, words, advice) = match found {
        _ if found > known => (
            Verdict::Problem,
            format!("version {found}, this program knows up to {known}"),
            "Use a newer program.",
        ),
        _ if found == known => {
            let words = format!("version {known}, as this program writes it");
            (Verdict::Ok, words, "")
        }
        _ if !writes => (
            Verdict::Problem,
            format!("version {found}, this program writes {known}: not opened"),
            unopened,
        ),
        0 => (
            Verdict::Ok,
            format!("version {known}, written just now"),
            "",
        ),
        _ => (
            Verdict::Warning,
            format!("version {known}, brought up from {found} just now"),
            older,
        ),
    };
    Check::new("schema", verdict, words).advise(advice)
}

pub(super) fn durable(durability: Durability, filesystem: Option<&str>) -> Check {
    let memory = filesystem.filter(|name| ["tmpfs", "ramfs"].contains(name));
    let (verdict, found) = match (durability, memory) {
        (Durability::Disk | Durability::Majority, Some(filesystem)) => (
            Verdict::Warning,
            format!("the file is on {filesystem}, which is memory"),
        ),
        (Durability::Disk, None) => (Verdict::Ok, "every write is on disk".into()),
        (Durability::Majority, None) => (Verdict::Ok, "every write is on most disks".into()),
        (Durability::System, _) => (
            Verdict::Warning,
            "the last writes may be lost with the machine".into(),
        ),
        (Durability::Process, _) => (
            Verdict::Problem,
            "everything is lost with the process".into(),
        ),
    };
    Check::new("durability", verdict, found)
        .advise("Fine for tests. Otherwise use a file on a disk, without durability=system.")
}

/// How long single commits took, each with its fsync.
pub(super) fn committed(mut times: Vec<Duration>) -> Check {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let slowest = times.last().copied().unwrap_or_default();
    let verdict = below(median, SECOND / 20, SECOND / 2);
    let found = format!("takes {}, at most {}", span(median), span(slowest));
    Check::new("commit", verdict, found).advise(
        "The disk takes long for an fsync. `plimsoll bench` measures it; one fsync serves all who wait.",
    )
}

/// What must not be of tasks, and is.
pub(super) fn sound(looked_at: usize, wrong: &[(TaskId, Violation)]) -> Check {
    let (verdict, found) = match wrong {
        [] => (
            Verdict::Ok,
            format!("{} looked at, all sound", count(looked_at as u64, "task")),
        ),
        [(task, violation), rest @ ..] => (
            Verdict::Problem,
            format!("task {task}: {violation}; and {} more", rest.len()),
        ),
    };
    Check::new("tasks", verdict, found).advise(
        "Somebody wrote to the store without this program, or this is a bug: please tell us.",
    )
}

/// How far the store's clock is from this machine's.
pub(super) fn clocks(offset: Duration) -> Check {
    let verdict = below(offset, SECOND, 10 * SECOND);
    let found = match verdict {
        Verdict::Ok => "the store's is this machine's".into(),
        _ => format!("the store's is {} off", span(offset)),
    };
    Check::new("clock", verdict, found).advise("Let both machines keep time with NTP.")
}

/// What time has made ready, and for how long the first of it has been waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overdue {
    pub(super) found: usize,
    /// Whether there are more than were counted.
    pub(super) more: bool,
    pub(super) longest: Option<Duration>,
}

impl Overdue {
    fn judged(self, check: &'static str, thing: &str, words: &str) -> Check {
        let longest = self.longest.unwrap_or_default();
        let verdict = match self.found {
            0 => Verdict::Ok,
            _ => below(longest, SWEPT_WITHIN, 10 * MINUTE),
        };
        let more = if self.more { "more than " } else { "" };
        let since = self.longest.map(rough);
        let since = since.map(|since| format!(", the first for {since}"));
        let found = match self.found {
            0 => format!("none is {words}"),
            found => format!("{more}{} {words}", count(found as u64, thing)),
        };
        Check::new(check, verdict, found + &since.unwrap_or_default())
            .advise("Nobody sweeps this namespace: run a worker in it, or a `Sweeper`.")
    }
}

pub(super) fn promoted(overdue: Overdue) -> Check {
    overdue.judged("scheduled", "task", "overdue")
}

pub(super) fn leases(overdue: Overdue) -> Check {
    overdue.judged("leases", "lease", "over time")
}

/// A lane with tasks that wait.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) lane: Lane,
    pub(super) pending: u64,
    pub(super) claimed: u64,
    /// Whether a worker that runs has a handler for it.
    pub(super) served: bool,
    /// How long the next task has been runnable.
    pub(super) waits: Duration,
}

/// How long a task may wait in a lane that nobody works on before that is told. Workers may be busy
/// with other lanes; where there are none, it is clear sooner.
fn patience(served: bool) -> Duration {
    if served { 5 * MINUTE } else { MINUTE / 2 }
}

pub(super) fn worked_on(lanes: &[Waiting]) -> Check {
    let idle = |lane: &&Waiting| lane.claimed == 0 && lane.waits >= patience(lane.served);
    let mut idle: Vec<_> = lanes.iter().filter(idle).collect();
    idle.sort_by_key(|lane| std::cmp::Reverse(lane.waits));
    let named = idle.iter().take(3).map(|lane| {
        let (pending, waits) = (grouped(lane.pending), rough(lane.waits));
        format!("{} ({pending} pending, for {waits})", lane.lane)
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match idle.len() {
        0 => {
            let waiting = lanes.iter().map(|lane| lane.pending).sum();
            let found = format!("{} pending, none left alone", count(waiting, "task"));
            Check::new("workers", Verdict::Ok, found)
        }
        many => {
            let more = many.saturating_sub(3);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            Check::new(
                "workers",
                Verdict::Warning,
                format!("nobody works on {named}{more}"),
            )
            .advise("Run a worker that handles these kinds of these queues.")
        }
    }
}

/// Entries of the history, and how old the oldest is. By default it is kept for a week.
pub(super) fn history(entries: u64, oldest: Option<Duration>) -> Check {
    let verdict = below(oldest.unwrap_or_default(), 8 * DAY, Duration::MAX);
    let since = oldest.map(|age| format!(", the oldest {} old", rough(age)));
    let entries = match entries {
        1 => "1 entry".into(),
        entries => format!("{} entries", grouped(entries)),
    };
    let found = entries + &since.unwrap_or_default();
    Check::new("history", verdict, found)
        .advise("It is kept for a week by default: run a worker or a `Sweeper`, unless it is kept on purpose.")
}

pub(super) fn finished(tasks: u64) -> Check {
    let verdict = below(tasks, 10_000_000, u64::MAX);
    Check::new("finished", verdict, format!("{} that ended", count(tasks, "task")))
        .advise("Keep them for a shorter time (`Retention`), or delete some: plimsoll task delete --finished-before 7d.")
}

/// Room on the disk, in bytes.
pub(super) fn disk(free: u64, total: u64, file: u64) -> Check {
    const GB: u64 = 1_000_000_000;
    let scarce = free < GB || free < total / 20;
    let gone = free < GB / 10 || free < total / 100;
    let verdict = match (scarce, gone) {
        (_, true) => Verdict::Problem,
        (true, false) => Verdict::Warning,
        (false, false) => Verdict::Ok,
    };
    let found = format!("the file takes {}, {} are free", bytes(file), bytes(free));
    Check::new("disk", verdict, found)
        .advise("Free some space: when the disk is full, every write is refused.")
}

/// The write-ahead log, in bytes. It is moved into the file at 80 MB.
pub(super) fn write_ahead(log: u64) -> Check {
    const MB: u64 = 1_000_000;
    let verdict = below(log, 200 * MB, 2_000 * MB);
    let found = format!("the write-ahead log takes {}", bytes(log));
    Check::new("log", verdict, found)
        .advise("A program reads the file in one long transaction, so that the log cannot be emptied: end it.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Ok, Problem, Warning};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_figure_has_its_limits() {
        let verdicts = |checks: [Check; 3]| checks.map(|check| check.verdict);
        let worse = [Ok, Warning, Problem];
        assert_eq!(
            verdicts([99, 100, 1_000].map(|ms| reached("x", ms * MS))),
            worse
        );
        assert_eq!(
            verdicts([49, 50, 500].map(|ms| committed(vec![ms * MS]))),
            worse
        );
        assert_eq!(
            verdicts([999, 1_000, 10_000].map(|ms| clocks(ms * MS))),
            worse
        );
        let overdue = |seconds| Overdue {
            found: 1,
            more: false,
            longest: Some(seconds * SECOND),
        };
        assert_eq!(verdicts([29, 30, 600].map(|s| promoted(overdue(s)))), worse);
        assert_eq!(verdicts([29, 30, 600].map(|s| leases(overdue(s)))), worse);
        assert_eq!(
            verdicts([50, 4, 0].map(|gb| disk(gb * 1_000_000_000, 100_000_000_000, 0))),
            worse
        );
        assert_eq!(
            verdicts([199, 200, 2_000].map(|mb| write_ahead(mb * 1_000_000))),
            worse
        );
        assert_eq!(history(1, Some(7 * DAY)).verdict, Ok);
        assert_eq!(history(1, Some(8 * DAY)).verdict, Warning);
        assert_eq!(finished(9_999_999).verdict, Ok);
        assert_eq!(finished(10_000_000).verdict, Warning);
    }

    #[test]
    fn a_schema_is_judged_by_what_this_program_knows_and_may_do() {
        for (found, writes, verdict, words) in [
            (2, true, Ok, "version 2, as this program writes it"),
            (2, false, Ok, "version 2, as this program writes it"),
            (3, true, Problem, "version 3, this program knows up to 2"),
            (3, false, Problem, "version 3, this program knows up to 2"),
            (1, true, Warning, "version 2, brought up from 1 just now"),
            (
                1,
                false,
                Problem,
                "version 1, this program writes 2: not opened",
            ),
            (0, true, Ok, "version 2, written just now"),
            (
                0,
                false,
                Problem,
                "version 0, this program writes 2: not opened",
            ),
        ] {
            let check = schema(found, 2, writes);
            assert_eq!((check.verdict, check.found.as_str()), (verdict, words));
            assert_eq!(check.advice.is_some(), verdict > Ok);
        }
    }

    #[test]
    fn what_must_not_be_is_a_problem() {
        assert_eq!(sound(3, &[]).found, "3 tasks looked at, all sound");
        let wrong = [(TaskId::from_u128(7), Violation::Lease); 2];
        let check = sound(3, &wrong);
        assert_eq!(check.verdict, Problem);
        assert!(
            check.found.ends_with("and only they; and 1 more"),
            "{check:?}"
        );
    }

    #[test]
    fn the_median_commit_counts_not_the_slowest() {
        let check = committed(vec![900 * MS, 2 * MS, MS, 3 * MS, 2 * MS]);
        assert_eq!(check.verdict, Ok);
        assert_eq!(check.found, "takes 2ms, at most 900ms");
    }

    #[test]
    fn a_write_that_can_be_lost_is_told() {
        let verdict = |durability, filesystem| durable(durability, filesystem).verdict;
        assert_eq!(verdict(Durability::Disk, Some("ext4")), Ok);
        assert_eq!(verdict(Durability::Disk, Some("tmpfs")), Warning);
        assert_eq!(verdict(Durability::Majority, None), Ok);
        assert_eq!(verdict(Durability::System, None), Warning);
        assert_eq!(verdict(Durability::Process, None), Problem);
    }

    #[test]
    fn what_is_overdue_is_counted() {
        let found = |found, more, longest| {
            let overdue = Overdue {
                found,
                more,
                longest,
            };
            (promoted(overdue).found, leases(overdue).found)
        };
        let (none, _) = found(0, false, None);
        assert_eq!(none, "none is overdue");
        let (tasks, leases) = found(500, true, Some(3 * MINUTE));
        assert_eq!(tasks, "more than 500 tasks overdue, the first for 3m");
        assert_eq!(leases, "more than 500 leases over time, the first for 3m");
    }

    #[test]
    fn lanes_where_nobody_works_are_named_the_longest_waiting_first() {
        let lane = |kind, claimed, minutes| Waiting {
            lane: Lane::new("mail", kind).expect("a lane"),
            pending: 1_000,
            claimed,
            served: true,
            waits: minutes * MINUTE,
        };
        let fine = worked_on(&[lane("a", 1, 60), lane("b", 0, 4)]);
        assert_eq!(fine.verdict, Ok);
        assert_eq!(fine.found, "2,000 tasks pending, none left alone");
        let unserved = |seconds| Waiting {
            served: false,
            waits: seconds * SECOND,
            ..lane("a", 0, 0)
        };
        assert_eq!(worked_on(&[unserved(29)]).verdict, Ok);
        assert_eq!(worked_on(&[unserved(30)]).verdict, Warning);
        let idle = ["c", "d", "e", "f"].map(|kind| lane(kind, 0, 5));
        let idle = worked_on(&[&idle[..], &[lane("z", 0, 90)]].concat());
        let expected = "nobody works on mail/z (1,000 pending, for 1h), mail/c (1,000 pending, for \
                        5m), mail/d (1,000 pending, for 5m) and 2 more";
        assert_eq!((idle.verdict, idle.found.as_str()), (Warning, expected));
    }

    #[test]
    fn advice_is_given_only_where_something_is_wrong() {
        assert_eq!(disk(50, 100, 0).verdict, Problem);
        assert!(disk(50, 100, 0).advice.is_some());
        assert_eq!(reached("x", MS).advice, None);
    }
}
