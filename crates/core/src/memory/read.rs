//! The reading methods of the memory store.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::change::Change;
use crate::error::{NotFound, Result};
use crate::ids::TaskId;
use crate::limits::{PAGE_BYTES_MAX, ROWS_EXAMINED_MAX};
use crate::memory::state::State;
use crate::names::{IdempotencyKey, Key, Prefix};
use crate::record::Record;
use crate::store::{
    ChangePage, Changes, Counts, Cursor, Get, LaneCounts, List, LogPage, Logs, Page, Pager, Scan,
    Selector, Start,
};
use crate::task::{Status, Task};
use crate::time::Timestamp;

fn after<T>(place: Option<T>) -> (Bound<T>, Bound<T>) {
    (
        place.map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded,
    )
}

/// Where a task stands among those that were kept: since when, and which it is.
fn kept_place(text: &str) -> Option<(Timestamp, TaskId)> {
    let (at, id) = text.split_once(' ')?;
    let at = Timestamp::from_micros(at.parse().ok()?).ok()?;
    Some((at, TaskId::parse(id).ok()?))
}

impl State {
    pub(super) fn get(&self, get: &Get, now: Timestamp) -> Vec<Option<Record>> {
        let live = |key| {
            self.records
                .get(key)
                .filter(|record| !record.is_expired(now))
        };
        get.keys.iter().map(|key| live(key).cloned()).collect()
    }

    pub(super) fn scan(&self, scan: &Scan, now: Timestamp) -> Result<Page<Record>> {
        if let Some(range) = &scan.range {
            return self.scan_range(scan, range, now);
        }
        let last = Cursor::place(scan.cursor.as_ref(), &scan.scope(), |text| {
            Key::new(text).ok()
        })?;
        let from = match last {
            Some(key) => Bound::Excluded(key.as_str().to_owned()),
            None => Bound::Included(scan.prefix.as_str().to_owned()),
        };
        let from = (from.as_ref().map(String::as_str), Bound::<&str>::Unbounded);
        let mut pager = Pager::new(scan.scope(), scan.limit);
        let mut last: Option<&Key> = None;
        for (key, record) in self.records.range::<str, _>(from) {
            if !scan.prefix.matches(key.as_str()) {
                break;
            }
            if pager.is_full(last.map(|key| key.to_string())) {
                break;
            }
            let shown = scan.shows(record, now);
            pager.take(shown.then(|| record.clone()), record.size());
            last = Some(key);
        }
        Ok(pager.finish())
    }

    pub(super) fn list(&self, list: &List, now: Timestamp) -> Result<Page<Task>> {
        let ids = match &list.selector {
            Selector::Lane(lane, status) => self.by_lane.get(&(lane.clone(), *status)),
            Selector::Group(group) => self.by_group.get(group),
            Selector::Owner(owner) => self.by_owner.get(owner),
            Selector::Key(prefix) => return self.list_by_key(list, prefix),
            Selector::KeptFor(status, age) => {
                return self.list_kept(list, *status, now.saturating_minus(*age));
            }
        };
        let last = Cursor::place(list.cursor.as_ref(), &list.scope(), |text| {
            TaskId::parse(text).ok()
        })?;
        let mut pager = Pager::new(list.scope(), list.limit);
        let mut last_id = last;
        for id in ids.iter().flat_map(|ids| ids.range(after(last))) {
            if pager.is_full(last_id.map(|id| id.to_string())) {
                break;
            }
            self.show(*id, list, &mut pager);
            last_id = Some(*id);
        }
        Ok(pager.finish())
    }

    /// Those that ended by `cutoff`, or whose keys did, in that order.
    fn list_kept(&self, list: &List, status: Status, cutoff: Timestamp) -> Result<Page<Task>> {
        let from = Cursor::place(list.cursor.as_ref(), &list.scope(), kept_place)?;
        let mut pager = Pager::new(list.scope(), list.limit);
        let finished = self.finished.get(&status);
        let mut last = from;
        for (ended, id) in finished.iter().flat_map(|all| all.range(after(from))) {
            let place = last.map(|(at, id)| format!("{} {id}", at.as_micros()));
            if *ended > cutoff || pager.is_full(place) {
                break;
            }
            self.show(*id, list, &mut pager);
            last = Some((*ended, *id));
        }
        Ok(pager.finish())
    }

