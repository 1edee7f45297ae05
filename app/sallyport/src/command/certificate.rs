//! `sallyport cert`: certificates for names.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{Certificate, CertificateState, ImportCertificate, Secret};
use sallyport_client::ClientError;
use serde_json::json;
use time::OffsetDateTime;

use crate::{
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure::{self, Failure, Kind},
    output::{self, Output},
    view::{
        columns::{self, Column},
        quoted, utc,
    },
};

/// The longest file that is read, in bytes.
const MAX_PEM_BYTES: u64 = 65_536;
/// The end of a certificate is shown with its hour within this time of it.
const HOUR_SHOWN: time::Duration = time::Duration::days(2);

/// What can be done with certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum CertificateCommand {
    /// List the certificates
    #[command(alias = "list")]
    Ls,
    /// Show a certificate
    Show(CertificateArg),
    /// Order a certificate again now
    Renew(CertificateArg),
    /// Import a certificate with its key, for verified domains of yours
    Import(ImportArgs),
    /// Remove an imported certificate
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// A certificate.
#[derive(Debug, Args)]
pub(crate) struct CertificateArg {
    /// The certificate: one of its names, or its id
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(candidates::certificates))]
    name: String,
}

/// Options of `cert import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file with the chain in PEM, the certificate itself first
    #[arg(long, value_name = "FILE")]
    chain: PathBuf,
    /// The file with its private key in PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

/// Options of `cert rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    certificate: CertificateArg,
    #[command(flatten)]
    yes: YesArg,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: CertificateCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        CertificateCommand::Ls => {
            let empty = "no certificates yet: a server with --acme EMAIL orders them for its names and your domains";
            let all = client.certificates().await?;
            context.output.list(&all, empty, |all| list(&context.output, all))?;
            for one in &all {
                if let Some(problem) = &one.problem {
                    context.output.hint(&format!("{}: {problem}", names(one)));
                }
            }
            Ok(())
        }
        CertificateCommand::Show(args) => {
            let name = &args.name;
            let found = client.certificate(name).await.map_err(|error| failure::about(error, name))?;
            context.output.data(&found, show)
        }
        CertificateCommand::Renew(args) => {
            let name = &args.name;
            let due = client.renew_certificate(name).await.map_err(|error| failure::about(error, name))?;
            context.output.data(&due, show)?;
            let name = quoted(name);
            context.output.hint(&format!("the order is due now: `sallyport cert show {name}` has its outcome"));
            Ok(())
        }
        CertificateCommand::Import(args) => {
            let import = ImportCertificate { chain: read(&args.chain)?, key: read_key(&args.key)? };
            let imported = client.import_certificate(&import).await.map_err(not_imported)?;
            context.output.data(&imported, show)
        }
        CertificateCommand::Rm(args) => {
            let name = &args.certificate.name;
            args.yes.confirm(&format!("Remove the certificate of {name}?"))?;
            client.delete_certificate(name).await.map_err(|error| failure::about(error, name))?;
            context.output.data(&json!({ "deleted": name }), |_| format!("removed the certificate of {name}"))
        }
    }
}

/// Adds advice to the failure: a name has to be a verified domain first.
fn not_imported(error: ClientError) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.code == "domain-not-verified" => {
            let next = "`sallyport domain ls` has the domains, and `sallyport domain add NAME` adds one";
            Failure::new(Kind::Refused, problem.to_string()).next(next).into()
        }
        _ => failure::of_value(error),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_PEM_BYTES).read_to_string(&mut text));
    match read {
        // Some editors put a byte order mark in front.
        Ok(_) if text.contains("-----BEGIN ") => Ok(text.trim_start_matches('\u{feff}').to_owned()),
        // DER is no text.
        Ok(_) => Err(not_pem(path)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(not_pem(path)),
        Err(error) => Err(failure::unreadable(path, &error).into()),
    }
}

fn not_pem(path: &Path) -> anyhow::Error {
    let step = format!("`openssl x509 -inform der -in {}` makes PEM of DER", quoted(&path.display().to_string()));
    Failure::usage(format!("{} has no PEM", path.display())).next(step).into()
}

/// The private key in a file.
fn read_key(path: &Path) -> anyhow::Result<Secret> {
    let pem = read(path)?;
    if is_encrypted(&pem) {
        let step = format!("`openssl pkey -in {} -out PLAIN`", quoted(&path.display().to_string()));
        return Err(Failure::usage("the key is encrypted: decrypt it first").next(step).into());
    }
    Ok(Secret::from(pem))
}

/// Whether the key in PEM is encrypted, as PKCS #8 (RFC 7468 section 11) or in the older form of OpenSSL.
fn is_encrypted(pem: &str) -> bool {
    pem.lines().map(str::trim).any(|line| {
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || line.starts_with("DEK-Info:")
            || (line.starts_with("Proc-Type:") && line.ends_with("ENCRYPTED"))
    })
}

