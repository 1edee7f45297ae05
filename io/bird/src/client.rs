//! A client of the control socket.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use sallyport_anycast::{
    bird::{
        ConfigureAnswer, Protocol, Reply, ReplyError, ReplyReader, Route, Status, Version, VersionError, protocol_of,
        protocols, routes, status,
    },
    model::Announcement,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

/// After how long without an answer the socket is hung.
pub const HUNG_AFTER: Duration = Duration::from_secs(2);
/// How much longer BIRD may take for reading and applying a configuration.
const CONFIGURE_TIMES: u32 = 5;
/// How often the end of a reconfiguration is asked for, and how long that is waited between.
const MAX_ASKS: u32 = 100;
const BETWEEN_ASKS: Duration = Duration::from_millis(50);
const READ_BYTES: usize = 16 << 10;

/// What went wrong with BIRD.
#[derive(Debug, thiserror::Error)]
pub enum BirdError {
    /// No connection.
    #[error("BIRD's control socket {0} cannot be reached: {1}")]
    Connect(PathBuf, #[source] io::Error),
    /// The connection broke.
    #[error("the connection to BIRD's control socket {0} broke: {1}")]
    Broken(PathBuf, #[source] io::Error),
    /// No answer.
    #[error("BIRD did not answer within {0:?}: {1}")]
    Hung(Duration, String),
    /// Another program, or too old a version.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// BIRD refuses, or says what cannot be read.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// A path that cannot be said to BIRD.
    #[error("{0:?} is no path that BIRD can read: it has quotes or control characters")]
    Path(PathBuf),
    /// The reconfiguration does not end.
    #[error("BIRD is still busy with the last configuration")]
    Busy,
}

/// A client of a control socket. It connects when it is first used, and again after an error.
#[derive(Debug)]
pub struct Bird {
    socket: PathBuf,
    limit: Duration,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    reader: ReplyReader,
    version: Version,
}

impl Bird {
    /// A client of this socket, such as `/run/bird/bird.ctl`.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::with_limit(socket, HUNG_AFTER)
    }

    /// A client with another time limit for each request.
    #[must_use]
    pub fn with_limit(socket: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { socket: socket.into(), limit, connection: None }
    }

    /// The path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The version that answers.
    ///
    /// # Errors
    /// BIRD does not answer, or is too old.
    pub async fn version(&mut self) -> Result<Version, BirdError> {
        // A connection from before may be of a BIRD that is gone.
        self.status().await?;
        Ok(self.connected().await?.version)
    }

    /// How BIRD is.
    ///
    /// # Errors
    /// BIRD does not answer, or not as it should.
    pub async fn status(&mut self) -> Result<Status, BirdError> {
        Ok(status(self.request("show status").await?)?)
    }

    /// Sends a command, and reads the whole reply.
    ///
    /// # Errors
    /// BIRD does not answer in time, or not in its protocol. A refusal is a reply.
    pub async fn request(&mut self, command: &str) -> Result<Reply, BirdError> {
        self.request_within(command, self.limit).await
    }

    async fn request_within(&mut self, command: &str, limit: Duration) -> Result<Reply, BirdError> {
        let was_connected = self.connection.is_some();
        match self.request_once(command, limit).await {
            // BIRD was started again since: one more try, on a new connection.
            Err(BirdError::Broken(..)) if was_connected => self.request_once(command, limit).await,
            result => result,
        }
    }

    async fn request_once(&mut self, command: &str, limit: Duration) -> Result<Reply, BirdError> {
        self.connected().await?;
        // It is put back only after a whole reply: a late one must not answer the next command.
        let Some(mut connection) = self.connection.take() else { return Err(BirdError::Busy) };
        let exchange = timeout(limit, connection.exchange(command)).await;
        let reply = exchange.map_err(|_| BirdError::Hung(limit, command.to_owned()))?;
        let reply = reply.map_err(|error| error.into_bird(&self.socket))?;
        self.connection = Some(connection);
        Ok(reply)
    }

    async fn connected(&mut self) -> Result<&Connection, BirdError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => timeout(self.limit, Connection::open(&self.socket))
                .await
                .map_err(|_| BirdError::Hung(self.limit, "it does not greet".to_owned()))??,
        };
        Ok(self.connection.insert(connection))
    }

    /// Checks a configuration: this file, or the one that BIRD was started with.
    ///
    /// # Errors
    /// It is wrong, or BIRD does not answer.
    pub async fn check(&mut self, file: Option<&Path>) -> Result<(), BirdError> {
        self.configure_by(&format!("configure check{}", quoted(file)?)).await.map(drop)
    }

    /// Loads a configuration: this file, or the one that BIRD was started with. If it is not confirmed within the
    /// seconds, BIRD goes back to the one before. Returns when the new one holds.
    ///
    /// # Errors
    /// It is wrong, or BIRD does not answer, or is busy for too long.
    pub async fn configure(&mut self, file: Option<&Path>, undo_after: Option<u16>) -> Result<(), BirdError> {
        let undo_after = undo_after.map_or_else(String::new, |seconds| format!(" timeout {seconds}"));
        self.configure_by(&format!("configure{}{undo_after}", quoted(file)?)).await?;
        self.wait_until_configured().await
    }

    /// The configuration stays.
    ///
    /// # Errors
    /// BIRD does not answer.
    pub async fn confirm(&mut self) -> Result<ConfigureAnswer, BirdError> {
        self.configure_by("configure confirm").await
    }

    /// BIRD goes back to the configuration before the last one.
    ///
    /// # Errors
    /// BIRD does not answer, or is busy for too long.
    pub async fn undo(&mut self) -> Result<(), BirdError> {
        if self.configure_by("configure undo").await? == ConfigureAnswer::Nothing {
            return Ok(());
        }
        self.wait_until_configured().await
    }

    async fn configure_by(&mut self, command: &str) -> Result<ConfigureAnswer, BirdError> {
        let reply = self.request_within(command, self.limit * CONFIGURE_TIMES).await?;
        Ok(reply.configure_answer()?)
    }

    async fn wait_until_configured(&mut self) -> Result<(), BirdError> {
        for _ in 0..MAX_ASKS {
            if !self.status().await?.is_configuring {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_ASKS).await;
        }
        Err(BirdError::Busy)
    }

    /// The protocols, with their sessions and channels.
    ///
    /// # Errors
    /// BIRD does not answer, or not as it should.
    pub async fn protocols(&mut self) -> Result<Vec<Protocol>, BirdError> {
        Ok(protocols(self.request("show protocols all").await?)?)
    }

    /// What goes to a neighbour, as the neighbour hears it, without the own number that BIRD puts first. None if there
    /// is no session.
    ///
    /// # Errors
    /// BIRD does not answer, or not as it should.
    pub async fn routes_exported(&mut self, peer: &str) -> Result<Option<Vec<Route>>, BirdError> {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !peer.bytes().all(is_safe) {
            return Ok(None);
        }
        let reply = self.request(&format!("show route all export {}", protocol_of(peer))).await?;
        let (code, text) = reply.last();
        // The channel of a session that does not stand has no table.
        if code >= 8000 && (text.contains("No valid tables") || text.contains("is down")) {
            return Ok(None);
        }
        Ok(Some(routes(reply)?))
    }

    /// Own prefixes, as neighbours send them back.
    ///
    /// # Errors
    /// BIRD does not answer, or not as it should.
    pub async fn imported(&mut self) -> Result<Vec<Route>, BirdError> {
        let mut found = Vec::new();
        for family in [4, 6] {
            let command = format!("show route all table sp_anycast{family} where source = RTS_BGP");
            found.extend(routes(self.request(&command).await?)?);
        }
        Ok(found)
    }

    /// What is announced now, whoever configured it.
    ///
    /// # Errors
    /// BIRD does not answer, or does not include the file.
    pub async fn announced(&mut self) -> Result<BTreeMap<IpNet, Announcement>, BirdError> {
        let mut found = BTreeMap::new();
        for family in [4, 6] {
            let command = format!("show route all table sp_anycast{family} protocol sp_static{family}");
            for route in routes(self.request(&command).await?)? {
                let state = if route.is_low { Announcement::Deprioritised } else { Announcement::Announced };
                found.insert(route.net, state);
            }
        }
        Ok(found)
    }

    /// Begins a session anew that ended because the neighbour sent too many routes.
    ///
    /// # Errors
    /// BIRD does not answer, or knows no such neighbour.
    pub async fn enable(&mut self, peer: &str) -> Result<(), BirdError> {
        let name: String = peer.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
        self.request(&format!("enable {}", protocol_of(&name))).await?.into_success()?;
        Ok(())
    }

    /// BIRD ends, and neighbours keep its routes while it starts again.
    ///
    /// # Errors
    /// BIRD does not answer, or refuses.
    pub async fn graceful_restart(&mut self) -> Result<(), BirdError> {
        self.request("graceful restart").await?.into_success()?;
        self.connection = None;
        Ok(())
    }
}

