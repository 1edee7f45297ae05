//! `sallyport socket`.
//!
//! May use what `command` may use.

pub(crate) mod headers;
pub(crate) mod identity;
pub(crate) mod origin;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod settings;
pub(crate) mod stats;

use clap::{Args, Subcommand};
use sallyport_api::{CreateSocket, Socket, UpdateSocket};
use sallyport_model::{OriginProtocol, SocketType};
use sallyport_net::RootInfo;
use serde_json::json;

use self::{
    identity::PoliciesArg, origin::SocketOriginCommand, plan::PlanArgs, settings::SettingsArgs, stats::StatsArgs,
};
use super::{
    display_name,
    health::why,
    options::{
        LabelArg, NamedSocketArg, PortArgs, ProtectArgs, SocketArg, idempotency_key, origin_protocol, socket_type,
    },
};
use crate::{
    command::options::{
        confirm::YesArg,
        labels::{ChangedLabelsArgs, LabelSelectorArgs, LabelsArgs},
    },
    context::Context,
    failure::{self, Failure},
    output::{self, Output},
    view::{
        columns::{self, Column},
        utc,
    },
};

/// What can be done with sockets.
#[derive(Debug, Subcommand)]
pub(crate) enum SocketCommand {
    /// Make a socket: a public name that stays
    Create(CreateArgs),
    /// List the sockets
    #[command(alias = "list")]
    Ls(LsArgs),
    /// Show a socket
    Show(ShowArgs),
    /// Show the statistics of a socket: requests, flows, bytes and times, by edge and tunnel
    Stats(StatsArgs),
    /// Show the plan of a socket with limits: which edge sends how much to which origin, and why
    Plan(PlanArgs),
    /// Change a socket
    Edit(EditArgs),
    /// Delete a socket and its tunnels; no other organisation ever gets its public name
    #[command(alias = "rm")]
    Delete(DeleteArgs),
    /// Direct origins: addresses that edges dial themselves
    #[command(subcommand)]
    Origin(SocketOriginCommand),
}

/// Options of `socket create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name, unique in the organisation
    #[arg(long)]
    name: String,
    #[command(flatten)]
    label: LabelArg,
    /// The type: http, https, tcp, tls or udp
    #[arg(long = "type", value_name = "TYPE", default_value = "http", value_parser = socket_type())]
    socket_type: SocketType,
    /// The HTTP version of requests to the origin
    #[arg(long, value_name = "PROTOCOL", default_value = "auto", value_parser = origin_protocol())]
    origin_protocol: OriginProtocol,
    #[command(flatten)]
    port: PortArgs,
    #[command(flatten)]
    protect: ProtectArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    policies: PoliciesArg,
    #[command(flatten)]
    labels: LabelsArgs,
}

/// Options of `socket ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    labels: LabelSelectorArgs,
}

/// Options of `socket show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    socket: NamedSocketArg,
}

/// Options of `socket delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    socket: NamedSocketArg,
    #[command(flatten)]
    yes: YesArg,
}

/// Options of `socket edit`.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    #[command(flatten)]
    socket: SocketArg,
    /// The new name
    #[arg(long)]
    name: Option<String>,
    /// The type; a socket with a port of its own (tcp, tls, udp) must keep one. Restart running connectors afterwards
    #[arg(long = "type", value_name = "TYPE", value_parser = socket_type())]
    socket_type: Option<SocketType>,
    /// The HTTP version of requests to the origin
    #[arg(long, value_name = "PROTOCOL", value_parser = origin_protocol())]
    origin_protocol: Option<OriginProtocol>,
    #[command(flatten)]
    protect: ProtectArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    labels: ChangedLabelsArgs,
    /// Confirm that --no-cloudauth or --not-protected opens the socket to everybody
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(crate) async fn run(context: &Context, command: SocketCommand) -> anyhow::Result<()> {
    match command {
        SocketCommand::Create(args) => create(context, args).await,
        SocketCommand::Ls(args) => {
            let sockets = context.client(&context.target()?)?.sockets_with(&args.labels.labels).await?;
            let empty = "no sockets yet: `sallyport connect PORT` gives a service a public name for a while, \
                         and `sallyport socket create --name NAME` makes one that stays";
            context.output.list(&sockets, empty, |sockets| list(&context.output, sockets))?;
            for socket in &sockets {
                if let Some(failing) = failing(socket) {
                    context.output.hint(&format!("{}: {failing}", socket.name));
                }
            }
            Ok(())
        }
        SocketCommand::Show(args) => {
            let socket = args.socket.get()?;
            let client = context.client(&context.target()?)?;
            let socket = client.socket(socket).await.map_err(|error| failure::about(error, socket))?;
            context.output.data(&socket, show)?;
            notes(context, &socket);
            Ok(())
        }
        SocketCommand::Stats(args) => stats::run(context, args).await,
        SocketCommand::Plan(args) => plan::run(context, args).await,
        SocketCommand::Edit(args) => edit(context, args).await,
        SocketCommand::Origin(command) => origin::run(context, command).await,
        SocketCommand::Delete(args) => delete(context, args).await,
    }
}

