//! Which PostgreSQL database to open, and how.

use std::fmt;
use std::time::Duration;

use plimsoll_core::Invalid;
use plimsoll_core::error::Problem;

/// The most bytes that a name has in PostgreSQL.
const NAME_MAX: usize = 63;
const CONNECTIONS_MIN: usize = 2;
const CONNECTIONS_MAX: usize = 1_000;
const CALL_TIMEOUT_SECONDS_MAX: u64 = 3_600;

/// A PostgreSQL database, as people write it. These options of a URL are ours; all others are
/// passed on, `sslmode`, `sslrootcert` and `connect_timeout` among them.
///
/// | option | what it is |
/// |---|---|
/// | `schema=NAME` | the schema that holds everything; `plimsoll` if it is not named |
/// | `connections=N` | so many connections for reads and writes, a third of them for writes; one that listens and those under advisory locks come on top |
/// | `call_timeout=SECONDS` | how long an answer of the server is waited for; 30 if it is not said |
/// | `migrate=off` | does not bring the schema up to date: `plimsoll migrate` does |
/// | `listen=off` | polls instead of listening, as one has to behind a pooler of transactions |
/// | `prepare=off` | prepares and sets nothing that outlives a transaction: always together with `listen=off` behind a pooler of transactions |
/// | `unsafe_durability=accept` | also opens a server with `fsync` or `full_page_writes` off, which may lose what it has acknowledged: for tests |
///
/// ```
/// use plimsoll::StoreUrl;
/// let url = StoreUrl::parse("postgres://ada:secret@db.example/jobs?schema=orders&sslmode=disable")?;
/// assert_eq!(url.to_string(), "postgres://ada:***@db.example/jobs?sslmode=disable&schema=orders");
/// # Ok::<(), plimsoll::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    /// Where the server is and who connects, for its driver. There may be a password in it.
    pub server: String,
    /// The schema that holds everything.
    pub schema: Option<String>,
    /// So many connections at most.
    pub connections: Option<usize>,
    /// How long an answer of the server is waited for.
    pub call_timeout: Option<Duration>,
    /// Whether to bring the schema up to date.
    pub migrate: bool,
    /// Whether to listen for what other processes wrote.
    pub listen: bool,
    /// Whether statements are prepared once for each connection.
    pub prepare: bool,
    /// Whether to open a server that may lose what it has acknowledged.
    pub unsafe_durability: bool,
}

impl PostgresUrl {
    /// Takes our own options out of a URL.
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        // What comes before the @ is not looked into: a password may hold anything.
        let host = url.find('@').unwrap_or(0);
        let query = url[host..].find('?').map(|at| host + at);
        let (address, query) = match query {
            Some(at) => (&url[..at], &url[at + 1..]),
            None => (url, ""),
        };
        if !address.contains("://") {
            return Err(malformed("postgres://USER:PASSWORD@HOST:PORT/DATABASE"));
        }
        let mut parsed = Self {
            server: address.into(),
            schema: None,
            connections: None,
            call_timeout: None,
            migrate: true,
            listen: true,
            prepare: true,
            unsafe_durability: false,
        };
        let mut joint = '?';
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "schema" => parsed.schema = Some(schema(value)?),
                "connections" => parsed.connections = Some(connections(value)?),
                "call_timeout" => parsed.call_timeout = Some(call_timeout(value)?),
                "migrate" => parsed.migrate = switch("migrate=on or migrate=off", value)?,
                "listen" => parsed.listen = switch("listen=on or listen=off", value)?,
                "prepare" => parsed.prepare = switch("prepare=on or prepare=off", value)?,
                "unsafe_durability" => parsed.unsafe_durability = accepted(value)?,
                _ => {
                    parsed.server.extend([joint]);
                    parsed.server += option;
                    joint = '&';
                }
            }
        }
        Ok(parsed)
    }
}

fn malformed(expected: &'static str) -> Invalid {
    let expected = expected.into();
    Invalid::new("store", Problem::Malformed { expected })
}

fn switch(expected: &'static str, value: &str) -> Result<bool, Invalid> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(malformed(expected)),
    }
}

fn accepted(value: &str) -> Result<bool, Invalid> {
    match value {
        "accept" => Ok(true),
        _ => Err(malformed("unsafe_durability=accept")),
    }
}

fn schema(name: &str) -> Result<String, Invalid> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let reserved = name.starts_with("pg_");
    if !first || reserved || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(malformed(
            "schema=NAME, of up to 63 letters, digits and underscores, not beginning with a digit or pg_",
        ));
    }
    Ok(name.into())
}

fn connections(value: &str) -> Result<usize, Invalid> {
    let count = value.parse().ok();
    let count = count.filter(|count| (CONNECTIONS_MIN..=CONNECTIONS_MAX).contains(count));
    count.ok_or_else(|| malformed("connections=N, from 2 to 1000"))
}

