//! A connection, and calls that are sent together.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{Either, join, join_all, pending, poll_fn, select};
use futures::{FutureExt, SinkExt, TryFutureExt};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::Applied;
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::call::{BEGIN, COMMIT, Call, ROLLBACK, Sql, params, quoted, with_schema};
use crate::codec::{column, unsigned};
use crate::config::Config;
use crate::connect::{connect, unreachable};
use crate::error::{Answer, Fault};
use crate::joint::{self, messages};
use crate::server::{self, Server};
use crate::spawn::spawn;

/// Settings for the rest of a transaction, or of the session. One without a value stays as it is,
/// but is not off: also if somebody switches it off later on.
static SET: Sql = Sql {
    text: "SELECT set_config(name, coalesce(value, nullif(current_setting(name), 'off'), 'on'), $3) \
           FROM unnest($1, $2) setting(name, value)",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::BOOL],
};

/// A connection that one call has for itself.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client,
    /// Ends the connection at once.
    give_up: Option<oneshot::Sender<()>>,
    /// By what each consists of.
    statements: HashMap<Vec<StatementId>, Statement>,
    /// Likewise, where nothing is prepared.
    texts: HashMap<Vec<StatementId>, String>,
    /// The schema as it is written in statements.
    schema: Arc<str>,
    prepare: bool,
    /// What every transaction has to set, where the connection does not keep it.
    settings: Settings,
    server: Server,
    call_timeout: Duration,
    /// Whether a transaction may be open.
    open: bool,
    /// Whether answers are awaited. It stays so if the caller does not wait for them.
    asked: bool,
    broken: bool,
    /// Whether an answer was waited for in vain.
    silent: bool,
    /// Whether there may be answers that nobody asked for.
    astray: bool,
    /// Whether the last call got as far as to commit.
    commits: bool,
    /// The first of some revisions that nobody else has.
    revisions: Option<u64>,
}

impl Drop for Session {
    /// One that was left in the middle of something does not wait for answers that nobody wants.
    fn drop(&mut self) {
        if !self.is_usable()
            && let Some(give_up) = self.give_up.take()
        {
            // It may have ended by itself.
            give_up.send(()).ok();
        }
    }
}

pub(crate) static REVISIONS: Sql = Sql {
    text: "SELECT nextval('plimsoll.revisions')",
    types: &[],
};

impl Session {
    /// Connects to a server that is new enough and keeps what it acknowledges.
    pub(crate) async fn connect(config: &Config) -> Answer<Self> {
        let session = Self::connect_to_any(config).await?;
        session.server.check(config.unsafe_durability)?;
        Ok(session)
    }

    /// Connects to a server, whatever it is like.
    pub(crate) async fn connect_to_any(config: &Config) -> Answer<Self> {
        let limit = config.connect_timeout();
        in_time(limit, Self::connect_now(config)).await
    }

    async fn connect_now(config: &Config) -> Answer<Self> {
        let (client, connection) = connect(&config.server, &config.tls).await?;
        // It ends with the client, or when the server ends it: whoever uses the client is told. But
        // before, it waits for all answers, which may never come.
        let (give_up, given_up) = oneshot::channel();
        spawn(async move {
            let ended = connection.unwrap_or_else(
                |error| tracing::debug!(%error, "a connection to PostgreSQL ended"),
            );
            let given_up = given_up.or_else(|_| pending::<Result<(), ()>>());
            select(pin!(ended), pin!(given_up)).await;
        });
        let settings = settings(config);
        let set = async {
            if config.prepare {
                let (names, values): (Vec<_>, Vec<_>) = settings.iter().cloned().unzip();
                let params: [&(dyn ToSql + Sync); 3] = [&names, &values, &false];
                let typed: Vec<_> = params.into_iter().zip(SET.types.iter().cloned()).collect();
                client.query_typed(SET.text, &typed).await?;
            }
            Ok(())
        };
        let look = client.query_typed(server::LOOK, &[]);
        let (set, found) = join(set, look).await;
        let server = found.map_err(unreachable)?;
        let server = server.first().map(Server::read).transpose()?;
        let server = server.ok_or_else(|| Fault::Corrupt("a server without settings".into()))?;
        // One that is too old may not know all of our settings.
        if let Err(error) = set {
            server.check_version()?;
            return Err(unreachable(error));
        }
        let mut session = Self {
            client,
            give_up: Some(give_up),
            statements: HashMap::new(),
            texts: HashMap::new(),
            schema: quoted(&config.schema).into(),
            prepare: config.prepare,
            settings,
            server,
            call_timeout: config.call_timeout,
            open: false,
            asked: false,
            broken: false,
            silent: false,
            astray: false,
            commits: false,
            revisions: None,
        };
        if !session.prepare {
            for sql in [&SET, &BEGIN, &COMMIT] {
                session.write(&[sql.into()]);
            }
        }
        Ok(session)
    }