async fn delete(context: &Context, args: DeleteArgs) -> anyhow::Result<()> {
    let socket = args.socket.get()?;
    let about = |error| failure::about(error, socket);
    let client = context.client(&context.target()?)?;
    if args.yes.asks() {
        let known = client.socket(socket).await.map_err(about)?;
        let tunnels = match known.tunnels_total {
            0 => String::new(),
            1 => " with its tunnel".to_owned(),
            count => format!(" with its {count} tunnels"),
        };
        args.yes.confirm(&format!(
            "Delete the socket {} ({}){tunnels}? Its public name is never given out again.",
            known.name, known.url
        ))?;
        // By id: the confirmed socket, and no other that has got its name since.
        client.delete_socket(&known.id.into()).await.map_err(about)?;
    } else {
        client.delete_socket(socket).await.map_err(about)?;
    }
    context.output.data(&json!({ "deleted": socket.to_string() }), |_| format!("deleted {socket}"))
}

async fn create(context: &Context, args: CreateArgs) -> anyhow::Result<()> {
    let client = context.client(&context.target()?)?;
    let mut create = CreateSocket {
        origin_protocol: args.origin_protocol,
        protected: args.protect.read(args.socket_type, None)?,
        port: args.port.public_port,
        policies: args.policies.get(),
        label: args.label.name_label,
        labels: args.labels.get()?,
        ..CreateSocket::new(display_name(&args.name)?, args.socket_type)
    };
    args.settings.set(&mut create)?;
    let socket = client.create_socket(&create, &idempotency_key()?).await?;
    context.output.data(&socket, show)?;
    notes(context, &socket);
    let name = socket.label().map_or_else(|| socket.id.to_string(), |label| label.to_string());
    context.output.hint(&format!("next: sallyport tunnel connect {name} PORT"));
    Ok(())
}

async fn edit(context: &Context, args: EditArgs) -> anyhow::Result<()> {
    let socket = args.socket.get()?;
    let about = |error| failure::about(error, socket);
    let client = context.client(&context.target()?)?;
    let asks_first = args.settings.needs_current() || args.protect.protected || !args.labels.is_empty();
    let known = match client.socket(socket).await {
        Ok(known) => Some(known),
        // A token may change what it may not read; the former settings are not shown then.
        Err(error) if error.status() == Some(403) && !asks_first => None,
        Err(error) => return Err(about(error)),
    };
    let socket_type = args.socket_type.or(known.as_ref().map(|known| known.socket_type)).unwrap_or(SocketType::Http);
    let has_password = args.protect.protected;
    let protected = if args.protect.not_protected {
        Some(None)
    } else if args.protect.protected {
        let username = known.as_ref().and_then(|known| Some(known.protected.as_ref()?.username.clone()));
        args.protect.read(socket_type, username)?.map(Some)
    } else {
        args.protect.read(socket_type, None)?.map(Some)
    };
    let mut update = UpdateSocket {
        name: args.name.as_deref().map(display_name).transpose()?,
        socket_type: args.socket_type,
        origin_protocol: args.origin_protocol,
        protected,
        force: args.force,
        ..UpdateSocket::default()
    };
    args.settings.change(known.as_ref(), &mut update)?;
    if let Some(known) = &known {
        update.labels = args.labels.change(&known.labels)?.map(Some);
    }
    if update.is_empty() {
        return Err(Failure::usage("nothing to change").next("see `sallyport socket edit --help`").into());
    }
    // By id, because the name may just change.
    let reference = known.as_ref().map_or_else(|| socket.clone(), |known| known.id.into());
    let socket = client.update_socket(&reference, &update).await.map_err(about)?;
    context.output.data(&socket, |socket| match &known {
        Some(known) => changes(known, socket, has_password),
        None => show(socket),
    })?;
    notes(context, &socket);
    if update.socket_type.is_some() && socket.tunnels_up > 0 {
        context.output.hint("running connectors still use the former protocol of the service: restart them");
    }
    Ok(())
}

/// Prints notes on settings without effect.
fn notes(context: &Context, socket: &Socket) {
    socket.notes.iter().for_each(|note| context.output.hint(note));
}

