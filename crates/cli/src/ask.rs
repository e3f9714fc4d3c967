//! Asks before what cannot be undone.

use std::io::{BufRead, IsTerminal};

use crate::exit::{CliError, Outcome};

/// Asks, if there is somebody to ask; otherwise says what `would` be done, and what to `add`.
pub(crate) fn agreed(question: &str, would: &str, add: &str) -> Outcome<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(format!(
            "{would}, and nobody can be asked: {add}"
        )));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| CliError::Input {
        what: "the answer".into(),
        error,
    })?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