    fn list_by_key(&self, list: &List, prefix: &Prefix) -> Result<Page<Task>> {
        let mut last = Cursor::place(list.cursor.as_ref(), &list.scope(), |text| {
            IdempotencyKey::new(text).ok()
        })?;
        let from = match &last {
            Some(key) => Bound::Excluded(key.as_str().to_owned()),
            None => Bound::Included(prefix.as_str().to_owned()),
        };
        let from = (from.as_ref().map(String::as_str), Bound::<&str>::Unbounded);
        let mut pager = Pager::new(list.scope(), list.limit);
        for (key, id) in self.keys.range::<str, _>(from) {
            if !prefix.matches(key.as_str()) {
                break;
            }
            if pager.is_full(last.as_ref().map(|key| key.to_string())) {
                break;
            }
            self.show(*id, list, &mut pager);
            last = Some(key.clone());
        }
        Ok(pager.finish())
    }

    fn show(&self, id: TaskId, list: &List, pager: &mut Pager<Task>) {
        let task = self.tasks.get(&id);
        let task = task.filter(|task| list.filter.matches(task));
        pager.take(task.cloned(), task.map_or(0, Task::size));
    }

    pub(super) fn counts(&self, counts: &Counts) -> Vec<LaneCounts> {
        let mut lanes = BTreeMap::new();
        for ((lane, status), ids) in &self.by_lane {
            let wanted = counts
                .queue
                .as_ref()
                .is_none_or(|queue| *queue == lane.queue)
                && counts.kind.as_ref().is_none_or(|kind| *kind == lane.kind);
            if wanted {
                let by_status: &mut BTreeMap<_, _> = lanes.entry(lane.clone()).or_default();
                by_status.insert(*status, ids.len() as u64);
            }
        }
        (lanes.into_iter())
            .map(|(lane, by_status)| LaneCounts { lane, by_status })
            .collect()
    }

    pub(super) fn logs(&self, logs: &Logs) -> Result<LogPage> {
        let last = Cursor::place(logs.cursor.as_ref(), &logs.scope(), |text| {
            text.parse().ok()
        })?;
        let mut next = last.unwrap_or(0);
        let (mut lines, mut bytes, mut examined, mut more) = (Vec::new(), 0, 0, false);
        let log = self.logs.get(&logs.task);
        for (number, line) in log.iter().flat_map(|log| log.range(after(last))) {
            if lines.len() >= logs.limit || bytes >= PAGE_BYTES_MAX || examined >= ROWS_EXAMINED_MAX
            {
                more = true;
                break;
            }
            next = *number;
            examined += 1;
            if line.line.level >= logs.level {
                bytes += line.line.size();
                lines.push(line.clone());
            }
        }
        Ok(LogPage {
            lines,
            next: Cursor::new(&logs.scope(), next),
            more,
        })
    }

    pub(super) fn changes(&self, changes: &Changes) -> Result<ChangePage> {
        let start = match changes.start {
            Start::Oldest => self.compacted,
            Start::Newest => self.newest,
            Start::After(position) if position < self.compacted || position > self.newest => {
                return Err(NotFound::History {
                    oldest: self.compacted,
                }
                .into());
            }
            Start::After(position) => position,
        };
        let first = self
            .history
            .partition_point(|entry| entry.position <= start);
        let mut page = ChangePage {
            entries: Vec::new(),
            next: start,
            more: false,
            newest: self.newest,
        };
        let (mut shown, mut examined, mut bytes) = (0, 0, 0);
        for entry in self.history.range(first..) {
            if shown >= changes.limit || examined >= ROWS_EXAMINED_MAX || bytes >= PAGE_BYTES_MAX {
                page.more = true;
                break;
            }
            let mut entry = entry.clone();
            examined += entry.changes.len();
            entry.changes.retain(|change| changes.shows(change));
            page.next = entry.position;
            shown += entry.changes.len();
            bytes += entry.changes.iter().map(Change::size).sum::<usize>();
            if !entry.changes.is_empty() {
                page.entries.push(entry);
            }
        }
        Ok(page)
    }
}