    /// Behind a pooler it leaves the settings of the server as they are, for whoever looks at them.
    pub(crate) fn without_settings(mut self) -> Self {
        self.settings.clear();
        self
    }

    /// What the server said of itself.
    pub(crate) fn server(&self) -> Server {
        self.server
    }

    /// The schema as it is written in statements.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Whether another call may have it.
    pub(crate) fn is_usable(&self) -> bool {
        let broken = self.broken || self.astray || self.client.is_closed();
        !self.open && !self.asked && !broken
    }

    /// Whether statements are prepared once, and kept.
    pub(crate) fn prepares(&self) -> bool {
        self.prepare
    }

    /// Whether an answer was waited for in vain.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether a transaction may be open.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// The connection, for a transaction of somebody else. Nobody else uses it until it is given
    /// back.
    pub(crate) fn lend(&mut self) -> &mut Client {
        self.open = true;
        &mut self.client
    }

    /// The transaction of somebody else has ended.
    pub(crate) fn give_back(&mut self) {
        self.open = false;
    }

    /// The first of some revisions that nobody else has.
    pub(crate) async fn revisions(&mut self) -> Answer<u64> {
        match self.revisions.take() {
            Some(first) => Ok(first),
            None => self.fresh_revisions().await,
        }
    }

    /// Keeps revisions that were asked for, from this one on.
    pub(crate) fn keep_revisions(&mut self, first: u64) {
        self.revisions = Some(first);
    }

    /// Likewise, greater than all that was committed before.
    pub(crate) async fn fresh_revisions(&mut self) -> Answer<u64> {
        let found = self.run(&[(&REVISIONS).into()]).await?;
        unsigned(column(&found[0][0], 0)?)
    }

    /// Sends statements of which one commits.
    pub(crate) async fn commit(
        &mut self,
        calls: &[Call],
    ) -> Result<Vec<Vec<Row>>, (Fault, Applied)> {
        self.run(calls).await.map_err(|fault| {
            // What the server refused was rolled back, and so was what it was not told to commit. If it
            // went away later, nobody knows.
            let applied = match self.commits && (fault.breaks_connection() || self.broken) {
                true => Applied::Unknown,
                false => Applied::No,
            };
            (fault, applied)
        })
    }

    /// Sends statements together, in order, and waits for the answers. The first error counts:
    /// inside a transaction, those after it are only its echo. What is to be copied is sent when all
    /// before it has succeeded.
    pub(crate) async fn run(&mut self, calls: &[Call]) -> Answer<Vec<Vec<Row>>> {
        self.open |= calls.iter().any(Call::begins);
        (self.asked, self.commits) = (true, false);
        let answer = self.run_in_time(calls).await;
        self.asked = false;
        match &answer {
            Ok(_) if calls.iter().any(Call::ends) => self.open = false,
            Ok(_) => {}
            Err(fault) => {
                self.broken |= fault.breaks_connection();
                if fault.is_stale() {
                    self.statements.clear();
                }
                // The server has rolled back what it was told to commit.
                if calls.iter().any(Call::ends) && !self.broken {
                    self.open = false;
                }
            }
        }
        answer
    }

    async fn run_in_time(&mut self, calls: &[Call]) -> Answer<Vec<Vec<Row>>> {
        let answer = in_time(self.call_timeout, self.run_now(calls)).await;
        self.silent |= matches!(answer, Err(Fault::Unreachable(_)));
        self.broken |= self.silent;
        answer
    }

