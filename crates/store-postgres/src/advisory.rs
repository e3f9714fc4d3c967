//! Advisory locks around work of the caller.
//!
//! They are taken inside a transaction and end with it, whatever happens: no connection of a pool
//! can carry one to somebody else.

use plimsoll_core::error::Applied;
use plimsoll_core::ids::Fingerprint;
use plimsoll_core::{Error, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{CancelToken, Transaction};

use crate::error::Fault;
use crate::spawn::spawn_if_running;
use crate::store::PostgresStore;
use crate::tls::Tls;

const TAKE: &str = "SELECT pg_advisory_xact_lock($1)";
const TRY: &str = "SELECT pg_try_advisory_xact_lock($1)";
/// Fails in a transaction that has failed. To commit such a one is no error, but rolls it back.
const CHECK: &str = "SELECT 1";
/// A server that waits for the lock notices when its client is gone. What the work writes is on disk
/// when it is answered, unless the work itself says otherwise.
const SET: &str = "SET LOCAL client_connection_check_interval = 1000; \
                   SELECT set_config('synchronous_commit', 'on', true) \
                   WHERE current_setting('synchronous_commit') = 'off'";

impl PostgresStore {
    /// Does something while nobody else does so with the same key and namespace, in any process.
    ///
    /// The work gets the transaction that holds the lock, and may write with it: if it fails, or a
    /// statement of it does, nothing was written, and that is the answer. It waits for the lock as long as it takes; whoever does not want to
    /// wait any longer drops the future. A transaction that stays open for long keeps the server
    /// from cleaning up: for what takes minutes, there are the locks of the engine.
    ///
    /// Keys are hashed together with the schema and the namespace. So they have nothing to do with
    /// the locks that the store takes for itself, nor with those of other users of the database.
    ///
    /// ```no_run
    /// # use plimsoll_core::Error;
    /// # use plimsoll_store_postgres::PostgresStore;
    /// # async fn example(store: PostgresStore) -> Result<(), Error> {
    /// let rows = store
    ///     .with_advisory_lock(42, async |transaction| {
    ///         let done = transaction.execute("UPDATE totals SET n = n + 1", &[]).await;
    ///         done.map_err(|error| Error::Corrupt(error.to_string().into()))
    ///     })
    ///     .await?;
    /// assert_eq!(rows, 1);
    /// # Ok(()) }
    /// ```
    pub async fn with_advisory_lock<T, E: From<Error>>(
        &self,
        key: i64,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        match self.locked(key, TAKE, work).await? {
            Some(done) => Ok(done),
            None => Err(Error::Corrupt("a lock was not taken".into()).into()),
        }
    }

    /// Like [`with_advisory_lock`](Self::with_advisory_lock), but does nothing and answers `None`
    /// while somebody else has the lock.
    pub async fn try_with_advisory_lock<T, E: From<Error>>(
        &self,
        key: i64,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.locked(key, TRY, work).await
    }

    async fn locked<T, E: From<Error>>(
        &self,
        key: i64,
        take: &str,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let untouched = |fault: Fault| fault.into_error(Applied::No);
        let refused = |error: tokio_postgres::Error| untouched(error.into());
        let lock = self.advisory_key(key);
        let guests = self.guests()?;
        let mut pooled = guests.session().await.map_err(untouched)?;
        // Until it is given back it is not used again, however this ends.
        let session = pooled.session().map_err(untouched)?;
        let client = session.lend();
        let mut waiting = Waiting(Some((client.cancel_token(), guests.tls().clone())));
        let transaction = client.transaction().await.map_err(refused)?;
        transaction.batch_execute(SET).await.map_err(refused)?;
        let found = transaction.query_typed(take, &[(&lock, Type::INT8)]).await;
        let found = found.map_err(refused)?;
        waiting.0 = None;
        // Whoever waits for the lock is answered nothing, when it is there.
        let has_it = found
            .first()
            .and_then(|row| row.try_get(0).ok())
            .unwrap_or(true);
        let done = match has_it {
            true => Some(work(&transaction).await?),
            false => None,
        };
        transaction.batch_execute(CHECK).await.map_err(refused)?;
        transaction.commit().await.map_err(|error| {
            // Without an answer, nobody knows.
            let fault = Fault::from(error);
            let applied = match fault.breaks_connection() {
                true => Applied::Unknown,
                false => Applied::No,
            };
            fault.into_error(applied)
        })?;
        session.give_back();
        Ok(done)
    }

    fn advisory_key(&self, key: i64) -> i64 {
        let (schema, ns) = self.place();
        let text = format!("plimsoll advisory {schema} {ns} {key}");
        (Fingerprint::of(text.as_bytes()).as_u128() >> 64) as i64
    }
}

/// Somebody who waits for a lock. Whoever gives up takes the server along, which would wait on.
struct Waiting(Option<(CancelToken, Tls)>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((token, tls)) = self.0.take() {
            spawn_if_running(async move {
                if let Err(error) = token.cancel_query(tls).await {
                    tracing::debug!(%error, "a wait for a lock could not be cancelled");
                }
            });
        }
    }
}
