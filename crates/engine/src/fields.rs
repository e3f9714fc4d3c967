//! Reads the engine's own records: by field, with an error that names the one that is wrong.

use bytes::Bytes;
use plimsoll_core::record::{Record, integer};
use plimsoll_core::{Error, Result};
use serde::de::DeserializeOwned;

/// Reads the fields of a record. What is missing or cannot be read is `Corrupt`.
pub(crate) struct Reader<'a>(pub(crate) &'a Record);

impl<'a> Reader<'a> {
    pub(crate) fn bad(&self, field: &str) -> Error {
        Error::Corrupt(format!("record {}: bad or missing {field}", self.0.key).into())
    }

    fn field(&self, name: &str) -> Result<&'a Bytes> {
        self.0.field(name).ok_or_else(|| self.bad(name))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str> {
        std::str::from_utf8(self.field(name)?).map_err(|_| self.bad(name))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T> {
        let number = integer(self.field(name)?).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.bad(name))
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        serde_json::from_slice(self.field(name)?).map_err(|_| self.bad(name))
    }

    /// The same of a field that may be absent.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Self, &str) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.0.field(name) {
            Some(_) => read(self, name).map(Some),
            None => Ok(None),
        }
    }
}
