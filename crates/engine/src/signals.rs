//! The signals that end a process.

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and interrupts, one after another.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Error::Unavailable(Unavailable {
                    applied: Applied::No,
                    cause: format!("cannot listen for signals: {error}"),
                })
            })
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