    async fn run_now(&mut self, calls: &[Call]) -> Answer<Vec<Vec<Row>>> {
        let parts: Vec<&[Call]> = calls
            .chunk_by(|one, next| one.rows.is_none() && next.rows.is_none())
            .collect();
        for part in &parts {
            for message in messages(part, self.prepare) {
                if !self.prepare {
                    self.write(&part[message.sent]);
                } else if let Err(fault) = self.prepare(&part[message.sent]).await {
                    if calls.iter().any(Call::ends) {
                        self.end(&fault).await;
                    }
                    return Err(fault);
                }
            }
        }
        let mut answers = Vec::new();
        for part in parts {
            // What is not even sent does not commit.
            self.commits |= part.iter().any(Call::commits) && !self.client.is_closed();
            match self.run_part(part).await {
                Ok(part) => answers.extend(part),
                Err(fault) => {
                    let unsent = &calls[answers.len() + part.len()..];
                    if unsent.iter().any(Call::ends) {
                        self.end(&fault).await;
                    }
                    return Err(fault);
                }
            }
        }
        Ok(answers)
    }

    /// Ends a transaction whose own end was not sent, because of a fault before it.
    async fn end(&mut self, fault: &Fault) {
        if !fault.breaks_connection() && !self.astray {
            let ended = self.run_together(&[(&ROLLBACK).into()]).await;
            self.broken |= ended.is_err();
        }
    }

    /// Copies rows, or sends statements together.
    async fn run_part(&mut self, part: &[Call]) -> Answer<Vec<Vec<Row>>> {
        match part {
            [
                Call {
                    rows: Some(rows), ..
                },
            ] => {
                self.copy(part, rows.clone()).await?;
                Ok(vec![Vec::new()])
            }
            _ => self.run_together(part).await,
        }
    }

    async fn run_together(&self, calls: &[Call]) -> Answer<Vec<Vec<Row>>> {
        // With a pooler, each transaction may have another connection, and brings its settings. So what is sent outside
        // of one becomes one.
        let brings = !self.prepare && !self.settings.is_empty();
        let set = brings.then(|| self.set_local());
        let set = set.as_ref().map(std::slice::from_ref);
        let alone = brings && !self.open;
        let (begin, commit): ([Call; 1], [Call; 1]) = ([(&BEGIN).into()], [(&COMMIT).into()]);
        let (mut sent, mut asked) = (Vec::new(), Vec::new());
        if let Some(set) = set.filter(|_| alone) {
            sent.extend([self.send(&begin).boxed(), self.send(set).boxed()]);
            asked.extend([None, None]);
        }
        for message in messages(calls, self.prepare) {
            sent.push(self.send(&calls[message.sent.clone()]).boxed());
            let begins = calls[message.calls.clone()].iter().any(Call::begins);
            asked.push(Some(message));
            if let Some(set) = set.filter(|_| begins) {
                sent.push(self.send(set).boxed());
                asked.push(None);
            }
        }
        if alone {
            sent.push(self.send(&commit).boxed());
            asked.push(None);
        }
        let (mut answers, mut committed) = (Vec::new(), false);
        answers.resize_with(calls.len(), Vec::new);
        for (rows, message) in in_order(sent.into_iter()).await.into_iter().zip(asked) {
            // What was committed stays so, whatever becomes of the rest.
            let rows = match committed {
                true => rows.unwrap_or_default(),
                false => rows?,
            };
            if let Some(message) = message {
                committed |= calls[message.calls].iter().any(Call::commits);
                answers[message.sent.end - 1] = rows;
            }
        }
        Ok(answers)
    }

    /// Copies rows. What was sent before has succeeded: where a copy cannot even begin, the server
    /// answers twice, and the connection is of no more use.
    async fn copy(&mut self, call: &[Call], rows: Bytes) -> Answer<()> {
        let statement = self.prepare(call).await?;
        self.astray = true;
        let mut sink = pin!(self.client.copy_in(&statement).await?);
        self.astray = false;
        sink.send(rows).await?;
        sink.finish().await?;
        Ok(())
    }

    fn set_local(&self) -> Call {
        let (names, values): (Vec<_>, Vec<_>) = self.settings.iter().cloned().unzip();
        Call::new(&SET, params![names, values, true])
    }

    /// Prepares the statement that calls become together.
    async fn prepare(&mut self, calls: &[Call]) -> Answer<Statement> {
        let ids = ids(calls);
        if let Some(statement) = self.statements.get(&ids) {
            return Ok(statement.clone());
        }
        let (text, types) = (self.text(calls), joint::types(calls));
        let statement = self.client.prepare_typed(&text, &types).await?;
        self.statements.insert(ids, statement.clone());
        Ok(statement)
    }

