//! What a server has to be like, so that our promises hold.

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::Durability;
use plimsoll_core::{Error, Result};
use tokio_postgres::Row;

use crate::codec::column;
use crate::error::Answer;

/// What [`Server::read`] reads.
pub(crate) const LOOK: &str =
    "SELECT current_setting('fsync')::boolean, current_setting('full_page_writes')::boolean";

/// What a server says of itself to whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Whether what is written is on disk.
    pub(crate) fsync: bool,
    /// Whether a page that was half written can be mended.
    pub(crate) full_page_writes: bool,
}

impl Server {
    pub(crate) fn read(row: &Row) -> Answer<Self> {
        Ok(Self {
            fsync: column(row, 0)?,
            full_page_writes: column(row, 1)?,
        })
    }

    /// Refuses a server that may lose what it has acknowledged, unless that is accepted.
    pub(crate) fn check(self, unsafe_durability: bool) -> Result<()> {
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
        assert_eq!(SOUND.durability(), Durability::Disk);
    }
}
