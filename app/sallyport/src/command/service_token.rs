//! `sallyport service-token`: tokens of machines, for sockets with an identity setting.

use std::{fs::File, io::Read as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{
    CreateServiceToken, CreateServiceTokenCertificate, CreatedServiceToken, ServiceToken, ServiceTokenCertificate,
};
use sallyport_client::{ApiClient, SocketRef};
use sallyport_model::{PersonEmail, ServiceTokenId, ServiceTokenScope, SocketType};
use sallyport_pki::{KeyPair, MAX_REQUEST_BYTES, PKCS_ECDSA_P256_SHA256, certificate_request};
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;

use super::{client::write_private, display_name};
use crate::{
    args::port,
    command::options::{confirm::YesArg, pick::Pick},
    context::{Context, candidates},
    failure,
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with service tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceTokenCommand {
    /// Make a service token; its secret is shown only once
    Create(CreateArgs),
    /// List the service tokens
    #[command(alias = "list")]
    Ls,
    /// Show one service token, without its secret
    Show(TokenArgs),
    /// Get a client certificate for a service token: a machine then needs no secret
    Certificate(CertificateArgs),
    /// End a service token and the connections that use it
    #[command(alias = "delete")]
    Rm(RmArgs),
}

/// Options of `service-token create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name, also in policies
    #[arg(value_name = "NAME")]
    name: String,
    /// A socket for which the token is valid, by name or id; may be given several times [default: all sockets]
    #[arg(long = "socket", value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    sockets: Vec<SocketRef>,
    /// The lifetime of the token in days [default: no end]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    expires_in_days: Option<u32>,
    /// The e-mail address of the token for origins, in X-Auth-Email. Policies do not match it
    #[arg(long, value_name = "EMAIL")]
    email: Option<PersonEmail>,
    /// The name of the token for origins, in X-Auth-Name [default: its name]
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Create a client certificate for the token too
    #[arg(long, requires = "source", help_heading = "A client certificate")]
    certificate: bool,
    /// A certificate request in PEM, made elsewhere; - reads the standard input
    #[arg(
        long,
        value_name = "FILE",
        group = "source",
        requires = "certificate",
        help_heading = "A client certificate"
    )]
    csr: Option<PathBuf>,
    /// Create a key on this machine in this file, which only you can read
    #[arg(long, value_name = "FILE", group = "source", requires_all = ["certificate", "cert_out"],
          help_heading = "A client certificate")]
    key_out: Option<PathBuf>,
    /// Write the certificate to this file instead of printing it
    #[arg(long, value_name = "FILE", requires = "certificate", help_heading = "A client certificate")]
    cert_out: Option<PathBuf>,
    /// The lifetime of the certificate in days, at most that of the token [default: 30]
    #[arg(long, value_name = "DAYS", requires = "certificate", value_parser = clap::value_parser!(u32).range(1..=397),
          help_heading = "A client certificate")]
    certificate_days: Option<u32>,
}

/// A created token, with its certificate.
#[derive(Serialize)]
struct TokenWithCertificate {
    #[serde(flatten)]
    token: CreatedServiceToken,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<IssuedCertificate>,
}

/// An issued certificate.
#[derive(Serialize)]
struct IssuedCertificate {
    #[serde(flatten)]
    details: ServiceTokenCertificate,
    /// The files of the certificate and of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
}

/// Names a token.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The id of the token, or its name
    #[arg(id = "service_token", value_name = "TOKEN", add = ArgValueCompleter::new(candidates::service_tokens))]
    token: String,
}

/// Options of `service-token rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    yes: YesArg,
}

/// The scope of a token.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of the token")]
pub(crate) struct ScopeArgs {
    /// Only requests that change nothing: GET, HEAD and OPTIONS, and no WebSocket
    #[arg(long)]
    read_only: bool,
    /// An HTTP method, several with commas
    #[arg(long = "method", value_name = "METHOD", value_delimiter = ',')]
    methods: Vec<String>,
    /// An HTTP path and all paths beneath it, as in policies, several with commas
    #[arg(long = "path", value_name = "PATH", value_delimiter = ',')]
    paths: Vec<String>,
    /// A public port, several with commas
    #[arg(
        long = "port", value_name = "PORT", value_delimiter = ',',
        value_parser = port::parse, allow_negative_numbers = true
    )]
    ports: Vec<u16>,
    /// A type of sockets: http, https or tls, several with commas
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    types: Vec<SocketType>,
}

