//! What a URL says about TLS.

use percent_encoding::percent_decode_str;
use plimsoll_core::Invalid;
use plimsoll_core::error::Problem;
use tokio_postgres::config::SslMode;

const MODES: &str = "sslmode=disable, prefer, require, verify-ca or verify-full";

/// What a URL says about TLS.
#[derive(Debug, Default)]
pub(crate) struct Options {
    mode: Option<String>,
    roots: Option<String>,
}

impl Options {
    /// Takes them out of a URL: the driver does not know all of them.
    pub(crate) fn take(url: &str) -> (String, Self) {
        let mut options = Self::default();
        // As the driver, what comes before the @ is not looked into: a password may hold anything.
        let host = url.find('@').unwrap_or(0);
        let Some(query) = url[host..].find('?').map(|at| host + at) else {
            return (url.into(), options);
        };
        let others = url[query + 1..].split('&').filter(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "sslmode" => &mut options.mode,
                "sslrootcert" => &mut options.roots,
                _ => return true,
            };
            *place = Some(percent_decode_str(value).decode_utf8_lossy().into());
            false
        });
        let others = others.collect::<Vec<_>>().join("&");
        let joint = if others.is_empty() { "" } else { "?" };
        (format!("{}{joint}{others}", &url[..query]), options)
    }

    /// Whether to encrypt, if that is said, and what to check.
    pub(crate) fn decide(&self) -> Result<(Option<SslMode>, Check<'_>), Invalid> {
        let roots = self.roots.as_deref().map(|roots| match roots {
            "system" => Roots::System,
            file => Roots::File(file),
        });
        let chain = |file| Check {
            roots: Some(Roots::File(file)),
            name: false,
        };
        let full = |roots| Check {
            roots: Some(roots),
            name: true,
        };
        let (mode, check) = match (self.mode.as_deref(), roots) {
            (None, None) => return Ok((None, Check::default())),
            (Some("disable"), _) => (SslMode::Disable, Check::default()),
            (Some("prefer"), None) => (SslMode::Prefer, Check::default()),
            (Some("require"), None) => (SslMode::Require, Check::default()),
            (Some("require" | "verify-ca"), Some(Roots::File(file))) => {
                (SslMode::Require, chain(file))
            }
            (Some("verify-full"), roots) => {
                (SslMode::Require, full(roots.unwrap_or(Roots::System)))
            }
            (None, Some(Roots::System)) => (SslMode::Require, full(Roots::System)),
            // A server that says it cannot encrypt would be believed.
            (None | Some("prefer"), Some(_)) => {
                return Err(contradiction(
                    "sslrootcert proves nothing unless sslmode is verify-full, verify-ca or require",
                ));
            }
            // Anybody can have a certificate of these authorities, for a name of their own.
            (Some("require" | "verify-ca"), Some(Roots::System)) => {
                return Err(contradiction(
                    "sslrootcert=system proves nothing without the name: use sslmode=verify-full",
                ));
            }
            (Some("verify-ca"), None) => {
                return Err(contradiction(
                    "sslmode=verify-ca needs sslrootcert=FILE, the certificate of an authority",
                ));
            }
            (Some(_), _) => return Err(malformed(MODES.into())),
        };
        Ok((Some(mode), check))
    }
}

/// What a server has to prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Check<'a> {
    /// Who has to vouch for its certificate; `None`: it may have any.
    pub(super) roots: Option<Roots<'a>>,
    /// Whether the certificate has to be for the name that is connected to.
    pub(super) name: bool,
}

/// Authorities that are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roots<'a> {
    /// In a file of PEM.
    File(&'a str),
    /// Those that the system trusts.
    System,
}

pub(super) fn malformed(expected: String) -> Invalid {
    let expected = expected.into();
    Invalid::new("store", Problem::Malformed { expected })
}

fn contradiction(what: &'static str) -> Invalid {
    Invalid::new("store", Problem::Contradiction(what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(roots: Roots<'_>, name: bool) -> Check<'_> {
        let roots = Some(roots);
        Check { roots, name }
    }

    #[test]
    fn every_mode_with_and_without_authorities() {
        use SslMode::{Disable, Prefer, Require};
        let none = Check::default();
        let file = Roots::File("/etc/a b.pem");
        let (needs, weak, nothing) = (
            "needs sslrootcert=FILE",
            "without the name",
            "proves nothing",
        );
        for (options, expected) in [
            ("", Ok((None, none))),
            ("sslmode=disable", Ok((Some(Disable), none))),
            ("sslmode=prefer", Ok((Some(Prefer), none))),
            ("sslmode=require", Ok((Some(Require), none))),
            ("sslmode=verify-ca", Err(needs)),
            (
                "sslmode=verify-full",
                Ok((Some(Require), check(Roots::System, true))),
            ),
            ("sslmode=allow", Err(MODES)),
            ("sslmode=", Err(MODES)),
            ("FILE", Err(nothing)),
            ("sslmode=disable&FILE", Ok((Some(Disable), none))),
            ("sslmode=prefer&FILE", Err(nothing)),
            (
                "sslmode=require&FILE",
                Ok((Some(Require), check(file, false))),
            ),
            (
                "sslmode=verify-ca&FILE",
                Ok((Some(Require), check(file, false))),
            ),
            (
                "sslmode=verify-full&FILE",
                Ok((Some(Require), check(file, true))),
            ),
            ("sslmode=no&FILE", Err(MODES)),
            ("SYSTEM", Ok((Some(Require), check(Roots::System, true)))),
            ("sslmode=disable&SYSTEM", Ok((Some(Disable), none))),
            ("sslmode=prefer&SYSTEM", Err(nothing)),
            ("sslmode=require&SYSTEM", Err(weak)),
            ("sslmode=verify-ca&SYSTEM", Err(weak)),
            (
                "sslmode=verify-full&SYSTEM",
                Ok((Some(Require), check(Roots::System, true))),
            ),
            ("sslmode=no&SYSTEM", Err(MODES)),
        ] {
            let options = options.replace("FILE", "sslrootcert=/etc/a%20b.pem");
            let options = options.replace("SYSTEM", "sslrootcert=system");
            let (url, taken) = Options::take(&format!("postgres://h/d?{options}"));
            assert_eq!(url, "postgres://h/d", "{options}");
            match (taken.decide(), expected) {
                (Ok(decided), Ok(expected)) => assert_eq!(decided, expected, "{options}"),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(words), "{options}: {error}");
                }
                (decided, _) => panic!("{options}: {decided:?}"),
            }
        }
    }

    #[test]
    fn other_options_and_passwords_stay_as_they_are() {
        for (url, left, mode) in [
            (
                "postgres://h/d?a=1&sslmode=m&b=2",
                "postgres://h/d?a=1&b=2",
                Some("m"),
            ),
            (
                "postgres://u:?sslmode=p@h/d",
                "postgres://u:?sslmode=p@h/d",
                None,
            ),
            (
                "postgres://u:?p@h?sslmode=m",
                "postgres://u:?p@h",
                Some("m"),
            ),
            ("host=h sslmode=require", "host=h sslmode=require", None),
        ] {
            let (rest, options) = Options::take(url);
            assert_eq!((rest.as_str(), options.mode.as_deref()), (left, mode));
        }
    }
}
