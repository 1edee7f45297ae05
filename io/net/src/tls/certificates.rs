//! Server certificates, signed when a client first requests a name.
//!
//! A bounded cache holds the certificates of known names. A new name costs one signature, about as much as the
//! handshake. A flood of invented names must not displace used names from the cache, so new names beyond a rate share
//! one wildcard certificate. Clients refuse a wildcard directly below a top-level domain (`*.localhost`). There a
//! certificate is signed for each handshake, and not kept.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use parking_lot::{Mutex, RwLock};
use rustls::{
    crypto::aws_lc_rs::sign::any_ecdsa_type,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, SigningKey},
};
use sallyport_pki::{KeyPair, LEAF_LIFETIME, Renewal, renewal};
use time::OffsetDateTime;

use super::{
    budget::Budget,
    ca::{self, CaError, LocalCa},
    public::{PublicCertificate, PublicNames, certified},
};

/// The most certificates in the cache.
pub const MAX_CACHED_CERTIFICATES: usize = 1_024;
/// The most new names a second with a certificate of their own, after a first burst of [`MAX_CACHED_CERTIFICATES`].
pub const MAX_NEW_NAMES_PER_SECOND: u32 = 50;
/// The cache's key of the wildcard certificate: no label contains an asterisk.
const WILDCARD: &str = "*";

/// Counts of certificates and refused handshakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertificateStats {
    /// Certificates signed for new names.
    pub made: u64,
    /// Certificates signed because the former one was past two thirds of its life, or not valid now.
    pub renewed: u64,
    /// Handshakes with the wildcard certificate, or with one that was not kept, because the rate of new names was
    /// exceeded.
    pub over_rate: u64,
    /// Handshakes refused because the client named no host.
    pub refused_without_name: u64,
    /// Handshakes refused because the name is not in the domain, or too deep below it.
    pub refused_name: u64,
    /// Certificates that could not be signed.
    pub failed: u64,
    /// Certificates in the cache now.
    pub cached: usize,
}

/// The ends of certificates, in seconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CertificateEnds {
    /// The earliest end of a served certificate; `None` before the first one is signed, and with given certificates.
    pub server: Option<i64>,
    /// The end of the root that signs here.
    pub authority: Option<i64>,
}

/// Chooses the certificate of a handshake by the requested name.
pub struct Certificates {
    source: Source,
    domain: String,
    clock: Box<dyn Fn() -> OffsetDateTime + Send + Sync>,
    started: Instant,
    counts: Counts,
    /// Whether the last signature failed, so that the log reports the failure once.
    is_failing: AtomicBool,
    new_names: Mutex<Budget>,
    /// Certificates of public authorities, which come first.
    public: PublicNames,
    /// Whether sockets have certificates of public authorities only.
    is_public: AtomicBool,
    /// By label below the domain; the empty label is the domain itself.
    cache: RwLock<HashMap<String, Arc<Entry>>>,
}

/// The source of certificates.
enum Source {
    /// Signed by this process.
    Signed { ca: Box<LocalCa>, leaf_key: KeyPair, signing_key: Arc<dyn SigningKey> },
    /// Given, for the domain and all names directly below it.
    Given(RwLock<Arc<CertifiedKey>>),
}

/// Reason why a given certificate is not used.
#[derive(Debug, thiserror::Error)]
#[error("the certificate cannot be used: {0}")]
pub struct GivenCertificateError(String);

impl GivenCertificateError {
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

/// The labels below the domain that the server itself uses, and the domain.
const OWN_LABELS: [&str; 4] = ["", "api", "login", "tunnel"];

struct Entry {
    certificate: Arc<CertifiedKey>,
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    /// Milliseconds since the start of the process.
    last_used_ms: AtomicU64,
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    renewed: AtomicU64,
    over_rate: AtomicU64,
    refused_without_name: AtomicU64,
    refused_name: AtomicU64,
    failed: AtomicU64,
}

impl Certificates {
    /// Certificates for `domain` and the names directly below it.
    ///
    /// # Errors
    /// The root is not for the domain, or a key cannot be generated.
    pub fn new(ca: LocalCa, domain: &str) -> Result<Arc<Self>, CaError> {
        Self::with_clock(ca, domain, Box::new(OffsetDateTime::now_utc))
    }

    /// Like [`Certificates::new`], with the caller's clock, for tests.
    ///
    /// # Errors
    /// As [`Certificates::new`].
    pub fn with_clock(
        ca: LocalCa,
        domain: &str,
        clock: Box<dyn Fn() -> OffsetDateTime + Send + Sync>,
    ) -> Result<Arc<Self>, CaError> {
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        if !ca.root().covers(&domain) {
            return Err(CaError::OtherDomain {
                path: ca.pem_path().to_owned(),
                root_domain: ca.root().domain.clone().unwrap_or_default(),
                domain,
            });
        }
        let leaf_key = ca::new_key()?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let signing_key = any_ecdsa_type(&der).map_err(|error| CaError::Random(error.to_string()))?;
        Ok(Arc::new(Self::from_source(Source::Signed { ca: Box::new(ca), leaf_key, signing_key }, domain, clock)))
    }