/// Options of a certificate.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// A certificate request in PEM, made elsewhere; - reads the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "key_out", required_unless_present = "key_out")]
    csr: Option<PathBuf>,
    /// Create a key on this machine in this file, which only you can read
    #[arg(long, value_name = "FILE", requires = "cert_out")]
    key_out: Option<PathBuf>,
    /// Write the certificate to this file instead of printing it
    #[arg(long, value_name = "FILE")]
    cert_out: Option<PathBuf>,
    /// The lifetime of the certificate in days, at most that of the token [default: 30]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=397))]
    certificate_days: Option<u32>,
}

/// Options of `service-token certificate`.
#[derive(Debug, Args)]
pub(crate) struct CertificateArgs {
    #[command(flatten)]
    token: TokenArgs,
    #[command(flatten)]
    key: KeyArgs,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: ServiceTokenCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        ServiceTokenCommand::Create(args) => {
            let expires_at = args
                .expires_in_days
                .map(|days| OffsetDateTime::now_utc() + Duration::from_secs(u64::from(days) * 24 * 60 * 60));
            let mut sockets = Vec::new();
            for socket in &args.sockets {
                sockets.push(client.socket(socket).await.map_err(|error| failure::about(error, socket))?.id);
            }
            let ScopeArgs { read_only, methods, paths, ports, types } = args.scope;
            let scope = ServiceTokenScope { read_only, methods, paths, ports, types };
            let (email, shown) = (args.email, args.display_name.as_deref().map(display_name).transpose()?);
            let name = display_name(&args.name)?;
            let token = CreateServiceToken { name, sockets, expires_at, scope, email, display_name: shown };
            // Checked first: no token is made for a request that cannot be read.
            let key = args.certificate.then_some(KeyArgs {
                csr: args.csr,
                key_out: args.key_out,
                cert_out: args.cert_out,
                certificate_days: args.certificate_days,
            });
            let request = key.map(Request::new).transpose()?;
            let token = client.create_service_token(&token).await?;
            let certificate = match request {
                Some(request) => Some(request.send(&client, token.details.id).await?),
                None => None,
            };
            let made = TokenWithCertificate { token, certificate };
            context.output.data(&made, |made| {
                let certificate = made.certificate.as_ref().map(|it| format!("\n{}", certified(it)));
                format!("{}{}", show(&made.token), certificate.unwrap_or_default())
            })?;
            context.output.hint(
                "keep the secret now: it is not shown again. A machine sends both in the fields Sallyport-Token-Id and \
                 Sallyport-Token-Secret, or uses a certificate of the token; a policy that names the token admits the \
                 machine",
            );
            Ok(())
        }
        ServiceTokenCommand::Show(args) => {
            let id = find(&client, &args.token).await?;
            let token = client.service_token(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&token, |token| output::pairs(&details(token)))
        }
        ServiceTokenCommand::Certificate(args) => {
            let request = Request::new(args.key)?;
            let id = find(&client, &args.token.token).await?;
            let given = request.send(&client, id).await?;
            context.output.data(&given, certified)
        }
        ServiceTokenCommand::Ls => {
            let empty = "no service tokens yet: `sallyport service-token create NAME` makes one";
            context.output.list(&client.service_tokens().await?, empty, |tokens| list(&context.output, tokens))
        }
        ServiceTokenCommand::Rm(RmArgs { token: args, yes }) => {
            let id = find(&client, &args.token).await?;
            yes.confirm(&format!("End the service token {}? Machines that use it are locked out.", args.token))?;
            client.delete_service_token(id).await.map_err(|error| failure::about(error, &id))?;
            context.output.data(&json!({ "deleted": id }), |_| format!("deleted {id}"))
        }
    }
}

async fn find(client: &ApiClient, token: &str) -> anyhow::Result<ServiceTokenId> {
    if let Ok(id) = token.parse() {
        return Ok(id);
    }
    let pick = Pick {
        what: "service token",
        list: "sallyport service-token ls",
        id: &|token: &ServiceToken| token.id.uuid(),
        names: &|token| vec![token.name.to_string()],
    };
    let found = pick.find(client.service_tokens().await?, token)?;
    Ok(found.id)
}

