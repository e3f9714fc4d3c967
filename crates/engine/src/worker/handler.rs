//! Handlers: async functions whose arguments are taken from the task.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use plimsoll_core::Invalid;
use tower::Service;
use tower::util::BoxCloneSyncService;

use super::{Answer, Context, Failure, FromTask, IntoAnswer, States};

/// Works on one task after another. Every layer sees this.
pub type HandlerService = BoxCloneSyncService<Context, Answer, Infallible>;

/// An async function of up to six arguments that are [`FromTask`], answering what is
/// [`IntoAnswer`].
pub trait Handler<Arguments>: Clone + Send + Sync + 'static {
    /// Works on a task.
    fn call(self, context: Context) -> impl Future<Output = Answer> + Send;
    /// Whether a worker with these states can call it.
    fn check(states: &States) -> Result<(), Invalid>;
}

macro_rules! handler {
    ($($argument:ident)*) => {
        impl<F, Fut, R, $($argument,)*> Handler<($($argument,)*)> for F
        where
            F: Fn($($argument,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send,
            R: IntoAnswer,
            $($argument: FromTask + Send,)*
        {
            #[allow(non_snake_case, unused_variables)]
            async fn call(self, context: Context) -> Answer {
                $(
                    let $argument = match $argument::from_task(&context) {
                        Ok(argument) => argument,
                        Err(failure) => return Answer::Fail(failure),
                    };
                )*
                self($($argument,)*).await.into_answer()
            }

            #[allow(unused_variables)]
            fn check(states: &States) -> Result<(), Invalid> {
                $($argument::check(states)?;)*
                Ok(())
            }
        }
    };
}

handler!();
handler!(A);
handler!(A B);
handler!(A B C);
handler!(A B C D);
handler!(A B C D E);
handler!(A B C D E G);

/// A handler as a service, for layers.
pub(super) struct Served<H, A> {
    handler: H,
    arguments: PhantomData<fn() -> A>,
}

impl<H, A> Served<H, A> {
    pub(super) fn new(handler: H) -> Self {
        Self {
            handler,
            arguments: PhantomData,
        }
    }
}

impl<H: Clone, A> Clone for Served<H, A> {
    fn clone(&self) -> Self {
        Self::new(self.handler.clone())
    }
}

impl<H: Handler<A>, A: 'static> Service<Context> for Served<H, A> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, context: Context) -> Self::Future {
        let handler = self.handler.clone();
        Box::pin(async move { Ok(handler.call(context).await) })
    }
}

/// Answers what a layer could not: its error is a failure of the task.
#[derive(Clone)]
pub(super) struct Settled<S> {
    inner: S,
    /// Why the service cannot be called: one that is not well must not be.
    unwell: Option<Failure>,
}

impl<S> Settled<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            unwell: None,
        }
    }
}

impl<S> Service<Context> for Settled<S>
where
    S: Service<Context, Response = Answer>,
    S::Error: std::fmt::Display,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, poller: &mut Poller<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(poller).map(|ready| {
            self.unwell = ready.err().map(Failure::from);
            Ok(())
        })
    }

    fn call(&mut self, context: Context) -> Self::Future {
        if let Some(failure) = self.unwell.take() {
            return Box::pin(std::future::ready(Ok(Answer::Fail(failure))));
        }
        let answer = self.inner.call(context);
        Box::pin(async move {
            Ok(match answer.await {
                Ok(answer) => answer,
                Err(error) => Answer::Fail(error.into()),
            })
        })
    }
}
