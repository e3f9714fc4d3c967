//! What a status means, in words, colours and marks.

use plimsoll::jobs::{ERROR, FINISHED, NOT_STARTED, Progress, WARNING};

use crate::screen::{Screen, Tint};
use crate::table::grouped;

/// What a status means. The order is that of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Finished,
    Running,
    Failed,
    NotStarted,
}

impl Standing {
    const ALL: [Self; 4] = [
        Self::Finished,
        Self::Running,
        Self::Failed,
        Self::NotStarted,
    ];

    pub(super) fn of(status: i32) -> Self {
        match status {
            ..0 => Self::Failed,
            NOT_STARTED => Self::NotStarted,
            FINISHED => Self::Finished,
            1.. => Self::Running,
        }
    }

    /// What stands for several: a failure of one, otherwise what all have in common.
    pub(super) fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let together = |one, other| match (one, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (one, other) if one == other => one,
            _ => Self::Running,
        };
        all.into_iter().reduce(together).unwrap_or(Self::NotStarted)
    }

    pub(super) fn tint(self) -> Tint {
        match self {
            Self::Finished => Tint::Good,
            Self::Running => Tint::Busy,
            Self::Failed => Tint::Bad,
            Self::NotStarted => Tint::Faint,
        }
    }

    /// Told apart without colours, too.
    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Finished => "━",
            Self::Running => "╌",
            Self::Failed => "×",
            Self::NotStarted => "·",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::NotStarted => "not started",
        }
    }

    fn count(self, progress: &Progress) -> u32 {
        match self {
            Self::Finished => progress.finished,
            Self::Running => progress.running,
            Self::Failed => progress.failed,
            Self::NotStarted => progress.not_started,
        }
    }
}

/// A status for people: `running 40`.
pub(super) fn words(status: i32) -> String {
    match (status, Standing::of(status)) {
        (ERROR, _) => "error".into(),
        (WARNING, _) => "warning".into(),
        (code, Standing::Failed) => format!("error {code}"),
        (number, Standing::Running) => format!("running {number}"),
        (_, standing) => standing.as_str().into(),
    }
}

/// A status for programs, without its number.
pub(super) fn code(status: i32) -> &'static str {
    match (status, Standing::of(status)) {
        (WARNING, _) => "warning",
        (_, Standing::Failed) => "error",
        (_, Standing::Running) => "running",
        (_, Standing::Finished) => "finished",
        (_, Standing::NotStarted) => "not_started",
    }
}

pub(super) fn tint(status: i32) -> Tint {
    match status {
        WARNING => Tint::Warning,
        status => Standing::of(status).tint(),
    }
}

/// What the marks mean.
pub(super) fn legend() -> String {
    let marks = Standing::ALL.map(|standing| format!("{} {}", standing.mark(), standing.as_str()));
    marks.join("  ")
}

/// `━━━━╌╌××····`: whatever there is at all is seen.
pub(super) fn bar(progress: &Progress, width: usize, screen: &Screen) -> String {
    let cells = share(
        Standing::ALL.map(|standing| standing.count(progress)),
        width,
    );
    let parts = Standing::ALL.iter().zip(cells);
    let parts = parts.filter(|(_, cells)| *cells > 0);
    parts
        .map(|(standing, cells)| screen.paint(standing.tint(), &standing.mark().repeat(cells)))
        .collect()
}

/// `1 failed, 3 finished`: what matters most is not cut off.
pub(super) fn counts(progress: &Progress) -> String {
    let [finished, running, failed, not_started] = Standing::ALL;
    let counts = [failed, finished, running, not_started];
    let counts = counts.map(|standing| (standing.count(progress), standing.as_str()));
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, word)| format!("{} {word}", grouped(count.into())));
    counts.collect::<Vec<_>>().join(", ")
}

/// Shares cells out by counts. Whatever is counted at all gets one; there must be as many cells as counts.
fn share(counts: [u32; 4], width: usize) -> [usize; 4] {
    let all = counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    let width = width as u64;
    if all == 0 {
        return [0; 4];
    }
    let mut cells = counts.map(|count| match count {
        0 => 0,
        count => (u64::from(count) * width / all).max(1),
    });
    while cells.iter().sum::<u64>() > width {
        // Who has most misses it least.
        if let Some(most) = cells.iter_mut().max() {
            *most -= 1;
        }
    }
    while cells.iter().sum::<u64>() < width {
        let missing = |index: &usize| {
            let due = u64::from(counts[*index]) * width;
            due.saturating_sub(cells[*index] * all)
        };
        let most = (0..cells.len()).max_by_key(missing).unwrap_or(0);
        cells[most] += 1;
    }
    cells.map(|cells| usize::try_from(cells).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_word_with_its_number_where_that_says_something() {
        for (status, expected, named) in [
            (i32::MIN, "error -2147483648", "error"),
            (-40, "error -40", "error"),
            (-2, "warning", "warning"),
            (-1, "error", "error"),
            (0, "not started", "not_started"),
            (1, "running 1", "running"),
            (i32::MAX - 1, "running 2147483646", "running"),
            (i32::MAX, "finished", "finished"),
        ] {
            assert_eq!((words(status).as_str(), code(status)), (expected, named));
        }
    }

    #[test]
    fn several_stand_where_all_stand_unless_one_has_failed() {
        use Standing::{Failed, Finished, NotStarted, Running};
        assert_eq!(Standing::of_all([]), NotStarted);
        for one in Standing::ALL {
            assert_eq!(Standing::of_all([one, one]), one);
            assert_eq!(Standing::of_all([one, Failed, one]), Failed);
        }
        assert_eq!(Standing::of_all([Finished, NotStarted]), Running);
        assert_eq!(Standing::of_all([Finished, Finished, Running]), Running);
    }

    #[test]
    fn a_bar_is_as_wide_as_it_should_and_shows_the_smallest_part() {
        for (counts, expected) in [
            ([4, 0, 0, 0], [24, 0, 0, 0]),
            ([1, 1, 1, 1], [6, 6, 6, 6]),
            ([1_997, 1, 1, 1], [21, 1, 1, 1]),
            ([0, 2, 0, 1], [0, 16, 0, 8]),
            ([0, 0, 0, 0], [0; 4]),
            ([u32::MAX, 0, 1, 0], [23, 0, 1, 0]),
        ] {
            assert_eq!(share(counts, 24), expected, "{counts:?}");
        }
        for total in 1..40u32 {
            for finished in 0..=total {
                let cells = share([finished, 0, 0, total - finished], 24);
                assert_eq!(cells.iter().sum::<usize>(), 24, "{finished} of {total}");
                assert_eq!(cells[0] == 24, finished == total);
                assert_eq!(cells[0] == 0, finished == 0);
            }
        }
    }
}
