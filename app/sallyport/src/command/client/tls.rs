//! `sallyport client tls`: connects to a `tls` socket with an identity setting.

use std::{io, net::SocketAddr, os::fd::AsFd as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use clap::Args;
use rustls::{
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use sallyport_api::CreateClientCertificate;
use sallyport_client::ApiClient;
use sallyport_net::TlsFailure;
use sallyport_pki::{KeyPair, PKCS_ECDSA_P256_SHA256, certificate_request};
use time::OffsetDateTime;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Mutex, Semaphore},
};

use super::{host::HostArgs, login::LoginEndpoint};
use crate::{
    context::Context,
    failure::{Failure, Kind, OutputClosed},
    output,
};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A certificate that ends within this time is not used for a new connection.
const ENDS_SOON: time::Duration = time::Duration::seconds(30);
/// How many local clients are served at once.
const MAX_LOCAL_CLIENTS: usize = 1_024;

/// Options of `client tls`.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    #[command(flatten)]
    host: HostArgs,
    /// Serve clients of this machine at this address, such as 127.0.0.1:5432 or 5432, instead of the standard input and
    /// output
    #[arg(long, short, value_name = "ADDRESS", value_parser = local_address)]
    listener: Option<SocketAddr>,
}

/// A local address. It must be of this machine, because its clients have the access of the person who has logged in.
fn local_address(text: &str) -> Result<SocketAddr, String> {
    let text =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { format!("127.0.0.1:{text}") } else { text.to_owned() };
    let text = text.strip_prefix("localhost:").map_or(text.clone(), |port| format!("127.0.0.1:{port}"));
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("every client that reaches it would have your access: use an address of this machine, such as \
                      127.0.0.1:5432"
            .into()),
        Err(_) => Err("it is no address such as 127.0.0.1:5432, and no port".into()),
    }
}

/// A client certificate with its key, only in memory.
#[derive(Clone)]
pub(super) struct Certificate {
    pub(super) pem: String,
    pub(super) authority: String,
    pub(super) key_pem: String,
    key_der: Vec<u8>,
    pub(super) email: String,
    pub(super) valid_until: OffsetDateTime,
    port: u16,
}

/// The connection settings.
pub(super) struct TlsEntry {
    endpoint: LoginEndpoint,
    current: Mutex<Option<Certificate>>,
}

impl TlsEntry {
    pub(super) fn new(context: &Context, args: HostArgs) -> anyhow::Result<Self> {
        Ok(Self { endpoint: LoginEndpoint::new(context, args)?, current: Mutex::default() })
    }

    /// A certificate that is valid for a while.
    pub(super) async fn certificate(&self) -> anyhow::Result<Certificate> {
        let mut current = self.current.lock().await;
        if let Some(certificate) = current.as_ref().filter(|it| it.valid_until > OffsetDateTime::now_utc() + ENDS_SOON)
        {
            return Ok(certificate.clone());
        }
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot make a key")?;
        let request =
            CreateClientCertificate { host: self.endpoint.host.name.clone(), csr: certificate_request(&key)? };
        let ask = |client: ApiClient| {
            let request = request.clone();
            async move { client.client_certificate(&request).await }
        };
        let made = self.endpoint.ask(ask).await?;
        let certificate = Certificate {
            pem: made.certificate,
            authority: made.authority,
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
            email: made.email,
            valid_until: made.valid_until,
            port: made.port,
        };
        Ok(current.insert(certificate).clone())
    }

    /// A connection to the socket.
    async fn connect(&self) -> anyhow::Result<impl AsyncRead + AsyncWrite + Unpin + Send + use<>> {
        let certificate = self.certificate().await?;
        let (host, target) = (&self.endpoint.host, &self.endpoint.target);
        let port = host.port.unwrap_or(certificate.port);
        let mut config = (*sallyport_net::client_config(&target.trust, &[])?).clone();
        let leaf = CertificateDer::from_pem_slice(certificate.pem.as_bytes()).context("the API gave no certificate")?;
        let key = PrivatePkcs8KeyDer::from(certificate.key_der).into();
        let key =
            CertifiedKey::from_der(vec![leaf], key, config.crypto_provider()).context("cannot use the certificate")?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(key));
        let outbound = target.network.to(&host.name, port);
        let connected =
            sallyport_net::connect_tls_by(&outbound, &host.name, port, &host.name, Arc::new(config), CONNECT_TIMEOUT);
        connected.await.map_err(|error| unreachable(&host.name, port, &error))
    }
}

