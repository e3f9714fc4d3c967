//! Which store to open.

use std::fmt;
use std::path::PathBuf;

use plimsoll_core::Invalid;
use plimsoll_core::error::Problem;
use plimsoll_core::store::Durability;

pub use self::postgres::PostgresUrl;

mod postgres;

/// A store, as people write it.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | this process's memory |
/// | `sqlite:PATH` | a file; every write is on disk before it is acknowledged |
/// | `sqlite:PATH?durability=system` | a file; a write survives the process, not the machine |
/// | `postgres://USER:PASSWORD@HOST:PORT/DATABASE` | a schema of a PostgreSQL database: see [`PostgresUrl`] |
///
/// As text, passwords are left out.
///
/// ```
/// use plimsoll::StoreUrl;
/// assert_eq!(StoreUrl::parse("memory:")?, StoreUrl::Memory);
/// let error = StoreUrl::parse("sqlite:").unwrap_err();
/// assert_eq!(error.to_string(), "store: is missing: the path of the file, as in sqlite:plimsoll.db");
/// # Ok::<(), plimsoll::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// This process's memory.
    Memory,
    /// A file.
    Sqlite {
        /// Where it is.
        path: PathBuf,
        /// What has happened when a write is acknowledged.
        durability: Durability,
    },
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite { path, .. } => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<Self, Invalid> {
        let invalid = |problem| Invalid::new("store", problem);
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", rest)) => {
                let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
                if path.is_empty() {
                    let missing = "the path of the file, as in sqlite:plimsoll.db";
                    return Err(invalid(Problem::Missing(missing.into())));
                }
                if path.starts_with("//") {
                    return Err(invalid(Problem::Malformed {
                        expected: "sqlite:PATH without slashes before the path".into(),
                    }));
                }
                let durability = match query {
                    "" | "durability=disk" => Durability::Disk,
                    "durability=system" => Durability::System,
                    _ => {
                        return Err(invalid(Problem::Malformed {
                            expected: "durability=disk or durability=system after the ?".into(),
                        }));
                    }
                };
                Ok(Self::Sqlite {
                    path: path.into(),
                    durability,
                })
            }
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(PostgresUrl::parse(url)?)),
            Some(_) | None => Err(invalid(Problem::Malformed {
                expected: "memory:, sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE"
                    .into(),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_durable_on_disk_unless_asked_otherwise() {
        let file = |durability| StoreUrl::Sqlite {
            path: "a/b.db".into(),
            durability,
        };
        assert_eq!(StoreUrl::parse("sqlite:a/b.db"), Ok(file(Durability::Disk)));
        assert_eq!(
            StoreUrl::parse("sqlite:a/b.db?durability=system"),
            Ok(file(Durability::System))
        );
    }

    #[test]
    fn what_is_no_store_says_what_is_one() {
        for url in [
            "",
            "memory",
            "memory:x",
            "mysql:x",
            "sqlite:x?fast=yes",
            "sqlite://x.db",
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.field, "store", "{url}");
        }
    }
}