    /// Serves one certificate from elsewhere with its key, both in PEM, for `domain` and the names directly below it.
    /// It is served until [`Certificates::give`] replaces it, even after its end.
    ///
    /// # Errors
    /// The certificate or the key is malformed, or they do not belong together.
    pub fn given(chain_pem: &str, key_pem: &str, domain: &str) -> Result<Arc<Self>, GivenCertificateError> {
        let domain = domain.trim_end_matches('.').to_ascii_lowercase();
        let source = Source::Given(RwLock::new(certified(chain_pem, key_pem)?));
        Ok(Arc::new(Self::from_source(source, domain, Box::new(OffsetDateTime::now_utc))))
    }

    /// Serves this certificate from now on. Where this process signs certificates, nothing changes.
    ///
    /// # Errors
    /// The certificate is malformed, or the key is not its own. The former one is served on.
    pub fn give(&self, chain_pem: &str, key_pem: &str) -> Result<(), GivenCertificateError> {
        let new = certified(chain_pem, key_pem)?;
        if let Source::Given(given) = &self.source {
            *given.write() = new;
        }
        Ok(())
    }

    fn from_source(source: Source, domain: String, clock: Box<dyn Fn() -> OffsetDateTime + Send + Sync>) -> Self {
        let burst = u32::try_from(MAX_CACHED_CERTIFICATES).unwrap_or(u32::MAX);
        let started = Instant::now();
        Self {
            source,
            domain,
            clock,
            started,
            counts: Counts::default(),
            is_failing: AtomicBool::new(false),
            new_names: Mutex::new(Budget::new(MAX_NEW_NAMES_PER_SECOND, burst, started)),
            public: PublicNames::default(),
            is_public: AtomicBool::new(false),
            cache: RwLock::new(HashMap::new()),
        }
    }

    /// Sets whether names of sockets have certificates of public authorities only. The domain itself and the names that
    /// the server uses keep the built-in one until they have another.
    pub fn require_public(&self, is_required: bool) {
        self.is_public.store(is_required, Relaxed);
    }

    /// Replaces the certificates of public authorities. They come before the built-in ones.
    pub fn set_public(&self, all: &[PublicCertificate]) {
        self.public.set(all);
    }

    /// The number of names with a certificate of a public authority.
    #[must_use]
    pub fn public_names(&self) -> usize {
        self.public.len()
    }

    /// The certificate for a name: that of a public authority, or else the built-in one for the domain itself or one
    /// valid label below it; none for any other name.
    ///
    /// When the public certificate of a name that the server itself uses has ended, the built-in one is back: those with
    /// its root can still reach the API and mend it.
    #[must_use]
    pub fn certificate(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        if let Some((public, not_after)) = self.public.get(&lower(name))
            && (not_after > (self.clock)().unix_timestamp() || !self.is_own(name))
        {
            return Some(public);
        }
        let Some(label) = self.built_in_label(name) else {
            self.counts.refused_name.fetch_add(1, Relaxed);
            return None;
        };
        self.of_label(label)
    }

    /// The built-in certificate for a label below the domain.
    fn of_label(&self, label: String) -> Option<Arc<CertifiedKey>> {
        if let Source::Given(given) = &self.source {
            return Some(given.read().clone());
        }
        if let Some(cached) = self.cached(&label) {
            return cached;
        }
        if self.new_names.lock().take(Instant::now()) {
            return self.make(&label).map(|entry| self.keep(label, entry));
        }
        self.counts.over_rate.fetch_add(1, Relaxed);
        if self.domain.contains('.') {
            let make = || self.make(WILDCARD).map(|entry| self.keep(WILDCARD.to_owned(), entry));
            return self.cached(WILDCARD).unwrap_or_else(make);
        }
        self.make(&label).map(|entry| entry.certificate)
    }

    /// The built-in certificate for a name, whatever public ones there are: connectors and other edges trust its root.
    #[must_use]
    pub fn built_in(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.label(name).and_then(|label| self.of_label(label))
    }

    /// Whether a name can have a certificate. Any other name counts as refused.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let covers = self.public.get(&lower(name)).is_some() || self.built_in_label(name).is_some();
        self.counts.refused_name.fetch_add(u64::from(!covers), Relaxed);
        covers
    }

    /// The authority that signs here, if there is one.
    #[must_use]
    pub fn ca(&self) -> Option<&LocalCa> {
        match &self.source {
            Source::Signed { ca, .. } => Some(ca),
            Source::Given(_) => None,
        }
    }