fn unreachable(host: &str, port: u16, error: &io::Error) -> anyhow::Error {
    let is_trust =
        error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()).is_some_and(TlsFailure::is_certificate);
    let failure = Failure::new(Kind::Unreachable, format!("cannot connect to {host}:{port}: {error}"));
    let step =
        if is_trust { "name the server's root certificate with --ca FILE" } else { "is the socket's tunnel up?" };
    failure.next(step).into()
}

/// Runs the command.
pub(super) async fn run(context: &Context, args: TlsArgs) -> anyhow::Result<()> {
    let entry = Arc::new(TlsEntry::new(context, args.host)?);
    match args.listener {
        None => pipe(&entry).await,
        Some(address) => serve(entry, address).await,
    }
}

/// Relays the standard input and output.
async fn pipe(entry: &TlsEntry) -> anyhow::Result<()> {
    let stream = entry.connect().await?;
    let (mut from, mut to) = tokio::io::split(stream);
    let input = io::stdin().as_fd().try_clone_to_owned().context("there is no standard input")?;
    let output = io::stdout().as_fd().try_clone_to_owned().context("there is no standard output")?;
    let mut input = tokio::fs::File::from_std(input.into());
    let mut output = tokio::fs::File::from_std(output.into());
    let up = async {
        tokio::io::copy(&mut input, &mut to).await?;
        to.shutdown().await
    };
    let down = async {
        let read = tokio::io::copy(&mut from, &mut output).await;
        output.flush().await?;
        read
    };
    tokio::pin!(up, down);
    // The upload may end first; the end of the download ends the command.
    let mut is_up = true;
    loop {
        tokio::select! {
            ended = &mut down => return ended.map(|_| ()).map_err(|error| broken(&error)),
            ended = &mut up, if is_up => {
                is_up = false;
                if let Err(error) = ended {
                    tracing::debug!(%error, "the upload has ended");
                }
            }
        }
    }
}

/// The error of a connection; an alert means that the edge refuses the certificate.
fn broken(error: &io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return OutputClosed.into();
    }
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match refused {
        Some(rustls::Error::AlertReceived(_)) => {
            Failure::new(Kind::NotLoggedIn, "the socket does not admit you, or not any more").into()
        }
        _ => Failure::new(Kind::Unreachable, format!("the connection broke: {error}")).into(),
    }
}

/// Serves local clients until the program is stopped.
async fn serve(entry: Arc<TlsEntry>, address: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::new(Kind::Failed, format!("cannot listen at {address}: {error}")).next("give another --listener")
    })?;
    let address = listener.local_addr()?;
    // Checked now, so that a refusal shows at once and the browser opens before the first client waits.
    let certificate = entry.certificate().await?;
    output::note(&format!("listening at {address} for {}, as {}", entry.endpoint.host.name, certificate.email));
    let places = Arc::new(Semaphore::new(MAX_LOCAL_CLIENTS));
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::debug!(%error, "a client disconnected");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            output::note(&format!("more than {MAX_LOCAL_CLIENTS} clients at once: one is refused"));
            continue;
        };
        let entry = entry.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = carry(&entry, client).await {
                output::note(&format!("a client was not served: {}", output::safe(&format!("{error:#}"))));
            }
        });
    }
}

async fn carry(entry: &TlsEntry, mut client: TcpStream) -> anyhow::Result<()> {
    let mut socket = entry.connect().await?;
    match tokio::io::copy_bidirectional(&mut client, &mut socket).await {
        Ok(_) => Ok(()),
        Err(error) => {
            let is_there = client.peer_addr().is_ok();
            // A failed connection must not look complete.
            drop(client.set_zero_linger());
            // Local clients may close their connections at any time.
            if is_there { Err(broken(&error)) } else { Ok(()) }
        }
    }
}
