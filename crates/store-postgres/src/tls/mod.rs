//! Encrypted connections: what a server has to prove.

mod options;

use std::fmt;
use std::sync::Arc;

use plimsoll_core::Invalid;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use self::options::{Check, Roots, malformed};

pub(crate) use self::options::Options;

/// How connections are encrypted. [`Config::new`](crate::Config::new) makes it from a URL.
///
/// Connections of your own can be made with it, too:
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = plimsoll_store_postgres::Config::new("postgres://db.example/jobs?sslmode=verify-full")?;
/// let (client, connection) = config.server.connect(config.tls.clone()).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tls {
    connector: MakeRustlsConnect,
    verifier: Arc<Verifier>,
}

impl Tls {
    /// Reads the certificates of authorities.
    pub(crate) fn new(check: Check<'_>) -> Result<Self, Invalid> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Verifier {
            trusted: check.roots.map(Roots::read).transpose()?,
            name: check.name,
            algorithms: provider.signature_verification_algorithms,
        });
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| malformed(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_no_client_auth();
        // `sslnegotiation=direct` demands it.
        client.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self {
            connector: MakeRustlsConnect::new(client),
            verifier,
        })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verifier { trusted, name, .. } = &*self.verifier;
        let mut shown = f.debug_struct("Tls");
        shown.field("trusted", trusted).field("name", name).finish()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        MakeTlsConnect::<Socket>::make_tls_connect(&mut self.connector, host)
    }
}

struct Trusted {
    roots: RootCertStore,
    /// What somebody named, and not the system.
    given: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Trusted {
    /// How many: certificates are long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.roots.fmt(f)
    }
}

/// Looks at the certificate of a server. Signatures are always checked: a server that shows a
/// certificate has its key.
#[derive(Debug)]
struct Verifier {
    trusted: Option<Trusted>,
    name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(Trusted { roots, given }) = &self.trusted {
            let parsed = ParsedCertificate::try_from(certificate)?;
            // One that vouches for itself is trusted if it was named itself.
            if !given.contains(certificate) {
                verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    roots,
                    intermediates,
                    now,
                    self.algorithms.all,
                )?;
            }
            if self.name {
                verify_server_name(&parsed, name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Roots<'_> {
    fn read(self) -> Result<Trusted, Invalid> {
        match self {
            Self::File(file) => {
                let unusable = |why: &dyn fmt::Display| {
                    malformed(format!(
                        "sslrootcert=FILE with certificates in PEM ({file}: {why})"
                    ))
                };
                let read = CertificateDer::pem_file_iter(file)
                    .and_then(Iterator::collect::<Result<Vec<_>, pem::Error>>);
                let given = read.map_err(|error| unusable(&error))?;
                if given.is_empty() {
                    return Err(unusable(&"there is none"));
                }
                let mut roots = RootCertStore::empty();
                for certificate in &given {
                    let added = roots.add(certificate.clone());
                    added.map_err(|error| unusable(&error))?;
                }
                Ok(Trusted { roots, given })
            }
            Self::System => {
                let mut roots = RootCertStore::empty();
                let found = rustls_native_certs::load_native_certs();
                let (added, _) = roots.add_parsable_certificates(found.certs);
                if added == 0 {
                    return Err(malformed(
                        "sslrootcert=FILE: the system has no certificates of authorities".into(),
                    ));
                }
                let given = Vec::new();
                Ok(Trusted { roots, given })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        for file in [
            "/nowhere.pem",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ] {
            let roots = Some(Roots::File(file));
            let check = Check { roots, name: true };
            let refused = Tls::new(check).expect_err(file);
            let words = refused.to_string();
            assert!(
                words.contains("sslrootcert=FILE") && words.contains(file),
                "{words}"
            );
        }
    }
}
