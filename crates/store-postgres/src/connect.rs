//! The one place where connections are made.

use std::error::Error as _;
use std::io;

use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Error, Socket};

use crate::error::{Answer, Fault};
use crate::session::with_source;
use crate::tls::Tls;

type Stream = <Tls as MakeTlsConnect<Socket>>::Stream;

/// Connects, encrypted or not, as the server's configuration says.
pub(crate) async fn connect(
    server: &tokio_postgres::Config,
    tls: &Tls,
) -> Answer<(Client, Connection<Socket, Stream>)> {
    let mut connected = server.connect(tls.clone()).await;
    // Who only prefers TLS goes on without, also if the two cannot agree on how to encrypt.
    if server.get_ssl_mode() == SslMode::Prefer
        && matches!(&connected, Err(error) if handshake(error).is_some())
    {
        let mut plain = server.clone();
        connected = plain.ssl_mode(SslMode::Disable).connect(tls.clone()).await;
    }
    connected.map_err(unreachable)
}

/// A connection could not be made.
pub(crate) fn unreachable(error: Error) -> Fault {
    if error.as_db_error().is_some() {
        return Fault::Server(error);
    }
    let why = with_source(&error);
    Fault::Unreachable(match advice(&error) {
        Some(advice) => format!("{advice} ({why})"),
        None => format!("PostgreSQL cannot be reached: {why}"),
    })
}

/// What to do about an error of TLS.
fn advice(error: &Error) -> Option<&'static str> {
    // The driver has no better way to tell it.
    let refused =
        |source: &dyn std::error::Error| source.to_string() == "server does not support TLS";
    if error.source().is_some_and(refused) {
        return Some(
            "the server does not do TLS: turn it on there (ssl = on), or say sslmode=disable",
        );
    }
    Some(match handshake(error)? {
        rustls::Error::InvalidCertificate(UnknownIssuer) => {
            "the server's certificate is not trusted: name who signed it with sslrootcert=FILE"
        }
        rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            "the server's certificate is for another name: connect by that name, or do without \
             with sslmode=verify-ca"
        }
        rustls::Error::InvalidCertificate(_) => {
            "the server's certificate is refused: give it another one"
        }
        _ => {
            "the server does not do TLS as we do: allow 1.2 or 1.3 there (ssl_max_protocol_version)"
        }
    })
}

/// Why the two could not agree on how to encrypt.
fn handshake(error: &Error) -> Option<&rustls::Error> {
    let source = error.source()?.downcast_ref::<io::Error>()?;
    source.get_ref()?.downcast_ref()
}
