//! Options that several commands share.
//!
//! May use what `command` may use.

pub(crate) mod confirm;
pub(crate) mod labels;
pub(crate) mod pick;

use anyhow::Context as _;
use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};
use clap_complete::engine::ArgValueCompleter;
use sallyport_api::{Protect, Secret};
use sallyport_client::{SocketRef, SocketRefError, TunnelRef, TunnelRefError};
use sallyport_model::{OriginProtocol, SocketName, SocketType};

use crate::{
    args::{
        password::{PasswordArgs, PasswordPrompt},
        port,
    },
    context::candidates,
    failure::Failure,
};

/// The environment variable of the password that protects a socket.
const SOCKET_PASSWORD_ENV: &str = "SALLYPORT_SOCKET_PASSWORD";

/// Reads a type of socket.
pub(crate) fn socket_type() -> impl TypedValueParser<Value = SocketType> {
    PossibleValuesParser::new(SocketType::ALL.map(SocketType::as_str)).try_map(|text| text.parse::<SocketType>())
}

/// Reads an origin protocol.
pub(crate) fn origin_protocol() -> impl TypedValueParser<Value = OriginProtocol> {
    PossibleValuesParser::new(["auto", "http1", "http2"]).try_map(|text| text.parse::<OriginProtocol>())
}

/// The label of a new socket.
#[derive(Debug, Args)]
pub(crate) struct LabelArg {
    /// The first label of the public name, where the server lets you choose it: shop for shop.tunnels.example.com
    /// [default: a generated one]
    #[arg(long, value_name = "LABEL")]
    pub(crate) name_label: Option<SocketName>,
}

/// A socket on the command line.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SocketArg {
    /// The socket: its name, its public name such as wandering-shape-7752, or its id
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// The same, as an option
    #[arg(long, alias = "socket", value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket_id: Option<SocketRef>,
}

/// A socket on the command line, for commands whose `--name` selects it too.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct NamedSocketArg {
    /// The socket: its name, its public name such as wandering-shape-7752, or its id
    #[arg(value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket: Option<SocketRef>,
    /// The same, as an option
    #[arg(long, alias = "socket", value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket_id: Option<SocketRef>,
    /// The same, by its name
    #[arg(id = "socket_name", long = "name", value_name = "NAME")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    name: Option<SocketRef>,
}

impl NamedSocketArg {
    /// The socket.
    pub(crate) fn get(&self) -> anyhow::Result<&SocketRef> {
        let given = self.socket.as_ref().or(self.socket_id.as_ref()).or(self.name.as_ref());
        Ok(given.ok_or_else(|| Failure::usage("which socket?"))?)
    }
}

/// A tunnel on the command line: by its own name or id, or with its socket.
#[derive(Debug, Args)]
pub(crate) struct TunnelArg {
    /// The tunnel: its name or its id. With --tunnel-id: the socket
    #[arg(value_name = "TUNNEL")]
    #[arg(add = ArgValueCompleter::new(candidates::tunnels))]
    first: Option<String>,
    /// The socket of the tunnel
    #[arg(long, alias = "socket", value_name = "SOCKET")]
    #[arg(add = ArgValueCompleter::new(candidates::sockets))]
    socket_id: Option<SocketRef>,
    /// The tunnel, as an option: its id or its name, as `tunnel ls` shows them
    #[arg(long, alias = "tunnel", value_name = "TUNNEL")]
    #[arg(add = ArgValueCompleter::new(candidates::tunnels))]
    tunnel_id: Option<TunnelRef>,
}

