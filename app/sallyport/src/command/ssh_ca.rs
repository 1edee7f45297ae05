//! `sallyport ssh-ca`: the authority for ssh keys of persons and hosts behind sockets.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sallyport_api::{CreateSshHostCertificate, SshAuthority, UpdateSshAuthority};

use super::{options::SocketArg, ssh_key};
use crate::{
    context::Context,
    failure::{self, Failure},
    output,
    view::utc,
};

/// What can be done with the authority for ssh keys.
#[derive(Debug, Subcommand)]
pub(crate) enum SshCaCommand {
    /// Show the public key and the settings of the authority, which is made when there is none
    Show,
    /// Change what certificates of persons allow
    Edit(EditArgs),
    /// Sign the key of a host behind a socket, so that ssh does not ask about the fingerprint
    SignHost(SignHostArgs),
}

/// Options of `ssh-ca edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The extensions of certificates: permit-X11-forwarding, permit-agent-forwarding, permit-port-forwarding,
    /// permit-pty, permit-user-rc; several with commas
    #[arg(long = "extension", alias = "extensions", value_name = "EXTENSION", value_delimiter = ',')]
    extensions: Option<Vec<String>>,
    /// Grant no extension
    #[arg(long, conflicts_with = "extensions")]
    no_extensions: bool,
    /// The one command that certificates allow
    #[arg(long, value_name = "COMMAND")]
    force_command: Option<String>,
    /// Allow any command
    #[arg(long, conflicts_with = "force_command")]
    no_force_command: bool,
    /// Support hosts that were set up for mysocket: adds the principal mysocket_ssh_signed
    #[arg(long)]
    mysocket_principal: bool,
    /// Leave the principal mysocket_ssh_signed out
    #[arg(long, conflicts_with = "mysocket_principal")]
    no_mysocket_principal: bool,
}

/// Options of `ssh-ca sign-host`.
#[derive(Debug, Args)]
pub(crate) struct SignHostArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The file with the host's public key, - for the standard input
    #[arg(long, value_name = "FILE", default_value = "/etc/ssh/ssh_host_ed25519_key.pub")]
    public_key: PathBuf,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: SshCaCommand) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    match command {
        SshCaCommand::Show => {
            context.output.data(&client.ssh_authority().await?, show)?;
            context.output.hint("hosts: put the key into a file, and name it in sshd_config with TrustedUserCAKeys");
            Ok(())
        }
        SshCaCommand::Edit(args) => {
            let set = |on: bool, off: bool| if on { Some(true) } else { off.then_some(false) };
            let update = UpdateSshAuthority {
                extensions: if args.no_extensions { Some(Vec::new()) } else { args.extensions },
                force_command: if args.no_force_command { Some(None) } else { args.force_command.map(Some) },
                mysocket_principal: set(args.mysocket_principal, args.no_mysocket_principal),
            };
            if update.extensions.is_none() && update.force_command.is_none() && update.mysocket_principal.is_none() {
                return Err(Failure::usage("nothing to change").next("see `sallyport ssh-ca edit --help`").into());
            }
            context.output.data(&client.update_ssh_authority(&update).await?, show)
        }
        SshCaCommand::SignHost(args) => {
            let socket = args.socket.get()?;
            let key = CreateSshHostCertificate { public_key: ssh_key::read(Some(args.public_key))? };
            let signed = client.sign_ssh_host_key(socket, &key).await.map_err(|error| failure::about(error, socket))?;
            context.output.data(&signed, |signed| signed.certificate.clone())?;
            context.output.hint(&format!("good until {}", utc(signed.valid_until)));
            context.output.hint("host: put it into a file, and name it in sshd_config with HostCertificate");
            context.output.hint(&format!("clients have in known_hosts: {}", signed.known_hosts));
            Ok(())
        }
    }
}

fn show(authority: &SshAuthority) -> String {
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    output::pairs(&[
        ("public key", authority.public_key.clone()),
        ("extensions", or_none(authority.extensions.join(", "))),
        ("forced command", or_none(authority.force_command.clone().unwrap_or_default())),
        ("mysocket principal", if authority.mysocket_principal { "yes" } else { "no" }.to_owned()),
    ])
}
