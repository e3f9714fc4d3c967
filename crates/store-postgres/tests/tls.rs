//! Encrypted connections to a real server: when they are made, and which servers are trusted.

#![allow(clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Namespace, Result};
use plimsoll_store_postgres::tokio_postgres::Client;
use plimsoll_store_postgres::tokio_postgres::config::SslMode;
use plimsoll_store_postgres::{Config, Postgres, PostgresStore, migrate};

#[path = "faults/server.rs"]
mod server;
use server::Server;

/// A server's certificate, for `localhost` and not for 127.0.0.1, which is the same.
const SIGNED: &str = "signed by an authority";
const SELF_SIGNED: &str = "signed by itself, as an authority";

/// Lets in who encrypts, and nobody else.
const ONLY_TLS: &str = "hostssl all all all password";
const ALSO_PLAIN: &str = "host all all all password";

/// A server with a certificate.
struct Secured {
    server: Server,
    root: PathBuf,
}

impl Secured {
    fn start(certificate: &str, rules: &str, settings: &str) -> Self {
        let server = Server::start("");
        let data = server.folder.join("data");
        let root = server.folder.join("root.pem");
        openssl(&server.folder, &authority("root"));
        match certificate {
            SIGNED => {
                let request = "req -new -newkey rsa:2048 -nodes -keyout data/server.key -out request.pem \
                               -subj /CN=server";
                openssl(&server.folder, request);
                let names = "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost\n";
                fs::write(server.folder.join("names"), names).expect("names");
                let sign = "x509 -req -in request.pem -CA root.pem -CAkey root.key -set_serial 7 \
                            -days 2 -extfile names -out data/server.crt";
                openssl(&server.folder, sign);
            }
            _ => {
                fs::copy(&root, data.join("server.crt")).expect("a certificate");
                fs::copy(root.with_extension("key"), data.join("server.key")).expect("a key");
            }
        }
        // A key that others could read is refused.
        let owner = fs::metadata(&data).expect("the data").uid();
        for file in ["server.crt", "server.key"] {
            let file = data.join(file);
            chown(&file, Some(owner), None).expect("it is the server's");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a secret");
        }
        fs::write(data.join("pg_hba.conf"), format!("{rules}\n")).expect("rules");
        let mut with = fs::read_to_string(data.join("postgresql.conf")).expect("settings");
        with += &format!("\nssl = on\n{settings}\n");
        fs::write(data.join("postgresql.conf"), with).expect("settings");
        server.crash();
        server.start_again();
        Self { server, root }
    }

    /// By the name that is in the certificate.
    fn named(&self, options: &str) -> Config {
        let url = self.server.url.replace("127.0.0.1", "localhost");
        config(&url, options)
    }

    /// By another name.
    fn misnamed(&self, options: &str) -> Config {
        config(&self.server.url, options)
    }

    /// As an option of the URL.
    fn trusts(&self, mode: &str) -> String {
        format!("sslmode={mode}&sslrootcert={}", self.root.display())
    }
}

fn config(url: &str, options: &str) -> Config {
    Config {
        unsafe_durability: true,
        ..Config::new(&format!("{url}?{options}")).expect(options)
    }
}

fn authority(name: &str) -> String {
    format!(
        "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name} \
         -addext subjectAltName=DNS:localhost"
    )
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace());
    let output = command.current_dir(folder).output().expect("openssl runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
}

async fn open(config: &Config) -> Result<PostgresStore> {
    migrate(config).await?;
    let postgres = Postgres::open(config.clone()).await?;
    let namespace = Namespace::new("default").expect("a name");
    postgres.namespace(namespace).await
}

#[track_caller]
fn assert_refused(answer: Result<PostgresStore>, words: &str) {
    match answer.map(drop) {
        Err(Error::Unavailable(Unavailable { applied, cause })) => {
            assert_eq!(applied, Applied::No);
            assert!(cause.contains(words), "{cause}");
        }
        other => panic!("{words} was expected: {other:?}"),
    }
}

