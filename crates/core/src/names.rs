//! Checked text: namespaces, keys, names, prefixes, idempotency keys and group ids.
//!
//! Every value is UTF-8 without NUL and within its limit, or it does not exist. Beyond that it is
//! data: stores escape what their own language would read as syntax.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::{Invalid, Problem};
use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX};

fn check(field: &str, text: &str, min: usize, max: usize) -> Result<(), Invalid> {
    if text.len() < min {
        return Err(Invalid::new(field, Problem::Empty));
    }
    if text.len() > max {
        return Err(Invalid::new(
            field,
            Problem::TooLong {
                bytes: text.len(),
                max,
            },
        ));
    }
    if text.contains('\0') {
        return Err(Invalid::new(field, Problem::Nul));
    }
    Ok(())
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $field:literal, $min:expr, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl $name {
            /// Checks the text against the limits of this type.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                Self::for_field($field, text)
            }

            /// Like [`new`](Self::new), with the name of the input that an error should blame.
            pub fn for_field(field: &str, text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                check(field, text, $min, $max)?;
                Ok(Self(text.into()))
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;
            fn try_from(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text! {
    /// The key of a record. Dots delimit its parts by convention.
    ///
    /// ```
    /// use plimsoll_core::Key;
    /// let key = Key::new("gbe.state.tasks.email-send.job_123")?;
    /// assert_eq!(key.as_str(), "gbe.state.tasks.email-send.job_123");
    /// assert!(Key::new("").is_err());
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    Key, "key", 1, KEY_BYTES_MAX
}

text! {
    /// The beginning of a key; empty matches every key.
    Prefix, "prefix", 0, KEY_BYTES_MAX
}

text! {
    /// A short name: a field, queue, kind, owner, label, stage or worker.
    ///
    /// ```
    /// use plimsoll_core::Name;
    /// let error = Name::for_field("queue", "x".repeat(129)).unwrap_err();
    /// assert_eq!(error.to_string(), "queue: 129 bytes, at most 128 are allowed");
    /// ```
    Name, "name", 1, NAME_BYTES_MAX
}

text! {
    /// What makes two submissions the same piece of work.
    IdempotencyKey, "idempotency_key", 1, KEY_BYTES_MAX
}

text! {
    /// The id of a group.
    GroupId, "group", 1, KEY_BYTES_MAX
}

impl Prefix {
    /// The prefix that matches everything.
    pub fn any() -> Self {
        Self("".into())
    }

    /// Whether `text` begins with this prefix.
    pub fn matches(&self, text: &str) -> bool {
        text.starts_with(self.as_str())
    }
}

/// A closed world of records, tasks, groups and history. Namespaces share nothing.
///
/// It becomes part of bucket, schema and file names, so it is limited to letters, digits, `_` and
/// `-`, and to 64 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks the text.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        check("namespace", text, 1, NAMESPACE_BYTES_MAX)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !text.chars().all(plain) {
            return Err(Invalid::new(
                "namespace",
                Problem::Malformed {
                    expected: "letters, digits, '_' and '-'".into(),
                },
            ));
        }
        Ok(Self(text.into()))
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Namespace {
    type Error = Invalid;
    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> String {
        namespace.0.as_ref().to_owned()
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
