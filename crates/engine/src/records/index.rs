//! Indexes on integer fields: what is looked for by range is found without reading everything.

use std::ops::{Bound, RangeBounds};

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::record::Index;
use plimsoll_core::store::{DeclareIndex, Declared, DropIndex, Range};
use plimsoll_core::{Error, Name, Prefix, Result};

use super::{Records, Scan, field, of_users};
use crate::retries::worse;

impl Records {
    /// Declares an index on an integer field of all records with this prefix, for
    /// [`Scan::range`], and waits until every record is in it. That it is declared is stored: from now on
    /// every process keeps it, and declaring it again costs one call.
    ///
    /// Whatever has the field is in it, and is read by a range before conditions drop it. So take a field that what
    /// nobody looks for does not have: `timeout_at`, which an end clears, and not `updated_at`.
    ///
    /// Each write of a record that it is on keeps it. So one on the engine's own records alone is `Invalid`, like a write to
    /// them.
    ///
    /// Where the store does not answer, each of the steps in which it is filled is tried as often as any call. What was
    /// filled stays filled: declare it again to go on.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let records = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).records();
    /// records.declare_index("gbe.state.tasks.", "timeout_at").await?;
    /// for timeout_at in [900, 300, 7_000] {
    ///     let key = format!("gbe.state.tasks.email-send.{timeout_at}");
    ///     records.set_field(key, "timeout_at", timeout_at).await?;
    /// }
    /// let stuck = records.scan("gbe.state.tasks.").range("timeout_at", ..1_000).stream();
    /// let stuck: Vec<_> = stuck.map_ok(|record| record.key.to_string()).try_collect().await?;
    /// assert_eq!(stuck, ["gbe.state.tasks.email-send.300", "gbe.state.tasks.email-send.900"]);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn declare_index(
        &self,
        prefix: impl AsRef<str>,
        field: impl AsRef<str>,
    ) -> Result<()> {
        let store = self.store();
        let declare = DeclareIndex {
            index: index(prefix, field)?,
            limit: store.limits().page_max,
        };
        of_users("prefix", declare.index.prefix.as_str())?;
        // What was filled stays filled, whenever this is repeated: so a step that gets somewhere is a reason to be as
        // patient with the next one.
        let mut applied = Applied::No;
        loop {
            let step = || store.declare_index(declare.clone());
            match self.patiently(step).await {
                Ok(declared) if declared.ready => return Ok(()),
                Ok(_) => applied = Applied::Unknown,
                Err(Error::Unavailable(error)) => {
                    let applied = worse(applied, error.applied);
                    return Err(Unavailable { applied, ..error }.into());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops an index. Says whether it was declared; if the first answer was lost, it may say no.
    ///
    /// Whoever is still in [`declare_index`](Self::declare_index), in whatever process, declares it again with its next step, and
    /// fills it from the beginning: nobody is told of that.
    ///
    /// One on records of the engine, which another program may have declared through the store itself, is dropped as well: it
    /// takes one of the places and costs each of the engine's writes, and the engine asks for none.
    pub async fn drop_index(
        &self,
        prefix: impl AsRef<str>,
        field: impl AsRef<str>,
    ) -> Result<bool> {
        let drop = DropIndex {
            index: index(prefix, field)?,
        };
        let store = self.store();
        let dropped = self.patiently(|| store.drop_index(drop.clone())).await?;
        Ok(dropped.existed)
    }

    /// All indexes, and whether they can be used yet.
    pub async fn indexes(&self) -> Result<Vec<Declared>> {
        let store = self.store();
        self.patiently(|| store.indexes()).await
    }
}

fn index(prefix: impl AsRef<str>, name: impl AsRef<str>) -> Result<Index> {
    Ok(Index {
        prefix: Prefix::new(prefix)?,
        field: field(name)?,
    })
}

impl Scan {
    /// Only where the field is an integer of this range, in its order, found through the index on this
    /// field and the prefix of the scan, which must have been [declared](Records::declare_index).
    pub fn range(self, name: impl AsRef<str>, values: impl RangeBounds<i64>) -> Self {
        let bounds = (values.start_bound().cloned(), values.end_bound().cloned());
        self.with(|scan| {
            scan.range = Some(range(field(name)?, bounds));
            Ok(())
        })
    }
}

/// The same values with a bound that belongs to them, and one that does not.
fn range(field: Name, (start, end): (Bound<i64>, Bound<i64>)) -> Range {
    let range = Range::new(field);
    let range = match start {
        Bound::Unbounded => range,
        Bound::Included(first) => range.from(first),
        Bound::Excluded(before) => match before.checked_add(1) {
            Some(first) => range.from(first),
            // Nothing is greater than the greatest integer, or less than the least.
            None => return range.before(i64::MIN),
        },
    };
    match end {
        Bound::Unbounded => range,
        Bound::Excluded(before) => range.before(before),
        Bound::Included(last) => match last.checked_add(1) {
            Some(before) => range.before(before),
            None => range,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_range_has_the_same_values() {
        let edges = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let bounds = || {
            let bounds = edges
                .iter()
                .flat_map(|n| [Bound::Included(*n), Bound::Excluded(*n)]);
            bounds.chain([Bound::Unbounded])
        };
        for start in bounds() {
            for end in bounds() {
                let range = range(Name::new("n").unwrap(), (start, end));
                for value in edges {
                    let expected = (start, end).contains(&value);
                    assert_eq!(
                        range.contains(value),
                        expected,
                        "{value} in {start:?}, {end:?}"
                    );
                }
            }
        }
    }
}
