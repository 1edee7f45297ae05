//! `sallyport cert`: certificates for names.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{Certificate, CertificateState, ImportCertificate, Secret};
use serde_json::json;

use crate::{
    command::options::confirm::YesArg,
    context::{Context, candidates},
    failure,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// The longest file that is read, in bytes.
const MAX_PEM_BYTES: u64 = 65_536;

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
            context.output.hint(&format!("the order is due now: `sallyport cert show {name}` has its outcome"));
            Ok(())
        }
        CertificateCommand::Import(args) => {
            let import = ImportCertificate { chain: read(&args.chain)?, key: Secret::from(read(&args.key)?) };
            let imported = client.import_certificate(&import).await?;
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

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_PEM_BYTES).read_to_string(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// The state of a certificate with the end of its validity, for people.
pub(super) fn summary(certificate: &Certificate) -> String {
    match (certificate.state, certificate.not_after) {
        (CertificateState::Waiting, _) | (_, None) => "waiting".to_owned(),
        (CertificateState::Expired, Some(at)) => format!("expired {}", at.date()),
        (CertificateState::Failing, Some(at)) => format!("until {}, not renewed", at.date()),
        (CertificateState::Valid, Some(at)) => format!("until {}", at.date()),
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
