//! Which numbers of a range are missing.

use std::collections::BTreeMap;

/// Missing numbers, as runs: the first of each, and the one after its last. As small as what is there
/// is orderly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps(BTreeMap<u32, u32>);

impl Gaps {
    /// All numbers below this are missing.
    pub(crate) fn upto(end: u32) -> Self {
        Self((end > 0).then_some((0, end)).into_iter().collect())
    }

    /// The lowest one that is missing.
    pub(crate) fn first(&self) -> Option<u32> {
        self.0.first_key_value().map(|(start, _)| *start)
    }

    /// This one is there now.
    pub(crate) fn fill(&mut self, number: u32) {
        let Some((start, end)) = self.around(number) else {
            return;
        };
        self.0.remove(&start);
        if start < number {
            self.0.insert(start, number);
        }
        if number + 1 < end {
            self.0.insert(number + 1, end);
        }
    }

    /// This one is missing again.
    pub(crate) fn open(&mut self, number: u32) {
        if self.around(number).is_some() {
            return;
        }
        let after = number + 1;
        let end = self.0.remove(&after).unwrap_or(after);
        let before = self.0.range_mut(..number).next_back();
        match before.filter(|(_, end)| **end == number) {
            Some((_, joined)) => *joined = end,
            None => {
                self.0.insert(number, end);
            }
        }
    }

    /// The run that this number is in.
    fn around(&self, number: u32) -> Option<(u32, u32)> {
        let (start, end) = self.0.range(..=number).next_back()?;
        (number < *end).then_some((*start, *end))
    }
}
