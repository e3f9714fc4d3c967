//! `plimsoll lock-exec`: becomes the command of `plimsoll lock run`.
//!
//! Between the fork and the command, something has to ask the system to kill the command with its
//! parent: otherwise it would go on without the lock when `plimsoll lock run` is killed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::process::{CANNOT_RUN, code_of};

/// Becomes the command of `plimsoll lock run`.
#[derive(Debug, Args)]
pub(crate) struct LockExec {
    /// The process that holds the lock.
    #[arg(long)]
    parent: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl LockExec {
    pub(crate) fn run(self) -> ExitCode {
        let Some((program, arguments)) = self.command.split_first() else {
            return ExitCode::from(CANNOT_RUN);
        };
        if !die_with(self.parent) {
            return ExitCode::FAILURE;
        }
        let error = Command::new(program).args(arguments).exec();
        eprintln!("plimsoll: cannot run {}: {error}", program.display());
        ExitCode::from(code_of(&error))
    }
}

/// Ends with this parent from now on; not if it has ended already.
#[cfg(target_os = "linux")]
fn die_with(parent: u32) -> bool {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let asked = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let living =
        getppid().is_some_and(|found| found.as_raw_nonzero().get().cast_unsigned() == parent);
    asked && living
}

/// Other systems cannot be asked.
#[cfg(not(target_os = "linux"))]
fn die_with(_parent: u32) -> bool {
    true
}
