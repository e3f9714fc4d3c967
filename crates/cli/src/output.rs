//! Standard output, which may be closed before everything is said.

use std::io::{ErrorKind, Result, Write};

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