    /// Writes down the statement that calls become together.
    fn write(&mut self, calls: &[Call]) {
        let ids = ids(calls);
        if !self.texts.contains_key(&ids) {
            let text = self.text(calls);
            self.texts.insert(ids, text);
        }
    }

    /// Sends calls as one statement.
    async fn send(&self, calls: &[Call]) -> Result<Vec<Row>, tokio_postgres::Error> {
        let params = calls.iter().flat_map(|call| &call.params);
        let params = params.map(|param| param.as_ref() as &(dyn ToSql + Sync));
        let ids = ids(calls);
        if let Some(statement) = self.statements.get(&ids) {
            let params: Vec<_> = params.collect();
            return self.client.query(statement, &params).await;
        }
        let typed: Vec<_> = params.zip(joint::types(calls)).collect();
        match self.texts.get(&ids) {
            Some(text) => self.client.query_typed(text, &typed).await,
            None => self.client.query_typed(&self.text(calls), &typed).await,
        }
    }

    fn text(&self, calls: &[Call]) -> String {
        with_schema(&joint::text(calls), &self.schema)
    }

    /// Ends a transaction without effect, as far as that is needed.
    pub(crate) async fn roll_back(&mut self) {
        if self.open && !self.broken && !self.astray {
            let rollback: [Call; 1] = [(&ROLLBACK).into()];
            if let Err(fault) = self.run(&rollback).await {
                tracing::debug!(?fault, "a transaction could not be rolled back");
                self.broken = true;
            }
        }
    }

    /// What statements without parameters do, one after another.
    pub(crate) async fn execute(&mut self, text: &str) -> Answer<()> {
        let text = with_schema(text, &self.schema);
        let done = self.client.batch_execute(&text).await.map_err(Fault::from);
        if let Err(fault) = &done {
            self.broken |= fault.breaks_connection();
        }
        done
    }
}

/// Gives a step up after a while: the other side may be gone without a word.
pub(crate) async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Answer<T>>,
) -> Answer<T> {
    let patience = SystemClock::new().sleep(limit);
    match select(pin!(step), patience).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(Fault::Unreachable(format!(
            "PostgreSQL did not answer within {limit:?}: look at the server and at what is \
             between here and there, or allow more with call_timeout"
        ))),
    }
}

/// Polls all futures in order before it waits for any, so that they are sent in order.
async fn in_order<F: Future + Unpin>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(futures::future::maybe_done).collect();
    poll_fn(|context| {
        for one in &mut waiting {
            let _ = one.poll_unpin(context);
        }
        Poll::Ready(())
    })
    .await;
    let finished = join_all(waiting.iter_mut()).await;
    drop(finished);
    let outputs = waiting
        .iter_mut()
        .filter_map(|one| std::pin::Pin::new(one).take_output());
    outputs.collect()
}

/// Which statement it is: where it is, for it stays there.
type StatementId = usize;

fn ids(calls: &[Call]) -> Vec<StatementId> {
    let id = |call: &Call| std::ptr::from_ref(call.sql).addr();
    calls.iter().map(id).collect()
}

/// Names of settings and what they are set to.
type Settings = Vec<(&'static str, Option<String>)>;

/// What holds for our statements. Plans never depend on statistics: rows are always found by an
/// index, from the few that are named.
fn settings(config: &Config) -> Settings {
    let set = |name, value: &str| (name, Some(value.to_owned()));
    let limit = |name, limit: Duration| (name, Some(limit.as_millis().to_string()));
    vec![
        // Whoever is answered has it on disk. What is to happen on standbys is for others to say.
        ("synchronous_commit", None),
        limit("lock_timeout", config.lock_timeout),
        // We do not pause within a transaction but for the one beside it: whoever does is frozen or gone, with rows
        // locked.
        set("idle_in_transaction_session_timeout", "5000"),
        // The server's word counts: whether it happened is known then.
        limit("statement_timeout", config.call_timeout * 9 / 10),
        // A statement that is a transaction by itself is like any other.
        set("default_transaction_isolation", "read committed"),
        set("jit", "off"),
        set("enable_seqscan", "off"),
        set("enable_hashjoin", "off"),
        set("enable_mergejoin", "off"),
        set("enable_bitmapscan", "off"),
        set("plan_cache_mode", "force_generic_plan"),
    ]
}

/// An error with what is behind it.
pub(crate) fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests;