enum ExchangeError {
    Io(io::Error),
    Reply(ReplyError),
}

impl ExchangeError {
    fn into_bird(self, socket: &Path) -> BirdError {
        match self {
            Self::Io(error) => BirdError::Broken(socket.to_owned(), error),
            Self::Reply(error) => error.into(),
        }
    }
}

impl Connection {
    async fn open(socket: &Path) -> Result<Self, BirdError> {
        let stream = UnixStream::connect(socket).await.map_err(|error| BirdError::Connect(socket.to_owned(), error))?;
        let oldest = Version::OLDEST;
        let mut connection = Self { stream, reader: ReplyReader::default(), version: oldest };
        let greeting = connection.read().await.map_err(|error| error.into_bird(socket))?;
        let (code, text) = greeting.last();
        connection.version = Version::from_greeting(&format!("{code:04} {text}"))?;
        Ok(connection)
    }

    async fn exchange(&mut self, command: &str) -> Result<Reply, ExchangeError> {
        self.stream.write_all(format!("{command}\n").as_bytes()).await.map_err(ExchangeError::Io)?;
        self.read().await
    }

    async fn read(&mut self) -> Result<Reply, ExchangeError> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            if let Some(reply) = self.reader.take() {
                return Ok(reply);
            }
            let count = self.stream.read(&mut bytes).await.map_err(ExchangeError::Io)?;
            if count == 0 {
                return Err(ExchangeError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            self.reader.feed(&bytes[..count]).map_err(ExchangeError::Reply)?;
        }
    }
}

fn quoted(file: Option<&Path>) -> Result<String, BirdError> {
    let Some(file) = file else { return Ok(String::new()) };
    let is_bad = |letter: char| letter == '"' || letter == '\\' || letter.is_control();
    match file.to_str() {
        Some(text) if !text.contains(is_bad) => Ok(format!(" \"{text}\"")),
        _ => Err(BirdError::Path(file.to_owned())),
    }
}
