//! What a server has to be like, so that our promises hold.

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::Durability;
use plimsoll_core::{Error, Result};
use tokio_postgres::Row;

use crate::codec::column;
use crate::error::Answer;

/// The oldest server that this works with, as servers number themselves.
pub const SERVER_VERSION_MIN: u32 = 150_000;

/// What [`Server::read`] reads.
pub(crate) const LOOK: &str = "SELECT current_setting('server_version_num')::integer, \
                               current_setting('fsync')::boolean, \
                               current_setting('full_page_writes')::boolean";

/// What a server says of itself to whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// As in 150018.
    pub(crate) version: u32,
    /// Whether what is written is on disk.
    pub(crate) fsync: bool,
    /// Whether a page that was half written can be mended.
    pub(crate) full_page_writes: bool,
}

impl Server {
    pub(crate) fn read(row: &Row) -> Answer<Self> {
        Ok(Self {
            version: column::<i32>(row, 0)?.unsigned_abs(),
            fsync: column(row, 1)?,
            full_page_writes: column(row, 2)?,
        })
    }

    /// Refuses a server that is too old.
    pub(crate) fn check_version(self) -> Result<()> {
        if self.version >= SERVER_VERSION_MIN {
            return Ok(());
        }
        // Before 10, the first two numbers were the version.
        let (major, rest) = (self.version / 10_000, self.version % 10_000);
        let found = match major {
            ..10 => format!("{major}.{}.{}", rest / 100, rest % 100),
            _ => format!("{major}.{rest}"),
        };
        let needed = SERVER_VERSION_MIN / 10_000;
        Err(Error::Unsupported(
            format!("the server is PostgreSQL {found}, and {needed} or newer is needed").into(),
        ))
    }

    /// Refuses a server that is too old, and one that may lose what it has acknowledged unless that
    /// is accepted.
    pub(crate) fn check(self, unsafe_durability: bool) -> Result<()> {
        self.check_version()?;
        let off = match (self.fsync, self.full_page_writes) {
            (true, true) => return Ok(()),
            _ if unsafe_durability => return Ok(()),
            (false, true) => "fsync",
            (true, false) => "full_page_writes",
            (false, false) => "fsync and full_page_writes",
        };
        Err(Error::Unavailable(Unavailable {
            applied: Applied::No,
            cause: format!(
                "the server has {off} off, so what it acknowledges may be lost with its machine: \
                 switch it on, or accept that with unsafe_durability=accept in the URL"
            ),
        }))
    }

    /// What has happened to a write that it acknowledged.
    pub(crate) fn durability(self) -> Durability {
        match self.fsync && self.full_page_writes {
            true => Durability::Disk,
            false => Durability::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: Server = Server {
        version: 150_018,
        fsync: true,
        full_page_writes: true,
    };

    #[test]
    fn a_server_that_may_lose_writes_is_refused_unless_that_is_accepted() {
        for (fsync, full_page_writes, named) in [
            (true, true, None),
            (false, true, Some("has fsync off")),
            (true, false, Some("has full_page_writes off")),
            (false, false, Some("has fsync and full_page_writes off")),
        ] {
            let server = Server {
                fsync,
                full_page_writes,
                ..SOUND
            };
            assert_eq!(server.check(true), Ok(()));
            let told = server.check(false).map_err(|error| error.to_string());
            match (told, named) {
                (Ok(()), None) => assert_eq!(server.durability(), Durability::Disk),
                (Err(told), Some(named)) => {
                    assert!(told.contains(named), "{told}");
                    assert!(told.contains("unsafe_durability=accept"), "{told}");
                    assert_eq!(server.durability(), Durability::System);
                }
                (told, named) => panic!("{told:?} instead of {named:?}"),
            }
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_by_its_version_and_the_one_needed() {
        for version in [150_000, 150_018, 160_000, 180_001] {
            assert_eq!(Server { version, ..SOUND }.check(false), Ok(()));
        }
        for (version, found) in [
            (149_999, "PostgreSQL 14.9999"),
            (140_009, "PostgreSQL 14.9"),
            (100_000, "PostgreSQL 10.0"),
            (90_624, "PostgreSQL 9.6.24"),
            (0, "PostgreSQL 0.0.0"),
        ] {
            // What is accepted has nothing to do with it.
            for accepted in [false, true] {
                match (Server { version, ..SOUND }).check(accepted) {
                    Err(Error::Unsupported(told)) => {
                        let words = format!("the server is {found}, and 15 or newer is needed");
                        assert_eq!(told, words);
                    }
                    other => panic!("{version}: {other:?}"),
                }
            }
        }
    }
}
