//! What a handler makes of a task.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::store::{FailRetry, Write};
use plimsoll_core::task::NewTask;
use serde::Serialize;

use super::Json;
use crate::json;

/// What a handler makes of a task. Handlers may answer anything that is
/// [`IntoAnswer`]: most answer `Result<(), Failure>` or `Result<Json<T>, Failure>`.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_engine::worker::{Answer, Failure, IntoAnswer, Json};
/// assert!(matches!(Json(42).into_answer(), Answer::Complete(_)));
/// let failed: Result<(), Failure> = Err(Failure::fatal("no such page"));
/// assert!(matches!(failed.into_answer(), Answer::Fail(_)));
/// let later = Answer::Snooze(Duration::from_secs(60)).into_answer();
/// assert_eq!(later, Answer::Snooze(Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done.
    Complete(Completion),
    /// It went wrong.
    Fail(Failure),
    /// It is too early; nothing is counted.
    Snooze(Duration),
    /// Somebody else should do it; it is runnable at once, and nothing is counted.
    Release,
    /// It is called off.
    Cancel(Option<String>),
}

/// What a task came to, and what happens in the same commit.
///
/// ```
/// use plimsoll_engine::worker::Completion;
/// let done = Completion::json(&serde_json::json!({ "pages": 12 }))?;
/// assert!(done.result.is_some() && done.with.is_empty());
/// # Ok::<(), plimsoll_engine::worker::Failure>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The result.
    pub result: Option<Bytes>,
    /// What is written together with the completion, or not at all.
    pub with: Vec<Write>,
}

impl Completion {
    /// Without a result.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a result.
    pub fn bytes(result: impl Into<Bytes>) -> Self {
        Self {
            result: Some(result.into()),
            with: Vec::new(),
        }
    }

    /// With a result as JSON. One that could not be read again (numbers that are not finite) fails for good.
    pub fn json(result: &impl Serialize) -> Result<Self, Failure> {
        match json::write(result) {
            Ok(bytes) => Ok(Self::bytes(bytes)),
            Err(expected) => Err(Failure::fatal(format!("the result is not {expected}"))),
        }
    }

    /// Submits a task in the same commit.
    pub fn submit(self, task: NewTask) -> Self {
        self.write(Write::Submit(Box::new(task)))
    }

    /// Writes something in the same commit.
    pub fn write(mut self, write: Write) -> Self {
        self.with.push(write);
        self
    }
}

/// How an attempt went wrong. Anything that can be shown becomes one with `?`, to be tried again
/// as the task's policy says.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_engine::worker::Failure;
/// fn parse(text: &str) -> Result<u32, Failure> {
///     if text.is_empty() {
///         return Err(Failure::retry_after(Duration::from_secs(60), "nothing there yet"));
///     }
///     Ok(text.parse::<u32>()?)
/// }
/// assert_eq!(parse("x").unwrap_err().message, "invalid digit found in string");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub message: String,
    /// When to try again.
    pub retry: FailRetry,
}

impl Failure {
    /// To be tried again as the task's policy says.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry: FailRetry::Policy,
        }
    }

    /// Not to be tried again.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry: FailRetry::Fatal,
        }
    }

    /// To be tried again after this long, if the task's policy allows one more attempt.
    pub fn retry_after(delay: Duration, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retry: FailRetry::After(delay),
        }
    }
}

/// The whole chain of causes is kept where the error shows it.
impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(format!("{error:#}"))
    }
}

/// What a handler may answer.
pub trait IntoAnswer {
    /// As an answer.
    fn into_answer(self) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Answer {
        Answer::Complete(Completion::new())
    }
}

impl IntoAnswer for Completion {
    fn into_answer(self) -> Answer {
        Answer::Complete(self)
    }
}

impl IntoAnswer for Failure {
    fn into_answer(self) -> Answer {
        Answer::Fail(self)
    }
}

impl IntoAnswer for Bytes {
    fn into_answer(self) -> Answer {
        Answer::Complete(Completion::bytes(self))
    }
}

impl<T: Serialize> IntoAnswer for Json<T> {
    fn into_answer(self) -> Answer {
        Completion::json(&self.0).into_answer()
    }
}

impl<T: IntoAnswer, E: Into<Failure>> IntoAnswer for Result<T, E> {
    fn into_answer(self) -> Answer {
        match self {
            Ok(answer) => answer.into_answer(),
            Err(failure) => Answer::Fail(failure.into()),
        }
    }
}
