//! Country and autonomous system of an address, from databases in MaxMind's format (MaxMind DB 2.0) that the operator
//! provides: GeoLite2, GeoIP2, or others with the same fields, such as those of DB-IP.
//!
//! A database is read into memory. Mapping the file would take less memory, but truncating a mapped file would end the
//! process.

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

/// The largest accepted database, in bytes: several times the largest existing one of countries or systems.
pub const MAX_DATABASE_BYTES: u64 = 512 * 1024 * 1024;
/// Interval at which [`Geo::follow`] checks the files for changes.
pub const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// Reason why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file cannot be read.
    #[error("cannot read the address database {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is larger than [`MAX_DATABASE_BYTES`].
    #[error("the address database {path} is larger than {MAX_DATABASE_BYTES} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a database.
    #[error("{path} is not a database in the MaxMind DB format: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The detail.
        reason: String,
    },
    /// The database has other content.
    #[error("{path} is a database of type {found:?}, which does not have {wanted} of an address")]
    WrongKind {
        /// The file.
        path: PathBuf,
        /// Its type.
        found: String,
        /// The needed content.
        wanted: &'static str,
    },
}

/// The kind of a database.
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

    /// Whether databases of this type have the content.
    fn is_in(self, database_type: &str) -> bool {
        let types: &[&str] = match self {
            Self::Country => &["country", "city", "enterprise"],
            Self::Asn => &["asn", "isp"],
        };
        let lower = database_type.to_ascii_lowercase();
        types.iter().any(|known| lower.contains(known))
    }
}

/// Identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// The databases. A failed lookup is not an error: the property is unknown.
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
    /// Reads the given databases: one of countries (or cities), one of autonomous systems. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be read, is not a database, or has other content.
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

    /// The country of the address, if known.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<Country> {
        let reader = self.country.as_ref()?.reader.read();
        let found = reader.lookup(address.to_canonical()).ok()?;
        let code: &str = found.decode_path(&[PathElement::Key("country"), PathElement::Key("iso_code")]).ok()??;
        code.parse().ok()
    }

    /// The autonomous system that announces the address, if known.
    #[must_use]
    pub fn asn(&self, address: IpAddr) -> Option<Asn> {
        let reader = self.asn.as_ref()?.reader.read();
        let found = reader.lookup(address.to_canonical()).ok()?;
        let number: u32 = found.decode_path(&[PathElement::Key("autonomous_system_number")]).ok()??;
        Asn::new(number)
    }

    /// Reads changed databases again; the former one stays if a file cannot be used. Returns how many were read. Blocks
    /// on the disk.
    ///
    /// # Errors
    /// The first changed file that cannot be used. It is not tried again until it changes again.
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

    /// Keeps the databases up to date while it is polled: checks the files every [`RELOAD_PERIOD`].
    pub async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RELOAD_PERIOD).await;
            let geo = self.clone();
            match tokio::task::spawn_blocking(move || geo.reload()).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(databases)) => tracing::info!(databases, "address databases reloaded"),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a changed address database cannot be used; keeping the former one");
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
