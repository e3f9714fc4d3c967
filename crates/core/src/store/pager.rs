//! Pages: how far one goes, the same in every store.

use crate::limits::{PAGE_BYTES_MAX, ROWS_EXAMINED_MAX};
use crate::store::{Cursor, Page};

/// Collects the rows of one page, and knows where the next one begins.
#[derive(Debug)]
pub struct Pager<T> {
    page: Page<T>,
    scope: String,
    limit: usize,
    examined: usize,
    bytes: usize,
}

impl<T> Pager<T> {
    /// A page of at most `limit` rows of what `scope` names.
    pub fn new(scope: String, limit: usize) -> Self {
        let page = Page {
            rows: Vec::new(),
            next: None,
        };
        Self {
            page,
            scope,
            limit,
            examined: 0,
            bytes: 0,
        }
    }

    /// Asked before each row: whether the page takes no more. Then the next one begins after
    /// `last`, the place of the row before.
    pub fn is_full(&mut self, last: Option<String>) -> bool {
        let full = self.page.rows.len() >= self.limit
            || self.examined >= ROWS_EXAMINED_MAX
            || self.bytes >= PAGE_BYTES_MAX;
        if full {
            self.page.next = last.map(|place| Cursor::new(&self.scope, place));
        }
        full
    }

    /// Takes a row that was examined, if it is to be shown.
    pub fn take(&mut self, row: Option<T>, bytes: usize) {
        self.examined += 1;
        if let Some(row) = row {
            self.bytes += bytes;
            self.page.rows.push(row);
        }
    }

    /// The page.
    pub fn finish(self) -> Page<T> {
        self.page
    }
}