impl TunnelArg {
    /// The socket, if the command line has one, and the tunnel; `named`: the tunnel, if another option has it.
    ///
    /// # Errors
    /// No tunnel is named, or two are.
    pub(crate) fn get(&self, named: Option<&TunnelRef>) -> anyhow::Result<(SocketRef, TunnelRef)> {
        let wrong = |error: String| anyhow::Error::from(Failure::usage(error));
        let tunnel = match (self.tunnel_id.as_ref(), named) {
            (Some(_), Some(_)) => return Err(wrong("--tunnel-id and --name both select the tunnel".to_owned())),
            (one, other) => one.or(other),
        };
        match (tunnel, &self.socket_id, &self.first) {
            (Some(_), Some(_), Some(more)) => Err(wrong(format!("{more:?} is one word too many"))),
            (Some(tunnel), Some(socket), None) => Ok((socket.clone(), tunnel.clone())),
            (Some(tunnel), None, Some(socket)) => {
                Ok((socket.parse().map_err(|error: SocketRefError| wrong(error.to_string()))?, tunnel.clone()))
            }
            (Some(tunnel), None, None) => Ok((SocketRef::Any, tunnel.clone())),
            (None, socket, Some(tunnel)) => {
                let tunnel = tunnel.parse().map_err(|error: TunnelRefError| wrong(error.to_string()))?;
                Ok((socket.clone().unwrap_or(SocketRef::Any), tunnel))
            }
            (None, _, None) => Err(Failure::usage("which tunnel?").next("`sallyport tunnel ls` shows them").into()),
        }
    }
}

impl SocketArg {
    /// The socket.
    pub(crate) fn get(&self) -> anyhow::Result<&SocketRef> {
        Ok(self.socket.as_ref().or(self.socket_id.as_ref()).ok_or_else(|| Failure::usage("which socket?"))?)
    }
}

/// The port of a new socket.
#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// The public port of a tcp, tls or udp socket [default: a free one, which stays with the socket]
    #[arg(long, value_name = "PORT", value_parser = port::parse, allow_negative_numbers = true)]
    pub(crate) public_port: Option<u16>,
}

/// The password of a socket.
#[derive(Debug, Args)]
pub(crate) struct ProtectArgs {
    /// Require a user name and a password of every client
    #[arg(long, conflicts_with = "not_protected")]
    pub(crate) protected: bool,
    /// Require no password
    #[arg(long)]
    pub(crate) not_protected: bool,
    /// The user name that clients must give
    #[arg(long)]
    username: Option<String>,
    #[command(flatten)]
    password: PasswordArgs,
}

impl ProtectArgs {
    /// Whether the command would have to prompt for the password.
    pub(crate) fn asks(&self) -> bool {
        let is_set = || std::env::var_os(SOCKET_PASSWORD_ENV).is_some_and(|value| !value.is_empty());
        self.protected && !self.password.is_given() && !is_set()
    }

    /// The protection of a socket of this type, if one is asked for; `known` is the user name when none is given.
    ///
    /// # Errors
    /// User name and password do not come together, or sockets of the type have none.
    pub(crate) fn read(self, socket_type: SocketType, known: Option<String>) -> anyhow::Result<Option<Protect>> {
        if self.protected && !socket_type.is_http() {
            return Err(Failure::usage(format!(
                "only http and https sockets can be protected by a password, and this is a {socket_type} socket"
            ))
            .next("leave --protected out; --allow and --deny limit the networks of clients")
            .into());
        }
        if !self.protected {
            if self.username.is_some() || self.password.is_given() {
                return Err(Failure::usage("a user name and a password are for --protected sockets")
                    .next("add --protected")
                    .into());
            }
            return Ok(None);
        }
        let username = self
            .username
            .or(known)
            .ok_or_else(|| Failure::usage("--protected needs a user name").next("add --username NAME"))?;
        let password: Secret = self.password.read(PasswordPrompt {
            env: SOCKET_PASSWORD_ENV,
            prompt: "Password for clients",
            twice: true,
        })?;
        Ok(Some(Protect { username, password }))
    }
}

/// A key that makes a creation repeatable.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn idempotency_key() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).context("the system has no random numbers")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        protect: ProtectArgs,
    }

    #[test]
    fn no_password_prompt_without_protection() {
        for refused in [SocketType::Tcp, SocketType::Tls, SocketType::Udp] {
            let line = Line::try_parse_from(["x", "--protected", "--username", "ann"]).unwrap();
            let error = line.protect.read(refused, None).unwrap_err().to_string();
            assert!(error.starts_with("only http and https sockets can be protected"), "{error}");
        }
    }
}
