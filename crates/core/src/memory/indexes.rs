//! Declared indexes in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::error::{Conflict, Invalid, NotFound, Problem, Result};
use crate::limits::INDEXES_MAX;
use crate::memory::state::{State, remove};
use crate::names::Key;
use crate::record::{Index, Record};
use crate::store::{Cursor, DeclareIndex, Declared, Page, Pager, Range, Scan};
use crate::time::Timestamp;

/// What an index has. Writes keep it from the moment it is declared, so a record that the fill has not
/// reached yet is in it as it is, or not at all.
#[derive(Debug, Default)]
pub(super) struct Indexed {
    entries: BTreeMap<i64, BTreeSet<Key>>,
    filled: Filled,
}

/// How far existing records were taken in.
#[derive(Debug, Default)]
enum Filled {
    #[default]
    Nothing,
    UpTo(Key),
    Everything,
}

impl Indexed {
    fn is_ready(&self) -> bool {
        matches!(self.filled, Filled::Everything)
    }

    fn insert(&mut self, value: Option<i64>, key: &Key) {
        if let Some(value) = value {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    /// Values and keys of a range, in order, after a place in it.
    fn after(
        &self,
        range: &Range,
        place: Option<&(i64, Key)>,
    ) -> impl Iterator<Item = (i64, &Key)> {
        let first = place.map_or(*range.values().start(), |(value, _)| *value);
        let values = first..=*range.values().end();
        // A map does not take a range that ends before it begins.
        let found = (!values.is_empty()).then(|| self.entries.range(values));
        found.into_iter().flatten().flat_map(move |(value, keys)| {
            let from = match place {
                Some((last, key)) if last == value => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            let keys = keys.range::<Key, _>((from, Bound::Unbounded));
            keys.map(|key| (*value, key))
        })
    }
}

impl State {
    pub(super) fn declare_index(&mut self, declare: DeclareIndex) -> Result<Declared> {
        let DeclareIndex { index, limit } = declare;
        let count = self.indexes.len() + 1;
        if count > INDEXES_MAX && !self.indexes.contains_key(&index) {
            let max = INDEXES_MAX;
            return Err(Invalid::new("index", Problem::TooMany { count, max }).into());
        }
        let indexed = self.indexes.entry(index.clone()).or_default();
        let from = match &indexed.filled {
            Filled::Nothing => Bound::Included(index.prefix.as_str()),
            Filled::UpTo(key) => Bound::Excluded(key.as_str()),
            Filled::Everything => return Ok(Declared { index, ready: true }),
        };
        let rest = self.records.range::<str, _>((from, Bound::Unbounded));
        let mut rest = rest.take_while(|(key, _)| index.prefix.matches(key.as_str()));
        let mut last = None;
        for (key, record) in rest.by_ref().take(limit) {
            indexed.insert(index.value(key, &record.fields), key);
            last = Some(key.clone());
        }
        indexed.filled = match (rest.next(), last) {
            (Some(_), Some(last)) => Filled::UpTo(last),
            _ => Filled::Everything,
        };
        let ready = indexed.is_ready();
        Ok(Declared { index, ready })
    }

    pub(super) fn declared(&self) -> Vec<Declared> {
        let declared = |(index, indexed): (&Index, &Indexed)| Declared {
            index: index.clone(),
            ready: indexed.is_ready(),
        };
        self.indexes.iter().map(declared).collect()
    }

    /// Moves a record that is written to its new place in every index.
    pub(super) fn index_record(
        &mut self,
        key: &Key,
        before: Option<&Record>,
        after: Option<&Record>,
    ) {
        for (index, indexed) in &mut self.indexes {
            let value = |record: &Record| index.value(key, &record.fields);
            if let Some(value) = before.and_then(value) {
                remove(&mut indexed.entries, &value, key);
            }
            indexed.insert(after.and_then(value), key);
        }
    }

    pub(super) fn scan_range(
        &self,
        scan: &Scan,
        range: &Range,
        now: Timestamp,
    ) -> Result<Page<Record>> {
        let index = scan.index(range);
        let Some(indexed) = self.indexes.get(&index) else {
            return Err(NotFound::Index(index).into());
        };
        if !indexed.is_ready() {
            return Err(Conflict::IndexNotReady { index }.into());
        }
        let place = Cursor::place(scan.cursor.as_ref(), &scan.scope(), |text| {
            range.read_place(text)
        })?;
        let mut pager = Pager::new(scan.scope(), scan.limit);
        let mut last = None;
        for (value, key) in indexed.after(range, place.as_ref()) {
            if pager.is_full(last.map(|(value, key)| Range::place(value, key))) {
                break;
            }
            last = Some((value, key));
            let shown = (self.records.get(key)).filter(|record| scan.shows(record, now));
            pager.take(shown.cloned(), shown.map_or(0, Record::size));
        }
        Ok(pager.finish())
    }
}
