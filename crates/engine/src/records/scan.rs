//! Finding records by prefix and by what their fields hold.

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll_core::error::{Invalid, Problem};
use plimsoll_core::record::{Filter, Operator, Record, Value};
use plimsoll_core::store::{self, Cursor, Page};
use plimsoll_core::{Error, Prefix, Result};

use super::{Records, field};

/// How many records a page has that nobody asked for.
const PAGE: usize = 200;

/// The records whose keys begin with a prefix, in key order, and that meet all conditions; by
/// [`range`](Self::range), in the order of an index. A condition
/// compares as the type of its value: text, integer or bytes; a field that is absent or not of that type
/// meets none.
///
/// ```
/// # use std::sync::Arc;
/// # use futures::TryStreamExt;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::Engine;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
/// for (id, state, updated_at) in [("1", "claimed", "900"), ("2", "failed", "900"), ("3", "claimed", "7000")] {
///     let fields = [("state", state), ("updated_at", updated_at)];
///     records.put(format!("gbe.state.tasks.email-send.{id}"), fields, None).await?;
/// }
/// let stuck = records.scan("gbe.state.tasks.").lt("updated_at", 1_000).ne("state", "failed");
/// let stuck: Vec<_> = stuck.max_results(100).stream().try_collect().await?;
/// assert_eq!(stuck.len(), 1);
/// assert_eq!(stuck[0].key.as_str(), "gbe.state.tasks.email-send.1");
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is read before a page or the stream is asked for"]
pub struct Scan {
    records: Records,
    /// The first wrong input is told when it is read.
    scan: Result<store::Scan, Invalid>,
    max: Option<u32>,
}

impl Records {
    /// The records whose keys begin with this; empty: all, those of the engine among them.
    pub fn scan(&self, prefix: impl AsRef<str>) -> Scan {
        let limit = PAGE.min(self.store().limits().page_max);
        Scan {
            records: self.clone(),
            scan: Prefix::new(prefix).map(|prefix| store::Scan::new(prefix, limit)),
            max: None,
        }
    }
}

impl Scan {
    /// Only where the field equals this.
    pub fn eq(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.filter(name, Operator::Equal, value)
    }

    /// Only where the field is there and differs from this.
    pub fn ne(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.filter(name, Operator::NotEqual, value)
    }

    /// Only where the field is less than this.
    pub fn lt(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.filter(name, Operator::Less, value)
    }

    /// Only where the field is greater than this.
    pub fn gt(self, name: impl AsRef<str>, value: impl Into<Value>) -> Self {
        self.filter(name, Operator::Greater, value)
    }

    /// Only where the field compares like this.
    pub fn filter(
        self,
        name: impl AsRef<str>,
        operator: Operator,
        value: impl Into<Value>,
    ) -> Self {
        let value = value.into();
        self.with(|scan| {
            let field = field(name)?;
            scan.filters.push(Filter {
                field,
                operator,
                value,
            });
            Ok(())
        })
    }

    /// At most so many records, of a page and of the stream.
    pub fn max_results(mut self, max: u32) -> Self {
        self.max = Some(max);
        self.with(|_| match max {
            0 => Err(Invalid::new(
                "max_results",
                Problem::OutOfRange {
                    value: "0".into(),
                    min: "1".into(),
                    max: u32::MAX.to_string(),
                },
            )),
            _ => Ok(()),
        })
    }

    /// How many records are read at a time: 200, if nothing else is asked for.
    pub fn page_size(self, records: usize) -> Self {
        self.with(|scan| {
            scan.limit = records;
            Ok(())
        })
    }

    /// The page that begins where another one ended, or the first. It may be short or empty and still
    /// not be the last.
    pub async fn page(&self, cursor: Option<Cursor>) -> Result<Page<Record>> {
        self.read(cursor, self.max).await
    }

    /// All of them, read page by page as they are taken. A record that is there throughout is answered
    /// once; an error is the last.
    pub fn stream(self) -> BoxStream<'static, Result<Record>> {
        let begin = (None, self.max);
        let pages = stream::try_unfold(Some(begin), move |place| {
            let scan = self.clone();
            async move {
                let Some((cursor, left)) = place else {
                    return Ok::<_, Error>(None);
                };
                let page = scan.read(cursor, left).await?;
                let found = u32::try_from(page.rows.len()).unwrap_or(u32::MAX);
                let left = left.map(|left| left.saturating_sub(found));
                let next = page.next.filter(|_| left != Some(0));
                let rows = stream::iter(page.rows).map(Ok);
                Ok(Some((rows, next.map(|cursor| (Some(cursor), left)))))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn read(&self, cursor: Option<Cursor>, left: Option<u32>) -> Result<Page<Record>> {
        let mut scan = self.scan.clone()?;
        scan.cursor = cursor;
        if let Some(left) = left {
            scan.limit = scan.limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let store = self.records.store();
        (self.records).patiently(|| store.scan(scan.clone())).await
    }

    pub(super) fn with(
        mut self,
        change: impl FnOnce(&mut store::Scan) -> Result<(), Invalid>,
    ) -> Self {
        self.scan = self.scan.and_then(|mut scan| {
            change(&mut scan)?;
            Ok(scan)
        });
        self
    }
}
