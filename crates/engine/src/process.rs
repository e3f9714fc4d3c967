//! What people call this process.

/// The name of the host.
pub(crate) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The host and the process: `host (pid)`.
pub(crate) fn name() -> String {
    format!("{} ({})", host(), std::process::id())
}
