//! The country and the autonomous system of an address, from databases in MaxMind's format (MaxMind DB 2.0) that the
//! operator keeps: GeoLite2, GeoIP2, or others with the same fields, such as those of DB-IP.
//!
//! A database is read whole. A map of the file would be smaller, but a file that is cut short while it is mapped ends
//! the process.

use std::{
    fs::File,
    io::{self, Read as _},
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use maxminddb::{PathElement, Reader};
use parking_lot::{Mutex, RwLock};
use sallyport_policy::{Asn, Country};

/// The largest database that is read, in bytes: several times the largest that there is about countries or systems.
pub const MAX_DATABASE_BYTES: u64 = 512 * 1024 * 1024;
/// How often [`Geo::follow`] looks whether a file has changed.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file cannot be read.
    #[error("cannot read the address database {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is larger than [`MAX_DATABASE_BYTES`].
    #[error("the address database {path} is larger than {MAX_DATABASE_BYTES} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is no database.
    #[error("{path} is no database in the MaxMind DB format: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is a database about something else.
    #[error("{path} is a database of type {found:?}, which does not say {wanted} of an address")]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// Its type.
        found: String,
        /// What is wanted of it.
        wanted: &'static str,
    },
}

/// What a database says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Country,
    Asn,
}

impl Kind {
    fn wanted(self) -> &'static str {
        match self {
            Self::Country => "the country",
            Self::Asn => "the autonomous system",
        }
    }

    /// Whether databases of this type have it.
    fn is_in(self, database_type: &str) -> bool {
        let types: &[&str] = match self {
            Self::Country => &["country", "city", "enterprise"],
            Self::Asn => &["asn", "isp"],
        };
        let lower = database_type.to_ascii_lowercase();
        types.iter().any(|known| lower.contains(known))
    }
}

/// By what it is seen that a file was replaced or written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// The databases. What cannot be looked up is not known, and never an error.
#[derive(Debug)]
pub struct Geo {
    country: Option<Database>,
    asn: Option<Database>,
}

struct Database {
    kind: Kind,
    path: PathBuf,
    reader: RwLock<Reader<Vec<u8>>>,
    stamp: Mutex<Stamp>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("kind", &self.kind).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Geo {
    /// Reads the databases that there are: one of countries (or cities), one of autonomous systems. Blocks on the disk.
    ///
    /// # Errors
    /// When a file cannot be read, is no database, or one of something else.
    pub fn open(country: Option<&Path>, asn: Option<&Path>) -> Result<Self, GeoError> {
        let open = |kind, path: Option<&Path>| path.map(|path| Database::open(kind, path)).transpose();
        Ok(Self { country: open(Kind::Country, country)?, asn: open(Kind::Asn, asn)? })
    }

    /// Whether there is a database of countries.
    #[must_use]
    pub fn has_country(&self) -> bool {
        self.country.is_some()
    }

    /// Whether there is a database of autonomous systems.
    #[must_use]
    pub fn has_asn(&self) -> bool {
        self.asn.is_some()
    }

    /// The country that the address is in, where that is known.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<Country> {
        let reader = self.country.as_ref()?.reader.read();
        let found = reader.lookup(address.to_canonical()).ok()?;
        let code: &str = found.decode_path(&[PathElement::Key("country"), PathElement::Key("iso_code")]).ok()??;
        code.parse().ok()
    }

    /// The autonomous system that announces the address, where that is known.
    #[must_use]
    pub fn asn(&self, address: IpAddr) -> Option<Asn> {
        let reader = self.asn.as_ref()?.reader.read();
        let found = reader.lookup(address.to_canonical()).ok()?;
        let number: u32 = found.decode_path(&[PathElement::Key("autonomous_system_number")]).ok()??;
        Asn::new(number)
    }

    /// Reads again the databases whose files have changed; one that is no good any more leaves what was read before.
    /// Returns how many were read. Blocks on the disk.
    ///
    /// # Errors
    /// The first file that has changed and cannot be used. It is not tried again until it changes once more.
    pub fn reload(&self) -> Result<usize, GeoError> {
        let mut outcome = Ok(0);
        for database in self.country.iter().chain(&self.asn) {
            outcome = match (outcome, database.reload()) {
                (Ok(count), Ok(is_new)) => Ok(count + usize::from(is_new)),
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
            };
        }
        outcome
    }

    /// Keeps the databases up to date for as long as it is polled: looks at the files every [`RELOAD_PERIOD`].
    pub async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RELOAD_PERIOD).await;
            let geo = self.clone();
            match tokio::task::spawn_blocking(move || geo.reload()).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(databases)) => tracing::info!(databases, "address databases were read again"),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "an address database has changed and cannot be used; the former one stays");
                }
            }
        }
    }
}

impl Database {
    fn open(kind: Kind, path: &Path) -> Result<Self, GeoError> {
        let (reader, stamp) = read(kind, path)?;
        Ok(Self { kind, path: path.to_owned(), reader: RwLock::new(reader), stamp: Mutex::new(stamp) })
    }

    fn reload(&self) -> Result<bool, GeoError> {
        let unreadable = |source| GeoError::Read { path: self.path.clone(), source };
        let stamp = stamp_of(&self.path.metadata().map_err(unreadable)?);
        if std::mem::replace(&mut *self.stamp.lock(), stamp) == stamp {
            return Ok(false);
        }
        let (reader, stamp) = read(self.kind, &self.path)?;
        *self.reader.write() = reader;
        *self.stamp.lock() = stamp;
        Ok(true)
    }
}

fn stamp_of(metadata: &std::fs::Metadata) -> Stamp {
    Stamp { modified: metadata.modified().ok(), bytes: metadata.len() }
}

fn read(kind: Kind, path: &Path) -> Result<(Reader<Vec<u8>>, Stamp), GeoError> {
    let unreadable = |source| GeoError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let stamp = stamp_of(&file.metadata().map_err(unreadable)?);
    let mut bytes = Vec::new();
    file.take(MAX_DATABASE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_DATABASE_BYTES {
        return Err(GeoError::TooLarge { path: path.to_owned() });
    }
    let malformed =
        |error: maxminddb::MaxMindDbError| GeoError::Malformed { path: path.to_owned(), reason: error.to_string() };
    let reader = Reader::from_source(bytes).map_err(malformed)?;
    let found = &reader.metadata().database_type;
    if !kind.is_in(found) {
        return Err(GeoError::WrongKind { path: path.to_owned(), found: found.clone(), wanted: kind.wanted() });
    }
    Ok((reader, stamp))
}
