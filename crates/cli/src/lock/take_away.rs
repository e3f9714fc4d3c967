//! `plimsoll lock break`.

use clap::Args;
use plimsoll::Error;

use super::WireLock;
use crate::ask;
use crate::client::Client;
use crate::exit::{CliError, OK, Outcome, REFUSED};
use crate::text::{age, clean};

/// Takes a lock away from whoever has it.
#[derive(Debug, Args)]
pub(super) struct Break {
    /// Which lock.
    name: String,
    /// Does not ask.
    #[arg(long, short)]
    yes: bool,
}

impl Break {
    pub(super) async fn run(self, client: &Client) -> Outcome {
        let (locks, name) = (client.engine.locks(), clean(&self.name));
        let nobody = || CliError::NoSuch(format!("nobody holds lock {name}"));
        let found = locks.get(&self.name).await;
        let readable = found.is_ok();
        let what = match found {
            Ok(Some(lock)) => {
                let since = age(client.now(), lock.since);
                format!("lock {name} from {} (taken {since})", clean(&lock.owner))
            }
            Ok(None) => return Err(nobody()),
            Err(Error::Corrupt(_)) => format!("lock {name}, whose record cannot be read"),
            Err(error) => return Err(error.into()),
        };
        let would = format!("this takes away {what}");
        if !self.yes && !ask::agreed(&format!("Take away {what}?"), &would, "add --yes")? {
            client.screen.note("Nothing was changed.");
            return Ok(REFUSED);
        }
        let done = match locks.break_lock(&self.name).await? {
            Some(lock) if client.screen.json => {
                client.screen.object(&WireLock::from(&lock))?;
                return Ok(OK);
            }
            Some(lock) => format!("Took lock {name} from {}.", clean(&lock.owner)),
            None if readable => return Err(nobody()),
            None => format!("Removed the record of lock {name}."),
        };
        client.screen.note(&done);
        Ok(OK)
    }
}
