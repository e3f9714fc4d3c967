//! Processes as shells know them: which program this is, and what exit codes say.

use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use rustix::io::Errno;

/// The system could not start it, for want of memory or processes: `EX_OSERR` of `sysexits.h`.
pub(crate) const SYSTEM: u8 = 71;
/// The command is there but cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;
/// To which shells add the signal that killed a command.
pub(crate) const SIGNALLED: u8 = 128;

/// The exit code, or 128 and the signal.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signalled = || status.signal().map(|signal| i32::from(SIGNALLED) + signal);
    let code = status.code().or_else(signalled);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// For a command that could not be started.
pub(crate) fn code_of(error: &io::Error) -> u8 {
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::PermissionDenied | ErrorKind::ArgumentListTooLong => CANNOT_RUN,
        _ if Errno::from_io_error(error) == Some(Errno::NOEXEC) => CANNOT_RUN,
        _ => SYSTEM,
    }
}

/// This program as it is now: its file may be replaced while it runs.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_shells_tell_them() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
        for (errno, expected) in [
            (Errno::NOENT, 127),
            (Errno::ACCESS, 126),
            (Errno::TOOBIG, 126),
            (Errno::NOEXEC, 126),
            (Errno::AGAIN, 71),
            (Errno::NOMEM, 71),
        ] {
            assert_eq!(code_of(&errno.into()), expected, "{errno}");
        }
    }
}
