//! What is looked at in a PostgreSQL server, and what it means.

use std::time::Duration;

use plimsoll::postgres::{Health, SCHEMA_VERSION, SERVER_VERSION_MIN, health};
use plimsoll::{Error, PostgresUrl};

use super::judge::{Check, Verdict};
use super::{Doctor, unopened};
use crate::client::IfMissing;
use crate::exit::{CliError, Outcome};
use crate::table::grouped;
use crate::text::{bytes, clean, rough};

/// A transaction that is open for longer keeps many dead rows from being removed.
const OPEN_WARNING: Duration = Duration::from_secs(5 * 60);
const OPEN_PROBLEM: Duration = Duration::from_secs(60 * 60);

impl Doctor {
    /// What was found, and the exit code if the database cannot be opened. The server is asked
    /// first: it may say why.
    pub(super) async fn server(&self, url: &PostgresUrl) -> Outcome<(Vec<Check>, Option<u8>)> {
        let health = match health(&url.config()?).await {
            Ok(health) => health,
            Err(error) => return Ok(unopened(&error)),
        };
        let mut known = vec![
            schema(health.schema_version),
            version(health.server_version),
            durable(&health, url.unsafe_durability),
            pooler(&health, url),
            connections(health.connections, health.connections_max),
            transactions(&health),
            vacuum(health.autovacuum),
            size(&health),
        ];
        if known[0].verdict == Verdict::Problem {
            return Ok((known, None));
        }
        match self.options.open(IfMissing::Refuse).await {
            Ok(client) => Ok((self.examine(&client, known).await, None)),
            Err(CliError::Plimsoll(error)) => Ok(with(&mut known, &error)),
            Err(error) => Err(error),
        }
    }
}

/// What the server says of itself, although the store cannot be opened.
fn with(known: &mut Vec<Check>, error: &Error) -> (Vec<Check>, Option<u8>) {
    let (mut checks, code) = unopened(error);
    checks.append(known);
    (checks, code)
}

fn schema(found: u32) -> Check {
    let known = SCHEMA_VERSION;
    let (verdict, words) = match found {
        0 => (Verdict::Problem, "there is none".into()),
        _ if found == known => (
            Verdict::Ok,
            format!("version {known}, as this program knows it"),
        ),
        _ if found > known => (
            Verdict::Problem,
            format!("version {found}, this program knows up to {known}"),
        ),
        _ => (
            Verdict::Problem,
            format!("version {found}, this program needs {known}"),
        ),
    };
    Check::new("schema", verdict, words).advise(match found > known {
        true => "Use a newer program.",
        false => "Run `plimsoll migrate`, or submit a task as a role that may create a schema.",
    })
}

fn version(number: u32) -> Check {
    let verdict = match number < SERVER_VERSION_MIN {
        true => Verdict::Problem,
        false => Verdict::Ok,
    };
    let found = format!("PostgreSQL {}.{}", number / 10_000, number % 10_000);
    Check::new("server", verdict, found).advise("PostgreSQL 15 or newer is needed.")
}

/// Whether a write that was acknowledged survives the server's machine. Our own transactions commit
/// synchronously, whatever the role says; those in which others submit do as they like.
fn durable(health: &Health, accepted: bool) -> Check {
    let late = health.synchronous_commit == "off";
    let off = [
        (!health.fsync, "fsync"),
        (late, "synchronous_commit"),
        (!health.full_page_writes, "full_page_writes"),
    ];
    let off = off.iter().filter(|(is_off, _)| *is_off);
    let off = off.map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let opens = accepted || (health.fsync && health.full_page_writes);
    match (off.as_str(), opens) {
        ("", _) => Check::new("durability", Verdict::Ok, "every write is on disk"),
        (off, false) => Check::new("durability", Verdict::Problem, format!("{off}: off"))
            .advise("Switch it on, or accept with unsafe_durability=accept in the URL that writes may be lost with the machine."),
        (off, true) => Check::new("durability", Verdict::Warning, format!("{off}: off"))
            .advise("Fine for tests. Otherwise switch it on: the last writes, or all, may be lost with the machine."),
    }
}

/// Whether connections are handed on after each transaction, and the URL allows for it.
fn pooler(health: &Health, url: &PostgresUrl) -> Check {
    let (verdict, found) = match (health.is_pooled, url.listen || url.prepare) {
        (false, _) => (Verdict::Ok, "every connection stays the same"),
        (true, false) => (Verdict::Ok, "transactions are pooled, as the URL says"),
        (true, true) => (Verdict::Problem, "transactions are pooled"),
    };
    Check::new("pooler", verdict, found)
        .advise("Add listen=off&prepare=off to the URL, or pool sessions, or connect directly.")
}

fn connections(used: u64, most: u64) -> Check {
    let left = most.saturating_sub(used);
    let verdict = match left {
        _ if left < most / 50 => Verdict::Problem,
        _ if left < most / 5 => Verdict::Warning,
        _ => Verdict::Ok,
    };
    let found = format!("{} used, {} left", grouped(used), grouped(left));
    Check::new("sessions", verdict, found).advise(
        "Raise max_connections, open with fewer (connections=N in the URL), or use a pooler.",
    )
}

