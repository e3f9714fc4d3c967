//! Looking at jobs.

use futures::StreamExt;
use futures::TryStreamExt;
use futures::stream::{self, BoxStream};
use plimsoll_core::error::Error;
use plimsoll_core::record::Record;
use plimsoll_core::store::{Cursor, Page, Scan};
use plimsoll_core::{Name, Prefix, Result, StoreExt};

use super::info::Job;
use super::stored::{JOBS, Keys, escape};
use super::{JobInfo, Jobs};

/// How many jobs are read at a time.
const PAGE: usize = 500;

impl Jobs {
    /// What is known of a job, also of one that was deleted not long ago; `None`: there is none.
    pub async fn get(&self, job: impl AsRef<str>) -> Result<Option<JobInfo>> {
        let keys = Keys::of(Name::for_field("job", job)?)?;
        Ok(self.read(&keys).await?.map(|job| job.info))
    }

    /// A page of the jobs whose names begin with `prefix`, those that were deleted not long ago among
    /// them. What cannot be read is an error in its place.
    pub async fn list(
        &self,
        prefix: impl AsRef<str>,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<Page<Result<JobInfo>>> {
        let prefix = format!("{JOBS}{}", escape(prefix.as_ref()));
        let scan = Scan {
            cursor,
            ..Scan::new(Prefix::new(prefix)?, limit)
        };
        let page = self.scan(scan).await?;
        let jobs = page.rows.iter().map(Job::read);
        Ok(Page {
            rows: jobs.map(|job| job.map(|job| job.info)).collect(),
            next: page.next,
        })
    }

    /// All jobs whose names begin with `prefix`. What cannot be read is an error in its place, and the
    /// others follow; an error of the store is the last.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::Engine;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let jobs = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?))).jobs();
    /// for name in ["import-1", "import-2", "report"] {
    ///     jobs.join(name, 0, 1).await?;
    /// }
    /// let imports: Vec<_> = jobs.list_all("import-").try_collect().await?;
    /// assert_eq!(imports.len(), 2);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn list_all(&self, prefix: impl Into<String>) -> BoxStream<'static, Result<JobInfo>> {
        let (jobs, prefix) = (self.clone(), prefix.into());
        let limit = PAGE.min(self.engine.store().limits().page_max);
        let pages = stream::try_unfold(Some(None), move |cursor| {
            let (jobs, prefix) = (jobs.clone(), prefix.clone());
            async move {
                let Some(cursor) = cursor else {
                    return Ok::<_, Error>(None);
                };
                let page = jobs.list(prefix, cursor, limit).await?;
                let next = page.next.map(Some);
                Ok(Some((stream::iter(page.rows), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    /// The record of a job.
    pub(crate) async fn read(&self, keys: &Keys) -> Result<Option<Job>> {
        let record = self.record(keys).await?;
        record.as_ref().map(Job::read).transpose()
    }

    /// The same as it is stored.
    pub(crate) async fn record(&self, keys: &Keys) -> Result<Option<Record>> {
        let store = self.engine.store();
        self.patiently(|| store.record(&keys.job)).await
    }

    pub(crate) async fn scan(&self, scan: Scan) -> Result<Page<Record>> {
        let store = self.engine.store();
        self.patiently(|| store.scan(scan.clone())).await
    }
}