    /// The ends of the certificates.
    #[must_use]
    pub fn ends(&self) -> CertificateEnds {
        let cache = self.cache.read();
        CertificateEnds {
            server: cache
                .values()
                .map(|entry| entry.not_after.unix_timestamp())
                .chain(self.public.earliest_end())
                .min(),
            authority: self.ca().map(|ca| ca.root().not_after.unix_timestamp()),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> CertificateStats {
        CertificateStats {
            made: self.counts.made.load(Relaxed),
            renewed: self.counts.renewed.load(Relaxed),
            over_rate: self.counts.over_rate.load(Relaxed),
            refused_without_name: self.counts.refused_without_name.load(Relaxed),
            refused_name: self.counts.refused_name.load(Relaxed),
            failed: self.counts.failed.load(Relaxed),
            cached: self.cache.read().len(),
        }
    }

    /// The label of a name that has a built-in certificate.
    fn built_in_label(&self, name: &str) -> Option<String> {
        let label = self.label(name)?;
        (!self.is_public.load(Relaxed) || OWN_LABELS.contains(&label.as_str())).then_some(label)
    }

    /// Whether the server itself uses the name.
    fn is_own(&self, name: &str) -> bool {
        self.label(name).is_some_and(|label| OWN_LABELS.contains(&label.as_str()))
    }

    /// The label of a name directly below the domain, in lower case; empty for the domain itself.
    fn label(&self, name: &str) -> Option<String> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if name == self.domain {
            return Some(String::new());
        }
        let label = name.strip_suffix(&self.domain)?.strip_suffix('.')?;
        let fits = (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-');
        fits.then(|| label.to_owned())
    }

    /// The cache's answer for a known label: its certificate, renewed when due, or none when it ended and could not be
    /// renewed.
    fn cached(&self, label: &str) -> Option<Option<Arc<CertifiedKey>>> {
        let entry = self.cache.read().get(label).cloned()?;
        entry.last_used_ms.store(self.now_ms(), Relaxed);
        let state = renewal(entry.not_before, entry.not_after, (self.clock)());
        if matches!(state, Renewal::NotYet { .. }) {
            return Some(Some(entry.certificate.clone()));
        }
        Some(match self.make(label) {
            Some(new) => {
                self.counts.renewed.fetch_add(1, Relaxed);
                Some(self.keep(label.to_owned(), new))
            }
            // The old certificate still serves until its end.
            None if state == Renewal::Due => Some(entry.certificate.clone()),
            None => None,
        })
    }

    fn make(&self, label: &str) -> Option<Entry> {
        match self.sign(label) {
            Ok(entry) => {
                self.counts.made.fetch_add(1, Relaxed);
                if self.is_failing.swap(false, Relaxed) {
                    tracing::info!("server certificates can be signed again");
                }
                Some(entry)
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Relaxed);
                if !self.is_failing.swap(true, Relaxed) {
                    tracing::error!(%error, "a server certificate could not be signed");
                }
                None
            }
        }
    }

    fn sign(&self, label: &str) -> Result<Entry, String> {
        let name = if label.is_empty() { self.domain.clone() } else { format!("{label}.{}", self.domain) };
        let Source::Signed { ca, leaf_key, signing_key } = &self.source else {
            return Err("this process signs no certificates".to_owned());
        };
        let serial = ca::random_serial().map_err(|error| error.to_string())?;
        let issued = ca
            .authority()
            .issue_server(std::slice::from_ref(&name), leaf_key, (self.clock)(), serial, LEAF_LIFETIME)
            .map_err(|error| error.to_string())?;
        tracing::debug!(name, ends = %issued.not_after, "server certificate signed");
        let chain = issued.chain.into_iter().map(CertificateDer::from).collect();
        Ok(Entry {
            certificate: Arc::new(CertifiedKey::new(chain, signing_key.clone())),
            not_before: issued.not_before,
            not_after: issued.not_after,
            last_used_ms: AtomicU64::new(self.now_ms()),
        })
    }

    fn keep(&self, label: String, entry: Entry) -> Arc<CertifiedKey> {
        let certificate = entry.certificate.clone();
        let mut cache = self.cache.write();
        if cache.len() >= MAX_CACHED_CERTIFICATES && !cache.contains_key(&label) {
            let oldest = cache.iter().min_by_key(|(_, entry)| entry.last_used_ms.load(Relaxed));
            if let Some(oldest) = oldest.map(|(label, _)| label.clone()) {
                cache.remove(&oldest);
            }
        }
        cache.insert(label, Arc::new(entry));
        certificate
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The name in lower case without a final dot.
fn lower(name: &str) -> Cow<'_, str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match hello.server_name() {
            Some(name) => self.certificate(name),
            None => {
                self.counts.refused_without_name.fetch_add(1, Relaxed);
                None
            }
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("domain", &self.domain).finish_non_exhaustive()
    }
}