/// The transaction that keeps dead rows from being removed.
fn transactions(health: &Health) -> Check {
    let Some(oldest) = &health.oldest else {
        let found = match health.sees_others {
            true => "none is open for long",
            false => "none of this role is open; others are not seen without pg_read_all_stats",
        };
        return Check::new("open", Verdict::Ok, found);
    };
    let verdict = match oldest.age {
        age if age >= OPEN_PROBLEM => Verdict::Problem,
        age if age >= OPEN_WARNING => Verdict::Warning,
        _ => Verdict::Ok,
    };
    let pid = oldest.pid.map(|pid| format!(", process {pid}"));
    let found = format!(
        "the oldest transaction is open for {} ({}{})",
        rough(oldest.age),
        clean(&oldest.application),
        pid.unwrap_or_default()
    );
    Check::new("open", verdict, found).advise(
        "Rows that died since cannot be removed: end it, with pg_terminate_backend if need be.",
    )
}

fn vacuum(on: bool) -> Check {
    let (verdict, found) = match on {
        true => (Verdict::Ok, "autovacuum is on"),
        false => (Verdict::Problem, "autovacuum is off"),
    };
    Check::new("vacuum", verdict, found)
        .advise("Switch it on: dead rows are never removed without, and everything becomes slow.")
}

fn size(health: &Health) -> Check {
    let found = format!("the database takes {}", bytes(health.bytes));
    match health.read_only {
        false => Check::new("disk", Verdict::Ok, found),
        true => Check::new("disk", Verdict::Problem, "the server is read-only")
            .advise("Connect to the primary: see target_session_attrs."),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::StoreUrl;
    use plimsoll::postgres::OpenTransaction;

    use super::*;
    use Verdict::{Ok, Problem, Warning};

    fn sound() -> Health {
        Health {
            server_version: 150_018,
            schema_version: SCHEMA_VERSION,
            fsync: true,
            synchronous_commit: "on".into(),
            full_page_writes: true,
            autovacuum: true,
            read_only: false,
            connections: 3,
            connections_max: 97,
            bytes: 8_000_000,
            sees_others: true,
            oldest: None,
            is_pooled: false,
        }
    }

    fn url(options: &str) -> PostgresUrl {
        match StoreUrl::parse(&format!("postgres://h/d?{options}")) {
            Result::Ok(StoreUrl::Postgres(url)) => url,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whatever_may_lose_writes_is_named() {
        assert_eq!(durable(&sound(), false).verdict, Ok);
        for commit in ["local", "remote_write", "remote_apply"] {
            let health = Health {
                synchronous_commit: commit.into(),
                ..sound()
            };
            assert_eq!(durable(&health, false).verdict, Ok, "{commit}");
        }
        // Programs see to that for themselves.
        let late = Health {
            synchronous_commit: "off".into(),
            ..sound()
        };
        assert_eq!(durable(&late, false).verdict, Warning);
        let weak = Health {
            fsync: false,
            synchronous_commit: "off".into(),
            full_page_writes: false,
            ..sound()
        };
        let found = "fsync, synchronous_commit, full_page_writes: off";
        for (accepted, verdict) in [(true, Warning), (false, Problem)] {
            let weak = durable(&weak, accepted);
            assert_eq!((weak.verdict, weak.found.as_str()), (verdict, found));
            assert!(weak.advice.is_some());
        }
    }

    #[test]
    fn versions_that_do_not_fit_are_problems() {
        assert_eq!(version(149_999).verdict, Problem);
        assert_eq!(version(150_018).found, "PostgreSQL 15.18");
        assert_eq!(schema(0).verdict, Problem);
        assert_eq!(schema(SCHEMA_VERSION).verdict, Ok);
        let newer = schema(SCHEMA_VERSION + 1);
        assert_eq!(
            (newer.verdict, newer.advice),
            (Problem, Some("Use a newer program."))
        );
    }

    #[test]
    fn a_pooler_of_transactions_needs_a_url_that_allows_for_it() {
        let pooled = Health {
            is_pooled: true,
            ..sound()
        };
        for (health, options, verdict) in [
            (&sound(), "", Ok),
            (&pooled, "listen=off&prepare=off", Ok),
            (&pooled, "listen=off", Problem),
            (&pooled, "prepare=off", Problem),
            (&pooled, "", Problem),
        ] {
            assert_eq!(pooler(health, &url(options)).verdict, verdict, "{options}");
        }
    }

    #[test]
    fn every_figure_has_its_limits() {
        let used = [80, 81, 98, 99].map(|used| connections(used, 100).verdict);
        assert_eq!(used, [Ok, Warning, Warning, Problem]);
        let open = |age| {
            let oldest = OpenTransaction {
                age: Duration::from_secs(age),
                pid: Some(7),
                application: "psql".into(),
            };
            transactions(&Health {
                oldest: Some(oldest),
                ..sound()
            })
        };
        let ages = [299, 300, 3_599, 3_600].map(|age| open(age).verdict);
        assert_eq!(ages, [Ok, Warning, Warning, Problem]);
        let found = open(300).found;
        assert_eq!(
            found,
            "the oldest transaction is open for 5m (psql, process 7)"
        );
        assert_eq!(vacuum(false).verdict, Problem);
        let standby = Health {
            read_only: true,
            ..sound()
        };
        assert_eq!(size(&standby).verdict, Problem);
    }
}
