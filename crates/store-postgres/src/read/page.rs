//! Pages, read in chunks: a page costs what it shows, however much there is.

use plimsoll_core::limits::PAGE_BYTES_MAX;
use plimsoll_core::store::{Page, Pager};
use tokio_postgres::Row;

use crate::call::Call;
use crate::error::Answer;
use crate::session::Session;

/// How many rows the first chunk has at most: nobody knows yet how large they are.
const FIRST_MAX: usize = 32;
/// How many rows any chunk has at most.
const CHUNK_MAX: usize = 256;

/// Rows in the order of their places.
pub(crate) trait Places {
    type Place;
    type Shown;

    /// Reads the next rows after a place; `None`: nothing can be there.
    fn call(&self, after: Option<&Self::Place>, rows: i64) -> Option<Call>;

    /// The rows of an answer that have a place.
    fn rows<'r>(&self, found: &'r [Row]) -> Answer<&'r [Row]> {
        Ok(found)
    }

    fn place(&self, row: &Row) -> Answer<Self::Place>;

    /// A place as the text of a cursor.
    fn text(place: &Self::Place) -> String;

    /// What to show of a row, and about how many bytes the row has.
    fn read(&self, row: &Row) -> Answer<(Option<Self::Shown>, usize)>;
}

/// A page of rows after a place.
pub(crate) async fn page<P: Places>(
    session: &mut Session,
    places: &P,
    mut last: Option<P::Place>,
    mut pager: Pager<P::Shown>,
    limit: usize,
) -> Answer<Page<P::Shown>> {
    let mut chunk = Chunk::first(limit);
    while let Some(call) = places.call(last.as_ref(), chunk.rows as i64) {
        let found = session.run(&[call]).await?;
        let found = places.rows(&found[0])?;
        for row in found {
            if pager.is_full(last.as_ref().map(P::text)) {
                return Ok(pager.finish());
            }
            last = Some(places.place(row)?);
            let (shown, bytes) = places.read(row)?;
            chunk.count(bytes);
            pager.take(shown, bytes);
        }
        if found.len() < chunk.rows {
            break;
        }
        chunk.grow();
    }
    Ok(pager.finish())
}

/// How many rows to ask for.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: usize,
    seen: usize,
    bytes: usize,
}

impl Chunk {
    /// For a page of so many rows: one more tells whether there is another page.
    pub(crate) fn first(limit: usize) -> Self {
        Self {
            rows: limit.saturating_add(1).min(FIRST_MAX),
            seen: 0,
            bytes: 0,
        }
    }

    /// Counts a row with so many bytes.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.seen += 1;
        self.bytes += bytes;
    }

    /// The next one is larger, because rows are left out or the page is long, but a page of rows
    /// like those before fits it.
    pub(crate) fn grow(&mut self) {
        let bytes = (self.bytes / self.seen.max(1)).max(1);
        let fitting = (PAGE_BYTES_MAX / bytes).max(1);
        self.rows = (self.rows * 4).min(CHUNK_MAX).min(fitting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the chunks of a page of so many rows of this size.
    fn sizes<const N: usize>(limit: usize, bytes: usize) -> [usize; N] {
        let mut chunk = Chunk::first(limit);
        std::array::from_fn(|_| {
            let rows = chunk.rows;
            (0..rows).for_each(|_| chunk.count(bytes));
            chunk.grow();
            rows
        })
    }

    #[test]
    fn a_short_page_asks_for_one_row_more() {
        assert_eq!(sizes(10, 100), [11, 44, 176, 256, 256]);
        assert_eq!(sizes(usize::MAX, 0), [32, 128, 256, 256]);
    }

    #[test]
    fn large_rows_come_in_small_chunks() {
        assert_eq!(sizes(1000, 256 * 1024), [32, 16, 16]);
        assert_eq!(sizes(1000, 64 * 1024 * 1024), [32, 1, 1]);
    }
}
