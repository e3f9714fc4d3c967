//! Looking at tasks.

use futures::TryFutureExt;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use plimsoll_core::error::NotFound;
use plimsoll_core::store::{
    Counts, LaneCounts, List, LogPage, Logs, Page, Peek, Selector, TaskByKey,
};
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{Error, IdempotencyKey, Result, StoreExt, TaskId};

use crate::tasks::Tasks;

/// How many tasks a page has that nobody asked for.
const PAGE: usize = 200;

impl Tasks {
    /// The task with this id; `task_not_found` if there is none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, TaskId};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let nobody = TaskId::from_u128(7);
    /// assert_eq!(tasks.get(nobody).await.unwrap_err().code(), "task_not_found");
    /// assert!(tasks.find(nobody).await?.is_none());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn get(&self, id: TaskId) -> Result<Task> {
        let task = self.find(id).await?;
        task.ok_or_else(|| NotFound::Task(id).into())
    }

    /// The task with this id, if there is one.
    pub async fn find(&self, id: TaskId) -> Result<Option<Task>> {
        let store = self.store();
        self.patiently(|| store.task(id)).await
    }

    /// The task that a key was last given to, also when it has ended; `task_not_found` if there is
    /// none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// let key = "order-123-process".try_into()?;
    /// assert_eq!(tasks.get_by_key(&key).await.unwrap_err().code(), "task_not_found");
    /// tasks.submit(tasks.task("orders", "process", "123")?.key(key.clone())).await?;
    /// assert_eq!(tasks.get_by_key(&key).await?.spec.payload, "123");
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn get_by_key(&self, key: &IdempotencyKey) -> Result<Task> {
        let task = self.find_by_key(key).await?;
        task.ok_or_else(|| NotFound::TaskByKey(key.clone()).into())
    }

    /// The task that a key was last given to, if there is one.
    pub async fn find_by_key(&self, key: &IdempotencyKey) -> Result<Option<Task>> {
        let store = self.store();
        self.patiently(|| store.task_by_key(TaskByKey { key: key.clone() }))
            .await
    }

    /// One page of tasks. It may be short or empty and still not be the last.
    pub async fn list(&self, list: List) -> Result<Page<Task>> {
        let store = self.store();
        self.patiently(|| store.list(list.clone())).await
    }

    /// All tasks from where this list begins, page by page as they are taken.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace, store::{List, Selector}};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// tasks.submit(tasks.task("mail", "send", "hello")?.owner("ada".try_into()?)).await?;
    /// let mut of_ada = tasks.list_all(List::new(Selector::Owner("ada".try_into()?), 100));
    /// while let Some(task) = of_ada.try_next().await? {
    ///     assert_eq!(task.spec.payload, "hello");
    /// }
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn list_all(&self, list: List) -> BoxStream<'static, Result<Task>> {
        let tasks = self.clone();
        let pages = stream::try_unfold(Some(list), move |list| {
            let tasks = tasks.clone();
            async move {
                let Some(list) = list else {
                    return Ok::<_, Error>(None);
                };
                let page = tasks.list(list.clone()).await?;
                let next = page.next.map(|cursor| List {
                    cursor: Some(cursor),
                    ..list
                });
                Ok(Some((stream::iter(page.rows).map(Ok), next)))
            }
        });
        pages.try_flatten().boxed()
    }

    /// All tasks of a lane that have this status, in id order.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace, task::{Lane, Status}};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// tasks.submit(tasks.task("mail", "send", "hello")?).await?;
    /// let pending = tasks.list_status(Lane::new("mail", "send")?, Status::Pending);
    /// assert_eq!(pending.try_collect::<Vec<_>>().await?.len(), 1);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn list_status(&self, lane: Lane, status: Status) -> BoxStream<'static, Result<Task>> {
        self.list_all(List::new(Selector::Lane(lane, status), self.page()))
    }

    /// All tasks that have this status, lane by lane. A lane that is new meanwhile may be left out.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use futures::TryStreamExt;
    /// # use plimsoll_core::{Memory, Namespace, task::Status};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// tasks.submit(tasks.task("mail", "send", "hello")?).await?;
    /// tasks.submit(tasks.task("media", "transcode", "clip-7")?).await?;
    /// let pending = tasks.list_everywhere(Status::Pending);
    /// assert_eq!(pending.try_collect::<Vec<_>>().await?.len(), 2);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub fn list_everywhere(&self, status: Status) -> BoxStream<'static, Result<Task>> {
        let tasks = self.clone();
        let lanes = async move {
            let counts = tasks.counts(Counts::default()).await?;
            let having =
                (counts.into_iter()).filter(move |lane| lane.by_status.contains_key(&status));
            let listed = having.map(move |counts| tasks.list_status(counts.lane, status));
            Ok::<_, Error>(stream::iter(listed).flatten())
        };
        lanes.try_flatten_stream().boxed()
    }

    /// The tasks that the next claim of these lanes would take, without taking them.
    pub async fn peek(
        &self,
        lanes: impl IntoIterator<Item = Lane>,
        limit: usize,
    ) -> Result<Vec<Task>> {
        let lanes = lanes.into_iter().collect();
        let peek = Peek { lanes, limit };
        let store = self.store();
        self.patiently(|| store.peek(peek.clone())).await
    }

    /// How many tasks there are by lane and status.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace, store::Counts, task::Status};
    /// # use plimsoll_engine::{Engine, Tasks};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
    /// # let tasks = Tasks::new(Engine::new(store));
    /// tasks.submit(tasks.task("mail", "send", "hello")?).await?;
    /// let counts = tasks.counts(Counts::default()).await?;
    /// assert_eq!(counts[0].by_status[&Status::Pending], 1);
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn counts(&self, counts: Counts) -> Result<Vec<LaneCounts>> {
        let store = self.store();
        self.patiently(|| store.counts(counts.clone())).await
    }

    /// A page of the log of a task.
    pub async fn logs(&self, logs: Logs) -> Result<LogPage> {
        let store = self.store();
        self.patiently(|| store.logs(logs.clone())).await
    }

    /// How many tasks a page has that nobody asked for.
    pub(super) fn page(&self) -> usize {
        PAGE.min(self.store().limits().page_max)
    }
}
