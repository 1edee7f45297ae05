//! `sallyport client`: access to sockets with an identity setting, for programs that cannot log in themselves.
//!
//! May use what `command` may use.

mod callback;
mod cert;
mod host;
mod login;
mod ssh;
mod tls;

use clap::Subcommand;
use serde::Serialize;
use time::OffsetDateTime;

pub(crate) use cert::write_private;
pub(crate) use ssh::{SshConfigArgs, ssh_config};

use crate::{
    context::{Context, credentials::CredentialsFile},
    output,
    view::utc,
};

/// What can be done at sockets of others.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Log in to a socket, in the browser
    Login(login::LoginArgs),
    /// End the login at a socket, or all of them
    Logout(login::LogoutArgs),
    /// List the logins
    Ls,
    /// Get a client certificate, for programs that speak TLS themselves
    Cert(cert::CertArgs),
    /// Connect to a tls socket: the standard input and output, or clients of this machine
    Tls(tls::TlsArgs),
    /// Get an ssh key signed, for hosts behind a socket
    SshKeysign(ssh::KeysignArgs),
    /// Log in to a host behind a tls socket by ssh
    Ssh(ssh::SshArgs),
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: ClientCommand) -> anyhow::Result<()> {
    match command {
        ClientCommand::Login(args) => login::run(context, args).await,
        ClientCommand::Logout(args) => login::logout(context, args).await,
        ClientCommand::Ls => list(context),
        ClientCommand::Cert(args) => cert::run(context, args).await,
        ClientCommand::Tls(args) => tls::run(context, args).await,
        ClientCommand::SshKeysign(args) => ssh::keysign(context, args).await,
        ClientCommand::Ssh(args) => ssh::run(context, args).await,
    }
}

#[derive(Debug, Serialize)]
struct ClientLogin {
    host: String,
    email: String,
    api: String,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

/// The stored logins that have not ended.
fn list(context: &Context) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    let mut logins = Vec::new();
    for (api, profile) in CredentialsFile::of_user()?.read()?.profiles {
        for (host, saved) in profile.clients.into_iter().filter(|(_, saved)| saved.expires_at > now) {
            logins.push(ClientLogin { host, email: saved.email, api: api.clone(), expires_at: saved.expires_at });
        }
    }
    context.output.list(&logins, "no logins: `sallyport client login --host HOST` makes one", |logins| {
        output::table(
            ["HOST", "AS", "UNTIL"],
            logins.iter().map(|login| [login.host.clone(), login.email.clone(), utc(login.expires_at)]),
        )
    })
}
