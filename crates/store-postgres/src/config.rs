//! How to open a database.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::error::Problem;
use plimsoll_core::{Invalid, Limits};

use crate::session::with_source;
use crate::tls::{Options, Tls};

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the server is, and who connects.
    pub server: tokio_postgres::Config,
    /// What a server has to prove where connections are encrypted.
    pub tls: Tls,
    /// The schema that holds everything.
    pub schema: String,
    /// The limits on inputs.
    pub limits: Limits,
    /// The clock that leases, retries and expiry go by; `None`: the server's.
    pub clock: Option<Arc<dyn Clock>>,
    /// How many transactions of this process may write at the same time.
    pub writers: usize,
    /// How many reads may run at the same time.
    pub readers: usize,
    /// How many transactions of callers may hold or wait for an advisory lock at the same time.
    pub guests: usize,
    /// Whether to listen for what other processes wrote. Without, as behind a pooler that hands
    /// connections on after each transaction, everybody has to poll.
    pub listen: bool,
    /// Whether statements are prepared once for each connection. Poolers that hand connections on
    /// after each transaction may not allow it.
    pub prepare: bool,
    /// Whether to work with a server that may lose what it has acknowledged when its machine fails,
    /// because `fsync` or `full_page_writes` is off there. It is refused otherwise.
    pub unsafe_durability: bool,
    /// How long to wait for rows that another transaction has locked.
    pub lock_timeout: Duration,
    /// How long a step of a call may take before the connection is given up.
    pub call_timeout: Duration,
}

impl Config {
    /// The database of this URL, with everything else at its default.
    ///
    /// ```
    /// use plimsoll_store_postgres::Config;
    /// let config = Config::new("postgres://worker@127.0.0.1/jobs")?;
    /// assert_eq!(config.schema, "plimsoll");
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    ///
    /// Whether connections are encrypted is said as to other clients of PostgreSQL:
    ///
    /// | `sslmode` | what happens |
    /// |---|---|
    /// | `disable` | nothing is encrypted |
    /// | `prefer`, and if it is not said | all is encrypted if the server can, and nothing is checked |
    /// | `require` | all is encrypted; checks nothing without `sslrootcert`, and as `verify-ca` with it |
    /// | `verify-ca` | the server's certificate is vouched for by `sslrootcert` |
    /// | `verify-full` | also, it is for the host that the URL names |
    ///
    /// `sslrootcert=FILE` names certificates (PEM) of authorities, or of the server itself. They
    /// are read here, once. With `sslrootcert=system`, and with `verify-full` alone, the
    /// authorities are those that the system trusts.
    pub fn new(url: &str) -> Result<Self, Invalid> {
        let (url, options) = Options::take(url);
        let (mode, check) = options.decide()?;
        let mut server: tokio_postgres::Config =
            url.parse().map_err(|error: tokio_postgres::Error| {
                let why = with_source(&error);
                let expected = format!("postgres://USER:PASSWORD@HOST:PORT/DATABASE ({why})");
                Invalid::new(
                    "store",
                    Problem::Malformed {
                        expected: expected.into(),
                    },
                )
            })?;
        server.ssl_mode(mode.unwrap_or(server.get_ssl_mode()));
        if server.get_hosts().is_empty() {
            // Who names only an address checks certificates for it.
            for address in server.get_hostaddrs().to_vec() {
                server.host(address.to_string());
            }
        }
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(Duration::from_secs(5));
        }
        if server.get_application_name().is_none() {
            server.application_name("plimsoll");
        }
        server.tcp_user_timeout(Duration::from_secs(10));
        server.keepalives_idle(Duration::from_secs(10));
        Ok(Self {
            server,
            tls: Tls::new(check)?,
            schema: "plimsoll".into(),
            limits: Limits::default(),
            clock: None,
            writers: 4,
            readers: 4,
            guests: 4,
            listen: true,
            prepare: true,
            unsafe_durability: false,
            lock_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(30),
        })
    }

    /// The server of the tests, which keeps nothing when its machine fails.
    #[cfg(test)]
    #[allow(clippy::expect_used)]
    pub(crate) fn of_tests() -> Self {
        let url = std::env::var("PLIMSOLL_TEST_POSTGRES_URL");
        let url = url.expect("PLIMSOLL_TEST_POSTGRES_URL, which scripts/test sets");
        Self {
            unsafe_durability: true,
            ..Self::new(&url).expect("a URL")
        }
    }

    /// How long it may take until a connection is of use.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let connect = self.server.get_connect_timeout().copied();
        connect.map_or(self.call_timeout, |limit| limit.min(self.call_timeout))
    }
}
