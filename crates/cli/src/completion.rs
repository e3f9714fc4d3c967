//! `plimsoll completion`: scripts that complete what is typed in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::exit::{OK, Outcome};
use crate::output::say_bytes;

/// Writes a script that completes what is typed in a shell. For bash, put this into `~/.bashrc`:
/// `source <(plimsoll completion bash)`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// Which shell.
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(self) -> Outcome {
        let mut script = Vec::new();
        let mut command = crate::Arguments::command();
        clap_complete::generate(self.shell, &mut command, "plimsoll", &mut script);
        say_bytes(&script)?;
        Ok(OK)
    }
}