fn call_timeout(value: &str) -> Result<Duration, Invalid> {
    let seconds = value.parse().ok();
    let seconds = seconds.filter(|seconds| (1..=CALL_TIMEOUT_SECONDS_MAX).contains(seconds));
    let limit = seconds.map(Duration::from_secs);
    limit.ok_or_else(|| malformed("call_timeout=SECONDS, from 1 to 3600"))
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.server))?;
        let switched_off = |on: bool, name: &str| (!on).then(|| format!("{name}=off"));
        let options = [
            self.schema.as_ref().map(|name| format!("schema={name}")),
            self.connections.map(|count| format!("connections={count}")),
            (self.call_timeout).map(|limit| format!("call_timeout={}", limit.as_secs())),
            switched_off(self.migrate, "migrate"),
            switched_off(self.listen, "listen"),
            switched_off(self.prepare, "prepare"),
            (self.unsafe_durability).then(|| "unsafe_durability=accept".into()),
        ];
        let mut joint = if has_query(&self.server) { '&' } else { '?' };
        for option in options.iter().flatten() {
            write!(f, "{joint}{option}")?;
            joint = '&';
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({self})")
    }
}

fn has_query(server: &str) -> bool {
    let host = server.find('@').unwrap_or(0);
    server[host..].contains('?')
}

/// The same URL for everybody to see.
fn without_password(server: &str) -> String {
    let (scheme, rest) = server.split_once("://").unwrap_or(("postgres", server));
    let (user, rest) = match rest.split_once('@') {
        Some((credentials, rest)) => {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let hidden = if password.is_empty() { "" } else { ":***" };
            (format!("{user}{hidden}@"), rest)
        }
        None => (String::new(), rest),
    };
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let options = query.split('&').filter(|option| !option.is_empty());
    // The driver takes one here, too.
    let options = options.map(|option| match option.starts_with("password=") {
        true => "password=***",
        false => option,
    });
    let options = options.collect::<Vec<_>>().join("&");
    let joint = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{address}{joint}{options}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> PostgresUrl {
        PostgresUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn our_options_are_taken_out_and_the_others_passed_on() {
        let url = parsed(
            "postgresql://ada:s@h1,h2:5433/jobs?a=1&schema=x&listen=off&b=2&prepare=off&connections=9&migrate=off&call_timeout=7&unsafe_durability=accept",
        );
        let expected = PostgresUrl {
            server: "postgresql://ada:s@h1,h2:5433/jobs?a=1&b=2".into(),
            schema: Some("x".into()),
            connections: Some(9),
            call_timeout: Some(Duration::from_secs(7)),
            migrate: false,
            listen: false,
            prepare: false,
            unsafe_durability: true,
        };
        assert_eq!(url, expected);
        let plain = parsed("postgres:///jobs?schema=x&listen=on");
        assert_eq!(plain.server, "postgres:///jobs");
        assert!(plain.listen && plain.prepare && plain.migrate);
        assert!(!plain.unsafe_durability);
    }

    #[test]
    fn a_password_may_hold_anything_and_is_never_shown() {
        for (url, shown) in [
            (
                "postgres://ada:s?schema=1&/:x@h/d?schema=b",
                "postgres://ada:***@h/d?schema=b",
            ),
            (
                "postgres://ada@h/d?password=s&a=1",
                "postgres://ada@h/d?password=***&a=1",
            ),
            ("postgres://ada:s@h", "postgres://ada:***@h"),
            ("postgres://h/d?password=s", "postgres://h/d?password=***"),
            ("postgres://h/d?listen=off", "postgres://h/d?listen=off"),
            (
                "postgres://h/d?call_timeout=7",
                "postgres://h/d?call_timeout=7",
            ),
            (
                "postgres://h/d?unsafe_durability=accept",
                "postgres://h/d?unsafe_durability=accept",
            ),
        ] {
            let parsed = parsed(url);
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(format!("{parsed:?}"), format!("PostgresUrl({shown})"));
        }
    }

    #[test]
    fn what_is_wrong_with_an_option_is_named() {
        let long = format!("schema={}", "a".repeat(NAME_MAX + 1));
        for (option, expected) in [
            ("schema=", "schema=NAME"),
            ("schema=1a", "schema=NAME"),
            ("schema=pg_x", "schema=NAME"),
            ("schema=a-b", "schema=NAME"),
            (&long, "schema=NAME"),
            ("connections=1", "connections=N, from 2 to 1000"),
            ("connections=1001", "connections=N, from 2 to 1000"),
            ("connections=many", "connections=N, from 2 to 1000"),
            ("call_timeout=0", "call_timeout=SECONDS, from 1 to 3600"),
            ("call_timeout=5s", "call_timeout=SECONDS, from 1 to 3600"),
            ("call_timeout=3601", "call_timeout=SECONDS, from 1 to 3600"),
            ("listen", "listen=on or listen=off"),
            ("prepare=no", "prepare=on or prepare=off"),
            ("migrate=1", "migrate=on or migrate=off"),
            ("unsafe_durability=on", "unsafe_durability=accept"),
        ] {
            let error = PostgresUrl::parse(&format!("postgres://h/d?{option}")).unwrap_err();
            assert!(error.to_string().contains(expected), "{option}: {error}");
        }
        assert!(PostgresUrl::parse("postgres:jobs").is_err());
    }
}
