//! Standard output, which may be closed before everything is said.

use std::io::{ErrorKind, Result, Write};

use crate::exit::{CliError, Outcome};

/// Says it. Whether somebody still listens: `head` leaves after its first lines, which is no error.
pub(crate) fn say(text: &str) -> Result<bool> {
    say_bytes(text.as_bytes())
}

/// Says what need not be text.
pub(crate) fn say_bytes(bytes: &[u8]) -> Result<bool> {
    let mut output = std::io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Says what a command does to the store while it goes on. What is done matters more than who hears
/// of it: when nobody listens, or the answer cannot be written, the work is finished all the same.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    silent: bool,
    error: Option<CliError>,
}

impl Teller {
    /// Says this, if somebody still listens.
    pub(crate) fn tell(&mut self, say: impl FnOnce() -> Outcome<bool>) {
        if self.silent {
            return;
        }
        match say() {
            Ok(heard) => self.silent = !heard,
            Err(error) => {
                self.silent = true;
                self.error = Some(error);
            }
        }
    }

    /// Ends with this code, unless the answer could not be written.
    pub(crate) fn end(self, code: u8) -> Outcome {
        self.error.map_or(Ok(code), Err)
    }
}