async fn stranger(config: &Config, mode: SslMode) -> Client {
    let mut server = config.server.clone();
    server.application_name("stranger").ssl_mode(mode);
    let (client, connection) = server.connect(config.tls.clone()).await.expect("connected");
    #[allow(clippy::disallowed_methods, reason = "it ends with the client")]
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// Which of our connections there are, and which of them are encrypted.
async fn connections(stranger: &Client) -> Vec<(String, bool)> {
    let sql = "SELECT DISTINCT application_name, ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE application_name LIKE 'plimsoll%' ORDER BY 1";
    let found = stranger.query(sql, &[]).await.expect("connections");
    found.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// All our connections are there, and are encrypted or not.
async fn assert_encrypted(config: &Config, encrypted: bool) {
    let store = open(config).await.expect("open");
    let mode = match encrypted {
        true => SslMode::Require,
        false => SslMode::Disable,
    };
    let stranger = stranger(config, mode).await;
    let expected = ["plimsoll", "plimsoll listener"].map(|name| (name.to_owned(), encrypted));
    // Nobody is told when the listener is there.
    let clock = SystemClock::new();
    let mut found = connections(&stranger).await;
    while found.len() < expected.len() && clock.monotonic() < Duration::from_secs(10) {
        clock.sleep(Duration::from_millis(5)).await;
        found = connections(&stranger).await;
    }
    assert_eq!(found, expected);
    drop(store);
}

#[tokio::test]
async fn all_connections_are_encrypted_if_that_is_required() {
    let server = Secured::start(SIGNED, ONLY_TLS, "");
    assert_encrypted(&server.misnamed("sslmode=require"), true).await;
    assert_encrypted(&server.misnamed(""), true).await;
    let words = "whether its sslmode should be require";
    assert_refused(open(&server.named("sslmode=disable")).await, words);
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_its_name() {
    let server = Secured::start(SIGNED, ONLY_TLS, "");
    let full = server.trusts("verify-full");
    assert_encrypted(&server.named(&full), true).await;
    let words = "for another name: connect by that name, or do without with sslmode=verify-ca";
    assert_refused(open(&server.misnamed(&full)).await, words);
    for mode in ["verify-ca", "require"] {
        let trusts = server.trusts(mode);
        open(&server.misnamed(&trusts)).await.expect(mode);
    }
    openssl(&server.server.folder, &authority("other"));
    let other = server.root.with_file_name("other.pem");
    let words = "is not trusted: name who signed it with sslrootcert=FILE";
    for mode in ["verify-full", "verify-ca", "require"] {
        let options = format!("sslmode={mode}&sslrootcert={}", other.display());
        assert_refused(open(&server.named(&options)).await, words);
    }
    // Nobody in the whole world vouches for it.
    assert_refused(open(&server.named("sslmode=verify-full")).await, words);
    // An address is checked where no name is given.
    let (user, rest) = (server.server.url.split_once("127.0.0.1:")).expect("an address");
    let (port, database) = rest.split_once('/').expect("a port");
    let url = format!("{user}/{database}");
    let at = |options: &str| config(&url, &format!("hostaddr=127.0.0.1&port={port}&{options}"));
    let words = "for another name";
    assert_refused(open(&at(&full)).await, words);
    open(&at("sslmode=require")).await.expect("an address");
}

#[tokio::test]
async fn a_certificate_that_vouches_for_itself_is_trusted_if_it_is_named() {
    let server = Secured::start(SELF_SIGNED, ONLY_TLS, "");
    let full = server.trusts("verify-full");
    assert_encrypted(&server.named(&full), true).await;
    assert_refused(open(&server.misnamed(&full)).await, "for another name");
    assert!(open(&server.named("sslmode=verify-full")).await.is_err());
}

#[tokio::test]
async fn who_waits_for_an_advisory_lock_and_gives_up_is_cancelled_with_tls_too() {
    let server = Secured::start(SIGNED, ONLY_TLS, "");
    let config = server.named(&server.trusts("verify-full"));
    let store = open(&config).await.expect("open");
    let stranger = stranger(&config, SslMode::Require).await;
    let held = store.with_advisory_lock(1, async |_| {
        let waiting = store.with_advisory_lock(1, async |_| Ok::<_, Error>(()));
        let clock = SystemClock::new();
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        let until = async |count: i64| {
            while stranger
                .query_one(waits, &[])
                .await
                .expect("locks")
                .get::<_, i64>(0)
                != count
            {
                clock.sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            done = waiting => panic!("{done:?}"),
            () = until(1) => {}
        }
        until(0).await;
        Ok::<_, Error>(())
    });
    held.await.expect("the lock");
    // Without a word of ours, the server would have found out only later, and said something else.
    let log = fs::read_to_string(server.server.folder.join("data/server.log")).expect("a log");
    let cancelled = "canceling statement due to user request";
    assert!(log.contains(cancelled), "{log}");
}

#[tokio::test]
async fn a_server_without_tls_is_used_without_it_unless_it_is_required() {
    let server = Server::start("");
    assert_encrypted(&config(&server.url, "sslmode=prefer"), false).await;
    assert_encrypted(&config(&server.url, ""), false).await;
    let words = "the server does not do TLS: turn it on there (ssl = on), or say sslmode=disable";
    assert_refused(open(&config(&server.url, "sslmode=require")).await, words);
    assert_refused(
        open(&config(&server.url, "sslmode=verify-full")).await,
        words,
    );
}

#[tokio::test]
async fn a_server_with_tls_of_old_is_used_without_it_unless_it_is_required() {
    let old = "ssl_min_protocol_version = 'TLSv1'\nssl_max_protocol_version = 'TLSv1.1'";
    let server = Secured::start(SIGNED, ALSO_PLAIN, old);
    assert_encrypted(&server.named("sslmode=prefer"), false).await;
    let words = "allow 1.2 or 1.3 there";
    assert_refused(open(&server.named("sslmode=require")).await, words);
}
