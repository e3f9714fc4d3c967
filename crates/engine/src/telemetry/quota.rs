//! How many lines of a kind are written when very many could be.

use std::time::Duration;

/// So many lines in each second.
const LINES_MAX: u64 = 10;
const SPAN: Duration = Duration::from_secs(1);

/// Lets some lines through, and counts those that it holds back.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    since: Duration,
    let_through: u64,
    held_back: u64,
}

impl Quota {
    /// Whether to write a line now, and how many were held back since the last one.
    pub(crate) fn admit(&mut self, now: Duration) -> Option<u64> {
        if now >= self.since + SPAN {
            self.since = now;
            self.let_through = 0;
        }
        if self.let_through < LINES_MAX {
            self.let_through += 1;
            return Some(std::mem::take(&mut self.held_back));
        }
        self.held_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_ten_lines_a_second_and_counted() {
        let mut quota = Quota::default();
        let moment = Duration::from_secs(100);
        let admitted: Vec<_> = (0..25).map(|_| quota.admit(moment)).collect();
        assert_eq!(admitted.iter().flatten().count(), 10);
        assert_eq!(quota.admit(moment + SPAN), Some(15));
        assert_eq!(quota.admit(moment + SPAN), Some(0));
    }
}
