//! TLS to a direct origin. The edge always verifies the certificate of the origin.

use std::{
    fmt, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use rustls::ClientConfig;
use sallyport_model::{DirectOriginRoute, OriginAddr};
use sallyport_net::{
    Fingerprint, ShardTcpStream, TlsFailure, Trust, client_config, client_config_by, client_config_of_pem,
    custom_server_verifier,
};
use sallyport_wire::{FailureReason, OpenFailure, StreamProtocol};

use super::Dialed;

/// The ALPN offers of each protocol.
const OFFERED: [&[&[u8]]; 3] = [&[], &[b"http/1.1"], &[b"h2"]];

fn place(protocol: StreamProtocol) -> usize {
    match protocol {
        StreamProtocol::Raw => 0,
        StreamProtocol::Http1 => 1,
        StreamProtocol::Http2 => 2,
    }
}

/// Configurations with the machine's trusted authorities, made at first use.
#[derive(Default)]
pub(super) struct SystemConfigs(OnceLock<Result<[Arc<ClientConfig>; 3], String>>);

impl fmt::Debug for SystemConfigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemConfigs(..)")
    }
}

impl SystemConfigs {
    fn get(&self) -> Result<[Arc<ClientConfig>; 3], String> {
        let make = |alpn| client_config(&Trust::System, alpn).map_err(|error| error.to_string());
        let all = || Ok([make(OFFERED[0])?, make(OFFERED[1])?, make(OFFERED[2])?]);
        self.0.get_or_init(all).clone()
    }
}

/// The TLS settings of one origin.
pub(super) struct Tls {
    configs: [Arc<ClientConfig>; 3],
    server_name: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// The settings that the origin's owner configured.
    ///
    /// # Errors
    /// No authority or pin can be used; the sentence says why.
    pub(super) fn new(origin: &DirectOriginRoute, system: &SystemConfigs) -> Result<Self, String> {
        let server_name = origin.tls.server_name.clone().unwrap_or_else(|| origin.address.host.clone());
        let configs = match (&origin.tls.pin, &origin.tls.ca) {
            (Some(pin), _) => {
                let pin: Fingerprint = pin.parse().map_err(|_| "the pin of the origin is no fingerprint".to_owned())?;
                OFFERED.map(|alpn| Arc::new(pinned(pin, alpn)))
            }
            (None, Some(ca)) => {
                let none = || "the authority of the origin has no usable certificate".to_owned();
                let make = |alpn| client_config_of_pem(ca.as_bytes(), alpn).ok_or_else(none);
                [make(OFFERED[0])?, make(OFFERED[1])?, make(OFFERED[2])?]
            }
            (None, None) => system.get()?,
        };
        Ok(Self { configs, server_name })
    }

    /// Starts TLS on a connection to the origin.
    ///
    /// # Errors
    /// The origin speaks no TLS, shows a wrong certificate, or negotiates another protocol.
    pub(super) async fn start(
        &self,
        tcp: ShardTcpStream,
        address: &OriginAddr,
        protocol: StreamProtocol,
        time: Duration,
    ) -> Result<Box<dyn Dialed>, OpenFailure> {
        let (config, OriginAddr { host, port }) = (self.configs[place(protocol)].clone(), address);
        let stream = sallyport_net::start_tls(tcp, host, *port, &self.server_name, config, time)
            .await
            .map_err(|error| self.no_tls(address, &error))?;
        if protocol == StreamProtocol::Http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let text = format!("{address} speaks no HTTP/2 over TLS");
            return Err(OpenFailure::new(FailureReason::Tls, &text));
        }
        Ok(Box::new(stream))
    }

    fn no_tls(&self, address: &OriginAddr, error: &io::Error) -> OpenFailure {
        if error.kind() == io::ErrorKind::TimedOut {
            return OpenFailure::new(FailureReason::TimedOut, &error.to_string());
        }
        let why = match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()).map(TlsFailure::error) {
            Some(rustls::Error::InvalidMessage(_)) => {
                "it speaks no TLS: for an origin without TLS, use a socket of --type http".to_owned()
            }
            Some(rustls::Error::InvalidCertificate(why)) => {
                let name = &self.server_name;
                format!(
                    "its certificate is not believed to be that of {name} ({why:?}): see --origin-ca, --origin-pin and \
                     --origin-server-name of `sallyport socket origin edit`"
                )
            }
            Some(other) => other.to_string(),
            None => error.to_string(),
        };
        OpenFailure::new(FailureReason::Tls, &format!("the TLS handshake with {address} failed: {why}"))
    }
}

/// Trusts exactly the certificate with this fingerprint, whatever its name and dates.
fn pinned(pin: Fingerprint, alpn: &[&[u8]]) -> ClientConfig {
    let judge = move |presented: &sallyport_net::PresentedChain<'_>| {
        if Fingerprint::of_der(presented.end_entity) == pin {
            Ok(())
        } else {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ApplicationVerificationFailure))
        }
    };
    client_config_by(custom_server_verifier(judge), alpn)
}
