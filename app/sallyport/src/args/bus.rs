//! Options for the bus.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use sallyport_bus::{BusConfig, BusCredentials, BusError, Nats};

use crate::failure::{Failure, Kind};

/// How long the bus may take to check the edges' credentials.
const CHECK_TIME: Duration = Duration::from_secs(5);

/// Where the bus is.
#[derive(Debug, Args)]
pub(crate) struct BusArgs {
    /// The NATS servers with JetStream: nats://HOST:PORT or tls://HOST:PORT, several by commas
    #[arg(long = "bus", value_name = "URL", env = "SALLYPORT_BUS", value_delimiter = ',', required = true)]
    pub(crate) servers: Vec<String>,
    /// NATS user name of the control plane; SALLYPORT_BUS_PASSWORD holds the password
    #[arg(long = "bus-user", value_name = "USER", env = "SALLYPORT_BUS_USER", conflicts_with = "bus_secret")]
    pub(crate) user: Option<String>,
    /// NATS token of the control plane; better in SALLYPORT_BUS_TOKEN: other users of the machine can see flags
    #[arg(
        id = "bus_secret",
        long = "bus-token",
        value_name = "TOKEN",
        env = "SALLYPORT_BUS_TOKEN",
        hide_env_values = true
    )]
    pub(crate) secret: Option<String>,
    /// NATS user name of the edges, with fewer permissions than control (see integrations/nats);
    /// SALLYPORT_BUS_EDGE_PASSWORD holds the password [default: edges use the credentials of control]
    #[arg(long = "bus-edge-user", value_name = "USER", env = "SALLYPORT_BUS_EDGE_USER")]
    pub(crate) edge_user: Option<String>,
    /// The authority that signed the certificates of the NATS servers, in PEM; requires TLS [default: the system's
    /// authorities]
    #[arg(long = "bus-ca", value_name = "FILE", env = "SALLYPORT_BUS_CA")]
    pub(crate) authority: Option<PathBuf>,
}

impl BusArgs {
    /// The bus configuration of a control with this name.
    ///
    /// # Errors
    /// A user without a password.
    pub(crate) fn config(&self, name: &str) -> Result<BusConfig, Failure> {
        let credentials = match (&self.user, &self.secret) {
            (Some(user), _) => password("--bus-user", user, "SALLYPORT_BUS_PASSWORD")?,
            (None, Some(token)) => BusCredentials::Token(token.clone()),
            (None, None) => BusCredentials::None,
        };
        let (servers, ca) = (self.servers.clone(), self.authority.clone());
        Ok(BusConfig { servers, credentials, ca, name: name.to_owned(), is_edge: false })
    }

    /// The bus configuration for edges.
    ///
    /// # Errors
    /// A user without a password.
    pub(crate) fn config_of_edges(&self) -> Result<BusConfig, Failure> {
        let own = self.config("sallyport control, as an edge")?;
        let Some(user) = &self.edge_user else { return Ok(own) };
        let credentials = password("--bus-edge-user", user, "SALLYPORT_BUS_EDGE_PASSWORD")?;
        Ok(BusConfig { credentials, is_edge: true, ..own })
    }

    /// Checks that the bus accepts the edges' own credentials, if they have some; passes while the bus is away.
    ///
    /// # Errors
    /// The bus refuses them.
    pub(crate) async fn check_edges(&self) -> Result<(), Failure> {
        if self.edge_user.is_none() {
            return Ok(());
        }
        let config = self.config_of_edges()?;
        match tokio::time::timeout(CHECK_TIME, Nats::connect(&config)).await {
            Ok(Err(error @ BusError::Credentials { .. })) => {
                let message = format!("edges could not use the bus: {error}");
                Err(Failure::new(Kind::Failed, message)
                    .next("compare --bus-edge-user and SALLYPORT_BUS_EDGE_PASSWORD with the users of the bus"))
            }
            _ => Ok(()),
        }
    }
}

fn password(option: &str, user: &str, variable: &str) -> Result<BusCredentials, Failure> {
    let password = std::env::var(variable)
        .map_err(|_| Failure::usage(format!("{option} needs a password")).next(format!("give it in {variable}")))?;
    Ok(BusCredentials::Password { user: user.to_owned(), password })
}