fn expires(token: &ServiceToken) -> String {
    token.expires_at.map_or_else(|| "never".to_owned(), utc)
}

fn sockets(token: &ServiceToken) -> String {
    if token.sockets.is_empty() {
        return "all".to_owned();
    }
    token.sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn scope(token: &ServiceToken) -> String {
    let ServiceTokenScope { read_only, methods, paths, ports, types } = &token.scope;
    let list =
        |what: &str, entries: Vec<String>| (!entries.is_empty()).then(|| format!("{what} {}", entries.join(",")));
    let parts = [
        read_only.then(|| "reading".to_owned()),
        list("methods", methods.clone()),
        list("paths", paths.clone()),
        list("ports", ports.iter().map(ToString::to_string).collect()),
        list("types", types.iter().map(ToString::to_string).collect()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join("; ") }
}

fn details(token: &ServiceToken) -> Vec<(&'static str, String)> {
    let mut pairs = vec![
        ("id", token.id.to_string()),
        ("name", token.name.to_string()),
        ("sockets", sockets(token)),
        ("reaches", scope(token)),
        ("expires", expires(token)),
    ];
    pairs.extend(token.email.as_ref().map(|email| ("e-mail", email.to_string())));
    pairs.extend(token.display_name.as_ref().map(|name| ("called", name.to_string())));
    pairs.extend(token.certified_until.map(|until| ("certificate until", utc(until))));
    pairs
}

fn show(created: &CreatedServiceToken) -> String {
    let mut pairs = details(&created.details);
    pairs.insert(1, ("secret", created.secret.expose().to_owned()));
    output::pairs(&pairs)
}

fn certified(it: &IssuedCertificate) -> String {
    let until = ("good until", utc(it.details.valid_until));
    match (&it.written, &it.key) {
        (None, _) => format!("{}\n{}", output::pairs(&[until]), it.details.certificate.trim_end()),
        (Some(file), key) => {
            let mut pairs = vec![("certificate", file.display().to_string())];
            pairs.extend(key.as_ref().map(|key| ("key", key.display().to_string())));
            pairs.push(until);
            output::pairs(&pairs)
        }
    }
}

/// The certificate request, and the file for the certificate.
struct Request {
    csr: String,
    key_pem: Option<String>,
    args: KeyArgs,
}

impl Request {
    fn new(args: KeyArgs) -> anyhow::Result<Self> {
        let Some(file) = &args.csr else {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot make a key")?;
            return Ok(Self { csr: certificate_request(&key)?, key_pem: Some(key.serialize_pem()), args });
        };
        let mut csr = String::new();
        let most = MAX_REQUEST_BYTES as u64 + 1;
        let read = if file.as_os_str() == "-" {
            std::io::stdin().lock().take(most).read_to_string(&mut csr)
        } else {
            File::open(file).and_then(|open| open.take(most).read_to_string(&mut csr))
        };
        read.with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self { csr, key_pem: None, args })
    }

    async fn send(self, client: &ApiClient, token: ServiceTokenId) -> anyhow::Result<IssuedCertificate> {
        let body = CreateServiceTokenCertificate { csr: self.csr, days: self.args.certificate_days };
        let details = client.create_service_token_certificate(token, &body).await;
        let details = details.map_err(|error| failure::about(error, &token))?;
        if let (Some(file), Some(pem)) = (&self.args.key_out, &self.key_pem) {
            write_private(file, pem)?;
        }
        if let Some(file) = &self.args.cert_out {
            std::fs::write(file, &details.certificate).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(IssuedCertificate { details, written: self.args.cert_out, key: self.args.key_out })
    }
}

fn list(output: &Output, tokens: &[ServiceToken]) -> String {
    columns::table(
        output,
        [
            Column::Cut("NAME"),
            Column::Cut("SOCKETS"),
            Column::Cut("REACHES"),
            Column::Wide("CREATED"),
            Column::Plain("EXPIRES"),
            Column::Id("ID"),
        ],
        tokens.iter().map(|token| {
            let ends = token.expires_at.map_or_else(|| "never".to_owned(), columns::minute);
            let created = utc(token.created_at);
            [token.name.to_string(), sockets(token), scope(token), created, ends, token.id.to_string()]
        }),
    )
}