/// The state of a certificate with the end of its validity, for people.
pub(super) fn summary(certificate: &Certificate) -> String {
    summary_at(certificate, OffsetDateTime::now_utc())
}

fn summary_at(certificate: &Certificate, now: OffsetDateTime) -> String {
    let end = |at: OffsetDateTime| {
        if (at - now).abs() < HOUR_SHOWN { format!("{} UTC", columns::minute(at)) } else { at.date().to_string() }
    };
    match (certificate.state, certificate.not_after) {
        (CertificateState::Waiting, _) | (_, None) => "waiting".to_owned(),
        (CertificateState::Expired, Some(at)) => format!("expired {}", end(at)),
        (CertificateState::Failing, Some(at)) => format!("until {}, not renewed", end(at)),
        (CertificateState::Valid, Some(at)) => format!("until {}", end(at)),
    }
}

fn names(certificate: &Certificate) -> String {
    certificate.names.join(", ")
}

fn show(certificate: &Certificate) -> String {
    let mut rows = vec![
        ("certificate", certificate.id.to_string()),
        ("names", names(certificate)),
        ("state", summary(certificate)),
    ];
    if let Some(problem) = &certificate.problem {
        rows.push(("problem", problem.clone()));
    }
    rows.push(("source", certificate.source.clone()));
    let texts = [("issuer", &certificate.issuer), ("fingerprint", &certificate.fingerprint)];
    rows.extend(texts.into_iter().filter_map(|(title, text)| Some((title, text.clone()?))));
    let times = [
        ("valid from", certificate.not_before),
        ("valid until", certificate.not_after),
        ("next look", certificate.next_at),
    ];
    rows.extend(times.into_iter().filter_map(|(title, at)| Some((title, utc(at?)))));
    output::pairs(&rows)
}

fn list(output: &Output, all: &[Certificate]) -> String {
    let columns = [
        Column::Plain("NAMES"),
        Column::Plain("STATE"),
        Column::Plain("SOURCE"),
        Column::Wide("ISSUER"),
        Column::Wide("NEXT LOOK"),
        Column::Id("ID"),
    ];
    let rows = all.iter().map(|one| {
        [
            names(one),
            summary(one),
            one.source.clone(),
            one.issuer.clone().unwrap_or_default(),
            one.next_at.map(utc).unwrap_or_default(),
            one.id.to_string(),
        ]
    });
    columns::table(output, columns, rows)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn pem(label: &str, headers: &str) -> String {
        format!("-----BEGIN {label}-----\n{headers}MIIB\n-----END {label}-----\n")
    }

    #[test]
    fn an_encrypted_key_is_not_sent() {
        let legacy = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00FF\n\n";
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("the key.pem");
        for encrypted in [pem("ENCRYPTED PRIVATE KEY", ""), pem("RSA PRIVATE KEY", legacy)] {
            std::fs::write(&path, encrypted.replace('\n', "\r\n")).unwrap();
            let failure = failure::describe(&read_key(&path).err().unwrap()).unwrap();
            assert_eq!(failure.message, "the key is encrypted: decrypt it first");
            let step = format!("`openssl pkey -in '{}' -out PLAIN`", path.display());
            assert_eq!((failure.kind.exit_code(), failure.next_step), (2, Some(step)));
        }
        for plain in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            std::fs::write(&path, pem(plain, "")).unwrap();
            assert!(read_key(&path).is_ok(), "{plain}");
        }
    }

    #[test]
    fn a_near_end_has_its_hour() {
        let certificate = |state| Certificate {
            id: uuid::Uuid::nil(),
            names: vec!["a.example".to_owned()],
            state,
            source: "acme".to_owned(),
            is_of_installation: true,
            issuer: None,
            fingerprint: None,
            not_before: None,
            not_after: Some(datetime!(2027-01-03 18:30 UTC)),
            next_at: None,
            problem: None,
            created_at: datetime!(2026-01-01 0:00 UTC),
        };
        let said = |state, now| summary_at(&certificate(state), now);
        let (far, near) = (datetime!(2027-01-01 18:30 UTC), datetime!(2027-01-01 18:31 UTC));
        assert_eq!(said(CertificateState::Valid, far), "until 2027-01-03");
        assert_eq!(said(CertificateState::Valid, near), "until 2027-01-03 18:30 UTC");
        assert_eq!(said(CertificateState::Failing, near), "until 2027-01-03 18:30 UTC, not renewed");
        let after = datetime!(2027-01-04 0:00 UTC);
        assert_eq!(said(CertificateState::Expired, after), "expired 2027-01-03 18:30 UTC");
        assert_eq!(said(CertificateState::Expired, datetime!(2027-02-01 0:00 UTC)), "expired 2027-01-03");
    }
}
