//! Options that every command takes.

use clap::{ArgAction, Args};
use clap_complete::engine::ArgValueCompleter;
use sallyport_cli::usage::Printing;

use super::{candidates, network::ProxyChoice};

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The address of the API, such as https://api.example.com [default: that of the login, or of a local `sallyport
    /// up`]
    #[arg(long, global = true, value_name = "URL", env = "SALLYPORT_API")]
    pub(crate) api: Option<String>,
    /// The root certificate to trust, in PEM
    #[arg(long, global = true, value_name = "FILE", env = "SALLYPORT_CA")]
    pub(crate) ca: Option<std::path::PathBuf>,
    /// An API token, instead of a login; better in SALLYPORT_TOKEN: other users of the machine can see flags
    #[arg(long, global = true, value_name = "TOKEN", env = "SALLYPORT_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The organisation to act for, by name or id, instead of your own or the one chosen with `organisation use`
    #[arg(long, global = true, alias = "organization", value_name = "NAME", env = "SALLYPORT_ORGANISATION")]
    #[arg(add = ArgValueCompleter::new(candidates::organisations))]
    pub(crate) organisation: Option<String>,
    /// The proxy on the way to the API and the edge: http://[USER:PASSWORD@]HOST:PORT, socks5://..., or none [default:
    /// the one in HTTPS_PROXY or ALL_PROXY, but not for what NO_PROXY lists]
    #[arg(long, global = true, value_name = "URL", env = "SALLYPORT_PROXY", hide_env_values = true)]
    pub(crate) proxy: Option<ProxyChoice>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Log more to the standard error; twice for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}
