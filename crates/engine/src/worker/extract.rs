//! What a handler may ask for: each argument is taken from the task it works on.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::Invalid;
use plimsoll_core::error::Problem;
use serde::de::DeserializeOwned;

use super::{Context, Failure};

/// An argument of a handler.
///
/// ```
/// use plimsoll_engine::worker::{Context, Failure, FromTask};
///
/// /// Whose task it is.
/// struct Owner(String);
///
/// impl FromTask for Owner {
///     fn from_task(context: &Context) -> Result<Self, Failure> {
///         let owner = context.task().spec.owner.as_ref();
///         let owner = owner.ok_or_else(|| Failure::fatal("the task has no owner"))?;
///         Ok(Self(owner.to_string()))
///     }
/// }
///
/// async fn greet(Owner(owner): Owner) -> Result<(), Failure> {
///     assert!(!owner.is_empty());
///     Ok(())
/// }
/// ```
pub trait FromTask: Sized {
    /// Takes it from the task at hand. A failure ends the attempt.
    fn from_task(context: &Context) -> Result<Self, Failure>;

    /// Whether a worker with these states can ever provide it. Checked when the worker is built.
    fn check(_states: &States) -> Result<(), Invalid> {
        Ok(())
    }
}

/// The task at hand, and what its holder may do with it.
impl FromTask for Context {
    fn from_task(context: &Context) -> Result<Self, Failure> {
        Ok(context.clone())
    }
}

/// The payload as it is.
impl FromTask for Bytes {
    fn from_task(context: &Context) -> Result<Self, Failure> {
        Ok(context.task().spec.payload.clone())
    }
}

/// A payload or result as JSON. A payload that cannot be read fails the task for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromTask for Json<T> {
    fn from_task(context: &Context) -> Result<Self, Failure> {
        match serde_json::from_slice(&context.task().spec.payload) {
            Ok(payload) => Ok(Self(payload)),
            Err(error) => Err(Failure::fatal(format!(
                "the payload is not what the handler expects: {error}"
            ))),
        }
    }
}

/// Something that all handlers of a worker share.
#[derive(Debug)]
pub struct State<T>(pub Arc<T>);

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for State<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> FromTask for State<T> {
    fn from_task(context: &Context) -> Result<Self, Failure> {
        Ok(Self(context.states().get::<T>()?))
    }

    fn check(states: &States) -> Result<(), Invalid> {
        states.get::<T>().map(drop)
    }
}

/// What the handlers of a worker share, by type.
#[derive(Clone, Debug, Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    pub(super) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(state));
    }

    fn get<T: Send + Sync + 'static>(&self) -> Result<Arc<T>, Invalid> {
        let found = self.0.get(&TypeId::of::<T>()).cloned();
        found
            .and_then(|state| state.downcast().ok())
            .ok_or_else(|| {
                let missing = format!("a handler asks for {}", type_name::<T>());
                Invalid::new("state", Problem::Missing(missing.into()))
            })
    }
}