/// The changed settings, for people.
fn changes(former: &Socket, now: &Socket, has_password: bool) -> String {
    let (before, after) = (settings_of(former), settings_of(now));
    let find = |rows: &[(&'static str, String)], title| {
        rows.iter().find(|(known, _)| *known == title).map(|(_, value)| value.clone())
    };
    let none = || "-".to_owned();
    let mut rows = Vec::new();
    for (title, value) in &after {
        let was = find(&before, *title);
        if was.as_ref() != Some(value) {
            rows.push((*title, format!("{} -> {value}", was.unwrap_or_else(none))));
        }
    }
    for (title, was) in before.iter().filter(|(title, _)| find(&after, *title).is_none()) {
        rows.push((*title, format!("{was} -> -")));
    }
    if has_password {
        rows.push(("password", "set anew".to_owned()));
    }
    let label = now.label().map_or_else(|| now.id.to_string(), |label| label.to_string());
    match rows.is_empty() {
        true => format!("{label} was so already: nothing has changed"),
        false => format!("changed {label}\n{}", output::pairs(&rows)),
    }
}

/// The settings of a socket.
fn settings_of(socket: &Socket) -> Vec<(&'static str, String)> {
    let mut rows = vec![("name", socket.name.to_string()), ("type", socket.socket_type.to_string())];
    if socket.socket_type.is_http() {
        rows.push(("origin protocol", socket.origin_protocol.to_string()));
        rows.push(("protected", protected(socket)));
    }
    rows.extend(settings::show(socket));
    rows.extend((!socket.labels.is_empty()).then(|| ("labels", socket.labels.to_string())));
    rows
}

/// A socket for people.
pub(crate) fn show(socket: &Socket) -> String {
    let mut rows = vec![
        ("socket", socket.id.to_string()),
        ("name", socket.name.to_string()),
        ("URL", socket.url.clone()),
        ("type", socket.socket_type.to_string()),
    ];
    if let Some(port) = socket.port {
        rows.push(("own port", port.to_string()));
    }
    if socket.socket_type.is_http() {
        rows.push(("origin protocol", socket.origin_protocol.to_string()));
        rows.push(("protected", protected(socket)));
    }
    rows.extend(settings::show(socket));
    rows.extend((!socket.labels.is_empty()).then(|| ("labels", socket.labels.to_string())));
    rows.push(("tunnels", format!("{} of {} up", socket.tunnels_up, socket.tunnels_total)));
    if let Some(failing) = failing(socket) {
        rows.push(("health", failing));
    }
    rows.push(("created", utc(socket.created_at)));
    if let Some(line) = &socket.ssh_authority {
        rows.push(("ssh CA", line.clone()));
    }
    if let Some(pem) = &socket.client_authority {
        let fingerprint = RootInfo::from_pem(pem).map(|root| root.fingerprint.to_string());
        rows.push(("client CA", fingerprint.unwrap_or_else(|_| "see -o json".to_owned())));
    }
    if let Some(ssh) = &socket.ssh {
        rows.push(("with ssh", ssh.command.clone()));
        rows.extend(ssh.known_hosts.iter().map(|line| ("known_hosts", line.clone())));
    }
    output::pairs(&rows)
}

/// How many of its origins get no requests, and why.
fn failing(socket: &Socket) -> Option<String> {
    let failure = socket.failure.as_ref()?;
    let who = match socket.origins_failing {
        1 => "one origin gets".to_owned(),
        count => format!("{count} origins get"),
    };
    Some(format!("{who} nothing: {}", why(failure)))
}

/// The admitted clients.
pub(crate) fn protected(socket: &Socket) -> String {
    socket.protected.as_ref().map_or_else(|| "no".to_owned(), |protected| format!("user {}", protected.username))
}

fn list(output: &Output, sockets: &[Socket]) -> String {
    let columns = [
        Column::Cut("NAME"),
        Column::Plain("UP"),
        Column::Plain("TYPE"),
        Column::Wide("PROTECTED"),
        Column::Plain("URL"),
        Column::Wide("SOCKET"),
    ];
    let rows = sockets.iter().map(|socket| {
        [
            socket.name.to_string(),
            format!("{}/{}", socket.tunnels_up, socket.tunnels_total),
            socket.socket_type.to_string(),
            protected(socket),
            socket.url.clone(),
            socket.id.to_string(),
        ]
    });
    columns::table(output, columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_shown() {
        let socket = |more: &str| -> Socket {
            let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
            let json = format!(
                r#"{{"id":"{id}","dns_name":"calm-bay-1000.localhost","url":"https://calm-bay-1000.localhost:8443",
                    "type":"http","origin_protocol":"auto","created_at":"2026-01-01T12:00:00Z","tunnels_total":0,"tunnels_up":0,
                    "ssh":{{"host":"h","port":22,"user":"u","command":"ssh","known_hosts":["h ssh-ed25519 AAAA"]}}{more}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        let plain = socket(r#","name":"a","affinity":"cookie""#);
        let changed = socket(r#","name":"b","protected":{"username":"ann"},"limits":{"queue":5}"#);
        assert_eq!(
            changes(&plain, &changed, true),
            "changed calm-bay-1000\nname       a -> b\nprotected  no -> user ann\nat most    - -> 5 waiting\n\
             affinity   cookie -> -\npassword   set anew"
        );
        assert!(changes(&plain, &plain, false).contains("nothing has changed"));
    }
}
