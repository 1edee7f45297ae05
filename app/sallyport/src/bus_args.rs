//! Where the bus is, as control is told.

use std::path::PathBuf;

use clap::Args;
use sallyport_bus::{BusConfig, BusCredentials};

use crate::failure::Failure;

/// Where the bus is.
#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    /// The NATS servers with JetStream: nats://HOST:PORT or tls://HOST:PORT, several by commas
    #[arg(long = "bus", value_name = "URL", env = "SALLYPORT_BUS", value_delimiter = ',', required = true)]
    pub(crate) servers: Vec<String>,
    /// The user that the bus knows; the password comes with SALLYPORT_BUS_PASSWORD
    #[arg(long = "bus-user", value_name = "USER", env = "SALLYPORT_BUS_USER", conflicts_with = "bus_secret")]
    pub(crate) user: Option<String>,
    /// The token that the bus knows; better in SALLYPORT_BUS_TOKEN: other users of the machine can see flags
    #[arg(
        id = "bus_secret",
        long = "bus-token",
        value_name = "TOKEN",
        env = "SALLYPORT_BUS_TOKEN",
        hide_env_values = true
    )]
    pub(crate) secret: Option<String>,
    /// The authority of the bus's certificates, in PEM; with it, TLS is asked for [default: those of the system]
    #[arg(long = "bus-ca", value_name = "FILE", env = "SALLYPORT_BUS_CA")]
    pub(crate) authority: Option<PathBuf>,
}

impl BusArgs {
    /// As the bus wants it, for a machine that is called this.
    ///
    /// # Errors
    /// A user without a password.
    pub(crate) fn config(&self, name: &str) -> Result<BusConfig, Failure> {
        let credentials = match (&self.user, &self.secret) {
            (Some(user), _) => {
                let password = std::env::var("SALLYPORT_BUS_PASSWORD").map_err(|_| {
                    Failure::usage("--bus-user needs a password").next("give it in SALLYPORT_BUS_PASSWORD")
                })?;
                BusCredentials::Password { user: user.clone(), password }
            }
            (None, Some(token)) => BusCredentials::Token(token.clone()),
            (None, None) => BusCredentials::None,
        };
        let (servers, ca) = (self.servers.clone(), self.authority.clone());
        Ok(BusConfig { servers, credentials, ca, name: name.to_owned() })
    }
}
