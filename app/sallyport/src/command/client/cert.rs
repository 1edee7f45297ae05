//! `sallyport client cert`: a client certificate as files.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use time::OffsetDateTime;

use super::{host::HostArgs, tls::TlsEntry};
use crate::{
    context::{Context, credentials::CredentialsFile},
    output,
    view::utc,
};

/// Options of `client cert`.
#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(flatten)]
    host: HostArgs,
    /// The directory for the files [default: certificates in the configuration directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Serialize)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
    email: String,
    #[serde(with = "time::serde::rfc3339")]
    valid_until: OffsetDateTime,
}

/// Writes a file that only its owner reads, at once or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let draft = path.with_extension(format!("new{}", std::process::id()));
    let write = || {
        drop(fs::remove_file(&draft));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Gets a certificate and writes it with its key.
pub(super) async fn run(context: &Context, args: CertArgs) -> anyhow::Result<()> {
    let name = args.host.host.name.clone();
    let dir = match args.out {
        Some(dir) => dir,
        None => CredentialsFile::of_user()?.dir().join("certificates"),
    };
    let certificate = TlsEntry::new(context, args.host)?.certificate().await?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    let (cert, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    let authority = dir.join(format!("{name}.ca.crt"));
    write_private(&key, &certificate.key_pem)?;
    write_private(&cert, &certificate.pem)?;
    write_private(&authority, &certificate.authority)?;
    let written = CertificateFiles {
        certificate: cert,
        key,
        authority,
        email: certificate.email,
        valid_until: certificate.valid_until,
    };
    context.output.data(&written, |it| {
        output::pairs(&[
            ("certificate", it.certificate.display().to_string()),
            ("key", it.key.display().to_string()),
            ("signed by", it.authority.display().to_string()),
            ("for", it.email.clone()),
            ("good until", utc(it.valid_until)),
        ])
    })
}
